//! The files of `/proc`: a name or a line of them can be of the target's making.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::internals::{
    SyscallFile, parse_auxv, parse_maps, parse_stack_limit, parse_stat, parse_status, parse_syscall,
};
use threadglass::target::LwpFacts;
use threadglass::{Lwp, RemoteAddr, syscall_name};

fuzz_target!(|input: &[u8]| {
    let Some((which, bytes)) = input.split_first() else { return };
    match which % 6 {
        0 => {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
            let (maps, bad) = parse_maps(bytes);
            assert!(maps.len() + bad <= lines);
            for map in &maps {
                assert!(map.start < map.end && map.contains(map.start) && !map.contains(map.end));
                let _ = map.is_file();
            }
        }
        1 => {
            if let Some(stat) = parse_stat(bytes) {
                let _ = (stat.is_boosted(), stat.posix_priority(), stat.is_kernel_thread());
            }
        }
        2 => drop(parse_status(bytes)),
        3 => {
            if let Some(call) = parse_syscall(bytes) {
                let _ = call.registers();
                if let SyscallFile::Inside { number, .. } = call {
                    let _ = syscall_name(number);
                }
            }
        }
        4 => {
            let aux = parse_auxv(bytes);
            assert_ne!(aux.entry, Some(RemoteAddr::NULL));
            let _ = parse_stack_limit(bytes);
        }
        _ => {
            // The three files of one thread together, as they are used.
            let mut files = bytes.splitn(3, |byte| *byte == 0);
            let mut next = || files.next().unwrap_or_default();
            if let (Some(stat), Some(status)) = (parse_stat(next()), parse_status(next())) {
                let _ = LwpFacts::from_files(Lwp(1), stat, status, parse_syscall(next())).agree();
            }
        }
    }
});

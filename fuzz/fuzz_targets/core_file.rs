//! A core file: right in the main, wrong wherever the input says so.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::Lwp;
use threadglass::look::{Names, Scope, look, thread_data};
use threadglass::target::{Core, KernelFacts, Target};
use threadglass_fuzz::core_file;

/// Choices of the core's shape, patches of its bytes, and where it is cut.
type Input = (u8, u8, Vec<(u16, Vec<u8>)>, Option<u16>);

fuzz_target!(|input: Input| {
    let (threads_claimed, mode, patches, cut) = input;
    // Now and then more threads than are kept.
    let mut bytes = match mode {
        255 => core_file::assemble(
            &(1000..133_000).flat_map(|lwp| core_file::thread(lwp, 0x1000)).collect::<Vec<_>>(),
            &[],
        ),
        _ => core_file::core(u32::from(threads_claimed % 6) + 1),
    };
    for (at, patch) in patches {
        let at = usize::from(at) % bytes.len();
        let end = (at + patch.len()).min(bytes.len());
        bytes[at..end].copy_from_slice(&patch[..end - at]);
    }
    if let (1, Some(cut)) = (mode % 2, cut) {
        bytes.truncate(usize::from(cut));
    }
    let Ok(core) = Core::from_bytes(bytes) else { return };
    assert!(core.thread_count().is_some_and(|count| count <= (1 << 17) + 1));
    let _ = look(&core, Scope::Threads, Names::None);
    let _ = thread_data(&core);
    let _ = (core.maps(), core.registers(Lwp(1000)), core.floating_registers(Lwp(1000)));
});

//! The system calls that loading the agent takes, and whether a thread's seccomp filters let it make them.

use super::InjectError;
use crate::Pid;
use crate::arch::syscall;
use crate::proc::seccomp::{Args, Filter, Verdict, verdict};

/// The arguments of a call, as far as they are the same each time: of addresses, lengths and descriptors every value is
/// possible.
const ANY: Args = [None; 6];

/// The same with one that is known.
const fn arg(place: usize, value: u64) -> Args {
    let mut args = ANY;
    args[place] = Some(value);
    args
}

/// mmap with a protection and flags.
const fn map(protection: u64, flags: u64) -> Args {
    [None, None, Some(protection), Some(flags), None, None]
}

/// openat for reading, below the current directory (AT_FDCWD, as 64 bits or 32).
const fn open(directory: u64) -> Args {
    [Some(directory), None, Some(0x8_0000), None, None, None]
}

/// What the victim, the stub, libc (to make a thread and to load an object) and the agent do, each call in all its forms.
/// A test has a program record what really happens, and compares.
const NEEDED: &[(i64, &[Args])] = &[
    // The stopped thread: memory at a place of ours, at the place of what was left there, anywhere; a thread (for whose end the
    // only thread of a program waits).
    (syscall::MMAP, &[map(5, 0x10_0022), map(5, 0x32), map(5, 0x22)]),
    (syscall::CLONE, &[arg(0, 0x2d_0f00), arg(0, 0x2d_4f00)]),
    (syscall::MUNMAP, &[ANY]),
    (syscall::RT_SIGRETURN, &[ANY]),
    (syscall::RESTART_SYSCALL, &[ANY]),
    // libc: stacks, heaps (whose size it corrects by giving parts back), objects with their data.
    (syscall::MMAP, &[map(0, 0x2_0022), map(3, 0x2_0022), map(0, 0x4022), map(3, 0x4022), map(3, 0x22)]),
    (
        syscall::MMAP,
        &[map(1, 2), map(1, 0x802), map(5, 0x802), map(5, 0x812), map(1, 0x812), map(3, 0x812), map(3, 0x32)],
    ),
    (syscall::MPROTECT, &[arg(2, 0), arg(2, 1), arg(2, 3), arg(2, 5)]),
    (syscall::CLONE, &[arg(0, 0x3d_0f00)]),
    (syscall::RT_SIGPROCMASK, &[arg(0, 0), arg(0, 1), arg(0, 2)]),
    (syscall::GETTID, &[ANY]),
    (syscall::EXIT, &[arg(0, 0)]),
    (syscall::NANOSLEEP, &[ANY]),
    // futex: wait and wake of one's own, also with a time, and of what is shared; on behalf of nobody, and to see whether
    // something can be written.
    (syscall::FUTEX, &[arg(1, 0x80), arg(1, 0x81), arg(1, 0x89), arg(1, 0x189), arg(1, 0), arg(1, 1), arg(1, 0x85)]),
    (syscall::MEMFD_CREATE, &[arg(1, 0x11), arg(1, 1)]),
    (syscall::WRITE, &[ANY]),
    (syscall::OPENAT, &[open(0xffff_ffff_ffff_ff9c), open(0xffff_ff9c)]),
    (syscall::READ, &[ANY]),
    (syscall::FSTAT, &[ANY]),
    (syscall::CLOSE, &[ANY]),
    // The agent: its pipe, who wants it.
    (syscall::PIPE2, &[arg(1, 0o2_004_000)]),
    (syscall::POLL, &[ANY]),
    (syscall::CLOCK_GETTIME, &[arg(0, 1)]),
    (syscall::GETPID, &[ANY]),
];

/// Calls of theirs that may fail with an error, and no more.
const MAY_FAIL: &[(i64, &[Args])] = &[
    (syscall::CLONE3, &[ANY]),
    (syscall::SET_ROBUST_LIST, &[ANY]),
    (syscall::RSEQ, &[ANY]),
    (syscall::PREAD64, &[ANY]),
    (syscall::NEWFSTATAT, &[ANY]),
    (syscall::BRK, &[ANY]),
    // The last two: guard pages of stacks, since glibc 2.42.
    (syscall::MADVISE, &[arg(2, 4), arg(2, 14), arg(2, 18), arg(2, 25), arg(2, 8), arg(2, 102), arg(2, 103)]),
    // How many processors there are; a number for libc's heap.
    (syscall::SCHED_GETAFFINITY, &[ANY]),
    (syscall::GETRANDOM, &[arg(2, 1)]),
    // The agent: names, a table of descriptors of its own, who wants it.
    (syscall::PRCTL, &[arg(0, 15), [Some(0x5356_4d41), Some(0), None, None, None, None]]),
    (syscall::CLOSE_RANGE, &[[Some(0), Some(0xffff_ffff), Some(2), None, None, None]]),
    (syscall::KILL, &[ANY]),
    (syscall::TGKILL, &[arg(2, 0)]),
    (syscall::PIDFD_OPEN, &[arg(1, 0)]),
    (syscall::PROCESS_VM_READV, &[ANY]),
    (syscall::PROCESS_VM_WRITEV, &[ANY]),
];

/// Refuses a process whose filters would not let all of it happen.
pub(super) fn check(pid: Pid, filters: &[Filter]) -> Result<(), InjectError> {
    let is_refused = |(number, forms): &&(i64, &[Args]), may_fail: bool| {
        forms.iter().any(|args| match verdict(filters, *number as u32, args) {
            Verdict::Allowed => false,
            Verdict::Fails => !may_fail,
            Verdict::Worse => true,
        })
    };
    let needed = NEEDED.iter().find(|call| is_refused(call, false));
    match needed.or_else(|| MAY_FAIL.iter().find(|call| is_refused(call, true))) {
        Some((number, _)) => {
            let name = crate::arch::syscall_word(*number);
            Err(InjectError::Seccomp(pid, format!("{name} is not allowed, or not in every form")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::inject::{Options, attach};
    use std::collections::BTreeSet;
    use testkit::{Build, Fixture, Variant};

    fn is_covered(number: u64, args: [u64; 6]) -> bool {
        let fits = |form: &Args| form.iter().zip(args).all(|(known, arg)| known.is_none_or(|known| known == arg));
        NEEDED.iter().chain(MAY_FAIL).any(|(call, forms)| *call == number as i64 && forms.iter().any(fits))
    }

    /// The program's own supervisor sees every call that is made in it, by whomever.
    #[test]
    fn every_call_that_is_really_made_is_in_the_list() {
        testkit::needs_ptrace!();
        if !testkit::root() {
            testkit::skip("every_call_that_is_really_made_is_in_the_list", "needs root");
            return;
        }
        let program = Build::new("seccomp_record.c").variant(Variant::Default).path();
        let mut fixture = Fixture::start(&program, &[]);
        let force = Options { force: true, ..Options::default() };
        for exact in [false, true] {
            let injected = attach(Pid(fixture.pid()), &Options { exact, ..force }).unwrap();
            assert_eq!(fixture.ask("work"), "worked");
            assert!(injected.detach().unwrap());
        }
        fixture.send("report");
        let mut seen = BTreeSet::new();
        loop {
            let line = fixture.line();
            if line == "end" {
                break;
            }
            let words: Vec<u64> = line.split(' ').map(|word| u64::from_str_radix(word, 16).unwrap()).collect();
            let args: [u64; 6] = words[1..7].try_into().unwrap();
            seen.insert((words[0], args));
        }
        let numbers: BTreeSet<u64> = seen.iter().map(|(number, _)| *number).collect();
        use syscall::{CLONE, EXIT, MEMFD_CREATE, MMAP, MPROTECT, OPENAT, PIPE2, POLL, WRITE};
        for number in [MMAP, CLONE, MEMFD_CREATE, WRITE, OPENAT, PIPE2, POLL, MPROTECT, EXIT] {
            assert!(numbers.contains(&(number as u64)), "the supervisor did not see {number}: {numbers:?}");
        }
        let missing: Vec<_> = seen.iter().filter(|(number, args)| !is_covered(*number, *args)).collect();
        assert!(missing.is_empty(), "not in the list: {missing:x?}");
    }
}

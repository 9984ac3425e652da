//! The system calls that loading the agent takes, and whether a thread's seccomp filters let it make them.

use super::InjectError;
use crate::Pid;
use crate::arch::syscall;
use crate::proc::seccomp::{Args, Filter, Verdict, verdict};

/// A call, as far as its arguments are the same each time. What may fail with an error and no more is marked so.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: i64,
    args: Args,
    may_fail: bool,
}

/// Of addresses, lengths and descriptors every value is possible.
const ANY: Option<u64> = None;
const ALL: Args = [ANY; 6];

const fn is(value: u64) -> Option<u64> {
    Some(value)
}

const fn must(number: i64, args: Args) -> Call {
    Call { number, args, may_fail: false }
}

const fn may(number: i64, args: Args) -> Call {
    Call { number, args, may_fail: true }
}

/// mmap with a protection and flags.
const fn map(protection: u64, flags: u64) -> Call {
    must(syscall::MMAP, [ANY, ANY, is(protection), is(flags), ANY, ANY])
}

const fn second(value: u64) -> Args {
    [ANY, is(value), ANY, ANY, ANY, ANY]
}

const fn third(value: u64) -> Args {
    [ANY, ANY, is(value), ANY, ANY, ANY]
}

const fn first(value: u64) -> Args {
    [is(value), ANY, ANY, ANY, ANY, ANY]
}

/// What the victim, the stub, libc (to make a thread and to load an object) and the agent do. A test has a program record
/// what really happens, and compares.
const CALLS: &[Call] = &[
    // The stopped thread: memory at a place of ours, at the place of what was left there, anywhere; a thread.
    map(5, 0x10_0022),
    map(5, 0x32),
    map(5, 0x22),
    must(syscall::CLONE, first(0x2d_0f00)),
    must(syscall::MUNMAP, ALL),
    must(syscall::RT_SIGRETURN, ALL),
    must(syscall::RESTART_SYSCALL, ALL),
    // libc: stacks, heaps (whose size it corrects by giving parts back), objects with their data.
    map(0, 0x2_0022),
    map(3, 0x2_0022),
    map(0, 0x4022),
    map(3, 0x4022),
    map(3, 0x22),
    map(1, 2),
    map(1, 0x802),
    map(5, 0x802),
    map(5, 0x812),
    map(1, 0x812),
    map(3, 0x812),
    map(3, 0x32),
    must(syscall::MPROTECT, third(0)),
    must(syscall::MPROTECT, third(1)),
    must(syscall::MPROTECT, third(3)),
    must(syscall::MPROTECT, third(5)),
    must(syscall::CLONE, first(0x3d_0f00)),
    may(syscall::CLONE3, ALL),
    must(syscall::RT_SIGPROCMASK, first(0)),
    must(syscall::RT_SIGPROCMASK, first(1)),
    must(syscall::RT_SIGPROCMASK, first(2)),
    may(syscall::SET_ROBUST_LIST, ALL),
    may(syscall::RSEQ, ALL),
    must(syscall::GETTID, ALL),
    must(syscall::EXIT, first(0)),
    must(syscall::NANOSLEEP, ALL),
    // futex: wait and wake of one's own, also with a time, and of what is shared; on behalf of nobody, and to see whether
    // something can be written.
    must(syscall::FUTEX, second(0x80)),
    must(syscall::FUTEX, second(0x81)),
    must(syscall::FUTEX, second(0x89)),
    must(syscall::FUTEX, second(0x189)),
    must(syscall::FUTEX, second(0)),
    must(syscall::FUTEX, second(1)),
    must(syscall::FUTEX, second(0x85)),
    must(syscall::MEMFD_CREATE, second(0x11)),
    must(syscall::MEMFD_CREATE, second(1)),
    must(syscall::WRITE, ALL),
    must(syscall::OPENAT, [is(0xffff_ffff_ffff_ff9c), ANY, is(0x8_0000), ANY, ANY, ANY]),
    must(syscall::OPENAT, [is(0xffff_ff9c), ANY, is(0x8_0000), ANY, ANY, ANY]),
    must(syscall::READ, ALL),
    may(syscall::PREAD64, ALL),
    must(syscall::FSTAT, ALL),
    may(syscall::NEWFSTATAT, ALL),
    must(syscall::CLOSE, ALL),
    may(syscall::BRK, ALL),
    may(syscall::MADVISE, third(4)),
    may(syscall::MADVISE, third(14)),
    may(syscall::MADVISE, third(18)),
    may(syscall::MADVISE, third(25)),
    may(syscall::MADVISE, third(8)),
    // Guard pages of stacks, since glibc 2.42; how many processors there are; a number for its heap.
    may(syscall::MADVISE, third(102)),
    may(syscall::MADVISE, third(103)),
    may(syscall::SCHED_GETAFFINITY, ALL),
    may(syscall::GETRANDOM, third(1)),
    // The agent: names, a table of descriptors of its own, its pipe, who wants it.
    may(syscall::PRCTL, first(15)),
    may(syscall::PRCTL, [is(0x5356_4d41), is(0), ANY, ANY, ANY, ANY]),
    may(syscall::CLOSE_RANGE, [is(0), is(0xffff_ffff), is(2), ANY, ANY, ANY]),
    must(syscall::PIPE2, second(0o2_004_000)),
    must(syscall::POLL, ALL),
    must(syscall::CLOCK_GETTIME, first(1)),
    must(syscall::GETPID, ALL),
    may(syscall::KILL, ALL),
    may(syscall::TGKILL, third(0)),
    may(syscall::PIDFD_OPEN, second(0)),
    may(syscall::PROCESS_VM_READV, ALL),
    may(syscall::PROCESS_VM_WRITEV, ALL),
];

/// Refuses a process whose filters would not let all of it happen.
pub(super) fn check(pid: Pid, filters: &[Filter]) -> Result<(), InjectError> {
    for call in CALLS {
        let is_fine = match verdict(filters, call.number as u32, &call.args) {
            Verdict::Allowed => true,
            Verdict::Fails => call.may_fail,
            Verdict::Worse => false,
        };
        if !is_fine {
            let name = crate::arch::syscall_word(call.number);
            return Err(InjectError::Seccomp(pid, format!("{name} is not allowed, or not in every form")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::inject::{Options, attach};
    use std::collections::BTreeSet;
    use testkit::{Build, Fixture, Variant};

    fn is_covered(number: u64, args: [u64; 6]) -> bool {
        let fits = |call: &Call| {
            call.number == number as i64
                && call.args.iter().zip(args).all(|(known, arg)| known.is_none_or(|known| known == arg))
        };
        CALLS.iter().any(fits)
    }

    /// The program's own supervisor sees every call that is made in it, by whomever.
    #[test]
    fn every_call_that_is_really_made_is_in_the_list() {
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

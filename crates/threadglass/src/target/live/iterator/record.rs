//! From what the program saw of a thread to its facts.
//!
//! # When registers count
//!
//! The fields of a thread are read one after the other while it may run, so a record could mix two
//! moments. It does not when the thread was off the CPUs all the time: then its registers, and all
//! that only it changes, stood still. This is how that is known. `on_cpu` and the counters of
//! switches are read before and after, and `on_cpu` before the counters the second time. If
//! `on_cpu` is 0 both times, the thread either never got a CPU in between or has left it again. It
//! leaves only through a switch, which is counted before `on_cpu` turns 0, and x86 does not reorder
//! loads: so equal counters say that it never got one.
//!
//! `/proc/../syscall` asks for more: the thread must also be out of the run queue. A thread on its
//! way to sleep, or one whose removal the scheduler puts off, is left to `/proc`, which waits for it.

use super::cputime;
use super::fields::{Field, RECORD, WORDS};
use crate::arch::COMPAT;
use crate::model::{Policy, SignalSet};
use crate::proc::{KernelState, Stat, Status, SyscallFile};
use crate::target::LwpFacts;
use crate::{InnerTid, Lwp, Pid, RemoteAddr};

/// What the kernel writes for each thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskRecord([u64; WORDS]);

/// Bits of a task's state. They have been these since 5.15, and iterators over a process exist since
/// 6.1.
mod task {
    pub(super) const REPORTED: u32 = 0x7f;
    pub(super) const DEAD: u32 = 0x80;
    pub(super) const IDLE: u32 = 0x402;
    pub(super) const LOCK_WAIT: u32 = 0x1000;
    pub(super) const FROZEN: u32 = 0x8000;
    /// All that exist: interruptible, uninterruptible, stopped, traced, parked, dead, wakekill,
    /// waking, noload, new, lock wait, freezable, frozen.
    pub(super) const KNOWN: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800 | 0xf000;
}

/// The letter in `/proc` of a living task. `None` for a state this version does not know.
fn letter(state: u32) -> Option<u8> {
    if state & !task::KNOWN != 0 || state & task::DEAD != 0 {
        return None;
    }
    if state & (task::LOCK_WAIT | task::FROZEN) != 0 {
        return Some(b'D');
    }
    if state & task::IDLE == task::IDLE {
        return Some(b'I');
    }
    // The letters of 0 and of each bit, from the lowest; `X` and `Z` belong to ended tasks.
    let highest = u32::BITS - (state & task::REPORTED).leading_zeros();
    b"RSDTtXZP".get(highest as usize).copied()
}

impl TaskRecord {
    pub(super) fn decode(bytes: &[u8; RECORD]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        Self(std::array::from_fn(|i| u64::from_le_bytes(words[i])))
    }

    fn get(&self, field: Field) -> u64 {
        self.0[field as usize]
    }

    /// A field of four bytes; the program extends it with zeros.
    fn get32(&self, field: Field) -> u32 {
        self.get(field) as u32
    }

    fn signed(&self, field: Field) -> i32 {
        self.get32(field) as i32
    }

    /// Which thread this is about.
    pub(super) fn lwp(&self) -> Lwp {
        Lwp(self.signed(Field::Tid))
    }

    /// Which process that belongs to.
    pub(super) fn process(&self) -> Pid {
        Pid(self.signed(Field::Tgid))
    }

    fn is_off_cpu(&self) -> bool {
        self.get(Field::OnCpuBefore) == 0
            && self.get(Field::OnCpuAfter) == 0
            && self.get(Field::VoluntaryBefore) == self.get(Field::VoluntaryAfter)
            && self.get(Field::InvoluntaryBefore) == self.get(Field::InvoluntaryAfter)
    }

    fn is_queued(&self) -> bool {
        self.get(Field::OnQueueBefore) != 0 || self.get(Field::OnQueueAfter) != 0
    }

    /// What `/proc/../syscall` would say of a thread that does not run.
    fn call(&self) -> Option<SyscallFile> {
        if self.get32(Field::ThreadStatus) & COMPAT != 0 {
            return None;
        }
        let (sp, pc) = (RemoteAddr(self.get(Field::StackPointer)), RemoteAddr(self.get(Field::ProgramCounter)));
        match self.signed(Field::CallNumber) {
            -1 => Some(SyscallFile::Outside { sp, pc }),
            number if number >= 0 => {
                let args = [Field::Arg0, Field::Arg1, Field::Arg2, Field::Arg3, Field::Arg4, Field::Arg5];
                Some(SyscallFile::Inside { number: number.into(), args: args.map(|arg| self.get(arg)), sp, pc })
            }
            _ => None,
        }
    }

    /// State and call, as `/proc` would have them. `None` when the record does not tell: the thread moved
    /// while it was read, has ended, or is in a rare state that only `/proc` gets right.
    pub(super) fn state_and_call(&self) -> Option<(KernelState, SyscallFile)> {
        let state = self.get32(Field::StateAfter);
        if state != self.get32(Field::StateBefore) || self.get(Field::ExitState) != 0 {
            return None;
        }
        let syscall = match state {
            0 => SyscallFile::Running,
            _ if self.is_off_cpu() && !self.is_queued() => self.call()?,
            _ => return None,
        };
        let state = KernelState::from_letter(letter(state)?);
        if (state == KernelState::Running) != (syscall == SyscallFile::Running) {
            // Being woken, or new.
            return None;
        }
        Some((state, syscall))
    }

    /// The facts, as `/proc` would have them. `None` when the record does not tell.
    pub(super) fn facts(&self) -> Option<LwpFacts> {
        let (state, syscall) = self.state_and_call()?;
        let pair = |user, system| (self.get(user), self.get(system));
        let (sampled, shown) =
            (pair(Field::UserTime, Field::SystemTime), pair(Field::ShownUserTime, Field::ShownSystemTime));
        let (utime, stime) = cputime::ticks(sampled, self.get(Field::Runtime), shown);
        let stat = Stat {
            tid: self.lwp().0,
            comm: self.name(),
            state,
            priority: i64::from(self.signed(Field::Priority)) - 100,
            nice: i64::from(self.signed(Field::StaticPriority)) - 120,
            utime,
            stime,
            rt_priority: self.get32(Field::RtPriority).into(),
            policy: Policy::from_number(self.get32(Field::Policy).into()),
            // The others are not among the facts.
            ..Stat::default()
        };
        let status = Status {
            // Only used where all numbers are those of one pid namespace.
            inner_tid: Some(InnerTid(self.lwp().0)),
            tracer: if self.get(Field::Ptrace) == 0 { 0 } else { self.signed(Field::ParentTid) },
            blocked: SignalSet(self.get(Field::Blocked)),
            pending: SignalSet(self.get(Field::Pending)),
            voluntary_switches: self.get(Field::VoluntaryAfter),
            involuntary_switches: self.get(Field::InvoluntaryAfter),
            ..Status::default()
        };
        let robust_head = Some(RemoteAddr(self.get(Field::RobustList))).filter(|head| !head.is_null());
        Some(LwpFacts { robust_head, ..LwpFacts::from_files(self.lwp(), stat, status, Some(syscall)) })
    }

    /// The CPU that the thread was on last, and when, in milliseconds by that CPU's own clock.
    pub(super) fn last_run(&self) -> Option<(usize, f64)> {
        let at = self.get(Field::LastRun);
        (at > 0).then(|| (self.get32(Field::Cpu) as usize, at as f64 / 1e6))
    }

    fn name(&self) -> Vec<u8> {
        let words = &self.0[Field::Name as usize..=Field::NameEnd as usize];
        let mut name: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(values: &[(Field, u64)]) -> TaskRecord {
        let mut words = [0; WORDS];
        // Asleep in nanosleep, unless said otherwise.
        for (word, value) in
            [(Field::StateBefore, 1), (Field::StateAfter, 1), (Field::CallNumber, 35)].iter().chain(values)
        {
            words[*word as usize] = *value;
        }
        TaskRecord(words)
    }

    fn state(value: u64) -> TaskRecord {
        record(&[(Field::StateBefore, value), (Field::StateAfter, value)])
    }

    #[test]
    fn letters_are_those_of_proc() {
        let states: [(u8, &[u32]); 7] = [
            (b'R', &[0, 0x200, 0x800]),
            (b'S', &[0x1, 0x2001]),
            (b'D', &[0x2, 0x102, 0x1000, 0x8000]),
            (b'I', &[0x402]),
            (b'T', &[0x104]),
            (b't', &[0x108]),
            (b'P', &[0x40]),
        ];
        for (expected, states) in states {
            states.iter().for_each(|state| assert_eq!(letter(*state), Some(expected), "{state:#x}"));
        }
        assert_eq!(letter(0x80), None, "dead");
        assert_eq!(letter(0x10_0000), None, "not known");
    }

    #[test]
    fn a_sleeping_thread_shows_its_call() {
        let facts = record(&[(Field::Arg1, 7), (Field::StackPointer, 0x1000), (Field::ProgramCounter, 0x2000)]).facts();
        let expected = SyscallFile::Inside {
            number: 35,
            args: [0, 7, 0, 0, 0, 0],
            sp: RemoteAddr(0x1000),
            pc: RemoteAddr(0x2000),
        };
        assert_eq!(facts.and_then(|facts| facts.syscall), Some(expected));
        let outside = record(&[(Field::CallNumber, u64::MAX)]).facts().and_then(|facts| facts.syscall);
        assert_eq!(outside, Some(SyscallFile::Outside { sp: RemoteAddr(0), pc: RemoteAddr(0) }));
    }

    #[test]
    fn a_running_thread_shows_none() {
        let facts = state(0).facts().unwrap();
        assert_eq!((facts.state, facts.syscall), (KernelState::Running, Some(SyscallFile::Running)));
    }

    #[test]
    fn what_moved_meanwhile_is_left_to_proc() {
        for torn in [
            (Field::StateAfter, 0),
            (Field::OnCpuBefore, 1),
            (Field::OnCpuAfter, 1),
            (Field::VoluntaryAfter, 1),
            (Field::InvoluntaryBefore, 1),
            (Field::OnQueueBefore, 1),
            (Field::OnQueueAfter, 1),
            (Field::ExitState, 0x20),
            (Field::ThreadStatus, 2),
            (Field::CallNumber, -7i64 as u64),
        ] {
            assert_eq!(record(&[torn]).facts(), None, "{torn:?}");
        }
        for odd in [0x80, 0x200, 0x800, 0x10_0000] {
            assert_eq!(state(odd).facts(), None, "{odd:#x}");
        }
    }

    #[test]
    fn names_end_at_the_first_nul() {
        let name = |bytes: &[u8; 16]| {
            let mut record = record(&[]);
            let at = Field::Name as usize;
            for (word, bytes) in record.0[at..].iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            record.facts().and_then(|facts| facts.name).unwrap()
        };
        assert_eq!(name(b"worker\0\0leftover"), b"worker");
        assert_eq!(name(b"\0orker\0\0leftover"), b"");
        assert_eq!(name(b"0123456789abcdef"), b"0123456789abcdef");
    }

    #[test]
    fn tracers_and_priorities() {
        let facts = record(&[
            (Field::Ptrace, 1),
            (Field::ParentTid, 77),
            (Field::Policy, 1),
            (Field::RtPriority, 30),
            (Field::Priority, 69),
            (Field::StaticPriority, 125),
        ])
        .facts()
        .unwrap();
        assert_eq!((facts.tracer, facts.policy, facts.priority), (77, Some(Policy::Fifo), Some(30)));
        assert_eq!((facts.nice, facts.boosted), (Some(5), Some(false)));
        assert_eq!(record(&[(Field::ParentTid, 77)]).facts().map(|facts| facts.tracer), Some(0));
    }
}

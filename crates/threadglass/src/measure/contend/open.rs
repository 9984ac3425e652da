//! Waits that the agent has not counted: they have not ended yet, or had begun before the agent could see them. And what
//! those do who hold the lock meanwhile.
//!
//! Nobody is asked but the looks that are taken anyway: a thread that waits for the same lock in two looks, and has not given
//! up the CPU in between, has waited all the time.

use super::callers::wait_stack;
use crate::look::library_of;
use crate::measure::bounded;
use crate::model::{Frame, HolderDid, Snapshot, SyncKind, SyncObject, Thread, ThreadState, WaitStack};
use crate::target::LwpFacts;
use crate::{Lwp, RemoteAddr, arch, runtimes};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Waits and locks that are remembered.
const MOST: usize = 10_000;

/// A lock that the agent counts.
type Lock = (RemoteAddr, SyncKind);

/// A wait, as looks have seen it.
#[derive(Clone, Copy, Debug)]
struct SeenWait {
    first: Instant,
    last: Instant,
    /// How often the thread had given up the CPU.
    switches: Option<(u64, u64)>,
    /// Whether it had begun before the agent could see it, which so will never count it.
    is_unseen: bool,
}

/// What a holder was seen to do: a word, a system call, a lock.
type Deed = (&'static str, Option<String>, Option<RemoteAddr>);

/// What was seen so far.
pub(super) struct OpenWaits {
    waits: HashMap<(Lock, Lwp), SeenWait>,
    /// Ended ones that the agent has not seen: how many of each lock, and how long.
    ended: HashMap<Lock, (u64, Duration)>,
    deeds: HashMap<RemoteAddr, HashMap<Deed, u64>>,
    /// Where threads wait, as the last look at their stacks has seen them.
    stacks: HashMap<(Lock, Lwp), Vec<Frame>>,
    began: Instant,
    latest: Instant,
}

impl OpenWaits {
    pub(super) fn new(began: Instant) -> Self {
        let (waits, ended, deeds, stacks) = Default::default();
        Self { waits, ended, deeds, stacks, began, latest: began }
    }

    /// Takes a look at who waits. If `is_first`, what is seen now began before the agent could see it, unless the agent
    /// has been counting all the time.
    pub(super) fn add(
        &mut self,
        snapshot: &Snapshot,
        facts: &BTreeMap<Lwp, LwpFacts>,
        is_first: bool,
        is_unseen: bool,
    ) {
        let now = Instant::now();
        for object in snapshot.objects.iter().filter(|object| is_counted(object)) {
            let lock = (object.address, object.kind);
            for waiter in object.waiters.iter().filter(|waiter| waiter.pid.is_none()) {
                let switches = facts.get(&waiter.lwp).and_then(|facts| facts.switches);
                let new = SeenWait {
                    first: if is_first { self.began } else { now },
                    last: now,
                    switches,
                    is_unseen: is_first && is_unseen,
                };
                let key = (lock, waiter.lwp);
                let is_full = self.waits.len() >= MOST;
                match self.waits.get_mut(&key) {
                    Some(seen) if seen.switches == switches && switches.is_some() => seen.last = now,
                    Some(seen) => {
                        let old = std::mem::replace(seen, new);
                        self.end(lock, &old);
                    }
                    None if is_full => {}
                    None => {
                        self.waits.insert(key, new);
                    }
                }
            }
            self.see_holders(object, &snapshot.threads);
        }
        let mut gone = Vec::new();
        self.waits.retain(|(lock, _), seen| {
            let is_there = seen.last == now;
            if !is_there {
                gone.push((*lock, *seen));
            }
            is_there
        });
        gone.iter().for_each(|(lock, seen)| self.end(*lock, seen));
        self.latest = now;
    }

    /// A wait has ended. It was seen so long; the agent has counted it, unless it could not.
    fn end(&mut self, lock: Lock, seen: &SeenWait) {
        if seen.is_unseen
            && let Some((waits, time)) = bounded(&mut self.ended, lock, MOST)
        {
            *waits += 1;
            *time += seen.last - seen.first;
        }
    }

    fn see_holders(&mut self, object: &SyncObject, threads: &[Thread]) {
        if object.waiters.is_empty() {
            return;
        }
        let holders = object.holders.iter().filter(|holder| holder.pid.is_none()).filter_map(|holder| holder.lwp);
        for lwp in holders {
            let thread = threads.iter().find(|thread| thread.lwp == Some(lwp));
            let Some(deed) = thread.and_then(deed) else { continue };
            let Some(deeds) = bounded(&mut self.deeds, object.address, MOST) else { return };
            if let Some(looks) = bounded(deeds, deed, 64) {
                *looks += 1;
            }
        }
    }

    /// Takes the stacks of threads that wait.
    pub(super) fn see_stacks(&mut self, threads: &[Thread]) {
        let stacks = threads.iter().filter_map(|thread| {
            let lock = thread.waits_for.as_ref().map(|lock| (lock.address, lock.kind))?;
            let frames: Vec<Frame> = thread.frames.iter().skip_while(|frame| is_of_lock(frame)).cloned().collect();
            (!frames.is_empty()).then_some(((lock, thread.lwp?), frames))
        });
        self.stacks = stacks.collect();
    }

    /// Where threads wait for a lock that have not ended their waits, longest first.
    pub(super) fn waited_in(&self, lock: Lock) -> Vec<WaitStack> {
        let open = self.waits.iter().filter(|((of, _), _)| *of == lock);
        let mut times: HashMap<&[Frame], u64> = HashMap::new();
        for (key, seen) in open {
            if let Some(frames) = self.stacks.get(key) {
                *times.entry(frames).or_default() += ns(self.latest.saturating_duration_since(seen.first));
            }
        }
        let mut all: Vec<WaitStack> =
            times.into_iter().map(|(frames, time)| wait_stack(time, frames.to_vec())).collect();
        all.sort_by_key(|stack| (Reverse(stack.time_ns), stack.frames.first().map(|frame| frame.pc)));
        all
    }

    /// The locks with such waits: how many, and how long.
    pub(super) fn all(&self) -> HashMap<Lock, (u64, u64)> {
        let mut all: HashMap<Lock, (u64, u64)> =
            self.ended.iter().map(|(lock, (waits, time))| (*lock, (*waits, ns(*time)))).collect();
        for ((lock, _), seen) in &self.waits {
            let (waits, time) = all.entry(*lock).or_default();
            *waits += 1;
            *time = time.saturating_add(ns(self.latest.saturating_duration_since(seen.first)));
        }
        all
    }

    /// What the holders of a lock did, most often first.
    pub(super) fn holders_did(&self, lock: RemoteAddr) -> Vec<HolderDid> {
        let deeds = self.deeds.get(&lock).into_iter().flatten();
        let mut all: Vec<_> = deeds
            .map(|((what, call, lock), looks)| HolderDid { what, call: call.clone(), lock: *lock, looks: *looks })
            .collect();
        all.sort_by(|a, b| {
            (Reverse(a.looks), a.what, &a.call, a.lock).cmp(&(Reverse(b.looks), b.what, &b.call, b.lock))
        });
        all
    }
}

/// Whether the agent counts what is done with an object.
fn is_counted(object: &SyncObject) -> bool {
    use SyncKind::{Barrier, Cond, Mutex, Rwlock, Semaphore, Spinlock};
    runtimes::of(object.family).is_counted()
        && matches!(object.kind, Mutex | Cond | Rwlock | Semaphore | Barrier | Spinlock)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a frame is that of the lock function itself: the C library's, or the agent's.
fn is_of_lock(frame: &Frame) -> bool {
    matches!(library_of(frame), Some("libc" | "agent"))
}

/// What a holder does. Nothing is said of one that is in futex(2) for a lock that is not known: the lock is read after the
/// threads, and who waited for it then may have it by now.
fn deed(thread: &Thread) -> Option<Deed> {
    let call = thread.syscall.as_ref();
    let word = || call.map(|call| arch::syscall_word(call.number).into_owned());
    Some(match (thread.state, &thread.waits_for) {
        (ThreadState::Active, _) => ("on_cpu", None, None),
        (ThreadState::Run, _) => ("runnable", None, None),
        (ThreadState::Sleep, Some(lock)) => ("waiting", None, Some(lock.address)),
        (ThreadState::Sleep, None) if call.is_some_and(|call| call.number == arch::syscall::FUTEX) => return None,
        (ThreadState::Sleep, None) => ("asleep", word(), None),
        _ => ("stopped", None, None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Evidence, Family, Holder, Syscall, Waiter};

    #[test]
    fn a_holder_in_futex_is_one_that_has_just_waited() {
        let lock = SyncObject {
            holders: vec![Holder { lwp: Some(Lwp(1)), ..Holder::default() }],
            waiters: vec![Waiter {
                lwp: Lwp(2),
                thread: None,
                pid: None,
                side: None,
                timed: false,
                stable: true,
                evidence: Evidence::Derived,
            }],
            ..SyncObject::bare(RemoteAddr(0x1000), SyncKind::Mutex, Family::Pthread, Evidence::Derived)
        };
        let did = |number| {
            let (name, args, descriptors) = (arch::syscall_word(number), [0; 6], Vec::new());
            let syscall = Some(Syscall { number, name, args, descriptors });
            let holder = Thread { lwp: Some(Lwp(1)), state: ThreadState::Sleep, syscall, ..Thread::default() };
            let mut seen = OpenWaits::new(Instant::now());
            seen.see_holders(&lock, &[holder]);
            seen.holders_did(lock.address).into_iter().map(|did| (did.what, did.call)).collect::<Vec<_>>()
        };
        assert_eq!(did(arch::syscall::FUTEX), []);
        assert_eq!(did(arch::syscall::READ), [("asleep", Some("read".to_owned()))]);
    }
}

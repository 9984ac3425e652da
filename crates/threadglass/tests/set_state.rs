//! Plans for changing objects: from any bytes, and carried out on memory that is only bytes.

use proptest::prelude::*;
use std::cell::RefCell;
use threadglass::act::set_state::{SetError, apply, kick, plan, undo_plan};
use threadglass::internals::glibc::locks::{CondLayout, Mutex, Rwlock, decode, size_of};
use threadglass::memory::{Memory, MemoryWrite, ReadError, ReadErrorKind};
use threadglass::model::{
    Detail, Evidence, Family, Holder, HolderStatus, SetPlan as Plan, Side, SyncKind, SyncObject, SyncState, Waiter,
};
use threadglass::{InnerTid, Lwp, Pid, RemoteAddr};

const AT: RemoteAddr = RemoteAddr(0x5000);

/// Memory that records what is written to it.
struct Scratch {
    bytes: RefCell<Vec<u8>>,
    writes: RefCell<Vec<RemoteAddr>>,
    /// The write of this number, from 0 on, is not accepted.
    fails: Option<usize>,
}

impl Scratch {
    fn new(bytes: &[u8]) -> Self {
        Self { bytes: RefCell::new(bytes.to_vec()), writes: RefCell::default(), fails: None }
    }
}

impl Memory for Scratch {
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        let at = (addr.0 - AT.0) as usize;
        buf.copy_from_slice(&self.bytes.borrow()[at..at + buf.len()]);
        Ok(buf.len())
    }
}

impl MemoryWrite for Scratch {
    fn write_at(&self, addr: RemoteAddr, bytes: &[u8]) -> Result<(), ReadError> {
        let mut writes = self.writes.borrow_mut();
        writes.push(addr);
        if Some(writes.len() - 1) == self.fails {
            return Err(ReadError { addr, len: bytes.len(), kind: ReadErrorKind::Denied });
        }
        let at = (addr.0 - AT.0) as usize;
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

fn object(kind: SyncKind, family: Family, waiters: &[(i32, Option<Side>)], holder: Option<i32>) -> SyncObject {
    let waiter = |(lwp, side): &(i32, Option<Side>)| Waiter {
        lwp: Lwp(*lwp),
        thread: None,
        pid: None,
        side: *side,
        timed: false,
        stable: true,
        evidence: Evidence::Derived,
    };
    SyncObject {
        holders: holder
            .map(|tid| Holder {
                lwp: Some(Lwp(tid)),
                thread: None,
                recorded: Some(InnerTid(tid)),
                pid: None,
                side: None,
                status: HolderStatus::Alive,
                evidence: Evidence::Recorded,
                why: None,
            })
            .into_iter()
            .collect(),
        waiters: waiters.iter().map(waiter).collect(),
        ..SyncObject::bare(AT, kind, family, Evidence::Derived)
    }
}

fn bytes(words: &[u32], size: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(size, 0);
    bytes
}

fn mutex(words: [u32; 5]) -> Vec<u8> {
    bytes(&words, 40)
}

fn rwlock(readers: u32, writers: u32, phase: u32, futex: u32, writer: u32) -> Vec<u8> {
    bytes(&[readers, writers, phase, futex, 0, 0, writer], 56)
}

/// The plan's words as (offset, old, new).
fn words(plan: &Plan) -> Vec<(u64, u32, u32)> {
    plan.words.iter().map(|word| (word.address.0 - AT.0, word.old, word.new)).collect()
}

#[test]
fn a_mutex_is_freed_with_the_lock_last() {
    let of = |words: [u32; 5], holder| {
        plan(&object(SyncKind::Mutex, Family::Pthread, &[(8, None)], holder), &mutex(words), 0).unwrap()
    };
    // One whose holder will be refused, and one whose holder is gone: it is taken off the users.
    assert_eq!(words(&of([2, 3, 7, 1, 1], Some(7))), [(4, 3, 0), (8, 7, 0), (12, 1, 0), (0, 2, 0)]);
    assert_eq!(words(&of([2, 0, 7, 3, 0], None)), [(8, 7, 0), (12, 3, 2), (0, 2, 0)]);
    // One whose holder will take itself off.
    assert_eq!(words(&of([2, 0, 7, 1, 0], Some(7))), [(8, 7, 0), (0, 2, 0)]);
    // One that was locked by force.
    assert_eq!(words(&of([2, 0, 0, 0, 0], None)), [(0, 2, 0)]);
    // The ceiling stays.
    assert_eq!(words(&of([20 << 19 | 2, 1, 7, 1, 64 | 2], Some(7))).last(), Some(&(0, 20 << 19 | 2, 20 << 19)));
    let free = of([0; 5], None);
    assert!(free.words.is_empty() && free.kick == [Lwp(8)], "who sleeps on a free one is woken");
}

#[test]
fn a_mutex_is_locked_for_waiters_if_there_are_any() {
    let of = |waiters: &[_], words| plan(&object(SyncKind::Mutex, Family::Pthread, waiters, None), &mutex(words), -3);
    assert_eq!(words(&of(&[], [0; 5]).unwrap()), [(0, 0, 1)]);
    assert_eq!(words(&of(&[(8, None)], [0; 5]).unwrap()), [(0, 0, 2)]);
    assert_eq!(words(&of(&[], [20 << 19, 0, 0, 0, 64]).unwrap()), [(0, 20 << 19, 20 << 19 | 1)]);
    let held = of(&[(8, None)], [2, 0, 7, 1, 0]).unwrap();
    assert!(held.words.is_empty() && held.kick.is_empty());
}

#[test]
fn rwlocks_as_measured() {
    let (read, write) = ((8, Some(Side::Read)), (9, Some(Side::Write)));
    let of = |waiters: &[_], bytes: Vec<u8>, value| {
        plan(&object(SyncKind::Rwlock, Family::Pthread, waiters, None), &bytes, value)
    };
    // Queued readers get it.
    let two_queued = || rwlock(2 << 3 | 3, 0, 3, 3, 7);
    let freed = of(&[read, write], two_queued(), 0).unwrap();
    assert_eq!(words(&freed), [(24, 7, 0), (12, 3, 0), (0, 2 << 3 | 3, 2 << 3), (8, 3, 0)]);
    assert_eq!(freed.kick.len(), 2);
    // The writer that waits behind a reader gets it, and readers that wait behind that one look again.
    let freed = of(&[write, read], rwlock(1 << 3 | 6, 0, 2, 1, 0), 0).unwrap();
    assert_eq!(words(&freed), [(0, 1 << 3 | 6, 3), (8, 2, 1)]);
    assert!(matches!(of(&[], rwlock(1 << 3 | 2, 0, 2, 1, 0), 0), Err(SetError::BadValue(_))), "to whom?");
    // Readers.
    assert_eq!(words(&of(&[], rwlock(1, 0, 1, 0, 0), 4).unwrap()), [(0, 1, 4 << 3), (8, 1, 0)]);
    assert_eq!(words(&of(&[write], rwlock(1 << 3 | 2, 0, 2, 1, 0), 4).unwrap()), [(0, 1 << 3 | 2, 4 << 3 | 2)]);
    assert!(matches!(of(&[read], two_queued(), 1), Err(SetError::BadValue(_))));
    assert_eq!(words(&of(&[read], two_queued(), 3).unwrap())[2], (0, 2 << 3 | 3, 3 << 3));
    // A writer.
    assert_eq!(words(&of(&[], rwlock(0, 0, 0, 0, 0), -1).unwrap()), [(0, 0, 3), (12, 0, 1), (8, 0, 1)]);
    assert!(matches!(of(&[write], rwlock(1 << 3 | 2, 0, 2, 1, 0), -1), Err(SetError::BadValue(_))));
    // In the moments between.
    for moving in [rwlock(2, 0, 0, 0, 0), rwlock(1 << 3 | 1, 0, 1, 0, 0), rwlock(3, 1 << 31 | 1, 1, 0, 0)] {
        for value in [-1, 0, 1] {
            assert!(matches!(of(&[], moving.clone(), value), Err(SetError::Moving(_))), "{moving:?}");
        }
    }
}

#[test]
fn what_cannot_be_set_says_why() {
    let of = |kind, family, bytes: Vec<u8>| plan(&object(kind, family, &[], None), &bytes, 0).unwrap_err();
    assert!(of(SyncKind::Mutex, Family::Pthread, mutex([7, 1, 7, 1, 128 | 16])).is_missing_capability());
    assert!(of(SyncKind::Mutex, Family::Pthread, mutex([7, 1, 7, 1, 32])).is_missing_capability());
    assert!(of(SyncKind::Rwlock, Family::RustStd, vec![0; 8]).is_missing_capability());
    assert!(of(SyncKind::Mutex, Family::ParkingLot, vec![0; 8]).is_missing_capability());
    assert!(matches!(of(SyncKind::Cond, Family::Pthread, vec![0; 48]), SetError::NoState(..)));
    assert!(matches!(of(SyncKind::Join, Family::Pthread, vec![0; 4]), SetError::NoState(..)));
    assert_eq!(
        of(SyncKind::Mutex, Family::Pthread, mutex([0, 0, 0, 0, u32::MAX])),
        SetError::Destroyed(SyncKind::Mutex)
    );
    assert_eq!(of(SyncKind::Mutex, Family::Pthread, mutex([9; 5])), SetError::Implausible(SyncKind::Mutex));
    assert_eq!(of(SyncKind::Mutex, Family::RustStd, vec![3, 0, 0, 0]), SetError::Implausible(SyncKind::Mutex));
    assert_eq!(of(SyncKind::Semaphore, Family::Pthread, vec![0; 3]), SetError::Implausible(SyncKind::Semaphore));
}

#[test]
fn nothing_is_written_to_what_has_changed() {
    let held = mutex([2, 0, 7, 1, 0]);
    let plan = plan(&object(SyncKind::Mutex, Family::Pthread, &[], None), &held, 0).unwrap();
    let memory = Scratch::new(&mutex([2, 0, 8, 1, 0]));
    assert_eq!(apply(&memory, &plan), Err(SetError::Changed(AT)));
    assert!(memory.writes.borrow().is_empty());
    // A write that fails takes the earlier ones back.
    let memory = Scratch { fails: Some(2), ..Scratch::new(&held) };
    assert!(matches!(apply(&memory, &plan), Err(SetError::Memory(_))));
    assert_eq!(*memory.bytes.borrow(), held);
    assert!(memory.writes.borrow().len() > 2);
}

#[test]
fn threads_that_are_not_there_are_reported() {
    let kicked = kick(Pid::me(), &[Lwp(i32::MAX)]);
    assert!(kicked.kicked.is_empty());
    assert_eq!((kicked.not_kicked[0].lwp, kicked.not_kicked[0].why.as_str()), (Lwp(i32::MAX), "it has ended"));
}

/// Bytes that are often, but not always, an object.
fn some_bytes() -> impl Strategy<Value = (SyncKind, Vec<u8>)> {
    let small = prop_oneof![0u32..4, 0u32..64, Just(1 << 31), Just(20 << 19 | 1), any::<u32>()];
    let kinds = prop_oneof![Just(SyncKind::Mutex), Just(SyncKind::Rwlock), Just(SyncKind::Semaphore)];
    (kinds, prop::collection::vec(small, 7)).prop_map(|(kind, mut words)| {
        // What the rest of a mutex or semaphore must be, for it to be one.
        if kind == SyncKind::Mutex {
            words[5] = 0;
            words[6] = 0;
        }
        if kind == SyncKind::Semaphore {
            words[2] = if words[2] % 2 == 0 { 0 } else { 128 };
        }
        (kind, bytes(&words, size_of(kind).unwrap()))
    })
}

proptest! {
    #[test]
    fn a_plan_that_is_made_gives_the_state_asked_for(
        (kind, before) in some_bytes(),
        value in prop_oneof![-2i32..6, any::<i32>()],
        waiters in prop::collection::vec((1i32..99, any::<bool>()), 0..3),
        has_holder in any::<bool>(),
    ) {
        let waiters: Vec<_> = waiters
            .into_iter()
            .map(|(lwp, reads)| (lwp, (kind == SyncKind::Rwlock).then_some(if reads { Side::Read } else { Side::Write })))
            .collect();
        let object = object(kind, Family::Pthread, &waiters, has_holder.then_some(7));
        let Ok(made) = plan(&object, &before, value) else { return Ok(()) };
        let was = decode(kind, &before, CondLayout::Unknown).unwrap();
        prop_assert!(was.is_plausible);
        let memory = Scratch::new(&before);
        let applied = apply(&memory, &made).unwrap();
        prop_assert!(!applied.moved_on);
        let after = memory.bytes.borrow().clone();
        prop_assert_eq!(&after, &made.after());
        let is = decode(kind, &after, CondLayout::Unknown).unwrap();
        prop_assert!(is.is_plausible, "{:?}", after);
        prop_assert!(value == 0 || made.kick.is_empty() || kind != SyncKind::Mutex);
        match kind {
            SyncKind::Mutex => {
                let locked = if value == 0 { SyncState::Unlocked } else { SyncState::Locked };
                prop_assert_eq!(is.state, locked);
                let (was, is) = (Mutex::new(&before).unwrap(), Mutex::new(&after).unwrap());
                prop_assert_eq!(was.kind, is.kind);
                prop_assert_eq!(was.decoded_ceiling(), is.decoded_ceiling());
            }
            SyncKind::Semaphore => prop_assert_eq!(is.detail, Detail::Semaphore { count: value as u32 }),
            _ => {
                let (old, new) = (Rwlock::new(&before).unwrap(), Rwlock::new(&after).unwrap());
                match value {
                    // With readers or a writer in the queue it is theirs.
                    0 => prop_assert!(
                        is.state == SyncState::Unlocked
                            || old.is_write_locked() && new.readers_inside() == old.readers >> 3
                            || old.has_primary_writer_waiting() && new.is_write_locked()
                    ),
                    n if n > 0 => prop_assert_eq!(new.readers_inside(), n as u32),
                    _ => prop_assert!(new.is_write_locked()),
                }
                // Who waits for the phase to change waits on a word that agrees with it.
                let agrees = |lock: &Rwlock| lock.phase_futex & 1 == lock.readers & 1;
                prop_assert!(agrees(&new) || !agrees(&old));
            }
        }
        // Back again, exactly; and nothing to write for what is so already.
        let back = undo_plan((AT, kind, Family::Pthread), &before, &after, &after, false, Vec::new()).unwrap();
        prop_assert_eq!(back.after(), before.clone());
        if kind != SyncKind::Rwlock {
            prop_assert!(plan(&object, &after, value).unwrap().words.is_empty());
        }
    }

    #[test]
    fn undoing_refuses_other_bytes(old in prop::collection::vec(0u8..3, 8), new in prop::collection::vec(0u8..3, 8), now in prop::collection::vec(0u8..3, 8)) {
        let of = |partial| undo_plan((AT, SyncKind::Mutex, Family::Pthread), &old, &new, &now, partial, Vec::new());
        prop_assert_eq!(of(false).is_ok(), now == new);
        let mixed = now.chunks(4).zip(old.chunks(4).zip(new.chunks(4))).all(|(now, (old, new))| now == old || now == new);
        prop_assert_eq!(of(true).is_ok(), mixed);
    }
}

/// The ceiling, read on its own.
trait Ceiling {
    fn decoded_ceiling(&self) -> u32;
}

impl Ceiling for Mutex {
    fn decoded_ceiling(&self) -> u32 {
        if self.kind & 64 != 0 { self.lock >> 19 } else { 0 }
    }
}

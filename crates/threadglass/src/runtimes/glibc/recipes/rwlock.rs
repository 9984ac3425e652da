//! `pthread_rwlock_t`.
//!
//! Its words depend on each other, and on who waits where: queued readers are counted already and wait for the
//! phase to change; the first writer has marked the lock and waits for the phase too; further writers wait for that
//! mark to go.

use crate::model::{Side, SyncKind, SyncObject};
use crate::runtimes::glibc::locks::Rwlock;
use crate::runtimes::glibc::locks::rwlock::{READER_SHIFT, USED, WRITE_LOCKED, WRITE_PHASE};
use crate::runtimes::recipe::{HALF_WRITTEN, empty_plan};
use crate::runtimes::{SetError, SetPlan};

const PHASE_FUTEX: u64 = 8;
const WRITERS_FUTEX: u64 = 12;
const WRITER: u64 = 24;
/// A writer hands its role to another one.
const HAND_OVER: u32 = 1 << 31;
/// More readers than there can be threads.
const MAX_READERS: u32 = 1 << 22;

/// What the lock's main word says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Now {
    Free,
    /// And whether a writer waits for the readers to leave.
    Read {
        writer_waits: bool,
    },
    Write {
        queued: u32,
    },
}

pub(in crate::runtimes::glibc) fn plan(object: &SyncObject, bytes: &[u8], value: i32) -> Result<SetPlan, SetError> {
    let lock = Rwlock::new(bytes).ok_or(SetError::Implausible(SyncKind::Rwlock))?;
    let now = now(&lock)?;
    match u32::try_from(value) {
        Err(_) => write_lock(object, bytes, value, &lock, now),
        Ok(0) => unlock(object, bytes, &lock, now),
        Ok(readers) if readers < MAX_READERS => read_lock(object, bytes, readers, &lock, now),
        Ok(readers) => {
            let why = format!("there cannot be {readers} readers: that is more than there can be threads");
            Err(SetError::BadValue(why))
        }
    }
}

fn now(lock: &Rwlock) -> Result<Now, SetError> {
    if lock.writers & HAND_OVER != 0 {
        return Err(SetError::Moving("one writer is handing it to the next"));
    }
    let count = lock.readers >> READER_SHIFT;
    match (lock.readers & WRITE_PHASE != 0, lock.readers & WRITE_LOCKED != 0, count) {
        (_, false, 0) => Ok(Now::Free),
        (false, false, _) => Ok(Now::Read { writer_waits: false }),
        (false, true, 0) => Err(SetError::Moving("a writer is taking it")),
        (false, true, _) => Ok(Now::Read { writer_waits: true }),
        (true, false, _) => Err(SetError::Moving("readers are coming in")),
        (true, true, queued) => Ok(Now::Write { queued }),
    }
}

fn has_waiters(object: &SyncObject, side: Side) -> bool {
    object.waiters.iter().any(|waiter| waiter.side == Some(side))
}

fn unlock(object: &SyncObject, bytes: &[u8], lock: &Rwlock, now: Now) -> Result<SetPlan, SetError> {
    let mut plan = empty_plan(object, bytes, 0, "unlocked");
    plan.kick_all(object);
    match now {
        Now::Free => {}
        Now::Write { queued } => {
            if queued > 0 {
                plan.becomes = format!("read-locked by the {queued} readers that are queued");
            }
            leave_write_phase(&mut plan, lock, queued);
            warn_writer(&mut plan, lock);
        }
        Now::Read { writer_waits: true } => {
            // Without the writer, nobody would ever unlock what it is given.
            if !has_waiters(object, Side::Write) {
                return Err(SetError::BadValue(
                    "its bytes say that a writer waits for the readers, but no such thread is seen (is it in another \
                     process?), so nobody can be given the lock"
                        .to_owned(),
                ));
            }
            plan.becomes = "write-locked by the writer that waits".to_owned();
            plan.word("readers", 0, lock.readers, WRITE_PHASE | WRITE_LOCKED);
            plan.word("wrphase_futex", PHASE_FUTEX, lock.phase_futex, 1);
            warn_readers(&mut plan, lock.readers_inside(), 0);
        }
        Now::Read { writer_waits: false } => {
            plan.word("readers", 0, lock.readers, 0);
            plan.word("wrphase_futex", PHASE_FUTEX, lock.phase_futex, 0);
            warn_readers(&mut plan, lock.readers_inside(), 0);
        }
    }
    Ok(plan)
}

fn read_lock(object: &SyncObject, bytes: &[u8], readers: u32, lock: &Rwlock, now: Now) -> Result<SetPlan, SetError> {
    let mut plan = empty_plan(object, bytes, readers as i32, format!("read-locked by {readers}"));
    match now {
        Now::Free => {
            plan.word("readers", 0, lock.readers, readers << READER_SHIFT);
            plan.word("wrphase_futex", PHASE_FUTEX, lock.phase_futex, 0);
            plan.kick_all(object);
            warn_readers(&mut plan, 0, readers);
        }
        Now::Write { queued } => {
            if readers < queued {
                return Err(SetError::BadValue(format!(
                    "{queued} readers are queued and come in with the first: set {queued} or more readers, or 0"
                )));
            }
            leave_write_phase(&mut plan, lock, readers);
            plan.kick_all(object);
            warn_writer(&mut plan, lock);
            warn_readers(&mut plan, queued, readers);
        }
        // A writer that waits, and readers that wait for it, go on doing so: their marks are kept.
        Now::Read { .. } => {
            let marks = lock.readers & ((1 << READER_SHIFT) - 1);
            plan.word("readers", 0, lock.readers, readers << READER_SHIFT | marks);
            warn_readers(&mut plan, lock.readers_inside(), readers);
        }
    }
    Ok(plan)
}

fn write_lock(object: &SyncObject, bytes: &[u8], value: i32, lock: &Rwlock, now: Now) -> Result<SetPlan, SetError> {
    let mut plan = empty_plan(object, bytes, value, "write-locked without a holder");
    match now {
        Now::Write { .. } => {
            plan.becomes = "write-locked".to_owned();
            return Ok(plan);
        }
        Now::Read { writer_waits: true } => {
            return Err(SetError::BadValue(
                "a writer waits for the readers and would be let in: set 0 to give it the lock".to_owned(),
            ));
        }
        Now::Read { writer_waits: false } => warn_readers(&mut plan, lock.readers_inside(), 0),
        Now::Free => {}
    }
    let used = |side| if has_waiters(object, side) { USED } else { 0 };
    // The main word first: from then on, who comes waits.
    plan.word("readers", 0, lock.readers, WRITE_PHASE | WRITE_LOCKED);
    plan.word("writers_futex", WRITERS_FUTEX, lock.writers_futex, 1 | used(Side::Write));
    plan.word("wrphase_futex", PHASE_FUTEX, lock.phase_futex, 1 | used(Side::Read));
    plan.word("cur_writer", WRITER, lock.writer, 0);
    plan.warn("no thread holds the lock: threads that want it wait until it is set to 0 again");
    Ok(plan)
}

/// From a writer to `readers`, in the order in which a writer itself leaves.
fn leave_write_phase(plan: &mut SetPlan, lock: &Rwlock, readers: u32) {
    plan.word("cur_writer", WRITER, lock.writer, 0);
    plan.word("writers_futex", WRITERS_FUTEX, lock.writers_futex, 0);
    plan.word("readers", 0, lock.readers, readers << READER_SHIFT);
    plan.word("wrphase_futex", PHASE_FUTEX, lock.phase_futex, 0);
}

fn warn_writer(plan: &mut SetPlan, lock: &Rwlock) {
    // One that was locked by force has no writer.
    let Some(writer) = lock.owner() else { return };
    plan.warn(HALF_WRITTEN);
    plan.warn(format!(
        "when its writer (lwp {} as the program sees it) goes on and unlocks it, the lock counts one reader too few: \
         it may let a writer in among readers, or never let one in again",
        writer.0
    ));
}

fn warn_readers(plan: &mut SetPlan, inside: u32, readers: u32) {
    if inside > readers {
        plan.warn(format!(
            "{inside} readers are inside and will still unlock it: the count then goes below zero, and no writer \
             comes in until it is set to 0 again"
        ));
        plan.warn("a writer that comes in may change the data while they read it");
    }
    if readers > inside {
        let missing = readers - inside;
        plan.warn(format!("{missing} of these readers do not exist, so writers wait until it is set to 0 again"));
    }
}

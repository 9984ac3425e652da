//! `pthread_mutex_t`.

use crate::model::{MutexProtocol, MutexType, SyncKind, SyncObject};
use crate::runtimes::glibc::locks::Mutex;
use crate::runtimes::glibc::locks::mutex::CEILING_SHIFT;
use crate::runtimes::recipe::{HALF_WRITTEN, empty_plan, living_holders};
use crate::runtimes::{SetError, SetPlan};

const COUNT: u64 = 4;
const OWNER: u64 = 8;
const USERS: u64 = 12;

pub(in crate::runtimes::glibc) fn plan(object: &SyncObject, bytes: &[u8], value: i32) -> Result<SetPlan, SetError> {
    let mutex = Mutex::new(bytes).ok_or(SetError::Implausible(SyncKind::Mutex))?;
    if mutex.is_robust() {
        return Err(SetError::NotCapable(
            "a robust mutex cannot be set: it is on its owner's list, which the kernel reads",
        ));
    }
    if mutex.protocol() == MutexProtocol::Inherit {
        return Err(SetError::NotCapable(
            "a priority-inheriting mutex cannot be set: the kernel also keeps its owner and queue",
        ));
    }
    let ceiling = match mutex.protocol() {
        MutexProtocol::Protect => mutex.lock & !((1 << CEILING_SHIFT) - 1),
        _ => 0,
    };
    let is_held = mutex.lock != ceiling;
    Ok(match value {
        0 => unlock(object, bytes, &mutex, ceiling, is_held),
        _ => lock(object, bytes, value, &mutex, ceiling, is_held),
    })
}

fn unlock(object: &SyncObject, bytes: &[u8], mutex: &Mutex, ceiling: u32, is_held: bool) -> SetPlan {
    let mut plan = empty_plan(object, bytes, 0, "unlocked");
    // Also when there is nothing to write: somebody may have freed it without waking anyone.
    plan.kick_all(object);
    if !is_held {
        return plan;
    }
    // The lock comes last: until then nobody can take it and sign where we erase.
    plan.word("count", COUNT, mutex.count, 0);
    plan.word("owner", OWNER, mutex.owner, 0);
    plan.word("nusers", USERS, mutex.users, users(object, mutex));
    plan.word("lock", 0, mutex.lock, ceiling);
    if mutex.owner == 0 {
        return plan;
    }
    plan.warn(HALF_WRITTEN);
    if let Some(holder) = living_holders(object) {
        plan.warn(match mutex.mutex_type() {
            MutexType::Recursive | MutexType::Errorcheck => {
                format!("when {holder} goes on and unlocks the mutex, pthread_mutex_unlock returns EPERM")
            }
            MutexType::Normal | MutexType::Adaptive => {
                format!("when {holder} goes on, it unlocks the mutex again, even if another thread holds it by then")
            }
        });
        if mutex.protocol() == MutexProtocol::Protect {
            plan.warn(format!("{holder} keeps the priority that the mutex's ceiling gave it"));
        }
    }
    if plan.kick.len() > 1 {
        plan.warn("one waiter takes the mutex, the others go on waiting");
    }
    plan
}

/// The number of users without the holder, who is one of them. One that lives and whose own unlock will be accepted
/// takes itself off then; counted twice, the number would end below zero. A mutex locked by force has no holder.
fn users(object: &SyncObject, mutex: &Mutex) -> u32 {
    let checks = matches!(mutex.mutex_type(), MutexType::Recursive | MutexType::Errorcheck);
    match mutex.owner {
        0 => mutex.users,
        _ if !checks && living_holders(object).is_some() => mutex.users,
        _ => mutex.users.saturating_sub(1),
    }
}

fn lock(object: &SyncObject, bytes: &[u8], value: i32, mutex: &Mutex, ceiling: u32, is_held: bool) -> SetPlan {
    let mut plan = empty_plan(object, bytes, value, "locked");
    if is_held {
        return plan;
    }
    // 2 makes an unlock wake somebody.
    let locked = if object.waiters.is_empty() { 1 } else { 2 };
    plan.becomes = "locked without a holder".to_owned();
    plan.word("lock", 0, mutex.lock, ceiling | locked);
    plan.warn("no thread holds the lock: threads that want it wait until it is set to 0 again");
    plan
}

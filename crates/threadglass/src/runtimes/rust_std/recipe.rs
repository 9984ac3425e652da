//! The mutex of Rust's standard library since 1.62: one word, 0 free, 1 locked, 2 locked and waited for.

use crate::model::{SyncKind, SyncObject};
use crate::runtimes::recipe::{HALF_WRITTEN, empty_plan};
use crate::runtimes::{SetError, SetPlan, u32_at};

pub(super) fn plan(object: &SyncObject, bytes: &[u8], value: i32) -> Result<SetPlan, SetError> {
    let word = u32_at(bytes, 0).filter(|word| *word <= 2).ok_or(SetError::Implausible(SyncKind::Mutex))?;
    let mut plan = empty_plan(object, bytes, value, "unlocked");
    if value == 0 {
        plan.kick_all(object);
        plan.word("futex", 0, word, 0);
        if word != 0 {
            plan.warn(HALF_WRITTEN);
            plan.warn("two threads may have `&mut` to the same data, which is undefined behaviour in Rust");
            plan.warn("the holder's guard will unlock the mutex again, even if another thread holds it by then");
        }
        return Ok(plan);
    }
    plan.becomes = "locked".to_owned();
    if word == 0 {
        plan.becomes = "locked without a holder".to_owned();
        plan.word("futex", 0, 0, if object.waiters.is_empty() { 1 } else { 2 });
        plan.warn("no thread holds the lock: threads that want it wait until it is set to 0 again");
    }
    Ok(plan)
}

//! `sem_t`.

use crate::model::{SyncKind, SyncObject};
use crate::runtimes::glibc::locks::Semaphore;
use crate::runtimes::recipe::empty_plan;
use crate::runtimes::{SetError, SetPlan};

pub(in crate::runtimes::glibc) fn plan(object: &SyncObject, bytes: &[u8], value: i32) -> Result<SetPlan, SetError> {
    let semaphore = Semaphore::new(bytes).ok_or(SetError::Implausible(SyncKind::Semaphore))?;
    let count = u32::try_from(value)
        .map_err(|_| SetError::BadValue(format!("a semaphore counts from 0 to {}, not to {value}", i32::MAX)))?;
    let mut plan = empty_plan(object, bytes, value, format!("count {count}"));
    plan.word("value", 0, semaphore.value, count);
    if count > 0 {
        plan.kick_all(object);
    }
    if count > semaphore.value {
        plan.warn("more threads come in than the program expects: what the semaphore limits may be overrun");
    }
    if count < semaphore.value {
        plan.warn("threads wait that the program would have let in, until another thread posts");
    }
    Ok(plan)
}

//! Carrying a plan out.

use crate::memory::MemoryWrite;
use crate::model::SetPlan;
use crate::runtimes::SetError;

/// What came of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Words written.
    pub words: usize,
    /// Whether somebody has changed the object since: the new state is in use already.
    pub moved_on: bool,
}

/// **Writes** what `plan` says, if the object still has the bytes that the plan was made for; nothing otherwise.
///
/// Wakes nobody. The words are written one by one, each whole, and the one that lets threads in or keeps them
/// out when it must be.
pub fn apply(memory: &dyn MemoryWrite, plan: &SetPlan) -> Result<Applied, SetError> {
    let read = || memory.read_vec(plan.address, plan.before.len());
    if read()? != plan.before {
        return Err(SetError::Changed(plan.address));
    }
    for (done, word) in plan.words.iter().enumerate() {
        let Err(error) = memory.write_at(word.address, &word.new.to_le_bytes()) else { continue };
        // Half a change is worse than none. Whether this works is out of our hands.
        for word in plan.words[..done].iter().rev() {
            let _ = memory.write_at(word.address, &word.old.to_le_bytes());
        }
        return Err(error.into());
    }
    let now = read()?;
    match plan.words.first() {
        Some(word) if now == plan.before => Err(SetError::NotKept(word.address)),
        // Somebody may have used the new state already.
        _ => Ok(Applied { words: plan.words.len(), moved_on: now != plan.after() }),
    }
}

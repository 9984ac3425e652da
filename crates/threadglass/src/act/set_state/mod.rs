//! Changing the state of a synchronization object by force, and making its waiters notice.
//!
//! **What you give:** an object as a look found it, its bytes, and a value with the meaning of
//! `td_sync_setstate`: of a mutex 0 unlocks and anything else locks; of a semaphore it is the count; of a rwlock
//! 0 unlocks, `n` is the number of readers, below zero is a writer. **What you get:** a [`SetPlan`], which is
//! plain data: words with their old and new values, who must be woken, and what may break. [`apply`] writes it,
//! [`carry_out`] holds who is [`Concerned`] meanwhile and wakes. **What it will not do:** run code in the target, or
//! send it a signal.
//!
//! Two facts make it work. A thread in futex(2) does not notice that its word was written; but any stop makes it
//! begin the call anew, and that reads the word. And ptrace's seize leaves nothing behind: when we die, in
//! whatever way, the kernel lets go of what we held.
//!
//! There is no compare-and-swap in another process. So whoever is known to be concerned (holders that live, and
//! waiters) is held still first; then the bytes are compared, written and read again; then all are let go, which is
//! also the kick. A thread that comes for the lock at that very moment is not held: what it does in the few
//! microseconds between the comparison and the write is lost. For a lock that threads hang on this does not happen:
//! it is taken, so who comes goes to sleep, and leaves at most a mark that there are waiters, which the kick
//! makes needless.

mod apply;
mod carry_out;
mod find;
mod kick;
mod sharers;
mod undo;

pub use crate::model::{SetPlan, WordWrite};
pub use crate::runtimes::{SetError, plan};
pub use apply::{Applied, apply};
pub use carry_out::{Concerned, carry_out};
pub use find::{FindError, FoundLock, find};
pub use kick::{Kicked, kick};
pub use sharers::{Sharers, find_sharers};
pub use undo::undo_plan;

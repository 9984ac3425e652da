//! Choosing threads: the four criteria of `td_ta_thr_iter`.

use crate::model::{SignalSet, Task, Thread, ThreadState};

/// Which threads to keep. `None` is the wild card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadFilter {
    /// Exactly this state.
    pub state: Option<ThreadState>,
    /// At least this priority.
    pub min_priority: Option<i32>,
    /// Exactly this signal mask.
    pub signal_mask: Option<SignalSet>,
    /// Exactly these creation flags.
    pub user_flags: Option<u32>,
}

/// Any priority at or below this is the wild card (TD_THR_LOWEST_PRIORITY).
pub const LOWEST_PRIORITY: i32 = -20;

impl ThreadFilter {
    /// Whether `thread` passes. A zombie's mask counts as empty. A thread whose priority nothing says runs at 0;
    /// what is unknown otherwise passes only the wild card.
    pub fn matches(&self, thread: &Thread) -> bool {
        let zombie = thread.state == ThreadState::Zombie;
        let mask = if zombie { Some(SignalSet(0)) } else { thread.signal_mask };
        self.state.is_none_or(|state| state == thread.state)
            && self.min_priority.is_none_or(|min| min <= LOWEST_PRIORITY || thread.priority.unwrap_or(0) >= min)
            && self.signal_mask.is_none_or(|wanted| mask == Some(wanted))
            && self.user_flags.is_none_or(|flags| thread.user_flags == Some(flags))
    }

    /// Whether `task` passes. A task has a state. It blocks no signals, its priority is 0, and it has no flags.
    pub fn matches_task(&self, task: &Task) -> bool {
        self.state.is_none_or(|state| state == task.state)
            && self.min_priority.is_none_or(|min| min <= 0)
            && self.signal_mask.is_none_or(|wanted| wanted == SignalSet(0))
            && self.user_flags.is_none_or(|flags| flags == 0)
    }
}

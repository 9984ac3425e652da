//! Waiting for conditions, never for time.

use std::time::{Duration, Instant};

/// The kernel's view of one task, read here on its own so that tests do not ask the code they test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskState {
    /// The state letter of `stat`.
    pub letter: char,
    /// The text of `syscall`.
    pub call: String,
}

/// Reads the state of a task; `None` when it is gone.
pub fn task_state(pid: i32, lwp: i32) -> Option<TaskState> {
    let read = |name| std::fs::read(format!("/proc/{pid}/task/{lwp}/{name}")).ok();
    let stat = String::from_utf8_lossy(&read("stat")?).into_owned();
    let letter = stat.rsplit_once(") ")?.1.chars().next()?;
    let call = String::from_utf8_lossy(&read("syscall").unwrap_or_default()).trim().to_owned();
    Some(TaskState { letter, call })
}

/// Waits until a task sleeps in a system call.
pub fn wait_asleep(pid: i32, lwp: i32) {
    eventually(&format!("task {lwp} of {pid} should fall asleep"), || {
        task_state(pid, lwp).is_some_and(|task| "SD".contains(task.letter) && !task.call.starts_with(['r', '-']))
    });
}

/// Whether `condition` comes true within `limit`.
pub fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    let mut nap = Duration::from_micros(200);
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(50));
    }
}

/// Waits for a condition that comes true by itself, however busy the machine is.
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_within(Duration::from_secs(600), condition), "{what}, and did not in ten minutes");
}

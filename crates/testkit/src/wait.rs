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
///
/// One try counts as a second at most, however long it takes: a machine that is busy, or stood still for a while, has not
/// shown that the condition stays false.
pub fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    const ONE_TRY: Duration = Duration::from_secs(1);
    let mut left = limit;
    let mut nap = Duration::from_micros(200);
    loop {
        let begun = Instant::now();
        if condition() {
            return true;
        }
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(50));
        left = left.saturating_sub(begun.elapsed().min(ONE_TRY));
    }
}

/// Waits for a condition that comes true by itself, however busy the machine is.
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_within(Duration::from_secs(60), condition), "{what}, and did not in a minute");
}

/// Tries something again that a busy machine may spoil, `times` at most, until it finds no fault. A mistake spoils every
/// try; the faults of all tries are shown then.
pub fn any_of<T>(times: usize, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let mut faults = Vec::new();
    for number in 1..=times {
        match attempt() {
            Ok(value) => return value,
            Err(fault) => faults.push(format!("try {number}: {fault}")),
        }
    }
    panic!("{times} tries, and a fault in each:\n{}", faults.join("\n"));
}

/// `Ok` if a condition holds, else what is wrong: for [`any_of`].
pub fn ensure(condition: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(fault()) }
}

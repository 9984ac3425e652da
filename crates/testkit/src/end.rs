//! Ending what a test started, in whatever state it is: a test may fail, but never hang.

use crate::{Signal, eventually, holds_within, task_state};
use nix::unistd::Pid;
use std::process::Child;
use std::time::Duration;

/// Kills a child and collects it.
///
/// A process that is being traced can be collected by its tracer alone until that lets go, and a debugger
/// which hangs never does. So one that stays away for long has its tracer killed.
pub(crate) fn end(child: &mut Child) {
    let pid = child.id() as i32;
    let _ = child.kill();
    if collected_within(child, Duration::from_secs(30)) {
        return;
    }
    let tracer = status_field(pid, "TracerPid:").filter(|tracer| *tracer != 0);
    eprintln!("{pid} was killed and cannot be collected; its tracer {tracer:?} is killed too");
    if let Some(tracer) = tracer {
        kill(tracer);
    }
    if !collected_within(child, Duration::from_secs(30)) {
        eprintln!("{pid} is left behind");
    }
}

/// Kills a child with everything below it: the server that a debugger started must not outlive it.
pub fn end_with_descendants(child: &mut Child) {
    for pid in descendants(child.id() as i32) {
        kill(pid);
    }
    end(child);
}

/// Kills a tool at a moment when it holds a thread of process `target`, and says whether there was one before the tool ended
/// or it was `too_late`.
///
/// The tool is stopped first. What is held then is held when the kill comes, whoever else has the CPU in between.
pub fn kill_while_it_holds(tool: &mut Child, target: i32, mut too_late: impl FnMut() -> bool) -> bool {
    let own = tool.id() as i32;
    let mut is_held = false;
    while !is_held && matches!(tool.try_wait(), Ok(None)) && !too_late() {
        if holds_a_thread(target) {
            let _ = nix::sys::signal::kill(Pid::from_raw(own), Signal::SIGSTOP);
            eventually("the tool should stop", || {
                task_state(own, own).is_none_or(|task| matches!(task.letter, 'T' | 'Z'))
            });
            is_held = task_state(own, own).is_some_and(|task| task.letter == 'T') && holds_a_thread(target);
            if !is_held {
                let _ = nix::sys::signal::kill(Pid::from_raw(own), Signal::SIGCONT);
            }
        }
    }
    end(tool);
    is_held
}

/// Whether a thread of a process is stopped by who traces it. Nothing but `stat` is read: other files wait for threads that
/// run.
fn holds_a_thread(pid: i32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats.into_iter().any(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('t')))
}

fn collected_within(child: &mut Child, limit: Duration) -> bool {
    holds_within(limit, || !matches!(child.try_wait(), Ok(None)))
}

fn kill(pid: i32) {
    let _ = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
}

fn descendants(root: i32) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = std::fs::read_dir("/proc")
        .expect("/proc is there")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, status_field(pid, "PPid:")?)))
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid));
        next += 1;
    }
    found.split_off(1)
}

fn status_field(pid: i32, name: &str) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn everything_below_a_child_ends_with_it() {
        let mut shell = Command::new("sh").args(["-c", "sh -c 'sleep 1000 & wait' & wait"]).spawn().expect("a shell");
        let mut below = Vec::new();
        assert!(holds_within(Duration::from_secs(60), || {
            below = descendants(shell.id() as i32);
            below.len() == 2
        }));
        end_with_descendants(&mut shell);
        // In a container without an init nobody collects orphans.
        let ended = |pid: &i32| task_state(*pid, *pid).is_none_or(|task| task.letter == 'Z');
        assert!(holds_within(Duration::from_secs(60), || below.iter().all(ended)), "{below:?}");
    }
}

//! Which signal has stopped a process, and what a job in the background waits for.

use crate::Pid;
use crate::host;
use crate::model::{BackgroundJob, NamedProcess, StopKind, Thread, signal_name};
use crate::proc::Job;
use crate::target::Target;

/// Processes of the foreground that are named.
const NAMED: usize = 4;

/// Says of threads that job control has stopped by which signal, and who has the terminal that they wanted.
pub(super) fn add(target: &dyn Target, threads: &mut [Thread]) {
    let is_stopped = |thread: &Thread| thread.stop.as_ref().is_some_and(|stop| stop.kind == StopKind::JobControl);
    if !threads.iter().any(is_stopped) {
        return;
    }
    let Some(job) = target.job() else { return };
    let is_recorded = |signal: i32| job.stopped_by == Some(signal as u32);
    let call = threads.iter().filter(|thread| is_stopped(thread)).find_map(|thread| at_terminal(target, &job, thread));
    let reads = match job.stopped_by {
        Some(_) if is_recorded(libc::SIGTTIN) => Some(true),
        Some(_) if is_recorded(libc::SIGTTOU) => Some(false),
        // A shell asks why its job was stopped, and the kernel tells that only once. Then the call tells.
        _ => call,
    };
    let background = reads.and_then(|reads| background(&job, reads));
    for thread in threads.iter_mut().filter(|thread| is_stopped(thread)) {
        if let Some(stop) = &mut thread.stop {
            stop.signal = job.stopped_by.map(signal_name);
            stop.background = background.clone();
        }
    }
}

/// Whether a thread was stopped in a call that reads from the terminal of its job (or else writes to it, or changes it);
/// `None` if it was in none.
fn at_terminal(target: &dyn Target, job: &Job, thread: &Thread) -> Option<bool> {
    let call = thread.syscall.as_ref()?;
    let reads = match &*call.name {
        "read" | "readv" | "preadv2" => true,
        "write" | "writev" | "pwritev2" | "ioctl" => false,
        _ => return None,
    };
    let link = target.descriptor_file(call.args[0] as i32)?;
    (link == "/dev/tty" || link == host::terminal_name(job.terminal?)).then_some(reads)
}

/// What a job waits for that wanted to use its terminal from the background. One that has got the foreground meanwhile only
/// waits to be continued.
fn background(job: &Job, reads: bool) -> Option<BackgroundJob> {
    let terminal = job.terminal.filter(|_| job.group != job.foreground)?;
    let named = |pid: Pid| NamedProcess { pid, name: host::name_of(pid) };
    let foreground = if job.foreground > 0 { host::in_group(job.foreground, job.session) } else { Vec::new() };
    Some(BackgroundJob {
        terminal: host::terminal_name(terminal),
        reads,
        foreground: foreground.into_iter().take(NAMED).map(named).collect(),
        leader: Some(Pid(job.session)).filter(|leader| leader.0 > 0).map(named),
    })
}

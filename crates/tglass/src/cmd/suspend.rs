//! `tglass suspend`

use super::target;
use crate::cli::{SuspendArgs, values};
use anyhow::{Context, Error, Result, anyhow, bail};
use std::process::ExitCode;
use threadglass::act::{ControlError, HoldEnd, StoppedThread};
use threadglass::target::Live;
use threadglass::{Lwp, syscall_name};

pub fn run(args: &SuspendArgs) -> Result<ExitCode> {
    let (process, words) = args.words().map_err(Error::msg)?;
    let [lwp] = words.as_slice() else { bail!("give one process and the LWP of one of its threads") };
    let lwp = lwp.to_str().and_then(|word| values::id(word).ok()).map(Lwp);
    let lwp = lwp.with_context(|| format!("`{}` is not an LWP (`tglass threads` lists them)", words[0].display()))?;
    let pid = target::process(Some(process), "suspend")?;
    // Opened first for its errors: a zombie or kernel thread is named as such.
    Live::open(pid)?;
    let held = match args.force {
        true => StoppedThread::suspend_by_force(pid, lwp)?,
        false => StoppedThread::suspend(pid, lwp).map_err(|error| match error {
            ControlError::Filtered(..) => anyhow!("{error} (--force suspends it anyway)"),
            error => error.into(),
        })?,
    };
    let until = match args.limit {
        Some(limit) => format!("for {limit:?}"),
        None => "until Ctrl-C".to_owned(),
    };
    let mut text = format!("suspended thread {lwp} of process {pid} {until}; its other threads go on\n");
    if let Some(call) = held.visible_interruption().and_then(syscall_name) {
        text += &format!("note: the thread was in {call}, which will return EINTR when the thread resumes\n");
    }
    super::print(&text)?;
    let end = held.hold(args.limit)?;
    super::print(match end {
        HoldEnd::Ended => "the thread has ended\n",
        HoldEnd::Time | HoldEnd::Asked => "resumed\n",
    })
}

//! `tglass detach`

use crate::cli::DetachArgs;
use anyhow::Result;
use std::process::ExitCode;
use threadglass::Pid;
use threadglass::act::inject;

pub fn run(args: &DetachArgs) -> Result<ExitCode> {
    let pid = Pid(args.pid);
    super::print(&match inject::detach(pid)? {
        true => format!("process {pid}: all slots are restored; the agent stays mapped, and does nothing\n"),
        false => format!("process {pid}: no agent is at work that could be detached\n"),
    })
}

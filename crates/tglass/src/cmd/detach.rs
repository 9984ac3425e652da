//! `tglass detach`

use crate::cli::DetachArgs;
use anyhow::Result;
use std::process::ExitCode;
use threadglass::Pid;
use threadglass::act::inject;

pub fn run(args: &DetachArgs) -> Result<ExitCode> {
    let pid = Pid(args.pid);
    super::print(&match inject::detach(pid)? {
        true => format!("process {pid}: the agent's hooks are removed; its code stays mapped and does nothing\n"),
        false => format!("process {pid}: there is no active agent to detach\n"),
    })
}

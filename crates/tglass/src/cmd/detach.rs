//! `tglass detach`

use super::target;
use crate::cli::DetachArgs;
use anyhow::Result;
use std::process::ExitCode;
use threadglass::act::inject;

pub fn run(args: &DetachArgs) -> Result<ExitCode> {
    let pid = target::process(args.process.word(), "detach")?;
    super::print(&match inject::detach(pid)? {
        true => format!("process {pid}: the agent's hooks are removed; its code stays mapped and does nothing\n"),
        false => format!("process {pid}: there is no active agent to detach\n"),
    })
}

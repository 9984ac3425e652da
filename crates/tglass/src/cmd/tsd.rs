//! `tglass tsd`

use crate::cli::TargetArgs;
use crate::render;
use anyhow::Result;
use std::process::ExitCode;
use threadglass::{Pid, target::Live, threads};

pub fn run(args: &TargetArgs) -> Result<ExitCode> {
    let live = Live::open(Pid(args.pid))?;
    let snapshot = threads::collect_tsd(&live)?;
    if args.json {
        return super::print_json(&snapshot);
    }
    super::print(&render::tsd::text(&snapshot))
}

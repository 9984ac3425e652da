//! `tglass threads`

use crate::cli::ThreadsArgs;
use crate::render;
use anyhow::Result;
use std::process::ExitCode;
use std::time::Instant;
use threadglass::{Pid, target::Live, threads};

pub fn run(args: &ThreadsArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let live = Live::open(Pid(args.target.pid))?;
    let mut snapshot = threads::collect(&live)?;
    let all = snapshot.threads.len();
    let filter = args.filter();
    snapshot.threads.retain(|thread| filter.matches(thread));
    if args.target.json {
        return super::print_json(&snapshot);
    }
    super::print(&render::threads::text(&snapshot, all, started.elapsed()))
}

//! `tglass tsd`

use super::target::WhichTarget;
use crate::cli::TargetArgs;
use crate::{remedy, render};
use anyhow::Result;
use std::process::ExitCode;
use threadglass::look;

pub fn run(args: &TargetArgs) -> Result<ExitCode> {
    let target = WhichTarget::of(args.which.word())?.open(&args.files)?;
    let _look = target.limits().begin();
    let mut snapshot = look::thread_data(&*target)?;
    remedy::of_gaps(&mut snapshot.gaps);
    if args.json {
        return super::print_json(&snapshot);
    }
    super::print(&render::tsd::text(&snapshot))
}

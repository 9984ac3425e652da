//! `tglass tsd`

use super::target::{Opened, WhichTarget};
use crate::cli::TargetArgs;
use crate::{remedy, render};
use anyhow::Result;
use std::process::ExitCode;
use threadglass::look;

pub fn run(args: &TargetArgs) -> Result<ExitCode> {
    let mut data = match WhichTarget::of(args.which.word())?.open(&args.files)? {
        Opened::Target(target) => look::thread_data(&*target)?,
        Opened::Snapshot(snap) => snap.data()?,
    };
    remedy::of_gaps(&mut data.gaps);
    if args.json {
        return super::print_json(&data);
    }
    super::print(&render::tsd::text(&data))
}

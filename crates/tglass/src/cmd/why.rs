//! `tglass why`

use super::target::WhichTarget;
use crate::cli::TargetArgs;
use crate::{remedy, render};
use anyhow::Result;
use std::process::ExitCode;
use std::time::Instant;
use threadglass::look;
use threadglass::model::Finding;

/// What it exits with when threads hang for ever.
const HANGS: u8 = 1;

pub fn run(args: &TargetArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let target = WhichTarget::of(args.which.word())?.open(&args.files)?;
    let _look = target.limits().begin();
    let mut snapshot = look::explain(&*target)?;
    remedy::of_gaps(&mut snapshot.gaps);
    let hangs = snapshot.findings.iter().any(Finding::is_certain_hang);
    match args.json {
        true => super::print_json(&snapshot)?,
        false => super::print(&render::why::text(&snapshot, started.elapsed()))?,
    };
    Ok(if hangs { ExitCode::from(HANGS) } else { ExitCode::SUCCESS })
}

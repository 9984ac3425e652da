//! `tglass report`

use super::output::Output;
use super::target::WhichTarget;
use crate::cli::ReportArgs;
use crate::{remedy, render};
use anyhow::Result;
use std::process::ExitCode;
use std::time::Instant;
use threadglass::look;

pub fn run(args: &ReportArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let target = WhichTarget::of(args.which.word())?.open(&args.files)?;
    let output = Output::open(&args.output)?;
    let _look = target.limits().begin();
    let mut snapshot = look::explain_whole(&*target, args.duration.unwrap_or(look::USUAL_TIME))?;
    remedy::of_gaps(&mut snapshot.gaps);
    output.write(render::report::page(&snapshot, started.elapsed())?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

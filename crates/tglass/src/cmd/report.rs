//! `tglass report`

use super::output::Output;
use super::target::{Opened, WhichTarget};
use crate::cli::ReportArgs;
use crate::{remedy, render};
use anyhow::{Result, ensure};
use std::process::ExitCode;
use std::time::Instant;
use threadglass::look;
use threadglass::snap::Part;

pub fn run(args: &ReportArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let opened = WhichTarget::of(args.which.word())?.open(&args.files)?;
    let output = Output::open(&args.output)?;
    let mut snapshot = match opened {
        Opened::Target(target) => look::explain_whole(&*target, args.duration.unwrap_or(look::USUAL_TIME))?,
        Opened::Snapshot(snap) => {
            ensure!(args.duration.is_none(), "-d needs a process: a snapshot was taken when it was");
            snap.answer(Part::Report)?
        }
    };
    remedy::of_gaps(&mut snapshot.gaps);
    output.write(render::report::page(&snapshot, started.elapsed())?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

//! `tglass doctor`

use crate::cli::DoctorArgs;
use crate::{remedy, render};
use anyhow::Result;
use std::process::ExitCode;
use threadglass::{Pid, look};

pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let mut report = look::check(args.pid.map(Pid))?;
    report.target.iter_mut().flatten().for_each(remedy::of_check);
    if args.json {
        return super::print_json(&report);
    }
    super::print(&render::doctor::text(&report))
}

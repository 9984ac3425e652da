//! `tglass doctor`

use crate::cli::DoctorArgs;
use crate::render;
use anyhow::Result;
use std::process::ExitCode;
use threadglass::Pid;
use threadglass::doctor;

pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let report = doctor::check(args.pid.map(Pid))?;
    if args.json {
        return super::print_json(&report);
    }
    super::print(&render::doctor::text(&report))
}

//! `tglass doctor`

use super::target;
use crate::cli::{DoctorArgs, TargetWord};
use crate::{remedy, render};
use anyhow::Result;
use std::process::ExitCode;
use threadglass::look;

pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let word = args.process.clone().or(args.pid.map(TargetWord::Pid));
    let pid = word.map(|word| target::process(Some(word), "doctor")).transpose()?;
    let mut report = look::check(pid)?;
    report.target.iter_mut().flatten().for_each(remedy::of_check);
    if args.json {
        return super::print_json(&report);
    }
    super::print(&render::doctor::text(&report))
}

//! `tglass doctor`

use crate::cli::DoctorArgs;
use crate::render;
use anyhow::Result;
use serde::Serialize;
use std::process::ExitCode;
use threadglass::Pid;
use threadglass::doctor::{Check, check_host, check_target};
use threadglass::model::SCHEMA;

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    host: Vec<Check>,
    target: Option<Vec<Check>>,
}

pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let target = args.pid.map(|pid| check_target(Pid(pid))).transpose()?;
    let report = Report { schema: SCHEMA, host: check_host(), target };
    if args.json {
        return super::print_json(&report);
    }
    super::print(&render::doctor::text(&report.host, report.target.as_deref()))
}

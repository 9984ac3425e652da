//! `tglass diff`

use super::target::{Opened, WhichTarget};
use crate::cli::{CoreFileArgs, DiffArgs, TargetWord};
use crate::{remedy, render};
use anyhow::Result;
use std::process::ExitCode;
use threadglass::snap::{Snap, TakeOptions, compare, take};

pub fn run(args: &DiffArgs) -> Result<ExitCode> {
    let before = snapshot(&args.before)?;
    let after = snapshot(&args.after)?;
    let mut diff = compare(&before, &after)?;
    remedy::of_gaps(&mut diff.gaps);
    match args.json {
        true => super::print_json(&diff),
        false => super::print(&render::diff::text(&diff, args.all, super::width(args.wide))),
    }
}

/// The snapshot that `word` names; of a process or core one that is taken now.
fn snapshot(word: &TargetWord) -> Result<Snap> {
    let files = CoreFileArgs { exe: None, sysroot: None };
    match WhichTarget::of(Some(word.clone()))?.open(&files)? {
        Opened::Snapshot(snap) => Ok(*snap),
        Opened::Target(target) => {
            let taken = take(&*target, TakeOptions::default())?;
            Ok(Snap::of_bytes(taken.bytes, &format!("process {}", taken.target.pid))?)
        }
    }
}

//! `tglass locks`

use super::track;
use crate::cli::LocksArgs;
use crate::render;
use anyhow::Result;
use std::process::ExitCode;
use std::time::Instant;
use threadglass::model::SyncObject;
use threadglass::waits::{self, Scope};

pub fn run(args: &LocksArgs) -> Result<ExitCode> {
    let tracking =
        args.track.map(|time| track::Tracking::for_time(&args.target.target, time, args.force)).transpose()?;
    let started = Instant::now();
    let target = super::open(&args.target)?;
    let _look = target.limits().begin();
    let mut snapshot = match args.address {
        Some(address) => waits::look_at(&*target, address, args.kind.map(|kind| kind.0))?,
        None => waits::collect_scope(&*target, if args.all { Scope::All } else { Scope::Held })?,
    };
    let about = tracking.and_then(|tracking| tracking.end(&*target, &mut snapshot));
    snapshot.objects.retain(|object| is_wanted(args, object));
    match args.target.json {
        true => super::print_json(&snapshot),
        false => {
            let note = about.as_ref().map(track::Tracked::text).unwrap_or_default();
            super::print(&(render::locks::text(&snapshot, started.elapsed()) + &note))
        }
    }
}

fn is_wanted(args: &LocksArgs, object: &SyncObject) -> bool {
    let held = object.state.is_held() || !object.holders.is_empty();
    let waited = !object.waiters.is_empty();
    let by_use = match (args.held, args.waited) {
        (true, false) => held,
        (false, true) => waited,
        (true, true) => held && waited,
        (false, false) => args.all || args.address.is_some() || held || waited,
    };
    by_use && args.kind.is_none_or(|kind| kind.0 == object.kind)
}

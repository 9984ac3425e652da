//! `tglass threads`

use super::target::{Opened, WhichTarget};
use crate::cli::ThreadsArgs;
use crate::{remedy, render};
use anyhow::Result;
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Instant;
use threadglass::keep_freed_memory;
use threadglass::look::{TaskScope, ThreadList, list_threads};
use threadglass::model::Snapshot;
use threadglass::snap::Part;
use threadglass::target::Live;
use threadglass::{Lwp, act};

pub fn run(args: &ThreadsArgs) -> Result<ExitCode> {
    let started = Instant::now();
    keep_freed_memory();
    let which = WhichTarget::of(args.target.which.word())?;
    let opened = which.open(&args.target.files)?;
    let wants_tasks = !args.lwps || args.target.json;
    let filter = args.filter();
    let (mut has_tasks, mut all) = (false, 0);
    let mut choose = |snapshot: &mut Snapshot| {
        has_tasks = !snapshot.tasks.is_empty();
        all = if has_tasks { snapshot.tasks.len() } else { snapshot.threads.len() };
        snapshot.threads.retain(|thread| filter.matches(thread));
        snapshot.tasks.retain(|task| filter.matches_task(task));
    };
    let stops = if args.stop { Some(which.process("--stop")?) } else { None };
    let mut snapshot = match &opened {
        Opened::Target(target) => {
            let _look = target.limits().begin();
            let scope = if args.stacks { TaskScope::Stacks } else { TaskScope::Waits };
            let list = ThreadList { tasks: wants_tasks.then_some(scope), stacks: args.stacks && !args.stop };
            let mut snapshot = list_threads(&**target, list, choose)?;
            if let Some(pid) = stops {
                act::add_stacks_stopping(&Live::open(pid)?.with_limits(target.limits()), &mut snapshot);
            }
            snapshot
        }
        Opened::Snapshot(snap) => {
            let mut snapshot = snap.answer(if args.stacks { Part::Stacks } else { Part::Threads })?;
            if !wants_tasks {
                snapshot.tasks.clear();
            }
            choose(&mut snapshot);
            forget_others(&mut snapshot);
            snapshot
        }
    };
    remedy::of_gaps(&mut snapshot.gaps);
    if args.target.json {
        return super::print_json(&snapshot);
    }
    let text = match (has_tasks && !args.lwps, args.stacks) {
        (true, true) => render::tasks::stacks,
        (true, false) => render::tasks::text,
        (false, true) => render::stacks::text,
        (false, false) => render::threads::text,
    };
    let done = super::print(&text(&snapshot, all, started.elapsed(), super::width(args.wide)));
    // The process ends now: giving back what 100,000 tasks take would cost as much as a good part of the look.
    std::mem::forget(snapshot);
    done
}

/// Takes threads out of the gaps that are not among those shown: a look does not read what is not wanted.
fn forget_others(snapshot: &mut Snapshot) {
    let shown: HashSet<Lwp> = snapshot.threads.iter().filter_map(|thread| thread.lwp).collect();
    snapshot.gaps.retain_mut(|gap| {
        let is_whole = gap.lwps.is_empty();
        gap.lwps.retain(|lwp| shown.contains(lwp));
        is_whole || !gap.lwps.is_empty()
    });
}

//! `tglass threads`

use super::target::WhichTarget;
use crate::cli::ThreadsArgs;
use crate::{remedy, render};
use anyhow::Result;
use std::process::ExitCode;
use std::time::Instant;
use threadglass::act;
use threadglass::keep_freed_memory;
use threadglass::look::{Look, Names, Scope, TaskScope, add_other_ends};
use threadglass::target::Live;

pub fn run(args: &ThreadsArgs) -> Result<ExitCode> {
    let started = Instant::now();
    keep_freed_memory();
    let which = WhichTarget::of(args.target.which.word())?;
    let target = which.open(&args.target.files)?;
    let _look = target.limits().begin();
    let look = Look::new(&*target);
    let mut snapshot = look.take(Scope::Waited, Names::All)?;
    if !args.lwps || args.target.json {
        look.add_tasks(&mut snapshot, if args.stacks { TaskScope::Stacks } else { TaskScope::Waits });
    }
    let has_tasks = !snapshot.tasks.is_empty();
    let all = if has_tasks { snapshot.tasks.len() } else { snapshot.threads.len() };
    let filter = args.filter();
    snapshot.threads.retain(|thread| filter.matches(thread));
    snapshot.tasks.retain(|task| filter.matches_task(task));
    add_other_ends(&*target, &mut snapshot);
    if args.stop {
        let pid = which.process("--stop")?;
        act::add_stacks_stopping(&Live::open(pid)?.with_limits(target.limits()), &mut snapshot);
    } else if args.stacks {
        look.add_stacks(&mut snapshot);
    }
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

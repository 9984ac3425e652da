//! `tglass threads`

use crate::cli::{ThreadsArgs, WhichTarget};
use crate::{remedy, render};
use anyhow::{Result, bail};
use std::process::ExitCode;
use std::time::Instant;
use threadglass::look::{Look, Names, Scope};
use threadglass::target::Live;
use threadglass::{Pid, act};

pub fn run(args: &ThreadsArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let target = super::open(&args.target)?;
    let _look = target.limits().begin();
    let look = Look::new(&*target);
    let mut snapshot = look.take(Scope::Waited, Names::All)?;
    let all = snapshot.threads.len();
    let filter = args.filter();
    snapshot.threads.retain(|thread| filter.matches(thread));
    match (args.stacks, args.stop, &args.target.target) {
        (false, ..) => {}
        (true, false, _) => look.add_stacks(&mut snapshot),
        (true, true, WhichTarget::Process(pid)) => {
            act::add_stacks_stopping(&Live::open(Pid(*pid))?.with_limits(target.limits()), &mut snapshot);
        }
        (true, true, WhichTarget::Core(_)) => bail!("--stop needs a running process, not a core file"),
    }
    remedy::of_gaps(&mut snapshot.gaps);
    if args.target.json {
        return super::print_json(&snapshot);
    }
    let text = if args.stacks { render::stacks::text } else { render::threads::text };
    super::print(&text(&snapshot, all, started.elapsed()))
}

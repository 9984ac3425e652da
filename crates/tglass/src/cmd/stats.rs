//! `tglass stats`

use crate::cli::{StatsArgs, WhichTarget};
use crate::{remedy, render};
use anyhow::{Result, bail};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use threadglass::measure::stats::{Known, Watch};
use threadglass::model::Stats;
use threadglass::target::Live;
use threadglass::{Interrupt, Pid};

/// How many threads a terminal gets.
const ON_A_TERMINAL: usize = 30;

pub fn run(args: &StatsArgs) -> Result<ExitCode> {
    let pid = match &args.target {
        WhichTarget::Process(pid) => Pid(*pid),
        WhichTarget::Core(path) => {
            bail!("{} is not a process ID: stats needs a running process (give a PID)", path.display())
        }
    };
    let interrupt = Interrupt::watch()?;
    let live = Live::open(pid)?;
    let look = Known::of(&live)?;
    let mut watch = Watch::new(&live, &look)?;
    let most = if args.all || !std::io::stdout().is_terminal() { usize::MAX } else { ON_A_TERMINAL };
    let mut shown = 0;
    loop {
        let mut stats = watch.interval(args.interval, &interrupt)?;
        remedy::of_gaps(&mut stats.gaps);
        if args.json {
            print_json(&stats, args.count == 1)?;
        } else {
            let apart = if shown > 0 { "\n" } else { "" };
            super::print(&(apart.to_owned() + &render::stats::text(&stats, most)))?;
        }
        shown += 1;
        if shown == args.count || interrupt.is_asked() || watch.is_over() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// One document as all commands print it; of several, each on a line of its own.
fn print_json(stats: &Stats, only: bool) -> Result<()> {
    if only {
        return super::print_json(stats).map(drop);
    }
    let mut line = Vec::new();
    render::json::compact(&mut line, stats)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.flush()?;
    Ok(())
}

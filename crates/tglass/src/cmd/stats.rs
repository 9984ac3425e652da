//! `tglass stats`

use super::target;
use crate::cli::StatsArgs;
use crate::{remedy, render};
use anyhow::Result;
use std::io::IsTerminal;
use std::process::ExitCode;
use threadglass::Interrupt;
use threadglass::measure::stats::{Known, Watch};
use threadglass::target::Live;

/// How many threads a terminal gets.
const ON_A_TERMINAL: usize = 30;

pub fn run(args: &StatsArgs) -> Result<ExitCode> {
    let pid = target::process(args.process.word(), "stats")?;
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
            // One document as all commands print it; of several, each on a line of its own.
            if args.count == 1 {
                super::print_json(&stats)?
            } else {
                super::print_json_line(&stats)?
            };
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

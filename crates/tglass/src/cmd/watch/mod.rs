//! `tglass watch`: looks at intervals, tells of trouble, keeps the evidence, and goes on.

mod chosen;
mod keep;
mod notify;
mod pages;
mod run_command;
mod server;

use crate::cli::WatchArgs;
use crate::{is_broken_pipe, render};
use anyhow::{Context, Result, bail};
use chosen::Chosen;
use keep::Keeper;
use nix::time::{ClockId, clock_gettime};
use notify::Notify;
use pages::Pages;
use run_command::Runner;
use server::Server;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadglass::look::{WatchOptions, Watcher};
use threadglass::model::{RestartHelps, WatchEvent, WatchEventKind, WatchFigures};
use threadglass::{Interrupt, Pid};

/// The part of what looks may take that is for closer looks at what does not have to be confirmed.
const CLOSER: f64 = 0.1;
/// From one look to the next with `--once`, and how often it looks at least.
const SOON: Duration = Duration::from_millis(500);
const LEAST_LOOKS: u64 = 3;

pub fn run(args: &WatchArgs) -> Result<ExitCode> {
    let mut watch = Watch {
        chosen: Chosen::new(args)?,
        watcher: Watcher::new(WatchOptions { stuck: args.stuck, share: args.most_cpu / 100.0 * CLOSER }),
        keeper: None,
        runner: args.exec.clone().map(Runner::new),
        pages: Arc::new(Pages::new(args.redact)),
        json: args.json,
        is_denial_told: false,
    };
    if let Some(dir) = &args.keep {
        watch.keeper = Some(Keeper::new(dir, args.keep_files, args.keep_bytes, args.redact)?);
    }
    // Before any thread is started, so that all of them leave these signals to us.
    let interrupt = Interrupt::watch().context("cannot watch for signals")?;
    let _server = Server::begin(&args.listen, args.allow, watch.pages.clone())?;
    match args.once {
        true => watch.once(args, &interrupt),
        false => watch.go_on(args, &interrupt),
    }
}

struct Watch {
    chosen: Chosen,
    watcher: Watcher,
    keeper: Option<Keeper>,
    runner: Option<Runner>,
    pages: Arc<Pages>,
    json: bool,
    /// Whether it was said that processes may not be looked into.
    is_denial_told: bool,
}

/// CPU time of all our threads.
fn own_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

impl Watch {
    fn go_on(&mut self, args: &WatchArgs, interrupt: &Interrupt) -> Result<ExitCode> {
        let mut is_told = false;
        let mut notify = Notify::new();
        notify.ready();
        loop {
            let (begun, cpu) = (Instant::now(), own_cpu());
            self.look()?;
            if self.chosen.is_over(is_alive) {
                break;
            }
            if self.watcher.is_empty() && !is_told {
                note("no process is there yet that was named; waiting for one");
            }
            is_told = true;
            // A look that takes long is made less often.
            let cost = own_cpu().saturating_sub(cpu).mul_f64(100.0 / args.most_cpu);
            let every = args.every.max(cost);
            let figures = self.watcher.figures();
            notify.alive(&status(&figures));
            self.pages.update(figures, every);
            let until = begun + every;
            if is_asked(interrupt, until, &mut notify) {
                break;
            }
        }
        notify.stopping();
        if let Some(runner) = &mut self.runner {
            runner.finish();
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Looks until all that has not moved has been looked at closer.
    fn once(&mut self, args: &WatchArgs, interrupt: &Interrupt) -> Result<ExitCode> {
        let first = Instant::now();
        let mut looks = 0;
        loop {
            // The last look sees what has stood for that long since the first one.
            let is_last = first.elapsed() >= args.stuck + SOON;
            self.look()?;
            looks += 1;
            if self.watcher.is_empty() {
                bail!("no process is there that was named (check the name, the group or the user)");
            }
            let is_clear = self.watcher.troubles().any(|trouble| trouble.restart_helps == RestartHelps::Yes);
            if looks >= LEAST_LOOKS && (is_clear || is_last) {
                break;
            }
            if interrupt.wait(SOON.min(args.every)).is_some() {
                break;
            }
        }
        if let Some(runner) = &mut self.runner {
            runner.finish();
        }
        let figures = self.watcher.figures();
        if figures.not_seen == figures.processes.len() {
            bail!("no process could be looked into (run `tglass doctor`)");
        }
        let helps = |trouble: &WatchEvent| trouble.restart_helps == RestartHelps::Yes;
        let status = match (self.watcher.troubles().next(), self.watcher.troubles().any(helps)) {
            (None, _) => 0,
            (Some(_), true) => 1,
            (Some(_), false) => 3,
        };
        Ok(ExitCode::from(status))
    }

    fn look(&mut self) -> Result<()> {
        self.chosen.begin();
        let Self { chosen, watcher, runner, .. } = self;
        let is_own = |pid: Pid| runner.as_ref().is_some_and(|runner| runner.has(pid));
        let events = watcher.look(&mut |pid, name, start| !is_own(pid) && chosen.has(pid, name, start));
        for event in events {
            self.tell(event)?;
        }
        let not_seen = self.watcher.not_seen();
        if not_seen > 0 && !self.is_denial_told {
            let what = if not_seen == 1 { "1 process may".to_owned() } else { format!("{not_seen} processes may") };
            note(&format!("{what} not be looked into, so nothing is told of what hangs there (run `tglass doctor`)"));
            self.is_denial_told = true;
        }
        if let Some(runner) = &mut self.runner {
            complain(runner.reap());
        }
        Ok(())
    }

    /// Keeps the evidence first, so that what is told can name it. Only what cannot be printed ends the watch.
    fn tell(&mut self, mut event: WatchEvent) -> Result<()> {
        if let (Some(keeper), WatchEventKind::Found) = (&mut self.keeper, event.event) {
            match keeper.keep(&event) {
                Ok(path) => event.snapshot = path.map(|path| path.display().to_string()),
                Err(error) => super::print_error(&error.context("no snapshot was kept")),
            }
        }
        let printed = match self.json {
            true => super::print_json_line(&event),
            false => super::print(&render::watch::line(&event)),
        };
        match printed {
            Err(error) if is_broken_pipe(&error) => return Err(error),
            printed => complain(printed.map(drop)),
        }
        if let Some(runner) = &mut self.runner {
            complain(runner.run(&event));
        }
        Ok(())
    }
}

/// Waits until the next look. Whether we were asked to end.
fn is_asked(interrupt: &Interrupt, until: Instant, notify: &mut Notify) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if interrupt.wait(left.min(notify.silence())).is_some() {
            return true;
        }
        if left <= notify.silence() {
            return false;
        }
        notify.waiting();
    }
}

/// What `systemctl status` shows.
fn status(figures: &WatchFigures) -> String {
    let troubles: usize = figures.processes.iter().map(|process| process.troubles.len()).sum();
    let threads: usize = figures.processes.iter().map(|process| process.threads.all()).sum();
    format!("{} processes, {threads} threads; {troubles} in trouble; {} looks", figures.processes.len(), figures.looks)
}

fn is_alive(pid: Pid, start_time: u64) -> bool {
    threadglass::target::Live::open(pid).is_ok_and(|live| live.leader_stat().start_time == start_time)
}

fn complain(result: Result<()>) {
    if let Err(error) = result {
        super::print_error(&error);
    }
}

fn note(text: &str) {
    eprintln!("tglass: {text}");
}

//! `tglass contend`

use super::target;
use crate::cli::{ContendArgs, InjectArgs, TargetWord};
use crate::render::contend;
use anyhow::{Context, Result, anyhow, bail};
use std::io::{IsTerminal, Write};
use std::process::{Child, Command, ExitCode};
use threadglass::Interrupt;
use threadglass::act::inject::Options;
use threadglass::measure::contend::{ContendError, Contender};
use threadglass::model::ContentionReport;

pub fn run(args: &ContendArgs) -> Result<ExitCode> {
    let mut child = args.command.first().map(|_| start(args)).transpose()?;
    let whose = match &mut child {
        Some(child) => Contender::Command(child),
        None => {
            let InjectArgs { exact, size, force, force_single: single } = args.inject;
            let pid = target::process(args.process.clone().or(args.pid.map(TargetWord::Pid)), "contend")?;
            Contender::Process(pid, Options { exact, size, force, single })
        }
    };
    // The command is not to inherit it.
    let interrupt = Interrupt::watch()?;
    let mut screen = Screen::default();
    let mut show = |report: &ContentionReport| screen.show(report);
    let is_shown = !args.json && std::io::stdout().is_terminal();
    let progress = is_shown.then_some(&mut show as threadglass::measure::contend::Progress<'_>);
    let report = threadglass::measure::contend::contend(whose, args.duration, args.limit, &interrupt, progress);
    // A command that has ended has collected its own status: what it says holds, whatever could be seen of it.
    let status = child.as_mut().and_then(|child| child.try_wait().ok().flatten()).map(super::exit_code);
    let told = report.map_err(explain).and_then(|report| {
        screen.clear()?;
        match args.json {
            true => super::print_json(&report),
            false => super::print(&contend::text(&report)),
        }
    });
    match (told, status) {
        (Err(error), Some(status)) => {
            super::print_error(&error);
            Ok(status)
        }
        (told, status) => told.map(|code| status.unwrap_or(code)),
    }
}

fn explain(error: ContendError) -> anyhow::Error {
    match error {
        ContendError::NoAgent(_) => anyhow!("{error} (start the program with `tglass run -- COMMAND`)"),
        ContendError::Progress(error) => error.into(),
        error => error.into(),
    }
}

/// A part of a terminal that is written again and again.
#[derive(Default)]
struct Screen {
    lines: usize,
}

impl Screen {
    fn show(&mut self, report: &ContentionReport) -> std::io::Result<()> {
        self.clear()?;
        let text = contend::text(report);
        let mut out = anstream::stdout().lock();
        let height = threadglass::terminal_lines(&std::io::stdout()).unwrap_or(24);
        // A line that the terminal breaks would be two when it is to be cleared: it is told to cut them instead.
        let mut frame = "\x1b[?7l".to_owned();
        for line in text.lines().take(height.saturating_sub(1)) {
            frame += &format!("{line}\n");
            self.lines += 1;
        }
        out.write_all((frame + "\x1b[?7h").as_bytes())?;
        out.flush()
    }

    /// Takes back what was written.
    fn clear(&mut self) -> std::io::Result<()> {
        if self.lines > 0 {
            let mut out = std::io::stdout().lock();
            write!(out, "\x1b[{}A\r\x1b[J", self.lines)?;
            out.flush()?;
            self.lines = 0;
        }
        Ok(())
    }
}

fn start(args: &ContendArgs) -> Result<Child> {
    if let Some(why) = threadglass::act::misfit(&args.command[0]) {
        bail!(why);
    }
    let agent = threadglass::act::place()?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).envs(threadglass::act::environment(&agent, false, false, None));
    command.spawn().with_context(|| format!("cannot run {}", args.command[0].display()))
}

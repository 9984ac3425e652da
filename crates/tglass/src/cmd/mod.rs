//! One file per command: it wires the library to a renderer and holds no knowledge of its own.

pub mod complete;
mod contend;
mod demo;
mod detach;
mod diff;
mod doctor;
mod generate;
pub mod help;
mod lock_name;
mod locks;
mod machine;
mod output;
mod process_name;
mod profil;
mod report;
mod run;
pub mod schema;
mod set;
mod several;
mod snap;
mod stats;
mod suspend;
mod target;
mod threads;
mod top;
mod tsd;
mod watch;
mod why;

use crate::cli::{Cli, Command};
use crate::remedy;
use crate::render::{json, safe};
use anyhow::Result;
use several::Several;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// Runs the chosen command. Whatever goes wrong with a process that ends meanwhile, the answer is that it has ended.
pub fn run(cli: Cli) -> Result<ExitCode> {
    target::or_ended(carry_out(cli))
}

fn carry_out(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Why(args) => why::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Snap(args) => snap::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Locks(args) => locks::run(&args),
        Command::Contend(args) => contend::run(&args),
        Command::Detach(args) => detach::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Threads(args) => threads::run(&args),
        Command::Tsd(args) => tsd::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Profil(args) => profil::run(&args),
        Command::Suspend(args) => suspend::run(&args),
        Command::Set(args) => set::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Help(args) => help::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::DemoChild(args) => demo::child(&args),
        Command::Generate(args) => generate::run(args),
    }
}

/// The status of a command that was run, as a shell tells it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(2);
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}

/// The width that lines keep to: that of the terminal, unless whole lines are wanted.
fn width(wide: bool) -> Option<usize> {
    threadglass::terminal_columns(&std::io::stdout()).filter(|_| !wide)
}

/// Writes a whole screen at once; colours go only to a terminal.
fn print(text: &str) -> Result<ExitCode> {
    let mut out = anstream::stdout().lock();
    match out.current_choice() {
        // In one piece: line by line a screen of 100,000 lines takes as many system calls.
        anstream::ColorChoice::Never => {
            let mut pieces = std::io::BufWriter::with_capacity(64 << 10, out.into_inner());
            let mut rest = text;
            // Most lines of a long screen have no colours; no colour goes on in another line.
            while let Some(at) = rest.find('\x1b') {
                let end = rest[at..].find('\n').map_or(rest.len(), |end| at + end);
                pieces.write_all(&rest.as_bytes()[..at])?;
                let line = anstream::adapter::strip_str(&rest[at..end]);
                line.into_iter().try_for_each(|piece| pieces.write_all(piece.as_bytes()))?;
                rest = &rest[end..];
            }
            pieces.write_all(rest.as_bytes())?;
            pieces.flush()?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => out.write_all(text.as_bytes())?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Says what could not be done, in one line: the cause and the next step are in the message. What a name could mean
/// follows line by line. Names are of somebody else's making.
pub fn print_error(error: &anyhow::Error) {
    let mut text = format!("tglass: {}\n", safe(&remedy::of_error(error)));
    for line in error.downcast_ref().map(Several::lines).unwrap_or_default() {
        text += &format!("  {}\n", safe(&line));
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes a value as JSON in a line of its own, as one of several documents.
fn print_json_line(value: &impl serde::Serialize) -> Result<ExitCode> {
    let mut line = Vec::new();
    json::compact(&mut line, value)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a value as JSON: pretty on a terminal's scale of reading, one document.
fn print_json(value: &impl serde::Serialize) -> Result<ExitCode> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    json::pretty(&mut out, value)?;
    writeln!(out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

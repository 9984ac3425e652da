//! `tglass`: see inside a running multithreaded process without stopping it.
#![forbid(unsafe_code)]

mod cli;
mod cmd;
mod remedy;
mod render;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use std::io::Write;
use std::process::ExitCode;
use threadglass::model::terminal::{may_print, safe};

fn main() -> ExitCode {
    // A shell asks what could follow; then that is answered, and nothing else is done.
    CompleteEnv::with_factory(cli::Cli::command).var(cmd::complete::VARIABLE).complete();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    match cmd::run(cli) {
        Ok(code) => code,
        // The reader went away (`tglass threads 1 | head`): that is its right.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            cmd::print_error(&error);
            ExitCode::from(2)
        }
    }
}

/// The command line that was meant, if the first word is a target without a command.
fn meant(error: &clap::Error) -> Option<String> {
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::InvalidSubcommand => word,
        _ => return None,
    };
    let is_target = word.parse::<u32>().is_ok() || std::path::Path::new(word).is_file();
    is_target.then(|| format!("`{word}` is not a command (for a look at it: `tglass why {word}`)"))
}

/// Help and version go where they belong. A value that cannot be is said in one line; what is wrong
/// with the command itself deserves clap's usage below it.
fn refuse(error: &clap::Error) -> ExitCode {
    if let Some(line) = meant(error) {
        let _ = writeln!(anstream::stderr(), "tglass: {}", safe(&line));
        return ExitCode::from(2);
    }
    let text = error.render().to_string();
    match (error.kind(), text.lines().next()) {
        (ErrorKind::ValueValidation, Some(line)) => {
            let line = line.strip_prefix("error: ").unwrap_or(line);
            let _ = writeln!(anstream::stderr(), "tglass: {} (see tglass --help)", safe(line));
        }
        // Words of the command line may be names of files that somebody else chose.
        _ if !text.chars().all(|c| c == '\n' || may_print(c)) => {
            for line in text.lines() {
                let _ = writeln!(anstream::stderr(), "{}", safe(line));
            }
        }
        _ => {
            let _ = error.print();
        }
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

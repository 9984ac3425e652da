//! `tglass`: see inside a running multithreaded process without stopping it.
#![forbid(unsafe_code)]

mod cli;
mod cmd;
mod render;

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match cmd::run(cli) {
        Ok(code) => code,
        // The reader went away (`tglass threads 1 | head`): that is its right.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // One line: the cause and the next step are in the message.
            let _ = writeln!(anstream::stderr(), "tglass: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

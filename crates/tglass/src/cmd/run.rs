//! `tglass run`

use crate::cli::RunArgs;
use anyhow::{Context, Result, bail};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Becomes the program, with the agent in it: from here on everything is its own.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    if let Some(why) = threadglass::act::misfit(&args.command[0]) {
        bail!(why);
    }
    let agent = threadglass::act::place()?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).envs(threadglass::act::environment(&agent, args.exact, args.off, args.size));
    Err(command.exec()).with_context(|| format!("cannot run {}", args.command[0].display()))
}

//! What all benchmarks share.

use crate::cli::Cli;
use crate::programs::Programs;
use anyhow::{Context as _, Result};
use std::path::PathBuf;
use std::time::Duration;

/// Choices of the command line, and the programs to measure with.
pub struct Context {
    /// The tglass that is measured.
    pub tglass: PathBuf,
    /// Our own C programs.
    pub programs: Programs,
    /// Rounds of the fast commands.
    pub rounds: u32,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// After this a command counts as too slow.
    pub limit: Duration,
}

impl Context {
    pub fn new(cli: &Cli) -> Result<Self> {
        let tglass = match &cli.tglass {
            Some(path) => path.clone(),
            None => std::env::current_exe().context("cannot find my own executable")?.with_file_name("tglass"),
        };
        anyhow::ensure!(
            tglass.is_file(),
            "no {} (run `cargo build --release` first, or name one with --tglass)",
            tglass.display()
        );
        Ok(Self {
            tglass,
            programs: Programs::build()?,
            rounds: cli.rounds,
            threads: cli.threads.clone(),
            limit: Duration::from_secs(cli.limit),
        })
    }
}

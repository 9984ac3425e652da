//! The command line.

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Measures tglass side by side with its peers.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub helper: Option<Helper>,

    /// Benchmarks to run (default: all)
    pub only: Vec<String>,

    /// Also write the results to FILE
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// The tglass to measure (default: the one beside this program)
    #[arg(long, value_name = "PATH")]
    pub tglass: Option<PathBuf>,

    /// Compare with another build of tglass, and run no other benchmark but those named
    #[arg(long, value_name = "PATH")]
    pub against: Option<PathBuf>,

    /// Rounds of the fast commands
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Numbers of threads to measure with
    #[arg(long, value_delimiter = ',', default_values_t = [10, 1_000, 10_000])]
    pub threads: Vec<u32>,

    /// Give up on a slow command after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub limit: u64,
}

#[derive(Debug, Subcommand)]
pub enum Helper {
    /// Runs one command and reports its cost (used by the benchmark itself)
    #[command(hide = true)]
    RunOne(RunOne),
}

#[derive(Args, Debug)]
pub struct RunOne {
    /// Kill it after this many seconds
    #[arg(long)]
    pub limit: u64,

    /// A status other than 0 that is success too
    #[arg(long, default_value_t = 0)]
    pub accept: i32,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

//! Commands that do the same job, each run some times.

use crate::context::Context;
use crate::measure::{self, Outcome};
use crate::stats::Runs;
use anyhow::Result;
use std::ffi::OsString;

/// A command with its name, and how often it is run. `accept` is a status other than 0 that is success too.
pub struct Peer {
    pub name: &'static str,
    pub command: Vec<OsString>,
    pub rounds: u32,
    pub accept: i32,
}

/// What came of one: its runs, or why there are none.
pub struct Measured {
    pub name: &'static str,
    pub runs: Runs,
    pub missing: Option<String>,
}

/// Runs all of them.
pub fn measure(context: &Context, peers: &[Peer]) -> Result<Vec<Measured>> {
    let mut measured = Vec::new();
    for peer in peers {
        let (mut runs, mut missing) = (Runs::default(), None);
        // A first run is not counted: it finds cold caches.
        for round in 0..=peer.rounds {
            match measure::run_accepting(&peer.command, peer.accept, context.limit)? {
                Outcome::Done(cost) if round > 0 => runs.0.push(cost),
                Outcome::Done(_) => {}
                Outcome::Failed(_) => missing = Some("not installed, or does not work here".to_owned()),
                Outcome::TooSlow => missing = Some(format!("more than {} s", context.limit.as_secs())),
            }
            if missing.is_some() {
                break;
            }
        }
        measured.push(Measured { name: peer.name, runs, missing });
    }
    Ok(measured)
}

/// The median of the command called `name`, in milliseconds.
pub fn median(measured: &[Measured], name: &str) -> Option<f64> {
    measured.iter().find(|one| one.name == name)?.runs.median_ms()
}

/// A command line.
pub fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

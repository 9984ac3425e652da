//! Programs that hang or are slow on purpose, for `tglass demo` to explain.
//!
//! Each says `ready` on its standard output when all of it has been started. It ends when whoever started it ends.

mod contention;
mod deadlock;
mod philosophers;
mod pipes;
mod posix;
mod starvation;

pub use contention::contention;
pub use deadlock::deadlock;
pub use philosophers::philosophers;
pub use pipes::{filter, pipes};
pub use starvation::starvation;

/// A program of goroutines that wait for each other, for a Go compiler.
pub const GO: &str = include_str!("go/main.go");

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

/// Says that all has been started, and lives until whoever started it ends.
fn stay() -> io::Result<()> {
    say_ready()?;
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

fn say_ready() -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "ready")?;
    out.flush()
}

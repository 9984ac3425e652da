//! A program that explains itself when it is stuck.
//!
//! Two clerks move money between two accounts, each in its own direction. Sooner or later each of them holds the
//! account that the other one needs. The main thread is the watchdog: when the heart has not beaten for a second, it
//! looks at its own process and says why.
//!
//! ```sh
//! cargo run -p threadglass --example watchdog
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, sleep};
use std::time::Duration;
use threadglass::Pid;
use threadglass::look::explain;
use threadglass::model::{Finding, Snapshot};
use threadglass::target::Live;

static SAVINGS: Mutex<i64> = Mutex::new(1000);
static SALARY: Mutex<i64> = Mutex::new(1000);

/// Every transfer adds one: as long as this moves, all is well.
static HEARTBEAT: AtomicU64 = AtomicU64::new(0);

/// The mistake: who locks in the order of the arguments must be sure that nobody passes them the other way round.
#[inline(never)] // so that stacks show it in a release build, too
fn transfer(from: &Mutex<i64>, to: &Mutex<i64>) {
    let mut from = from.lock().unwrap_or_else(PoisonError::into_inner);
    sleep(Duration::from_millis(1));
    let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
    *from -= 1;
    *to += 1;
    HEARTBEAT.fetch_add(1, Ordering::Relaxed);
}

fn clerk(name: &str, from: &'static Mutex<i64>, to: &'static Mutex<i64>) -> std::io::Result<()> {
    // A thread with a name is easier to recognise in what the watchdog prints.
    Builder::new().name(name.to_owned()).spawn(move || {
        loop {
            transfer(from, to)
        }
    })?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    clerk("saver", &SALARY, &SAVINGS)?;
    clerk("spender", &SAVINGS, &SALARY)?;
    // A process may always look at itself: this takes no privileges. The watchdog must not need the locks that it
    // watches. Looking allocates memory, so a program that may hang in its allocator is better looked at by another.
    let live = Live::open(Pid::me())?;
    let mut last = None;
    loop {
        let beat = Some(HEARTBEAT.load(Ordering::Relaxed));
        if beat == last {
            let snapshot = explain(&live)?;
            // Slow is not stuck: only some kinds of findings mean that threads wait for ever.
            if let Some(hang) = snapshot.findings.iter().find(|finding| finding.kind.is_hang()) {
                report(hang, &snapshot);
                return Ok(());
            }
        }
        last = beat;
        sleep(Duration::from_secs(1));
    }
}

/// A finding names its threads and objects by number; the snapshot has the rest.
fn report(hang: &Finding, snapshot: &Snapshot) {
    println!("stuck ({}): {}", hang.certainty.word(), hang.text);
    for thread in snapshot.threads.iter().filter(|thread| thread.lwp.is_some_and(|lwp| hang.threads.contains(&lwp))) {
        println!("{}:", thread.name.as_deref().unwrap_or("a thread without a name"));
        for frame in &thread.frames {
            println!("    {}", frame.function.as_deref().unwrap_or("?"));
        }
    }
}

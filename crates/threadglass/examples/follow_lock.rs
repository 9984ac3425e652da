//! Follows one lock of a process: prints each change of its state, its holders and the number of its waiters.
//!
//! ```sh
//! cargo run -p threadglass --example follow_lock -- PID ADDRESS KIND [LOOKS]
//! ```
//!
//! `KIND` is `mutex`, `rwlock`, `semaphore` or another word of [`SyncKind`]: a lock that nobody uses at the moment is
//! only bytes, which do not say what they are. Ends after so many looks, with the process, or by Ctrl-C.

use std::error::Error;
use std::time::{Duration, Instant};
use threadglass::look::look_at;
use threadglass::model::{SyncKind, SyncObject};
use threadglass::target::Live;
use threadglass::{Interrupt, Pid, RemoteAddr};

const USAGE: &str = "usage: follow_lock PID ADDRESS KIND [LOOKS]";
const PAUSE: Duration = Duration::from_millis(20);

fn main() {
    // Errors of the library are sentences for people. A `main` that returns them would print their `Debug` form.
    if let Err(error) = run() {
        eprintln!("follow_lock: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let pid = Pid(args.next().ok_or(USAGE)?.parse()?);
    let address = address(&args.next().ok_or(USAGE)?)?;
    let kind = kind(&args.next().ok_or(USAGE)?)?;
    let looks = args.next().map_or(Ok(u64::MAX), |looks| looks.parse())?;

    // Opened once: should the pid be given to another process meanwhile, that one is not taken for this one.
    let live = Live::open(pid)?;
    // From here on Ctrl-C ends a wait, not the program.
    let interrupt = Interrupt::watch()?;
    let started = Instant::now();
    let mut last = String::new();
    for _ in 0..looks {
        let snapshot = match look_at(&live, address, Some(kind)) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                // A lock that cannot be read may be one of a process that has gone: that is an end, no failure.
                let gone = live.check_identity().err().ok_or(error)?;
                println!("{gone}");
                break;
            }
        };
        // The process goes on while it is looked at. What is seen here is a moment, and what happens between two looks
        // is missed: to count every use of a lock, see `threadglass::measure`.
        let now = snapshot.objects.first().map_or_else(|| "not there".to_owned(), describe);
        if now != last {
            println!("{:9.3} s  {now}", started.elapsed().as_secs_f64());
            last = now;
        }
        if interrupt.wait(PAUSE).is_some() {
            break;
        }
    }
    Ok(())
}

/// Such as `locked by 4712, 2 waiting`.
fn describe(lock: &SyncObject) -> String {
    // A holder without a number is a thread that the lock does not name.
    let holders: Vec<_> = lock.holders.iter().filter_map(|holder| holder.lwp).map(|lwp| lwp.to_string()).collect();
    let by = if holders.is_empty() { String::new() } else { format!(" by {}", holders.join(", ")) };
    format!("{}{by}, {} waiting", lock.state.word(), lock.waiters.len())
}

fn address(text: &str) -> Result<RemoteAddr, Box<dyn Error>> {
    let digits = text.strip_prefix("0x").ok_or("an address begins with 0x")?;
    Ok(RemoteAddr(u64::from_str_radix(digits, 16)?))
}

fn kind(word: &str) -> Result<SyncKind, String> {
    SyncKind::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(|| format!("{word} is no kind of lock"))
}

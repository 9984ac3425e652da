//! Lists what each thread of a process waits for, and who holds it. The process is not stopped.
//!
//! ```sh
//! cargo run -p threadglass --example waits -- PID
//! ```

use std::error::Error;
use threadglass::Pid;
use threadglass::look::{Names, Scope, look};
use threadglass::model::{Thread, WaitsFor};
use threadglass::target::Live;

fn main() {
    // Errors of the library are sentences for people. A `main` that returns them would print their `Debug` form.
    if let Err(error) = run() {
        eprintln!("waits: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let pid = std::env::args().nth(1).ok_or("which process? usage: waits PID")?;
    let live = Live::open(Pid(pid.parse()?))?;
    // `Waited` finds what threads wait for; `Held` and `All` would find more locks, and take longer.
    // `Names::All` has every lock named after the variable or type that it lies in, where there is debug information.
    let snapshot = look(&live, Scope::Waited, Names::All)?;
    println!("{:>7}  {:<15}  {:<14}  WAITS FOR", "LWP", "NAME", "STATE");
    for thread in &snapshot.threads {
        // Almost everything is an `Option`: a thread that has ended but was not joined has no LWP, for example.
        let lwp = thread.lwp.map_or_else(|| "-".to_owned(), |lwp| lwp.to_string());
        let name = thread.name.as_deref().unwrap_or("-");
        println!("{lwp:>7}  {name:<15}  {:<14}  {}", thread.state.word(), wait(thread));
    }
    // What could not be seen is part of the answer: without it, "waits for nothing" might mean "may not be read".
    for gap in &snapshot.gaps {
        eprintln!("not seen: {}: {}", gap.what, gap.why);
    }
    Ok(())
}

/// The lock that a thread waits for; else the system call that it is in, if any.
fn wait(thread: &Thread) -> String {
    match (&thread.waits_for, &thread.syscall) {
        (Some(waits_for), _) => object(waits_for),
        (None, Some(call)) => format!("system call {}", call.name),
        (None, None) => "-".to_owned(),
    }
}

fn object(waits_for: &WaitsFor) -> String {
    let mut text = format!("{} {}", waits_for.kind.word(), waits_for.address);
    if let Some(name) = &waits_for.name {
        text += &format!(" ({name})");
    }
    if waits_for.timed {
        text += ", for a limited time";
    }
    // A semaphore or a condition variable has no holder, and some locks do not record theirs.
    if !waits_for.held_by.is_empty() {
        let holders: Vec<_> = waits_for.held_by.iter().map(ToString::to_string).collect();
        text += &format!(", held by {}", holders.join(", "));
    }
    text
}

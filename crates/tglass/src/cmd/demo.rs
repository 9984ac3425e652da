//! `tglass demo`: a program of our own, looked at from outside.

use crate::cli::DemoArgs;
use crate::render;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use threadglass::{Pid, target::Live, threads};

/// Ends the child when the demo ends, also when it fails.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn run(args: &DemoArgs) -> Result<ExitCode> {
    let exe = std::env::current_exe().context("cannot find my own executable")?;
    let mut child = Guard(
        Command::new(exe)
            .arg("demo-child")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the demo program")?,
    );
    let mut ready = String::new();
    BufReader::new(child.0.stdout.take().context("no output from the demo program")?).read_line(&mut ready)?;

    let pid = Pid(child.0.id() as i32);
    let started = Instant::now();
    let live = Live::open(pid)?;
    let snapshot = threads::collect(&live)?;
    if args.json {
        return super::print_json(&snapshot);
    }
    let mut text = format!("A small program was started as pid {pid}. This is `tglass threads {pid}`:\n\n");
    text += &render::threads::text(&snapshot, snapshot.threads.len(), started.elapsed());
    text += "\nIt was neither prepared nor stopped for this. The program has been ended again.\n\
             Next: `tglass threads PID` on a process of yours, `tglass tsd PID` for its thread-specific data,\n\
             `tglass doctor` when something is not permitted.\n";
    super::print(&text)
}

/// The program that is looked at: one thread of each kind a newcomer should see. It ends when its
/// standard input is closed, so that it cannot outlive the demo.
pub fn child() -> Result<ExitCode> {
    let lock = Arc::new(Mutex::new(()));
    let started = Arc::new(Barrier::new(5));
    let stop = Arc::new(AtomicBool::new(false));
    let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| thread::Builder::new().name(name.to_owned()).spawn(body);

    let (held, barrier) = (lock.clone(), started.clone());
    spawn(
        "keeper",
        Box::new(move || {
            let _guard = held.lock();
            barrier.wait();
            thread::sleep(Duration::from_secs(3600));
        }),
    )?;
    for number in 1..=2 {
        let (wanted, barrier) = (lock.clone(), started.clone());
        spawn(
            &format!("worker-{number}"),
            Box::new(move || {
                barrier.wait();
                drop(wanted.lock());
            }),
        )?;
    }
    let (stopped, barrier) = (stop.clone(), started.clone());
    spawn(
        "spinner",
        Box::new(move || {
            barrier.wait();
            while !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }),
    )?;
    // Ends at once and is never joined, so it stays behind as a zombie.
    let unjoined = spawn("finished", Box::new(|| {}))?;
    started.wait();
    while !unjoined.is_finished() {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(20));
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
    Ok(ExitCode::SUCCESS)
}

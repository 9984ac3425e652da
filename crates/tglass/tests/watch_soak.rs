//! A watch for a long time, compressed: many looks at programs that are busy with their locks, and at processes that come and go with
//! numbers that others had before. Nothing grows, nothing is told that is not so, and each hang that is planted is found in time.

mod watch_common;

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::{Build, Fixture, Signal, Value, Variant, root, signal};
use watch_common::{Watching, named};

/// Looks that a test takes; `make soak` takes 100,000.
fn looks(usual: u64) -> u64 {
    std::env::var("TG_WATCH_LOOKS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// Processes that are there at a time, beside those that hang.
const CROWD: usize = 5;
/// A hang stands at some moment between two looks: the next one sees it for the first time, and the one after that sees that it has
/// not moved. The look that goes on when the count is read may have passed it already.
const IN_TIME: u64 = 3;

/// What can be planted: how it is started, and what is to be told of it.
const PLANTS: [(&str, &str, &str); 3] =
    [("deadlocks", "abba", "deadlocked"), ("deadlocks", "self", "deadlocked"), ("deadlocks", "stop", "stopped")];

struct Soak {
    watching: Watching,
    programs: Vec<(&'static str, PathBuf)>,
    crowd: VecDeque<Fixture>,
    planted: HashSet<i32>,
    seen: HashSet<i32>,
    reused: usize,
    processes: usize,
    waits: Vec<u64>,
    starved: usize,
}

/// Starts a program, with the number `pid` if the kernel can be made to give it.
fn start(program: &Path, args: &[&str], pid: Option<i32>) -> Fixture {
    if let Some(pid) = pid.filter(|_| root()) {
        // The next process gets the next number that is free.
        let _ = std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string());
    }
    let mut command = Command::new(program);
    command.args(args);
    Fixture::command(command)
}

impl Soak {
    fn program(&self, name: &str) -> PathBuf {
        self.programs.iter().find(|(known, _)| *known == name).expect("a program").1.clone()
    }

    /// A process goes, and another one comes in its place: mostly with its number.
    fn turn(&mut self) {
        let old = (self.crowd.len() >= CROWD).then(|| self.crowd.pop_front()).flatten();
        let pid = old.as_ref().map(Fixture::pid);
        drop(old);
        let args: [&[&str]; 3] = [&[], &["steady"], &[]];
        let name = if self.processes.is_multiple_of(3) { "idle" } else { "busy" };
        let args: &[&str] = if name == "idle" { &["idle_epoll"] } else { args[self.processes % 3] };
        let next = start(&self.program(name), args, pid);
        self.processes += 1;
        self.reused += usize::from(!self.seen.insert(next.pid()));
        self.planted.remove(&next.pid());
        self.crowd.push_back(next);
    }

    /// Lets a process hang, waits until that is told, and lets it go.
    fn plant(&mut self, number: usize) {
        let (program, what, kind) = PLANTS[number % PLANTS.len()];
        let is_stop = what == "stop";
        let args = if is_stop { "abba" } else { what };
        let hung = match is_stop {
            // One that is idle, until it is stopped.
            true => start(&self.program("idle"), &["idle_epoll"], None),
            false => start(&self.program(program), &[args], None).settled(),
        };
        self.planted.insert(hung.pid());
        self.seen.insert(hung.pid());
        if is_stop {
            signal(hung.pid(), Signal::SIGSTOP);
        }
        let before = self.watching.looks();
        let mut others = Vec::new();
        let found = self.watching.event_of(hung.pid(), &mut others);
        assert_eq!((&found["event"], &found["kind"]), (&"found".into(), &kind.into()), "{found:#}");
        let waited = found["look"].as_u64().expect("a number").saturating_sub(before);
        assert!(waited <= IN_TIME, "{what} was found after {waited} looks");
        self.waits.push(waited);
        self.check(others);
        let after = if is_stop {
            signal(hung.pid(), Signal::SIGCONT);
            "dissolved"
        } else {
            "ended"
        };
        let pid = hung.pid();
        let kept = if is_stop {
            Some(hung)
        } else {
            drop(hung);
            None
        };
        let mut others = Vec::new();
        let over = self.watching.event_of(pid, &mut others);
        assert_eq!((&over["event"], &over["kind"]), (&after.into(), &kind.into()), "{over:#}");
        self.check(others);
        drop(kept);
    }

    /// Nothing else may be told; unless this machine is so busy that it is true.
    fn check(&mut self, events: Vec<Value>) {
        for event in events {
            if event["kind"] == "starved_of_cpu" {
                self.starved += 1;
                continue;
            }
            panic!("a false alarm: {event:#}");
        }
    }
}

#[test]
fn a_long_watch() {
    let wanted = looks(20);
    let dir = tempfile::tempdir().expect("a directory");
    let build = |file: &str| Build::new(file).variant(Variant::Default).path();
    let mut programs = Vec::new();
    let mut names = Vec::new();
    for (name, file, short) in
        [("deadlocks", "deadlocks.c", "tgdl"), ("busy", "busy_locks.c", "tgbl"), ("idle", "hangs.c", "tghg")]
    {
        let (path, short) = named(&build(file), dir.path(), short);
        programs.push((name, path));
        names.push(short);
    }
    let keep = dir.path().join("kept");
    let mut args: Vec<&str> = names.iter().map(String::as_str).collect();
    args.extend(["--every", "10ms", "--most-cpu", "100", "--keep", keep.to_str().expect("UTF-8"), "--keep-files", "3"]);
    args.extend(["--exec", "cat >/dev/null"]);
    let mut soak = Soak {
        watching: Watching::begin(&args),
        programs,
        crowd: VecDeque::new(),
        planted: HashSet::new(),
        seen: HashSet::new(),
        reused: 0,
        processes: 0,
        waits: Vec::new(),
        starved: 0,
    };
    let mut round = 0;
    let begun = Instant::now();
    // What is learned at first is kept: growth is measured from a tenth of the way on.
    let mut at_first = None;
    let mut told = 0;
    while soak.watching.looks() < wanted {
        soak.turn();
        if round % 4 == 0 {
            soak.plant(round / 4);
        }
        let events = soak.watching.events();
        soak.check(events);
        round += 1;
        let now = soak.watching.looks();
        let figures = || (soak.watching.status("VmRSS"), soak.watching.open_files(), soak.watching.status("Threads"));
        if at_first.is_none() && now >= wanted / 10 {
            at_first = Some(figures());
        }
        if now * 20 / wanted > told {
            told = now * 20 / wanted;
            eprintln!(
                "{now} looks in {:.0?}: {} processes, {} with a number used before, {} hangs planted, now {:?}",
                begun.elapsed(),
                soak.processes,
                soak.reused,
                soak.waits.len(),
                figures()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let (kib, files, threads) = at_first.expect("there was time");
    let watching = &soak.watching;
    eprintln!(
        "{} looks, {} processes ({} with a number used before), {} hangs found after {:?} looks at most, {} starved; {kib} -> {} KiB, \
         {files} -> {} files, {threads} -> {} threads",
        watching.looks(),
        soak.processes,
        soak.reused,
        soak.waits.len(),
        soak.waits.iter().max(),
        soak.starved,
        watching.status("VmRSS"),
        watching.open_files(),
        watching.status("Threads"),
    );
    assert!(!soak.waits.is_empty() && soak.processes > CROWD);
    assert!(!root() || soak.reused > 0, "no number was used twice");
    // A few commands and connections may be under way.
    assert!(watching.open_files() <= files + 8 && watching.status("Threads") <= threads + 6);
    // The allocator keeps what was used at one time.
    assert!(watching.status("VmRSS") <= kib * 3 / 2 + (16 << 10), "{kib} KiB have become {}", watching.status("VmRSS"));
    let kept = std::fs::read_dir(&keep).expect("the directory").count();
    assert!((1..=3).contains(&kept), "{kept} files are kept");
}

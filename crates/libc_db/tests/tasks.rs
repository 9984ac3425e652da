//! Goroutines as threads of the C interface.

mod common;

use common::{Source, run};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use testkit::{Dumpable, Fixture, Go, Value};

/// What the C client printed: the rest of each line, by its first words.
struct Printed {
    /// State, LWP and type of each task.
    tasks: BTreeMap<u64, (u32, i32, u32)>,
    waits: BTreeMap<u64, String>,
    /// Type, state and waiters of each object.
    objects: BTreeMap<String, (u32, i32, BTreeSet<u64>)>,
    words: BTreeMap<String, String>,
}

impl Printed {
    fn of(text: &str) -> Self {
        let (mut tasks, mut waits, mut objects) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut words = BTreeMap::new();
        for line in text.lines() {
            let parts: Vec<&str> = line.split_whitespace().collect();
            let number = |place: usize| parts[place].parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
            let signed = |place: usize| parts[place].parse::<i32>().unwrap_or_else(|_| panic!("{line}"));
            match parts[0] {
                "task" => drop(tasks.insert(number(1), (number(2) as u32, signed(3), number(4) as u32))),
                "waits" => drop(waits.insert(number(1), parts[2].to_owned())),
                "sync" => {
                    let waiters = parts[5..].iter().map(|id| id.parse().expect("a number")).collect();
                    objects.insert(parts[1].to_owned(), (number(2) as u32, signed(3), waiters));
                }
                "holds" => {}
                word => drop(words.insert(word.to_owned(), parts[1..].join(" "))),
            }
        }
        Self { tasks, waits, objects, words }
    }
}

/// Compares what the client printed with what the fixture `go_waits` said of itself.
fn check(truth: &Value, printed: &Printed, has_crashed: bool, what: &str) {
    for (function, object) in truth.as_object().expect("an object") {
        let Some(object) = object.as_str().filter(|object| !object.is_empty()) else { continue };
        // One of the channels that a select waits for.
        if function == "waitsInSelect" {
            continue;
        }
        let waiters: Vec<u64> =
            printed.waits.iter().filter(|(_, address)| *address == object).map(|(id, _)| *id).collect();
        assert!(!waiters.is_empty(), "{what}: nobody waits for {object} of {function}");
        let known = printed.objects.get(object).unwrap_or_else(|| panic!("{what}: no {object} of {function}"));
        assert!(waiters.iter().all(|id| known.2.contains(id)), "{what}: {function}: {waiters:?} in {:?}", known.2);
    }
    let kind = |function: &str| printed.objects[truth[function].as_str().expect("an address")].0;
    let state = |function: &str| printed.objects[truth[function].as_str().expect("an address")].1;
    // TD_SYNC_MUTEX, TD_SYNC_RWLOCK, TD_SYNC_COND; channels have no type.
    assert_eq!((kind("waitsForMutex"), kind("waitsToRead"), kind("waitsForCondition")), (2, 4, 1), "{what}");
    assert_eq!(kind("waitsToReceive"), 0, "{what}");
    // Locked, write-locked, one reader.
    assert_eq!((state("waitsForMutex"), state("waitsToRead"), state("waitsToWrite")), (1, -1, 1), "{what}");
    // The main goroutine reads its input, on a thread; all others of the program are parked.
    let asleep = printed.tasks.values().filter(|(state, lwp, kind)| (*state, *lwp, *kind) == (6, 0, 1)).count();
    assert_eq!(asleep as u64, truth["parked"].as_u64().expect("a number"), "{what}: {:?}", printed.tasks);
    let (state, lwp, _) = printed.tasks[&1];
    // The signal that ends a program of Go goes to all its threads in turn.
    assert!((state == 6 || has_crashed && state == 4) && lwp > 0, "{what}: the main goroutine: {state} on {lwp}");
}

/// Without libc, with it, and stripped.
const WAYS: [&[&str]; 3] = [&["CGO_ENABLED=0"], &["CGO_ENABLED=1"], &["CGO_ENABLED=0", "-ldflags=-s -w"]];

fn client() -> std::path::PathBuf {
    Source::new("tasks.c").with_libc_db().build()
}

#[test]
fn goroutines_are_threads() {
    testkit::needs_ptrace!();
    for go in Go::all("goroutines_are_threads") {
        for flags in WAYS {
            let fixture = Fixture::start(&go.build("go_waits", flags), &[]);
            let what = format!("{go:?} {flags:?}");
            let text = run(&client(), &["pid", &fixture.pid().to_string()]);
            let printed = Printed::of(&text);
            check(fixture.truth(), &printed, false, &what);
            let concurrency: u32 = printed.words["concurrency"].parse().expect("a number");
            assert!(concurrency > 0, "{what}: GOMAXPROCS");
            let has_libc = flags[0] == "CGO_ENABLED=1";
            assert_eq!(printed.words["threads"], if has_libc { "TD_OK" } else { "TD_NOLIBTHREAD" }, "{what}");
            if has_libc {
                let threads = std::fs::read_dir(format!("/proc/{}/task", fixture.pid())).expect("its threads").count();
                assert_eq!(printed.words["lwps"], threads.to_string(), "{what}");
            }
        }
    }
}

#[test]
fn goroutines_of_cores_are_threads() {
    const TEST: &str = "goroutines_of_cores_are_threads";
    for go in Go::all(TEST) {
        for flags in &WAYS[..2] {
            let program = go.build("go_waits", flags);
            // Go handles SIGQUIT: it leaves a core only if it is told to.
            let args = ["GOTRACEBACK=crash", program.to_str().expect("a path")];
            let start = || Dumpable::start(Path::new("/usr/bin/env"), &args);
            let [(by_gdb, gdb), (by_kernel, kernel)] =
                [start(), start()].map(|target| (target.fixture.truth().clone(), target));
            let cores = [(by_gdb, gdb.gcore(TEST), false), (by_kernel, kernel.kernel_core(TEST), true)];
            for (truth, core, has_crashed) in cores {
                let Some(core) = core else { continue };
                let core = core.path().display().to_string();
                let text = run(&client(), &["core", &core, &program.display().to_string()]);
                check(&truth, &Printed::of(&text), has_crashed, &format!("{flags:?} {core}"));
            }
        }
    }
}

/// Goroutines that could run and have no thread are runnable threads.
#[test]
fn statistics_of_goroutines() {
    for go in Go::all("statistics_of_goroutines") {
        let fixture = Fixture::start(&go.build("go_busy", &["CGO_ENABLED=0"]), &[]);
        run(&client(), &["busy", &fixture.pid().to_string(), &fixture.truth()["busy"].to_string()]);
    }
}

/// A program without tasks has none to show.
#[test]
fn threads_of_c_are_no_tasks() {
    let fixture = Fixture::new("threads_truth.c").settled();
    run(&Source::new("no_tasks.c").with_libc_db().build(), &[&fixture.pid().to_string()]);
}

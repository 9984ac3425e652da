//! Snapshots: the same answers as the process gave, when it is gone and its files are, too.

use std::fs;
use std::path::{Path, PathBuf};
use testkit::scenes::{DEADLOCKS, OF_CXX, OF_RUST, SCENES};
use testkit::{Answer, Build, Fixture, Go, Tool, Value, Variant, any_of, ensure, eventually, have, part, threads};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// What a snapshot is asked, and the answer that a process gives.
const QUESTIONS: [&[&str]; 7] = [
    &["why"],
    &["threads"],
    &["threads", "--stacks"],
    &["threads", "--lwps", "--state", "sleep"],
    &["locks"],
    &["locks", "--all"],
    &["tsd"],
];

fn ask(question: &[&str], target: &str) -> Answer {
    tool().run(&[&[question[0], target, "--json"], &question[1..]].concat())
}

/// An answer without the times in it, and without what says that it comes from a snapshot. A refusal is its reason.
fn answer(question: &[&str], target: &str) -> (Option<i32>, Value) {
    let answer = ask(question, target);
    if answer.code == Some(2) {
        let reason = answer.assert_refused().trim_start_matches("tglass: ").to_owned();
        let reason = reason.strip_prefix(&format!("{target}: ")).unwrap_or(&reason).to_owned();
        return (answer.code, reason.into());
    }
    let mut document = answer.json();
    document["target"]["snapshot"].take();
    forget_times(&mut document);
    // Of one size they are in the order of their ages, which each look measures anew.
    if let Some(groups) = document.get_mut("groups").and_then(Value::as_array_mut) {
        groups.sort_by_key(|group| group["threads"].to_string());
    }
    (answer.code, document)
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let is_time = name.ends_with("_ms") || ["cpu", "looks", "seen"].contains(&name.as_str());
                if is_time {
                    member.take();
                }
                forget_times(member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        // This program is at the other end of the fixtures' pipes, and starts and ends threads of its own.
        Value::String(text) => {
            let (before, after) = (text.find("which has "), text.find(" threads"));
            if let (Some(at), Some(end)) = (before.map(|at| at + "which has ".len()), after)
                && at < end
            {
                text.replace_range(at..end, "some");
            }
        }
        _ => {}
    }
}

/// Takes a snapshot; what it printed.
fn take(pid: i32, path: &Path, options: &[&str]) -> String {
    let answer = tool().run(&[&["snap", &pid.to_string(), "-o", path.to_str().unwrap()], options].concat());
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    answer.text()
}

/// A program in a directory of its own, so that it can be deleted.
fn copied(dir: &Path, program: &Path) -> PathBuf {
    let copy = dir.join(program.file_name().unwrap());
    fs::copy(program, &copy).unwrap();
    copy
}

/// Asks a process and a snapshot of it the same; then again the snapshot, when nothing is left of the process.
fn same_answers(what: &str, program: &Path, args: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let copy = copied(dir.path(), program);
    let fixture = Fixture::start(&copy, args).settled();
    let (pid, path) = (fixture.pid().to_string(), dir.path().join("kept.tgsnap"));
    let file = path.to_str().unwrap();
    // Looks at one process may differ a little on a busy machine: a thread was just about to go to sleep.
    let kept = any_of(6, || {
        let alive = QUESTIONS.map(|question| answer(question, &pid));
        let text = take(fixture.pid(), &path, &[]);
        ensure(text.contains("0 us pause"), || text.clone())?;
        let kept = QUESTIONS.map(|question| answer(question, file));
        for ((alive, kept), question) in alive.iter().zip(&kept).zip(QUESTIONS) {
            ensure(alive == kept, || format!("{what}: {question:?}: {}", difference(&alive.1, &kept.1, "")))?;
        }
        Ok(kept)
    });
    drop(fixture);
    fs::remove_file(&copy).unwrap();
    for (kept, question) in kept.iter().zip(QUESTIONS) {
        assert!(*kept == answer(question, file), "{what}: {question:?}: the answer has changed");
        let text = tool().run(&[&[question[0], file], &question[1..]].concat());
        let is_as_json = text.code == kept.0 && (text.code == Some(2) || text.text().contains("snapshot of "));
        assert!(is_as_json, "{what}: {question:?}: {} {}", text.text(), text.stderr);
    }
    let page = dir.path().join("page.html");
    let report = tool().run(&["report", file, "-o", page.to_str().unwrap()]);
    assert_eq!(report.code, Some(0), "{what}: {}", report.stderr);
    assert!(fs::read_to_string(&page).unwrap().contains("snapshot of "), "{what}");
}

/// The first place where two documents differ.
fn difference(one: &Value, other: &Value, at: &str) -> String {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => a
            .iter()
            .filter(|(name, value)| b[*name] != **value)
            .map(|(name, value)| difference(value, &b[name], &format!("{at}.{name}")))
            .collect(),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate().filter(|(_, (a, b))| a != b);
            pairs.map(|(number, (a, b))| difference(a, b, &format!("{at}[{number}]"))).take(1).collect()
        }
        _ => format!("{at}: {one} and {other}; "),
    }
}

fn built(file: &str, variant: Variant) -> PathBuf {
    Build::new(file).variant(variant).path()
}

#[test]
fn locks_answer_as_they_did() {
    for (file, args) in [
        ("deadlocks.c", &["writers"][..]),
        ("lifecycle.c", &[]),
        ("tsd.c", &[]),
        ("sync_rwlocks.c", &[]),
        ("sync_kinds.c", &[]),
        ("sync_mutexes.c", &[]),
    ] {
        same_answers(file, &built(file, Variant::Default), args);
    }
    let stripped = built("deadlocks.c", Variant::StaticStripped);
    same_answers("a program without symbols", &stripped, &["writers"]);
}

#[test]
fn what_takes_several_looks_answers_as_it_did() {
    for (file, scene) in [
        ("unwoken.c", "barrier_is_short"),
        ("pools.cc", "all_wait"),
        ("hangs.c", "behind_read"),
        ("hangs.c", "rw_readers"),
    ] {
        same_answers(&format!("{file} {scene}"), &built(file, Variant::Default), &[scene]);
    }
}

#[test]
fn other_processes_answer_as_they_did() {
    for scene in ["pipes", "unix", "flock"] {
        same_answers(scene, &built("outside.c", Variant::Default), &[scene]);
    }
}

#[test]
fn other_languages_answer_as_they_did() {
    same_answers("Rust", &built("deadlock_rust.rs", Variant::Default), &["arc"]);
    if have("snap::other_languages_answer_as_they_did", "musl-gcc") {
        let program = Build::new("musl_locks.c").musl().variant(Variant::Default).flags(&["-O2"]).path();
        same_answers("musl", &program, &["locks"]);
    }
    for go in Go::all("snap::other_languages_answer_as_they_did").into_iter().take(1) {
        same_answers("Go", &go.build("go_waits", &[]), &[]);
    }
}

/// Every hang that there is a fixture of. `make soak` sets TG_EVERY_HANG; without it only a few are asked, because each takes
/// seconds.
#[test]
fn every_hang_answers_as_it_did() {
    let is_all = std::env::var_os("TG_EVERY_HANG").is_some();
    // Threads of these run: no two looks see the same.
    let moves = ["behind_compute", "busy", "handed_over", "in_handler", "timed"];
    let all: [(&str, &[&str]); 4] =
        [("hangs.c", &SCENES), ("hangs_cxx.cc", &OF_CXX), ("hangs_rust.rs", &OF_RUST), ("deadlocks.c", &DEADLOCKS)];
    for (file, scenes) in all {
        let scenes = scenes.iter().filter(|scene| !moves.contains(scene));
        let program = built(file, Variant::Default);
        for scene in scenes.step_by(if is_all { 1 } else { 18 }) {
            same_answers(&format!("{file} {scene}"), &program, &[scene]);
        }
    }
}

/// A core, too, can be kept: then it needs its executable no more.
#[test]
fn a_snapshot_of_a_core() {
    let dir = tempfile::tempdir().unwrap();
    let program = built("deadlocks.c", Variant::Default);
    let Some(core) = testkit::Dumpable::start(&program, &["writers"]).gcore(part("a core of gdb")) else { return };
    let path = dir.path().join("core.tgsnap");
    let file = path.to_str().unwrap();
    assert_eq!(tool().run(&["snap", &core.name(), "-o", file]).code, Some(0));
    for question in QUESTIONS {
        assert_eq!(answer(question, &core.name()), answer(question, file), "{question:?}");
    }
    assert!(tool().run(&["why", file]).text().contains("snapshot of core of "));
}

/// One lock, by its address or name.
#[test]
fn one_lock_of_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::start(&built("deadlocks.c", Variant::Default), &["writers"]).settled();
    let path = dir.path().join("one.tgsnap");
    let file = path.to_str().unwrap();
    take(fixture.pid(), &path, &[]);
    let locks = tool().look("locks", file, &[]);
    let lock = &locks["objects"][0];
    for word in [&lock["address"], &lock["name"]] {
        let word = word.as_str().expect("a name");
        let found = tool().look("locks", file, &["--address", word]);
        assert_eq!(found["objects"].as_array().map(Vec::len), Some(1), "{word}");
        assert_eq!(found["objects"][0]["address"], lock["address"], "{word}");
    }
    let none = tool().run(&["locks", file, "--address", "0x10"]);
    assert!(none.assert_refused().contains("no lock at 0x10"), "{}", none.stderr);
}

/// What needs a process says so, and what is no target of a snapshot is refused.
#[test]
fn what_a_snapshot_cannot_do() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::new("tsd.c").settled();
    let path = dir.path().join("a.tgsnap");
    let file = path.to_str().unwrap();
    take(fixture.pid(), &path, &[]);
    let pid = fixture.pid().to_string();
    let again = dir.path().join("b.tgsnap");
    for (args, reason) in [
        (&["why", file, "--stop"][..], "needs a running process, not a snapshot"),
        (&["threads", file, "--stacks", "--stop"], "needs a running process, not a snapshot"),
        (&["locks", file, "--track"], "needs a running process, not a snapshot"),
        (&["why", file, "-d", "1s"], "needs a process"),
        (&["why", file, "--exe", "x"], "not for snapshots"),
        (&["snap", file, "-o", again.to_str().unwrap()], "a snapshot already"),
        (&["stats", file], "needs a running process"),
        (&["snap", &pid, "-o", "/dev/null"], "is not a file"),
        (&["snap", &pid, "-o", "/no/such/place/x.tgsnap"], "cannot write"),
    ] {
        let answer = tool().run(args);
        assert!(answer.assert_refused().contains(reason), "{args:?}: {}", answer.stderr);
    }
    assert!(!again.exists());
}

/// A file that is no snapshot any more says what happened to it.
#[test]
fn a_damaged_snapshot_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::new("tsd.c").settled();
    let path = dir.path().join("whole.tgsnap");
    take(fixture.pid(), &path, &[]);
    let whole = fs::read(&path).unwrap();
    let bad = dir.path().join("bad.tgsnap");
    let refused = |bytes: &[u8], reason: &str| {
        fs::write(&bad, bytes).unwrap();
        for verb in ["why", "threads", "locks", "tsd"] {
            let answer = tool().run(&[verb, bad.to_str().unwrap()]);
            if answer.code == Some(2) {
                assert!(answer.assert_refused().contains(reason), "{verb}: {}", answer.stderr);
                assert!(answer.stderr.contains("bad.tgsnap: "), "{}", answer.stderr);
            }
        }
        // The last part is for this alone; the answers that have arrived are read.
        let diff = tool().run(&["diff", bad.to_str().unwrap(), path.to_str().unwrap()]);
        assert!(diff.assert_refused().contains(reason), "{}", diff.stderr);
    };
    refused(&[], "is not a snapshot");
    refused(b"hello", "is not a snapshot");
    refused(&whole[..12], "is cut off");
    refused(&whole[..whole.len() / 2], "is cut off");
    refused(&whole[..whole.len() - 1], "is cut off");
    refused(&[&whole[..], b"x"].concat(), "is damaged");
    let mut changed = whole.clone();
    changed[whole.len() - 200] ^= 4;
    changed[40] ^= 1;
    refused(&changed, "is damaged");
    // By its content a file is known whatever it is called.
    let other = dir.path().join("evidence");
    fs::write(&other, &whole).unwrap();
    assert_eq!(tool().run(&["tsd", other.to_str().unwrap()]).code, Some(0));
}

/// No memory contents but words of locks, if that is wanted: no values of thread-specific data, no labels, no paths.
#[test]
fn a_redacted_snapshot_has_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.tgsnap");
    let file = path.to_str().unwrap();
    let fixture = Fixture::new("tsd.c").settled();
    let text = take(fixture.pid(), &path, &["--redact"]);
    assert!(text.contains("not in it: thread-specific data"), "{text}");
    let tsd = tool().run(&["tsd", file]);
    assert!(tsd.assert_refused().contains("without what is in the memory"), "{}", tsd.stderr);
    let pid = fixture.pid().to_string();
    assert_eq!(answer(&["threads"], file), answer(&["threads"], &pid));
    assert_eq!(tool().look("threads", file, &[])["target"]["snapshot"]["redacted"], true);

    // The path of a FIFO that a thread waits to open is in its memory alone.
    let fixture = Fixture::start(&built("outside.c", Variant::Default), &["unopened"]).settled();
    let secret = |file: &str| tool().run(&["why", file, "--json"]).text().contains("/tmp/tg-unopened-");
    any_of(6, || {
        take(fixture.pid(), &path, &[]);
        let open = secret(file);
        take(fixture.pid(), &path, &["--redact"]);
        ensure(open && !secret(file), || tool().run(&["why", file]).text())
    });

    for go in Go::all("snap::a_redacted_snapshot_has_no_memory").into_iter().take(1) {
        let fixture = Fixture::start(&go.build("go_waits", &[]), &[]).settled();
        let labels = |file: &str| tool().run(&["threads", file, "--json"]).text().contains("\"tenant\"");
        take(fixture.pid(), &path, &[]);
        assert!(labels(file), "the labels are there otherwise");
        take(fixture.pid(), &path, &["--redact"]);
        assert!(!labels(file));
    }
}

/// Threads that have not run stand, others moved, wherever they are now.
#[test]
fn two_snapshots_tell_what_moved() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::new("progress.c");
    let (one, two) = (dir.path().join("one.tgsnap"), dir.path().join("two.tgsnap"));
    let names = [&one, &two].map(|path| path.to_str().unwrap());
    take(fixture.pid(), &one, &[]);
    // Long enough for each thread to get a CPU, however busy the machine is.
    let truth = fixture.truth().clone();
    let runs = |snapshot: &Value| -> Vec<u64> {
        threads(snapshot).iter().map(|thread| thread["turns"].as_u64().unwrap_or(0)).collect()
    };
    eventually("the threads should run", || {
        take(fixture.pid(), &two, &[]);
        let diff = tool().run(&["diff", names[0], names[1], "--json"]).json();
        runs(&diff).iter().filter(|turns| **turns > 0).count() >= 2
    });
    for order in [[names[0], names[1]], [names[1], names[0]]] {
        let diff = tool().run(&["diff", order[0], order[1], "--json"]).json();
        assert_eq!(diff["before"]["snapshot"]["path"], names[0], "by time, not by place");
        assert!(diff["apart_ms"].as_u64().is_some_and(|ms| ms > 0), "{diff:#}");
        // Its main thread waits for its input all the time; the others run.
        let main = threads(&diff).iter().find(|thread| thread["lwp"] == fixture.pid()).expect("main");
        assert_eq!((&main["change"], &main["same_place"]), (&"stands".into(), &true.into()), "{truth}: {main:#}");
        assert!(main["stood_ms"].as_u64() >= diff["apart_ms"].as_u64(), "{main:#}");
        assert!(main["before"].is_null() && main["after"]["call"] == "read", "{main:#}");
        let moved = threads(&diff).iter().filter(|thread| thread["change"] == "moved");
        assert!(moved.clone().count() >= 2, "{diff:#}");
        for thread in moved {
            assert!(thread["ran_us"].as_u64() > Some(0) || thread["turns"].as_u64() > Some(0), "{thread:#}");
        }
    }
    let text = tool().run(&["diff", names[0], names[1]]).text();
    assert!(text.contains("1 thread stands") && text.contains("ran"), "{text}");
}

/// Goroutines that stay are where they were, and have waited all the time as soon as a garbage collection has seen them wait; others
/// have come and gone.
#[test]
fn goroutines_that_stay_and_others_that_come_and_go() {
    for go in Go::all("snap::goroutines_that_stay_and_others_that_come_and_go").into_iter().take(1) {
        let dir = tempfile::tempdir().unwrap();
        let fixture = Fixture::start(&go.build("go_short", &[]), &[]);
        let names = ["one", "two"].map(|name| dir.path().join(name).display().to_string() + ".tgsnap");
        let staying = fixture.truth()["stays"].as_u64().expect("how many stay") as usize;
        let number = |diff: &Value, change: &str, function: &str| -> usize {
            let is_there = |group: &&Value| {
                let place = if group["after"].is_null() { &group["before"] } else { &group["after"] };
                let frames = place["frames"].as_array().expect("frames");
                group["change"] == change && frames.iter().any(|frame| frame["function"] == function)
            };
            let groups = diff["tasks"].as_array().expect("tasks").iter().filter(is_there);
            groups.map(|group| group["tasks"].as_array().expect("ids").len()).sum()
        };
        eventually("a garbage collection should come before the first of two snapshots", || {
            names.iter().for_each(|name| drop(take(fixture.pid(), name.as_ref(), &[])));
            let diff = tool().run(&["diff", &names[0], &names[1], "--json"]).json();
            let [stand, stay] = ["stands", "same_place"].map(|change| number(&diff, change, "main.stays"));
            assert_eq!(stand + stay, staying, "{diff:#}");
            let of_others = ["new", "ended"].map(|change| number(&diff, change, "main.comes"));
            stand == staying && of_others.iter().all(|number| *number > 0)
        });
        let text = tool().run(&["diff", &names[0], &names[1]]).text();
        let said = ["tasks waited all the time", &format!("  {staying} tasks of Go: "), "main.stays", "tasks ended"];
        assert!(said.iter().all(|said| text.contains(said)), "{text}");
    }
}

#[test]
fn a_hang_that_stays_and_one_that_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::start(&built("deadlocks.c", Variant::Default), &["writers"]).settled();
    let path = dir.path().join("one.tgsnap");
    let (file, pid) = (path.to_str().unwrap(), fixture.pid().to_string());
    take(fixture.pid(), &path, &[]);
    // The process itself can be the other one.
    let diff = tool().run(&["diff", file, &pid, "--json"]);
    assert_eq!(diff.code, Some(0), "{}", diff.stderr);
    let diff = diff.json();
    let finding = &diff["findings"][0];
    assert_eq!((&finding["change"], &finding["kind"]), (&"stays".into(), &"deadlock".into()), "{diff:#}");
    for lwp in finding["threads"].as_array().expect("threads") {
        let thread = threads(&diff).iter().find(|thread| thread["lwp"] == *lwp).expect("a thread");
        assert_eq!(thread["change"], "stands", "{thread:#}");
    }
    let held: Vec<&Value> = diff["locks"].as_array().unwrap().iter().filter(|lock| lock["change"] == "held").collect();
    assert!(held.len() >= 2, "{diff:#}");
    let other = Fixture::start(&built("deadlocks.c", Variant::Default), &["writers"]).settled();
    let refused = tool().run(&["diff", file, &other.pid().to_string()]);
    assert!(refused.assert_refused().contains("of two processes"), "{}", refused.stderr);
}

/// A file that was written by the first version: every later one answers from it.
#[test]
fn format_1_is_read() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/format-1.tgsnap");
    let why = tool().run(&["why", file, "--json"]);
    assert_eq!(why.code, Some(1), "{}", why.stderr);
    let why = why.json();
    assert_eq!(why["findings"][0]["kind"], "deadlock");
    assert!(why["target"]["snapshot"]["written_by"].as_str().unwrap().starts_with("threadglass 0.1"), "{why:#}");
    for question in QUESTIONS {
        let answer = ask(question, file);
        assert!(matches!(answer.code, Some(0 | 1)), "{question:?}: {}", answer.stderr);
        assert!(answer.json()["target"]["pid"].is_u64(), "{question:?}");
    }
}

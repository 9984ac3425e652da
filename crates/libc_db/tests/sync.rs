//! Synchronization objects through the C interface, against what the fixtures know of their own: alive, as
//! cores, and under a debugger's own routines.

mod common;

use common::Source;
use std::path::PathBuf;
use std::process::Command;
use testkit::{Answer, Build, Dumpable, Fixture, Value, Variant, address, has_static_libc, part};

const IN_C: [&str; 3] = ["sync_mutexes.c", "sync_rwlocks.c", "sync_kinds.c"];
const OTHERS: [&str; 2] = ["sync_cxx.cc", "sync_rust.rs"];

/// What has to be known of objects that are waited for.
#[derive(Clone, Copy, PartialEq)]
enum Types {
    /// All types.
    All,
    /// A type may be TD_SYNC_UNKNOWN, but none may be wrong.
    Some,
}

fn client(flags: &[&str]) -> PathBuf {
    Source::new("sync_dump.c").flags(flags).with_libc_db().build()
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map_or(&[], Vec::as_slice)
}

/// What the library says of `target`, and of every object that `truth` tells of.
fn look(program: &PathBuf, how: &str, target: &str, truth: &Value) -> Value {
    ask(program, how, target, list(truth, "objects").iter().filter_map(|object| object["address"].as_str()))
}

fn ask<'a>(program: &PathBuf, how: &str, target: &str, addresses: impl Iterator<Item = &'a str>) -> Value {
    let mut command = Command::new(program);
    command.args([how, target]).args(addresses);
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{how} {target}:\n{}\n{}", answer.text(), answer.stderr);
    testkit::serde_json::from_str(&answer.text()).unwrap_or_else(|error| panic!("{error}:\n{}", answer.text()))
}

fn lwps(of: &[Value]) -> Vec<i64> {
    let mut lwps: Vec<i64> = of.iter().filter_map(|one| one["lwp"].as_i64().or(one.as_i64())).collect();
    lwps.sort_unstable();
    lwps
}

fn type_of(truth: &Value) -> i64 {
    match truth["kind"].as_str() {
        Some("cond") => 1,
        Some("mutex") => 2,
        Some("semaphore") => 3,
        Some("rwlock") => 4,
        _ => 0,
    }
}

/// Threads that sleep on the object: those that spin do not.
fn sleepers(truth: &Value) -> Vec<i64> {
    let waiters: Vec<Value> = list(truth, "waiters").iter().filter(|waiter| waiter["spins"] != true).cloned().collect();
    lwps(&waiters)
}

/// The one thread that the object itself names as its owner.
fn owner(truth: &Value) -> Option<&Value> {
    let is_owned = truth["family"] == "pthread"
        && (truth["kind"] == "mutex" || truth["kind"] == "rwlock" && truth["state"] == "write_locked");
    list(truth, "holders").first().filter(|_| is_owned)
}

fn faults(pid: i32, truth: &Value, seen: &Value, types: Types) -> Vec<String> {
    let mut faults = Vec::new();
    let told = list(truth, "objects");
    assert!(!told.is_empty(), "a fixture without objects");
    for truth in told {
        let at = address(&truth["address"]);
        let find = |name: &str| list(seen, name).iter().find(|object| address(&object["address"]) == at);
        let mut add = |fault: String| faults.push(format!("{} {at:#x}: {fault}", truth["name"]));
        let Some(asked) = find("asked") else {
            add("was not answered".to_owned());
            continue;
        };
        let sleepers = sleepers(truth);
        let is_iterated = find("objects").is_some();
        if type_of(truth) == 0 && is_iterated && types == Types::All {
            add("has no type, and was iterated".to_owned());
        }
        if type_of(truth) != 0 && !sleepers.is_empty() && !is_iterated && types == Types::All {
            add("is waited for, and was not iterated".to_owned());
        }
        for object in [Some(asked), find("objects")].into_iter().flatten() {
            one(pid, truth, object, &sleepers, types, &mut add);
        }
    }
    for thread in list(seen, "threads") {
        let lwp = thread["lwp"].as_i64().unwrap_or(-1);
        let mut add = |fault: String| faults.push(format!("thread {lwp}: {fault}"));
        let waits = told.iter().find(|truth| sleepers(truth).contains(&lwp));
        match (waits, thread["sleep"].is_null()) {
            (Some(truth), true) => add(format!("does not sleep on {}", truth["name"])),
            (Some(truth), false) if thread["sleep"] != truth["address"] => {
                // Without a type only the word is known.
                let (at, word) = (address(&truth["address"]), address(&thread["sleep"]));
                let inside = (at..at + truth["bytes"].as_u64().unwrap_or(1)).contains(&word);
                if types == Types::All || !inside {
                    add(format!("sleeps on {}, seen on {}", truth["address"], thread["sleep"]));
                }
            }
            // The fixtures' own hands: they are told to wait for nothing else.
            (None, false) if lwp > 0 => add(format!("is seen to sleep on {}", thread["sleep"])),
            _ => {}
        }
        for owned in list(thread, "owns") {
            let truth = told.iter().find(|truth| truth["address"] == *owned);
            if truth.and_then(owner).is_none_or(|owner| owner["lwp"] != thread["lwp"]) {
                add(format!("does not own {owned}"));
            }
        }
        for truth in told.iter().filter(|truth| owner(truth).is_some_and(|owner| owner["lwp"] == thread["lwp"])) {
            let must = types == Types::All && !sleepers(truth).is_empty();
            if must && !list(thread, "owns").contains(&truth["address"]) {
                add(format!("owns {}", truth["name"]));
            }
        }
    }
    faults
}

fn one(pid: i32, truth: &Value, seen: &Value, sleepers: &[i64], types: Types, add: &mut impl FnMut(String)) {
    if seen["error"] != "TD_OK" {
        add(format!("gives {}", seen["error"]));
        return;
    }
    let waiters = lwps(list(seen, "waiters"));
    let is_known = seen["type"] != 0;
    if types == Types::All && waiters != sleepers || waiters.iter().any(|lwp| !sleepers.contains(lwp)) {
        add(format!("is waited for by {sleepers:?}, seen {waiters:?}"));
    }
    let mut same = |what: &str, told: i64| {
        if seen[what] != told {
            add(format!("{what} is {told}, seen {}", seen[what]));
        }
    };
    if !is_known {
        for nothing in ["size", "state", "flags", "owner", "ownerpid", "wlock", "rcount", "ceiling", "data"] {
            same(nothing, 0);
        }
        let must = types == Types::All && !sleepers.is_empty();
        if must {
            same("type", type_of(truth));
            same("has_waiters", 1);
        }
        return;
    }
    same("type", type_of(truth));
    same("has_waiters", i64::from(!sleepers.is_empty()));
    if truth["family"] != "pthread" {
        return;
    }
    same("size", truth["bytes"].as_i64().unwrap_or(0));
    if let Some(shared) = truth["shared"].as_bool() {
        same("shared", i64::from(shared));
    }
    if truth["robust"] == true {
        same("shared", 1);
    }
    let number = |name: &str| truth[name].as_i64().unwrap_or(0);
    same("rcount", number("recursion"));
    same("ceiling", number("ceiling"));
    let state = truth["state"].as_str().unwrap_or_default();
    same("wlock", i64::from(state == "write_locked"));
    match truth["kind"].as_str() {
        Some("mutex") => {
            same("state", i64::from(state == "locked" || state == "inconsistent"));
            same(
                "flags",
                match state {
                    "owner_died" | "inconsistent" => 1,
                    "not_recoverable" => 2,
                    _ => 0,
                },
            );
        }
        Some("rwlock") => same("state", if state == "write_locked" { -1 } else { number("readers") }),
        Some("semaphore") => {
            same("state", number("count"));
            same("data", number("count"));
        }
        _ => same("state", 0),
    }
    let is_elsewhere = |owner: &Value| owner["status"] == "other_process";
    match owner(truth) {
        Some(owner) if is_elsewhere(owner) => {
            same("owner", 0);
            same("ownerpid", owner["pid"].as_i64().unwrap_or(0));
        }
        Some(owner) => {
            same("owner", owner["lwp"].as_i64().unwrap_or(0));
            // To libc a robust one is shared, however it was meant.
            let is_shared = truth["shared"] == true || truth["robust"] == true;
            same("ownerpid", if is_shared { i64::from(pid) } else { 0 });
        }
        None => same("owner", 0),
    }
}

fn agrees(context: &str, pid: i32, truth: &Value, seen: &Value, types: Types) {
    let faults = faults(pid, truth, seen, types);
    assert!(faults.is_empty(), "{context}:\n{}", faults.join("\n"));
}

fn start(file: &str, variant: Variant) -> Fixture {
    Fixture::start(&Build::new(file).variant(variant).path(), &[]).settled()
}

#[test]
fn alive() {
    let program = client(&[]);
    for file in IN_C.into_iter().chain(OTHERS) {
        let fixture = start(file, Variant::Default);
        let seen = look(&program, "pid", &fixture.pid().to_string(), fixture.truth());
        agrees(file, fixture.pid(), fixture.truth(), &seen, Types::All);
    }
}

#[test]
fn without_symbols() {
    let program = client(&[]);
    let mut variants = vec![Variant::Stripped];
    if has_static_libc(part("static programs")) {
        variants.extend([Variant::Static, Variant::StaticStripped]);
    }
    for file in IN_C {
        for variant in &variants {
            let fixture = start(file, *variant);
            let seen = look(&program, "pid", &fixture.pid().to_string(), fixture.truth());
            let types = if *variant == Variant::Stripped { Types::All } else { Types::Some };
            agrees(&format!("{file}, {variant:?}"), fixture.pid(), fixture.truth(), &seen, types);
        }
    }
}

#[test]
fn as_cores() {
    let program = client(&[]);
    for file in IN_C.into_iter().chain(OTHERS) {
        let test = format!("sync::as_cores {file}");
        let mut dumpable = Dumpable::start(&Build::new(file).variant(Variant::Default).path(), &[]);
        dumpable.fixture = dumpable.fixture.settled();
        let (pid, truth) = (dumpable.fixture.pid(), dumpable.fixture.truth().clone());
        let Some(core) = dumpable.kernel_core(part(file)) else { continue };
        let seen = look(&program, "core", &core.name(), &truth);
        agrees(&test, pid, &truth, &seen, Types::All);
    }
}

/// Memory and registers by a debugger's own routines, the process stopped; what only the kernel knows from
/// the process itself.
#[test]
fn under_a_debugger() {
    testkit::needs_ptrace!();
    let program = client(&["-DDEBUGGER"]);
    for file in IN_C {
        let fixture = start(file, Variant::Default);
        let seen = look(&program, "traced", &fixture.pid().to_string(), fixture.truth());
        agrees(&format!("{file}, traced"), fixture.pid(), fixture.truth(), &seen, Types::All);
    }
}

/// As with a debugger on a core: nothing but memory and registers.
#[test]
fn under_a_debugger_with_nothing_else() {
    testkit::needs_ptrace!();
    let program = client(&["-DDEBUGGER"]);
    for file in IN_C.into_iter().chain(OTHERS) {
        let fixture = start(file, Variant::Default);
        let seen = look(&program, "blind", &fixture.pid().to_string(), fixture.truth());
        agrees(&format!("{file}, blind"), fixture.pid(), fixture.truth(), &seen, Types::Some);
        let known = list(&seen, "objects").len();
        assert!(file == "sync_rust.rs" || known > 0, "{file}: nothing is known");
    }
}

/// Who waits for whom, as a client finds it out by itself: from each thread to what it sleeps on, and from
/// there to the owner.
#[test]
fn circles() {
    let own = client(&[]);
    let debugger = client(&["-DDEBUGGER"]);
    let build = Build::new("deadlocks.c").path();
    for scenario in ["abba", "abba_heap", "two_cycles", "philosophers", "writers", "self"] {
        let fixture = Fixture::start(&build, &[scenario]).settled();
        for (program, how) in [(&own, "pid"), (&debugger, "traced"), (&debugger, "blind")] {
            for finding in list(fixture.truth(), "findings") {
                let objects = list(finding, "objects");
                let addresses = objects.iter().filter_map(Value::as_str);
                let seen = ask(program, how, &fixture.pid().to_string(), addresses);
                let threads = lwps_in_order(&finding["threads"]);
                assert!(!threads.is_empty() && threads.len() == objects.len(), "{finding}");
                for (place, lwp) in threads.iter().enumerate() {
                    let thread = list(&seen, "threads").iter().find(|thread| thread["lwp"] == *lwp).expect("a thread");
                    assert_eq!(thread["sleep"], objects[place], "{scenario}, {how}");
                    let next = threads[(place + 1) % threads.len()];
                    assert_eq!(list(&seen, "asked")[place]["owner"], next, "{scenario}, {how}: {seen:#}");
                }
            }
        }
    }
}

fn lwps_in_order(of: &Value) -> Vec<i64> {
    of.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(Value::as_i64).collect()
}

/// Whatever is wrong is an error, and the right one; nothing that fails changes an answer.
#[test]
fn bad_arguments_and_failing_routines() {
    let program = Source::new("sync_service.c").with_libc_db().build();
    let fixture = Fixture::start(&Build::new("deadlocks.c").path(), &["philosophers"]).settled();
    let waited = list(&fixture.truth()["findings"][0], "objects");
    let addresses: Vec<&str> = waited.iter().filter_map(Value::as_str).collect();
    let pid = fixture.pid().to_string();
    let mut args = vec![pid.as_str()];
    args.extend(&addresses);
    common::run(&program, &args);
}

/// Threads that hang go on once the state of their object was changed: by a short stop of our own, when the
/// debugger that has them stopped lets them go, or by its routines for single threads.
#[test]
fn states_are_changed_and_waiters_notice() {
    testkit::needs_ptrace!();
    for flags in [&[][..], &["-DDEBUGGER"], &["-DDEBUGGER", "-DWITH_LSTOP"]] {
        common::run(&Source::new("sync_set.c").flags(flags).with_libc_db().build(), &[]);
    }
}

/// What was seen a moment ago is never taken for what is.
#[test]
fn no_answer_is_older_than_its_question() {
    common::run(&Source::new("sync_moves.c").with_libc_db().build(), &[]);
}

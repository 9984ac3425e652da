//! Threads and processes between birth and end.

use std::path::Path;
use std::process::{Command, Stdio};
use testkit::{Build, Fixture, Log, Tool, Value, Variant, thread, threads, wait_asleep};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn built(file: &str) -> std::path::PathBuf {
    Build::new(file).variant(Variant::Default).path()
}

fn by_id<'a>(snapshot: &'a Value, id: &Value) -> Vec<&'a Value> {
    threads(snapshot).iter().filter(|thread| &thread["id"] == id).collect()
}

#[test]
fn a_process_whose_main_thread_has_exited() {
    let fixture = Fixture::new("main_exited.c");
    let truth = fixture.truth();
    wait_asleep(fixture.pid(), truth["last"]["lwp"].as_i64().unwrap() as i32);
    let snapshot = tool().threads(fixture.pid(), &[]);
    assert_eq!(threads(&snapshot).len(), 3, "{snapshot:#}");
    for (role, state, function) in [
        ("main", "zombie", Value::Null),
        ("sleeper", "sleep", "sleeper_start".into()),
        ("last", "sleep", "last_start".into()),
    ] {
        let seen = thread(&snapshot, truth[role]["lwp"].as_i64().unwrap());
        assert_eq!(seen["id"], truth[role]["id"], "{role}");
        assert_eq!(seen["state"], state, "{role}");
        assert_eq!(seen["start_function"], function, "{role}");
        if state == "sleep" {
            assert!(!seen["pc"].is_null() && !seen["stack"].is_null() && !seen["syscall"].is_null(), "{seen:#}");
        }
    }
}

#[test]
fn every_station_of_a_threads_life() {
    let fixture = Fixture::start(&built("lifecycle.c"), &[]).settled();
    let truth = fixture.truth();
    let snapshot = tool().threads(fixture.pid(), &[]);
    let living = |role: &str| {
        let seen = thread(&snapshot, truth[role]["lwp"].as_i64().unwrap());
        assert_eq!(seen["id"], truth[role]["id"], "{role}");
        seen
    };
    // In its last destructors a thread is asleep like any other. libc marks one that called
    // pthread_exit, or was cancelled, at once; one that returned only when its destructors are done.
    for (role, exiting) in [("returned", false), ("exited", true), ("cancelled", true), ("main", false)] {
        let seen = living(role);
        assert_eq!((&seen["state"], &seen["exiting"]), (&"sleep".into(), &exiting.into()), "{role}");
    }
    assert_eq!(living("detached")["detached"], true);
    // Somebody waits for it to end, which is not the same as being detached.
    assert_eq!(living("joined_by_other")["detached"], false);
    assert_eq!(living("joiner")["detached"], false);
    for role in ["ended", "ended_by_exit"] {
        let found = by_id(&snapshot, &truth[role]["id"]);
        assert_eq!(found.len(), 1, "{role}: {snapshot:#}");
        assert_eq!((&found[0]["state"], &found[0]["lwp"]), (&"zombie".into(), &Value::Null), "{role}");
        assert_eq!(found[0]["exiting"], false, "{role}");
    }
    for role in ["joined", "detached_ended"] {
        assert!(by_id(&snapshot, &truth[role]["id"]).is_empty(), "{role} is still there: {snapshot:#}");
    }
    assert_eq!(threads(&snapshot).len(), 9, "{snapshot:#}");
    assert_eq!(snapshot["gaps"].as_array().map(Vec::len), Some(0), "{:#}", snapshot["gaps"]);
}

#[test]
fn a_thread_that_libc_did_not_make() {
    let fixture = Fixture::start(&built("lifecycle.c"), &["raw"]).settled();
    let lwp = &fixture.truth()["raw"]["lwp"];
    let snapshot = tool().threads(fixture.pid(), &[]);
    let raw = thread(&snapshot, lwp.as_i64().unwrap());
    assert_eq!((&raw["id"], &raw["state"]), (&Value::Null, &"sleep".into()));
    assert_eq!(raw["syscall"]["name"], "pause");
    let gaps = snapshot["gaps"].as_array().unwrap();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(gaps[0]["lwps"], Value::from(vec![lwp.clone()]), "the gap names that thread alone");
    assert_eq!(threads(&snapshot).len(), 10, "the others are all there");
}

#[test]
fn a_process_forked_by_a_worker_thread() {
    let fixture = Fixture::new("fork_worker.c");
    let (child, grandchild) = (&fixture.truth()["child"], &fixture.truth()["grandchild"]);
    let pid = child["lwp"].as_i64().unwrap() as i32;
    wait_asleep(pid, pid);
    let snapshot = tool().threads(pid, &[]);
    assert_eq!(threads(&snapshot).len(), 2, "the parent's threads do not live here: {snapshot:#}");
    let leader = thread(&snapshot, child["lwp"].as_i64().unwrap());
    assert_eq!((&leader["id"], &leader["state"]), (&child["id"], &"sleep".into()));
    assert_eq!(leader["start_function"], child["start_function"]);
    assert_eq!(leader["stack"], child["stack"], "the leader runs on the stack of the thread that forked");
    assert_eq!(thread(&snapshot, grandchild["lwp"].as_i64().unwrap())["id"], grandchild["id"]);
}

#[test]
fn a_process_in_vfork_and_the_child_that_borrows_its_memory() {
    let fixture = Fixture::start(&built("fork_worker.c"), &["vfork"]).settled();
    let (worker, child) = (&fixture.truth()["worker"], fixture.truth()["child"].as_i64().unwrap());
    let snapshot = tool().threads(fixture.pid(), &[]);
    let parent = thread(&snapshot, worker["lwp"].as_i64().unwrap());
    assert_eq!((&parent["id"], &parent["state"]), (&worker["id"], &"sleep".into()));
    assert_eq!(parent["syscall"]["name"], "vfork");
    assert_eq!(threads(&snapshot).len(), 2);

    wait_asleep(child as i32, child as i32);
    let snapshot = tool().threads(child as i32, &[]);
    let living: Vec<_> = threads(&snapshot).iter().filter(|thread| !thread["lwp"].is_null()).collect();
    assert_eq!(living.len(), 1, "{snapshot:#}");
    // The descriptors in that memory are the parent's threads'.
    assert_eq!((&living[0]["lwp"], &living[0]["id"]), (&child.into(), &Value::Null));
}

/// Answers of a look at a process that does not stand still: complete, or a clear refusal.
fn answers(pid: i32) -> Option<Value> {
    let answer = tool().run(&["threads", &pid.to_string(), "--json"]);
    if answer.code == Some(0) {
        return Some(answer.json());
    }
    let line = answer.assert_refused();
    let reason = ["ended", "exec", "no process", "zombie"];
    assert!(reason.iter().any(|word| line.contains(word)), "{line}");
    None
}

#[test]
fn a_process_that_executes_itself_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let fixture = Fixture::start(&built("exec_loop.c"), &[path.to_str().unwrap()]);
    let mut log = Log::open(&path);
    let mut complete = 0;
    for look in 0.. {
        // On a busy machine most lives are shorter than a look: go on until some were not.
        if look >= 150 && complete > 0 {
            break;
        }
        assert!(look < 5000, "not one look succeeded");
        let mark = log.mark();
        let Some(snapshot) = answers(fixture.pid()) else { continue };
        let mut life = None;
        for thread in threads(&snapshot).iter().filter(|thread| !thread["id"].is_null() && !thread["lwp"].is_null()) {
            let start = if thread["start"].is_null() { 0 } else { testkit::address(&thread["start"]) };
            let found = log.find(&thread["id"], &thread["lwp"], start, mark);
            let entry = found.unwrap_or_else(|| panic!("look {look}: no such thread ever lived: {thread:#}"));
            // Three entries a life: all threads of one look are of the same program.
            assert_eq!(*life.get_or_insert(entry.index / 3), entry.index / 3, "look {look} mixes two programs");
            complete += 1;
        }
    }
    assert!(log.mark() > 6, "the program did not execute itself");
}

fn spawn(path: &Path) -> std::process::Child {
    Command::new(path).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn processes_that_end_while_they_are_looked_at() {
    let path = built("short_lived.c");
    let (mut processes, mut seen) = (0, 0);
    // Some are seen before they end, and some after that. On a busy machine more are needed until both have happened.
    while processes < 100 || (seen == 0 || seen == 2 * processes) && processes < 2000 {
        let mut child = spawn(&path);
        seen += usize::from(answers(child.id() as i32).is_some());
        seen += usize::from(answers(child.id() as i32).is_some());
        child.wait().unwrap();
        processes += 1;
    }
    assert!(seen > 0 && seen < 2 * processes, "{seen} looks at {processes} processes");
}

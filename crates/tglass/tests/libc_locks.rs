//! Locks that libc keeps for itself: of streams, of malloc, of the dynamic loader, of lookups; and libc's own threads.

use std::path::Path;
use testkit::{Build, Dumpable, Fixture, Tool, Value, Variant, eventually, part, thread};

/// Scenes in which threads wait for a lock of libc.
const SCENES: [&str; 5] = ["stdout", "file", "arena", "thread_arena", "lookup"];

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn why(target: &str) -> Value {
    tool().run(&["why", target, "--json"]).json()
}

/// What differs between the truth of a scene and an answer.
fn faults(truth: &Value, snapshot: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let holder = &truth["holder"];
    let mut waiters = truth["waiters"].as_array().cloned().unwrap_or_default();
    if truth["deadlock"] == true && truth["name"].as_str().unwrap().contains("malloc") {
        waiters.push(holder.clone());
    }
    for lwp in &waiters {
        let waits = &thread(snapshot, lwp.as_i64().unwrap())["waits_for"];
        let name = waits["name"].as_str().unwrap_or_default();
        if !name.starts_with(truth["name"].as_str().unwrap()) {
            faults.push(format!("{lwp} waits for {waits}"));
        }
        if waits["held_by"] != serde_json::json!([holder]) {
            faults.push(format!("{holder} holds what {lwp} waits for: {waits}"));
        }
    }
    let verdict = &snapshot["verdict"];
    let wanted = if truth["deadlock"] == true { "deadlock" } else { "behind" };
    if verdict["kind"] != wanted {
        faults.push(format!("the verdict is to be {wanted}: {verdict}"));
    }
    // An arena records no owner.
    if verdict["certainty"] == "certain" && truth["name"].as_str().unwrap().contains("malloc") {
        faults.push(format!("this is not certain: {verdict}"));
    }
    faults
}

fn check(program: &Path, scenes: &[&str]) {
    for scene in scenes {
        let fixture = Fixture::start(program, &[scene]).settled();
        let faults = faults(fixture.truth(), &why(&fixture.pid().to_string()));
        assert!(faults.is_empty(), "{scene}, {}: {faults:#?}", program.display());
    }
}

#[test]
fn waits_for_libc() {
    for variant in [Variant::Default, Variant::Stripped, Variant::NoPie] {
        check(&Build::new("libc_locks.c").variant(variant).path(), &SCENES);
    }
}

/// Where libc is linked in, frames of libc and of the program cannot be told apart.
#[test]
fn streams_of_static_programs() {
    for variant in [Variant::Static, Variant::StaticStripped] {
        check(&Build::new("libc_locks.c").variant(variant).flags(&["-w"]).path(), &["stdout", "file"]);
    }
}

#[test]
fn waits_for_libc_in_cores() {
    let program = Build::new("libc_locks.c").variant(Variant::Stripped).path();
    for scene in SCENES {
        for by_kernel in [false, true] {
            let mut dumpable = Dumpable::start(&program, &[scene]);
            dumpable.fixture = dumpable.fixture.settled();
            let truth = dumpable.fixture.truth().clone();
            let core = if by_kernel { dumpable.kernel_core(part(scene)) } else { dumpable.gcore(part(scene)) };
            let Some(core) = core else { continue };
            let faults = faults(&truth, &why(&core.name()));
            assert!(faults.is_empty(), "{scene}, kernel {by_kernel}: {faults:#?}");
        }
    }
}

/// A handler that allocates: the text says what it has interrupted.
#[test]
fn a_handler_that_allocates_is_named() {
    let fixture = Fixture::start(&Build::new("libc_locks.c").variant(Variant::Default).path(), &["arena"]).settled();
    let snapshot = why(&fixture.pid().to_string());
    let text = snapshot["findings"][0]["text"].as_str().unwrap();
    assert_eq!(snapshot["findings"][0]["kind"], "self_deadlock", "{text}");
    assert!(text.contains("the lock of malloc's main arena"), "{text}");
    assert!(text.ends_with("when the signal handler on_fault has returned"), "{text}");
}

#[test]
fn owners_of_streams_that_are_gone() {
    let program = Build::new("libc_locks.c").variant(Variant::Default).path();
    let fixture = Fixture::start(&program, &["ended"]).settled();
    let snapshot = why(&fixture.pid().to_string());
    assert_eq!(snapshot["findings"][0]["kind"], "owner_exited", "{:#}", snapshot["findings"]);
    let fixture = Fixture::start(&program, &["forked"]);
    let child = fixture.truth()["child"].to_string();
    let snapshot = why(&child);
    let finding = &snapshot["findings"][0];
    assert_eq!(finding["kind"], "owner_is_fork_parent", "{finding:#}");
    assert!(finding["text"].as_str().unwrap().contains(&fixture.truth()["holder"].to_string()), "{finding:#}");
}

/// A constructor waits for the end of a thread that wants to load a library.
#[test]
fn the_lock_of_the_loader() {
    let library = Build::new("calls_back.c").variant(Variant::Library).path();
    let program = Build::new("libc_locks.c").variant(Variant::Default).flags(&["-rdynamic"]).path();
    let fixture = Fixture::start(&program, &["loader", &library.to_string_lossy()]).settled();
    let (truth, snapshot) = (fixture.truth(), why(&fixture.pid().to_string()));
    let faults = faults(truth, &snapshot);
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn which_name_server_a_lookup_waits_for() {
    let fixture = Fixture::start(&Build::new("libc_locks.c").variant(Variant::Stripped).path(), &["lookup"]).settled();
    let snapshot = why(&fixture.pid().to_string());
    let text = snapshot["verdict"]["text"].as_str().unwrap();
    assert!(text.contains("gethostbyname waits for the answer of name server 127.0.0.1:"), "{text}");
    let holder = thread(&snapshot, fixture.truth()["holder"].as_i64().unwrap());
    assert_eq!(holder["waits_outside"]["kind"], "socket", "{holder:#}");
}

#[test]
fn threads_that_libc_has_made() {
    let fixture = Fixture::start(&Build::new("libc_locks.c").variant(Variant::Default).path(), &["helpers"]);
    // They may still be on their way to where they wait.
    eventually("libc's threads should be told as such", || {
        let groups = why(&fixture.pid().to_string())["groups"].to_string();
        groups.contains("libc's thread for timers (timer_create)")
            && groups.contains("a thread of libc for requests (aio_")
    });
}

//! The fixtures on other versions of glibc, live and as cores.

use std::path::Path;
use testkit::{
    Dumpable, Fixture, GlibcRoots, SyncView, Tool, Value, View, differences, eventually, finding_faults, sync_faults,
};

#[test]
fn every_version_agrees_with_its_threads() {
    let test = "every_version_agrees_with_its_threads";
    let Some(roots) = GlibcRoots::find(test) else { return };
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    let mut wrong = Vec::new();
    for (version, root) in roots.iter() {
        let build = |file: &str| roots.build(file, root);
        let mut faults = thread_faults(&tool, &Fixture::start(&build("threads_truth.c"), &[]).settled(), &version);
        if testkit::can_start_inside(testkit::part("programs inside another root")) {
            let inside = thread_faults(&tool, &roots.start_inside("threads_truth.c", root).settled(), &version);
            faults.extend(inside.into_iter().map(|fault| format!("inside the root: {fault}")));
        }
        let tsd = Fixture::start(&build("tsd.c"), &[]).settled();
        let keys = tool.tsd(tsd.pid())["keys"].as_array().unwrap().len();
        let told = tsd.truth()["keys"].as_object().unwrap().len();
        if keys != told {
            faults.push(format!("{told} keys are in use, {keys} were seen"));
        }
        let ended = Fixture::start(&build("main_exited.c"), &[]);
        let snapshot = tool.threads(ended.pid(), &[]);
        let main = &ended.truth()["main"];
        let leader = testkit::threads(&snapshot).iter().find(|thread| thread["lwp"] == main["lwp"]);
        if leader.is_none_or(|thread| thread["id"] != main["id"] || thread["state"] != "zombie") {
            faults.push(format!("main has exited: {main}, seen as {leader:?}"));
        }
        faults.extend(lifecycle_faults(&tool, &build("lifecycle.c")));
        faults.extend(core_faults(&tool, &build("threads_truth.c")));
        eprintln!("glibc {version}: {}", if faults.is_empty() { "agrees" } else { "differs" });
        wrong.extend(faults.into_iter().map(|fault| format!("{version}: {fault}")));
    }
    let (version, program) = roots.build_static("threads_truth.c");
    let mut faults = thread_faults(&tool, &Fixture::start(&program, &[]).settled(), &version);
    faults.extend(core_faults(&tool, &program));
    eprintln!("glibc {version}, static: {}", if faults.is_empty() { "agrees" } else { "differs" });
    wrong.extend(faults.into_iter().map(|fault| format!("{version}, static: {fault}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Objects of every kind and a deadlock: both layouts of condition variables are among the versions.
#[test]
fn every_version_agrees_with_its_locks() {
    let Some(roots) = GlibcRoots::find("every_version_agrees_with_its_locks") else { return };
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    let mut wrong = Vec::new();
    for (version, root) in roots.iter() {
        let mut faults = Vec::new();
        for file in ["sync_mutexes.c", "sync_rwlocks.c", "sync_kinds.c"] {
            let fixture = Fixture::start(&roots.build(file, root), &[]).settled();
            faults.extend(object_faults(&tool, &fixture, SyncView::PLAIN));
        }
        faults.extend(deadlock_faults(&tool, &roots.build("deadlocks.c", root)));
        eprintln!("glibc {version}: {}", if faults.is_empty() { "agrees" } else { "differs" });
        wrong.extend(faults.into_iter().map(|fault| format!("{version}: {fault}")));
    }
    let (version, program) = roots.build_static("sync_kinds.c");
    let view = SyncView { functions: false, ..SyncView::PLAIN };
    let faults = object_faults(&tool, &Fixture::start(&program, &[]).settled(), view);
    wrong.extend(faults.into_iter().map(|fault| format!("{version}, static: {fault}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A thread waits for a lock in a function of its program, also where threads are a library of their own.
#[test]
fn every_version_waits_in_the_program() {
    let Some(roots) = GlibcRoots::find("every_version_waits_in_the_program") else { return };
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    let mut wrong = Vec::new();
    for (version, root) in roots.iter() {
        let fixture = Fixture::start(&roots.build("profil_wait.c", root), &[]).settled();
        let profile = tool.run(&["profil", &fixture.pid().to_string(), "--wait", "-d", "100ms", "--json"]).json();
        let function = &profile["waits"][0]["function"];
        if function != "wants_left" {
            wrong.push(format!("{version}: the wait for a mutex is said to be in {function}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn object_faults(tool: &Tool, fixture: &Fixture, view: SyncView) -> Vec<String> {
    sync_faults(fixture.truth(), &tool.look("locks", &fixture.pid().to_string(), &["--all"]), view)
}

fn deadlock_faults(tool: &Tool, program: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    for scenario in ["abba", "joins", "chain_read"] {
        let fixture = Fixture::start(program, &[scenario]).settled();
        let answer = tool.run(&["why", &fixture.pid().to_string(), "--json"]);
        faults.extend(finding_faults(fixture.truth(), &answer.json()));
        if answer.code.map(i64::from) != fixture.truth()["exit"].as_i64() {
            faults.push(format!("{scenario}: exit status {:?}", answer.code));
        }
    }
    faults
}

/// Where what is seen differs from what the fixture tells of itself.
fn thread_faults(tool: &Tool, fixture: &Fixture, version: &str) -> Vec<String> {
    let mut faults = Vec::new();
    eventually("the spinner should get a CPU", || {
        let snapshot = tool.threads(fixture.pid(), &[]);
        faults = differences(fixture.truth(), &snapshot, View::PLAIN);
        let seen = snapshot["target"]["libc"]["version"].as_str().unwrap_or("none").to_owned();
        if !version.starts_with(&seen) {
            faults.push(format!("version seen as {seen}"));
        }
        faults.iter().all(|fault| !fault.starts_with("spinner: state is \"active\", seen as \"run\""))
    });
    faults
}

/// Without the files behind descriptors, which no core has.
fn without_files(value: &Value) -> Value {
    let mut value = value.clone();
    let descriptors = value.get_mut("descriptors").and_then(Value::as_array_mut);
    for descriptor in descriptors.into_iter().flatten() {
        descriptor["file"] = Value::Null;
    }
    value
}

/// What a core of the kernel keeps must be as it was alive.
fn core_faults(tool: &Tool, program: &Path) -> Vec<String> {
    let mut dumpable = Dumpable::start(program, &[]);
    dumpable.fixture = dumpable.fixture.settled();
    let live = tool.threads(dumpable.fixture.pid(), &[]);
    let Some(core) = dumpable.kernel_core(testkit::part("a core of the kernel")) else { return Vec::new() };
    let dead = tool.run(&["threads", &core.name(), "--json"]).json();
    let by_id = |of: &Value| -> Vec<(Value, Value)> {
        testkit::threads(of).iter().map(|thread| (thread["id"].clone(), thread.clone())).collect()
    };
    let (live, dead) = (by_id(&live), by_id(&dead));
    let mut faults = Vec::new();
    if live.len() != dead.len() {
        faults.push(format!("{} threads lived, {} are in the core", live.len(), dead.len()));
    }
    for (id, was) in live {
        let Some((_, is)) = dead.iter().find(|(other, _)| *other == id) else {
            faults.push(format!("{id} is not in the core"));
            continue;
        };
        let asleep = was["state"] == "sleep";
        let fields = ["lwp", "start", "detached", "flags", "signal_mask"].into_iter();
        for field in fields.chain(["state", "pc", "sp", "syscall"].into_iter().filter(|_| asleep)) {
            // An ended thread has no mask, alive or dead.
            let [was, is] = [&was, is].map(|thread| without_files(&thread[field]));
            if was != is {
                faults.push(format!("core: {field} of {id} was {was}, is {is}"));
            }
        }
        if was["stack"]["base"] != is["stack"]["base"] {
            faults.push(format!("core: the stack of {id} was {}, is {}", was["stack"], is["stack"]));
        }
    }
    faults
}

/// Who has ended, who is about to, who is detached: the part of the descriptor that changed most from
/// version to version.
fn lifecycle_faults(tool: &Tool, program: &Path) -> Vec<String> {
    let fixture = Fixture::start(program, &[]).settled();
    let snapshot = tool.threads(fixture.pid(), &[]);
    let mut faults = Vec::new();
    for (role, truth) in fixture.truth().as_object().unwrap() {
        let found: Vec<_> = testkit::threads(&snapshot).iter().filter(|thread| thread["id"] == truth["id"]).collect();
        let (state, exiting, detached) = match role.as_str() {
            "joined" | "detached_ended" => {
                if !found.is_empty() {
                    faults.push(format!("{role} is still seen: {}", found[0]));
                }
                continue;
            }
            "ended" | "ended_by_exit" => ("zombie", false, false),
            "exited" | "cancelled" => ("sleep", true, false),
            "detached" => ("sleep", false, true),
            _ => ("sleep", false, false),
        };
        let [thread] = found[..] else {
            faults.push(format!("{role} was seen {} times", found.len()));
            continue;
        };
        let seen = (&thread["state"], &thread["exiting"], &thread["detached"]);
        if seen != (&state.into(), &exiting.into(), &detached.into()) {
            faults.push(format!("{role} is {state}, exiting {exiting}, detached {detached}; seen as {seen:?}"));
        }
    }
    faults
}

//! Targets that live elsewhere: in namespaces of their own, below another root, without the file they
//! were started from.

use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{
    Answer, Build, Fixture, NOBODY, Public, SyncView, Tool, Value, Variant, View, as_user, differences, eventually,
    finding_faults, has_static_libc, have, is_root, part, sync_faults, threads, wait_asleep,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn truth_program(variant: Variant) -> PathBuf {
    Build::new("threads_truth.c").variant(variant).path()
}

/// Compares until the spinner has a CPU.
fn assert_agrees(truth: &Value, pid: i32, view: View) -> Value {
    wait_asleep(pid, pid);
    let (mut faults, mut snapshot) = (Vec::new(), Value::Null);
    eventually("the spinner should get a CPU", || {
        snapshot = tool().threads(pid, &[]);
        faults = differences(truth, &snapshot, view);
        faults.iter().all(|fault| !fault.starts_with("spinner: state is \"active\", seen as \"run\""))
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    snapshot
}

/// The only child of a process.
fn child_of(pid: i32) -> i32 {
    let mut found = None;
    eventually("the command should have a child", || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        found = children.split_whitespace().next().and_then(|word| word.parse().ok());
        found.is_some()
    });
    found.unwrap()
}

/// Whether namespaces can be had; says why not.
fn can_unshare(test: &str) -> bool {
    is_root(test, "to make namespaces") && testkit::can_unshare(test, &["--mount", "--pid", "--fork", "--mount-proc"])
}

#[test]
fn a_pid_namespace_of_its_own() {
    if !can_unshare("a_pid_namespace_of_its_own") {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(truth_program(Variant::Default));
    let fixture = Fixture::command(command);
    let pid = child_of(fixture.pid());
    let snapshot = assert_agrees(fixture.truth(), pid, View { symbols: true, inner: true });
    assert_eq!(snapshot["target"]["in_pid_namespace"], true);
    for thread in threads(&snapshot).iter().filter(|thread| !thread["lwp"].is_null()) {
        // The kernel's own translation.
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{}/status", thread["lwp"])).unwrap();
        let line = status.lines().find(|line| line.starts_with("NSpid:")).unwrap();
        let expected = format!("NSpid:\t{}\t{}", thread["lwp"], thread["inner_lwp"]);
        assert_eq!(line, expected);
    }
}

/// A truth in which threads have the numbers that we know them by.
fn translated(mut truth: Value, snapshot: &Value) -> Value {
    let outer = |inner: &mut Value| {
        if let Some(thread) = threads(snapshot).iter().find(|thread| thread["inner_lwp"] == *inner) {
            *inner = thread["lwp"].clone();
        }
    };
    for object in truth["objects"].as_array_mut().into_iter().flatten() {
        for list in ["holders", "waiters"] {
            object[list].as_array_mut().unwrap().iter_mut().for_each(|one| outer(&mut one["lwp"]));
        }
    }
    for finding in truth["findings"].as_array_mut().into_iter().flatten() {
        for list in ["threads", "behind", "may"] {
            finding[list].as_array_mut().unwrap().iter_mut().for_each(outer);
        }
    }
    truth
}

/// Locks record the numbers that the target knows its threads by.
#[test]
fn locks_in_a_pid_namespace() {
    if !can_unshare("locks_in_a_pid_namespace") {
        return;
    }
    for (file, args) in [
        ("sync_mutexes.c", &[][..]),
        ("sync_rwlocks.c", &[]),
        ("deadlocks.c", &["philosophers"]),
        ("deadlocks.c", &["joins"]),
    ] {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg(Build::new(file).variant(Variant::Default).path()).args(args);
        let fixture = Fixture::command(command);
        let pid = child_of(fixture.pid());
        wait_asleep(pid, pid);
        let answer = tool().run(&["why", &pid.to_string(), "--json"]);
        let snapshot = tool().look("locks", &pid.to_string(), &["--all"]);
        let truth = translated(fixture.truth().clone(), &snapshot);
        let faults = if truth["findings"].is_null() {
            sync_faults(&truth, &snapshot, SyncView::PLAIN)
        } else {
            assert_eq!(answer.code.map(i64::from), truth["exit"].as_i64(), "{}", answer.stderr);
            finding_faults(&truth, &answer.json())
        };
        assert!(faults.is_empty(), "{file}: {}", faults.join("\n"));
    }
}

#[test]
fn another_root_where_the_program_has_another_path() {
    let test = "another_root_where_the_program_has_another_path";
    if !can_unshare(test) || !have(test, "chroot") || !has_static_libc(test) {
        return;
    }
    let public = Public::new();
    std::fs::create_dir(public.path().join("proc")).unwrap();
    public.copy(&truth_program(Variant::Static), "program");
    let root = public.path().to_str().unwrap();
    // The fixture reads its own /proc: mount one for it.
    let script = format!("mount -t proc proc {root}/proc && exec chroot {root} /program");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script]);
    let fixture = Fixture::command(command);
    let pid = child_of(fixture.pid());
    assert_agrees(fixture.truth(), pid, View { symbols: true, inner: true });
}

/// Starts a copy of the program, does something to the file, and looks. The kernel still leads to the
/// very file that runs: root to every mapped one, others to the executable.
fn after(variant: Variant, change: impl FnOnce(&Path)) -> Value {
    let public = Public::new();
    let program = public.copy(&truth_program(variant), "program");
    let fixture = Fixture::start(&program, &[]);
    change(&program);
    assert_agrees(fixture.truth(), fixture.pid(), View { symbols: variant.has_symbols(), inner: false })
}

#[test]
fn an_executable_that_was_deleted() {
    for variant in [Variant::Default, Variant::NoPie, Variant::Stripped] {
        after(variant, |path| std::fs::remove_file(path).unwrap());
    }
    if has_static_libc(part("static programs")) {
        after(Variant::Static, |path| std::fs::remove_file(path).unwrap());
        after(Variant::StaticStripped, |path| std::fs::remove_file(path).unwrap());
    }
}

/// Without the privilege to open every mapped file, there is still the link to the executable.
#[test]
fn an_executable_that_was_deleted_as_its_own_user_sees_it() {
    let test = "an_executable_that_was_deleted_as_its_own_user_sees_it";
    if !is_root(test, "to become a user without privileges") || !have(test, "setpriv") {
        return;
    }
    let public = Public::new();
    let program = public.copy(&truth_program(Variant::Default), "program");
    let tglass = public.copy(env!("CARGO_BIN_EXE_tglass").as_ref(), "tglass");
    let fixture = Fixture::command(as_user(NOBODY, &program)).settled();
    std::fs::remove_file(&program).unwrap();
    let mut command = as_user(NOBODY, &tglass);
    command.args(["threads", &fixture.pid().to_string(), "--json"]);
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let mut faults = differences(fixture.truth(), &answer.json(), View::PLAIN);
    faults.retain(|fault| !fault.starts_with("spinner: state"));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A static program describes its libc in its own symbol table: that must be found in the deleted file.
#[test]
fn thread_specific_data_of_a_static_program_that_was_deleted() {
    if !has_static_libc("thread_specific_data_of_a_static_program_that_was_deleted") {
        return;
    }
    let public = Public::new();
    let program = public.copy(&Build::new("tsd.c").variant(Variant::Static).path(), "program");
    let fixture = Fixture::start(&program, &[]).settled();
    std::fs::remove_file(&program).unwrap();
    let keys = tool().tsd(fixture.pid())["keys"].as_array().unwrap().len();
    assert_eq!(keys, fixture.truth()["keys"].as_object().unwrap().len());
}

/// As an upgrade does it: another program stands under the same name.
#[test]
fn an_executable_that_was_replaced() {
    for variant in [Variant::Default, Variant::NoPie] {
        after(variant, |path| {
            let newer = path.with_extension("new");
            std::fs::copy(Build::new("pending.c").variant(Variant::Default).path(), &newer).unwrap();
            std::fs::rename(newer, path).unwrap();
        });
    }
    if has_static_libc(part("static programs")) {
        after(Variant::Static, |path| {
            let newer = path.with_extension("new");
            std::fs::copy(Build::new("pending.c").variant(Variant::Static).path(), &newer).unwrap();
            std::fs::rename(newer, path).unwrap();
        });
    }
}

/// Both at once, which is what a container after an upgrade looks like; and nobody may be misled by
/// a program of ours that happens to have the same path.
#[test]
fn a_namespace_whose_paths_mean_something_else_here() {
    if !can_unshare("a_namespace_whose_paths_mean_something_else_here") {
        return;
    }
    let public = Public::new();
    let dir = public.writable();
    let inside = public.copy(&truth_program(Variant::Default), "real");
    let path = dir.join("program");
    // Outside, the path is another program.
    std::fs::copy(Build::new("pending.c").variant(Variant::Default).path(), &path).unwrap();
    let script = format!(
        "mount -t tmpfs none {dir} && cp {inside} {path} && exec {path}",
        dir = dir.display(),
        inside = inside.display(),
        path = path.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script]);
    let fixture = Fixture::command(command);
    let pid = child_of(fixture.pid());
    assert_agrees(fixture.truth(), pid, View { symbols: true, inner: true });
}

/// Who is at the other end of a unix socket in a network namespace of its own.
#[test]
fn the_other_end_of_a_socket_in_a_container() {
    let test = "the_other_end_of_a_socket_in_a_container";
    if !can_unshare(test) || !testkit::can_unshare(test, &["--net"]) {
        return;
    }
    for (scene, kind) in [("slow", "socket"), ("mixed", "child")] {
        let mut command = Command::new("unshare");
        command.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg(Build::new("outside.c").variant(Variant::Default).path()).arg(scene);
        let fixture = Fixture::command(command);
        let pid = child_of(fixture.pid());
        let other = child_of(pid);
        // Inside they know each other by other numbers.
        assert_ne!(fixture.truth()["other"], other);
        let mut wait = Value::Null;
        eventually("the process at the other end should be named", || {
            let snapshot = tool().look("why", &pid.to_string(), &[]);
            let waits: Vec<Value> = threads(&snapshot).iter().map(|thread| thread["waits_outside"].clone()).collect();
            wait = waits.into_iter().find(|wait| wait["kind"] == kind).unwrap_or_default();
            wait["partners"].as_array().is_some_and(|it| it.len() == 1) && wait["partners"][0]["pid"] == other
        });
    }
}

//! C and C++ programs that use the library and check its answers themselves.

mod common;

use common::{Source, library_dir, run, tls_libraries};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Answer, Fixture, GlibcRoots, have, part};

fn client(file: &str, flags: &[&str]) -> PathBuf {
    Source::new(file).flags(flags).with_libc_db().build()
}

/// Runs a client, and passes on what it could not check.
fn checks(what: &str, program: &Path, args: &[&str]) {
    for line in run(program, args).lines() {
        if let Some(reason) = line.strip_prefix("SKIP ") {
            testkit::skip(testkit::part(what), reason);
        }
    }
}

#[test]
fn every_field_of_every_thread() {
    checks("every_field_of_every_thread", &client("info.c", &[]), &[]);
}

#[test]
fn thread_specific_data_and_thread_local_storage() {
    let (_, loaded) = tls_libraries();
    checks("storage", &client("storage.c", &[]), &[&loaded.display().to_string()]);
}

#[test]
fn registers_suspension_signals_and_events() {
    testkit::needs_ptrace!();
    checks("registers_suspension_signals_and_events", &client("control.c", &[]), &[]);
}

/// A core through our own handle tells what the live process told.
#[test]
fn a_core_beside_its_process() {
    let test = "a_core_beside_its_process";
    if !have(test, "gcore") {
        return;
    }
    let fixture = Fixture::new("threads_truth.c").settled();
    let dir = testkit::Public::new();
    let mut gcore = Command::new("gcore");
    gcore.arg("-o").arg(dir.path().join("core")).arg(fixture.pid().to_string());
    let answer = Answer::of(gcore);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let core = dir.path().join(format!("core.{}", fixture.pid()));
    checks(test, &client("core.c", &[]), &[&fixture.pid().to_string(), &core.display().to_string()]);
}

/// The C interface on programs of other glibc versions, and on a static one.
#[test]
fn every_glibc_version() {
    let Some(roots) = GlibcRoots::find("every_glibc_version") else { return };
    let example = Source::at(common::root().join("docs/examples/list_threads.c")).with_libc_db().build();
    let mut programs: Vec<_> =
        roots.iter().map(|(version, root)| (version, roots.build("threads_truth.c", root))).collect();
    programs.push(roots.build_static("threads_truth.c"));
    for (version, program) in programs {
        let fixture = Fixture::start(&program, &[]).settled();
        let text = run(&example, &[&fixture.pid().to_string()]);
        for thread in testkit::threads(fixture.truth()) {
            let (id, start) = (testkit::address(&thread["id"]), thread["start"].as_str().unwrap_or_default());
            let line = text.lines().find(|line| line.starts_with(&format!("thread {id:#x} ")));
            let line = line.unwrap_or_else(|| panic!("glibc {version}: no {id:#x}:\n{text}"));
            assert!(line.contains(&format!("start {start} ")), "glibc {version}: {start}: {line}");
        }
    }
}

#[test]
fn bad_arguments_dead_processes_and_corrupt_lists() {
    checks("bad", &client("bad.c", &[]), &[]);
}

#[test]
fn a_process_that_goes_on_without_main_or_as_another_program() {
    checks("goes_on", &client("goes_on.c", &[]), &[]);
}

#[test]
fn every_routine_of_the_client_may_fail() {
    testkit::needs_ptrace!();
    checks("service", &client("service.c", &[]), &[]);
}

/// With the optional routines as well: they nest and balance.
#[test]
fn every_optional_routine_may_fail() {
    testkit::needs_ptrace!();
    checks("service", &client("service.c", &["-DWITH_STOP", "-DWITH_XREGS"]), &[]);
}

#[test]
fn registers_that_the_client_does_not_have() {
    testkit::needs_ptrace!();
    checks("no_registers", &client("no_registers.c", &[]), &[]);
}

#[test]
fn facts_only_of_the_right_process() {
    testkit::needs_ptrace!();
    checks("identity", &client("identity.c", &[]), &[]);
}

/// A client may have routines that abort, for all that glibc's own library does not call to look.
#[test]
fn looks_call_nothing_but_what_a_look_needs() {
    let test = "looks_call_nothing_but_what_a_look_needs";
    let client = client("looking.c", &[]);
    let dir = testkit::Public::new();
    let dir = dir.path().display().to_string();
    let args = [dir.as_str()];
    checks(test, &client, if have(part(test), "gcore") { &args } else { &[] });
}

/// What the client's own stops change is not told as if the threads did it.
#[test]
fn clients_that_really_stop() {
    testkit::needs_ptrace!();
    for flags in [&[][..], &["-DBY_SIGNAL"]] {
        checks("clients_that_really_stop", &client("stopping.c", flags), &[]);
    }
}

#[test]
fn exceptions_pass_and_callbacks_may_call() {
    if have("exceptions_pass_and_callbacks_may_call", "c++") {
        let fixture = Fixture::new("tsd.c").settled();
        checks("throwing", &client("throwing.cc", &[]), &[&fixture.pid().to_string()]);
    }
}

/// A client that leaves callbacks by longjmp loses no memory and no lock of ours.
#[test]
fn jumps_out_of_callbacks_and_routines() {
    checks("jumping", &client("jumping.c", &[]), &[]);
}

/// A child of a client waits for nobody who is not there.
#[test]
fn a_child_of_the_client() {
    testkit::needs_ptrace!();
    checks("forked", &client("forked.c", &[]), &[]);
}

/// Threads that come and go without pause cost no look, and no lasting thread.
#[test]
fn a_process_in_motion() {
    checks("churn", &client("churn.c", &[]), &["60"]);
}

#[test]
fn many_clients_at_once() {
    checks("many", &client("many.c", &[]), &[]);
}

/// Every failure path once more, under a checker of memory. Takes a while, so only one of the programs.
#[test]
fn no_memory_errors() {
    if !have("no_memory_errors", "valgrind") {
        return;
    }
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=9", "--leak-check=no", "--vgdb=no"]);
    command.arg(client("bad.c", &[])).env("LD_LIBRARY_PATH", library_dir());
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{}\n{}", answer.text(), answer.stderr);
}

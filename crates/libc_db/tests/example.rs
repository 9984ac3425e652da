//! The example of the guide: shown as it is, short, and right.

mod common;

use common::{Source, library, root, run};
use testkit::{Build, Fixture, Variant, address, threads};

const EXAMPLE: &str = "docs/examples/list_threads.c";

#[test]
fn the_guide_shows_the_example() {
    let example = std::fs::read_to_string(root().join(EXAMPLE)).expect("the example");
    assert!(example.lines().count() < 40, "the example should stay short");
    let guide = std::fs::read_to_string(root().join("docs/c-library.md")).expect("the guide");
    let (_, shown) = guide.split_once("```c\n").expect("the guide has a C program");
    let (shown, _) = shown.split_once("```").expect("a block has an end");
    assert_eq!(shown, example, "docs/c-library.md shows another program than {EXAMPLE}");
}

#[test]
fn the_example_lists_every_thread() {
    let fixture = Fixture::new("threads_truth.c").settled();
    let program = Source::at(root().join(EXAMPLE)).with_libc_db().build();
    let text = run(&program, &[&fixture.pid().to_string()]);
    let told = threads(fixture.truth());
    assert_eq!(text.lines().count(), told.len(), "{text}");
    for thread in told {
        let id = format!("thread {:#x} ", address(&thread["id"]));
        let line = text.lines().find(|line| line.starts_with(&id)).unwrap_or_else(|| panic!("no {id}:\n{text}"));
        let state = thread["state"].as_str().unwrap_or_default();
        // Whether a busy thread has the CPU or waits for one changes from moment to moment.
        assert!(line.contains(state) || state == "active" && line.contains("run"), "{state}: {line}");
        if let Some(lwp) = thread["lwp"].as_i64() {
            assert!(line.contains(&format!("lwp {lwp} ")), "{lwp}: {line}");
        }
    }
}

/// Programs of every kind: at a fixed address, without symbols, with libc linked in.
#[test]
fn every_kind_of_program() {
    let example = Source::at(root().join(EXAMPLE)).with_libc_db().build();
    for variant in Variant::PROGRAMS {
        if variant.is_static() && !testkit::has_static_libc(testkit::part(&format!("{variant:?}"))) {
            continue;
        }
        let fixture = Fixture::start(&Build::new("threads_truth.c").variant(variant).path(), &[]).settled();
        let text = run(&example, &[&fixture.pid().to_string()]);
        assert_eq!(text.lines().count(), threads(fixture.truth()).len(), "{variant:?}:\n{text}");
        for thread in threads(fixture.truth()) {
            let (id, start) = (address(&thread["id"]), thread["start"].as_str().unwrap_or_default());
            let line = text.lines().find(|line| line.starts_with(&format!("thread {id:#x} ")));
            let line = line.unwrap_or_else(|| panic!("{variant:?}: no {id:#x}:\n{text}"));
            assert!(line.contains(&format!("start {start} ")), "{variant:?}: {start}: {line}");
        }
    }
}

#[test]
fn a_program_without_libc() {
    let fixture = Fixture::start(&Build::new("no_libc.c").flags(&["-nostdlib", "-static"]).path(), &[]);
    let example = Source::at(root().join(EXAMPLE)).with_libc_db().build();
    let mut command = std::process::Command::new(example);
    command.arg(fixture.pid().to_string());
    let answer = testkit::Answer::of(command);
    assert_eq!((answer.code, answer.text().as_str()), (Some(1), ""), "{}", answer.stderr);
}

#[test]
fn somebody_elses_process() {
    if !testkit::is_root("somebody_elses_process", "to become somebody else")
        || !testkit::have("somebody_elses_process", "setpriv")
    {
        return;
    }
    let fixture = Fixture::new("threads_truth.c");
    let dir = testkit::Public::new();
    let example = dir.copy(&Source::at(root().join(EXAMPLE)).with_libc_db().build(), "list_threads");
    dir.copy(&library(), "libc_db.so");
    let mut command = testkit::as_user(testkit::NOBODY, &example);
    command.arg(fixture.pid().to_string()).env("LD_LIBRARY_PATH", dir.path());
    let answer = testkit::Answer::of(command);
    assert_eq!((answer.code, answer.text().as_str()), (Some(1), ""), "{}", answer.stderr);
    assert!(answer.stderr.contains("cannot look into process"), "{}", answer.stderr);
}

#[test]
fn the_example_says_what_is_wrong() {
    let program = Source::at(root().join(EXAMPLE)).with_libc_db().build();
    let mut command = std::process::Command::new(program);
    command.arg("999999999");
    let answer = testkit::Answer::of(command);
    assert_eq!(answer.code, Some(1));
    assert!(answer.stderr.contains("no process 999999999"), "{}", answer.stderr);
}

/// Ids in a container's memory are not ours: the LWPs told must be those we see.
#[test]
fn a_pid_namespace_of_its_own() {
    let test = "libc_db::a_pid_namespace_of_its_own";
    const NAMESPACE: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    if !testkit::is_root(test, "to make namespaces") || !testkit::can_unshare(test, &NAMESPACE) {
        return;
    }
    let mut command = std::process::Command::new("unshare");
    command.args(NAMESPACE).arg(Build::new("threads_truth.c").path());
    let fixture = Fixture::command(command);
    let children = format!("/proc/{0}/task/{0}/children", fixture.pid());
    let mut pid = None;
    testkit::eventually("unshare should have a child", || {
        pid = std::fs::read_to_string(&children).unwrap_or_default().split_whitespace().next().map(str::to_owned);
        pid.is_some()
    });
    let pid = pid.expect("a child");
    let example = Source::at(root().join(EXAMPLE)).with_libc_db().build();
    let text = run(&example, &[&pid]);
    for thread in threads(fixture.truth()) {
        let id = format!("thread {:#x} ", address(&thread["id"]));
        let line = text.lines().find(|line| line.starts_with(&id)).unwrap_or_else(|| panic!("no {id}:\n{text}"));
        let Some(inner) = thread["lwp"].as_i64() else { continue };
        let outer = line.split_whitespace().nth(3).expect("an LWP");
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{outer}/status")).expect("a thread of ours");
        assert!(status.contains(&format!("NSpid:\t{outer}\t{inner}\n")), "{line}\n{status}");
    }
}

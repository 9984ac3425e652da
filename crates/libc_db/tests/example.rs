//! The example of the guide: shown as it is, short, and right.

mod common;

use common::{Source, root, run};
use testkit::{Fixture, address, threads};

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

#[test]
fn the_example_says_what_is_wrong() {
    let program = Source::at(root().join(EXAMPLE)).with_libc_db().build();
    let mut command = std::process::Command::new(program);
    command.arg("999999999");
    let answer = testkit::Answer::of(command);
    assert_eq!(answer.code, Some(1));
    assert!(answer.stderr.contains("no process 999999999"), "{}", answer.stderr);
}

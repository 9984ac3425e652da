//! Who holds the locks that goroutines wait for, and goroutines that wait for each other.

use serde_json::Value;
use std::collections::BTreeSet;
use testkit::{Fixture, Go, Tool, eventually};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// Optimised, as everybody builds, and as debuggers want it.
const OPTIMISED_OR_NOT: [&[&str]; 3] = [&[], &["-ldflags=-s -w"], &["-gcflags=all=-N -l"]];

/// Compares who holds locks with what the fixture printed; how many were found.
fn check_holders(truth: &Value, snapshot: &Value, what: &str) -> (usize, usize) {
    let (mut found, mut all) = (0, 0);
    for (name, lock) in truth.as_object().expect("an object") {
        let objects = snapshot["objects"].as_array().expect("objects");
        let object = objects.iter().find(|object| object["address"] == lock["address"]);
        let object = object.unwrap_or_else(|| panic!("{what}: {name} is not among {objects:#?}"));
        let holding = object["holding_tasks"].as_array().expect("tasks that hold it");
        let expected: BTreeSet<u64> =
            lock["holders"].as_array().expect("holders").iter().filter_map(Value::as_u64).collect();
        for holder in holding {
            let task = holder["task"].as_u64().expect("a number");
            assert!(expected.contains(&task), "{what}: {task} does not hold {name}: {object:#}");
            assert_eq!(holder["evidence"], "inferred", "{what}: {name}");
        }
        (found, all) = (found + holding.len(), all + expected.len());
    }
    (found, all)
}

#[test]
fn who_holds_locks() {
    for go in Go::all("who_holds_locks") {
        for flags in OPTIMISED_OR_NOT {
            let program = go.build("go_holders", flags);
            let fixture = Fixture::start(&program, &[]);
            let what = program.display().to_string();
            let snapshot = tool().run(&["locks", &fixture.pid().to_string(), "--json"]).json();
            let (found, all) = check_holders(fixture.truth(), &snapshot, &what);
            assert!(found * 100 >= all * 95, "{what}: {found} of {all} holders");
        }
    }
}

/// In each of these some goroutines wait for each other, and the main one goes on.
#[test]
fn goroutines_that_wait_for_each_other() {
    for go in Go::all("goroutines_that_wait_for_each_other") {
        for flags in OPTIMISED_OR_NOT {
            let program = go.build("go_stuck", flags);
            for (mode, kind, certainty) in [
                ("two", "task_deadlock", "likely"),
                ("three", "task_deadlock", "likely"),
                ("self", "task_deadlock", "likely"),
                ("reader", "task_deadlock", "likely"),
                ("group", "task_deadlock", "likely"),
                ("channel", "task_deadlock", "possible"),
                ("ever", "task_deadlock", "likely"),
                ("network", "long_chain", "likely"),
            ] {
                let fixture = Fixture::start(&program, &[mode]);
                let what = format!("{} {mode}", program.display());
                let expected = |id: &Value| fixture.truth()["stuck"].as_array().expect("numbers").contains(id);
                eventually(&format!("{what} should be told"), || {
                    let snapshot = tool().run(&["why", &fixture.pid().to_string(), "--json"]).json();
                    let findings = snapshot["findings"].as_array().expect("findings");
                    let hangs = findings.iter().filter(|it| it["kind"] == "task_deadlock").count();
                    assert!(hangs <= 1, "{what}: {findings:#?}");
                    findings.iter().any(|it| {
                        let tasks = it["tasks"].as_array().expect("tasks");
                        let is_all = tasks.len() == fixture.truth()["stuck"].as_array().map_or(0, Vec::len);
                        it["kind"] == kind && it["certainty"] == certainty && is_all && tasks.iter().all(expected)
                    })
                });
            }
        }
    }
}

//! tokio inside a library of another program: an extension of Python that somebody else has built, stripped.

use std::process::Command;
use testkit::{Fixture, Tool, Value, eventually};

#[test]
fn an_extension_of_python() {
    const TEST: &str = "an_extension_of_python";
    let Some(packages) = testkit::wheel("granian", "2.8.7", TEST) else { return };
    let mut python = Command::new("python3");
    python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tokio_server.py")).env("PYTHONPATH", packages);
    let fixture = Fixture::command(python);
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    let target = fixture.pid().to_string();
    let mut snapshot = Value::Null;
    eventually("each connection should be a task that waits", || {
        snapshot = tool.look("threads", &target, &[]);
        let tasks = snapshot["tasks"].as_array().expect("tasks");
        fixture.truth()["connections"] == tasks.len() && tasks.iter().all(|task| task["state"] == "sleep")
    });
    let runtime = &snapshot["task_runtimes"][0];
    assert_eq!(runtime["name"], "tokio", "{snapshot:#}");
    assert_eq!(runtime["version"], "1.54.1", "{runtime:#}");
    assert_eq!(snapshot["pause_us"], 0);
    assert!(snapshot["gaps"].to_string().contains("debug = 2"), "{snapshot:#}");
    // The threads of Python are still there, and nothing is wrong with any of them.
    testkit::thread(&snapshot, fixture.truth()["main"].as_i64().expect("an LWP"));
    let why = tool.look("why", &target, &[]);
    assert_eq!(why["findings"], serde_json::json!([]), "{why:#}");
}

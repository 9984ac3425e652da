//! `inject_hammer.c`: a program that does everything at once, into which the agent is put again and again.

use crate::{Build, Fixture, Value, Variant, eventually};
use std::path::PathBuf;

/// The library that it loads and unloads.
pub fn plugin() -> PathBuf {
    Build::new("inject_plugin.c").variant(Variant::Library).path()
}

/// The program, at work.
pub fn hammer() -> Fixture {
    let program = Build::new("inject_hammer.c").variant(Variant::Default).path();
    Fixture::start(&program, &[plugin().to_str().expect("a path in UTF-8")])
}

/// Waits until everything that the program does has gone on, and nothing was violated. `rare` may stand still.
pub fn goes_on(fixture: &mut Fixture, rare: &[&str]) {
    let before = progress(fixture);
    let mut now = before.clone();
    eventually("everything should go on", || {
        now = progress(fixture);
        let members = before.as_object().expect("an object");
        let may_stand = |name: &str| matches!(name, "violations" | "signals") || rare.contains(&name);
        members.iter().all(|(name, was)| may_stand(name) || now[name].as_u64() > was.as_u64())
    });
    assert_eq!(now["violations"], 0, "{now}");
}

fn progress(fixture: &mut Fixture) -> Value {
    serde_json::from_str(&fixture.ask("progress")).expect("the fixture writes JSON")
}

/// Threads of a process that are the agent's.
pub fn agent_threads(pid: i32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process").flatten();
    let names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim() == "threadglass").count()
}

//! Threads that nobody is left to wake, pools that starve, and programs that almost have these problems.

use std::path::Path;
use std::process::{Command, Stdio};
use testkit::{Answer, Build, Dumpable, Fixture, Tool, Value, Variant, eventually, have, part};

const SCENES: [&str; 7] = [
    "main_pauses",
    "main_sleeps_for_ever",
    "main_pauses_for_signals",
    "main_sleeps",
    "memory_is_shared",
    "barrier_is_short",
    "barrier_awaits_main",
];
const POOLS: [&str; 7] = ["all_wait", "single", "main_reads", "one_idle", "others_bring", "tasks_read", "clients"];

fn why(target: &str) -> Answer {
    Tool::new(env!("CARGO_BIN_EXE_tglass")).run(&["why", target, "--json"])
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map_or(&[], Vec::as_slice)
}

fn is_unwoken(finding: &Value) -> bool {
    ["nobody_left", "cond_without_signaller", "pool_starved"].iter().any(|kind| finding["kind"] == *kind)
}

fn starving(snapshot: &Value) -> Option<&Value> {
    list(snapshot, "findings").iter().find(|finding| finding["kind"] == "pool_starved")
}

#[test]
fn nobody_left_to_wake_threads() {
    let program = Build::new("unwoken.c").path();
    for scene in SCENES {
        let fixture = Fixture::start(&program, &[scene]).settled();
        let truth = fixture.truth();
        let answer = why(&fixture.pid().to_string());
        let (snapshot, sure) = (answer.json(), truth["certainty"].as_str().unwrap());
        let verdict = &snapshot["verdict"];
        assert_eq!(verdict["kind"], truth["verdict"], "{scene}: {verdict:#}");
        assert_eq!(verdict["certainty"], sure, "{scene}: {verdict:#}");
        let text = verdict["text"].as_str().unwrap();
        assert!(text.contains(truth["words"].as_str().unwrap()), "{scene}: {text}");
        let found = list(&snapshot, "findings").iter().find(|finding| is_unwoken(finding));
        let threads = found.map_or(0, |finding| list(finding, "threads").len());
        assert_eq!(truth["threads"], threads, "{scene}: {:#}", snapshot["findings"]);
        let hangs = verdict["kind"] == "nobody_left" && sure == "certain";
        assert_eq!(answer.code, Some(i32::from(hangs)), "{scene}: {verdict:#}");
    }
}

/// What differs between the truth of a pool and an answer.
fn check_pool(truth: &Value, snapshot: &Value, has_names: bool, context: &str) {
    let all = truth["starving"].as_u64().unwrap();
    let Some(found) = starving(snapshot) else {
        assert_eq!(all, 0, "{context}: {:#}", snapshot);
        let alarm = list(snapshot, "findings").iter().find(|it| is_unwoken(it) && it["certainty"] != "possible");
        assert!(alarm.is_none(), "{context}: {alarm:#?}");
        return;
    };
    assert_eq!(list(found, "threads").len() as u64, all, "{context}: {found:#}");
    let sure = match truth["certainty"].as_str().unwrap() {
        // What the threads of a pool are is inferred; only that nobody wakes them is certain.
        "certain" => "likely",
        // That tasks give the pool others is told by names.
        "likely" if !has_names => "possible",
        sure => sure,
    };
    assert_eq!(found["certainty"], sure, "{context}: {found:#}");
    assert!(found["text"].as_str().unwrap().contains("inside"), "{context}: {found:#}");
    let (verdict, is_core) = (&snapshot["verdict"], !snapshot["target"]["core"].is_null());
    if truth["certainty"] == "certain" {
        assert_eq!(verdict["kind"], "nobody_left", "{context}: {verdict:#}");
        assert_eq!(verdict["certainty"], if is_core { "likely" } else { "certain" }, "{context}: {verdict:#}");
        assert!(verdict["text"].as_str().unwrap().contains("run another task"), "{context}: {verdict:#}");
    }
}

fn pools(program: &Path, scenes: &[&str], has_names: bool) {
    for scene in scenes {
        let fixture = Fixture::start(program, &[scene]).settled();
        let snapshot = why(&fixture.pid().to_string()).json();
        check_pool(fixture.truth(), &snapshot, has_names, &format!("{scene} of {}", program.display()));
    }
}

#[test]
fn pools_that_starve() {
    for flags in [&["-O0"][..], &["-O2"]] {
        pools(&Build::new("pools.cc").variant(Variant::Default).flags(flags).path(), &POOLS, true);
    }
    pools(&Build::new("pools.cc").flags(&["-O2", "-s"]).path(), &POOLS, false);
    for level in ["-Copt-level=0", "-Copt-level=3"] {
        pools(&Build::new("pools_rust.rs").flags(&[level]).path(), &["all_wait", "main_reads"], true);
    }
}

#[test]
fn pools_in_cores() {
    let program = Build::new("pools.cc").path();
    for scene in ["all_wait", "main_reads", "one_idle", "clients"] {
        for by_kernel in [false, true] {
            let context = format!("unwoken::pools_in_cores {scene}, kernel: {by_kernel}");
            let mut dumpable = Dumpable::start(&program, &[scene]);
            dumpable.fixture = dumpable.fixture.settled();
            let truth = dumpable.fixture.truth().clone();
            let core = if by_kernel { dumpable.kernel_core(part(&context)) } else { dumpable.gcore(part(&context)) };
            let Some(core) = core else { continue };
            check_pool(&truth, &why(&core.name()).json(), true, &context);
        }
    }
}

/// Workers of Python that have nothing to do wait inside functions that the interpreter calls: that is no task.
#[test]
fn a_pool_of_python_has_nothing_to_do() {
    if !have("unwoken::a_pool_of_python_has_nothing_to_do", "python3") {
        return;
    }
    let script = "import concurrent.futures as f, sys\np = f.ThreadPoolExecutor(4)\n\
                  list(p.map(lambda i: __import__('time').sleep(.1), range(8)))\nsys.stdin.read()";
    let mut child = Command::new("python3").args(["-c", script]).stdin(Stdio::piped()).spawn().expect("python3 starts");
    let tasks = format!("/proc/{}/task", child.id());
    eventually("the pool should have its threads", || std::fs::read_dir(&tasks).is_ok_and(|all| all.count() == 5));
    let mut last = Value::Null;
    eventually("all should wait", || {
        last = why(&child.id().to_string()).json();
        list(&last, "threads").iter().all(|thread| thread["state"] == "sleep")
    });
    child.kill().and_then(|()| child.wait()).expect("it ends");
    let alarm = list(&last, "findings").iter().find(|finding| is_unwoken(finding));
    assert!(alarm.is_none(), "{alarm:#?}");
}

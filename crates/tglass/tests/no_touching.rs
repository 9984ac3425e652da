//! Looking never disturbs: our own system calls, traced, and the target's counters.

use std::collections::BTreeMap;
use testkit::{Answer, Build, Fixture, Tool, Variant, have, skip};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// Calls that act on another process or thread, or on what it shares with others.
const ACTING: [&str; 23] = [
    "ptrace",
    "kill",
    "tkill",
    "tgkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "pidfd_send_signal",
    "pidfd_getfd",
    "process_vm_writev",
    "process_madvise",
    "process_mrelease",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "setpriority",
    "ioprio_set",
    "move_pages",
    "migrate_pages",
    "setns",
    "perf_event_open",
    "unlink",
    "mknodat",
];

/// The calls of one run, without the thread number in front.
fn trace(name: &str, args: &[&str]) -> Option<Vec<String>> {
    if !have(name, "strace") {
        return None;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-s", "256", "-o"]).arg(file.path()).arg(env!("CARGO_BIN_EXE_tglass")).args(args);
    let answer = Answer::of(command);
    let text = std::fs::read_to_string(file.path()).unwrap();
    if answer.code != Some(0) && answer.stderr.contains("PTRACE_TRACEME") {
        skip(name, "strace may not trace here (ptrace is not permitted)");
        return None;
    }
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let calls = joined(&text);
    assert!(calls.iter().any(|call| call.starts_with("process_vm_readv(")), "the trace shows what was read: {text}");
    Some(calls)
}

/// The calls, each on one line: strace writes a call in two parts where another thread's line comes in between.
fn joined(text: &str) -> Vec<String> {
    const CUT: &str = " <unfinished ...>";
    let (mut calls, mut begun) = (Vec::new(), BTreeMap::new());
    for (thread, call) in text.lines().filter_map(|line| line.split_once(' ')) {
        let call = call.trim_start();
        if let Some(begin) = call.strip_suffix(CUT) {
            begun.insert(thread, begin);
        } else if let Some((_, rest)) = call.split_once(" resumed>").filter(|_| call.starts_with("<... ")) {
            calls.push(format!("{}{rest}", begun.remove(thread).unwrap_or_default()));
        } else {
            calls.push(call.to_owned());
        }
    }
    // Calls that the end of the process has cut off.
    calls.extend(begun.into_values().map(str::to_owned));
    calls
}

fn assert_only_looks(calls: &[String]) {
    for call in calls {
        let name = call.split('(').next().unwrap_or_default();
        assert!(!ACTING.contains(&name), "a looking command acts: {call}");
        let for_writing =
            ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"].iter().any(|flag| call.contains(flag));
        assert!(!(name.starts_with("open") && for_writing), "a looking command opens for writing: {call}");
        let writes = ["write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg"].contains(&name);
        let to_us = ["(1,", "(2,"].iter().any(|fd| call[name.len()..].starts_with(fd));
        assert!(!writes || to_us, "a looking command writes elsewhere than to its output: {call}");
        // Its own limits, not the target's.
        assert!(name != "prlimit64" || call.starts_with("prlimit64(0,"), "{call}");
    }
}

fn looks_without_acting(verb: &str, variant: Variant) {
    let test = format!("no_touching::{verb}");
    let fixture = Fixture::start(&Build::new("threads_truth.c").variant(variant).path(), &[]).settled();
    if let Some(calls) = trace(&test, &[verb, &fixture.pid().to_string()]) {
        assert_only_looks(&calls);
    }
}

#[test]
fn threads_only_looks() {
    looks_without_acting("threads", Variant::Default);
}

#[test]
fn stats_only_looks() {
    looks_without_acting("stats", Variant::Default);
}

#[test]
fn threads_of_a_stripped_program_only_looks() {
    looks_without_acting("threads", Variant::Stripped);
}

#[test]
fn stacks_only_look() {
    let fixture = Fixture::start(&Build::new("stack_waits.c").path(), &[]).settled();
    if let Some(calls) = trace("no_touching::stacks", &["threads", &fixture.pid().to_string(), "--stacks"]) {
        assert_only_looks(&calls);
    }
}

#[test]
fn tsd_only_looks() {
    looks_without_acting("tsd", Variant::Default);
}

#[test]
fn doctor_only_looks() {
    looks_without_acting("doctor", Variant::Default);
}

#[test]
fn a_dry_run_of_set_only_looks() {
    let fixture = Fixture::new("set_abba.c").settled();
    let a = fixture.truth()["a"].as_str().unwrap();
    if let Some(calls) = trace("no_touching::set", &["set", &fixture.pid().to_string(), a, "0"]) {
        assert_only_looks(&calls);
    }
}

/// It writes its own file, and puts its own thread on the CPUs whose clocks it reads; else it only looks.
#[test]
fn a_snapshot_only_looks() {
    let fixture = Fixture::start(&Build::new("lifecycle.c").variant(Variant::Default).path(), &[]).settled();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kept.tgsnap");
    let args = ["snap", &fixture.pid().to_string(), "-o", path.to_str().unwrap()];
    let before = switches(fixture.pid());
    assert_eq!(tool().run(&args).code, Some(0));
    assert_eq!(switches(fixture.pid()), before, "threads of the target have run");
    let Some(calls) = trace("no_touching::snap", &args) else { return };
    let opened = calls
        .iter()
        .find(|call| call.starts_with("openat(") && call.contains("kept.tgsnap") && call.contains("O_EXCL"));
    let number = opened.and_then(|call| call.rsplit(' ').next()).expect("its own file is opened");
    let own_write = format!("write({number},");
    let is_own = |call: &String| {
        call.contains("kept.tgsnap") || call.starts_with(&own_write) || call.starts_with("sched_setaffinity(0,")
    };
    assert_only_looks(&calls.into_iter().filter(|call| !is_own(call)).collect::<Vec<_>>());
}

#[test]
fn a_profile_of_waits_only_looks() {
    let fixture = Fixture::new("profil_wait.c").settled();
    let pid = fixture.pid().to_string();
    if let Some(calls) = trace("no_touching::profil_wait", &["profil", &pid, "--wait", "-d", "20ms"]) {
        assert_only_looks(&calls);
    }
    let before = switches(fixture.pid());
    assert_eq!(tool().run(&["profil", &pid, "--wait", "-d", "200ms"]).code, Some(0));
    assert_eq!(switches(fixture.pid()), before, "threads of the target have run");
}

/// A profile has the kernel's clock tick for the target, and does nothing else to it.
#[test]
fn a_profile_does_nothing_but_tick() {
    let test = "no_touching::profil";
    if tool().run(&["profil", "--", "true"]).stderr.contains("perf events are not permitted") {
        return skip(test, "perf events are not permitted");
    }
    let fixture = Fixture::start(&Build::new("profil_spin.c").path(), &[]);
    let Some(calls) = trace(test, &["profil", &fixture.pid().to_string(), "-d", "100ms", "-g"]) else { return };
    let (ticks, others): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.starts_with("perf_event_open("));
    assert!(!ticks.is_empty());
    assert_only_looks(&others);
}

/// The check above must be able to fail.
#[test]
fn a_suspension_is_seen_to_act() {
    let fixture = Fixture::new("pending.c").settled();
    let pid = fixture.pid().to_string();
    if !have("a_suspension_is_seen_to_act", "strace") {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-o"]).arg(file.path()).arg(env!("CARGO_BIN_EXE_tglass"));
    command.args(["suspend", &pid, &pid, "--for", "1ms"]);
    assert_eq!(Answer::of(command).code, Some(0));
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!(text.contains("ptrace(PTRACE_SEIZE"), "{text}");
}

/// How often each thread of a process went to sleep and was made to: equal before and after means
/// that nobody ran in between.
fn switches(pid: i32) -> BTreeMap<String, Vec<String>> {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .map(|task| {
            let task = task.unwrap();
            let status = std::fs::read_to_string(task.path().join("status")).unwrap();
            let counters = status.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned).collect();
            (task.file_name().to_string_lossy().into_owned(), counters)
        })
        .collect()
}

#[test]
fn sleeping_threads_are_never_woken() {
    let fixture = Fixture::start(&Build::new("lifecycle.c").variant(Variant::Default).path(), &[]).settled();
    let before = switches(fixture.pid());
    assert!(before.len() >= 7 && before.values().all(|counters| counters.len() == 2), "{before:?}");
    for verb in ["threads", "tsd", "doctor"] {
        for _ in 0..5 {
            assert_eq!(tool().run(&[verb, &fixture.pid().to_string()]).code, Some(0));
        }
    }
    assert_eq!(switches(fixture.pid()), before, "threads of the target have run");
}

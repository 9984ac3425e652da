//! What `contend` says of a program: who waits, since when, for whom.

use std::process::Stdio;
use testkit::{Build, Fixture, Tool, Value, Variant, agent_threads, any_of, ensure, eventually, serde_json};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn lock<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    report["locks"].as_array().expect("locks").iter().find(|lock| lock["name"] == name)
}

/// The report of a `contend` that looks some times before and after `act`.
fn contend_while(pid: i32, act: impl FnOnce()) -> Value {
    let child = tool()
        .command(&["contend", &pid.to_string(), "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tool starts");
    eventually("it should be at work", || agent_threads(pid) == 1);
    // It sleeps between looks.
    let looks = || std::fs::read_to_string(format!("/proc/{}/schedstat", child.id())).expect("it runs");
    let runs = || looks().split_whitespace().last().and_then(|runs| runs.parse::<u64>().ok()).expect("a number");
    let look_some_times = || {
        let before = runs();
        eventually("it should look some times", || runs() > before + 10);
    };
    look_some_times();
    act();
    look_some_times();
    testkit::signal(child.id() as i32, testkit::Signal::SIGINT);
    let output = child.wait_with_output().expect("its report");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// None of its waits begins or ends while it is looked at.
#[test]
fn a_deadlocked_program_waits_all_the_time() {
    testkit::needs_ptrace!();
    let fixture = Fixture::start(&Build::new("deadlocks.c").variant(Variant::Default).path(), &["abba"]).settled();
    let pid = fixture.pid().to_string();
    let report = tool().look("contend", &pid, &["-d", "500ms"]);
    let stuck: Vec<&Value> =
        report["locks"].as_array().expect("locks").iter().filter(|lock| lock["kind"] == "mutex").collect();
    assert_eq!(stuck.len(), 2, "{report:#}");
    for lock in stuck {
        assert_eq!((&lock["waits"], &lock["open_waits"]), (&0.into(), &1.into()), "{lock:#}");
        let (waited, seconds) = (lock["open_wait_ns"].as_f64().unwrap() / 1e9, report["seconds"].as_f64().unwrap());
        assert!(waited > 0.9 * seconds && waited < seconds + 0.5, "{waited} of {seconds}");
        let stack = &lock["waited_in"][0];
        let caller = &stack["frames"][stack["caller"].as_u64().expect("a number") as usize];
        assert!(caller["file"].as_str().is_some_and(|file| file.contains("fixtures")), "{stack:#}");
        assert!(caller["line"].as_u64().is_some(), "{stack:#}");
        // Its holder waits, too.
        assert_eq!(lock["holders_did"][0]["what"], "waiting", "{lock:#}");
    }
    assert!(report["run_seconds"].as_f64() >= report["seconds"].as_f64(), "{report:#}");
    let answer = tool().run(&["contend", &pid, "-d", "200ms"]);
    assert!(!answer.text().contains("no thread waited"), "{}", answer.text());
    assert!(
        answer.text().contains("+1 open") && answer.text().contains("waiting for the lock at"),
        "{}",
        answer.text()
    );
}

/// The waits had begun before the hooks were set, and end before they are removed.
#[test]
fn a_wait_that_was_open_at_the_beginning_counts_from_there() {
    testkit::needs_ptrace!();
    let mut fixture = Fixture::start(&Build::new("inject_counts.c").variant(Variant::Default).path(), &[]).settled();
    let pid = fixture.pid();
    let report = contend_while(pid, || assert_eq!(fixture.ask("release"), "done"));
    for (name, kind) in [("held", "mutex"), ("awaited", "cond"), ("waited_sem", "semaphore")] {
        let lock = lock(&report, name).unwrap_or_else(|| panic!("no {name}: {report:#}"));
        assert_eq!((&lock["kind"], &lock["open_waits"]), (&kind.into(), &1.into()), "{lock:#}");
        let (waited, seconds) = (lock["open_wait_ns"].as_f64().unwrap() / 1e9, report["seconds"].as_f64().unwrap());
        assert!(waited > 0.0 && waited <= seconds + 0.1, "{waited} of {seconds}");
    }
}

/// The agent counts some of them as they begin. And while they go on, frames of the agent are none of the program's.
#[test]
fn waits_that_begin_and_do_not_end() {
    let mut fixture = Fixture::start(&Build::new("contend_open.c").variant(Variant::Default).path(), &[]);
    let pid = fixture.pid();
    let report = contend_while(pid, || assert_eq!(fixture.ask("wait"), "done"));
    let kinds =
        [("held", "mutex"), ("written", "rwlock"), ("awaited", "cond"), ("empty", "semaphore"), ("lonely", "barrier")];
    for (name, kind) in kinds {
        let lock = lock(&report, name).unwrap_or_else(|| panic!("no {name}: {report:#}"));
        assert_eq!(lock["kind"], kind, "{lock:#}");
        assert_eq!((&lock["waits"], &lock["open_waits"]), (&0.into(), &1.into()), "{lock:#}");
    }
    let pid = pid.to_string();
    let is_agents = |frame: &Value| frame["module"].as_str().is_some_and(|module| module.contains("threadglass-agent"));
    let frames = |of: &Value| of["frames"].as_array().cloned().unwrap_or_default();
    let threads = tool().look("threads", &pid, &["--stacks"]);
    let waiting = testkit::threads(&threads).iter().flat_map(frames).filter(|frame| is_agents(frame)).count();
    assert!(waiting >= kinds.len(), "{threads:#}");
    let why = tool().look("why", &pid, &[]);
    let groups = why["groups"].as_array().expect("groups");
    let own: Vec<Value> = groups.iter().flat_map(frames).collect();
    assert!(own.iter().any(|frame| frame["function"] == "wait_for_one"), "{groups:#?}");
    assert!(!own.iter().any(is_agents), "{groups:#?}");
    let text = tool().run(&["why", &pid]).text();
    assert!(text.contains("wait_for_one") && !text.contains("threadglass_agent::"), "{text}");
}

/// The function that called the lock function is a wrapper: who called that matters, with the line. Waits of microseconds are
/// over before any look could see them; the agent takes their stacks.
#[test]
fn callers_of_a_wrapper_are_told_with_their_lines() {
    testkit::needs_ptrace!();
    // With frame pointers and without.
    for (flags, args) in [(&["-O0"][..], &["short"][..]), (&["-O2"], &["short"]), (&["-O2"], &["long"])] {
        let build = Build::new("contend_callers.c").variant(Variant::Default).flags(flags);
        let fixture = Fixture::start(&build.path(), args);
        let pid = fixture.pid().to_string();
        // Who waits first is a matter of chance.
        any_of(40, || {
            let report = tool().look("contend", &pid, &["-d", "300ms"]);
            let rows = lock(&report, "rows").ok_or_else(|| format!("no waits: {report:#}"))?;
            ensure(rows["waits"] != 0, || format!("no wait has ended: {rows:#}"))?;
            assert_eq!(rows["sites"][0][0], "rw_pr_wrlock", "{rows:#}");
            let stacks = rows["waited_in"].as_array().expect("stacks");
            // The very last wait may have ended after the stacks were read.
            ensure(stacks[0]["frames"].as_array().is_some_and(|frames| frames.len() > 1), || format!("{rows:#}"))?;
            for stack in stacks {
                assert_eq!(stack["frames"][0]["function"], "rw_pr_wrlock", "{stack:#}");
                let caller = &stack["frames"][stack["caller"].as_u64().expect("a number") as usize];
                assert!(["update_row", "drop_row"].map(Value::from).contains(&caller["function"]), "{stack:#}");
                assert!(caller["line"].as_u64().is_some(), "{stack:#}");
                assert!(caller["file"].as_str().is_some_and(|file| file.ends_with("contend_callers.c")), "{stack:#}");
                assert_eq!(stack["frames"][2]["function"], "work", "{stack:#}");
            }
            let of = |name: &str| stacks.iter().any(|stack| stack["frames"][1]["function"] == name);
            ensure(of("update_row") && of("drop_row"), || format!("{stacks:#?}"))?;
            let told = |ns: &Value| ns.as_f64().expect("a number");
            let sum: f64 = stacks.iter().map(|stack| told(&stack["time_ns"])).sum();
            let waited = told(&rows["wait_ns"]) + told(&rows["open_wait_ns"]);
            ensure(sum > 0.0 && sum <= 1.05 * waited, || format!("{sum} of {waited}: {rows:#}"))?;
            let text = tool().run(&["contend", &pid, "-d", "200ms"]).text();
            let is_told = text.contains("_row contend_callers.c:") && text.contains(" by rw_pr_wrlock");
            ensure(is_told, || text.clone())
        });
    }
}

#[test]
fn what_the_holder_does_is_told() {
    testkit::needs_ptrace!();
    let fixture = Fixture::start(&Build::new("contend_callers.c").variant(Variant::Default).path(), &["long"]);
    let pid = fixture.pid().to_string();
    any_of(10, || {
        let report = tool().look("contend", &pid, &["-d", "500ms"]);
        let rows = lock(&report, "rows").ok_or_else(|| format!("no waits: {report:#}"))?;
        let did = rows["holders_did"].as_array().expect("a list");
        let asleep = did.iter().find(|did| did["what"] == "asleep").ok_or_else(|| format!("{did:?}"))?;
        ensure(asleep["call"] == "clock_nanosleep", || format!("{did:?}"))?;
        let text = tool().run(&["contend", &pid, "-d", "500ms"]).text();
        ensure(text.contains("asleep in clock_nanosleep"), || text.clone())
    });
}

#[test]
fn a_command_keeps_its_status() {
    for (script, code) in [("sleep 0.3; exit 7", 7), ("sleep 0.3", 0), ("sleep 0.3; kill -9 $$", 137), ("exit 3", 3)] {
        let answer = tool().run(&["contend", "--json", "--", "sh", "-c", script]);
        assert_eq!(answer.code, Some(code), "{script}: {answer:?}");
    }
    // It could not be started.
    assert_eq!(tool().run(&["contend", "--", "/nonexistent"]).code, Some(2));
}

#[test]
fn the_pause_of_a_tracked_look_is_that_of_one_thread() {
    testkit::needs_ptrace!();
    let fixture = testkit::hammer();
    let text = tool().run(&["locks", &fixture.pid().to_string(), "--track", "10ms"]).text();
    let number = |word: &str| {
        let (before, _) = text.split_once(word)?;
        before.rsplit(['(', ',', ' ']).find(|word| !word.is_empty())?.parse::<u64>().ok()
    };
    let (all, longest) = (number(" us pause in all"), number(" us at most for one"));
    assert!(all.is_some_and(|us| us > 0) && all == longest, "{all:?} {longest:?}: {text}");
}

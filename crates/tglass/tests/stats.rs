//! `tglass stats` against programs of which it is known what their threads do.
//!
//! No check depends on how busy the machine is: who spins runs or waits for a CPU, always, and who sleeps does
//! neither.

use testkit::{
    Answer, Build, Dumpable, Fixture, Signal, Tool, Value, any_of, ensure, eventually, part, signal, thread, threads,
};

use std::process::Stdio;

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn fixture(spinners: u32, cpus: u32, brief: u32, turns: u32) -> Fixture {
    let args = [spinners, cpus, brief, turns].map(|count| count.to_string());
    Fixture::start(&Build::new("stats.c").path(), &args.each_ref().map(String::as_str))
}

/// Three intervals, one after the other, in each of which `check` finds nothing wrong; the last of them.
///
/// A busy machine takes the CPU from us between the readings at the ends of an interval, for a time that does not depend on
/// its length. So of five tries each has intervals twice as long as the one before; a mistake does not get smaller by that.
fn right_three_times(fixture: &Fixture, check: impl Fn(&Value) -> Result<(), String>) -> Value {
    let mut ms = 250;
    any_of(5, || {
        ms *= 2;
        let interval = format!("{ms}ms");
        let answer = tool().run(&["stats", &fixture.pid().to_string(), "--json", "-i", &interval, "-n", "3"]);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        let all: Vec<Value> =
            answer.text().lines().map(|line| testkit::serde_json::from_str(line).expect("a document")).collect();
        assert_eq!(all.len(), 3, "{}", answer.text());
        for stats in &all {
            sound(stats);
            check(stats).map_err(|fault| format!("{fault} in {interval}: {stats:#}"))?;
        }
        Ok(all[2].clone())
    })
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// What must hold of every answer, whatever the process does.
fn sound(stats: &Value) {
    let process = &stats["process"];
    let [running, runnable, lwps, idle] =
        ["a_concurrency", "nrunnable", "nlwps", "nidle"].map(|name| number(&process[name]));
    assert!(0.0 <= running && running <= runnable && runnable <= lwps, "{process:#}");
    assert!((lwps - runnable - idle).abs() < 0.001, "{process:#}");
    for thread in threads(stats) {
        let parts = ["cpu", "runqueue", "lock", "sleep"].map(|name| number(&thread[name]));
        assert!(parts.iter().all(|part| (0.0..=100.01).contains(part)), "{thread:#}");
        assert!(parts.iter().sum::<f64>() < 100.1, "{thread:#}");
    }
}

#[test]
fn what_each_thread_does_with_its_time() {
    let fixture = fixture(3, 1, 0, 0);
    let truth = fixture.truth().clone();
    let lwp = |name: &str| truth[name].as_i64().unwrap();
    let last = right_three_times(&fixture, |stats| {
        let spinners: Vec<_> = threads(stats).iter().filter(|thread| thread["name"] == "spin").collect();
        assert_eq!(spinners.len(), 3, "{stats:#}");
        let busy: f64 = spinners.iter().map(|thread| number(&thread["cpu"]) + number(&thread["runqueue"])).sum();
        let part = |who: &str, what: &str| number(&thread(stats, lwp(who))[what]);
        ensure((busy - 300.0).abs() < 9.0, || format!("who spins is busy for {busy}"))?;
        let runnable = number(&stats["process"]["nrunnable"]);
        ensure((runnable - 3.0).abs() < 0.09, || format!("{runnable} are runnable"))?;
        for (who, what) in [("mutex", "lock"), ("sem", "sleep"), ("cond", "sleep")] {
            ensure(part(who, what) > 97.0, || format!("{what} of {who} is {}", part(who, what)))?;
        }
        ensure(part("cond", "lock") < 1.0, || format!("lock of cond is {}", part("cond", "lock")))?;
        // All of them share one CPU.
        let running = number(&stats["process"]["a_concurrency"]);
        ensure(running < 1.03, || format!("{running} run at a time"))
    });
    let process = &last["process"];
    assert_eq!((&process["nthreads"], &process["r_concurrency"]), (&Value::from(7), &Value::from(7)), "{process:#}");
    assert_eq!(process["nlwps"], 7.0, "{process:#}");
    assert_eq!((&last["pause_us"], &last["lock_evidence"]), (&Value::from(0), &Value::from("inferred")));
    assert!(number(&last["interval_ms"]) >= 500.0 && number(&last["samples"]) >= 1.0, "{last:#}");
}

/// Of four threads that sleep with a mutex in turns, three wait for it at any time.
#[test]
fn a_lock_that_changes_hands() {
    let fixture = fixture(0, 1, 0, 4);
    right_three_times(&fixture, |stats| {
        let turns: Vec<_> = threads(stats).iter().filter(|thread| thread["name"] == "turns").collect();
        assert_eq!(turns.len(), 4, "{stats:#}");
        let sum = |what: &str| turns.iter().map(|thread| number(&thread[what])).sum::<f64>();
        ensure((270.0..315.0).contains(&sum("lock")), || format!("lock is {}", sum("lock")))?;
        // The one that has it sleeps, or waits for a CPU to go on.
        let others = sum("sleep") + sum("runqueue") + sum("cpu");
        ensure((85.0..130.0).contains(&others), || format!("the rest is {others}"))?;
        ensure(sum("sleep") > 10.0, || format!("sleep is {}", sum("sleep")))
    });
}

/// CPU time of the threads that are not there any more, by the clock of the process.
#[test]
fn threads_that_come_and_go() {
    let fixture = fixture(0, 1, 2, 0);
    right_three_times(&fixture, |stats| {
        let [count, ended, running] =
            ["ended", "ended_cpu", "a_concurrency"].map(|name| number(&stats["process"][name]));
        ensure(count > 0.0 && ended > 1.0, || format!("{count} have ended, with {ended} of a CPU"))?;
        // The makers do next to nothing: what ran was brief.
        let listed: f64 = threads(stats).iter().map(|thread| number(&thread["cpu"])).sum();
        ensure((running * 100.0 - listed - ended).abs() < 5.0, || format!("{running} is not {listed} and {ended}"))
    });
}

#[test]
fn intervals_and_their_end() {
    let mut fixture = fixture(1, 1, 0, 0);
    let pid = fixture.pid().to_string();
    let answer = tool().run(&["stats", &pid, "-i", "50ms", "-n", "3", "--json"]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let text = answer.text();
    assert_eq!(text.lines().count(), 3, "one line for each");
    for line in text.lines() {
        sound(&testkit::serde_json::from_str(line).expect("a document"));
    }
    let text = tool().run(&["stats", &pid, "-i", "50ms", "-n", "2"]).text();
    assert_eq!(text.matches("on average").count(), 2, "{text}");
    assert!(text.contains("(concurrency asked for: 7)") && text.contains("(0 us pause"), "{text}");

    // Without an end, until Ctrl-C; what was seen until then is shown.
    let mut command = tool().command(&["stats", &pid, "-i", "1000s", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool starts");
    let tool_pid = i32::try_from(child.id()).unwrap();
    eventually("it waits for us", || catches_interrupts(tool_pid) && task_sleeps_in_poll(tool_pid));
    signal(tool_pid, Signal::SIGINT);
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let last: Value = testkit::serde_json::from_slice(&output.stdout).expect("a document");
    sound(&last);
    assert!(number(&last["interval_ms"]) < 999_000.0);

    // The process ends meanwhile.
    let child = tool().command(&["stats", &pid, "-n", "0", "-i", "1000s"]).stdout(Stdio::piped()).spawn().unwrap();
    let tool_pid = i32::try_from(child.id()).unwrap();
    eventually("it waits for us", || task_sleeps_in_poll(tool_pid));
    fixture.kill();
    let output = child.wait_with_output().expect("its end");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("the process ended"), "{text}");
}

/// Whether SIGINT is blocked, which is how it is waited for.
fn catches_interrupts(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 2 != 0)
}

fn task_sleeps_in_poll(pid: i32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    // poll or ppoll
    call.starts_with("7 ") || call.starts_with("271 ")
}

#[test]
fn only_of_live_processes() {
    let refused = |answer: &Answer, words: &str| {
        assert!(answer.assert_refused().contains(words), "{}", answer.stderr);
    };
    refused(&tool().run(&["stats", "4194305"]), "no process 4194305");
    refused(&tool().run(&["stats", "0"]), "not a valid PID");
    refused(&tool().run(&["stats", "1", "-i", "0s"]), "not between 10ms and 1 day");
    refused(&tool().run(&["stats", "/etc/passwd"]), "stats needs a running process");
    let process = Dumpable::start(&Build::new("stats.c").path(), &["1", "1", "0", "0"]);
    if let Some(core) = process.gcore(part("a core")) {
        refused(&tool().run(&["stats", &core.name()]), "stats needs a running process");
    }
}

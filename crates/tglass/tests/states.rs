//! Stopped, suspended, traced and crowded threads.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use testkit::{Build, Fixture, Signal, Tool, Value, Variant, eventually, signal, thread, threads};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn state(snapshot: &Value, lwp: &Value) -> String {
    thread(snapshot, lwp.as_i64().unwrap())["state"].as_str().unwrap().to_owned()
}

fn is_suspended(snapshot: &Value, lwp: &Value) -> bool {
    thread(snapshot, lwp.as_i64().unwrap())["db_suspended"].as_bool().unwrap()
}

/// How far the threads of `progress.c` have counted.
fn count(fixture: &mut Fixture, role: &str) -> u64 {
    let counts: Value = testkit::serde_json::from_str(&fixture.ask("?")).unwrap();
    counts[role].as_u64().unwrap()
}

fn wait_for_progress(fixture: &mut Fixture, role: &str) {
    let before = count(fixture, role);
    eventually(&format!("{role} should go on"), || count(fixture, role) > before + 1);
}

#[test]
fn a_process_stopped_by_job_control() {
    let fixture = Fixture::new("threads_truth.c").settled();
    signal(fixture.pid(), Signal::SIGSTOP);
    eventually("every thread should stop", || {
        let dir = std::fs::read_dir(format!("/proc/{}/task", fixture.pid())).unwrap();
        dir.flatten().all(|task| {
            let lwp = task.file_name().to_string_lossy().parse().unwrap();
            testkit::task_state(fixture.pid(), lwp).is_some_and(|task| task.letter == 'T')
        })
    });
    let snapshot = tool().threads(fixture.pid(), &[]);
    for truth in threads(fixture.truth()).iter().filter(|truth| !truth["lwp"].is_null()) {
        let expected = if truth["state"] == "sleep" { "stopped_asleep" } else { "stopped" };
        assert_eq!(state(&snapshot, &truth["lwp"]), expected, "{}", truth["role"]);
        assert!(!is_suspended(&snapshot, &truth["lwp"]), "nobody suspended it: {}", truth["role"]);
        let seen = thread(&snapshot, truth["lwp"].as_i64().unwrap());
        assert!(!seen["pc"].is_null() && !seen["sp"].is_null(), "a stopped thread has registers: {seen:#}");
        assert_eq!(seen["stop"]["kind"], "job_control", "{seen:#}");
        assert!(seen["stop"]["by"].is_null() && seen["stop"]["pid"].is_null(), "{seen:#}");
    }
    signal(fixture.pid(), Signal::SIGCONT);
    eventually("every sleeper should sleep again", || {
        let snapshot = tool().threads(fixture.pid(), &[]);
        let asleep = threads(&snapshot).iter().filter(|thread| thread["state"] == "sleep").count();
        asleep == threads(fixture.truth()).iter().filter(|truth| truth["state"] == "sleep").count()
    });
}

/// A running `tglass suspend`.
struct Suspend {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    first: String,
}

impl Suspend {
    fn start(pid: i32, lwp: &Value, options: &[&str]) -> Self {
        let (pid, lwp) = (pid.to_string(), lwp.to_string());
        let mut command = tool().command(&["suspend", &pid, &lwp]);
        let mut child = command.args(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("it says that it suspended").unwrap();
        Self { child, lines, first }
    }

    /// Waits for its end; gives the exit status and what else it said.
    fn finish(mut self) -> (Option<i32>, Vec<String>) {
        let said = self.lines.by_ref().map_while(Result::ok).collect();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Suspend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Suspends one thread, sees that it alone stands still, ends the suspension with `end`, and sees
/// that it goes on.
fn stands_still_alone(role: &str, expected: &[&str], end: impl FnOnce(&mut Suspend)) {
    let mut fixture = Fixture::new("progress.c");
    let lwp = fixture.truth()[role].clone();
    let mut suspend = Suspend::start(fixture.pid(), &lwp, &[]);
    assert!(suspend.first.contains(&lwp.to_string()), "{}", suspend.first);

    let snapshot = tool().threads(fixture.pid(), &[]);
    let now = state(&snapshot, &lwp);
    assert!(expected.contains(&now.as_str()), "{role} is {now}");
    for thread in threads(&snapshot) {
        let held = thread["lwp"] == lwp;
        assert_eq!(thread["db_suspended"], held, "{thread:#}");
        let word = thread["state"].as_str().unwrap();
        assert_eq!(word.starts_with("stopped"), held, "{thread:#}");
        assert_eq!(thread["stop"].is_object(), held, "{thread:#}");
        if held {
            assert_eq!(
                (&thread["stop"]["kind"], &thread["stop"]["by"]),
                (&"suspended".into(), &"tglass-suspend".into())
            );
            assert_eq!(thread["stop"]["pid"], suspend.child.id(), "{thread:#}");
        }
    }
    let before = count(&mut fixture, role);
    for other in ["other_spinner", "other_sleeper"] {
        wait_for_progress(&mut fixture, other);
    }
    assert_eq!(count(&mut fixture, role), before, "the suspended thread runs");

    end(&mut suspend);
    wait_for_progress(&mut fixture, role);
    assert!(!is_suspended(&tool().threads(fixture.pid(), &[]), &lwp));
}

#[test]
fn a_running_thread_is_suspended_until_ctrl_c() {
    testkit::needs_ptrace!();
    stands_still_alone("spinner", &["stopped"], |suspend| {
        signal(suspend.child.id() as i32, Signal::SIGINT);
        assert_eq!(suspend.child.wait().unwrap().code(), Some(0));
    });
}

#[test]
fn a_sleeping_thread_is_suspended_until_sigterm() {
    testkit::needs_ptrace!();
    // It sleeps nearly always, but may be caught between two naps.
    stands_still_alone("sleeper", &["stopped_asleep", "stopped"], |suspend| {
        signal(suspend.child.id() as i32, Signal::SIGTERM);
        assert_eq!(suspend.child.wait().unwrap().code(), Some(0));
    });
}

#[test]
fn a_thread_goes_on_when_the_suspender_is_killed() {
    testkit::needs_ptrace!();
    stands_still_alone("spinner", &["stopped"], |suspend| {
        suspend.child.kill().unwrap();
        suspend.child.wait().unwrap();
    });
}

#[test]
fn a_long_sleep_is_suspended_and_goes_on() {
    testkit::needs_ptrace!();
    let fixture = Fixture::new("threads_truth.c").settled();
    for role in ["napper", "futex", "reader", "poller"] {
        let truth = threads(fixture.truth()).iter().find(|truth| truth["role"] == role).unwrap();
        let suspend = Suspend::start(fixture.pid(), &truth["lwp"], &["--for", "10m"]);
        let snapshot = tool().threads(fixture.pid(), &[]);
        assert_eq!(state(&snapshot, &truth["lwp"]), "stopped_asleep", "{role}");
        assert!(is_suspended(&snapshot, &truth["lwp"]), "{role}");
        drop(suspend);
        eventually(&format!("{role} should sleep again"), || {
            state(&tool().threads(fixture.pid(), &[]), &truth["lwp"]) == "sleep"
        });
    }
}

#[test]
fn a_suspension_ends_by_itself_after_its_time() {
    testkit::needs_ptrace!();
    let mut fixture = Fixture::new("progress.c");
    let suspend = Suspend::start(fixture.pid(), &fixture.truth()["spinner"], &["--for", "50ms"]);
    let (code, said) = suspend.finish();
    assert_eq!(code, Some(0), "{said:?}");
    wait_for_progress(&mut fixture, "spinner");
}

#[test]
fn the_end_of_the_process_ends_the_suspension() {
    testkit::needs_ptrace!();
    let mut fixture = Fixture::new("progress.c");
    let suspend = Suspend::start(fixture.pid(), &fixture.truth()["spinner"], &[]);
    fixture.kill();
    let (code, said) = suspend.finish();
    assert_eq!(code, Some(0), "{said:?}");
    assert!(said.iter().any(|line| line.contains("ended")), "{said:?}");
}

#[test]
fn the_main_thread_can_be_suspended() {
    testkit::needs_ptrace!();
    let fixture = Fixture::new("pending.c").settled();
    let suspend = Suspend::start(fixture.pid(), &fixture.pid().into(), &[]);
    let snapshot = tool().threads(fixture.pid(), &[]);
    assert_eq!(state(&snapshot, &fixture.pid().into()), "stopped_asleep");
    drop(suspend);
    eventually("main should sleep again", || {
        state(&tool().threads(fixture.pid(), &[]), &fixture.pid().into()) == "sleep"
    });
}

#[test]
fn nobody_is_suspended_twice() {
    testkit::needs_ptrace!();
    let fixture = Fixture::new("progress.c");
    let lwp = fixture.truth()["spinner"].clone();
    let suspend = Suspend::start(fixture.pid(), &lwp, &[]);
    let answer = tool().run(&["suspend", &fixture.pid().to_string(), &lwp.to_string()]);
    let line = answer.assert_refused();
    assert!(line.contains("traced") && line.contains(&suspend.child.id().to_string()), "{line}");
}

/// A debugger's stop is not the program's: what the threads did when it came is what counts.
#[test]
fn a_debuggers_stop_is_looked_through() {
    testkit::needs_ptrace!();
    let fixture = Fixture::new("threads_truth.c").settled();
    let mut command = Command::new(Build::new("tracer.c").variant(Variant::Default).path());
    command.arg(fixture.pid().to_string());
    let tracer = Fixture::command(command);
    let living = threads(fixture.truth()).iter().filter(|truth| !truth["lwp"].is_null()).count();
    assert_eq!(tracer.truth()["stopped"], living);

    let snapshot = tool().threads(fixture.pid(), &[]);
    assert_eq!(snapshot["target"]["tracer"], tracer.pid());
    // With everything stopped even the spinner stands still, so nothing is left to chance.
    let faults = testkit::differences(fixture.truth(), &snapshot, testkit::View::PLAIN);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(threads(&snapshot).iter().all(|thread| thread["db_suspended"] == false));

    let napper = threads(fixture.truth()).iter().find(|truth| truth["role"] == "napper").unwrap();
    let answer = tool().run(&["suspend", &fixture.pid().to_string(), &napper["lwp"].to_string()]);
    assert!(answer.assert_refused().contains(&tracer.pid().to_string()), "{}", answer.stderr);
}

#[test]
fn threads_that_do_not_get_the_cpu_are_told_from_those_that_do() {
    let fixture = Fixture::new("busy.c").settled();
    let mut last = Value::Null;
    // With sixteen threads on one CPU most do not run within the two ticks that are watched.
    eventually("one look should show both", || {
        last = tool().threads(fixture.pid(), &[]);
        let count = |word: &str| threads(&last).iter().filter(|thread| thread["state"] == word).count() as u64;
        let (run, active, sleep) = (count("run"), count("active"), count("sleep"));
        assert_eq!(run + active, fixture.truth()["spinners"].as_u64().unwrap(), "{last:#}");
        assert_eq!(sleep, 1, "main alone sleeps");
        run >= 2 && active >= 1
    });
}

#[test]
fn no_signal_is_lost_to_a_suspension() {
    testkit::needs_ptrace!();
    no_signal_is_lost(&[]);
}

#[test]
fn no_real_time_signal_is_lost_to_a_suspension() {
    testkit::needs_ptrace!();
    no_signal_is_lost(&["real-time"]);
}

fn no_signal_is_lost(args: &[&str]) {
    let mut fixture = Fixture::start(&Build::new("signalled.c").variant(Variant::Default).path(), args);
    let lwp = fixture.truth()["taker"].clone();
    for _ in 0..60 {
        let (code, said) = Suspend::start(fixture.pid(), &lwp, &["--for", "1ms"]).finish();
        assert_eq!(code, Some(0), "{said:?}");
    }
    let mut answer = (0, 0);
    let all_taken = testkit::holds_within(std::time::Duration::from_secs(60), || {
        let counts: Value = testkit::serde_json::from_str(&fixture.ask("?")).unwrap();
        answer = (counts[0].as_u64().unwrap(), counts[1].as_u64().unwrap());
        answer.0 == answer.1
    });
    assert!(all_taken && answer.0 > 0, "{} signals were sent, {} taken", answer.0, answer.1);
}

#[test]
fn a_stopped_process_stays_stopped_after_a_suspension() {
    testkit::needs_ptrace!();
    let mut fixture = Fixture::new("progress.c");
    let lwp = fixture.truth()["spinner"].clone();
    signal(fixture.pid(), Signal::SIGSTOP);
    let is = |letter: char| {
        testkit::task_state(fixture.pid(), lwp.as_i64().unwrap() as i32).is_some_and(|task| task.letter == letter)
    };
    eventually("the spinner should stop", || is('T'));
    let (code, said) = Suspend::start(fixture.pid(), &lwp, &["--for", "1ms"]).finish();
    assert_eq!(code, Some(0), "{said:?}");
    eventually("the spinner should be stopped by job control again", || is('T'));
    assert_eq!(state(&tool().threads(fixture.pid(), &[]), &lwp), "stopped");
    signal(fixture.pid(), Signal::SIGCONT);
    wait_for_progress(&mut fixture, "spinner");
}

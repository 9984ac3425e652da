//! The agent and processes that stand still, end, or have lost their first thread.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;
use testkit::{Build, Fixture, Freezer, Signal, Tool, Value, Variant, ensure, serde_json, signal, wait_asleep};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn built(file: &str) -> PathBuf {
    Build::new(file).variant(Variant::Default).path()
}

/// What `/proc/PID` itself tells of files and namespaces is that of the leader, which has none any more. One of the other
/// two threads must not be stopped, and of the other it matters what it reads from.
#[test]
fn a_program_whose_main_thread_has_left_can_have_it() {
    testkit::needs_ptrace!();
    for args in [&[][..], &["epoll"]] {
        let fixture = Fixture::start(&built("main_exited.c"), args);
        wait_asleep(fixture.pid(), fixture.truth()["last"]["lwp"].as_i64().expect("its LWP") as i32);
        let answer = tool().run(&["contend", &fixture.pid().to_string(), "-d", "10ms", "--json"]);
        assert_eq!(answer.code, Some(0), "{args:?}: {}", answer.stderr);
        assert_eq!(answer.json()["tracked"]["restored"], true, "{args:?}");
        assert_eq!(answer.json()["tracked"]["interrupted"], testkit::Value::Null, "{args:?}");
    }
}

#[test]
fn a_frozen_process_is_not_waited_for() {
    testkit::needs_ptrace!();
    let freezers = Freezer::all();
    if freezers.is_empty() {
        testkit::skip("a_frozen_process_is_not_waited_for", "needs root and control groups");
        return;
    }
    for freezer in &freezers {
        let mut fixture = Fixture::start(&built("inject_refuse.c"), &[]).settled();
        let pid = fixture.pid().to_string();
        std::fs::write(freezer.dir.join("cgroup.procs"), &pid).expect("the process can be moved");
        freezer.set(true);
        let mut answers =
            vec![tool().run(&["contend", &pid, "-d", "10ms"]), tool().run(&["locks", &pid, "--track", "10ms"])];
        // A thread in a group of version 2 can be stopped, frozen or not.
        if !freezer.is_v2 {
            answers.push(tool().run(&["suspend", &pid, &pid, "--for", "1ms"]));
        }
        freezer.set(false);
        for answer in answers {
            assert_eq!(answer.code, Some(2), "{answer:?}");
            assert!(answer.stderr.contains("is frozen by its control group"), "{answer:?}");
            assert!(answer.stderr.contains(freezer.dir.to_str().expect("a name")), "what thaws it: {answer:?}");
        }
        assert_eq!(fixture.ask("alive"), "alive");
    }
}

/// A process that is killed at every part of the time that a command takes: the command has its result, or says that the
/// process has ended.
#[test]
fn a_process_that_ends_meanwhile_has_ended() {
    testkit::needs_ptrace!();
    let commands: [&[&str]; 6] = [
        &["contend", "PID", "-d", "20ms"],
        &["locks", "PID", "--all", "--track", "20ms"],
        &["detach", "PID"],
        &["why", "PID"],
        &["threads", "PID", "--stacks", "--stop"],
        &["set", "PID", "0x10000", "0", "--kind", "mutex"],
    ];
    let program = built("inject_refuse.c");
    for command in commands {
        let run = |pid: i32| {
            let pid = pid.to_string();
            let args: Vec<&str> = command.iter().map(|word| if *word == "PID" { &pid } else { *word }).collect();
            tool().command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the tool starts")
        };
        let begun = Instant::now();
        let _ = run(Fixture::start(&program, &[]).settled().pid()).wait_with_output();
        let whole = begun.elapsed();
        const STEPS: u32 = 24;
        for step in 0..STEPS {
            let fixture = Fixture::start(&program, &[]).settled();
            let pid = fixture.pid();
            let child = run(pid);
            std::thread::sleep(whole * step / STEPS);
            signal(pid, Signal::SIGKILL);
            let output = child.wait_with_output().expect("an end");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_right = output.status.success()
                // It had ended before it was opened, or was the answer that there is for a living one.
                || said == format!("tglass: process {pid} has ended\n")
                || said.contains("has ended, and its parent")
                || command[0] == "set" && said.contains("nothing is mapped");
            ensure(is_right, || format!("{command:?}, step {step} of {whole:?}: {said}")).unwrap();
        }
    }
}

/// The only thread of a program, and a tool that is killed at every step: the thread goes on, and nothing is half done.
#[test]
fn the_tool_may_be_killed_while_it_holds_the_only_thread() {
    let test = "the_tool_may_be_killed_while_it_holds_the_only_thread";
    if !testkit::have(test, "strace") {
        return;
    }
    let program = built("inject_alone.c");
    let mut killed = 0;
    for number in 1..=60 {
        let mut fixture = Fixture::start(&program, &[]);
        let kill = format!("inject=ptrace,pwrite64:signal=KILL:when={number}");
        let mut command = std::process::Command::new("strace");
        command.args(["-f", "-o", "/dev/null", "-e", "trace=ptrace,pwrite64", "-e", &kill]);
        command.arg(env!("CARGO_BIN_EXE_tglass"));
        command.args(["contend", &fixture.pid().to_string(), "-d", "1ms", "--force-single"]);
        let was_killed = testkit::Answer::of(command).code != Some(0);
        killed += u32::from(was_killed);
        testkit::eventually("no thread of ours should stay", || testkit::agent_threads(fixture.pid()) == 0);
        let mut ask = || -> Value { serde_json::from_str(&fixture.ask("progress")).expect("JSON") };
        let before = ask();
        testkit::eventually("it should go on", || {
            let now = ask();
            assert_eq!(now["violations"], 0, "kill {number}: {now}");
            now["rounds"].as_u64() > before["rounds"].as_u64()
        });
        // How many calls there are depends on how often it was tried.
        if !was_killed && number > 20 {
            break;
        }
    }
    assert!(killed > 10, "{killed} kills");
}

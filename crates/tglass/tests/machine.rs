//! `tglass why` without a target: all processes of the machine.

use testkit::{
    Answer, Build, Fixture, NOBODY, Public, Signal, Value, Variant, as_user, eventually, have, is_root, signal,
};

/// What `why` says of the processes of a user who has no others but those of tests.
fn machine(public: &Public, options: &[&str]) -> Answer {
    let tglass = public.path().join("tglass");
    let mut command = std::process::Command::new(tglass);
    command.args(["why", "--user", &NOBODY.to_string()]).args(options);
    Answer::of(command)
}

fn start(public: &Public, file: &str, args: &[&str]) -> Fixture {
    let program = public.copy(&Build::new(file).variant(Variant::Default).path(), format!("{}-program", &file[..4]));
    let mut command = as_user(NOBODY, &program);
    command.args(args);
    Fixture::command(command)
}

/// The entry of a process.
fn entry(machine: &Value, pid: i32) -> &Value {
    let list = machine["processes_to_see"].as_array().expect("a list");
    list.iter().find(|process| process["pid"] == pid).unwrap_or(&Value::Null)
}

#[test]
fn processes_that_hang_are_among_all() {
    let test = "processes_that_hang_are_among_all";
    if !is_root(test, "to become another user") || !have(test, "setpriv") {
        return;
    }
    let public = Public::new();
    public.copy(env!("CARGO_BIN_EXE_tglass").as_ref(), "tglass");
    let deadlock = start(&public, "deadlocks.c", &["abba"]).settled();
    let pipes = start(&public, "outside.c", &["pipes"]);
    let idle = start(&public, "hangs.c", &["idle_epoll"]).settled();
    let stopped = start(&public, "threads_truth.c", &[]).settled();
    signal(stopped.pid(), Signal::SIGSTOP);
    let other = pipes.truth()["other"].as_i64().expect("a pid") as i32;
    let mut last = Value::Null;
    eventually("all should be told", || {
        last = machine(&public, &["--json"]).json();
        let kind = |pid: i32| entry(&last, pid)["verdict"]["kind"].as_str().unwrap_or("none").to_owned();
        let is_circle = |pid: i32| kind(pid) == "deadlock";
        is_circle(deadlock.pid()) && (is_circle(pipes.pid()) || is_circle(other)) && kind(stopped.pid()) == "stopped"
    });
    let answer = machine(&public, &["--json"]);
    assert_eq!(answer.code, Some(1), "{}", answer.text());
    let seen = answer.json();
    assert!(entry(&seen, idle.pid()).is_null(), "{seen:#}");
    // The circle is told once, of one of the two processes, and names the other one.
    let pair = [pipes.pid(), other];
    let circles: Vec<&Value> =
        pair.iter().map(|pid| &entry(&seen, *pid)["circle"]).filter(|it| !it.is_null()).collect();
    let [circle] = circles.as_slice() else { panic!("{} circles: {seen:#}", circles.len()) };
    assert!(pair.iter().any(|pid| **circle == list_of(*pid)), "{seen:#}");
    assert_eq!(entry(&seen, deadlock.pid())["verdict"]["certainty"], "certain", "{seen:#}");
    assert!(seen["opened"].as_u64() >= Some(1) && seen["processes"].as_u64() >= Some(5), "{seen:#}");
    // All of them, as text.
    let text = machine(&public, &["--all"]).text();
    for process in [&deadlock, &pipes, &stopped] {
        assert!(text.contains(&format!("({})", process.pid())), "{text}");
    }
    assert!(text.contains(&format!("kill -CONT {}", stopped.pid())), "{text}");
    signal(stopped.pid(), Signal::SIGCONT);
}

fn list_of(pid: i32) -> Value {
    Value::from(vec![pid])
}

/// Who may look into no process at all is told that nothing is known, and not that all is fine.
#[test]
fn a_user_who_sees_nothing() {
    /// One that nobody has a process of.
    const STRANGER: u32 = 54_321;
    let test = "a_user_who_sees_nothing";
    if !is_root(test, "to become another user") || !have(test, "setpriv") {
        return;
    }
    let public = Public::new();
    let tglass = public.copy(env!("CARGO_BIN_EXE_tglass").as_ref(), "tglass");
    let look = |options: &[&str]| {
        let mut command = as_user(STRANGER, &tglass);
        command.arg("why").args(options);
        Answer::of(command)
    };
    let answer = look(&[]);
    let text = answer.text();
    assert!(text.contains("NOT KNOWN  no process could be looked into."), "{text}");
    assert!(!text.contains("FINE"), "{text}");
    let seen = look(&["--json"]).json();
    let number = |name: &str| seen[name].as_u64().expect("a number");
    assert!(number("not_seen") > 0 && number("not_seen") >= number("processes"), "{seen:#}");
    let gaps = seen["gaps"].as_array().expect("a list");
    assert!(!gaps.is_empty(), "{seen:#}");
    // One process of that user's own is enough to say something.
    let program = public.copy(&Build::new("hangs.c").variant(Variant::Default).path(), "own-program");
    let mut command = as_user(STRANGER, &program);
    command.arg("idle_epoll");
    let _own = Fixture::command(command).settled();
    let text = look(&[]).text();
    assert!(text.contains("FINE  no process that could be looked into hangs"), "{text}");
}

#[test]
fn a_user_who_does_not_exist_is_refused() {
    let refuse = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tglass"));
        command.args(args);
        Answer::of(command)
    };
    assert!(refuse(&["why", "--user", "no-such-user"]).assert_refused().contains("no user"));
    assert!(refuse(&["why", "--container", "no-such-container"]).assert_refused().contains("no process"));
    assert_eq!(refuse(&["why", "--all", "1"]).code, Some(2));
}

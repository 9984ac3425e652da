//! The programs in `examples/`, as a user would run them, against what the fixtures know of themselves.

use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use testkit::{Build, Fixture, Signal, Value, signal};

/// An example, built as this test was: `cargo test --test examples` alone would leave an old one, or none.
fn example(name: &str) -> Command {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let exe = std::env::current_exe().expect("a test knows its own program");
        let profile = exe.ancestors().nth(2).expect("it is in target/PROFILE/deps");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "-p", "threadglass", "--examples", "--target-dir"]);
        cargo.arg(profile.parent().expect("a profile is in a target directory"));
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().expect("cargo runs").success(), "{cargo:?}");
        profile.join("examples")
    });
    Command::new(directory.join(name))
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{complaint}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

fn waits(pid: i32) -> String {
    output(example("waits").arg(pid.to_string()))
}

fn array<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// The one line about a thread.
fn line_of<'a>(list: &'a str, lwp: &str) -> &'a str {
    let mut lines = list.lines().filter(|line| line.split_whitespace().next() == Some(lwp));
    let line = lines.next().unwrap_or_else(|| panic!("no {lwp} in\n{list}"));
    assert_eq!(lines.next(), None, "{lwp} twice in\n{list}");
    line
}

#[test]
fn the_watchdog_names_both_threads_and_both_locks() {
    let said = output(&mut example("watchdog"));
    let first = said.lines().next().unwrap_or_default();
    assert!(first.starts_with("stuck (") && !first.starts_with("stuck (possible"), "{said}");
    for name in ["saver", "spender", "SAVINGS", "SALARY"] {
        assert!(first.contains(name), "no {name} in\n{said}");
    }
    for name in ["saver", "spender"] {
        let stack =
            said.split_once(&format!("\n{name}:\n")).unwrap_or_else(|| panic!("no stack of {name} in\n{said}")).1;
        let frames: Vec<_> = stack.lines().take_while(|line| line.starts_with(' ')).collect();
        assert!(frames.iter().any(|frame| frame.trim() == "watchdog::transfer"), "{name}: {frames:?}");
    }
}

/// Every wait of the fixture is listed with its lock and holders, and no other thread waits for any.
#[test]
fn waits_lists_what_the_fixture_waits_for() {
    for file in ["sync_kinds.c", "sync_mutexes.c"] {
        let fixture = Fixture::new(file).settled();
        let list = waits(fixture.pid());
        let mut told = 0;
        for object in array(fixture.truth(), "objects") {
            let [kind, address] = ["kind", "address"].map(|name| object[name].as_str().unwrap());
            for waiter in array(object, "waiters") {
                let line = line_of(&list, &waiter["lwp"].to_string());
                assert!(line.contains(" sleep ") && line.contains(&format!(" {kind} {address}")), "{object}\n{line}");
                assert_eq!(line.contains(", for a limited time"), waiter["timed"] == true, "{object}\n{line}");
                let holders: Vec<_> = array(object, "holders").iter().map(|holder| holder["lwp"].to_string()).collect();
                let held = line.split_once(", held by ").map_or("", |(_, holders)| holders);
                assert_eq!(held, holders.join(", "), "{object}\n{line}");
                told += 1;
            }
        }
        assert!(told > 5, "{told} waits in {}", fixture.truth());
        assert_eq!(list.lines().filter(|line| line.contains(" 0x")).count(), told, "{list}");
        assert!(line_of(&list, &fixture.pid().to_string()).ends_with("system call read"), "{list}");
    }
}

/// `follow_lock` at work. It ends with the process that it follows, so a test that fails leaves nothing behind.
struct Follower {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    seen: Vec<String>,
}

impl Follower {
    /// Far more looks than are needed, but not without end: what never appears must not be waited for for ever.
    fn start(pid: i32, address: &Value) -> Self {
        let mut command = example("follow_lock");
        command.args([&pid.to_string(), address.as_str().unwrap(), "mutex", "5000"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, seen: Vec::new() }
    }

    /// Reads on until the lock is seen like this. States in between, of a moment each, may be seen or not.
    fn until(&mut self, wanted: &str) {
        while self.seen.last().is_none_or(|seen| seen != wanted) {
            let line = self.lines.next().unwrap_or_else(|| panic!("never {wanted}, only {:?}", self.seen)).unwrap();
            let (time, now) = line.split_once(" s  ").unwrap_or_else(|| panic!("no time in {line}"));
            assert!(time.trim().parse::<f64>().is_ok(), "{line}");
            assert!(self.seen.last().is_none_or(|seen| seen != now), "no change: {line}");
            self.seen.push(now.to_owned());
        }
    }
}

#[test]
fn follow_lock_sees_a_lock_taken_waited_for_and_released() {
    let mut fixture = Fixture::start(&Build::new("set_locks.c").path(), &["normal"]);
    let [one, two] = [1, 2].map(|worker| fixture.truth()["workers"][worker].to_string());
    let mut follower = Follower::start(fixture.pid(), &fixture.truth()["a"]);
    follower.until("unlocked, 0 waiting");
    assert_eq!(follower.seen.len(), 1, "{:?}", follower.seen);
    assert_eq!(fixture.ask("1 lock a"), "1 lock a 0");
    follower.until(&format!("locked by {one}, 0 waiting"));
    fixture.send("2 lock a");
    follower.until(&format!("locked by {one}, 1 waiting"));
    fixture.send("1 unlock a");
    follower.until(&format!("locked by {two}, 0 waiting"));
    fixture.send("2 unlock a");
    follower.until("unlocked, 0 waiting");
    signal(follower.child.id() as i32, Signal::SIGINT);
    assert!(follower.child.wait().unwrap().success(), "Ctrl-C is a usual end");
}

#[test]
fn follow_lock_ends_with_its_process_or_after_its_looks() {
    let mut fixture = Fixture::start(&Build::new("set_locks.c").path(), &["normal"]);
    let [pid, address] = [fixture.pid().to_string(), fixture.truth()["a"].as_str().unwrap().to_owned()];
    let said = output(example("follow_lock").args([&pid, &address, "mutex", "2"]));
    assert!(said.ends_with(" s  unlocked, 0 waiting\n") && said.lines().count() == 1, "{said}");
    let mut follower = Follower::start(fixture.pid(), &fixture.truth()["a"]);
    follower.until("unlocked, 0 waiting");
    fixture.kill();
    let last = follower.lines.next().unwrap().unwrap();
    assert!(last.starts_with(&format!("process {pid} ")) && last.contains("ended"), "{last}");
    assert!(follower.child.wait().unwrap().success());
}

/// What cannot be done is said, and is no panic.
#[test]
fn examples_say_what_is_wrong() {
    for (name, args, why) in [
        ("waits", &[][..], "which process?"),
        ("waits", &["1x"], "invalid digit"),
        ("waits", &["2147483647"], "no process 2147483647"),
        ("follow_lock", &["1"], "usage: follow_lock PID"),
        ("follow_lock", &["1", "12", "mutex"], "begins with 0x"),
        ("follow_lock", &["1", "0x12", "lock"], "lock is no kind of lock"),
    ] {
        let output = example(name).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name} {args:?}: {said}");
        assert!(said.contains(why), "{name} {args:?}: {said}");
    }
}

//! `tglass set`: states changed by force, in programs that say themselves what becomes of it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use testkit::{Answer, Build, Fixture, Tool, Value, Variant, address, eventually, is_root, skip, task_state};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// A fixture whose workers do what they are told, and a place for journals.
struct Locks {
    fixture: Fixture,
    state: tempfile::TempDir,
    /// What workers said while another one's answer was waited for.
    said: VecDeque<String>,
}

impl Locks {
    fn new(kind: &str) -> Self {
        let path = Build::new("set_locks.c").variant(Variant::Default).path();
        Self { fixture: Fixture::start(&path, &[kind]), state: tempfile::tempdir().unwrap(), said: VecDeque::new() }
    }

    fn pid(&self) -> i32 {
        self.fixture.pid()
    }

    fn truth(&self, key: &str) -> &Value {
        &self.fixture.truth()[key]
    }

    fn lwp(&self, worker: usize) -> i32 {
        self.truth("workers")[worker].as_i64().unwrap() as i32
    }

    /// Has a worker do something that returns at once, with this result.
    fn does(&mut self, command: &str, result: i32) {
        assert_eq!(self.answer(command), format!("{command} {result}"));
    }

    /// The answer to a command. Workers that it wakes may say something first.
    fn answer(&mut self, command: &str) -> String {
        self.fixture.send(command);
        loop {
            let line = self.fixture.line();
            if line.starts_with(command) {
                return line;
            }
            self.said.push_back(line);
        }
    }

    /// The next thing that a worker says.
    fn line(&mut self) -> String {
        self.said.pop_front().unwrap_or_else(|| self.fixture.line())
    }

    /// Has a worker do something that blocks in futex(2).
    fn blocks(&mut self, command: &str) {
        self.fixture.send(command);
        let worker = usize::from(command.as_bytes()[0] - b'0');
        self.wait_blocked(worker);
    }

    fn wait_blocked(&self, worker: usize) {
        let lwp = self.lwp(worker);
        let pid = if worker == 5 { lwp } else { self.pid() };
        eventually("the worker should block", || {
            task_state(pid, lwp).is_some_and(|task| task.letter == 'S' && task.call.starts_with("202 "))
        });
    }

    /// The next line, which must be this.
    fn says(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    /// The next lines, which must be these in any order.
    fn say(&mut self, lines: &[&str]) {
        let mut said: Vec<String> = lines.iter().map(|_| self.line()).collect();
        said.sort();
        assert_eq!(said, lines);
    }

    /// What the program itself finds in an object.
    fn bytes(&mut self, object: &str) -> String {
        self.fixture.ask(&format!("bytes {object}"))
    }

    fn run(&self, args: &[&str]) -> Answer {
        let mut command = tool().command(args);
        command.env("XDG_STATE_HOME", self.state.path());
        Answer::of(command)
    }

    fn set(&self, object: &str, value: &str, options: &[&str]) -> Answer {
        let (pid, address) = (self.pid().to_string(), self.truth(object).as_str().unwrap().to_owned());
        let mut args = vec!["set", &pid, &address, value];
        args.extend(options);
        self.run(&args)
    }

    /// Sets and must succeed.
    fn force(&self, object: &str, value: &str, options: &[&str]) -> Value {
        let mut all = vec!["--yes", "--json"];
        all.extend(options);
        let answer = self.set(object, value, &all);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        answer.json()
    }

    fn refused(&self, object: &str, value: &str, options: &[&str]) -> String {
        let mut all = vec!["--yes", "--json"];
        all.extend(options);
        self.set(object, value, &all).assert_refused().to_owned()
    }

    fn journals(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.state.path().join("threadglass")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

/// `why` shows how to break a circle only where `set` would do it.
#[test]
fn why_offers_what_set_does() {
    for kind in ["normal", "errorcheck", "shared", "robust", "rwlock"] {
        let mut locks = Locks::new(kind);
        let take = if kind == "rwlock" { "write" } else { "lock" };
        locks.does(&format!("1 {take} a"), 0);
        locks.does(&format!("2 {take} b"), 0);
        locks.blocks(&format!("1 {take} b"));
        locks.blocks(&format!("2 {take} a"));
        let answer = locks.run(&["why", &locks.pid().to_string()]);
        assert_eq!(answer.code, Some(1), "{kind}: {}{}", answer.text(), answer.stderr);
        let text = answer.text();
        let offer = text.lines().find_map(|line| line.strip_prefix("break it"));
        let does = locks.set("a", "0", &[]).code == Some(0);
        assert_eq!(does, kind != "robust", "{kind}");
        assert_eq!(offer.is_some(), does, "{kind}: {text}");
        if let Some(offer) = offer {
            let command = offer.trim().trim_start_matches("tglass ").split("   ").next().unwrap_or_default();
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(locks.run(&words).code, Some(0), "{kind}: {command}");
        }
    }
}

#[test]
fn a_deadlock_is_dissolved_and_the_program_runs_on() {
    testkit::needs_ptrace!();
    let state = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::new("set_abba.c");
    let (pid, a) = (fixture.pid().to_string(), fixture.truth()["a"].as_str().unwrap().to_owned());
    let why = tool().run(&["why", &pid]);
    assert_eq!(why.code, Some(1), "{}", why.text());
    let run = |args: &[&str]| {
        let mut command = tool().command(args);
        command.env("XDG_STATE_HOME", state.path());
        Answer::of(command)
    };
    let shown = run(&["set", &pid, &a, "0"]);
    let text = shown.text();
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    for part in ["held by     left", "by right", "lock", "0x2 -> 0x0", "half-written", "dry run"] {
        assert!(text.contains(part), "no `{part}`:\n{text}");
    }
    assert_eq!(tool().run(&["why", &pid]).code, Some(1), "a dry run frees nobody");
    // The command that it tells, word for word.
    let told = text.lines().last().unwrap().trim().strip_prefix("tglass ").unwrap().to_owned();
    let done = run(&told.split(' ').collect::<Vec<_>>());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.text().contains("done: 2 words written, 1 thread woken"), "{}", done.text());
    assert_eq!(fixture.line(), "finished 2");
    assert_eq!(tool().run(&["why", &pid]).code, Some(0));
    // A free mutex, and looked at as one.
    let after = tool().run(&["set", &pid, &a, "0", "--kind", "mutex"]);
    assert!(after.text().contains("nothing: it is already unlocked"), "{}{}", after.text(), after.stderr);
}

#[test]
fn a_rust_mutex_too() {
    testkit::needs_ptrace!();
    let state = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::start(&Build::new("set_rust.rs").path(), &[]);
    let pid = fixture.pid().to_string();
    let mut mutexes = Vec::new();
    eventually("both mutexes should be waited for", || {
        let locks = tool().look("locks", &pid, &["--waited", "--kind", "mutex"]);
        mutexes = locks["objects"].as_array().unwrap().clone();
        mutexes.len() == 2
    });
    assert_eq!(mutexes[0]["family"], "rust_std");
    let address = mutexes[0]["address"].as_str().unwrap();
    let mut command = tool().command(&["set", &pid, address, "0", "--yes", "--kind", "mutex"]);
    command.env("XDG_STATE_HOME", state.path());
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    assert!(answer.text().contains("&mut"), "{}", answer.text());
    assert_eq!(fixture.line(), "finished 4");
}

#[test]
fn mutexes_of_every_type_that_can_be_freed() {
    testkit::needs_ptrace!();
    for (kind, unlock) in [("normal", 0), ("adaptive", 0), ("recursive", 1), ("errorcheck", 1)] {
        let mut locks = Locks::new(kind);
        locks.does("1 lock a", 0);
        if kind == "recursive" {
            locks.does("1 lock a", 0);
        }
        locks.blocks("2 lock a");
        locks.blocks("3 timedlock a");
        let done = locks.force("a", "0", &[]);
        assert_eq!(done["plan"]["kick"].as_array().unwrap().len(), 2, "{kind}");
        assert_eq!(done["done"]["woken"].as_array().unwrap().len(), 2, "{kind}");
        // One of the two has it; the other one gets it from that one.
        let first = locks.line();
        let (one, other) = if first.starts_with('2') { ("2", "3 timedlock a 0") } else { ("3", "2 lock a 0") };
        locks.fixture.send(&format!("{one} unlock a"));
        locks.say(&sorted([&format!("{one} unlock a 0"), other]));
        // What was said of the holder's own unlock is so.
        let consequences = done["plan"]["consequences"].to_string();
        assert_eq!(consequences.contains("EPERM"), unlock == 1, "{kind}: {consequences}");
        locks.does("1 unlock a", unlock);
    }
}

fn sorted(lines: [&str; 2]) -> Vec<&str> {
    let mut lines = lines.to_vec();
    lines.sort_unstable();
    lines
}

#[test]
fn a_freed_mutex_is_as_good_as_new_once_its_holder_is_through() {
    for (kind, unlock) in [("normal", 0), ("errorcheck", 1)] {
        let mut locks = Locks::new(kind);
        let fresh = locks.bytes("a");
        locks.does("1 lock a", 0);
        locks.force("a", "0", &["--kind", "mutex"]);
        locks.does("1 unlock a", unlock);
        assert_eq!(locks.bytes("a"), fresh, "{kind}");
        locks.does("2 lock a", 0);
        locks.does("2 unlock a", 0);
        locks.does("2 destroy a", 0);
    }
}

#[test]
fn a_priority_ceiling_is_kept() {
    testkit::needs_ptrace!();
    let mut locks = Locks::new("protect");
    if locks.truth("privileged") == false {
        return skip("a_priority_ceiling_is_kept", "needs the right to use SCHED_FIFO");
    }
    let fresh = locks.bytes("a");
    locks.does("1 lock a", 0);
    locks.blocks("2 lock a");
    locks.force("a", "0", &[]);
    locks.says("2 lock a 0");
    locks.does("2 unlock a", 0);
    assert_eq!(locks.bytes("a")[..8], fresh[..8]);
    locks.force("a", "1", &["--kind", "mutex"]);
    locks.blocks("3 lock a");
    locks.force("a", "0", &[]);
    locks.says("3 lock a 0");
}

#[test]
fn a_mutex_locked_by_force_keeps_others_out() {
    testkit::needs_ptrace!();
    let mut locks = Locks::new("normal");
    let fresh = locks.bytes("a");
    let done = locks.force("a", "1", &["--kind", "mutex"]);
    assert_eq!(done["plan"]["words"][0]["new"], 1);
    locks.blocks("1 lock a");
    locks.force("a", "0", &[]);
    locks.says("1 lock a 0");
    locks.does("1 unlock a", 0);
    assert_eq!(locks.bytes("a"), fresh);
}

#[test]
fn a_semaphore_lets_in_as_many_as_it_is_given() {
    testkit::needs_ptrace!();
    let mut locks = Locks::new("sem");
    for worker in 1..=3 {
        locks.blocks(&format!("{worker} wait a"));
    }
    locks.force("a", "2", &[]);
    let (first, second) = (locks.line(), locks.line());
    assert!(first.ends_with(" 0") && second.ends_with(" 0"));
    // The third has gone back to sleep, and is found again.
    let third = (1..=3).find(|n| !first.starts_with(&n.to_string()) && !second.starts_with(&n.to_string())).unwrap();
    locks.wait_blocked(third);
    let shown = locks.set("a", "1", &["--json"]).json();
    assert_eq!(shown["plan"]["kick"], testkit::json!([locks.lwp(third)]));
    locks.fixture.send("4 post a");
    locks.say(&[&format!("{third} wait a 0"), "4 post a 0"]);
}

#[test]
fn a_rwlock_goes_from_a_writer_to_the_readers_that_are_queued() {
    testkit::needs_ptrace!();
    for kind in ["rwlock", "rwlock-writers"] {
        let mut locks = Locks::new(kind);
        locks.does("1 write a", 0);
        locks.blocks("2 read a");
        locks.blocks("3 read a");
        locks.blocks("4 write a");
        locks.refused("a", "1", &[]);
        locks.force("a", "0", &[]);
        locks.say(&["2 read a 0", "3 read a 0"]);
        // The writer waits for both of them now, and gets it from the last.
        locks.wait_blocked(4);
        locks.does("2 unlock a", 0);
        locks.fixture.send("3 unlock a");
        locks.say(&["3 unlock a 0", "4 write a 0"]);
        locks.does("4 unlock a", 0);
        locks.does("2 write a", 0);
    }
}

#[test]
fn a_rwlock_goes_from_a_writer_to_a_writer() {
    testkit::needs_ptrace!();
    for kind in ["rwlock", "rwlock-writers"] {
        let mut locks = Locks::new(kind);
        locks.does("1 write a", 0);
        locks.blocks("2 write a");
        locks.blocks("3 write a");
        locks.force("a", "0", &[]);
        let first = locks.line();
        let (one, other) = if first.starts_with('2') { ("2", "3 write a 0") } else { ("3", "2 write a 0") };
        locks.fixture.send(&format!("{one} unlock a"));
        locks.say(&sorted([&format!("{one} unlock a 0"), other]));
    }
}

#[test]
fn a_rwlock_goes_from_its_readers_to_the_writer_that_waits() {
    testkit::needs_ptrace!();
    for kind in ["rwlock", "rwlock-writers"] {
        let mut locks = Locks::new(kind);
        locks.does("1 read a", 0);
        locks.blocks("2 write a");
        let mut expected = vec!["2 write a 0"];
        if kind == "rwlock-writers" {
            // Waits behind the writer, on another word.
            locks.blocks("3 read a");
            expected.push("3 read a 0");
        }
        // It is the writer's: nobody else can be put before it.
        assert!(locks.refused("a", "-1", &[]).contains("a writer waits"));
        let done = locks.force("a", "0", &[]);
        assert!(done["plan"]["becomes"].as_str().unwrap().contains("the writer that waits"));
        locks.says("2 write a 0");
        locks.fixture.send("2 unlock a");
        expected[0] = "2 unlock a 0";
        locks.say(&expected);
    }
}

#[test]
fn readers_can_be_made_up_and_taken_away() {
    testkit::needs_ptrace!();
    let mut locks = Locks::new("rwlock");
    locks.force("a", "3", &["--kind", "rwlock"]);
    locks.does("1 read a", 0);
    locks.blocks("2 write a");
    // The writer that waits, and its mark, stay: two more readers to go.
    let shown = locks.set("a", "2", &["--json"]).json();
    assert_eq!(shown["object"]["readers"], 4);
    locks.force("a", "2", &[]);
    locks.wait_blocked(2);
    locks.does("1 unlock a", 0);
    locks.wait_blocked(2);
    locks.force("a", "0", &[]);
    locks.says("2 write a 0");
    locks.does("2 unlock a", 0);
    // Out of the write phase that it is left in.
    locks.force("a", "1", &["--kind", "rwlock"]);
    locks.blocks("3 write a");
    locks.does("1 unlock a", 0);
    locks.says("3 write a 0");
}

#[test]
fn a_rwlock_locked_by_force_keeps_readers_and_writers_out() {
    testkit::needs_ptrace!();
    for kind in ["rwlock", "rwlock-writers"] {
        let mut locks = Locks::new(kind);
        locks.force("a", "-1", &["--kind", "rwlock"]);
        locks.blocks("1 read a");
        locks.blocks("2 read a");
        let done = locks.force("a", "0", &[]);
        assert_eq!(done["done"]["woken"].as_array().unwrap().len(), 2);
        locks.say(&["1 read a 0", "2 read a 0"]);
        locks.does("1 unlock a", 0);
        locks.does("2 unlock a", 0);
        locks.force("a", "-7", &["--kind", "rwlock"]);
        locks.blocks("3 write a");
        locks.force("a", "0", &[]);
        locks.says("3 write a 0");
        locks.does("3 unlock a", 0);
    }
}

#[test]
fn waiters_in_another_process_are_woken_too() {
    testkit::needs_ptrace!();
    let mut locks = Locks::new("shared");
    locks.does("1 lock a", 0);
    locks.blocks("5 lock a");
    let child = locks.lwp(5);
    let shown = locks.set("a", "0", &["--kind", "mutex"]);
    assert!(shown.text().contains(&format!("lwp {child} of process {child}")), "{}{}", shown.text(), shown.stderr);
    let done = locks.force("a", "0", &["--kind", "mutex"]);
    assert_eq!(done["waiters_elsewhere"], testkit::json!([[child, child]]));
    assert_eq!(done["done"]["woken"], testkit::json!([child]));
    locks.says("5 lock a 0");
    locks.does("5 unlock a", 0);
    // And the other way round: the holder is elsewhere.
    locks.does("5 lock b", 0);
    locks.blocks("1 lock b");
    let done = locks.force("b", "0", &[]);
    assert_eq!(done["object"]["holders"][0]["pid"], child);
    locks.says("1 lock b 0");
}

/// Whoever traces a waiter keeps us from waking it: nothing is written that it would not notice.
#[test]
fn nothing_is_written_while_somebody_else_traces_a_waiter() {
    testkit::needs_ptrace!();
    let mut locks = Locks::new("sem");
    locks.blocks("1 wait a");
    locks.blocks("2 wait a");
    let mut holder = tool()
        .command(&["suspend", &locks.pid().to_string(), &locks.lwp(1).to_string()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the waiter should be held", || task_state(locks.pid(), locks.lwp(1)).is_some_and(|t| t.letter == 't'));
    let before = locks.bytes("a");
    let told = locks.refused("a", "2", &[]);
    let expected = format!("thread {} cannot be woken: process {} traces it", locks.lwp(1), holder.id());
    assert!(told.contains(&expected) && told.contains("nothing was written"), "{told}");
    // In words too, and before anything is announced.
    let answer = locks.set("a", "2", &["--yes"]);
    assert!(answer.assert_refused().contains(&expected) && answer.text().is_empty(), "{answer:?}");
    assert_eq!(locks.bytes("a"), before);
    assert!(locks.journals().is_empty());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let done = locks.force("a", "2", &[]);
    assert_eq!(done["done"]["woken"], testkit::json!([locks.lwp(1), locks.lwp(2)]));
    locks.say(&["1 wait a 0", "2 wait a 0"]);
}

#[test]
fn a_dry_run_changes_nothing() {
    let mut locks = Locks::new("recursive");
    locks.does("1 lock a", 0);
    locks.blocks("2 lock a");
    let before = locks.bytes("a");
    let switches = || {
        let status = std::fs::read_to_string(format!("/proc/{}/task/{}/status", locks.pid(), locks.lwp(2))).unwrap();
        status.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned).collect::<Vec<_>>()
    };
    let slept = switches();
    for options in [&[][..], &["--json"][..]] {
        let answer = locks.set("a", "0", options);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    }
    assert_eq!(slept, switches(), "the waiter was disturbed");
    assert!(locks.journals().is_empty());
    assert_eq!(locks.bytes("a"), before);
}

#[test]
fn what_cannot_be_set_is_refused_with_the_reason() {
    for (kind, part) in [("robust", "robust"), ("inherit", "priority-inheriting")] {
        let mut locks = Locks::new(kind);
        locks.does("1 lock a", 0);
        locks.blocks("2 lock a");
        let before = locks.bytes("a");
        let said = locks.refused("a", "0", &["--kind", "mutex"]);
        assert!(said.contains(part), "{said}");
        assert_eq!(locks.bytes("a"), before);
    }
    let mut locks = Locks::new("cond");
    locks.blocks("1 wait a");
    assert!(locks.refused("a", "0", &[]).contains("a cond has no state"));
    let mut locks = Locks::new("normal");
    locks.does("1 destroy a", 0);
    assert!(locks.refused("a", "0", &["--kind", "mutex"]).contains("destroyed"));
    let locks = Locks::new("sem");
    assert!(locks.refused("a", "-1", &["--kind", "semaphore"]).contains("counts from 0"));
    assert_eq!(locks.set("a", "2147483648", &["--kind", "semaphore"]).code, Some(2));
    assert!(locks.refused("a", "1", &["--kind", "spinlock"]).contains("has no state"));
    let locks = Locks::new("rwlock");
    assert!(locks.refused("a", "2000000000", &["--kind", "rwlock"]).contains("more than there can be threads"));
    assert!(locks.journals().is_empty());
}

#[test]
fn bad_addresses_are_refused() {
    let mut locks = Locks::new("normal");
    locks.does("1 lock a", 0);
    locks.blocks("2 lock a");
    let (pid, a) = (locks.pid().to_string(), address(locks.truth("a")));
    let set = |at: u64, options: &[&str]| {
        let at = format!("{at:#x}");
        let mut args = vec!["set", &pid, &at, "0", "--yes"];
        args.extend(options);
        locks.run(&args).assert_refused().to_owned()
    };
    assert!(set(0x10, &[]).contains("nothing is mapped"));
    assert!(set(u64::MAX, &[]).contains("nothing is mapped"));
    assert!(set(a + 8, &[]).contains("is inside the mutex"));
    assert!(set(a + 1, &["--kind", "mutex"]).contains("is inside"));
    let b = address(locks.truth("b"));
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let heap = maps.lines().find(|line| line.ends_with("[heap]")).expect("a heap");
    let heap = u64::from_str_radix(heap.split('-').next().unwrap(), 16).unwrap();
    assert!(set(heap + 8, &[]).contains("no known lock"));
    assert!(set(b + 4, &["--kind", "mutex"]).contains("not aligned"));
    assert!(locks.refused("a", "0", &["--kind", "rwlock"]).contains("there is a mutex at"));
    let start = |perms: &str| {
        let line = maps.lines().find(|line| line.contains(perms)).unwrap();
        u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
    };
    assert!(set(start("r-xp"), &["--kind", "mutex"]).contains("cannot write to the memory"));
    // The names of programs and of the environment are no mutex.
    let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
    let end = u64::from_str_radix(stack.split(['-', ' ']).nth(1).unwrap(), 16).unwrap();
    assert!(set(end - 64, &["--kind", "mutex"]).contains("the bytes make no sense as one"));
    assert!(set(end - 8, &["--kind", "mutex"]).contains("the bytes make no sense as one"));
    assert!(locks.journals().is_empty());
    for bad in [&["set", "0", "0x10", "0"][..], &["set", &pid, "zz", "0"], &["set", &pid, "0x10", "x"], &["set", &pid]]
    {
        assert_eq!(locks.run(bad).code, Some(2), "{bad:?}");
    }
    assert!(
        locks.run(&["set", "/proc/self/exe", "0x10", "0"]).assert_refused().contains("set needs a running process")
    );
}

#[test]
fn another_picture_than_the_one_shown_is_refused() {
    let mut locks = Locks::new("normal");
    locks.does("1 lock a", 0);
    locks.blocks("2 lock a");
    let shown = locks.set("a", "0", &["--json"]).json();
    let seen = shown["seen"].as_str().unwrap().to_owned();
    assert_eq!(locks.set("a", "0", &["--json"]).json()["seen"], seen.as_str(), "the same picture");
    locks.blocks("3 lock a");
    assert!(locks.refused("a", "0", &["--seen", &seen]).contains("nothing was written"));
    // One that moved on: the waiter has it now.
    locks.does("1 unlock a", 0);
    locks.line();
    let before = locks.bytes("a");
    assert!(locks.refused("a", "0", &["--seen", &seen, "--kind", "mutex"]).contains("nothing was written"));
    assert_eq!(locks.bytes("a"), before);
    assert!(locks.journals().is_empty());
}

#[test]
fn a_change_is_written_down_and_can_be_undone() {
    let mut locks = Locks::new("normal");
    locks.does("1 lock a", 0);
    let before = locks.bytes("a");
    let done = locks.force("a", "0", &["--kind", "mutex"]);
    let journals = locks.journals();
    assert_eq!(journals.len(), 1);
    let path = Path::new(done["done"]["journal"].as_str().unwrap());
    assert_eq!(journals[0], path);
    let journal: Value = testkit::serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(journal["pid"], locks.pid());
    assert_eq!((journal["kind"].as_str(), &journal["address"]), (Some("mutex"), locks.truth("a")));
    assert_eq!(journal["old"], before.as_str());
    assert_eq!(journal["new"], locks.bytes("a").as_str());
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", locks.pid())).unwrap();
    let start: u64 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    assert_eq!(journal["start_time"], start);
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with(&format!("{}-{start}-", locks.pid())) && name.ends_with(".json"), "{name}");
    let mode =
        |path: &Path| std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions()) & 0o777;
    assert_eq!((mode(path), mode(path.parent().unwrap())), (0o600, 0o700));

    let pid = locks.pid().to_string();
    assert_eq!(locks.run(&["set", "--undo", &pid]).code, Some(0), "a dry run");
    assert_ne!(locks.bytes("a"), before);
    let undone = locks.run(&["set", "--undo", &pid, "--yes"]);
    assert_eq!(undone.code, Some(0), "{}", undone.stderr);
    assert_eq!(locks.bytes("a"), before);
    locks.blocks("2 lock a");
    locks.fixture.send("1 unlock a");
    locks.say(&["1 unlock a 0", "2 lock a 0"]);
    assert!(locks.run(&["set", "--undo", &pid, "--yes"]).assert_refused().contains("nothing to undo"));
    let name = path.to_str().unwrap();
    assert!(locks.run(&["set", "--undo", name, "--yes"]).assert_refused().contains("already undone"));
}

#[test]
fn what_was_used_is_not_undone() {
    testkit::needs_ptrace!();
    let mut locks = Locks::new("normal");
    locks.does("1 lock a", 0);
    locks.blocks("2 lock a");
    locks.force("a", "0", &[]);
    locks.says("2 lock a 0");
    let pid = locks.pid().to_string();
    let undo = |locks: &Locks| locks.run(&["set", "--undo", &pid, "--yes"]).assert_refused().to_owned();
    let bytes = locks.bytes("a");
    assert!(undo(&locks).contains("has been used since"));
    assert_eq!(locks.bytes("a"), bytes);
    // The bytes are again those that were written, but the waiter has had the lock in between.
    locks.does("2 unlock a", 0);
    let bytes = locks.bytes("a");
    assert!(undo(&locks).contains("has gone on since"));
    assert_eq!(locks.bytes("a"), bytes);
    // Nor is anything written to another process with that journal, or with what is no journal.
    let journal = locks.journals().remove(0);
    let other = Locks::new("normal");
    let text = std::fs::read_to_string(&journal).unwrap().replace(&pid, &other.pid().to_string());
    let forged = locks.state.path().join("forged.json");
    std::fs::write(&forged, text).unwrap();
    let forged = forged.to_str().unwrap();
    assert!(other.run(&["set", "--undo", forged, "--yes"]).assert_refused().contains("is not the one"));
    assert!(other.run(&["set", "--undo", "/proc/self/exe", "--yes"]).assert_refused().contains("is not a journal"));
    assert!(other.run(&["set", "--undo", "/nonexistent", "--yes"]).assert_refused().contains("no such file"));
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fifo = fifo.to_str().unwrap();
    assert!(other.run(&["set", "--undo", fifo, "--yes"]).assert_refused().contains("is not a journal"));
}

#[test]
fn a_change_that_was_cut_short_can_be_undone() {
    let mut locks = Locks::new("errorcheck");
    locks.does("1 lock a", 0);
    let before = locks.bytes("a");
    locks.force("a", "0", &["--kind", "mutex"]);
    let path = locks.journals().remove(0);
    // As if it had been killed before it wrote all: the owner is back in its place, the journal is not closed.
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"done\": true", "\"done\": false")).unwrap();
    let memory = std::fs::OpenOptions::new().write(true).open(format!("/proc/{}/mem", locks.pid())).unwrap();
    let owner = locks.lwp(1).to_le_bytes();
    std::os::unix::fs::FileExt::write_all_at(&memory, &owner, address(locks.truth("a")) + 8).unwrap();
    // Whoever else can write there has put a link where the journal is written anew.
    let other = path.with_file_name("other");
    std::fs::write(&other, "of somebody").unwrap();
    std::os::unix::fs::symlink(&other, path.with_extension("json.new")).unwrap();
    let undone = locks.run(&["set", "--undo", path.to_str().unwrap(), "--yes"]);
    assert_eq!(undone.code, Some(0), "{}", undone.stderr);
    assert_eq!(std::fs::read(&other).unwrap(), b"of somebody");
    assert_eq!(locks.bytes("a"), before);
    locks.does("1 unlock a", 0);
}

#[test]
fn without_a_place_for_the_journal_nothing_is_written() {
    let mut locks = Locks::new("normal");
    locks.does("1 lock a", 0);
    let before = locks.bytes("a");
    let (pid, a) = (locks.pid().to_string(), locks.truth("a").as_str().unwrap().to_owned());
    for home in [Some("/proc/nowhere"), None] {
        let mut command = tool().command(&["set", &pid, &a, "0", "--kind", "mutex", "--yes", "--json"]);
        command.env_remove("XDG_STATE_HOME").env_remove("HOME");
        if let Some(home) = home {
            command.env("HOME", home);
        }
        assert!(Answer::of(command).assert_refused().contains("journal"));
        assert_eq!(locks.bytes("a"), before);
    }
}

#[test]
fn strangers_are_refused() {
    if !is_root("strangers_are_refused", "to act as other users") {
        return;
    }
    let public = testkit::Public::new();
    let program = public.copy(&Build::new("set_locks.c").variant(Variant::Default).path(), "set_locks");
    let tool = public.copy(Path::new(env!("CARGO_BIN_EXE_tglass")), "tglass");
    let mut command = testkit::as_user(testkit::NOBODY, &program);
    command.arg("normal");
    let mut fixture = Fixture::command(command);
    assert_eq!(fixture.ask("1 lock a"), "1 lock a 0");
    let before = fixture.ask("bytes a");
    let (pid, a) = (fixture.pid().to_string(), fixture.truth()["a"].as_str().unwrap().to_owned());
    let mut command = testkit::as_user(testkit::STRANGER, &tool);
    command.args(["set", &pid, &a, "0", "--kind", "mutex", "--yes"]);
    assert!(Answer::of(command).assert_refused().contains("may not be changed"));
    assert_eq!(fixture.ask("bytes a"), before);
}

#[test]
fn killed_at_any_moment_it_leaves_nothing_stopped_or_traced() {
    testkit::needs_ptrace!();
    let mut locks = Locks::new("sem");
    let (pid, lwps) = (locks.pid(), [locks.lwp(1), locks.lwp(2), locks.lwp(3), locks.lwp(4)]);
    let (args, b) = ([pid.to_string(), locks.truth("b").as_str().unwrap().to_owned()], address(locks.truth("b")));
    let status = |lwp: i32, name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{lwp}/status")).unwrap();
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    };
    let count = || {
        let mut word = [0; 4];
        let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut word, b).unwrap();
        u32::from_le_bytes(word)
    };
    let is_in = |lwp: i32, call: &str| task_state(pid, lwp).is_some_and(|task| task.call.starts_with(call));
    let (mut while_held, mut written) = (0, 0);
    for round in 0..400u64 {
        for worker in 1..=4 {
            if !is_in(lwps[worker - 1], "202 ") {
                locks.blocks(&format!("{worker} wait b"));
            }
        }
        let mut child = tool()
            .command(&["set", &args[0], &args[1], "4", "--yes", "--json"])
            .env("XDG_STATE_HOME", locks.state.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut is_held = false;
        match round % 4 {
            0 => std::thread::sleep(std::time::Duration::from_micros(round * 997 % 60_000)),
            // In the middle of it: some are held, the first or all.
            which => {
                let lwp = if which == 1 { lwps[0] } else { lwps[3] };
                while !is_held && child.try_wait().unwrap().is_none() {
                    is_held = status(lwp, "TracerPid:") != "0";
                }
            }
        }
        let _ = child.kill();
        while_held += u32::from(!child.wait().unwrap().success() && is_held);
        for lwp in lwps {
            eventually("no thread should be stopped or traced", || {
                status(lwp, "TracerPid:") == "0" && !status(lwp, "State:").to_lowercase().starts_with('t')
            });
        }
        // Whoever was to be woken by a write has been: the kernel's release is a kick as well.
        eventually("all sleep on, or all were let in", || {
            let (asleep, back) = (|lwp| is_in(lwp, "202 "), |lwp| is_in(lwp, "0 "));
            count() == 0 && (lwps.into_iter().all(asleep) || lwps.into_iter().all(back))
        });
        if is_in(lwps[0], "0 ") {
            written += 1;
            for _ in lwps {
                assert!(locks.line().ends_with(" wait b 0"));
            }
        }
        if while_held >= 10 && written >= 3 && round >= 40 {
            return;
        }
    }
    panic!("of all kills {while_held} came while threads were held, {written} after a write");
}

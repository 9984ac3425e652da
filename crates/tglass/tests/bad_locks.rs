//! Addresses that are no locks, locks whose words lie, and targets that cannot be looked at.

use testkit::{Answer, Build, Fixture, Tool, Value, Variant, address, eventually};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn start() -> Fixture {
    Fixture::start(&Build::new("bad_locks.c").variant(Variant::Default).path(), &[]).settled()
}

fn locks_at(fixture: &Fixture, at: u64, more: &[&str]) -> Answer {
    let (pid, at) = (fixture.pid().to_string(), format!("{at:#x}"));
    let mut args = vec!["locks", &pid, "--json", "--address", &at];
    args.extend(more);
    tool().run(&args)
}

fn objects(snapshot: &Value) -> Vec<Value> {
    snapshot["objects"].as_array().cloned().unwrap_or_default()
}

/// Either a refusal in one line, or an answer that asserts no living holder.
fn is_careful(what: &str, answer: &Answer) {
    if answer.code == Some(2) {
        answer.assert_refused();
        return;
    }
    assert_eq!(answer.code, Some(0), "{what}: {}", answer.stderr);
    for object in objects(&answer.json()) {
        for holder in object["holders"].as_array().into_iter().flatten() {
            let is_asserted = holder["evidence"] == "recorded" || holder["evidence"] == "derived";
            assert!(!is_asserted || holder["status"] != "alive", "{what}: {object:#}");
        }
    }
}

#[test]
fn addresses_that_hold_no_lock() {
    let fixture = start();
    let truth = fixture.truth();
    for (what, at) in [
        ("unmapped", address(&truth["unmapped"])),
        ("null", 0),
        ("the first page", 64),
        ("the last byte", u64::MAX),
        ("the kernel's half", 0xffff_8000_0000_0000),
        ("a hole in the addresses", 0x0000_8000_0000_0000),
    ] {
        let answer = locks_at(&fixture, at, &[]);
        let line = answer.assert_refused();
        assert!(line.contains(&format!("{at:#x}")), "{what}: {line}");
    }
    let sound = address(&truth["sound"]);
    for (what, at) in [
        ("not aligned", sound + 1),
        ("not aligned", sound + 2),
        ("in text", address(&truth["text"]) & !7),
        ("in text, not aligned", address(&truth["text"]) | 3),
        ("at the edge of a mapping", address(&truth["edge"])),
        ("noise", address(&truth["noise"])),
        ("freed", address(&truth["freed"])),
    ] {
        is_careful(what, &locks_at(&fixture, at, &[]));
        for kind in ["mutex", "cond", "rwlock", "semaphore", "barrier", "spinlock", "once"] {
            is_careful(what, &locks_at(&fixture, at, &["--kind", kind]));
        }
    }
    // The control: at its beginning the lock is known, with its holder.
    let answer = locks_at(&fixture, sound, &[]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let found = objects(&answer.json());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((&found[0]["kind"], &found[0]["holders"][0]["lwp"]), (&"mutex".into(), &truth["holder"]));
}

/// Inside of an object there is not another one: it is refused, or the whole one is shown.
#[test]
fn the_middle_of_an_object() {
    let fixture = start();
    let sound = address(&fixture.truth()["sound"]);
    for offset in [4, 8, 16, 24, 32] {
        let answer = locks_at(&fixture, sound + offset, &[]);
        if answer.code == Some(2) {
            answer.assert_refused();
            continue;
        }
        for object in objects(&answer.json()) {
            assert_eq!(address(&object["address"]), sound, "+{offset}: {object:#}");
        }
    }
}

#[test]
fn owners_that_are_no_threads() {
    let fixture = start();
    let truth = fixture.truth();
    let pid = fixture.pid().to_string();
    let snapshot = tool().look("locks", &pid, &["--all"]);
    for (name, owner) in [("nobodys", "nobody"), ("nobodys_rwlock", "nobody"), ("strangers", "stranger")] {
        let all = objects(&snapshot);
        let object = all.iter().find(|object| object["address"] == truth[name]).unwrap_or_else(|| panic!("{name}"));
        let holders = object["holders"].as_array().unwrap();
        assert!(!holders.is_empty() || object["state"] == "unknown", "what the word says is shown: {object:#}");
        for holder in holders.iter().filter(|holder| holder["evidence"] != "inferred") {
            assert_ne!(holder["status"], "alive", "{object:#}");
            assert_eq!(holder["recorded"], truth[owner], "{object:#}");
            assert!(holder["thread"].is_null(), "{object:#}");
        }
    }
    // A type that there is not is not taken for a mutex with certainty.
    for object in objects(&snapshot).iter().filter(|object| object["address"] == truth["odd_kind"]) {
        assert!(object["kind"] != "mutex" || object["state"] == "unknown" || object["evidence"] != "recorded");
    }
    // Whatever it says about them, it does not call them a circle. A number that no thread can have is a
    // broken word, not an owner that has ended; and memory that was not inherited has no owner in the parent.
    let answer = tool().run(&["why", &pid, "--json"]);
    assert!([Some(0), Some(1)].contains(&answer.code), "{}", answer.stderr);
    let snapshot = answer.json();
    for finding in snapshot["findings"].as_array().unwrap() {
        let kind = finding["kind"].as_str().unwrap();
        assert!(!["deadlock", "self_deadlock", "owner_is_fork_parent"].contains(&kind), "{finding:#}");
        let is_about = |name: &str| finding["objects"].as_array().unwrap().contains(&truth[name]);
        let is_nobodys = is_about("nobodys") || is_about("nobodys_rwlock");
        assert!(!is_nobodys || finding["certainty"] != "certain", "{finding:#}");
    }
}

#[test]
fn words_that_mean_nothing() {
    let pid = std::process::id().to_string();
    for (option, value) in [
        ("--kind", "lock"),
        ("--kind", ""),
        ("--address", ""),
        ("--address", "0xzz"),
        ("--address", "-1"),
        ("--address", "0x1ffffffffffffffff"),
    ] {
        let answer = tool().run(&["locks", &pid, &format!("{option}={value}")]);
        assert_eq!(answer.code, Some(2), "{option}={value}: {}", answer.text());
        assert!(answer.stderr.contains(option) && !answer.stderr.contains("panicked"), "{}", answer.stderr);
    }
    for verb in ["locks", "why"] {
        for target in ["0", "-1", "abc", "", "0x10", "99999999999999999999"] {
            let answer = tool().run(&[verb, target]);
            assert_eq!(answer.code, Some(2), "{verb} {target}: {}", answer.stderr);
            assert!(answer.stdout.is_empty() && !answer.stderr.contains("panicked"), "{}", answer.stderr);
        }
    }
}

#[test]
fn targets_that_cannot_be_looked_at() {
    // Above the largest pid_max there is.
    let nobody = "4194305";
    for verb in ["locks", "why"] {
        let answer = tool().run(&[verb, nobody]);
        assert!(answer.assert_refused().contains("no process 4194305"), "{}", answer.stderr);
    }
    let mut fixture = start();
    fixture.kill();
    eventually("the fixture should become a zombie", || {
        testkit::task_state(fixture.pid(), fixture.pid()).is_some_and(|task| task.letter == 'Z')
            && std::fs::read_dir(format!("/proc/{}/task", fixture.pid())).is_ok_and(|tasks| tasks.count() == 1)
    });
    for verb in ["locks", "why"] {
        let answer = tool().run(&[verb, &fixture.pid().to_string()]);
        assert!(answer.assert_refused().contains("zombie"), "{}", answer.stderr);
    }
    // A file that is no core.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "not a core").unwrap();
    for verb in ["locks", "why"] {
        tool().run(&[verb, &file.path().display().to_string()]).assert_refused();
    }
}

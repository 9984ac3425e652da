//! The JSON that programs rely on, and the screens that people read.

use testkit::{Fixture, Tool, Value, any_of, ensure, threads};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn is_address(value: &Value) -> bool {
    value.as_str().is_some_and(|text| {
        text.strip_prefix("0x").is_some_and(|digits| !digits.is_empty() && u64::from_str_radix(digits, 16).is_ok())
    })
}

/// A member that is there, and is null only where that is allowed.
fn member<'a>(thread: &'a Value, name: &str) -> &'a Value {
    thread.get(name).unwrap_or_else(|| panic!("no member {name}: {thread:#}"))
}

#[test]
fn threads_have_the_documented_members() {
    let fixture = Fixture::new("threads_truth.c").settled();
    let snapshot = tool().threads(fixture.pid(), &[]);
    assert_eq!(snapshot["schema"], "threadglass/1");
    assert_eq!(snapshot["pause_us"], 0);
    assert!(snapshot["gaps"].is_array());
    assert_eq!(snapshot["target"]["pid"], fixture.pid());
    assert_eq!(snapshot["target"]["libc"]["kind"], "glibc");
    assert!(snapshot["taken_at_ms"].as_u64().is_some_and(|ms| ms > 1_600_000_000_000));
    let states = ["unknown", "stopped", "run", "active", "zombie", "sleep", "stopped_asleep"];
    for thread in threads(&snapshot) {
        assert!(is_address(member(thread, "id")), "{thread:#}");
        assert!(states.contains(&member(thread, "state").as_str().unwrap()));
        let zombie = thread["state"] == "zombie";
        assert_eq!(member(thread, "lwp").is_i64(), !zombie);
        assert_eq!(member(thread, "name").is_string(), !zombie);
        assert_eq!(member(thread, "priority").is_i64(), !zombie);
        for name in ["signal_mask", "pending"] {
            let set = member(thread, name);
            assert!(zombie || set.as_array().unwrap().iter().all(|s| s.as_str().unwrap().starts_with("SIG")), "{set}");
        }
        let asleep = thread["state"] == "sleep";
        for name in ["pc", "sp"] {
            assert_eq!(is_address(member(thread, name)), asleep, "{name}: {thread:#}");
        }
        assert!(is_address(member(thread, "start")) || thread["lwp"] == fixture.pid(), "{thread:#}");
        assert!(is_address(&member(thread, "stack")["base"]) && thread["stack"]["size"].is_u64(), "{thread:#}");
    }
    // The main thread first, those without an LWP last.
    assert_eq!(threads(&snapshot)[0]["lwp"], fixture.pid());
    assert!(threads(&snapshot).last().unwrap()["lwp"].is_null());
}

#[test]
fn tsd_and_doctor_have_the_same_frame() {
    let fixture = Fixture::new("tsd.c").settled();
    let tsd = tool().tsd(fixture.pid());
    assert_eq!((&tsd["schema"], &tsd["pause_us"]), (&"threadglass/1".into(), &0.into()));
    assert!(tsd["gaps"].is_array() && tsd["keys"].is_array() && tsd["threads"].is_array());
    let pid = fixture.pid().to_string();
    for args in [vec!["doctor", "--json"], vec!["doctor", &pid, "--json"]] {
        let answer = tool().run(&args);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        let doctor = answer.json();
        assert_eq!(doctor["schema"], "threadglass/1");
        assert!(doctor["host"].as_array().is_some_and(|host| host.len() > 3), "{doctor:#}");
        for check in doctor["host"].as_array().unwrap() {
            assert!(["ok", "limited", "no"].contains(&check["verdict"].as_str().unwrap()), "{check:#}");
            // What does not work comes with its fix.
            assert_eq!(check["verdict"] == "ok", check["fix"].is_null(), "{check:#}");
        }
    }
}

#[test]
fn screens_have_no_colour_when_nobody_watches() {
    let fixture = Fixture::new("threads_truth.c").settled();
    let pid = fixture.pid().to_string();
    for args in [vec!["threads", &pid], vec!["tsd", &pid], vec!["doctor", &pid], vec!["doctor"]] {
        let answer = tool().run(&args);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        assert!(!answer.stdout.contains(&0x1b), "{args:?}: {}", answer.text());
        assert!(answer.stderr.is_empty(), "{args:?}: {}", answer.stderr);
    }
    let text = tool().run(&["threads", &pid]).text();
    assert!(text.contains("0 us pause"), "the screen says what the look cost the target: {text}");
    for truth in threads(fixture.truth()).iter().filter(|truth| !truth["lwp"].is_null()) {
        let row = text.lines().find(|line| line.trim_start().starts_with(&format!("{} ", truth["lwp"])));
        let row = row.unwrap_or_else(|| panic!("{} has no row: {text}", truth["role"]));
        assert!(row.contains(truth["id"].as_str().unwrap()) && row.contains(truth["name"].as_str().unwrap()), "{row}");
    }
}

/// `tglass threads PID | head -1`: the reader's right.
#[test]
fn a_reader_who_leaves_is_no_error() {
    let fixture = Fixture::new("threads_truth.c").settled();
    for json in [&[][..], &["--json"]] {
        let pid = fixture.pid().to_string();
        let mut command = tool().command(&["threads", &pid]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.args(json).stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_demo_explains_a_deadlock() {
    let snapshot = demo();
    let finding = &snapshot["findings"][0];
    assert_eq!((finding["kind"].as_str(), finding["certainty"].as_str()), (Some("deadlock"), Some("certain")));
    let name = |lwp: &Value| {
        threads(&snapshot).iter().find(|thread| thread["lwp"] == *lwp).and_then(|thread| thread["name"].as_str())
    };
    let names: Vec<_> = finding["threads"].as_array().unwrap().iter().filter_map(name).collect();
    assert!(names.contains(&"transfer") && names.contains(&"audit"), "{names:?}");
    assert_eq!(finding["behind"].as_array().unwrap().len(), 3);
    any_of(10, || {
        let text = tool().run(&["demo"]).text();
        ensure(text.contains("\nDEADLOCK") && text.contains("LEDGER"), || text.clone())
    });
}

/// A look at the demo with all its threads in place. It gives them 50 ms to come there: a busy machine may need more, and
/// then they are not all seen, so of ten tries one counts.
fn demo() -> Value {
    any_of(10, || {
        let answer = tool().run(&["demo", "--json"]);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        let snapshot = answer.json();
        let waits = threads(&snapshot).iter().filter(|one| !one["waits_for"].is_null()).count();
        ensure(waits == 5 && !snapshot["findings"][0].is_null(), || format!("{waits} wait: {snapshot:#}"))?;
        Ok(snapshot)
    })
}

/// What later versions add to is there already: members beside the lists, a kind of every wait, a stop.
#[test]
fn findings_waits_and_stops_can_grow() {
    let snapshot = demo();
    let finding = &snapshot["findings"][0];
    let list = |name: &str| finding[name].as_array().unwrap().clone();
    let (threads_of, objects, members) = (list("threads"), list("objects"), list("members"));
    assert_eq!((threads_of.len(), objects.len()), (members.len(), members.len()), "{finding:#}");
    for ((lwp, object), member) in threads_of.iter().zip(&objects).zip(&members) {
        assert_eq!((&member["lwp"], &member["object"]), (lwp, object), "{finding:#}");
        assert_eq!(member["pid"], snapshot["target"]["pid"], "{finding:#}");
    }
    let waits: Vec<_> = threads(&snapshot).iter().map(|one| &one["waits_for"]).filter(|one| !one.is_null()).collect();
    assert!(waits.len() >= 5 && waits.iter().all(|wait| wait["kind"].is_string()), "{waits:#?}");
    assert!(threads(&snapshot).iter().all(|one| member(one, "stop").is_null()), "nothing is stopped");
}

/// What can be done about a gap is said in words, and as a kind.
#[test]
fn gaps_say_what_to_do() {
    let fixture = Fixture::new("progress.c");
    let pid = fixture.pid().to_string();
    let snapshot = tool().run(&["threads", &pid, "--stacks", "--json"]).json();
    let gaps = snapshot["gaps"].as_array().unwrap();
    let stack = gaps.iter().find(|gap| gap["what"] == "stack").unwrap_or_else(|| panic!("{gaps:#?}"));
    assert!(["stop_thread", "retry_or_stop"].contains(&stack["remedy"]["kind"].as_str().unwrap()), "{stack:#}");
    assert!(stack["why"].as_str().unwrap().contains("--stop"), "{stack:#}");
}

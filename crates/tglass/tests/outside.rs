//! `tglass why` on waits that leave the process: who is at the other end, and circles of processes.

use testkit::{
    Answer, Build, Fixture, NOBODY, Public, Tool, Value, Variant, any_of, as_user, ensure, eventually, have, is_root,
    threads,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// What `why` says of a scene, once its process has gone to sleep, and the process at the other end.
fn scene(name: &str, check: impl Fn(&Value, i64) -> Result<(), String>) {
    let fixture = Fixture::start(&Build::new("outside.c").path(), &[name]);
    let other = fixture.truth()["other"].as_i64().expect("a pid");
    // Both have come to their last call once a look is right; from there on each is.
    let look = || {
        let snapshot = tool().look("why", &fixture.pid().to_string(), &[]);
        check(&snapshot, other).map_err(|fault| format!("{name}: {fault}: {}", snapshot["verdict"]))
    };
    any_of(20, look);
    for _ in 0..3 {
        look().unwrap_or_else(|fault| panic!("{fault}"));
    }
}

/// The process that the only wait of the kind leads to.
fn partner(snapshot: &Value, kind: &str) -> Result<i64, String> {
    let waits: Vec<&Value> = threads(snapshot).iter().map(|thread| &thread["waits_outside"]).collect();
    let wait = waits.iter().find(|wait| wait["kind"] == kind).ok_or_else(|| format!("no wait for a {kind}"))?;
    match wait["partners"].as_array().map(Vec::as_slice) {
        Some([one]) => Ok(one["pid"].as_i64().expect("a pid")),
        _ => Err(format!("{wait}")),
    }
}

#[test]
fn who_is_at_the_other_end() {
    for (name, kind) in
        [("unix", "socket"), ("tcp", "socket"), ("flock", "file_lock"), ("posix", "file_lock"), ("child", "child")]
    {
        scene(name, |snapshot, other| {
            let found = partner(snapshot, kind)?;
            ensure(found == other, || format!("{found}, not {other}"))?;
            // Each waits for the other one's bytes: that is a circle.
            let expected = if name == "unix" { "deadlock" } else { "other_process" };
            ensure(snapshot["verdict"]["kind"] == expected, || expected.to_owned())?;
            let text = snapshot["verdict"]["text"].as_str().expect("a text");
            ensure(text.contains(&format!("(pid {other})")), || text.to_owned())
        });
    }
}

#[test]
fn a_server_whose_threads_wait_for_each_other() {
    scene("client", |snapshot, other| {
        ensure(partner(snapshot, "socket")? == other, || "another partner".to_owned())?;
        ensure(snapshot["verdict"]["kind"] == "other_process", || "another kind".to_owned())?;
        let text = snapshot["verdict"]["text"].as_str().expect("a text");
        ensure(text.contains("which has 2 threads: 2 threads wait for each other"), || text.to_owned())
    });
}

#[test]
fn threads_behind_one_that_waits_for_another_process() {
    scene("behind", |snapshot, other| {
        ensure(snapshot["verdict"]["kind"] == "behind", || "not behind".to_owned())?;
        ensure(partner(snapshot, "pipe")? == other, || "another partner".to_owned())?;
        let text = snapshot["verdict"]["text"].as_str().expect("a text");
        ensure(text.contains(&format!("(pid {other})")), || text.to_owned())
    });
}

#[test]
fn processes_that_fill_each_others_pipes() {
    scene("pipes", |snapshot, other| {
        ensure(snapshot["verdict"]["kind"] == "deadlock", || "no deadlock".to_owned())?;
        let finding = &snapshot["findings"][0];
        ensure(finding["kind"] == "process_circle", || finding.to_string())?;
        let pids: Vec<i64> = finding["members"]
            .as_array()
            .expect("members")
            .iter()
            .filter_map(|member| member["pid"].as_i64())
            .collect();
        ensure(pids == [snapshot["target"]["pid"].as_i64().expect("a pid"), other], || format!("{pids:?}"))
    });
}

/// The pids of the circle that a look has found, and how sure it is.
fn circle(snapshot: &Value) -> Result<(Vec<i64>, &str), String> {
    let finding = &snapshot["findings"][0];
    ensure(finding["kind"] == "process_circle", || finding.to_string())?;
    let members = finding["members"].as_array().expect("members");
    let mut pids: Vec<i64> = members.iter().filter_map(|member| member["pid"].as_i64()).collect();
    pids.sort_unstable();
    pids.dedup();
    Ok((pids, finding["certainty"].as_str().expect("a word")))
}

#[test]
fn circles_of_locks_descriptors_and_children() {
    for (name, certainty) in [("mixed", "likely"), ("mixed_idle", "possible"), ("client_with_lock", "likely")] {
        scene(name, |snapshot, other| {
            let (pids, sure) = circle(snapshot)?;
            let own = snapshot["target"]["pid"].as_i64().expect("a pid");
            let mut expected = [own, other];
            expected.sort_unstable();
            ensure(pids == expected, || format!("{pids:?}, not {expected:?}"))?;
            ensure(sure == certainty, || sure.to_owned())
        });
    }
}

/// Two that read from each other do not hang as long as a third could speak.
#[test]
fn a_third_that_has_the_socket() {
    scene("third", |snapshot, other| {
        ensure(snapshot["verdict"]["kind"] == "other_process", || "another kind".to_owned())?;
        ensure(partner(snapshot, "socket")? == other, || "another partner".to_owned())?;
        ensure(snapshot["findings"].as_array().is_some_and(Vec::is_empty), || snapshot["findings"].to_string())
    });
}

#[test]
fn the_other_end_of_a_fifo() {
    scene("fifo", |snapshot, other| ensure(partner(snapshot, "pipe")? == other, || "another partner".to_owned()));
}

/// Who holds a mutex in shared memory is shown with the stack.
#[test]
fn the_stack_of_a_holder_in_another_process() {
    scene("shared", |snapshot, other| {
        let strangers = snapshot["strangers"].as_array().expect("a list");
        let [stranger] = strangers.as_slice() else { return Err(format!("{} strangers", strangers.len())) };
        ensure(stranger["pid"] == other, || stranger["pid"].to_string())?;
        let frames = stranger["thread"]["frames"].as_array().expect("frames");
        ensure(frames.iter().any(|frame| frame["function"] == "hold_for_ever"), || format!("{frames:?}"))
    });
}

/// Who has to act, by what is on the way.
#[test]
fn who_owes_an_answer() {
    let wait = |snapshot: &Value| {
        let wait = threads(snapshot).iter().map(|thread| thread["waits_outside"].clone()).find(|wait| !wait.is_null());
        wait.ok_or_else(|| "no wait".to_owned())
    };
    scene("lost", |snapshot, other| {
        let wait = wait(snapshot)?;
        ensure(wait["owed_by"] == other && wait["unread"] == 0, || wait.to_string())?;
        ensure(wait["partners"][0]["lwp"] == other, || wait.to_string())
    });
    scene("slow", |snapshot, other| {
        let wait = wait(snapshot)?;
        ensure(wait["direction"] == "output" && wait["unread"].as_u64() > Some(0), || wait.to_string())?;
        ensure(wait["text"].as_str().is_some_and(|it| it.contains(&format!("(pid {other}) is the slow side"))), || {
            wait.to_string()
        })
    });
    scene("unaccepted", |snapshot, other| {
        ensure(partner(snapshot, "socket")? == other, || "another partner".to_owned())?;
        let wait = wait(snapshot)?;
        ensure(wait["text"].as_str().is_some_and(|text| text.contains("has not been accepted")), || wait.to_string())
    });
}

/// `threads` names who is at the other end.
#[test]
fn the_screen_of_threads() {
    let fixture = Fixture::start(&Build::new("outside.c").path(), &["slow"]);
    let other = fixture.truth()["other"].as_i64().expect("a pid");
    eventually("the other end should be named", || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tglass"));
        command.args(["threads", &fixture.pid().to_string(), "--wide"]);
        let text = Answer::of(command).text();
        text.contains("unix socket to") && text.contains(&format!("({other})"))
    });
}

#[test]
fn a_pipe_whose_other_end_is_its_own() {
    scene("alone", |snapshot, _| {
        ensure(snapshot["verdict"]["kind"] == "nobody_left", || "somebody is left".to_owned())?;
        let wait = threads(snapshot).iter().map(|thread| &thread["waits_outside"]).find(|wait| !wait.is_null());
        ensure(wait.is_some_and(|wait| wait["partners"].as_array().is_some_and(Vec::is_empty)), || format!("{wait:?}"))
    });
}

fn says(snapshot: &Value, what: &str) -> Result<(), String> {
    let text = snapshot["verdict"]["text"].as_str().expect("a text");
    ensure(text.contains(what), || format!("no {what:?}"))
}

/// A file lock that the process has by another of its descriptors.
#[test]
fn a_file_lock_of_its_own() {
    scene("own_lock", |snapshot, descriptor| {
        ensure(snapshot["verdict"]["kind"] == "nobody_left", || "somebody is left".to_owned())?;
        says(snapshot, &format!("the process itself holds the lock, by its descriptor {descriptor}"))
    });
}

#[test]
fn a_fifo_that_nobody_else_opens() {
    scene("unopened", |snapshot, _| {
        ensure(snapshot["verdict"]["kind"] == "other_process", || "another kind".to_owned())?;
        says(snapshot, "nobody has opened the other end of the FIFO /tmp/tg-unopened-")
    });
}

/// `splice` waits at one of two descriptors.
#[test]
fn bytes_that_are_moved() {
    for name in ["move_from_empty", "move_to_full"] {
        scene(name, |snapshot, other| {
            ensure(snapshot["verdict"]["kind"] == "other_process", || "another kind".to_owned())?;
            ensure(partner(snapshot, "pipe")? == other, || "another partner".to_owned())
        });
    }
}

#[test]
fn a_queue_of_connections_that_is_full() {
    for name in ["full_tcp", "full_unix"] {
        scene(name, |snapshot, other| {
            ensure(partner(snapshot, "socket")? == other, || "another partner".to_owned())?;
            says(snapshot, "the queue is full: 1 connection waits to be accepted by")
        });
    }
}

/// It is in the state of those who wait for the disk, and does not.
#[test]
fn a_parent_in_vfork() {
    scene("vfork", |snapshot, _| {
        ensure(snapshot["verdict"]["kind"] == "other_process", || "another kind".to_owned())?;
        partner(snapshot, "child").map(drop)
    });
    let fixture = Fixture::start(&Build::new("outside.c").path(), &["vfork"]);
    let kind = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tglass"));
        command.args(["why", "--json", "--all"]);
        let seen = Answer::of(command).json();
        let list = seen["processes_to_see"].as_array().expect("a list");
        list.iter().find(|it| it["pid"] == fixture.pid()).map(|it| it["verdict"]["kind"].clone())
    };
    eventually("it should wait for its child", || kind().is_some());
    // From a second on a thread that waits for the disk is worth a look.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    assert_eq!(kind(), Some(Value::from("other_process")));
}

/// Who may not look into all processes does not know that nobody else has the other end.
#[test]
fn what_an_ordinary_user_cannot_see() {
    let test = "what_an_ordinary_user_cannot_see";
    if !is_root(test, "to become another user") || !have(test, "setpriv") {
        return;
    }
    let public = Public::new();
    let program = public.copy(&Build::new("outside.c").variant(Variant::Default).path(), "program");
    let tglass = public.copy(env!("CARGO_BIN_EXE_tglass").as_ref(), "tglass");
    let mut command = as_user(NOBODY, &program);
    command.arg("alone");
    let fixture = Fixture::command(command);
    let mut last = Value::Null;
    eventually("it should be asleep in read", || {
        let mut command = as_user(NOBODY, &tglass);
        command.args(["why", &fixture.pid().to_string(), "--json"]);
        last = Answer::of(command).json();
        threads(&last).iter().any(|thread| !thread["waits_outside"].is_null())
    });
    assert_ne!(last["verdict"]["kind"], "nobody_left", "{last:#}");
    let text = threads(&last).iter().find_map(|thread| thread["waits_outside"]["text"].as_str()).expect("a wait");
    assert!(text.contains("cannot be seen"), "{text}");
}

/// Removes what System V keeps beyond the end of a process.
struct Leftovers(Value);

impl Drop for Leftovers {
    fn drop(&mut self) {
        for (option, member) in [("-q", "queue"), ("-s", "semaphore")] {
            let _ = std::process::Command::new("ipcrm").arg(option).arg(self.0[member].to_string()).status();
        }
    }
}

/// Every wait has a kind, alive and in a core as far as that tells.
#[test]
fn the_kinds_of_waits() {
    let fixture = Fixture::start(&Build::new("wait_kinds.c").path(), &[]);
    let _leftovers = Leftovers(fixture.truth().clone());
    let snapshot = tool().look("why", &fixture.pid().to_string(), &[]);
    for (lwp, kind) in fixture.truth()["kinds"].as_object().expect("kinds") {
        let lwp: i64 = lwp.parse().expect("an LWP");
        let thread = threads(&snapshot).iter().find(|thread| thread["lwp"] == lwp).expect("a thread");
        assert_eq!(thread["waits_outside"]["kind"], *kind, "{thread:#}");
    }
}

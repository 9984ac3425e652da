//! `tglass why` where several processes could be meant, and one of them is.

use std::process::Command;
use testkit::{Answer, Build, Fixture, Tool, Value, any_of, ensure, threads};

/// A scene, and what `why` says of it once its processes have gone to sleep.
fn scene(name: &str, check: impl Fn(&Value, i64) -> Result<(), String>) -> Fixture {
    scene_of("partners.c", name, check)
}

fn scene_of(file: &str, name: &str, check: impl Fn(&Value, i64) -> Result<(), String>) -> Fixture {
    let fixture = Fixture::start(&Build::new(file).path(), &[name]);
    let truth = |member: &str| fixture.truth()[member].as_i64().expect("a number");
    let look = || {
        let snapshot = Tool::new(env!("CARGO_BIN_EXE_tglass")).look("why", &truth("self").to_string(), &[]);
        check(&snapshot, truth("other")).map_err(|fault| format!("{name}: {fault}: {}", snapshot["verdict"]))
    };
    any_of(20, look);
    for _ in 0..2 {
        look().unwrap_or_else(|fault| panic!("{fault}"));
    }
    fixture
}

/// The waits that leave the process.
fn waits(snapshot: &Value) -> Vec<&Value> {
    threads(snapshot).iter().map(|thread| &thread["waits_outside"]).filter(|wait| !wait.is_null()).collect()
}

/// The only one that a wait of the kind leads to, and how it is known.
fn partner<'s>(snapshot: &'s Value, kind: &str) -> Result<(i64, &'s str), String> {
    let wait = waits(snapshot).into_iter().find(|wait| wait["kind"] == kind).ok_or(format!("no wait for a {kind}"))?;
    match wait["partners"].as_array().map(Vec::as_slice) {
        Some([one]) => Ok((one["pid"].as_i64().expect("a pid"), one["evidence"].as_str().expect("a word"))),
        _ => Err(format!("{wait}")),
    }
}

#[test]
fn one_of_several() {
    for (name, kind, evidence) in [
        ("parts", "file_lock", "derived"),
        ("group", "child", "derived"),
        ("by_descriptor", "child", "recorded"),
        ("polled", "child", "recorded"),
        ("traces", "child", "recorded"),
        ("told", "child", "inferred"),
        ("ended_main", "pipe", "derived"),
    ] {
        scene(name, |snapshot, other| {
            let found = partner(snapshot, kind)?;
            ensure(found == (other, evidence), || format!("{found:?}, not {other}"))?;
            ensure(snapshot["verdict"]["kind"] == "other_process", || "another verdict".to_owned())
        });
    }
}

/// Of the children of one that is in `vfork`, it waits for the one that uses its memory.
#[test]
fn the_child_that_was_started_last() {
    scene("last_child", |snapshot, _| {
        partner(snapshot, "child")?;
        let text = snapshot["verdict"]["text"].as_str().expect("a text");
        ensure(text.contains("which is sleeping for a time"), || text.to_owned())
    });
}

/// A chain goes on through a process that waits for two others: one of them is where it came from.
#[test]
fn one_that_passes_bytes_on() {
    scene("relay", |snapshot, third| {
        let text = snapshot["verdict"]["text"].as_str().expect("a text");
        let end = format!("(pid {third}), which is sleeping for a time");
        ensure(text.contains("besides for this") && text.contains(&end), || text.to_owned())
    });
}

/// A process that has the other end, too, does not hide the circle.
#[test]
fn a_circle_through_a_pipe_that_both_could_read() {
    scene("both_could_read", |snapshot, parent| {
        ensure(snapshot["verdict"]["kind"] == "deadlock", || "another verdict".to_owned())?;
        let findings = snapshot["findings"].as_array().expect("a list");
        let is_circle = |it: &&Value| it["kind"] == "process_circle";
        let circle = findings.iter().find(is_circle).ok_or("no circle of processes")?;
        let members = circle["members"].as_array().expect("members");
        ensure(members.iter().any(|member| member["pid"] == parent), || format!("{circle}"))
    });
}

/// A socket that anybody may send or connect to has an address.
#[test]
fn sockets_without_another_end() {
    for (name, call, what) in
        [("listens", "accept", "TCP, listening on 127.0.0.1:"), ("datagrams", "recvfrom", "UDP, at 127.0.0.1:")]
    {
        let fixture = scene(name, |snapshot, port| {
            let found: Vec<&Value> = waits(snapshot).into_iter().map(|wait| &wait["what"]).collect();
            ensure(found == [&Value::from(format!("{what}{port}"))], || format!("{found:?}"))
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_tglass"));
        command.args(["threads", &fixture.pid().to_string(), "--wide"]);
        let text = Answer::of(command).text();
        assert!(text.contains(&format!("{call} 3: {what}")), "{text}");
    }
}

fn says(snapshot: &Value, what: &str) -> Result<(), String> {
    let text = snapshot["verdict"]["text"].as_str().expect("a text");
    ensure(text.contains(what), || format!("no {what:?} in {text:?}"))
}

/// What processes share beside pipes and sockets.
#[test]
fn terminals_eventfds_queues_and_semaphores() {
    for (name, kind, evidence, what) in [
        ("eventfd", "eventfd", "derived", "it is also open in"),
        ("polled_eventfd", "eventfd", "derived", "it is also open in"),
        ("empty_queue", "message_queue", "inferred", "is empty; who sent to it last is"),
        ("full_queue", "message_queue", "inferred", "who received from it last is"),
        ("semaphore", "semaphore", "inferred", "is 0, 1 is to be taken; who changed it last is"),
        ("named_queue", "message_queue", "derived", "is empty; to send to it, it is open in"),
        ("terminal", "terminal", "derived", "input from terminal /dev/pts/"),
        ("front_of_terminal", "terminal", "derived", "in whose foreground is"),
    ] {
        scene_of("shared.c", name, |snapshot, other| {
            let found = partner(snapshot, kind)?;
            ensure(found == (other, evidence), || format!("{found:?}, not {other}"))?;
            ensure(snapshot["verdict"]["kind"] == "other_process", || "another verdict".to_owned())?;
            says(snapshot, what)
        });
    }
}

#[test]
fn what_leads_to_no_process() {
    for (name, kind, what) in [
        ("semaphore_of_ended", "other_process", "who changed it last (pid "),
        ("own_eventfd", "nobody_left", "no other process has it"),
        ("own_fifo", "idle", "any process may open it"),
        ("inotify", "idle", "any process may change the files that it watches"),
    ] {
        scene_of("shared.c", name, |snapshot, other| {
            ensure(snapshot["verdict"]["kind"] == kind, || format!("not {kind}"))?;
            let ended = if other == 0 { String::new() } else { format!("(pid {other}) has ended") };
            says(snapshot, what).and_then(|()| says(snapshot, &ended))
        });
    }
}

/// A terminal may be full as a pipe may be, while the one that should read waits for the writer's end.
#[test]
fn a_circle_through_a_terminal() {
    scene_of("shared.c", "full_terminal", |snapshot, parent| {
        let finding = &snapshot["findings"][0];
        ensure(finding["kind"] == "process_circle", || finding.to_string())?;
        let members = finding["members"].as_array().expect("members");
        ensure(members.iter().any(|member| member["pid"] == parent), || finding.to_string())
    });
}

/// To continue a job that wants the terminal of others would only stop it again.
#[test]
fn a_background_job_that_reads_from_its_terminal() {
    scene_of("shared.c", "background", |snapshot, leader| {
        ensure(snapshot["verdict"]["kind"] == "stopped", || "another verdict".to_owned())?;
        says(snapshot, "a background job that wants to read from its terminal /dev/pts/")?;
        let way_out = snapshot["verdict"]["way_out"].as_str().expect("a way out");
        ensure(way_out.starts_with("fg in ") && way_out.contains(&format!("(pid {leader})")), || way_out.to_owned())?;
        let background = &threads(snapshot)[0]["stop"]["background"];
        ensure(background["reads"] == true && background["foreground"][0]["pid"] == leader, || background.to_string())
    });
}

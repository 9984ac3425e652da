//! `tglass why` on threads that run, that cannot run, and that wait without sleeping.

use testkit::{Build, Dumpable, Fixture, Freezer, Signal, Tool, Value, any_of, ensure, signal, skip, threads};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// Whether threads can be sampled here; without that the gap says so.
fn is_watched(snapshot: &Value, what: &str) -> bool {
    let gaps = snapshot["gaps"].as_array().expect("gaps");
    let refused = gaps.iter().find(|gap| gap["what"] == "where running threads run");
    if let Some(gap) = refused {
        skip(what, gap["why"].as_str().unwrap_or_default());
    }
    refused.is_none()
}

/// The way to wait, the function that waits, and what for.
const SPINS: [(&str, &str, Option<&str>); 10] = [
    ("word", "wait_for_word", Some("ready_word")),
    ("flag", "wait_for_flag", Some("taken")),
    ("lock", "wait_for_lock", Some("spinlock table_lock")),
    ("yield", "yield", Some("ready_word")),
    ("item", "wait_for_item", Some("queue.tail")),
    ("turn", "wait_for_turn", Some("now_serving")),
    ("door", "try_the_door", Some("mutex door")),
    ("compute", "compute", None),
    ("add_up", "add_up", None),
    ("search", "search", None),
];

#[test]
fn what_a_thread_spins_for() {
    for level in ["-O0", "-O2"] {
        let program = Build::new("spins.c").flags(&[level, "-g"]).path();
        for (way, function, what) in SPINS {
            if !spins_for(&program, way, function, what) {
                return;
            }
        }
    }
}

/// A core has one moment of each thread, and all of its registers.
#[test]
fn what_a_thread_of_a_core_spun_for() {
    for level in ["-O0", "-O2"] {
        let program = Build::new("spins.c").flags(&[level, "-g"]).path();
        for (way, function, what) in SPINS {
            // The thread may not have come to its loop yet.
            let is_done = any_of(10, || {
                let dumpable = Dumpable::start(&program, &[way]);
                let Some(core) = dumpable.kernel_core("running::what_a_thread_of_a_core_spun_for") else {
                    return Ok(false);
                };
                let snapshot = tool().look("why", &core.name(), &[]);
                let text = snapshot["verdict"]["text"].as_str().expect("a text");
                ensure(text.contains(function), || format!("{way} {level}: {text}"))?;
                let mut spins = threads(&snapshot).iter().map(|thread| &thread["watched"]["spins"]);
                let name = spins.find(|it| !it.is_null()).and_then(|spins| spins["name"].as_str());
                assert!(name.is_none() || name == what, "{way} {level}: {text}");
                ensure(name == what, || format!("{way} {level}: {text}"))?;
                Ok(true)
            });
            if !is_done {
                return;
            }
        }
    }
}

/// Threads that sleep again and again until a word changes, and others that sleep again and again.
#[test]
fn what_a_thread_polls() {
    let ways = [
        ("poll_word", Some("ready_word")),
        ("poll_door", Some("mutex door")),
        ("tick", None),
        ("work_and_sleep", None),
    ];
    for level in ["-O0", "-O2"] {
        let program = Build::new("spins.c").flags(&[level, "-g"]).path();
        for (way, what) in ways {
            let fixture = Fixture::start(&program, &[way]);
            // It may be awake each time it is looked at.
            any_of(10, || {
                let snapshot = tool().look("why", &fixture.pid().to_string(), &[]);
                let mut polls =
                    threads(&snapshot).iter().map(|thread| &thread["polls"]).filter(|polls| !polls.is_null());
                let found = polls.next();
                let is_right = found.is_some_and(|polls| polls["name"].as_str() == what && polls["sleeps"] == true);
                ensure(if what.is_some() { is_right } else { found.is_none() }, || {
                    format!("{way} {level}: {found:?}")
                })?;
                if way == "poll_door" {
                    let held_by = &found.expect("a poll")["held_by"];
                    ensure(held_by.as_i64() == Some(fixture.pid().into()), || format!("{way} {level}: {held_by}"))?;
                    ensure(snapshot["verdict"]["kind"] == "behind", || snapshot["verdict"].to_string())?;
                }
                Ok(())
            });
        }
    }
}

/// Checks one way; false if threads cannot be sampled here.
fn spins_for(program: &std::path::Path, way: &str, function: &str, what: Option<&str>) -> bool {
    let fixture = Fixture::start(program, &[way]);
    // Samples come by CPU time, of which a busy machine may give the thread little.
    any_of(10, || {
        let snapshot = tool().look("why", &fixture.pid().to_string(), &[]);
        if !is_watched(&snapshot, "what_a_thread_spins_for") {
            return Ok(false);
        }
        let verdict = &snapshot["verdict"];
        ensure(verdict["kind"] == "busy", || format!("{way}: {verdict}"))?;
        let running = threads(&snapshot).iter().find(|thread| !thread["watched"].is_null());
        let running = running.ok_or_else(|| format!("{way}: nobody was watched"))?;
        let frames = running["frames"].as_array().expect("frames");
        ensure(frames.iter().any(|frame| frame["function"] == function), || format!("{way}: {frames:?}"))?;
        let spins = &running["watched"]["spins"];
        match what {
            None => assert!(spins.is_null(), "{way}: {spins}"),
            Some(name) => {
                ensure(spins["name"] == name, || format!("{way}: {running}"))?;
                let yields = matches!(way, "yield" | "door");
                assert_eq!(spins["yields"], yields, "{way}: {spins}");
            }
        }
        let text = verdict["text"].as_str().expect("a text");
        assert!(text.contains(function), "{text}");
        Ok(true)
    })
}

#[test]
fn a_frozen_process_is_stopped_whatever_it_did() {
    let freezers = Freezer::all();
    if freezers.is_empty() {
        skip("a_frozen_process_is_stopped_whatever_it_did", "needs root and control groups");
    }
    for freezer in &freezers {
        let fixture = Fixture::start(&Build::new("spins.c").path(), &["compute"]);
        let pid = fixture.pid().to_string();
        std::fs::write(freezer.dir.join("cgroup.procs"), &pid).expect("the process can be moved");
        freezer.set(true);
        let snapshot = tool().look("why", &pid, &[]);
        let screen = tool().run(&["threads", &pid]).text();
        freezer.set(false);
        let verdict = &snapshot["verdict"];
        assert_eq!(verdict["kind"], "stopped", "{verdict}");
        assert_eq!(verdict["certainty"], "certain", "{verdict}");
        let way_out = verdict["way_out"].as_str().expect("a way out");
        assert!(way_out.contains(freezer.dir.to_str().expect("a name")), "{way_out}");
        assert!(threads(&snapshot).iter().all(|thread| thread["stop"]["kind"] == "frozen"), "{snapshot:#}");
        assert!(screen.contains("2 of them stopped"), "{screen}");
    }
}

#[test]
fn a_stop_is_told_with_its_way_out() {
    let fixture = Fixture::start(&Build::new("spins.c").path(), &["compute"]);
    signal(fixture.pid(), Signal::SIGSTOP);
    let pid = fixture.pid().to_string();
    testkit::eventually("all threads should be stopped", || {
        threads(&tool().threads(fixture.pid(), &[])).iter().all(|thread| !thread["stop"].is_null())
    });
    let snapshot = tool().look("why", &pid, &[]);
    signal(fixture.pid(), Signal::SIGCONT);
    let verdict = &snapshot["verdict"];
    assert_eq!((&verdict["kind"], &verdict["certainty"]), (&"stopped".into(), &"certain".into()), "{verdict}");
    assert_eq!(verdict["way_out"], format!("kill -CONT {pid}"));
    assert!(verdict["text"].as_str().expect("a text").contains("SIGSTOP"), "{verdict}");
}

//! `tglass profil --wait`: short waits, holders that take turns, and threads that are stopped.

use std::path::Path;
use testkit::{Build, Fixture, Signal, Tool, Value, any_of, ensure, eventually, signal, task_state};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn rotate() -> std::path::PathBuf {
    Build::new("profil_rotate.c").path()
}

fn wait_named<'p>(profile: &'p Value, name: &str) -> &'p Value {
    let waits = profile["waits"].as_array().expect("waits");
    waits.iter().find(|wait| wait["name"] == name).unwrap_or_else(|| panic!("no {name}: {profile:#}"))
}

/// Four threads take turns: each of them is a holder, and none is the holder.
#[test]
fn holders_that_take_turns_have_shares() {
    let fixture = Fixture::start(&rotate(), &["20000"]);
    let pid = fixture.pid().to_string();
    any_of(5, || {
        let profile = tool().run(&["profil", &pid, "--wait", "--json", "-d", "4s"]).json();
        let turns = wait_named(&profile, "turns");
        let holders = turns["holders"].as_array().expect("holders");
        let names: Vec<_> = holders.iter().filter_map(|holder| holder["name"].as_str()).collect();
        assert!(names.iter().all(|name| name.starts_with("turn-")), "{turns:#}");
        assert_eq!(turns["held_by"], names[0], "{turns:#}");
        let percents: Vec<f64> = holders.iter().filter_map(|holder| holder["percent"].as_f64()).collect();
        let sum: f64 = percents.iter().sum();
        assert!(percents.is_sorted_by(|a, b| a >= b) && sum < 100.1, "{turns:#}");
        ensure(names.len() == 4 && sum > 50.0, || format!("{turns:#}"))
    });
    let text = tool().run(&["profil", &pid, "--wait", "-d", "1s"]).text();
    let row = text.lines().find(|line| line.contains("mutex turns")).unwrap_or_default();
    assert!(row.matches("turn-").count() == 2 && row.contains(" more "), "{text}");
}

/// Waits that are over before a look is: they count like all others, and their mutex is known by its word.
#[test]
fn short_waits_count() {
    let fixture = Fixture::start(&rotate(), &["200"]);
    let dir = tempfile::tempdir().unwrap();
    let stacks = dir.path().join("stacks");
    let pid = fixture.pid().to_string();
    let args = ["profil", &pid, "--wait", "--json", "-d", "3s", "--folded", stacks.to_str().unwrap()];
    any_of(5, || {
        let profile = tool().run(&args).json();
        let looks = profile["looks"].as_u64().unwrap();
        let of = |name: &str| wait_named(&profile, name)["samples"].as_u64().unwrap();
        // The main thread is in read(2) all the time, and is seen at each look.
        assert_eq!(of("read"), looks, "{profile:#}");
        // Of the four others three wait for the mutex most of the time: a busy machine makes it a little less.
        ensure(of("turns") > looks * 3 / 2, || format!("{profile:#}"))?;
        let strange = profile["waits"].as_array().unwrap().iter().filter(|wait| wait["kind"] == "futex");
        assert_eq!(strange.count(), 0, "{profile:#}");
        let folded = std::fs::read_to_string(&stacks).unwrap();
        let counts = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
        assert_eq!(Some(counts.sum::<u64>()), profile["samples"].as_u64(), "{folded}");
        Ok(())
    });
}

#[test]
fn a_stopped_process_is_said_to_be_stopped() {
    let fixture = Fixture::new("profil_wait.c").settled();
    signal(fixture.pid(), Signal::SIGSTOP);
    let tasks = || {
        let dir = std::fs::read_dir(Path::new("/proc").join(fixture.pid().to_string()).join("task")).unwrap();
        dir.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).collect::<Vec<_>>()
    };
    eventually("all threads should stop", || {
        tasks().into_iter().all(|lwp| task_state(fixture.pid(), lwp).is_some_and(|task| task.letter == 'T'))
    });
    let pid = fixture.pid().to_string();
    let answer = tool().run(&["profil", &pid, "-d", "20ms"]);
    if !answer.stderr.contains("perf events are not permitted") {
        let text = answer.text();
        assert!(
            text.contains("all threads (5) are stopped by job control (SIGSTOP); SIGCONT continues them"),
            "{text}"
        );
        assert!(!text.contains("--wait"), "{text}");
    }
    let profile = tool().run(&["profil", &pid, "--wait", "--json", "-d", "100ms"]).json();
    let wait = wait_named(&profile, "stopped by job control (SIGSTOP)");
    let all = 5 * profile["looks"].as_u64().unwrap();
    assert_eq!((wait["samples"].as_u64(), profile["samples"].as_u64()), (Some(all), Some(all)), "{profile:#}");
    let text = tool().run(&["profil", &pid, "--wait", "-d", "10ms"]).text();
    assert!(text.contains("100.0 %") && text.contains("stopped by job control (SIGSTOP)  -"), "{text}");
}

//! Goroutines of Go programs.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::{Dumpable, Fixture, Go, Signal, Tool, eventually, signal};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn goroutines(target: &str) -> Value {
    tool().run(&["threads", target, "--stacks", "--json"]).json()
}

/// The goroutine that is in the function `name` of the fixture.
fn in_function<'a>(snapshot: &'a Value, name: &str) -> &'a Value {
    let name = format!("main.{name}");
    let is_in = |task: &&Value| {
        let frames = task["frames"].as_array().expect("frames");
        task["start_function"] == *name || frames.iter().any(|frame| frame["function"] == *name)
    };
    let found: Vec<&Value> = snapshot["tasks"].as_array().expect("tasks").iter().filter(is_in).collect();
    assert_eq!(found.len(), 1, "goroutines in {name}: {found:#?}");
    found[0]
}

/// Compares what goroutines wait for with what the fixture printed.
fn check_waits(truth: &Value, snapshot: &Value, what: &str) {
    for (function, object) in truth.as_object().expect("an object") {
        let Some(object) = object.as_str() else { continue };
        let task = in_function(snapshot, function);
        let objects = task["wait"]["objects"].as_array().expect("objects");
        let is_there = objects.iter().any(|found| found["address"] == object);
        assert_eq!(is_there, !object.is_empty(), "{what}: {function} waits for {object:?}: {:#}", task["wait"]);
        assert_eq!(task["state"], "sleep", "{what}: {function}");
        assert_eq!(task["frames_end"]["kind"], "start", "{what}: {function}");
        assert_eq!(task["frames"].as_array().and_then(|it| it.last()).expect("frames")["function"], "runtime.goexit");
    }
    let uses = |function: &str| {
        let objects = in_function(snapshot, function)["wait"]["objects"].as_array().cloned().unwrap_or_default();
        let mut uses: Vec<String> = objects
            .iter()
            .map(|it| {
                let word = [&it["channel_use"], &it["side"], &it["kind"]].into_iter().find_map(Value::as_str);
                word.expect("a word").to_owned()
            })
            .collect();
        uses.sort();
        uses
    };
    assert_eq!(uses("waitsToReceive"), ["receive"], "{what}");
    assert_eq!(uses("waitsToSend"), ["send"], "{what}");
    assert_eq!(uses("waitsInSelect"), ["receive", "receive", "send"], "{what}");
    assert_eq!(uses("waitsForMutex"), ["mutex"], "{what}");
    assert_eq!(uses("waitsToRead"), ["read"], "{what}");
    assert_eq!(uses("waitsToWrite"), ["write"], "{what}");
    assert_eq!(uses("waitsForGroup"), ["waitgroup"], "{what}");
    assert_eq!(uses("waitsForCondition"), ["cond"], "{what}");
    assert_eq!(uses("waitsForOnce"), ["once"], "{what}");
    assert_eq!(in_function(snapshot, "waitsForNetwork")["wait"]["descriptor"], truth["socket"], "{what}");
    assert_eq!(in_function(snapshot, "waitsForNetwork")["wait"]["direction"], "input", "{what}");
    let labels = &in_function(snapshot, "waitsWithLabels")["labels"];
    assert_eq!((labels["tenant"].as_str(), labels["request"].as_str()), (Some("blue"), Some("42")), "{what}");
    let frames = in_function(snapshot, "waitsInlined")["frames"].as_array().expect("frames");
    let inlined = frames.iter().find(|frame| frame["function"] == "main.inlinedReceive").expect("the inlined function");
    assert_eq!(inlined["inlined"], true, "{what}");
    let deep = in_function(snapshot, "waitsDeep")["frames"].as_array().expect("frames");
    assert_eq!(deep.iter().filter(|frame| frame["function"] == "main.deepReceive").count(), 41, "{what}");
    let child = in_function(snapshot, "waitsForChild");
    assert_eq!(child["created_by"]["function"], "main.makesAnother", "{what}");
    let states: BTreeMap<&str, &str> = snapshot["objects"]
        .as_array()
        .expect("objects")
        .iter()
        .filter_map(|object| Some((object["address"].as_str()?, object["state"].as_str()?)))
        .collect();
    let state = |function: &str| states[truth[function].as_str().expect("an address")];
    assert_eq!(state("waitsForMutex"), "locked", "{what}");
    assert_eq!(state("waitsToRead"), "write_locked", "{what}");
    assert_eq!(state("waitsToWrite"), "read_locked", "{what}");
    assert_eq!(state("waitsForOnce"), "in_progress", "{what}");
}

/// With symbols, without, and at any address.
const WAYS: [&[&str]; 3] = [&[], &["-ldflags=-s -w"], &["-buildmode=pie", "-ldflags=-s -w"]];

#[test]
fn what_goroutines_wait_for() {
    for go in Go::all("what_goroutines_wait_for") {
        for flags in WAYS {
            let program = go.build("go_waits", flags);
            let fixture = Fixture::start(&program, &[]);
            let what = program.display().to_string();
            let snapshot = goroutines(&fixture.pid().to_string());
            check_waits(fixture.truth(), &snapshot, &what);
            assert_eq!(snapshot["pause_us"], 0, "{what}");
            // The fixture has both ends of the connection.
            let end = &in_function(&snapshot, "waitsForNetwork")["wait"]["outside"];
            assert!(end["what"].as_str().is_some_and(|what| what.starts_with("TCP 127.0.0.1:")), "{what}: {end:#}");
            let runtime = &snapshot["task_runtimes"][0];
            assert_eq!(runtime["name"], "Go", "{what}");
            assert!(runtime["concurrency"].as_u64().is_some_and(|number| number > 0), "{what}: {runtime}");
        }
    }
}

/// A copy of `program` that says of itself that it was made by a Go that nobody knows.
fn of_unknown_release(program: &Path) -> PathBuf {
    let mut bytes = std::fs::read(program).expect("the program");
    let magic = b"\xff Go buildinf:";
    let info = bytes.windows(magic.len()).position(|it| it == magic).expect("what its linker wrote");
    let version = bytes[info..].windows(4).position(|it| it == b"go1.").expect("a version") + info + 4;
    assert!(bytes[version..version + 2].iter().all(u8::is_ascii_digit));
    bytes[version..version + 2].copy_from_slice(b"99");
    let copy = program.with_extension("unknown");
    std::fs::write(&copy, bytes).expect("a copy");
    std::fs::set_permissions(&copy, std::fs::metadata(program).expect("its mode").permissions()).expect("its mode");
    copy
}

/// Debug information tells where a release that is not known keeps things, and without it goroutines themselves do, which is said.
#[test]
fn a_release_that_is_not_known() {
    for go in Go::all("a_release_that_is_not_known") {
        for (flags, is_told) in [(WAYS[0], false), (WAYS[1], true), (WAYS[2], true)] {
            let program = of_unknown_release(&go.build("go_waits", flags));
            let fixture = Fixture::start(&program, &[]);
            let snapshot = goroutines(&fixture.pid().to_string());
            let what = program.display().to_string();
            check_waits(fixture.truth(), &snapshot, &what);
            let version = snapshot["task_runtimes"][0]["version"].as_str().expect("a version");
            assert!(version.starts_with("go1.99"), "{what}: {version}");
            let gaps = snapshot["gaps"].as_array().expect("gaps");
            let told = gaps.iter().find(|gap| gap["what"] == "offsets of this version of Go");
            assert_eq!(told.is_some(), is_told, "{what}: {gaps:#?}");
            if let Some(told) = told {
                let release = told["why"].as_str().and_then(|why| why.rsplit_once("go1.")).expect("a release").1;
                println!("go1.{} is taken for go1.{release}", go.release());
            }
        }
    }
}

#[test]
fn cores_tell_the_same() {
    const TEST: &str = "cores_tell_the_same";
    for go in Go::all(TEST) {
        let program = go.build("go_waits", WAYS[0]);
        // Go handles SIGQUIT: it prints all goroutines, and leaves a core only if it is told to.
        let args = ["GOTRACEBACK=crash", program.to_str().expect("a path")];
        let start = || Dumpable::start(Path::new("/usr/bin/env"), &args);
        let truths = [start(), start()].map(|target| (target.fixture.truth().clone(), target));
        let [(by_gdb, gdb), (by_kernel, kernel)] = truths;
        for (truth, core) in [(by_gdb, gdb.gcore(TEST)), (by_kernel, kernel.kernel_core(TEST))] {
            let Some(core) = core else { continue };
            check_waits(&truth, &goroutines(&core.path().to_string_lossy()), &core.path().display().to_string());
        }
    }
}

/// The goroutines that a program prints when it is told to quit: number, reason, functions of the stack.
fn dumped(text: &str) -> BTreeMap<u64, (String, Vec<String>)> {
    let mut found = BTreeMap::new();
    for block in text.split("\n\n") {
        let Some(rest) = block.trim_start().strip_prefix("goroutine ") else { continue };
        let (id, rest) = rest.split_once(' ').expect("a number");
        let reason = rest.split_once('[').and_then(|(_, rest)| rest.split_once(']')).expect("a reason").0;
        let reason = reason.split(", ").next().unwrap_or_default().to_owned();
        let functions = block.lines().skip(1).filter(|line| !line.starts_with(['\t', ' ']) && !line.is_empty());
        let functions = functions.take_while(|line| !line.starts_with("created by"));
        let name = |line: &str| line.rsplit_once('(').map_or(line, |(name, _)| name).to_owned();
        found.insert(id.parse().expect("a number"), (reason, functions.map(name).collect()));
    }
    found
}

#[test]
fn the_same_as_the_program_tells_itself() {
    for go in Go::all("the_same_as_the_program_tells_itself") {
        let program = go.build("go_waits", WAYS[0]);
        let mut child = Command::new(&program)
            .env("GOTRACEBACK", "all")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the fixture starts");
        let pid = child.id() as i32;
        let mut out = std::io::BufReader::new(child.stdout.take().expect("its output"));
        for _ in 0..2 {
            std::io::BufRead::read_line(&mut out, &mut String::new()).expect("a line");
        }
        let in_call = |snapshot: &Value| snapshot["tasks"].as_array().is_some_and(|it| it[0]["status"] == "syscall");
        eventually("the main goroutine should read", || in_call(&goroutines(&pid.to_string())));
        let snapshot = goroutines(&pid.to_string());
        // Its input stays open: at the end of that it would end by itself.
        let _input = child.stdin.take();
        signal(pid, Signal::SIGQUIT);
        let output = child.wait_with_output().expect("it ends");
        let compared = compare(&snapshot, &dumped(&String::from_utf8_lossy(&output.stderr)));
        assert!(compared.as_ref().is_ok_and(|number| *number >= 20), "{compared:?}");
    }
}

/// Compares goroutine by goroutine what was seen with what the program itself printed: how many were the same, or one that was not.
/// Goroutines that had moved on until they were printed run, or could.
fn compare(snapshot: &Value, dump: &BTreeMap<u64, (String, Vec<String>)>) -> Result<usize, String> {
    let mut compared = 0;
    let tasks = snapshot["tasks"].as_array().expect("tasks");
    for task in tasks.iter().filter(|task| task["type"] == "user" && task["state"] == "sleep") {
        let id = task["id"].as_u64().expect("an id");
        let Some((reason, functions)) = dump.get(&id) else { return Err(format!("goroutine {id} is not in the dump")) };
        if matches!(reason.as_str(), "running" | "runnable") {
            continue;
        }
        // Traces leave out functions of the runtime, and wrappers.
        let is_told = |name: &&str| functions.iter().any(|told| told == name);
        let frames = task["frames"].as_array().expect("frames");
        let names = frames.iter().filter_map(|frame| frame["function"].as_str());
        let names: Vec<&str> = names.filter(is_told).collect();
        let ours = task["wait"]["reason"].as_str().unwrap_or("syscall");
        if ours != reason || names != *functions {
            return Err(format!("goroutine {id}: {ours} {names:?}, and printed: {reason} {functions:?}"));
        }
        compared += 1;
    }
    let ours: BTreeSet<u64> = tasks.iter().filter_map(|task| task["id"].as_u64()).collect();
    let lost: Vec<_> = dump.keys().filter(|id| **id != 0 && !ours.contains(id)).collect();
    if lost.is_empty() { Ok(compared) } else { Err(format!("not seen: {lost:?}")) }
}

/// Goroutines that are read while others come and go and stacks grow: `TG_GOROUTINES` of them, or some hundreds.
#[test]
fn goroutines_that_come_and_go_never_have_a_broken_stack() {
    let test = "goroutines_that_come_and_go_never_have_a_broken_stack";
    let wanted = std::env::var("TG_GOROUTINES").ok().and_then(|number| number.parse().ok()).unwrap_or(800);
    for go in Go::all(test) {
        let fixture = Fixture::start(&go.build("go_churn", WAYS[0]), &[]);
        let (mut read, mut whole, mut without, mut looks) = (0, 0, 0, 0);
        while read < wanted {
            let snapshot = goroutines(&fixture.pid().to_string());
            looks += 1;
            let tasks = snapshot["tasks"].as_array().expect("tasks");
            assert!(!tasks.is_empty(), "{:#}", snapshot["gaps"]);
            for task in tasks {
                read += 1;
                let frames = task["frames"].as_array().expect("frames");
                let Some(last) = frames.last() else {
                    without += 1;
                    continue;
                };
                assert_eq!(last["function"], "runtime.goexit", "{task:#}");
                whole += 1;
                check_churn(task, frames);
            }
            // Go may start a goroutine with a function of its own that calls the one it was given.
            let is_in = |task: &&Value| {
                let frames = task["frames"].as_array().into_iter().flatten();
                frames.into_iter().any(|frame| frame["function"] == "main.stays")
            };
            let lasting = tasks.iter().filter(is_in).count();
            assert_eq!(lasting as u64, fixture.truth()["stays"], "goroutines that lived all the time");
        }
        println!(
            "{read} goroutines in {looks} looks: {whole} whole stacks, {without} without one, none broken or lost"
        );
        assert!(whole * 2 > read, "{whole} stacks of {read}");
    }
}

/// What all stacks of the fixture have in common: functions call each other in one order, and `deep` as often as it says.
fn check_churn(task: &Value, frames: &[Value]) {
    let names: Vec<&str> = frames.iter().filter_map(|frame| frame["function"].as_str()).collect();
    let place = |name: &str| names.iter().position(|other| *other == name);
    let deep: Vec<usize> = (0..names.len()).filter(|place| names[*place] == "main.deep").collect();
    let is_row = deep.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let is_called = deep.last().is_none_or(|last| names[last + 1] == "main.comes");
    assert!(is_row && is_called && deep.len() <= 40, "{task:#}");
    assert!(place("main.stays").is_none() || deep.is_empty(), "{task:#}");
}

#[test]
fn screens_of_goroutines() {
    let Some(go) = Go::all("screens_of_goroutines").into_iter().next() else { return };
    let fixture = Fixture::start(&go.build("go_waits", WAYS[0]), &[]);
    let pid = fixture.pid().to_string();
    let text = tool().run(&["threads", &pid]).text();
    assert!(text.contains("WAITS FOR") && text.contains("main.waitsToSend"), "{text}");
    let text = tool().run(&["threads", &pid, "--lwps"]).text();
    assert!(text.contains("  LWP") && !text.contains("main.waitsToSend"), "{text}");
    let text = tool().run(&["threads", &pid, "--stacks"]).text();
    assert!(text.contains("main.deepReceive") && text.contains("made by main.main"), "{text}");
    let text = tool().run(&["locks", &pid, "--kind", "mutex"]).text();
    assert!(text.contains("Go mutex"), "{text}");
    let snapshot = tool().run(&["why", &pid, "--json"]).json();
    assert_eq!(snapshot["verdict"]["kind"], "behind", "{:#}", snapshot["verdict"]);
    assert!(
        snapshot["verdict"]["text"].as_str().is_some_and(|text| text.contains("holds while it waits: chan receive"))
    );
}

/// A timer of the runtime wakes no goroutine that waits for it, but sends to a channel: that is no hang.
#[test]
fn goroutines_that_are_all_asleep() {
    let test = "goroutines_that_are_all_asleep";
    for go in Go::all(test) {
        let program = go.build("go_asleep", &[]);
        for (mode, kind) in [("asleep", "nobody_left"), ("timer", "idle")] {
            let fixture = Fixture::start(&program, &[mode]);
            eventually(&format!("{mode} should be told as {kind}"), || {
                let snapshot = tool().run(&["why", &fixture.pid().to_string(), "--json"]).json();
                let sends = |task: &&Value| task["wait"]["reason"] == "chan send";
                snapshot["verdict"]["kind"] == kind
                    && snapshot["tasks"].as_array().expect("tasks").iter().filter(sends).count() == 3
            });
        }
    }
}

/// More can run than may: statistics count them all, and the threads only as far as they run.
#[test]
fn statistics_count_goroutines() {
    for go in Go::all("statistics_count_goroutines") {
        let fixture = Fixture::start(&go.build("go_busy", &[]), &[]);
        let busy = fixture.truth()["busy"].as_f64().expect("a number");
        eventually("the busy goroutines should be counted", || {
            let stats = tool().run(&["stats", &fixture.pid().to_string(), "-i", "500ms", "--json"]).json();
            let process = &stats["process"];
            assert_eq!(process["tasks_of"][0], "Go", "{process}");
            assert_eq!(process["r_concurrency"], 1, "{process}");
            let number = |name: &str| process[name].as_f64().expect("a number");
            let least = busy + fixture.truth()["waiting"].as_f64().expect("a number");
            assert!(number("nthreads") >= least && number("nthreads") < least + 20.0, "{process}");
            assert!(number("a_concurrency") <= number("nrunnable"), "{process}");
            (busy - 1.5..busy + 2.5).contains(&number("nrunnable")) && number("a_concurrency") < 3.0
        });
    }
}

/// A goroutine that runs has a stack if its thread may be stopped, and only then.
#[test]
fn running_goroutines_have_stacks_if_they_are_stopped() {
    testkit::needs_ptrace!();
    for go in Go::all("running_goroutines_have_stacks_if_they_are_stopped") {
        for flags in WAYS {
            let fixture = Fixture::start(&go.build("go_busy", flags), &[]);
            let pid = fixture.pid().to_string();
            let running = |snapshot: &Value| -> Vec<Value> {
                let tasks = snapshot["tasks"].as_array().expect("tasks").iter();
                tasks.filter(|task| task["status"] == "running").cloned().collect()
            };
            assert!(running(&goroutines(&pid)).iter().all(|task| task["frames"].as_array().is_some_and(Vec::is_empty)));
            eventually("a running goroutine should have its stack", || {
                let snapshot = tool().run(&["threads", &pid, "--stacks", "--stop", "--json"]).json();
                running(&snapshot).iter().any(|task| {
                    let frames = task["frames"].as_array().expect("frames");
                    let names: Vec<&str> = frames.iter().filter_map(|frame| frame["function"].as_str()).collect();
                    let is_it = names.first() == Some(&"main.spins") && names.last() == Some(&"runtime.goexit");
                    is_it && task["frames_end"]["kind"] == "start" && snapshot["pause_us"].as_u64() > Some(0)
                })
            });
        }
    }
}

/// What goroutines wait for over time, with the function that waits.
#[test]
fn a_profile_of_waiting_goroutines() {
    for go in Go::all("a_profile_of_waiting_goroutines") {
        let fixture = Fixture::start(&go.build("go_waits", WAYS[1]), &[]);
        let truth = fixture.truth();
        let profile =
            tool().run(&["profil", &fixture.pid().to_string(), "--wait", "-d", "300ms", "-g", "--json"]).json();
        assert_eq!(profile["tasks_of"][0], "Go", "{profile:#}");
        assert!(profile["threads"].as_u64().is_some_and(|number| number >= 22), "{}", profile["threads"]);
        let waits = profile["waits"].as_array().expect("waits");
        let looks = profile["looks"].as_u64().expect("a number");
        let of = |function: &str| {
            let found = waits.iter().find(|wait| wait["address"] == truth[function]);
            found.unwrap_or_else(|| panic!("{function}: {waits:#?}"))
        };
        for (function, kind) in [("waitsForMutex", "mutex"), ("waitsToSend", "channel"), ("waitsForGroup", "waitgroup")]
        {
            let wait = of(function);
            assert_eq!((&wait["kind"], &wait["samples"]), (&kind.into(), &looks.into()), "{wait:#}");
            assert_eq!(wait["function"], format!("main.{function}"), "{wait:#}");
        }
        let network = waits.iter().find(|wait| wait["name"] == format!("IO wait fd {}", truth["socket"]));
        assert!(network.is_some(), "{waits:#?}");
        let stacks = profile["stacks"].as_array().expect("stacks");
        let is_in = |stack: &&Value| {
            stack["frames"]
                .as_array()
                .is_some_and(|frames| frames.iter().any(|it| it["function"] == "main.waitsToSend"))
        };
        let stack = stacks.iter().find(is_in).expect("the stack of who sends");
        assert_eq!((&stack["samples"], &stack["whole"]), (&looks.into(), &true.into()), "{stack:#}");
    }
}

/// A real server, without symbols: what is seen while it is stopped is what it prints itself when it goes on. Its timers may wake
/// somebody before that, so it has some tries.
#[test]
fn a_server_of_the_distribution() {
    const TEST: &str = "a_server_of_the_distribution";
    const TRIES: usize = 5;
    /// Goroutines that wait in each such server.
    const LEAST: usize = 20;
    if !testkit::have(TEST, "etcd") {
        return;
    }
    let mut failed = Vec::new();
    for _ in 0..TRIES {
        match compare_server(LEAST) {
            Ok(compared) if compared >= LEAST => {
                println!("etcd: {compared} goroutines as it prints them itself");
                return;
            }
            other => failed.push(format!("{other:?}")),
        }
    }
    panic!("{failed:#?}");
}

fn compare_server(least: usize) -> Result<usize, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let data = format!("--data-dir={}", dir.path().display());
    let (any, peer) = ("http://127.0.0.1:0", "http://127.0.0.1:1");
    let cluster = format!("--initial-cluster=default={peer}");
    let printed = dir.path().join("printed");
    let out = std::fs::File::create(&printed).expect("a file");
    let mut server = Command::new("etcd")
        .args(["--listen-client-urls", any, "--advertise-client-urls", any, "--listen-peer-urls", any])
        .args(["--initial-advertise-peer-urls", peer, &cluster, &data])
        .env("GOTRACEBACK", "all")
        .stdin(Stdio::null())
        .stdout(out.try_clone().expect("the same file"))
        .stderr(out)
        .spawn()
        .expect("the server starts");
    let pid = server.id() as i32;
    eventually("the server should come to rest", || {
        let snapshot = goroutines(&pid.to_string());
        let tasks = snapshot["tasks"].as_array().expect("tasks");
        tasks.len() > least && tasks.iter().all(|task| task["state"] == "sleep")
    });
    signal(pid, Signal::SIGSTOP);
    let stopped = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "));
    eventually("the server should stop", stopped);
    let snapshot = goroutines(&pid.to_string());
    signal(pid, Signal::SIGQUIT);
    signal(pid, Signal::SIGCONT);
    server.wait().expect("it ends");
    let text = std::fs::read_to_string(&printed).expect("what it printed");
    compare(&snapshot, &dumped(&text))
}

//! The agent in a program: its numbers against the program's own, and the program unchanged by it.

use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Answer, Build, Dumpable, Fixture, Tool, Value, Variant, address, any_of, ensure, eventually, part};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn build(file: &str) -> PathBuf {
    Build::new(file).variant(Variant::Default).path()
}

/// `tglass run` with options, of a built fixture.
fn run(options: &[&str], program: &Path) -> Command {
    let mut args = vec!["run"];
    args.extend(options);
    args.push("--");
    let mut command = tool().command(&args);
    command.arg(program);
    command
}

fn objects(snapshot: &Value) -> &[Value] {
    snapshot["objects"].as_array().map_or(&[], Vec::as_slice)
}

/// What differs between a truth and what was found.
#[derive(Default)]
struct Faults {
    counts: Vec<String>,
    times: Vec<String>,
}

/// Compares: members that the truth does not name do not matter, and a list is the range of a time, which two clocks may
/// see one percent apart.
fn faults(path: &str, truth: &Value, found: &Value, out: &mut Faults) {
    match truth {
        Value::Object(members) => {
            for (name, truth) in members {
                faults(&format!("{path}.{name}"), truth, &found[name], out);
            }
        }
        Value::Array(range) => {
            let time = found.as_f64().unwrap_or(-1.0);
            let within = range[0].as_f64().is_none_or(|least| time >= least * 0.99)
                && range[1].as_f64().is_none_or(|most| time <= most * 1.01);
            if !within {
                out.times.push(format!("{path} is {found}, not within {truth}"));
            }
        }
        _ if truth != found => out.counts.push(format!("{path} is {found}, not {truth}")),
        _ => {}
    }
}

/// Counts must be right, whatever the machine does. A time may be too short: a thread that lost the CPU on its way into a wait
/// with a time limit waits for less. That is an `Err`.
fn compare(truth: &Value, snapshot: &Value, exact: bool) -> Result<(), String> {
    let mut out = Faults::default();
    let expected = objects(truth);
    assert!(expected.len() > 20, "the fixture says nothing");
    for one in expected {
        let at = address(&one["address"]);
        let Some(found) = objects(snapshot).iter().find(|object| address(&object["address"]) == at) else {
            out.counts.push(format!("{} is missing", one["name"]));
            continue;
        };
        let name = one["name"].as_str().unwrap_or_default();
        let mut stats = one["stats"].clone();
        if !exact && let Some(members) = stats.as_object_mut() {
            members.remove("hold_time");
        }
        faults(name, &one["kind"], &found["kind"], &mut out);
        faults(name, &stats, &found["stats"], &mut out);
    }
    assert!(out.counts.is_empty(), "\n{}", out.counts.join("\n"));
    ensure(out.times.is_empty(), || out.times.join("\n"))
}

/// Runs a program until its times are not spoilt, five times at most, and compares what is known of its locks.
fn compare_live(options: &[&str], program: &Path, exact: bool) {
    any_of(5, || {
        let fixture = Fixture::command(run(options, program)).settled();
        let snapshot = tool().look("locks", &fixture.pid().to_string(), &["--all"]);
        assert_eq!(snapshot["pause_us"], 0);
        compare(fixture.truth(), &snapshot, exact)
    });
}

#[test]
fn every_counter_equals_the_truth() {
    for options in [&["--exact"][..], &[], &["--size", "1024"]] {
        compare_live(options, &build("track_counts.c"), options.contains(&"--exact"));
    }
}

#[test]
fn mutexes_are_counted_wherever_they_are() {
    for options in [&[][..], &["--exact"]] {
        compare_live(options, &build("track_words.c"), true);
    }
}

#[test]
fn numbers_read_while_they_change_were_true() {
    use threadglass::internals::{Agent, Tracked};
    use threadglass::model::SyncStats;
    use threadglass::target::Live;
    use threadglass::{Pid, RemoteAddr};
    let fixture = Fixture::command({
        let mut command = run(&[], &build("track_words.c"));
        command.arg("for ever");
        command
    });
    let [eternal, mortal] = ["eternal", "mortal"].map(|name| RemoteAddr(address(&fixture.truth()[name])));
    let target = Live::open(Pid(fixture.pid())).expect("the process");
    let agent = Agent::find(&target).expect("readable").expect("an agent").address();
    let lock = |object: &Tracked| match object.stats() {
        SyncStats::Lock(stats) => stats.lock,
        other => panic!("no mutex: {other:?}"),
    };
    let (mut least, mut lives, mut grown) = (0, 0, 0);
    eventually("500 lives and 200 numbers that have grown should be seen", || {
        let agent = Agent::at(&target, agent, true).expect("the agent");
        for _ in 0..20 {
            let mut objects = agent.objects(&target);
            objects.retain(|object| object.address == eternal || object.address == mortal);
            objects.extend([eternal, mortal].iter().filter_map(|address| agent.object(&target, *address)));
            for object in objects {
                let count = lock(&object);
                if object.address == mortal {
                    let most = if object.generation() % 2 == 0 { 10_000 } else { 3_000 };
                    assert!(count <= most, "{count} acquisitions in a life of {most}");
                    lives += 1;
                } else {
                    assert!(count >= least, "{count} after {least}");
                    grown += u32::from(count > least);
                    least = count;
                }
            }
        }
        lives >= 500 && grown >= 200
    });
}

#[test]
fn a_core_has_the_same_numbers() {
    let program = build("track_counts.c");
    let args = ["run", "--exact", "--", &program.to_string_lossy()];
    for by_kernel in [false, true] {
        any_of(5, || {
            let dumpable = Dumpable::start(Path::new(env!("CARGO_BIN_EXE_tglass")), &args);
            let truth = dumpable.fixture.truth().clone();
            let core = match by_kernel {
                true => dumpable.kernel_core(part("a core of the kernel")),
                false => dumpable.gcore(part("a core of gdb")),
            };
            let Some(core) = core else { return Ok(()) };
            let snapshot = tool().look("locks", &core.path().to_string_lossy(), &["--all"]);
            compare(&truth, &snapshot, true)
        });
    }
}

#[test]
fn off_counts_nothing() {
    let fixture = Fixture::command(run(&["--off"], &build("track_counts.c"))).settled();
    let snapshot = tool().look("locks", &fixture.pid().to_string(), &["--all"]);
    assert!(objects(&snapshot).len() > 20);
    assert!(objects(&snapshot).iter().all(|object| object["stats"].is_null()), "{snapshot:#}");
}

#[test]
fn a_full_table_is_told_and_harms_nobody() {
    // As many objects as the table has room for, and more: its own 30 may not be among them.
    let fixture = Fixture::command({
        let mut command = run(&["--size", "1024"], &build("track_many.c"));
        command.arg("5000");
        command
    })
    .settled();
    assert_eq!(fixture.truth()["sum"], 5000 * 4);
    let snapshot = tool().look("locks", &fixture.pid().to_string(), &["--all"]);
    let counted = objects(&snapshot).iter().filter(|object| object["stats"]["lock"] == 4).count();
    assert!((1000..1400).contains(&counted), "{counted}");
    let gaps = snapshot["gaps"].to_string();
    assert!(gaps.contains("table was full"), "{gaps}");
}

#[test]
fn programs_behave_as_without_it() {
    let program = build("track_behaviour.c");
    let plain = Answer::of(Command::new(&program));
    assert_eq!(plain.code, Some(42), "{}", plain.stderr);
    for options in [&[][..], &["--exact"], &["--off"]] {
        let tracked = Answer::of(run(options, &program));
        assert_eq!(tracked.text(), plain.text(), "{options:?}");
        assert_eq!((tracked.code, tracked.stderr), (plain.code, plain.stderr.clone()), "{options:?}");
    }
}

#[test]
fn a_forked_child_counts_its_own() {
    let fixture = Fixture::command(run(&[], &build("track_fork.c"))).settled();
    for process in ["parent", "child"] {
        let truth = &fixture.truth()[process];
        let pid = truth["pid"].to_string();
        let snapshot = tool().look("locks", &pid, &["--all"]);
        let at = address(&truth["address"]);
        let found = objects(&snapshot).iter().find(|object| address(&object["address"]) == at).expect("the mutex");
        assert_eq!(found["stats"]["lock"], truth["lock"], "{process}");
    }
}

#[test]
fn hangs_are_still_explained() {
    let fixture = Fixture::command({
        let mut command = run(&[], &build("deadlocks.c"));
        command.arg("abba");
        command
    });
    eventually("the deadlock is found", || {
        let answer = tool().run(&["why", &fixture.pid().to_string()]);
        answer.code == Some(1) && answer.text().contains("DEADLOCK")
    });
}

#[test]
fn contention_is_told_with_who_and_where() {
    testkit::needs_ptrace!();
    let mut fixture = Fixture::command(run(&[], &build("track_contended.c")));
    let pid = fixture.pid().to_string();
    // A wait counts when it ends, so one that began before, while the program had no CPU, may be longer than the look. Of ten
    // looks one is undisturbed; numbers that are wrong are so in all.
    any_of(10, || {
        let told = tool().look("contend", &pid, &["-d", "200ms"]);
        let waits = told["locks"][0]["waits"].as_u64().unwrap_or(0);
        ensure(waits > 10, || format!("{waits} waits have ended: {told:#}"))?;
        let locks = told["locks"].as_array().expect("a list");
        assert_eq!(locks.len(), 1, "nobody waits for the other: {told:#}");
        assert_eq!((&locks[0]["name"], &locks[0]["kind"]), (&"hot".into(), &"mutex".into()));
        assert_eq!(locks[0]["sites"][0][0], "long_work");
        assert_eq!(locks[0]["sites"][0][1], "long_work");
        assert_eq!(told["sampled"], serde_json::json!([]), "what is counted is not among the others");
        // Somebody always holds it, and three wait.
        let waited = locks[0]["wait_ns"].as_f64().unwrap_or(0.0) / 1e9;
        let seconds = told["seconds"].as_f64().unwrap_or(0.0);
        ensure(waited > 1.5 * seconds && waited < 4.5 * seconds, || format!("{waited} in {seconds}"))
    });
    fixture.kill();
    // One that was started without the agent gets it for as long as it is looked at.
    let plain = Fixture::new("track_contended.c");
    let answer = tool().run(&["contend", &plain.pid().to_string(), "-d", "100ms"]);
    assert!(answer.text().contains("set and removed"), "{answer:?}");
}

/// Every reader has its own beginning: of what was before nothing is left, neither places nor times.
///
/// Where the program had no CPU for a while, short waits are long. Of ten programs one is undisturbed; what is left of the
/// first look is left in each.
#[test]
fn a_second_look_shows_nothing_of_the_first() {
    testkit::needs_ptrace!();
    any_of(10, || second_look(Fixture::command(run(&[], &build("track_phases.c")))));
    any_of(10, || second_look(Fixture::new("track_phases.c")));
}

fn second_look(mut fixture: Fixture) -> Result<(), String> {
    let pid = fixture.pid().to_string();
    let look = |function: &str| {
        let mut told = Value::Null;
        eventually(function, || {
            told = tool().look("contend", &pid, &["-d", "500ms"])["locks"][0].clone();
            told["waits"].as_u64().is_some_and(|waits| waits > 2)
        });
        assert_eq!(told["sites"][0][0], function, "{told:#}");
        told
    };
    let first = look("slow");
    assert_eq!(fixture.ask("fast"), "fast");
    let second = look("fast");
    let sites = second["sites"].as_array().expect("a list");
    assert!(sites.iter().all(|site| site[0] == "fast"), "{second:#}");
    let timed = |of: &Value| of["stats"]["hold_time"]["timed"].as_u64().expect("a number");
    assert!(timed(&second) <= second["stats"]["lock"].as_u64().expect("a number") + 1, "{second:#}");
    let time = |of: &Value, part: &str| of["stats"]["contention"][part].as_u64().expect("a time");
    ensure(time(&first, "p99_ns") > 30_000_000, || format!("{first:#}"))?;
    ensure(time(&second, "p99_ns") < time(&first, "p50_ns"), || format!("{first:#} {second:#}"))
}

/// Whether the agent of a process counts: whether one more use is seen.
fn lock_count(pid: &str, at: u64) -> Option<u64> {
    let snapshot = tool().look("locks", pid, &["--all"]);
    let found = objects(&snapshot).iter().find(|object| address(&object["address"]) == at)?;
    found["stats"]["lock"].as_u64()
}

/// Whether `track_step.c` has taken all steps that it was sent a signal for: none is left, and the thread that takes them
/// waits for the next one (rt_sigtimedwait).
fn steps_are_taken(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let left = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap_or_default().trim();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lwps = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    let waits = |lwp: i32| testkit::task_state(pid, lwp).is_some_and(|task| task.call.starts_with("128 "));
    u64::from_str_radix(left, 16) == Ok(0) && lwps.into_iter().any(waits)
}

#[test]
fn one_loaded_off_counts_while_somebody_wants_it() {
    use std::process::Stdio;
    use testkit::Signal::{SIGINT, SIGKILL, SIGUSR1};
    let fixture = Fixture::command(run(&["--off"], &build("track_step.c"))).settled();
    let pid = fixture.pid().to_string();
    let at = address(&fixture.truth()["address"]);
    let step = || testkit::signal(fixture.pid(), SIGUSR1);
    assert_eq!(lock_count(&pid, at), None);
    let contend = || {
        let mut command = tool().command(&["contend", &pid]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("tglass starts")
    };
    // Two that want it; one is killed, which changes nothing for the other.
    let (mut first, mut second) = (contend(), contend());
    let mut last = 0;
    let mut counts = |what: &str| {
        eventually(what, || {
            step();
            let now = lock_count(&pid, at).unwrap_or(0);
            std::mem::replace(&mut last, now) < now
        });
    };
    counts("it counts");
    testkit::signal(i32::try_from(first.id()).unwrap(), SIGKILL);
    first.wait().expect("it ends");
    counts("it counts on for the other");
    // Ctrl-C ends the other early, and with it the counting.
    testkit::signal(i32::try_from(second.id()).unwrap(), SIGINT);
    assert!(second.wait().expect("it ends").success());
    // What was counted until some time ago is not shown as if it were of now.
    let stays_off = |what: &str| {
        eventually(what, || {
            step();
            eventually("the step should be taken", || steps_are_taken(fixture.pid()));
            lock_count(&pid, at).is_none()
        });
    };
    stays_off("it is off again");
    // One that is killed alone: the agent finds that out by itself.
    let mut third = contend();
    counts("it counts again");
    testkit::signal(i32::try_from(third.id()).unwrap(), SIGKILL);
    third.wait().expect("it ends");
    stays_off("it is off after its controller was killed");
}

#[test]
fn locks_of_rust_are_shown_by_samples() {
    let mut command = run(&[], &build("deadlock_rust.rs"));
    command.arg("static");
    let fixture = Fixture::command(command).settled();
    let pid = fixture.pid().to_string();
    let told = tool().look("contend", &pid, &["-d", "500ms"]);
    let sampled = told["sampled"].as_array().expect("a list");
    let of_rust: Vec<_> = sampled.iter().filter(|lock| lock["family"] == "rust_std").collect();
    assert_eq!(of_rust.len(), 2, "{told:#}");
    assert!(of_rust.iter().all(|lock| lock["looks"] == told["looks"] && lock["samples"] == told["looks"]), "{told:#}");
    assert!(of_rust.iter().all(|lock| lock["sites"].to_string().contains("transfer")), "{told:#}");
    let text = tool().run(&["contend", &pid, "-d", "200ms"]).text();
    assert!(text.contains("locks of Rust's standard library") && text.contains("Rust mutex"), "{text}");
}

/// Programs and libraries that stand in for the same functions see their calls as before, and all are counted.
#[test]
fn others_may_stand_in_for_the_same_functions() {
    let library = Build::new("track_stand_in.c").variant(Variant::Library).path();
    let mut with_library = run(&[], &build("track_locks.c"));
    with_library.env("LD_PRELOAD", &library);
    let its_own = run(&[], &Build::new("track_locks.c").flags(&["-DOWN", "-rdynamic"]).path());
    for command in [with_library, its_own] {
        let fixture = Fixture::command(command).settled();
        assert_eq!(fixture.truth()["calls"], 1000);
        let snapshot = tool().look("locks", &fixture.pid().to_string(), &["--all"]);
        let lock = objects(&snapshot).iter().find(|object| object["address"] == fixture.truth()["lock"]);
        assert_eq!(lock.expect("the lock")["stats"]["lock"], 1000, "{snapshot:#}");
    }
}

#[test]
fn commands_that_cannot_be_run_are_refused() {
    let refused = tool().run(&["run", "--", "/nonexistent/program"]);
    assert!(refused.assert_refused().contains("/nonexistent/program"));
    // What is not a program of ours keeps its own words and status.
    let shell = tool().run(&["run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((shell.code, shell.text().as_str(), shell.stderr.as_str()), (Some(7), "out\n", "err\n"));
}

#[test]
fn every_glibc_version_is_counted_and_unchanged() {
    let Some(roots) = testkit::GlibcRoots::find("every_glibc_version_is_counted_and_unchanged") else { return };
    for (version, root) in roots.iter() {
        let program = roots.build("track_behaviour.c", root);
        let plain = Answer::of(Command::new(&program));
        assert_eq!(plain.code, Some(42), "{version}: {}", plain.stderr);
        let tracked = Answer::of(run(&[], &program));
        assert_eq!(
            (tracked.text(), tracked.code, tracked.stderr),
            (plain.text(), plain.code, plain.stderr),
            "{version}"
        );
        for (options, file) in [(&["--exact"][..], "track_counts.c"), (&[], "track_words.c")] {
            compare_live(options, &roots.build(file, root), true);
        }
    }
}

/// A server under load: some thousand requests, or as long as `TG_SECONDS` says.
#[test]
fn a_server_serves_as_without_it() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};
    const TEST: &str = "a_server_serves_as_without_it";
    const CLIENTS: u64 = 8;
    if !testkit::have(TEST, "memcached") {
        return;
    }
    let seconds = std::env::var("TG_SECONDS").ok().and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let socket = dir.path().join("socket");
    let mut command = tool().command(&["run", "--", "memcached", "-u", "root", "-t", "4", "-s"]);
    struct Server(std::process::Child);
    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let server = Server(command.arg(&socket).spawn().expect("memcached starts"));
    eventually("the server listens", || UnixStream::connect(&socket).is_ok());
    let began = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let stream = UnixStream::connect(&socket).expect("the server listens");
            std::thread::spawn(move || {
                let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
                let mut stream = stream;
                let mut line = String::new();
                let mut n = 0;
                while seconds.map_or(n < 1_000, |limit| began.elapsed() < limit) {
                    let value = format!("{client}-{n}");
                    write!(stream, "set k{client} 0 0 {}\r\n{value}\r\nget k{client}\r\n", value.len()).unwrap();
                    for expected in ["STORED", "VALUE", &value, "END"] {
                        line.clear();
                        answers.read_line(&mut line).unwrap();
                        assert!(line.starts_with(expected), "{expected}: {line}");
                    }
                    n += 1;
                }
                2 * n
            })
        })
        .collect();
    let requests: u64 = clients.into_iter().map(|client| client.join().expect("no client sees an error")).sum();
    let lived = began.elapsed().as_nanos() as u64;
    let snapshot = tool().look("locks", &server.0.id().to_string(), &["--all"]);
    let threads = snapshot["threads"].as_array().map_or(0, Vec::len) as u64;
    let mut total = 0;
    for object in objects(&snapshot).iter().filter(|object| object["kind"] == "mutex") {
        let number = |name: &str| object["stats"][name].as_u64().unwrap_or(0);
        assert!(number("sleep") <= number("lock"), "{object:#}");
        assert!(number("try_fail") <= number("try"), "{object:#}");
        // All threads waiting all the time is the most there can be. (The server was there a little longer.)
        assert!(number("sleep_time_ns") <= 2 * (lived + 1_000_000_000) * threads, "{object:#}");
        total += number("lock");
    }
    // Each request takes a lock of the item, of the statistics, of the cache.
    assert!(total > requests && total < 100 * requests, "{total} acquisitions for {requests} requests");
    println!("{requests} requests in {:.1} s, {total} acquisitions", lived as f64 / 1e9);
}

//! `tglass watch`: what it tells, keeps and runs, and what it answers by HTTP.

mod watch_common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testkit::{Answer, Build, Fixture, Signal, Tool, Value, Variant, eventually, have, serde_json, signal};
use watch_common::{Watching, free_port, get, named};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn start(file: &str, args: &[&str]) -> Fixture {
    Fixture::start(&Build::new(file).variant(Variant::Default).path(), args).settled()
}

/// The kinds of trouble are told apart, and who is idle is in none.
#[test]
fn once_tells_what_a_restart_helps() {
    let once = |pid: i32| tool().run(&["watch", &pid.to_string(), "--once", "--stuck", "1s", "--json"]);
    let kind = |answer: &Answer| {
        let text = answer.text();
        let event = text.lines().next().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        event.map(|event| event["kind"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
    };
    let deadlock = start("deadlocks.c", &["abba"]);
    let circle = start("outside.c", &["pipes"]);
    let behind = start("hangs.c", &["behind_sleep"]);
    let service = start("outside.c", &["slow"]);
    let waits_for_work = start("outside.c", &["client"]);
    let idle = start("hangs.c", &["idle_epoll"]);
    let pool = start("hangs.c", &["pool_alone"]);
    let stopped = start("hangs.c", &["idle_accept"]);
    signal(stopped.pid(), Signal::SIGSTOP);
    let cases = [
        (&deadlock, 1, "deadlocked"),
        (&circle, 1, "deadlocked"),
        (&behind, 3, "behind"),
        (&service, 3, "other_service"),
        (&pool, 1, "nobody_left"),
        (&stopped, 3, "stopped"),
        (&idle, 0, ""),
        (&waits_for_work, 0, ""),
    ];
    // At the same time: each takes as long as what has stood for --stuck needs.
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let once = &once;
        let running: Vec<_> =
            cases.iter().map(|(fixture, ..)| fixture.pid()).map(|pid| scope.spawn(move || once(pid))).collect();
        running.into_iter().map(|running| running.join().expect("an answer")).collect()
    });
    for ((fixture, status, expected), answer) in cases.iter().zip(answers) {
        assert_eq!(
            (answer.code, kind(&answer).as_str()),
            (Some(*status), *expected),
            "{}: {}{}",
            fixture.truth(),
            answer.text(),
            answer.stderr
        );
    }
    signal(stopped.pid(), Signal::SIGCONT);
    // Who may not look says so, and not that nothing is wrong.
    if testkit::root() && have(testkit::part("a watch that may not look"), "setpriv") {
        let public = testkit::Public::new();
        let program = public.copy(env!("CARGO_BIN_EXE_tglass").as_ref(), "tglass");
        let mut command = testkit::as_user(testkit::NOBODY, &program);
        command.args(["watch", &deadlock.pid().to_string(), "--once", "--stuck", "1s"]);
        let answer = Answer::of(command);
        assert!(answer.code == Some(2) && answer.stderr.contains("doctor"), "{:?} {}", answer.code, answer.stderr);
    }
    let nobody = tool().run(&["watch", "--once", "no-such-name"]);
    assert_eq!((nobody.code, nobody.stderr.lines().count()), (Some(2), 1), "{}", nobody.stderr);
}

#[test]
fn what_is_found_is_told_kept_and_handed_on_and_dissolves() {
    let dir = tempfile::tempdir().expect("a directory");
    let (keep, told) = (dir.path().join("kept"), dir.path().join("told"));
    let (program, name) = named(&Build::new("hangs.c").variant(Variant::Default).path(), dir.path(), "tgwt");
    let exec = format!("cat >> {}", told.display());
    let watching =
        Watching::begin(&[&name, "--every", "100ms", "--keep", keep.to_str().expect("UTF-8"), "--exec", &exec]);
    // Processes that come later are watched, too.
    let first = Fixture::start(&program, &["idle_epoll"]).settled();
    signal(first.pid(), Signal::SIGSTOP);
    let found = watching.event();
    assert_eq!(
        (&found["event"], &found["kind"], &found["restart_helps"]),
        (&"found".into(), &"stopped".into(), &"no".into())
    );
    assert_eq!(found["way_out"], format!("kill -CONT {}", first.pid()));
    let kept = found["snapshot"].as_str().expect("a snapshot");
    let why = tool().run(&["why", kept]);
    assert!(why.text().contains("STOPPED"), "{}{}", why.text(), why.stderr);
    signal(first.pid(), Signal::SIGCONT);
    let over = watching.event();
    assert_eq!((&over["event"], &over["kind"]), (&"dissolved".into(), &"stopped".into()));
    drop(first);
    // One that is started anew.
    let second = Fixture::start(&program, &["sem_circle"]).settled();
    let again = watching.event();
    assert_eq!((&again["process"]["pid"], &again["kind"]), (&second.pid().into(), &"deadlocked".into()), "{again:#}");
    assert!(again["threads"].as_array().is_some_and(|threads| !threads.is_empty()), "{again:#}");
    drop(second);
    assert_eq!(watching.event()["event"], "ended");
    eventually("each event should be handed to the command", || {
        let text = std::fs::read_to_string(&told).unwrap_or_default();
        text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count() == 4
    });
    assert_eq!(watching.end(), Some(0));
}

/// The directory has no more files than it may, and none that is not whole.
#[test]
fn the_oldest_snapshots_go_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = dir.path().join("watch-000000000000001-x-1-stopped.tgsnap");
    std::fs::write(&old, "old").expect("a file");
    std::fs::write(dir.path().join("mine.tgsnap"), "not ours").expect("a file");
    std::fs::write(dir.path().join(".watch-1.tgsnap.999999999"), "left over").expect("a file");
    let hung = start("deadlocks.c", &["abba"]);
    let keep = dir.path().to_str().expect("UTF-8");
    let args = ["watch", &hung.pid().to_string(), "--once", "--stuck", "1s", "--keep", keep, "--keep-files", "1"];
    let answer = tool().run(&args);
    assert_eq!(answer.code, Some(1), "{}{}", answer.text(), answer.stderr);
    let entries = std::fs::read_dir(dir.path()).expect("the directory").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert!(!old.exists() && names.len() == 2 && names[0] == "mine.tgsnap", "{names:?}");
    let small = [&args[..], &["--keep-bytes", "100"]].concat();
    let answer = tool().run(&small);
    assert!(answer.code == Some(1) && answer.stderr.contains("--keep-bytes"), "{:?} {}", answer.code, answer.stderr);
}

#[test]
fn pages_and_who_may_not_read_them() {
    let hung = start("deadlocks.c", &["abba"]);
    let watching = Watching::begin(&[&hung.pid().to_string(), "--every", "100ms"]);
    assert_eq!(watching.event()["kind"], "deadlocked");
    assert_eq!(watching.get("/healthz"), (200, b"ok\n".to_vec()));
    eventually("the trouble should be on the page", || watching.get("/healthz/targets").0 == 503);
    let metrics = watching.text("/metrics");
    assert!(metrics.ends_with("# EOF\n") && metrics.contains("kind=\"deadlocked\"} 1\n"), "{metrics}");
    let (status, report) = watching.get("/report");
    assert!(status == 200 && String::from_utf8_lossy(&report).contains("DEADLOCK"));
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.tgsnap");
    std::fs::write(&file, watching.get("/snapshot").1).expect("a file");
    assert_eq!(tool().run(&["why", file.to_str().expect("UTF-8")]).code, Some(1));
    for (path, status) in [
        ("/nothing", 404),
        ("/snapshot?pid=1", 400),
        ("/snapshot?pid=x", 400),
        ("/debug/pprof/profile?seconds=0", 400),
        ("/debug/pprof/mutex?seconds=100000", 400),
    ] {
        assert_eq!(watching.get(path).0, status, "{path}");
    }
    let raw = |request: String| {
        let mut stream = TcpStream::connect(("127.0.0.1", watching.port())).expect("it listens");
        let _ = stream.write_all(request.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.split(' ').nth(1).unwrap_or("none").to_owned()
    };
    assert_eq!(raw("GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".to_owned()), "403");
    assert_eq!(raw("POST /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned()), "405");
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    assert!(["431", "none"].contains(&raw(long).as_str()));
    assert_eq!(raw("\u{1}\u{2}garbage\r\n\r\n".to_owned()), "400");
    assert_eq!(watching.get("/healthz").0, 200);
    let port = free_port();
    let others = tool().run(&["watch", "1", "--listen", &format!("0.0.0.0:{port}")]);
    assert!(others.code == Some(2) && others.stderr.contains("--allow"), "{}", others.stderr);
}

/// Go's own tool reads each profile, over HTTP.
#[test]
fn pprof_reads_each_profile() {
    if !have("pprof_reads_each_profile", "go") {
        return;
    }
    let (hung, busy) = (start("deadlocks.c", &["abba"]), start("hangs.c", &["busy"]));
    let home = tempfile::tempdir().expect("a directory");
    let watching = Watching::begin(&[&hung.pid().to_string(), &busy.pid().to_string(), "--every", "200ms"]);
    for (page, pid, names) in [
        ("mutex?seconds=1", hung.pid(), ["Type: delay", "pthread_mutex_lock"]),
        ("block?seconds=1", hung.pid(), ["Type: delay", "pthread_mutex_lock"]),
        ("goroutine?seconds=1", hung.pid(), ["Type: goroutine", "pthread_mutex_lock"]),
        ("profile?seconds=1", busy.pid(), ["Type: cpu", "compute"]),
    ] {
        let url = format!("http://127.0.0.1:{}/debug/pprof/{page}&pid={pid}", watching.port());
        let mut command = Command::new("go");
        command.args(["tool", "pprof", "-top", &url]).env("HOME", home.path()).env("PPROF_TMPDIR", home.path());
        let answer = Answer::of(command);
        if page.starts_with("profile")
            && String::from_utf8_lossy(&watching.get(&format!("/debug/pprof/{page}&pid={pid}")).1).contains("perf")
        {
            testkit::skip(testkit::part("the profile of CPU time"), "perf events may not be used here");
            continue;
        }
        for name in names {
            assert!(answer.text().contains(name), "{page}: {}{}", answer.text(), answer.stderr);
        }
    }
}

/// Clients that never finish a request keep nobody out, cost little memory, and do not disturb the looks.
#[test]
fn a_thousand_slow_clients_do_no_harm() {
    let idle = start("hangs.c", &["idle_epoll"]);
    let watching = Watching::begin(&[&idle.pid().to_string(), "--every", "100ms"]);
    let (memory, looks) = (watching.status("VmRSS"), watching.looks());
    let slow: Vec<TcpStream> = (0..1000)
        .map(|number| {
            let mut stream = TcpStream::connect(("127.0.0.1", watching.port())).expect("it listens");
            // Some say nothing, some a part of a request, some ask and do not read.
            let text =
                ["", "GET /metrics HTTP/1.1\r\nHost: loc", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"][number % 3];
            let _ = stream.write_all(text.as_bytes());
            stream
        })
        .collect();
    for _ in 0..5 {
        assert_eq!(get(watching.port(), "/healthz").expect("an answer").0, 200);
    }
    eventually("looks should go on", || watching.looks() > looks + 2);
    assert!(watching.open_files() < 200, "{} files", watching.open_files());
    assert!(watching.status("Threads") < 10, "{} threads", watching.status("Threads"));
    let now = watching.status("VmRSS");
    assert!(now < memory + (16 << 10), "{memory} KiB have become {now}");
    drop(slow);
    assert_eq!(watching.get("/healthz").0, 200);
}

/// A real Prometheus scrapes it and answers a query.
#[test]
fn prometheus_scrapes_it() {
    let test = "prometheus_scrapes_it";
    if !have(test, "prometheus") {
        return;
    }
    let hung = start("deadlocks.c", &["abba"]);
    let watching = Watching::begin(&[&hung.pid().to_string(), "--every", "100ms"]);
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs:\n- job_name: tglass\n  static_configs:\n  - \
         targets: ['127.0.0.1:{}']\n",
        watching.port()
    );
    std::fs::write(&config, text).expect("a file");
    let port = free_port();
    let mut server = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let ask = |query: &str| -> Option<Value> {
        let (_, body) = get(port, &format!("/api/v1/query?query={query}")).ok()?;
        // The body may come in chunks.
        let text = String::from_utf8_lossy(&body);
        let (from, to) = (text.find('{')?, text.rfind('}')?);
        let answer: Value = serde_json::from_str(&text[from..=to]).ok()?;
        answer["data"]["result"].as_array()?.first().cloned()
    };
    let mut last = None;
    let is_told = testkit::holds_within(Duration::from_secs(60), || {
        last = ask("tglass_trouble");
        last.as_ref().is_some_and(|it| it["metric"]["kind"] == "deadlocked" && it["value"][1] == "1")
    });
    let counter = ask("tglass_looks_total");
    let _ = server.kill();
    let _ = server.wait();
    assert!(is_told, "{last:?}");
    assert!(counter.is_some(), "a counter has its suffix");
}

/// systemd is told that the watch is ready, and that it is alive.
#[test]
fn systemd_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let idle = start("hangs.c", &["idle_epoll"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tglass"));
    // Looks come much less often than it must say that it is alive.
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000").env_remove("WATCHDOG_PID");
    let watching = Watching::begin_command(command, &[&idle.pid().to_string(), "--every", "1h"]);
    let next = || {
        let mut text = [0; 1024];
        let length = socket.recv(&mut text).expect("a message");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    assert_eq!(next(), "READY=1");
    let status = next();
    assert!(status.starts_with("WATCHDOG=1\nSTATUS=1 processes"), "{status}");
    assert_eq!((next(), next()), ("WATCHDOG=1".to_owned(), "WATCHDOG=1".to_owned()));
    assert_eq!(watching.end(), Some(0));
    let mut rest = next();
    while rest == "WATCHDOG=1" {
        rest = next();
    }
    assert_eq!(rest, "STOPPING=1");
}

/// systemd accepts the unit.
#[test]
fn the_unit_is_right() {
    if !have("the_unit_is_right", "systemd-analyze") {
        return;
    }
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples/tglass-watch.service");
    let text = std::fs::read_to_string(&unit).expect("the unit");
    let dir = tempfile::tempdir().expect("a directory");
    let here = dir.path().join("tglass-watch.service");
    // The program is where it was built, and not where it will be installed.
    std::fs::write(&here, text.replace("/usr/local/bin/tglass", env!("CARGO_BIN_EXE_tglass"))).expect("a file");
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]).arg(&here);
    let answer = Answer::of(command);
    let faults: Vec<&str> = answer.stderr.lines().filter(|line| line.contains("tglass-watch")).collect();
    assert!(answer.code == Some(0) && faults.is_empty(), "{:?}: {}", answer.code, answer.stderr);
}

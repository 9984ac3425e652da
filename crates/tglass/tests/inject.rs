//! The tool on programs that were running before it came: it may be killed at any moment, they may live in containers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testkit::{
    Answer, Build, Fixture, GlibcRoots, Signal, TaskState, Tool, Value, Variant, agent_threads, can_unshare,
    eventually, goes_on, hammer, have, holds_within, is_root, kill_while_it_holds, serde_json, signal, task_state,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// Two that come at the same moment take turns; one that takes the agent off waits for who puts it in.
#[test]
fn tools_that_come_at_once_take_turns() {
    testkit::needs_ptrace!();
    let mut fixture = hammer();
    let pid = fixture.pid().to_string();
    let contend = || tool().command(&["contend", &pid, "-d", "20ms"]).stdout(Stdio::null()).spawn().expect("the tool");
    for round in 0..6_u64 {
        let others = if round % 2 == 0 {
            vec![contend(), contend()]
        } else {
            let first = contend();
            std::thread::sleep(Duration::from_millis(4 * round));
            let detach = tool().command(&["detach", &pid]).stdout(Stdio::null()).spawn().expect("the tool");
            vec![first, detach]
        };
        for mut other in others {
            assert_eq!(other.wait().expect("an end").code(), Some(0), "round {round}");
        }
    }
    eventually("the agent should restore all by itself", || agent_threads(fixture.pid()) == 0);
    goes_on(&mut fixture, &["loads"]);
}

/// The tool is killed by turns after a time that differs each time, while it holds a thread, and when the agent is at work.
#[test]
fn the_tool_may_be_killed_at_any_moment() {
    testkit::needs_ptrace!();
    let mut fixture = hammer();
    let pid = fixture.pid();
    // How long it takes until it counts.
    let begun = Instant::now();
    let answer = tool().run(&["contend", &pid.to_string(), "-d", "1ms"]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let whole = begun.elapsed();
    let kills: u32 = std::env::var("TG_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(25);
    let (mut done, mut holding, mut at_work, mut seed) = (0, 0, 0, 88_172_645_463_325_252_u64);
    // A thread is held for some milliseconds, and a busy machine may let us see that late: then there are more kills, of
    // which one in three is to come while it is held.
    while done < kills || holding == 0 && done < kills + 300 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let mut child = tool()
            .command(&["contend", &pid.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the tool starts");
        match done % 3 {
            0 => std::thread::sleep(whole * (seed % 1000) as u32 / 1000),
            1 => holding += u32::from(kill_while_it_holds(&mut child, pid, || agent_threads(pid) > 0)),
            _ => {
                eventually("a thread of ours should be there", || agent_threads(pid) > 0);
                at_work += 1;
            }
        }
        let _ = child.kill();
        let _ = child.wait();
        goes_on(&mut fixture, &["loads"]);
        eventually("the agent should restore all by itself", || agent_threads(pid) == 0);
        done += 1;
    }
    eprintln!(
        "{done} kills over {whole:?}: {holding} while a thread was held, {at_work} while a thread of ours was there"
    );
    assert!(at_work >= kills / 3 && holding > 0, "{at_work} and {holding} of {done}");
    // And once more in peace.
    let answer = tool().run(&["contend", &pid.to_string(), "-d", "10ms"]);
    assert!(String::from_utf8_lossy(&answer.stdout).contains("removed"), "{}", answer.stderr);
    goes_on(&mut fixture, &["loads"]);
}

#[test]
fn every_command_that_needs_it_puts_the_agent_in() {
    testkit::needs_ptrace!();
    let mut fixture = hammer();
    let pid = fixture.pid().to_string();
    // The program may get no CPU in so short a time.
    eventually("somebody should wait for a lock", || {
        let answer = tool().run(&["contend", &pid, "-d", "300ms", "--json"]);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        let report = answer.json();
        assert!(report["tracked"]["pause_us"].as_u64().is_some_and(|us| us > 0), "{report}");
        assert_eq!(report["tracked"]["restored"], true);
        report["locks"].as_array().is_some_and(|locks| !locks.is_empty())
    });
    eventually("the mutex `plain` should be taken", || {
        let answer = tool().run(&["locks", &pid, "--all", "--track", "200ms", "--json"]);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        let snapshot = answer.json();
        assert!(snapshot["pause_us"].as_u64().is_some_and(|us| us > 0), "{snapshot}");
        assert_eq!(snapshot["longest_pause_us"], snapshot["pause_us"], "one thread was stopped");
        let objects = snapshot["objects"].as_array().expect("objects");
        let plain = objects.iter().find(|object| object["name"] == "plain").expect("the mutex `plain`");
        assert_eq!(plain["kind"], "mutex", "{plain}");
        plain["stats"]["lock"].as_u64().is_some_and(|lock| lock > 0)
    });
    // What was counted then is not shown as if it were of now.
    let snapshot = tool().look("locks", &pid, &["--all"]);
    let objects = snapshot["objects"].as_array().expect("objects");
    assert!(objects.iter().all(|object| object["stats"].is_null()), "{snapshot:#}");
    // By hand.
    let answer = tool().run(&["detach", &pid]);
    assert!(String::from_utf8_lossy(&answer.stdout).contains("no active agent"), "{answer:?}");
    let mut child = tool().command(&["contend", &pid]).stdout(Stdio::null()).spawn().expect("the tool starts");
    eventually("it should be at work", || agent_threads(fixture.pid()) == 1);
    // Its thread is no thread of the program. It takes its name first, and says a moment later which one it is.
    eventually("the agent's thread, and it alone, should be of type `system`", || {
        let snapshot = tool().threads(fixture.pid(), &[]);
        let threads = snapshot["threads"].as_array().expect("threads").iter();
        let system: Vec<_> = threads.filter(|thread| thread["type"] == "system").collect();
        assert!(system.iter().all(|thread| thread["name"] == "threadglass"), "{system:#?}");
        system.len() == 1
    });
    eventually("all should be restored", || {
        let answer = tool().run(&["detach", &pid]);
        String::from_utf8_lossy(&answer.stdout).contains("removed")
    });
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(agent_threads(fixture.pid()), 0);
    goes_on(&mut fixture, &["loads"]);
}

/// A process that a debugger traces is left alone; it says who it is.
#[test]
fn a_traced_process_is_left_alone() {
    testkit::needs_ptrace!();
    let fixture = hammer();
    let pid = fixture.pid();
    let mut holder = tool()
        .command(&["suspend", &pid.to_string(), &pid.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tool starts");
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("a pipe")).read_line(&mut line).expect("it says so");
    assert!(line.contains("suspended"), "{line}");
    let answer = tool().run(&["contend", &pid.to_string(), "-d", "10ms"]);
    let _ = holder.kill();
    let _ = holder.wait();
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains(&format!("process {pid} is traced by")), "{}", answer.stderr);
}

/// Another user's process.
#[test]
fn without_permission_it_says_so() {
    if !is_root("without_permission_it_says_so", "to be another user") {
        return;
    }
    let fixture = hammer();
    let public = testkit::Public::new();
    let copy = public.copy(Path::new(env!("CARGO_BIN_EXE_tglass")), "tglass");
    let mut command = testkit::as_user(testkit::NOBODY, &copy);
    command.args(["contend", &fixture.pid().to_string(), "-d", "10ms"]);
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains("not permitted"), "{}", answer.stderr);
}

/// Whether the tool counts: it polls for the end of its time, or Ctrl-C, once it does, and for nothing before.
fn is_counting(tool: &TaskState) -> bool {
    tool.call.starts_with("7 ") || tool.call.starts_with("271 ")
}

/// Counts of `inject_counts` between attach and the end, by the tool, on a fixture wherever it lives: `pid` is the
/// process.
fn counts(fixture: &mut Fixture, pid: i32) {
    let child = tool()
        .command(&["locks", &pid.to_string(), "--all", "--track", "10m", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool starts");
    let own = child.id() as i32;
    eventually("the tool should count, or say why not", || {
        task_state(own, own).is_none_or(|task| task.letter == 'Z' || is_counting(&task))
    });
    assert_eq!(fixture.ask("work 500"), "done");
    signal(own, Signal::SIGINT);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let snapshot: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let at = &fixture.truth()["counted"];
    let object = snapshot["objects"].as_array().expect("objects").iter().find(|object| &object["address"] == at);
    assert_eq!(object.map(|object| &object["stats"]["lock"]), Some(&Value::from(2000)), "{object:?}");
    assert_eq!(fixture.ask("work 10"), "done");
}

/// Another root, which cannot be written to, and other mount, pid and user namespaces.
#[test]
fn in_a_container_with_a_readonly_root() {
    testkit::needs_ptrace!();
    const TEST: &str = "in_a_container_with_a_readonly_root";
    const NAMESPACES: [&str; 5] = ["--mount", "--pid", "--fork", "--user", "--map-root-user"];
    if !is_root(TEST, "to make namespaces") || !can_unshare(TEST, &NAMESPACES) {
        return;
    }
    let program = Build::new("inject_counts.c").variant(Variant::Default).path();
    let dir = program.parent().expect("a directory");
    // `/` and all below it read-only, with a /proc of its own.
    const START: &str = r#"mount --rbind / "$0" && mount -o remount,bind,ro "$0" && mount -t proc proc "$0/proc" &&
        cd "$0" && exec chroot . "$1""#;
    let mut command = Command::new("unshare");
    command.args(NAMESPACES).args(["sh", "-c", START]);
    let root = dir.join("container-root");
    std::fs::create_dir_all(&root).expect("a directory");
    command.arg(&root).arg(&program);
    let mut fixture = Fixture::command(command);
    // `unshare` itself is the parent of what runs in the container.
    let inner = children(fixture.pid()).pop().unwrap_or(fixture.pid());
    let pid = inner.to_string();
    counts(&mut fixture, inner);
    // Killed from outside: the agent sees it across the namespaces.
    let mut child = tool().command(&["contend", &pid]).stdout(Stdio::null()).spawn().expect("the tool starts");
    eventually("it should be at work", || agent_threads(inner) == 1);
    let own = child.id() as i32;
    eventually("it should count", || task_state(own, own).is_some_and(|task| is_counting(&task)));
    let _ = child.kill();
    let _ = child.wait();
    eventually("the agent should restore all by itself", || agent_threads(inner) == 0);
    assert_eq!(fixture.ask("work 10"), "done");
}

fn children(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The C libraries of other releases, run by their own loaders and as roots of their own.
#[test]
fn every_glibc_version_can_have_it() {
    let Some(roots) = GlibcRoots::find("every_glibc_version_can_have_it") else { return };
    for (version, root) in roots.iter() {
        eprintln!("glibc {version}");
        let mut outside = Fixture::start(&roots.build("inject_counts.c", root), &[]).settled();
        let pid = outside.pid();
        counts(&mut outside, pid);
        if testkit::can_start_inside(testkit::part("programs inside another root")) {
            let mut inside = roots.start_inside("inject_counts.c", root).settled();
            let pid = inside.pid();
            counts(&mut inside, pid);
        }
    }
}

/// A real server under load: its clients see no error while the agent comes and goes.
#[test]
fn a_real_server_does_not_notice() {
    testkit::needs_ptrace!();
    const TEST: &str = "a_real_server_does_not_notice";
    if !have(TEST, "memcached") {
        return;
    }
    let port = 20_000 + (std::process::id() % 20_000) as u16;
    let mut server = Command::new("memcached")
        .args(["-u", "root", "-l", "127.0.0.1", "-t", "4", "-p", &port.to_string()])
        .stdin(Stdio::null())
        .spawn()
        .expect("memcached starts");
    let pid = server.id() as i32;
    eventually("memcached should listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let requests = std::sync::Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (stop, requests) = (stop.clone(), requests.clone());
            std::thread::spawn(move || client(port, number, &stop, &requests))
        })
        .collect();
    let rounds: u32 = std::env::var("TG_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(15);
    let mut faults = Vec::new();
    for round in 0..rounds.min(200) {
        let answer = tool().run(&["contend", &pid.to_string(), "-d", "50ms", "--json"]);
        if answer.code != Some(0) || answer.json()["tracked"]["restored"] != true {
            faults.push(format!("round {round}: {}", answer.stderr));
        }
    }
    let served = holds_within(Duration::from_secs(60), || requests.load(Ordering::Relaxed) > 100);
    stop.store(true, Ordering::Relaxed);
    let is_alive = matches!(server.try_wait(), Ok(None));
    // A client that waits for an answer which does not come sees the end of its connection.
    if !is_alive || !served {
        let _ = server.kill();
    }
    let clients: Vec<_> = clients.into_iter().map(std::thread::JoinHandle::join).collect();
    let _ = server.kill();
    let _ = server.wait();
    assert!(is_alive && served, "{requests:?} requests");
    clients.into_iter().for_each(|client| client.expect("no client saw an error"));
    assert!(faults.is_empty(), "{faults:?}");
    eprintln!("{requests:?} requests in {rounds} rounds");
}

/// Sets and gets, and panics at the first wrong answer.
fn client(port: u16, number: u32, stop: &AtomicBool, requests: &AtomicU64) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_nodelay(true).expect("an option of sockets");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    let mut done = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let value = format!("{number}-{done}");
        write!(stream, "set key{number} 0 0 {}\r\n{value}\r\nget key{number}\r\n", value.len()).expect("sent");
        let wanted = format!("STORED\r\nVALUE key{number} 0 {}\r\n{value}\r\nEND\r\n", value.len());
        let mut got = vec![0; wanted.len()];
        stream.read_exact(&mut got).expect("an answer");
        assert_eq!(String::from_utf8_lossy(&got), wanted);
        done += 1;
        requests.fetch_add(1, Ordering::Relaxed);
    }
}

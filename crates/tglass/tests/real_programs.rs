//! Programs that we did not write, and one without a libc.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use testkit::{Answer, Build, Fixture, Public, Tool, Value, eventually, have, part, skip, threads, wait_asleep};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// memcached with its usual threads, reachable by nobody but us.
fn memcached(public: &Public) -> Server {
    let socket = public.writable().join("socket");
    let mut command = Command::new("memcached");
    command.arg("-s").arg(&socket).args(["-t", "4", "-m", "8"]).stdin(Stdio::null());
    // It refuses to serve as root.
    if testkit::root() {
        command.args(["-u", "nobody"]);
    }
    let server = Server(command.spawn().unwrap());
    let pid = server.0.id() as i32;
    let tasks = || kernel_threads(pid).len();
    eventually("memcached should listen", || socket.exists());
    // The last of its threads start behind the socket: wait until their number stands still while all
    // of them sleep.
    eventually("memcached should come to rest", || {
        let before = tasks();
        kernel_threads(pid).iter().for_each(|lwp| wait_asleep(pid, *lwp as i32));
        before > 5 && tasks() == before
    });
    server
}

fn kernel_threads(pid: i32) -> BTreeSet<i64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.map(|task| task.unwrap().file_name().to_string_lossy().parse().unwrap()).collect()
}

#[test]
fn memcached_as_the_kernel_and_gdb_see_it() {
    let test = "memcached_as_the_kernel_and_gdb_see_it";
    if !have(test, "memcached") {
        return;
    }
    let public = Public::new();
    let server = memcached(&public);
    let pid = server.0.id() as i32;
    let snapshot = tool().threads(pid, &[]);
    let seen: BTreeMap<i64, String> = threads(&snapshot)
        .iter()
        .map(|thread| (thread["lwp"].as_i64().unwrap(), thread["id"].as_str().unwrap_or("none").to_owned()))
        .collect();
    assert_eq!(seen.keys().copied().collect::<BTreeSet<_>>(), kernel_threads(pid));
    for thread in threads(&snapshot) {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/task/{}/comm", thread["lwp"])).unwrap();
        assert_eq!(thread["name"], comm.trim_end(), "{thread:#}");
        assert!(!thread["stack"].is_null() && !thread["signal_mask"].is_null(), "{thread:#}");
    }
    assert_eq!(snapshot["gaps"].as_array().map(Vec::len), Some(0), "{:#}", snapshot["gaps"]);

    let by_gdb = part("the same by gdb");
    if !have(by_gdb, "gdb") {
        return;
    }
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-p", &pid.to_string(), "-ex", "info threads"]);
    let text = Answer::of(command).text();
    let gdb = pairs_in(&text);
    if gdb.is_empty() {
        return skip(by_gdb, "gdb could not attach or has no libthread_db here");
    }
    assert_eq!(gdb, seen, "{text}");
}

/// `Thread 0x7f.. (LWP 12)` in gdb's words.
fn pairs_in(text: &str) -> BTreeMap<i64, String> {
    text.lines()
        .filter(|line| line.starts_with(['*', ' ']))
        .filter_map(|line| {
            let (_, rest) = line.split_once("Thread 0x")?;
            let (id, rest) = rest.split_once(" (LWP ")?;
            let (lwp, _) = rest.split_once(')')?;
            Some((lwp.parse().ok()?, format!("0x{id}")))
        })
        .collect()
}

/// Nothing but the kernel's facts, and that is said.
#[test]
fn a_program_without_libc() {
    let path = Build::new("no_libc.c")
        .flags(&["-nostdlib", "-static", "-fno-pie", "-no-pie", "-fno-stack-protector", "-fno-builtin"])
        .path();
    let fixture = Fixture::start(&path, &[]).settled();
    kernel_threads(fixture.pid()).iter().for_each(|lwp| wait_asleep(fixture.pid(), *lwp as i32));
    let snapshot = tool().threads(fixture.pid(), &[]);
    let lwps: BTreeSet<_> = threads(&snapshot).iter().map(|thread| thread["lwp"].as_i64().unwrap()).collect();
    assert_eq!((lwps.len(), &lwps), (2, &kernel_threads(fixture.pid())));
    for thread in threads(&snapshot) {
        assert_eq!((&thread["id"], &thread["state"]), (&Value::Null, &"sleep".into()), "{thread:#}");
    }
    assert_eq!(snapshot["target"]["libc"]["kind"], "other");
    assert!(snapshot["gaps"].to_string().contains("glibc"), "{:#}", snapshot["gaps"]);
    let pid = fixture.pid().to_string();
    for verb in ["threads", "doctor"] {
        assert_eq!(tool().run(&[verb, &pid]).code, Some(0), "{verb}");
    }
    assert!(tool().run(&["tsd", &pid]).assert_refused().contains("glibc"));
}

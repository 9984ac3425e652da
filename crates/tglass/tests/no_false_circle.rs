//! Processes that are busy with each other, looked at again and again: none of them ever waits in a circle.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use testkit::{Build, Fixture, Variant, eventually, have, part};
use threadglass::Pid;
use threadglass::look::{MachineOptions, explain_for, machine};
use threadglass::model::{FindingKind, VerdictKind};
use threadglass::target::Live;

/// Looks that a test takes; `make soak` takes thousands.
fn looks() -> usize {
    asked_for().unwrap_or(100)
}

fn asked_for() -> Option<usize> {
    std::env::var("TG_LOOKS").ok()?.parse().ok()
}

/// Programs that run, each with a process group of its own, until this is dropped.
#[derive(Default)]
struct Busy(Vec<Child>);

impl Busy {
    fn start(&mut self, command: &mut Command) {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn();
        self.0.push(child.expect("it starts"));
    }

    fn shell(&mut self, script: &str) {
        self.start(Command::new("sh").args(["-c", script]));
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let group = nix::unistd::Pid::from_raw(child.id() as i32);
            let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

fn group_of(pid: Pid) -> Option<i32> {
    nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid.0))).ok().map(nix::unistd::Pid::as_raw)
}

/// A port of the loopback that nobody has.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Asks a server again and again until `is_over`; counts the answers.
fn ask(port: u16, question: &str, is_over: &AtomicBool, answers: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)) else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let mut answer = [0; 512];
        let is_answered =
            server.write_all(question.as_bytes()).is_ok() && server.read(&mut answer).is_ok_and(|it| it > 0);
        answers.fetch_add(u64::from(is_answered), Ordering::Relaxed);
        // The looks want a CPU, too.
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn web_server(busy: &mut Busy, dir: &Path, port: u16) {
    let at = dir.display();
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {at}/{name}; "))
        .concat();
    let text = format!(
        "daemon off; pid {at}/pid; error_log {at}/log; worker_processes 2; events {{ }} \
         http {{ access_log off; {paths} server {{ listen 127.0.0.1:{port}; location / {{ return 200 fine; }} }} }}"
    );
    std::fs::write(dir.join("nginx.conf"), text).unwrap();
    busy.start(Command::new("nginx").arg("-c").arg(dir.join("nginx.conf")));
}

/// A database, and clients that wait for each other's row locks.
fn database(busy: &mut Busy, dir: &Path) {
    let data = dir.join("data");
    let mut install = Command::new("mariadb-install-db");
    install.args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal"]);
    let installed = install.arg(format!("--datadir={}", data.display())).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        return;
    }
    let socket = dir.join("socket");
    let mut server = Command::new("mariadbd");
    server.args(["--no-defaults", "--user=root", "--skip-networking"]);
    busy.start(server.arg(format!("--datadir={}", data.display())).arg(format!("--socket={}", socket.display())));
    let client = format!("mariadb --no-defaults -uroot -S {}", socket.display());
    busy.shell(&format!(
        "until {client} -e 'create database t; create table t.r(a int primary key, b int) engine=innodb; \
         insert into t.r values (1, 1)'; do sleep 0.2; done; \
         for i in 1 2 3; do (while :; do {client} t -e 'begin; update r set b = b + 1; do sleep(0.01); commit'; done) & done; wait"
    ));
}

#[test]
fn a_busy_machine_has_no_circles() {
    let dir = tempfile::tempdir().unwrap();
    let mut busy = Busy::default();
    let mut passing = Command::new(Build::new("passing.c").variant(Variant::Default).path());
    passing.process_group(0);
    let mut passing = Fixture::command(passing);
    busy.shell("while :; do yes | head -c 300000 | cat | wc -c; done");
    busy.shell("while :; do seq 1 50 | while read n; do echo $n | tr 0-9 a-j; done; done");
    std::fs::write(dir.path().join("Makefile"), "all: a b c\na b c:\n\t+$(MAKE) -f sub.mk\n").unwrap();
    std::fs::write(dir.path().join("sub.mk"), "all: x y z\nx y z:\n\tsleep 0.05\n").unwrap();
    busy.shell(&format!("while :; do make -s -j3 -C {}; done", dir.path().display()));
    busy.shell(&format!(
        "for i in 1 2 3; do (while :; do flock {0}/lock sleep 0.01; done) & done; wait",
        dir.path().display()
    ));
    let test = || part("a_busy_machine_has_no_circles");
    let (web, cache) = (free_port(), free_port());
    if have(test(), "nginx") {
        web_server(&mut busy, dir.path(), web);
    }
    if have(test(), "memcached") {
        busy.start(Command::new("memcached").args(["-u", "root", "-l", "127.0.0.1", "-p", &cache.to_string()]));
    }
    // It takes some seconds to start.
    if asked_for().is_some() && have(test(), "mariadbd") {
        database(&mut busy, dir.path());
    }
    let groups: BTreeSet<i32> = busy.0.iter().map(|child| child.id() as i32).chain([passing.pid()]).collect();
    let wanted = |pid: Pid| group_of(pid).is_some_and(|group| groups.contains(&group));
    let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (port, question) in
            [(web, "GET / HTTP/1.0\r\n\r\n"), (cache, "version\r\n"), (web, "GET / HTTP/1.0\r\n\r\n")]
        {
            let (is_over, answers) = (&is_over, &answers);
            scope.spawn(move || ask(port, question, is_over, answers));
        }
        let (mut waits, mut bytes) = (0, 0);
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for look in 0..looks() {
                let seen = machine(&MachineOptions { wanted: Some(&wanted), all: true });
                for process in &seen.processes_to_see {
                    let is_wrong = matches!(process.verdict.kind, VerdictKind::Deadlock | VerdictKind::NobodyLeft);
                    assert!(!is_wrong, "look {look}: {process:#?}");
                    waits += usize::from(process.verdict.kind == VerdictKind::OtherProcess);
                }
                if look % 500 == 499 {
                    eprintln!("{} looks, {waits} waits", look + 1);
                }
                if look % 50 == 0 {
                    let before = bytes;
                    eventually("the reader itself should go on", || {
                        bytes = passing.ask("").parse::<u64>().unwrap();
                        bytes > before
                    });
                }
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(fault) = looked {
            std::panic::resume_unwind(fault);
        }
        // Looks that see nothing prove nothing.
        assert!(waits > 5 * looks(), "{waits} waits in {} looks", looks());
        eprintln!("{} looks, {waits} waits, {} answers", looks(), answers.load(Ordering::Relaxed));
    });
}

/// Whoever is named at the other end of a pipe that goes from process to process has had it: never one that never did.
#[test]
fn no_wrong_partner_of_a_pipe_that_is_passed_on() {
    let mut passing = Fixture::start(&Build::new("passing.c").variant(Variant::Default).path(), &[]);
    let name = std::fs::read_to_string(format!("/proc/{}/comm", passing.pid())).unwrap();
    let reader = Pid(passing.truth()["reader"].as_i64().expect("a pid") as i32);
    let (mut named, mut bytes) = (0, 0);
    let mut look = 0;
    while look < looks() || look < 5 * looks() && named < 10 {
        let live = Live::open(reader).unwrap();
        let snapshot = explain_for(&live, Duration::ZERO).unwrap();
        for finding in &snapshot.findings {
            let is_wrong = matches!(finding.kind, FindingKind::ProcessCircle | FindingKind::NobodyLeft);
            assert!(!is_wrong, "look {look}: {finding:#?}");
        }
        let waits = snapshot.threads.iter().filter_map(|thread| thread.waits_outside.as_ref());
        for partner in waits.flat_map(|wait| &wait.partners) {
            let is_right = partner.name.as_deref().is_none_or(|found| found == name.trim_end());
            assert!(is_right, "look {look}: {partner:?}");
            named += 1;
        }
        look += 1;
    }
    eventually("the reader itself should go on", || {
        bytes = passing.ask("").parse::<u64>().unwrap();
        bytes > 0
    });
    assert!(named >= 10, "{named} partners in {look} looks");
    eprintln!("{look} looks, {named} partners");
}

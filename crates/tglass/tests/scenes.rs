//! `tglass why` on hangs of real programs that wait for each other.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::{
    NOBODY, Public, Tool, Value, as_user, can_unshare, end_with_descendants, ensure, eventually, have, is_root, threads,
};

/// Programs that run until this is dropped, and all that they have started.
#[derive(Default)]
struct Scene(Vec<Child>);

impl Scene {
    fn start(&mut self, command: &mut Command) -> i32 {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("it starts");
        let pid = child.id() as i32;
        self.0.push(child);
        pid
    }

    fn shell(&mut self, script: &str) -> i32 {
        self.start(Command::new("bash").args(["-c", script]))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.0.iter_mut().rev().for_each(end_with_descendants);
    }
}

fn name_of(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// The descendants of a process with this name.
fn below(pid: i32, name: &str) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<i32> = children.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    let is_it = |pid: &i32| name_of(*pid) == name;
    children.iter().flat_map(|child| below(*child, name)).chain(children.iter().copied().filter(is_it)).collect()
}

/// The only descendant of that name, once it is there.
fn one_below(pid: i32, name: &str) -> i32 {
    eventually("it should be started", || below(pid, name).len() == 1);
    below(pid, name)[0]
}

/// What is said of a process once that is right. Then it stays so.
fn why(pid: i32, check: impl Fn(&Value) -> Result<(), String>) {
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    let mut fault = String::new();
    let is_right = testkit::holds_within(std::time::Duration::from_secs(60), || {
        let answer = tool.run(&["why", &pid.to_string(), "--json"]);
        // A shell may execute its command during the look.
        if answer.code == Some(2) {
            fault = answer.text();
            return false;
        }
        let seen = answer.json();
        fault = check(&seen).err().map(|fault| format!("{fault}: {}", seen["verdict"])).unwrap_or_default();
        fault.is_empty()
    });
    assert!(is_right, "{fault}");
    check(&tool.look("why", &pid.to_string(), &[])).unwrap_or_else(|fault| panic!("the second time: {fault}"));
}

fn is_kind(seen: &Value, kind: &str) -> Result<(), String> {
    ensure(seen["verdict"]["kind"] == kind, || format!("not {kind}"))
}

fn says(seen: &Value, what: &str) -> Result<(), String> {
    let text = seen["verdict"]["text"].as_str().unwrap_or_default();
    ensure(text.contains(what), || format!("no {what:?}"))
}

/// The pids that the only wait of the process leads to.
fn partners(seen: &Value) -> Vec<i64> {
    let waits = threads(seen).iter().filter_map(|thread| thread["waits_outside"]["partners"].as_array());
    waits.flatten().filter_map(|partner| partner["pid"].as_i64()).collect()
}

fn stack_of(seen: &Value, pid: i32) -> usize {
    let strangers = seen["strangers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_it = strangers.iter().filter(|stranger| stranger["pid"] == pid);
    of_it.filter_map(|stranger| stranger["thread"]["frames"].as_array()).map(Vec::len).sum()
}

/// All commands of a pipeline wait for the one that sleeps, and so does the shell.
#[test]
fn a_pipeline() {
    let mut scene = Scene::default();
    let shell = scene.shell("yes | (sleep 1000; cat) | wc -l; true");
    let sleeper = one_below(shell, "sleep");
    for waiter in [shell, one_below(shell, "yes"), one_below(shell, "wc")] {
        why(waiter, |seen| {
            is_kind(seen, "other_process")?;
            says(seen, &format!("wait for sleep (pid {sleeper}), which is sleeping for a time"))?;
            ensure(stack_of(seen, sleeper) > 0, || "no stack of the one that sleeps".to_owned())
        });
    }
}

/// A lock that flock(1) took for the command that it has started.
#[test]
fn a_lock_of_flock() {
    if !have("a_lock_of_flock", "flock") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lock");
    let mut scene = Scene::default();
    let holder = scene.start(Command::new("flock").arg(&file).args(["sleep", "1000"]));
    let sleeper = one_below(holder, "sleep");
    let waiter = scene.start(Command::new("flock").arg(&file).arg("true"));
    why(waiter, |seen| {
        is_kind(seen, "other_process")?;
        says(seen, &format!("the lock is held by flock (pid {holder}), sleep (pid {sleeper})"))
    });
}

/// `make` waits for a token of its job server: for the other makes, or for the end of a job of its own.
#[test]
fn a_job_server() {
    if !have("a_job_server", "make") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("Makefile"), "all: a b c\na b c:\n\t+$(MAKE) -f sub.mk\n").unwrap();
    std::fs::write(dir.path().join("sub.mk"), "all: x y z\nx y z:\n\tsleep 1000\n").unwrap();
    let mut scene = Scene::default();
    let top = scene.start(Command::new("make").args(["-s", "-j2", "-C"]).arg(dir.path()));
    eventually("both jobs should run", || below(top, "sleep").len() == 2);
    why(top, |seen| {
        is_kind(seen, "other_process")?;
        let mut makes: Vec<i64> = below(top, "make").into_iter().map(i64::from).collect();
        makes.sort_unstable();
        let mut found = partners(seen);
        found.sort_unstable();
        ensure(found == makes, || format!("{found:?}, not {makes:?}"))?;
        says(seen, "the end of a child wakes it, too")
    });
}

/// A parent that joins a child which cannot end before the parent has read from the queue.
#[test]
fn multiprocessing_of_python() {
    if !have("multiprocessing_of_python", "python3") {
        return;
    }
    let script = "import multiprocessing as m\nq = m.get_context('fork').Queue()\n\
        p = m.get_context('fork').Process(target=q.put, args=('x' * (1 << 22),))\np.start()\np.join()\n";
    let mut scene = Scene::default();
    let parent = scene.start(Command::new("python3").args(["-c", script]));
    why(parent, |seen| {
        is_kind(seen, "deadlock")?;
        let finding = &seen["findings"][0];
        ensure(finding["kind"] == "process_circle" && finding["certainty"] == "likely", || finding.to_string())
    });
}

/// A client of nginx, whose backend (this process) has read the question and does not answer.
#[test]
fn a_backend_that_does_not_answer() {
    if !have("a_backend_that_does_not_answer", "nginx") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut scene = Scene::default();
    let nginx = scene.start(&mut nginx(dir.path(), port, backend.local_addr().unwrap().port()));
    eventually("the server should listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let question = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; exec cat <&3");
    let client = scene.shell(&question);
    let (mut connection, _) = backend.accept().unwrap();
    assert!(connection.read(&mut [0; 64]).unwrap() > 0);
    let worker = below(nginx, "nginx");
    let asked = format!("it has asked {} (pid {})", name_of(std::process::id() as i32), std::process::id());
    why(client, |seen| {
        is_kind(seen, "other_process")?;
        ensure(partners(seen) == [i64::from(worker[0])], || format!("{:?}", partners(seen)))?;
        says(seen, &asked)?;
        says(seen, "owes an answer: it has read all that was sent")?;
        ensure(stack_of(seen, worker[0]) > 0, || "no stack of the server".to_owned())
    });
    // The server itself says the same.
    why(worker[0], |seen| {
        is_kind(seen, "other_process")?;
        says(seen, &asked)
    });
    connection.write_all(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
}

fn nginx(dir: &Path, port: u16, backend: u16) -> Command {
    let at = dir.display();
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {at}/{name}; "))
        .concat();
    let text = format!(
        "daemon off; pid {at}/pid; error_log {at}/log; worker_processes 1; events {{ }} http {{ access_log off; {paths} \
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{backend}; }} }} }}"
    );
    std::fs::write(dir.join("nginx.conf"), text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-c").arg(dir.join("nginx.conf"));
    command
}

/// A client that waits for a row that another one has locked: the server's thread is named, with its stack.
#[test]
fn a_row_lock_of_a_database() {
    const CLIENTS: usize = 8;
    let test = "a_row_lock_of_a_database";
    if !have(test, "mariadbd") || !have(test, "mariadb-install-db") || !is_root(test, "to start the database as root") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (data, socket) = (dir.path().join("data"), dir.path().join("s"));
    let mut install = Command::new("mariadb-install-db");
    install.args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    assert!(install.arg(format!("--datadir={}", data.display())).output().unwrap().status.success());
    let mut scene = Scene::default();
    let mut server = Command::new("mariadbd");
    server.args(["--no-defaults", "--user=root", "--skip-networking", "--innodb-lock-wait-timeout=100000"]);
    server.arg(format!("--datadir={}", data.display())).arg(format!("--socket={}", socket.display()));
    let server = scene.start(&mut server);
    let client = |query: &str| {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "-uroot", "-S"]).arg(&socket).args(["-e", query]);
        command
    };
    let table = "create database if not exists t; create or replace table t.r(a int primary key, b int) engine=innodb; \
        insert into t.r values (1, 1)";
    eventually("the database should start", || client(table).output().unwrap().status.success());
    scene.start(&mut client("use t; begin; update r set b = 2; do sleep(100000)"));
    eventually("the row should be locked", || {
        let list = client("show processlist").output().unwrap();
        String::from_utf8_lossy(&list.stdout).contains("do sleep")
    });
    // The thread that has taken the request is known by the time. On a busy machine that is not so for every client.
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    let is_told = (0..CLIENTS).any(|_| {
        let waiter = scene.start(&mut client("update t.r set b = 3"));
        why(waiter, |seen| {
            is_kind(seen, "other_process")?;
            ensure(partners(seen) == [i64::from(server)], || format!("{:?}", partners(seen)))
        });
        testkit::holds_within(std::time::Duration::from_secs(5), || {
            let seen = tool.look("why", &waiter.to_string(), &[]);
            says(&seen, "went to sleep when this wait began").is_ok() && stack_of(&seen, server) > 3
        })
    });
    assert!(is_told, "the thread of the server was told of none of {CLIENTS} clients");
}

/// The newest programs of PostgreSQL that are installed: Debian has them in no directory of `PATH`.
fn postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path().join("bin"));
    versions.filter(|bin| bin.join("initdb").exists()).max()
}

/// A server that has a process for each client: that of the client that waits for a row is named, with its stack.
#[test]
fn a_row_lock_of_postgres() {
    let test = "a_row_lock_of_postgres";
    if !have(test, "psql") || !have(test, "setpriv") || !is_root(test, "to start the database as another user") {
        return;
    }
    let Some(bin) = postgres() else { return testkit::skip(test, "no server of PostgreSQL is installed") };
    let dir = Public::new();
    std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let data = dir.path().join("data");
    let mut install = as_user(NOBODY, &bin.join("initdb"));
    install.args(["-A", "trust", "-U", "postgres", "-N", "-D"]).arg(&data);
    let installed = install.output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let mut scene = Scene::default();
    let mut server = as_user(NOBODY, &bin.join("postgres"));
    server.arg("-D").arg(&data).arg("-k").arg(dir.path()).args(["-c", "listen_addresses=", "-c", "fsync=off"]);
    let server = scene.start(&mut server);
    let client = |queries: &[&str]| {
        let mut command = Command::new("psql");
        command.arg("-h").arg(dir.path()).args(["-U", "postgres", "-At"]);
        for query in queries {
            command.args(["-c", query]);
        }
        command
    };
    let ask = |query: &str| {
        let output = client(&[query]).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    eventually("the database should start", || ask("create table r (a int primary key, b int)").is_some());
    ask("insert into r values (1, 1)").expect("a row");
    scene.start(&mut client(&["begin", "update r set b = 2", "select pg_sleep(100000)"]));
    eventually("the row should be locked", || {
        ask("select count(*) from pg_stat_activity where query like 'select pg_sleep%'").as_deref() == Some("1")
    });
    let waiter = scene.start(&mut client(&["update r set b = 3"]));
    let waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock'";
    eventually("a client should wait for it", || ask(waiting).is_some_and(|pid| !pid.is_empty()));
    let backend: i64 = ask(waiting).and_then(|pid| pid.parse().ok()).expect("a pid");
    why(waiter, |seen| {
        is_kind(seen, "other_process")?;
        ensure(partners(seen) == [backend], || format!("{:?}, not {backend}", partners(seen)))?;
        ensure(stack_of(seen, backend as i32) > 3, || "no stack of the server's process".to_owned())
    });
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(server), nix::sys::signal::Signal::SIGQUIT);
}

/// Processes in namespaces of their own: a FIFO, and a connection over the loopback of their network.
#[test]
fn processes_in_a_container() {
    let test = "processes_in_a_container";
    let options = ["--mount", "--pid", "--net", "--fork", "--mount-proc"];
    if !is_root(test, "to make namespaces") || !can_unshare(test, &options) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let mut scene = Scene::default();
    let script = format!("mkfifo {0}; (exec sleep 1000 > {0}) & cat {0}; true", fifo.display());
    let outer = scene.start(Command::new("unshare").args(options).args(["bash", "-c", &script]));
    let (sleeper, reader) = (one_below(outer, "sleep"), one_below(outer, "cat"));
    why(reader, |seen| {
        is_kind(seen, "other_process")?;
        ensure(partners(seen) == [i64::from(sleeper)], || format!("{:?}", partners(seen)))
    });
    // From outside of the container into it, and through it to the end.
    why(outer, |seen| says(seen, &format!("sleep (pid {sleeper}), which is sleeping for a time")));
}

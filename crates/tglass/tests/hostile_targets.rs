//! Programs that were written to be looked at: they must not get anything from whoever does, nor make it wait for ever.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Answer, Build, Capability, Fixture, Go, NOBODY, Public, Tool, Variant, has_capability, is_root};

/// That of the table which the agent and its readers share.
const TABLE_VERSION: &str = "4";

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// The program, as a user without rights; under a name by which the agent would be recognised, if it is to be.
fn hostile(public: &Public, args: &[&str]) -> Fixture {
    let program = Build::new("hostile_inject.c").variant(Variant::Default).flags(&["-rdynamic"]).path();
    let program = public.copy(&program, if args[0] == "control" { "threadglass-agent-not" } else { "program" });
    let mut command = testkit::as_user(NOBODY, &program);
    command.args(args);
    Fixture::command(command).settled()
}

/// A file that only root may open, but anybody can name.
fn secret(public: &Public) -> PathBuf {
    let path = public.path().join("secret");
    std::fs::write(&path, "of root").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

fn fifo(public: &Public) -> PathBuf {
    let path = public.path().join("fifo");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    path
}

/// What root does to such a program: all that puts the agent in, talks to it or removes its hooks. Each must end by itself.
fn root_does(pid: i32) -> Vec<Answer> {
    let pid = pid.to_string();
    let ways: [&[&str]; 3] = [&["detach", &pid], &["contend", &pid, "-d", "10ms"], &["locks", &pid, "--track", "10ms"]];
    ways.iter().map(|args| tool().run(args)).collect()
}

#[test]
fn a_descriptor_that_a_program_names_is_never_written_to() {
    let test = "a_descriptor_that_a_program_names_is_never_written_to";
    if !is_root(test, "to start a program as another user")
        || !has_capability(test, Capability::Ptrace, "to look at another user's program")
    {
        return;
    }
    let public = Public::new();
    let (secret, fifo) = (secret(&public), fifo(&public));
    for (what, path) in [("control", &secret), ("control", &fifo), ("mail", &secret), ("mail", &fifo)] {
        let mut fixture = hostile(&public, &[what, path.to_str().unwrap(), TABLE_VERSION]);
        for answer in root_does(fixture.pid()) {
            assert!(matches!(answer.code, Some(0 | 2)), "{what} {path:?}: {answer:?}");
            assert_eq!(answer.stderr.lines().count(), usize::from(answer.code == Some(2)), "{answer:?}");
        }
        assert_eq!(std::fs::read(&secret).unwrap(), b"of root", "{what}");
        assert_eq!(fixture.ask("alive"), "alive");
    }
}

/// It seems to have an agent, whose pipe is one, and which then does nothing.
#[test]
fn a_program_that_never_answers_is_waited_for_but_once() {
    let test = "a_program_that_never_answers_is_waited_for_but_once";
    if !is_root(test, "to start a program as another user")
        || !has_capability(test, Capability::Ptrace, "to look at another user's program")
        || !testkit::have(test, "strace")
    {
        return;
    }
    let public = Public::new();
    let mut fixture = hostile(&public, &["control", "pipe", TABLE_VERSION]);
    let pid = fixture.pid().to_string();
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-e", "trace=write", "-o"]).arg(public.path().join("trace"));
    command.arg(env!("CARGO_BIN_EXE_tglass")).args(["contend", &pid, "-d", "10ms"]);
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    // Each wait begins with a word of ours in the pipe.
    let trace = std::fs::read_to_string(public.path().join("trace")).unwrap();
    let words = trace.lines().filter(|line| line.contains(r#""H\0\0\0"#)).count();
    assert_eq!(words, 1, "{trace}");
    assert_eq!(fixture.ask("alive"), "alive");
}

/// Mappings that are neither of a file nor named: what an injection could leave behind.
fn nameless_code(pid: i32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines()
        .filter(|line| line.contains("r-xp") && line.split_whitespace().count() == 5)
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_an_injection_leaves_behind_does_not_grow() {
    testkit::needs_ptrace!();
    let public = Public::new();
    let program = Build::new("hostile_inject.c").variant(Variant::Default).flags(&["-rdynamic"]).path();
    let program = public.copy(&program, "no-thread");
    let mut command = std::process::Command::new(program);
    command.arg("leave");
    let mut fixture = Fixture::command(command).settled();
    for round in 0..8 {
        let answer = tool().run(&["contend", &fixture.pid().to_string(), "-d", "10ms"]);
        assert_eq!(answer.code, Some(2), "{answer:?}");
        assert!(answer.stderr.contains("could not create a thread"), "{answer:?}");
        assert!(nameless_code(fixture.pid()).len() <= 1, "after {round}: {:?}", nameless_code(fixture.pid()));
    }
    assert_eq!(fixture.ask("alive"), "alive");
}

/// `tglass run` of root with the environment of another user: nothing of that user's is loaded.
#[test]
fn root_loads_nothing_from_where_another_user_can_write() {
    let test = "root_loads_nothing_from_where_another_user_can_write";
    if !is_root(test, "to be root with another user's environment") {
        return;
    }
    let public = Public::new();
    let home = public.path().join("home");
    let cache = home.join(".cache/threadglass");
    std::fs::create_dir_all(&cache).unwrap();
    // Its last directory is root's, so that nothing but those above it is wrong.
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o700)).unwrap();
    for dir in [&home, &home.join(".cache")] {
        std::os::unix::fs::chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let variables =
        [("HOME", home.clone()), ("XDG_RUNTIME_DIR", home.join(".cache")), ("XDG_CACHE_HOME", home.join(".cache"))];
    let mut command = tool().command(&["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    command.envs(variables.clone());
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let preloaded = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    assert!(!Path::new(&preloaded).starts_with(public.path()), "{preloaded}");
    for dir in Path::new(&preloaded).ancestors().skip(1) {
        let about = std::fs::symlink_metadata(dir).unwrap();
        assert_eq!((about.uid(), about.mode() & 0o022, about.is_dir()), (0, 0, true), "{}", dir.display());
    }
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 0, "nothing was put there either");
}

/// Where root is not known, its directories belong to nobody; the agent finds a place all the same.
#[test]
fn a_program_is_started_with_the_agent_in_a_user_namespace() {
    let test = "a_program_is_started_with_the_agent_in_a_user_namespace";
    if !is_root(test, "to be another user") || !testkit::have(test, "unshare") {
        return;
    }
    let public = Public::new();
    let tool = public.copy(Path::new(env!("CARGO_BIN_EXE_tglass")), "tglass");
    let in_namespace = |args: &[&str]| {
        let mut command = testkit::as_user(NOBODY, Path::new("unshare"));
        command.args(["--user", "--map-root-user"]).args(args).current_dir("/").env("HOME", "/nonexistent");
        Answer::of(command)
    };
    if in_namespace(&["true"]).code != Some(0) {
        testkit::skip(test, "needs user namespaces");
        return;
    }
    let answer = in_namespace(&[tool.to_str().unwrap(), "run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(String::from_utf8_lossy(&answer.stdout).contains("threadglass"), "{answer:?}");
}

/// Killed at each of its calls in turn, also between the two that have the program map memory and use it.
#[test]
fn a_tool_killed_at_any_call_leaves_at_most_one_piece_of_memory() {
    let test = "a_tool_killed_at_any_call_leaves_at_most_one_piece_of_memory";
    if !testkit::have(test, "strace") {
        return;
    }
    let mut fixture = testkit::hammer();
    let pid = fixture.pid().to_string();
    let mut left = 0;
    for number in 1.. {
        let kill = format!("inject=ptrace,pwrite64:signal=KILL:when={number}");
        let mut command = std::process::Command::new("strace");
        command.args(["-f", "-o", "/dev/null", "-e", "trace=ptrace,pwrite64", "-e", &kill]);
        command.arg(env!("CARGO_BIN_EXE_tglass")).args(["contend", &pid, "-d", "10ms"]);
        let answer = Answer::of(command);
        let was_killed = answer.code != Some(0);
        // What goes on without the tool ends by itself.
        testkit::eventually("no thread of ours should stay", || testkit::agent_threads(fixture.pid()) == 0);
        testkit::eventually("the memory in use should be given back", || nameless_code(fixture.pid()).len() <= 1);
        left += nameless_code(fixture.pid()).len();
        testkit::goes_on(&mut fixture, &["loads"]);
        if !was_killed {
            assert!(number > 10, "{answer:?}");
            break;
        }
    }
    assert!(left > 0, "no kill came between the two calls");
    // The last one was not killed, and has used it up: what it began in is given back a moment after it has ended.
    testkit::eventually("no memory should be left", || nameless_code(fixture.pid()).is_empty());
}

/// A control group with a limit, for one process; it goes when this is dropped.
struct Group(PathBuf);

impl Group {
    /// Of either version of control groups.
    fn new(name: &str, limit: u64) -> Option<Self> {
        let places = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        places.into_iter().find_map(|(place, file)| {
            let dir = Path::new(place).join(format!("{name}-{}", std::process::id()));
            std::fs::create_dir(&dir).ok()?;
            let group = Self(dir);
            // Where the controller is not for groups here, there is no such file, and none can be made.
            std::fs::write(group.0.join(file), limit.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        testkit::holds_within(Duration::from_secs(5), || std::fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_program_without_memory_to_spare_is_not_made_to_use_more() {
    testkit::needs_ptrace!();
    let test = "a_program_without_memory_to_spare_is_not_made_to_use_more";
    let (Some(tight), Some(wide)) = (Group::new("tg-tight", 2 << 20), Group::new("tg-wide", 64 << 20)) else {
        testkit::skip(test, "needs root and a memory controller of control groups");
        return;
    };
    let program = Build::new("inject_refuse.c").variant(Variant::Default).path();
    for (group, fits) in [(&tight, false), (&wide, true)] {
        let mut fixture = Fixture::start(&program, &[]).settled();
        std::fs::write(group.0.join("cgroup.procs"), fixture.pid().to_string()).unwrap();
        let answer = tool().run(&["contend", &fixture.pid().to_string(), "-d", "10ms"]);
        assert_eq!(answer.code, Some(if fits { 0 } else { 2 }), "{answer:?}");
        assert_eq!(answer.stderr.contains("KiB of memory left"), !fits, "{answer:?}");
        assert_eq!(fixture.ask("alive"), "alive");
    }
}

#[test]
fn a_thread_that_a_stop_might_kill_is_suspended_by_force_only() {
    let program = Build::new("inject_refuse.c").variant(Variant::Default).path();
    let mut fixture = Fixture::start(&program, &["filter-futex"]).settled();
    let pid = fixture.pid().to_string();
    let threads = tool().threads(fixture.pid(), &[]);
    let sleeper = testkit::threads(&threads).iter().find(|thread| thread["lwp"] != fixture.pid()).unwrap();
    let answer = tool().run(&["suspend", &pid, &sleeper["lwp"].to_string(), "--for", "1ms"]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("seccomp") && answer.stderr.contains("--force"), "{answer:?}");
    // Those that stand still are not stopped for their stacks either.
    assert_eq!(tool().run(&["threads", &pid, "--stacks", "--stop"]).code, Some(0));
    assert_eq!(fixture.ask("alive"), "alive");
}

/// What a Go program tells of its goroutines and functions may be anything: whoever looks comes to an end, and says what was
/// not seen.
#[test]
fn go_programs_that_lie_about_themselves() {
    const LIES: [&str; 10] =
        ["length", "place", "same", "near", "goroutines", "everywhere", "functions", "names", "index", "text"];
    for go in Go::all("go_programs_that_lie_about_themselves") {
        // Later linkers do not let a program name variables of the runtime.
        let flags: &[&str] = if go.release() < 23 { &[] } else { &["-ldflags=-checklinkname=0"] };
        let program = go.build("go_lies", flags);
        for lie in LIES {
            let fixture = Fixture::start(&program, &[lie]);
            let pid = fixture.pid().to_string();
            for args in [&["threads", &pid, "--stacks", "--json"][..], &["why", &pid, "--json"], &["locks", &pid]] {
                let answer = tool().run(args);
                assert_eq!(answer.code, Some(0), "{lie} {args:?}: {answer:?}");
                assert!(answer.stderr.is_empty(), "{lie} {args:?}: {}", answer.stderr);
                if args.contains(&"--stacks") {
                    let snapshot = answer.json();
                    let tasks = snapshot["tasks"].as_array().expect("tasks");
                    let is_told = snapshot["gaps"].as_array().is_some_and(|gaps| !gaps.is_empty());
                    assert!(!tasks.is_empty() || is_told, "{lie}: neither goroutines nor a word about them");
                    let frames = tasks.iter().map(|task| task["frames"].as_array().expect("frames").len());
                    assert!(frames.max().is_none_or(|most| most < 100_000), "{lie}: endless stacks");
                }
            }
        }
    }
}

//! What people read: every help text and a screen of every command, compared with the files in `snapshots/`.
//!
//! `INSTA_UPDATE=always cargo test -p tglass --test screens` writes them anew. Read the difference before it is committed.

use insta::assert_snapshot;
use std::process::Stdio;
use testkit::{Answer, Build, Dumpable, Fixture, Tool, Variant, address, agent_threads, eventually, part, skip};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn run(args: &[&str]) -> Answer {
    let mut command = tool().command(args);
    // Help is wrapped to a width, which is not the terminal's here.
    command.env("COLUMNS", "100");
    Answer::of(command)
}

fn built(file: &str) -> std::path::PathBuf {
    Build::new(file).variant(Variant::Default).path()
}

/// What differs from run to run, or from machine to machine, and what stands for it. Runs of blanks are one, because the
/// width of a column depends on the numbers in it.
const FILTERS: [(&str, &str); 21] = [
    // Which frames there are inside the C library depends on its build and on its debug information.
    (r"(?m)^.*\((libc\.so\.6|libpthread[^)]*|ld-linux[^)]*)\).*\n", ""),
    (r"(?m)^.*(__GI_|__libc_|__pthread_)\S* \[inlined\].*\n", ""),
    (r"(?m)^ *\.\. \d+ frames? of libc\n", ""),
    (r"glibc \d+\.\d+", "glibc VERSION"),
    (r"\b(deadlocks|set_locks|sync_kinds|tsd)-[0-9a-f]+", "$1"),
    (r"0x[0-9a-f]+", "HEX"),
    (r"#\d+ ", "#N "),
    (r"\b(lwp|thread) \d{2,}", "$1 GONE"),
    (r"--seen [0-9a-f]+", "--seen CODE"),
    (r"-\d+-\d+\.json", "-BEGUN-NOW.json"),
    (r"from pid \d+", "from pid PID"),
    (r"(\.[a-z]+):\d+", "$1:LINE"),
    (r"\b\d+(\.\d+)? ?(ns|us|ms|s|m)\b", "TIME"),
    // How many digits an age has, and whether all threads of a group have the same one, depends on the machine.
    (r"\b\d+[dhm]\d\d[hms]\b", "TIME"),
    (r", for (at least )?TIME to TIME", ", for ${1}TIME"),
    (r"\b(pipe|socket):\[\d+\]", "$1:[INODE]"),
    // The test has the other end.
    (r"open in screens-\S+ \(pid \d+\), which has \d+ threads", "open in TEST (pid PID)"),
    (r"pipe to screens-\S+ \(\d+\)", "pipe to TEST (PID)"),
    // Those that the test itself inherited are the fixture's too.
    (r"\bdescriptor \d+", "descriptor N"),
    (r"\(in (both|all \d+|\d+ of \d+) looks\)", "(in N looks)"),
    (r"[ ]{2,}", "  "),
];

/// The LWPs of a process, in the order in which they began, also where the numbers have begun anew.
fn lwps_of(pid: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut lwps: Vec<i32> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    lwps.sort_unstable_by_key(|lwp| (*lwp < pid, *lwp));
    lwps
}

/// Compares a screen; LWPs are those of `pid`, by their order.
fn assert_screen(name: &str, pid: i32, text: &str) {
    assert_screen_of(name, &lwps_of(pid), text);
}

fn assert_screen_of(name: &str, lwps: &[i32], text: &str) {
    let mut filters: Vec<(String, String)> =
        FILTERS.map(|(pattern, stands_for)| (pattern.to_owned(), stands_for.to_owned())).into();
    filters.extend(lwps.iter().enumerate().map(|(index, lwp)| (format!(r"\b{lwp}\b"), format!("LWP{index}"))));
    let filters: Vec<(&str, &str)> = filters.iter().map(|(pattern, by)| (pattern.as_str(), by.as_str())).collect();
    insta::with_settings!({ filters => filters }, { assert_snapshot!(name, text) });
}

/// A screen of `why` with the groups of threads in the order of their text: that of ages depends on the machine.
fn by_text(screen: &str) -> String {
    let Some((before, rest)) = screen.split_once("what the threads do:\n") else { return screen.to_owned() };
    let (groups, after) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let mut blocks: Vec<String> = Vec::new();
    for line in groups.lines() {
        // Frames are set in further than the number of threads.
        match blocks.last_mut().filter(|_| line.starts_with("        ")) {
            Some(block) => *block += &format!("{line}\n"),
            None => blocks.push(format!("{line}\n")),
        }
    }
    blocks.sort_by_key(|block| block.replace(|c: char| c.is_ascii_digit(), ""));
    format!("{before}what the threads do:\n{}\n{after}", blocks.concat())
}

/// The screen of a command that could look.
fn screen(args: &[&str]) -> String {
    let answer = run(args);
    assert!(matches!(answer.code, Some(0 | 1)), "{args:?}: {}", answer.stderr);
    answer.text()
}

#[test]
fn every_help_text() {
    let whole = screen(&["--help"]);
    let commands: Vec<&str> = whole
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // What is said of one may go on in the next line, which is set in further.
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() >= 14, "{whole}");
    assert_snapshot!("help", whole);
    assert_snapshot!("help-short", screen(&["-h"]));
    for command in commands.into_iter().filter(|command| *command != "help") {
        assert_snapshot!(format!("help-{command}"), screen(&[command, "--help"]));
        assert_snapshot!(format!("help-short-{command}"), screen(&[command, "-h"]));
    }
}

#[test]
fn why_of_a_deadlock_a_chain_and_nothing() {
    let hang = ["abba", "philosophers", "owner_exited", "cond_alone"].map(|scenario| (scenario, 1));
    let may_end = ["chain_read", "timed"].map(|scenario| (scenario, 0));
    for (scenario, code) in hang.into_iter().chain(may_end) {
        let fixture = Fixture::start(&built("deadlocks.c"), &[scenario]).settled();
        let answer = run(&["why", &fixture.pid().to_string()]);
        assert_eq!(answer.code, Some(code), "{scenario}: {answer:?}");
        assert_screen(&format!("why-{scenario}"), fixture.pid(), &by_text(&answer.text()));
    }
    let fixture = Fixture::new("tsd.c").settled();
    assert_screen("why-nothing", fixture.pid(), &by_text(&screen(&["why", &fixture.pid().to_string()])));
}

#[test]
fn why_of_several_targets() {
    let hangs = Fixture::start(&built("deadlocks.c"), &["abba"]).settled();
    let calm = Fixture::new("tsd.c").settled();
    let pids = [hangs.pid(), calm.pid()];
    let [first, second] = pids.map(|pid| pid.to_string());
    let answer = run(&["why", &first, &second, "4194304"]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let text = format!("{}on standard error:\n{}", by_text(&answer.text()), answer.stderr);
    assert_screen_of("why-several", &pids.map(lwps_of).concat(), &text);
}

/// Cores: what they lack is said.
#[test]
fn screens_of_cores() {
    let dumped = |file: &str, args: &[&str]| {
        let mut dumpable = Dumpable::start(&built(file), args);
        dumpable.fixture = dumpable.fixture.settled();
        dumpable
    };
    let assert_core = |name: &str, lwps: &[i32], core: &str, args: &[&str]| {
        assert_screen_of(name, lwps, &screen(&[&[args[0], core], &args[1..]].concat()).replace(core, "CORE"));
    };
    let dumpable = dumped("deadlocks.c", &["abba"]);
    let lwps = lwps_of(dumpable.fixture.pid());
    if let Some(core) = dumpable.gcore(part("a core of gdb")) {
        for verb in ["why", "threads"] {
            assert_core(&format!("{verb}-gcore"), &lwps, &core.name(), &[verb]);
        }
    }
    let dumpable = dumped("deadlocks.c", &["abba"]);
    let lwps = lwps_of(dumpable.fixture.pid());
    if let Some(core) = dumpable.kernel_core(part("a core of the kernel")) {
        for verb in ["threads", "tsd"] {
            assert_core(&format!("{verb}-kernel-core"), &lwps, &core.name(), &[verb]);
        }
    }
}

#[test]
fn threads_and_their_stacks() {
    let fixture = Fixture::start(&built("deadlocks.c"), &["writers"]).settled();
    let pid = fixture.pid().to_string();
    for (name, options) in
        [("threads", vec![]), ("threads-stacks", vec!["--stacks"]), ("threads-none", vec!["--state", "zombie"])]
    {
        assert_screen(name, fixture.pid(), &screen(&[vec!["threads", &pid], options].concat()));
    }
}

#[test]
fn locks_with_their_holders() {
    let fixture = Fixture::new("sync_kinds.c").settled();
    assert_screen("locks", fixture.pid(), &screen(&["locks", &fixture.pid().to_string()]));
    let fixture = Fixture::new("tsd.c").settled();
    assert_screen("locks-none", fixture.pid(), &screen(&["locks", &fixture.pid().to_string(), "--held"]));
}

#[test]
fn thread_specific_data() {
    let fixture = Fixture::new("tsd.c").settled();
    let whole = screen(&["tsd", &fixture.pid().to_string()]);
    // It has hundreds of keys: the head of each part is enough.
    let few = whole.split_inclusive("\n\n").flat_map(|part| part.split_inclusive('\n').take(4));
    assert_screen("tsd", fixture.pid(), &few.collect::<String>());
}

/// Measurements without their figures, and as many rows as there always are.
#[test]
fn measurements() {
    let fixture = Fixture::start(&built("deadlocks.c"), &["abba"]).settled();
    let spin = Fixture::new("profil_spin.c");
    let (pid, spin) = (fixture.pid().to_string(), spin.pid().to_string());
    for (name, args, lines) in [
        ("stats", &["stats", &pid, "-i", "100ms"][..], usize::MAX),
        ("profil-wait", &["profil", &pid, "--wait", "-d", "200ms"], 7),
        ("profil", &["profil", &spin, "-d", "1s"], 8),
        ("contend", &["contend", &pid, "-d", "100ms"], 11),
    ] {
        if name == "contend" && !testkit::can_trace(part("contend")) {
            continue;
        }
        let answer = run(args);
        if answer.stderr.contains("perf events are not permitted") {
            skip(part("measurements"), answer.stderr.trim());
            continue;
        }
        let text = answer.text();
        let mut lines: Vec<&str> = text.split_inclusive('\n').take(lines).collect();
        if name == "profil-wait" {
            // All have the same share.
            lines[4..].sort_unstable_by_key(|row| row.split_once('%').map(|(_, rest)| rest));
        }
        let text = lines.concat();
        insta::with_settings!({ filters => [("0x[0-9a-f]+", "ADDRESS"), (r" \d+(\.\d+)? m?s  ", " TIME  "), ("-[0-9a-f]+( |\\n)", "$1"), (", by a clock on each CPU", ""), (r"\d+(\.\d+)?", "N"), ("[ ]{2,}", "  ")] }, {
            assert_snapshot!(name, text)
        });
    }
}

/// What acts on a process says so, and how it ended.
#[test]
fn acts() {
    let fixture = Fixture::start(&built("deadlocks.c"), &["abba"]).settled();
    let pid = fixture.pid().to_string();
    assert_screen("detach", fixture.pid(), &screen(&["detach", &pid]));
    testkit::needs_ptrace!();
    assert_screen("suspend", fixture.pid(), &screen(&["suspend", &pid, &pid, "--for", "10ms"]));
    let mut contend = tool().command(&["contend", &pid]).stdout(Stdio::null()).spawn().expect("the tool starts");
    eventually("the agent should be at work", || agent_threads(fixture.pid()) == 1);
    // Its thread takes its name a moment before it listens.
    let mut text = String::new();
    eventually("the agent should be told", || {
        text = screen(&["detach", &pid]);
        !text.contains("no active agent")
    });
    contend.kill().and_then(|()| contend.wait()).expect("the tool is there");
    assert_screen("detach-agent", fixture.pid(), &text);
}

/// What is started is left alone: it has the terminal.
#[test]
fn a_program_that_is_run() {
    let answer = run(&["run", "--", "sh", "-c", "echo its line; exit 3"]);
    assert_snapshot!("run", format!("{}{}exit status: {:?}\n", answer.text(), answer.stderr, answer.code));
}

/// What a check finds depends on the machine and the user; what is checked does not.
#[test]
fn checks_of_doctor() {
    let fixture = Fixture::new("tsd.c").settled();
    let text = screen(&["doctor", &fixture.pid().to_string()]);
    let names = text.lines().filter_map(|line| match line.split_whitespace().next()? {
        verdict @ ("ok" | "limited" | "no") => line.trim_start().strip_prefix(verdict)?.split(':').next(),
        _ => (!line.starts_with(' ')).then_some(line),
    });
    // These are told only where there is something to tell.
    let names = names.map(str::trim).filter(|name| !["debugger", "container", "seccomp"].contains(name));
    assert_snapshot!("doctor", names.collect::<Vec<_>>().join("\n"));
}

/// The story that a newcomer sees first, without the stacks, which depend on the compiler.
#[test]
fn the_demo() {
    let answer = tool().run(&["demo"]);
    assert!(matches!(answer.code, Some(0 | 1)), "{}", answer.stderr);
    let text = answer.text();
    let is_told = |line: &&str| !line.starts_with("    ") && !line.starts_with("  behind:");
    let told: Vec<&str> = text.lines().filter(is_told).collect();
    insta::with_settings!({ filters => [
        (r"\b\d+(\.\d+)?", "N"), ("0x[0-9a-f]+|Nx[0-9a-f]+", "HEX"), ("[ ]{2,}", "  "),
        // Its main thread may still be on its way.
        ("N threads: .*", "N threads"), (r"; N more threads? queues? behind", "")
    ] }, {
        assert_snapshot!("demo", told.join("\n"))
    });
}

#[test]
fn a_dry_run_of_set() {
    let fixture = Fixture::start(&built("deadlocks.c"), &["abba"]).settled();
    let pid = fixture.pid().to_string();
    let locks = tool().look("locks", &pid, &[]);
    let lock = locks["objects"].as_array().expect("locks").iter().find(|lock| lock["name"] == "left");
    let at = format!("{:#x}", address(&lock.expect("the left lock")["address"]));
    assert_screen("set", fixture.pid(), &screen(&["set", &pid, &at, "0"]));
}

/// A lock that nobody waits for, so that nothing has changed when the change is undone.
#[test]
fn a_change_by_set_and_its_undoing() {
    testkit::needs_ptrace!();
    let mut fixture = Fixture::start(&built("set_locks.c"), &["normal"]);
    assert_eq!(fixture.ask("1 lock a"), "1 lock a 0");
    let (pid, at) = (fixture.pid().to_string(), fixture.truth()["a"].as_str().expect("an address").to_owned());
    let state = tempfile::tempdir().unwrap();
    let lwps = lwps_of(fixture.pid());
    for (name, args) in [
        ("set-yes", vec!["set", &pid, &at, "0", "--kind", "mutex", "--yes"]),
        ("set-undo-dry", vec!["set", "--undo", &pid]),
        ("set-undo", vec!["set", "--undo", &pid, "--yes"]),
    ] {
        let mut command = tool().command(&args);
        command.env("XDG_STATE_HOME", state.path());
        let answer = Answer::of(command);
        assert_eq!(answer.code, Some(0), "{answer:?}");
        let text = answer.text().replace(state.path().to_str().unwrap(), "STATE");
        assert_screen_of(name, &lwps, &text);
    }
}

#[test]
fn what_is_refused() {
    let fixture = Fixture::new("tsd.c").settled();
    let pid = fixture.pid().to_string();
    let cases: [(&str, &[&str]); 14] = [
        ("no-process", &["why", "4194304"]),
        ("no-pid", &["suspend", "zero", "1"]),
        ("no-core", &["why", "Cargo.toml"]),
        ("no-file", &["why", "nothing"]),
        ("no-command", &["wyh", "1"]),
        ("no-time", &["contend", &pid, "-d", "soon"]),
        ("no-state", &["threads", &pid, "--state", "asleep"]),
        ("no-address", &["locks", &pid, "--address", "here"]),
        ("no-object", &["set", &pid, "0x10", "0"]),
        ("no-thread", &["suspend", &pid, "4194304"]),
        ("stop-a-core", &["threads", "core", "--stacks", "--stop"]),
        ("stats-of-a-core", &["stats", "core"]),
        ("profil-of-a-core", &["profil", "core"]),
        ("exe-of-a-process", &["why", &pid, "--exe", "a.out"]),
    ];
    for (name, args) in cases {
        let answer = run(args);
        assert_eq!((answer.code, answer.text().as_str()), (Some(2), ""), "{name}");
        assert_screen(&format!("refused-{name}"), fixture.pid(), &answer.stderr);
    }
}

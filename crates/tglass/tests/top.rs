//! `tglass top` in a terminal: what is on the screen, against what the fixtures made happen; and that the terminal is given
//! back, however it ends.

// All but the panic is seen from outside.
#[allow(dead_code)]
#[path = "../src/cmd/top/screen.rs"]
mod screen;

use testkit::{
    Build, Dumpable, Fixture, Go, PROMPT, Signal, Terminal, Tool, Value, Variant, eventually, have, part, serde_json,
    signal,
};

use std::os::unix::fs::MetadataExt;
use std::path::Path;

const TOOL: &str = env!("CARGO_BIN_EXE_tglass");

fn tool() -> Tool {
    Tool::new(TOOL)
}

fn fixture(file: &str, args: &[&str]) -> Fixture {
    Fixture::start(&Build::new(file).variant(Variant::Default).path(), args)
}

/// A terminal in which `tglass top` runs with these words.
fn top(columns: u16, lines: u16, words: &str) -> Terminal {
    let terminal = Terminal::new(columns, lines, &[]);
    terminal.start(&format!("{TOOL} top {words}"));
    terminal
}

/// The processes whose parent's standard input is this terminal: the one that runs `top`.
fn pid_of_top(terminal: &Terminal) -> i32 {
    let shell = terminal.state("#{pane_pid}");
    let mut found = None;
    eventually("top should run", || {
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap_or_default();
        found = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
        found.is_some()
    });
    found.unwrap()
}

/// The line of the list that begins with this word.
fn row<'a>(screen: &'a str, first: &str) -> Option<&'a str> {
    screen.lines().find(|line| line.split_whitespace().next() == Some(first))
}

/// Asserts that the terminal is the shell's again, as it was.
fn assert_given_back(terminal: &Terminal) {
    terminal.shows("the shell again", |screen| screen.trim_end().ends_with(PROMPT));
    assert_eq!(terminal.state("#{alternate_on} #{cursor_flag} #{mouse_any_flag}"), "0 1 0");
    terminal.clear();
    // Whole lines, shown as they are typed, with line ends where they were.
    terminal.start("stty -a");
    let modes = terminal.shows("modes", |screen| screen.contains("opost") && screen.trim_end().ends_with(PROMPT));
    for mode in ["icanon", "echo", "isig", "opost", "icrnl"] {
        assert!(modes.split([' ', ';', '\n']).any(|word| word == mode), "no {mode}:\n{modes}");
    }
}

#[test]
fn a_deadlock() {
    if !have("a_deadlock", "tmux") {
        return;
    }
    let fixture = fixture("deadlocks.c", &["abba"]).settled();
    let truth = &fixture.truth()["findings"][0];
    let stuck: Vec<i64> = truth["threads"].as_array().expect("threads").iter().map(|it| it.as_i64().unwrap()).collect();
    assert_eq!(stuck.len(), 2, "{truth}");
    for (columns, lines) in [(80, 24), (200, 50)] {
        let terminal = top(columns, lines, &fixture.pid().to_string());
        let screen = terminal.shows("the deadlock", |screen| {
            screen.contains("DEADLOCK (certain)")
                && (0..2).all(|at| {
                    // Each is marked, and waits for what the other one holds.
                    let row = row(screen, &format!("!{}", stuck[at]));
                    row.is_some_and(|row| row.contains("mutex") && row.contains(&format!(" < {}", stuck[1 - at])))
                })
        });
        assert!(screen.lines().all(|line| line.chars().count() <= columns.into()), "{screen}");
        // The waits of a member lead back to it.
        terminal.text("/");
        terminal.text(&format!("{}", stuck[0]));
        terminal.keys(&["Enter", "Home"]);
        terminal.shows("the circle", |screen| {
            screen.contains(&format!("({})", stuck[1])) && screen.contains("the circle is closed")
        });
        terminal.keys(&["Escape"]);
        terminal.keys(&["q"]);
        assert_given_back(&terminal);
    }
}

#[test]
fn a_stack_a_filter_and_an_order() {
    if !have("a_stack_a_filter_and_an_order", "tmux") {
        return;
    }
    let fixture = fixture("deadlocks.c", &["abba"]).settled();
    let member = fixture.truth()["findings"][0]["threads"][0].as_i64().unwrap();
    let terminal = top(120, 40, &fixture.pid().to_string());
    terminal.shows("threads", |screen| row(screen, &format!("!{member}")).is_some());
    terminal.text("/");
    terminal.text(&member.to_string());
    terminal.shows("the filter", |screen| screen.contains(&format!("filter: {member}_")));
    terminal.keys(&["Enter", "Enter"]);
    // The frames are those of the program.
    let frames = tool().look("threads", &fixture.pid().to_string(), &["--stacks"]);
    let thread = testkit::thread(&frames, member);
    let is_own = |frame: &&Value| frame["file"].as_str().is_some_and(|file| file.contains("fixtures"));
    let functions: Vec<&str> =
        thread["frames"].as_array().unwrap().iter().filter(is_own).filter_map(|it| it["function"].as_str()).collect();
    assert!(functions.len() > 1, "{thread:#}");
    terminal.shows("the stack", |screen| functions.iter().all(|function| screen.contains(&format!(" {function}+"))));
    terminal.keys(&["Enter", "Escape"]);
    terminal.shows("all of them", |screen| !screen.contains("#0 ") && !screen.contains(" pass: "));
    // By number, one way and the other.
    let numbers = |screen: &str| -> Vec<i64> {
        let list = screen.lines().skip_while(|line| !line.contains("NAME")).skip(1);
        list.map_while(|line| line.split_whitespace().next()?.trim_start_matches('!').parse().ok()).collect()
    };
    terminal.text(">");
    let up = terminal.shows("in order", |screen| screen.contains("*LWP") && numbers(screen).is_sorted());
    assert_eq!(numbers(&up).len(), testkit::threads(&frames).len(), "{up}");
    terminal.text("r");
    terminal.shows("the other way round", |screen| {
        screen.contains("^LWP")
            && numbers(screen).iter().rev().is_sorted()
            && numbers(screen).len() == numbers(&up).len()
    });
}

#[test]
fn contention() {
    if !have("contention", "tmux") {
        return;
    }
    let program = Build::new("track_contended.c").variant(Variant::Default).path();
    let mut command = tool().command(&["run", "--"]);
    command.arg(&program);
    let fixture = Fixture::command(command);
    // Counting goes on while a tool wants it.
    let mut contend = tool().command(&["contend", &fixture.pid().to_string()]);
    let mut contend = contend.stdout(std::process::Stdio::null()).spawn().expect("the tool starts");
    for (columns, lines) in [(80, 24), (180, 40)] {
        let terminal = top(columns, lines, &fixture.pid().to_string());
        terminal.shows("threads", |screen| screen.contains("[1 Threads"));
        terminal.text("l");
        // The lock that they fight for comes first, with the time waited.
        let screen = terminal.shows("the hot lock", |screen| {
            let first = screen.lines().skip_while(|line| !line.contains("WAITED")).nth(1);
            first.is_some_and(|row| row.split_whitespace().last() == Some("hot") && !row.trim_start().starts_with('-'))
        });
        let first = screen.lines().skip_while(|line| !line.contains("WAITED")).nth(1).unwrap();
        assert!(first.contains("mutex"), "{screen}");
        terminal.keys(&["q"]);
        assert_given_back(&terminal);
    }
    signal(contend.id() as i32, Signal::SIGINT);
    contend.wait().expect("it ends");
}

#[test]
fn goroutines() {
    if !have("goroutines", "tmux") {
        return;
    }
    for go in Go::all("goroutines") {
        let fixture = Fixture::start(&go.build("go_waits", &["CGO_ENABLED=0"]), &[]);
        for (columns, lines) in [(80, 24), (160, 80)] {
            let terminal = top(columns, lines, &fixture.pid().to_string());
            terminal.shows("tasks", |screen| screen.contains(" Tasks "));
            terminal.text("3");
            for function in
                ["waitsToReceive", "waitsToSend", "waitsForMutex", "waitsToRead", "waitsForGroup", "waitsForOnce"]
            {
                let object = fixture.truth()[function].as_str().expect("an address");
                terminal.text("/");
                terminal.keys(&["C-u"]);
                terminal.text(&format!("main.{function} "));
                terminal.keys(&["Enter"]);
                // The only row, and what it waits for.
                terminal.shows(function, |screen| {
                    let waits = screen.lines().skip_while(|line| !line.starts_with("Waits of task ")).nth(1);
                    screen.contains(" 1 of ") && waits.is_some_and(|waits| waits.trim_end().ends_with(object))
                });
            }
            terminal.keys(&["q"]);
            assert_given_back(&terminal);
        }
    }
}

/// Tasks that hang come first, and their circle is followed.
#[test]
fn goroutines_that_hang() {
    if !have("goroutines_that_hang", "tmux") {
        return;
    }
    for go in Go::all("goroutines_that_hang").into_iter().take(1) {
        let fixture = Fixture::start(&go.build("go_stuck", &[]), &["two"]);
        let stuck: Vec<String> =
            fixture.truth()["stuck"].as_array().expect("numbers").iter().map(|id| format!("!{id}")).collect();
        let terminal = top(80, 24, &fixture.pid().to_string());
        terminal.shows("the hang", |screen| screen.contains("DEADLOCK OF TASKS (likely)"));
        terminal.text("3");
        terminal.shows("its members, and the circle", |screen| {
            let mut rows = screen.lines().skip_while(|line| !line.contains("START")).skip(1);
            let mut is_stuck =
                || rows.next().and_then(|row| row.split_whitespace().next()).unwrap_or_default().to_owned();
            let first = [is_stuck(), is_stuck()];
            stuck.iter().all(|id| first.contains(id)) && screen.contains(": the circle is closed")
        });
        terminal.text("v");
        // The sentence is longer than the line that is its heading.
        terminal.shows("all of it", |screen| {
            let text = screen.split_whitespace().collect::<Vec<_>>().join(" ");
            screen.starts_with("Why (any key goes back)")
                && text.contains("wait for each other")
                && stuck.iter().all(|id| text.matches(&format!("task {} ", &id[1..])).count() == 2)
        });
        terminal.text("x");
        terminal.keys(&["q"]);
        assert_given_back(&terminal);
    }
}

#[test]
fn the_whole_machine() {
    if !have("the_whole_machine", "tmux") {
        return;
    }
    let fixture = fixture("deadlocks.c", &["abba"]).settled();
    let pid = fixture.pid().to_string();
    for (columns, lines) in [(80, 24), (160, 50)] {
        let terminal = top(columns, lines, "");
        terminal.shows("processes", |screen| screen.contains(" processes, "));
        // Other tests may have many programs that hang.
        terminal.text("/");
        terminal.text(&format!("{pid} "));
        terminal.keys(&["Enter"]);
        terminal.shows("the process", |screen| row(screen, &pid).is_some_and(|row| row.contains("DEADLOCK")));
        terminal.keys(&["Home", "Enter"]);
        terminal.shows("its threads", |screen| screen.contains("[1 Threads") && screen.contains("DEADLOCK (certain)"));
        terminal.keys(&["Escape"]);
        terminal.shows("all processes", |screen| screen.contains(" processes, "));
        terminal.text("p");
        terminal.text(&pid);
        terminal.keys(&["Enter"]);
        terminal.shows("its threads", |screen| screen.contains("[1 Threads") && screen.contains("DEADLOCK (certain)"));
        terminal.keys(&["q"]);
        assert_given_back(&terminal);
    }
}

#[test]
fn signals_give_the_terminal_back() {
    if !have("signals_give_the_terminal_back", "tmux") {
        return;
    }
    let fixture = fixture("deadlocks.c", &["abba"]).settled();
    let terminal = Terminal::new(80, 24, &[]);
    // A shell that sees a command end by SIGINT drops the rest of the line: there is no status to be read.
    for (name, status) in [(Signal::SIGTERM, "143"), (Signal::SIGHUP, "129"), (Signal::SIGINT, "")] {
        terminal.start(&format!("{TOOL} top {}; echo ended with $?", fixture.pid()));
        terminal.shows("threads", |screen| screen.contains("[1 Threads") && screen.contains("DEADLOCK"));
        signal(pid_of_top(&terminal), name);
        if !status.is_empty() {
            terminal.shows("the status of a program that the signal ended", |screen| {
                screen.contains(&format!("ended with {status}"))
            });
        }
        assert_given_back(&terminal);
        terminal.clear();
    }
    // A stop, by a key and from outside; and on it goes.
    terminal.start(&format!("{TOOL} top {}", fixture.pid()));
    for by_key in [true, false] {
        terminal.shows("threads", |screen| screen.contains("[1 Threads") && screen.contains("DEADLOCK"));
        match by_key {
            true => terminal.keys(&["C-z"]),
            false => signal(pid_of_top(&terminal), Signal::SIGTSTP),
        }
        terminal.shows("it is stopped", |screen| screen.contains("Stopped"));
        assert_given_back(&terminal);
        terminal.start("fg");
    }
    terminal.shows("threads", |screen| screen.contains("[1 Threads") && screen.contains("DEADLOCK"));
    terminal.keys(&["C-c"]);
    assert_given_back(&terminal);
}

/// Run by the test below, in a terminal.
#[test]
#[ignore = "it panics"]
fn a_screen_that_panics() {
    let _screen = screen::Screen::take(true).expect("the terminal");
    // Whoever looks can see that it was taken.
    std::thread::sleep(std::time::Duration::from_secs(1));
    panic!("as it had to");
}

#[test]
fn a_panic_gives_the_terminal_back() {
    if !have("a_panic_gives_the_terminal_back", "tmux") {
        return;
    }
    let terminal = Terminal::new(100, 30, &[]);
    let own = std::env::current_exe().unwrap();
    terminal.start(&format!("{} --ignored --nocapture --exact a_screen_that_panics", own.display()));
    eventually("the screen should be taken", || terminal.state("#{alternate_on}") == "1");
    terminal.shows("the panic is told where it can be read", |screen| screen.contains("as it had to"));
    assert_given_back(&terminal);
}

#[test]
fn without_a_terminal() {
    let fixture = fixture("deadlocks.c", &["abba"]);
    let answer = tool().run(&["top", &fixture.pid().to_string()]);
    assert_eq!((answer.code, answer.text().as_str()), (Some(2), ""));
    assert!(
        answer.stderr.contains("top needs a terminal") && answer.stderr.contains("tglass threads"),
        "{}",
        answer.stderr
    );
    assert_eq!(answer.stderr.lines().count(), 1, "{}", answer.stderr);
    if !have(part("terminals that cannot be drawn on"), "tmux") {
        return;
    }
    let terminal = Terminal::new(100, 24, &[("TERM", "dumb")]);
    terminal.start(&format!("{TOOL} top {}; echo ended with $?", fixture.pid()));
    let screen = terminal.shows("the refusal", |screen| screen.contains("ended with 2"));
    assert!(screen.contains("TERM is `dumb`") && screen.contains("tglass threads"), "{screen}");
}

#[test]
fn without_colours() {
    if !have("without_colours", "tmux") {
        return;
    }
    let fixture = fixture("deadlocks.c", &["abba"]).settled();
    // `ESC [ 31 m` and the like.
    let has_colours = |text: &str| {
        text.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m')).any(|(codes, _)| {
            codes.split(';').any(|code| matches!(code.parse::<u32>(), Ok(30..=38 | 40..=48 | 90..=107)))
        })
    };
    for (env, colours) in [(&[][..], true), (&[("NO_COLOR", "1")][..], false)] {
        let terminal = Terminal::new(80, 24, env);
        terminal.start(&format!("{TOOL} top {}", fixture.pid()));
        terminal.shows("the deadlock", |screen| screen.contains("DEADLOCK (certain)"));
        let text = terminal.coloured();
        assert_eq!(has_colours(&text), colours, "{text}");
    }
}

#[test]
fn names_cannot_drive_the_terminal() {
    if !have("names_cannot_drive_the_terminal", "tmux") {
        return;
    }
    let fixture = fixture("names.c", &[]).settled();
    let terminal = top(160, 50, &fixture.pid().to_string());
    terminal.shows("threads", |screen| screen.contains("[1 Threads"));
    terminal.text(">");
    terminal.shows("all of them", |screen| {
        fixture.truth().as_object().unwrap().keys().all(|lwp| row(screen, lwp).is_some())
    });
    let screen = terminal.screen();
    assert!(screen.contains("\\u{1b}"), "no name has an escape: {screen}");
    assert!(screen.chars().all(|c| c == '\n' || matches!(c, ' '..='~' | '\u{fffd}')), "{screen:?}");
}

#[test]
fn a_process_that_ends() {
    if !have("a_process_that_ends", "tmux") {
        return;
    }
    let mut fixture = fixture("deadlocks.c", &["abba"]).settled();
    let terminal = top(80, 24, &fixture.pid().to_string());
    terminal.shows("threads", |screen| screen.contains("[1 Threads") && screen.contains("DEADLOCK"));
    fixture.kill();
    // What was seen last stays, so that it can be read and saved.
    let screen = terminal.shows("its end", |screen| screen.contains("ENDED") && screen.contains("ended"));
    assert!(screen.contains("mutex"), "{screen}");
    terminal.keys(&["q"]);
    assert_given_back(&terminal);
    terminal.clear();
    terminal.start(&format!("{TOOL} top {}; echo ended with $?", fixture.pid()));
    terminal.shows("that there is none", |screen| screen.contains("ended with 2") && screen.contains("ended, "));
}

#[test]
fn a_snapshot_is_saved() {
    if !have("a_snapshot_is_saved", "tmux") {
        return;
    }
    let fixture = fixture("deadlocks.c", &["abba"]).settled();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("seen.json");
    let terminal = top(120, 24, &fixture.pid().to_string());
    terminal.shows("threads", |screen| screen.contains("[1 Threads") && screen.contains("DEADLOCK"));
    let save = || {
        terminal.text("s");
        terminal.shows("the prompt", |screen| screen.contains("save the snapshot to: tglass-"));
        terminal.keys(&["C-u"]);
        terminal.text(file.to_str().unwrap());
        terminal.keys(&["Enter"]);
    };
    save();
    terminal.shows("it is saved", |screen| screen.contains("saved ") && screen.contains(" threads to "));
    let saved: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).expect("JSON");
    assert_eq!(saved["schema"], "threadglass/1");
    assert_eq!(saved["findings"][0]["kind"], "deadlock", "{saved:#}");
    assert!(testkit::threads(&saved).iter().all(|thread| thread["frames"].as_array().is_some_and(|it| !it.is_empty())));
    // What is there stays.
    save();
    terminal
        .shows("it is not written over", |screen| screen.contains("cannot write") && screen.contains("choose another"));
}

/// What was saved is shown later as it was, when the process has ended; so is a core.
#[test]
fn snapshots_and_cores() {
    if !have("snapshots_and_cores", "tmux") {
        return;
    }
    let mut fixture = fixture("deadlocks.c", &["abba"]).settled();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("seen.tgsnap");
    let terminal = top(120, 24, &fixture.pid().to_string());
    terminal.shows("threads", |screen| screen.contains("[1 Threads") && screen.contains("DEADLOCK"));
    terminal.text("s");
    terminal.shows("the prompt", |screen| screen.contains(&format!("tglass-{}.tgsnap", fixture.pid())));
    terminal.keys(&["C-u"]);
    terminal.text(file.to_str().unwrap());
    terminal.keys(&["Enter"]);
    terminal.shows("it is saved", |screen| screen.contains("saved ") && screen.contains(" threads to "));
    let member = |fixture: &Fixture| fixture.truth()["findings"][0]["threads"][0].as_i64().expect("a thread");
    let stuck = member(&fixture);
    fixture.kill();
    check_still(&file, "snapshot of ", stuck);
    let dumpable = Dumpable::start(&Build::new("deadlocks.c").variant(Variant::Default).path(), &["abba"]);
    let stuck = member(&dumpable.fixture);
    if let Some(core) = dumpable.gcore(part("a core of gdb")) {
        check_still(core.path(), "core of ", stuck);
    }
}

/// The deadlock of a core or of a snapshot, on the screen.
fn check_still(path: &Path, what: &str, stuck: i64) {
    let terminal = top(120, 40, path.to_str().unwrap());
    terminal.shows("what it shows", |screen| {
        screen.contains(what)
            && screen.contains("DEADLOCK (certain)")
            && row(screen, &format!("!{stuck}")).is_some_and(|row| row.contains("mutex"))
    });
    // Stacks are there without another look, and nothing is said to be looked at.
    terminal.text("/");
    terminal.text(&stuck.to_string());
    terminal.keys(&["Enter", "Home", "Enter"]);
    let screen = terminal.shows("its stack", |screen| screen.contains("#0 ") && screen.contains("circle is closed"));
    assert!(!screen.contains("every ") && !screen.contains("ENDED"), "{screen}");
    terminal.text("s");
    terminal.shows("it can be saved as JSON", |screen| screen.contains(".json_"));
    terminal.keys(&["Escape", "q"]);
    assert_given_back(&terminal);
}

fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").expect("our own process").uid()
}

/// Only some of all processes.
#[test]
fn processes_of_one_user() {
    if !have("processes_of_one_user", "tmux") {
        return;
    }
    let terminal = top(100, 24, "--user 4294967294");
    terminal.shows("that there is none", |screen| screen.contains("no process matches"));
    terminal.keys(&["q"]);
    assert_given_back(&terminal);
    terminal.clear();
    // What cannot be chosen is told before the screen is taken.
    terminal.start(&format!("{TOOL} top --user nosuchuser; echo ended with $?"));
    terminal.shows("the refusal", |screen| {
        screen.contains("there is no user `nosuchuser`") && screen.contains("ended with 2")
    });
    let fixture = fixture("deadlocks.c", &["abba"]).settled();
    let terminal = top(100, 24, &format!("--user {}", own_uid()));
    terminal.text("/");
    terminal.text(&format!("{} ", fixture.pid()));
    terminal.keys(&["Enter"]);
    terminal.shows("the process", |screen| row(screen, &fixture.pid().to_string()).is_some());
    terminal.keys(&["q"]);
    assert_given_back(&terminal);
    let answer = tool().run(&["top", "--user", "0", "1"]);
    assert!(answer.code == Some(2) && answer.stderr.contains("cannot be used with"), "{}", answer.stderr);
}

#[test]
fn the_mouse_and_other_sizes() {
    if !have("the_mouse_and_other_sizes", "tmux") {
        return;
    }
    let fixture = fixture("deadlocks.c", &["abba"]).settled();
    let terminal = top(100, 30, &fixture.pid().to_string());
    let screen = terminal.shows("threads", |screen| screen.contains("[1 Threads") && screen.contains("DEADLOCK"));
    // A click, as terminals tell it: column and line from 1.
    let click = |column: usize, line: usize| {
        terminal.text(&format!("\x1b[<0;{column};{line}M"));
        terminal.text(&format!("\x1b[<0;{column};{line}m"));
    };
    let line_of = |screen: &str, text: &str| screen.lines().position(|line| line.contains(text)).expect(text) + 1;
    let member = fixture.truth()["findings"][0]["threads"][1].as_i64().unwrap();
    click(20, line_of(&screen, &format!("!{member}")));
    terminal.shows("the thread is selected", |screen| {
        screen.lines().any(|line| line.starts_with("Waits of ") && line.contains(&format!("({member})")))
    });
    click(6, line_of(&screen, "RUNQ%"));
    terminal.shows("sorted by the heading", |screen| screen.contains("*LWP"));
    let tabs = line_of(&screen, "[1 Threads");
    click(screen.lines().nth(tabs - 1).unwrap().find("Locks").unwrap() + 1, tabs);
    terminal.shows("locks", |screen| screen.contains("[2 Locks") && screen.contains("HELD BY"));
    terminal.text("t?");
    terminal.shows("help", |screen| screen.contains("Keys of tglass top"));
    terminal.text("x");
    for (columns, lines) in [(60, 12), (30, 6), (10, 3), (200, 60)] {
        terminal.resize(columns, lines);
        terminal.shows("it fits", |screen| {
            screen.lines().next().is_some_and(|line| !line.trim().is_empty())
                && screen.lines().all(|line| line.chars().count() <= usize::from(columns))
        });
    }
    terminal.shows("all of it again", |screen| screen.contains("[1 Threads") && screen.contains("START"));
    terminal.text(" ");
    terminal.shows("frozen", |screen| screen.contains("FROZEN"));
    terminal.keys(&["q"]);
    assert_given_back(&terminal);
}

/// The target goes on all the time, and nothing is done to it.
#[test]
fn nothing_is_touched() {
    if !have("nothing_is_touched", "tmux") || !have("nothing_is_touched", "strace") {
        return;
    }
    let fixture = fixture("deadlocks.c", &["abba"]).settled();
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let terminal = Terminal::new(80, 24, &[]);
    let calls = "trace=ptrace,kill,tkill,tgkill,rt_sigqueueinfo,rt_tgsigqueueinfo,pidfd_send_signal,pidfd_getfd,\
                 process_vm_writev,process_vm_readv,process_madvise,setns";
    terminal.start(&format!("strace -f -o {} -e {calls} {TOOL} top {}", trace.display(), fixture.pid()));
    terminal.shows("the deadlock", |screen| screen.contains("DEADLOCK (certain)"));
    terminal.keys(&["Enter", "Down", "Enter", "2", "1"]);
    terminal.shows("a stack", |screen| screen.contains("#0 "));
    terminal.keys(&["q"]);
    terminal.shows("the shell again", |screen| screen.trim_end().ends_with(PROMPT));
    let text = std::fs::read_to_string(&trace).unwrap();
    assert!(text.contains("process_vm_readv("), "the trace shows what was read: {text}");
    let acts = text.lines().filter(|line| !line.contains("process_vm_readv") && line.contains('(')).count();
    assert_eq!(acts, 0, "{text}");
}

#[test]
fn threads_that_run_are_measured() {
    if !have("threads_that_run_are_measured", "tmux") {
        return;
    }
    let fixture = fixture("profil_spin.c", &[]);
    let terminal = top(100, 30, &fixture.pid().to_string());
    // How much of a CPU it gets, the machine decides; that it gets any is seen, and puts it first.
    terminal.shows("the thread that runs", |screen| {
        let first = screen.lines().skip_while(|line| !line.contains("CPU%")).nth(1).unwrap_or_default();
        let words: Vec<&str> = first.split_whitespace().collect();
        let runs = words.iter().position(|word| matches!(*word, "active" | "run"));
        let cpu = runs.and_then(|at| words.get(at + 1)?.parse::<f64>().ok());
        screen.contains("CPUs ") && cpu.is_some_and(|cpu| cpu > 0.0)
    });
}

//! The commands for gdb, in a real gdb: the same threads and locks as the fixtures made, by gdb's numbers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::{
    Answer, Build, Dumpable, Fixture, Public, Signal, Tool, Value, Variant, can_unshare, end_with_descendants,
    eventually, have, holds_within, is_root, part, signal, skip,
};

const TGLASS: &str = env!("CARGO_BIN_EXE_tglass");

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../gdb/threadglass.py")
}

/// Whether there is a gdb with Python; counts a skip when not.
fn have_gdb(test: &str) -> bool {
    if !have(test, "gdb") {
        return false;
    }
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-ex", "python print('speaks', gdb.VERSION)"]);
    let speaks = Answer::of(command).text().contains("speaks");
    if !speaks {
        skip(test, "this gdb has no Python");
    }
    speaks
}

/// A gdb that has our commands and runs these; `before` are its arguments.
fn gdb(before: &[&str], commands: &[&str]) -> Command {
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set width 0"]);
    // Two seconds, its default, are short on a busy machine, and gdb does not recover from what comes late.
    command.args(["-iex", "set remotetimeout 120"]);
    command.arg("-ix").arg(script()).args(before).env("TGLASS", TGLASS);
    for line in commands {
        // What one command says begins with its name.
        command.args(["-ex", &format!("echo [{line}]\\n"), "-ex", line]);
    }
    command
}

/// What gdb said to each command, its complaints included: it writes them where the order is lost.
fn says(mut command: Command) -> Said {
    // One file for both keeps the order.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("said");
    let file = std::fs::File::create(&path).expect("a file");
    let both = (file.try_clone().expect("a file"), file);
    let mut child = command.stdin(Stdio::null()).stdout(both.0).stderr(both.1).spawn().expect("gdb starts");
    let mut status = None;
    let ended = holds_within(Duration::from_secs(120), || {
        status = child.try_wait().expect("our own child");
        status.is_some()
    });
    if !ended {
        end_with_descendants(&mut child);
    }
    let text = String::from_utf8_lossy(&std::fs::read(&path).expect("what it said")).into_owned();
    assert!(!text.contains("Traceback") && !text.contains("Python Exception"), "{text}");
    assert!(status.and_then(|status| status.code()).is_some(), "gdb hangs or died: {text}");
    Said(text)
}

struct Said(String);

impl Said {
    /// What one command said.
    fn of(&self, command: &str) -> &str {
        let start = format!("[{command}]\n");
        let Some((_, rest)) = self.0.split_once(&start) else { panic!("no `{command}` in\n{}", self.0) };
        rest.find("\n[").map_or(rest, |end| &rest[..=end])
    }

    /// The one line that a command is to say.
    fn line(&self, command: &str) -> &str {
        let said = self.of(command).trim_end();
        assert_eq!(said.lines().count(), 1, "{command}:\n{said}");
        said
    }

    /// gdb's numbers by LWP, as `info threads` shows them.
    fn numbers(&self) -> BTreeMap<i64, String> {
        let number = |line: &str| {
            let (number, rest) = line.trim_start_matches(['*', ' ']).split_once(' ')?;
            let lwp = rest.split_once("LWP ")?.1.split_once(')')?.0;
            Some((lwp.parse().ok()?, number.to_owned()))
        };
        self.of("info threads").lines().filter_map(number).collect()
    }
}

const ALL: [&str; 3] = ["info threads", "info locks", "info deadlock"];

fn deadlocks() -> PathBuf {
    Build::new("deadlocks.c").variant(Variant::Default).path()
}

fn list(value: &Value) -> Vec<i64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_i64).collect()
}

/// Checks the screens of a deadlock of two against the fixture's truth.
fn assert_abba(truth: &Value, said: &Said) {
    let numbers = said.numbers();
    let finding = &truth["findings"][0];
    let of = |place: usize| numbers[&list(&finding["threads"])[place]].as_str();
    let (one, two) = (of(0), of(1));
    let deadlock = said.of("info deadlock");
    let rings = [format!("{one} -> {two} -> {one}  "), format!("{two} -> {one} -> {two}  ")];
    assert!(rings.iter().any(|ring| deadlock.starts_with(&format!("DEADLOCK, certain: {ring}"))), "{deadlock}");
    assert!(deadlock.contains("sync.h:"), "no source lines:\n{deadlock}");
    for (own, other, place) in [(one, two, 0), (two, one, 1)] {
        let wanted = finding["objects"][place].as_str().expect("an address");
        let held = finding["objects"][1 - place].as_str().expect("an address");
        let lwp = list(&finding["threads"])[place];
        let part =
            &deadlock[deadlock.find(&format!("(LWP {lwp})")).unwrap_or_else(|| panic!("no {lwp}:\n{deadlock}"))..];
        let lines: Vec<_> = part.lines().take(3).collect();
        assert!(lines[0].contains(" for mutex ") && lines[0].ends_with(&format!(" at {wanted}")), "{lines:?}");
        assert!(lines[1].starts_with(&format!("    held by {other}")), "{lines:?}");
        assert!(lines[2].starts_with("    holds mutex ") && lines[2].ends_with(held), "{lines:?}");
        let row = said.of("info locks").lines().find(|line| line.starts_with(wanted));
        let cells: Vec<_> =
            row.unwrap_or_default().split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells[1..3], ["mutex", "locked"], "{cells:?}");
        assert_eq!(cells[3].split(' ').next(), Some(other), "{cells:?}");
        assert_eq!(cells[4], own, "{cells:?}");
        let chain: Vec<_> = said.of(&format!("thread blocked-by {own}")).lines().collect();
        assert!(
            chain[0].starts_with(&format!("{own} ")) && chain[0].contains(&format!(", held by {other}")),
            "{chain:?}"
        );
        assert!(chain[1].starts_with(&format!("{other} ")) && chain[1].ends_with("  (cycle of 2)"), "{chain:?}");
        assert!(chain[2].starts_with("DEADLOCK, certain:"), "{chain:?}");
    }
}

/// Every thread of a program with three.
const CHAINS: [&str; 6] = [ALL[0], ALL[1], ALL[2], "thread blocked-by 1", "thread blocked-by 2", "thread blocked-by 3"];

#[test]
fn a_process_that_gdb_attached_to() {
    if !have_gdb("a_process_that_gdb_attached_to") {
        return;
    }
    let fixture = Fixture::start(&deadlocks(), &["abba"]).settled();
    let said = says(gdb(&["-p", &fixture.pid().to_string()], &CHAINS));
    assert_abba(fixture.truth(), &said);
    assert!(said.line("thread blocked-by 1").starts_with("1 \"deadlocks-"), "{}", said.0);
    assert!(said.line("thread blocked-by 1").contains(" is asleep in read: "), "{}", said.0);
}

#[test]
fn a_core_of_the_kernel() {
    let test = "a_core_of_the_kernel";
    if !have_gdb(test) {
        return;
    }
    let program = deadlocks();
    let dumpable = Dumpable::start(&program, &["abba"]);
    let truth = dumpable.fixture.truth().clone();
    let Some(core) = dumpable.kernel_core(test) else { return };
    assert_abba(&truth, &says(gdb(&[&program.to_string_lossy(), &core.name()], &CHAINS)));
    // Named by a relative path, looked at from another directory, with a program that has moved.
    let moved = core.dir().join("moved");
    std::fs::copy(&program, &moved).expect("a copy");
    let name = core.path().file_name().expect("a name").to_string_lossy().into_owned();
    let mut commands = vec!["file moved", "cd /"];
    let open = format!("core-file {name}");
    commands.insert(1, &open);
    commands.extend(CHAINS);
    let mut command = gdb(&[], &commands);
    command.current_dir(core.dir());
    assert_abba(&truth, &says(command));
}

#[test]
fn a_program_that_gdb_started() {
    if !have_gdb("a_program_that_gdb_started") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (input, output) = (dir.path().join("input"), dir.path().join("output"));
    make_fifo(&input);
    // For reading and writing: the program waits for input that never comes, and never ends.
    let run = format!("run abba <> {} > {}", input.display(), output.display());
    let mut commands = vec![run.as_str()];
    commands.extend(CHAINS);
    commands.push("kill");
    let program = deadlocks();
    let command = gdb(&[&program.to_string_lossy()], &commands);
    let gdb = std::thread::spawn(move || says(command));
    let text = || std::fs::read_to_string(&output).unwrap_or_default();
    eventually("the program should be ready", || text().ends_with("ready\n") || gdb.is_finished());
    let text = text();
    assert!(text.ends_with("ready\n"), "{}", gdb.join().expect("gdb").0);
    let truth: Value = testkit::serde_json::from_str(text.trim_end_matches("ready\n")).expect("the truth");
    signal(i32::try_from(truth["pid"].as_i64().expect("a pid")).expect("a pid"), Signal::SIGINT);
    assert_abba(&truth, &gdb.join().expect("gdb"));
}

fn make_fifo(path: &Path) {
    let mut command = Command::new("mkfifo");
    command.arg(path);
    assert_eq!(Answer::of(command).code, Some(0));
}

#[test]
fn chains_are_followed_to_their_end() {
    if !have_gdb("chains_are_followed_to_their_end") {
        return;
    }
    let look = |scenario: &str, commands: &[&str]| {
        let fixture = Fixture::start(&deadlocks(), &[scenario]).settled();
        says(gdb(&["-p", &fixture.pid().to_string()], commands))
    };
    // Numbers follow the order in which threads were made.
    let said = look("chain_read", &["thread blocked-by 2", "info deadlock"]);
    let chain: Vec<_> = said.of("thread blocked-by 2").lines().collect();
    assert_eq!(chain.len(), 4, "{chain:?}");
    for (line, name) in chain.iter().zip(["2 ", "3 ", "4 ", "5 "]) {
        assert!(line.starts_with(name), "{chain:?}");
    }
    assert!(chain[3].ends_with(" is asleep in read"), "{chain:?}");
    assert!(said.of("info deadlock").starts_with("No deadlock was found.\nWAITS, "), "{}", said.0);

    // Behind a circle that it is no part of.
    let said = look("two_cycles", &["thread blocked-by 6", "info deadlock"]);
    let chain: Vec<_> = said.of("thread blocked-by 6").lines().collect();
    assert_eq!(chain.len(), 4, "{chain:?}");
    assert!(chain[2].ends_with("  (cycle of 2)"), "{chain:?}");
    assert_eq!(said.of("info deadlock").matches("DEADLOCK, certain:").count(), 2, "{}", said.0);
    assert!(said.of("info deadlock").contains("\n  behind it: 6\n"), "{}", said.0);

    let said = look("self", &["thread blocked-by 2"]);
    assert!(said.of("thread blocked-by 2").contains(", held by 2 "), "{}", said.0);
    assert!(said.of("thread blocked-by 2").contains("  (by itself)\nSELF-DEADLOCK, certain"), "{}", said.0);

    let said = look("owner_exited", &["thread blocked-by 2", "info deadlock"]);
    assert!(said.of("thread blocked-by 2").contains(", which no longer exists\n"), "{}", said.0);
    assert!(said.of("info deadlock").starts_with("OWNER GONE, certain: "), "{}", said.0);

    let said = look("joins", &["thread blocked-by 2"]);
    assert!(said.of("thread blocked-by 2").contains(" for the end of 3 "), "{}", said.0);
    assert!(said.of("thread blocked-by 2").contains("  (cycle of 3)\n"), "{}", said.0);

    let said = look("cond_alone", &["info deadlock", "thread blocked-by 2"]);
    assert!(said.of("info deadlock").contains("NOBODY LEFT TO SIGNAL, "), "{}", said.0);
    assert!(said.of("thread blocked-by 2").contains("; no holder is known\n"), "{}", said.0);
}

#[test]
fn a_crowd_does_not_fill_the_screen() {
    if !have_gdb("a_crowd_does_not_fill_the_screen") {
        return;
    }
    let fixture = Fixture::start(&deadlocks(), &["crowd"]).settled();
    let said =
        says(gdb(&["-p", &fixture.pid().to_string()], &["info locks", "info deadlock", "thread blocked-by 500"]));
    for command in ["info locks", "info deadlock", "thread blocked-by 500"] {
        let text = said.of(command);
        assert!(text.lines().count() < 40 && text.lines().all(|line| line.len() < 240), "{text}");
    }
    assert!(said.of("info locks").contains(" .. (1001)"), "{}", said.of("info locks"));
    assert!(said.of("info deadlock").contains(" .. (1000)\n"), "{}", said.of("info deadlock"));
    assert!(said.of("thread blocked-by 500").contains("  (cycle of 2)\n"), "{}", said.of("thread blocked-by 500"));
}

/// The rows of `info locks` and those of `tglass locks`: one for each, with the right threads.
#[test]
fn locks_are_those_that_tglass_shows() {
    if !have_gdb("locks_are_those_that_tglass_shows") {
        return;
    }
    for file in ["sync_mutexes.c", "sync_rwlocks.c", "sync_kinds.c"] {
        let fixture = Fixture::new(file).settled();
        let pid = fixture.pid().to_string();
        for options in [&[][..], &["--held"], &["--waited"], &["--all"]] {
            let known = Tool::new(TGLASS).look("locks", &pid, options);
            let command = ["info locks", &options.join(" ")].join(" ").trim_end().to_owned();
            let said = says(gdb(&["-p", &pid], &["info threads", &command]));
            let numbers = said.numbers();
            let rows: Vec<_> = said.of(&command).lines().filter(|line| line.starts_with("0x")).collect();
            let objects = known["objects"].as_array().expect("objects");
            assert!(!objects.is_empty(), "{file} {options:?}");
            assert_eq!(rows.len(), objects.len(), "{file} {options:?}:\n{}", said.of(&command));
            for (row, object) in rows.iter().zip(objects) {
                assert!(row.starts_with(object["address"].as_str().expect("an address")), "{row}\n{object}");
                assert!(row.contains(object["kind"].as_str().expect("a kind")), "{row}\n{object}");
                assert!(row.contains(object["name"].as_str().unwrap_or("-")), "{row}\n{object}");
                for holder in object["holders"].as_array().expect("holders").iter().take(4) {
                    let lwp = holder["lwp"].as_i64().unwrap_or(0);
                    let who = numbers.get(&lwp).map_or_else(|| format!("LWP {lwp}"), |number| format!("{number} \""));
                    assert!(row.contains(&format!(" {who}")), "{row}\n{object}");
                }
            }
        }
    }
}

/// What gdb's Python lets through is what the tool lets through.
#[test]
fn nothing_unseen_is_printed() {
    if !have_gdb("nothing_unseen_is_printed") {
        return;
    }
    let code = "python from threadglass_gdb.words import safe; \
                print([n for n in range(0x110000) if not 0xd800 <= n < 0xe000 and safe(chr(n)) == chr(n)])";
    let said = says(gdb(&[], &[code]));
    let numbers: Vec<u32> = testkit::serde_json::from_str(said.of(code).trim()).expect("a list");
    assert!(numbers.len() > 100_000, "letters are printed: {}", numbers.len());
    for c in numbers.into_iter().filter_map(char::from_u32) {
        assert!(threadglass::model::terminal::may_print(c), "{c:?} reaches the terminal");
    }
}

#[test]
fn without_a_process() {
    if !have_gdb("without_a_process") {
        return;
    }
    let commands = ["info locks", "info deadlock", "thread blocked-by", "thread blocked-by 1"];
    let program = deadlocks();
    for before in [&[][..], &[&*program.to_string_lossy()]] {
        let said = says(gdb(before, &commands));
        for command in commands {
            assert!(said.line(command).starts_with("there is no process to look at: "), "{}", said.0);
        }
    }
}

#[test]
fn what_is_asked_wrongly() {
    if !have_gdb("what_is_asked_wrongly") {
        return;
    }
    let fixture = Fixture::start(&deadlocks(), &["abba"]).settled();
    let wrong = [
        ("thread blocked-by 99", "there is no thread 99: "),
        ("thread blocked-by 0", "there is no thread 0: "),
        ("thread blocked-by -1", "`-1` is not a thread: "),
        ("thread blocked-by 2.1", "thread 2.1 belongs to another inferior: "),
        ("thread blocked-by 99999999999999999999", "`99999999999999999999` is not a thread: "),
        ("thread blocked-by 1 2", "thread blocked-by takes one thread, "),
        ("info locks --wrong", "`--wrong` is not an option: "),
        ("info locks --all --held", "--all also shows "),
        ("info deadlock 2", "info deadlock takes no argument; "),
    ];
    let mut commands: Vec<_> = wrong.iter().map(|(command, _)| *command).collect();
    commands.extend(["info lo", "info loc", "thread blocked-by $_thread", "thread blocked-by 1.2"]);
    let said = says(gdb(&["-p", &fixture.pid().to_string()], &commands));
    for (command, answer) in wrong {
        assert!(said.line(command).starts_with(answer), "{command}: {}", said.of(command));
    }
    // Short words that have always been `info locals` still are.
    assert!(!said.0.contains("Ambiguous"), "{}", said.0);
    assert!(said.of("thread blocked-by $_thread").starts_with("1 "), "{}", said.0);
    assert!(said.of("thread blocked-by 1.2").starts_with("2 "), "{}", said.0);
}

/// A program in the place of tglass.
fn stand_in(dir: &Public, text: &str) -> PathBuf {
    let source = dir.path().join("text");
    std::fs::write(&source, text).expect("a script");
    dir.copy(&source, "tglass")
}

#[test]
fn without_tglass_or_with_a_wrong_one() {
    if !have_gdb("without_tglass_or_with_a_wrong_one") {
        return;
    }
    let fixture = Fixture::start(&deadlocks(), &["abba"]).settled();
    let pid = fixture.pid().to_string();
    let dir = Public::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let real = std::env::split_paths(&path).map(|dir| dir.join("gdb")).find(|file| file.is_file()).expect("gdb");
    let with = |tglass: Option<&Path>, expected: &str| {
        let template = gdb(&["-p", &pid], &["info locks", "info deadlock", "thread blocked-by"]);
        let mut command = Command::new(&real);
        command.args(template.get_args()).env("PATH", dir.path().join("empty")).env_remove("TGLASS");
        if let Some(tglass) = tglass {
            command.env("TGLASS", tglass);
        }
        let said = says(command);
        for command in ["info locks", "info deadlock", "thread blocked-by"] {
            assert!(said.line(command).contains(expected), "{expected}: {}", said.of(command));
        }
    };
    with(None, "tglass was not found: put it in PATH or set TGLASS");
    with(Some(&dir.path().join("nowhere")), "which is not a program: set it to the path of tglass");
    with(
        Some(&stand_in(&dir, "#!/bin/sh\necho 'tglass: it is broken (try this)' >&2; exit 2\n")),
        "it is broken (try this)",
    );
    with(Some(&stand_in(&dir, "#!/bin/sh\nexit 7\n")), "tglass failed (status 7): try ");
    with(
        Some(&stand_in(&dir, "#!/bin/sh\necho '{\"schema\": \"threadglass/9\"}'\n")),
        "install both from the same release",
    );
    with(Some(&stand_in(&dir, "#!/bin/sh\necho nonsense\n")), "install both from the same release");
    with(Some(&stand_in(&dir, "not a program\n")), "cannot be run: ");
}

/// A hang that is only likely has a status of its own, and is an answer all the same.
#[test]
fn a_status_that_tells_of_a_likely_hang() {
    let test = "a_status_that_tells_of_a_likely_hang";
    if !have_gdb(test) {
        return;
    }
    let fixture = Fixture::start(&deadlocks(), &["abba"]).settled();
    let dir = Public::new();
    let said_by = |status: i32| {
        let mut command = gdb(&["-p", &fixture.pid().to_string()], &["info deadlock"]);
        command.env("TGLASS", stand_in(&dir, &format!("#!/bin/sh\n{TGLASS} \"$@\"\nexit {status}\n")));
        says(command)
    };
    assert!(said_by(3).of("info deadlock").starts_with("DEADLOCK"), "{}", said_by(3).0);
    assert!(!said_by(4).of("info deadlock").contains("DEADLOCK"), "other statuses are failures");
}

/// Not being allowed to look is no answer about deadlocks.
#[test]
fn where_gdb_may_look_and_tglass_may_not() {
    let test = "where_gdb_may_look_and_tglass_may_not";
    if !have_gdb(test) || !have(test, "setpriv") || !is_root(test, "to become another user") {
        return;
    }
    let fixture = Fixture::start(&deadlocks(), &["abba"]).settled();
    let dir = Public::new();
    let tool = dir.copy(Path::new(TGLASS), "real");
    let text = format!("#!/bin/sh\nexec setpriv --reuid=65534 --clear-groups -- {} \"$@\"\n", tool.display());
    let commands = ["info locks", "info deadlock", "thread blocked-by 2"];
    let mut command = gdb(&["-p", &fixture.pid().to_string()], &commands);
    command.env("TGLASS", stand_in(&dir, &text));
    let said = says(command);
    for command in commands {
        assert!(said.of(command).contains("cannot see the locks of process"), "{}", said.of(command));
        assert!(said.of(command).contains("generate-core-file"), "{}", said.of(command));
    }
}

#[test]
fn processes_of_a_gdbserver() {
    let test = "processes_of_a_gdbserver";
    if !have_gdb(test) || !have(test, "gdbserver") {
        return;
    }
    let fixture = Fixture::start(&deadlocks(), &["abba"]).settled();
    let local = format!("target remote | gdbserver --attach - {}", fixture.pid());
    let mut commands = vec!["set sysroot /", local.as_str()];
    commands.extend(CHAINS);
    commands.push("detach");
    let said = says(gdb(&[], &commands));
    // A gdbserver without our library may not know LWPs by number; the answer counts.
    assert!(said.of("info deadlock").starts_with("DEADLOCK, certain: "), "{}", said.0);
    const NAMESPACE: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let elsewhere = part("a gdbserver in a pid namespace");
    if !is_root(elsewhere, "for a pid namespace") || !can_unshare(elsewhere, &NAMESPACE) {
        return;
    }
    // Its pids mean something else there.
    let program = deadlocks();
    let other = format!("target remote | unshare {} gdbserver - {} abba", NAMESPACE.join(" "), program.display());
    let commands = ["set sysroot /", other.as_str(), "info locks", "info deadlock", "thread blocked-by", "kill"];
    let said = says(gdb(&[&program.to_string_lossy()], &commands));
    for command in ["info locks", "info deadlock", "thread blocked-by"] {
        assert!(said.of(command).contains(" does not run on this machine (remote "), "{}", said.0);
    }
}

#[test]
fn the_selected_inferior_counts() {
    if !have_gdb("the_selected_inferior_counts") {
        return;
    }
    let one = Fixture::start(&deadlocks(), &["chain_read"]).settled();
    let two = Fixture::start(&deadlocks(), &["abba"]).settled();
    let attach = format!("attach {}", two.pid());
    let commands = ["info deadlock", "add-inferior", "inferior 2", "info locks", &attach, "thread blocked-by 2"];
    let said = says(gdb(&["-p", &one.pid().to_string()], &commands));
    assert!(said.of("info deadlock").starts_with("No deadlock was found.\n"), "{}", said.0);
    assert!(said.line("info locks").starts_with("there is no process "), "{}", said.0);
    let chain = said.of("thread blocked-by 2");
    assert!(chain.starts_with("2.2 ") && chain.contains(", held by 2.3 "), "{}", said.0);
}

/// What nobody else may do while gdb traces: put the agent in, and have the slots restored.
#[test]
fn the_agent_is_loaded_by_gdb_itself() {
    let test = "the_agent_is_loaded_by_gdb_itself";
    if !have_gdb(test) {
        return;
    }
    let program = Build::new("inject_counts.c").variant(Variant::Default).path();
    let mut fixture = Fixture::start(&program, &[]).settled();
    let pid = fixture.pid();
    let attach = pid.to_string();
    let attach = ["-p", attach.as_str()];
    let counted = |pid: i32, truth: &Value| {
        let snapshot = Tool::new(TGLASS).look("locks", &pid.to_string(), &["--all"]);
        let objects = snapshot["objects"].as_array().expect("objects").clone();
        let found = objects.into_iter().find(|object| object["address"] == truth["counted"]).expect("the mutex");
        found["stats"]["lock"].as_u64()
    };
    let truth = fixture.truth().clone();
    let said = says(gdb(&attach, &["locks track on", "detach"]));
    if said.0.contains("extended state") {
        // gdb 13 on processors with a state larger than it knows: it can call nothing at all.
        return skip(test, "this gdb cannot call functions of a program on this processor");
    }
    assert!(said.0.contains("counting"), "{}", said.0);
    eventually("it should be let go", || testkit::task_state(pid, pid).is_some_and(|task| !"tT".contains(task.letter)));
    // The agent sets its hooks in a thread of its own.
    let mut before = None;
    eventually("it should count", || {
        assert_eq!(fixture.ask("work 1"), "done");
        before = counted(pid, &truth);
        before.is_some()
    });
    let all = before.map(|before| before + 2000);
    assert_eq!(fixture.ask("work 500"), "done");
    assert_eq!(counted(pid, &truth), all);
    let said = says(gdb(&attach, &["locks track off", "locks track", "detach"]));
    assert!(said.0.contains("no longer counting"), "{}", said.0);
    assert!(said.0.contains("takes one word"), "{}", said.0);
    assert_eq!(fixture.ask("work 500"), "done");
    assert_eq!(counted(pid, &truth), None, "counts that have ended are not shown");
}

/// While the program runs, gdb cannot call the agent: that is said in one line, and the program runs on.
#[test]
fn a_program_that_runs_meanwhile() {
    if !have_gdb("a_program_that_runs_meanwhile") {
        return;
    }
    let program = Build::new("inject_counts.c").variant(Variant::Default).path();
    let mut fixture = Fixture::start(&program, &[]).settled();
    let pid = fixture.pid().to_string();
    let tracks = ["locks track off", "locks track on"];
    let commands = ["continue &", tracks[0], tracks[1], "thread blocked-by $_thread->x", "thread blocked-by 1"];
    let said = says(gdb(&["-p", &pid], &commands));
    for command in tracks {
        assert!(said.line(command).starts_with("the program is running"), "{}", said.0);
    }
    assert!(said.line(commands[3]).starts_with("`$_thread->x` is not a thread: "), "{}", said.0);
    assert!(said.of(commands[4]).starts_with("1 "), "{}", said.0);
    assert_eq!(fixture.ask("work 1"), "done");
}

//! The first five minutes: the demo's scenes, completions, and calls that are wrong.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use testkit::{
    Answer, Fixture, NOBODY, Public, Tool, any_of, as_user, ensure, eventually, have, is_root, part, task_state,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// What each scene is explained by.
const SCENES: [(&str, &str); 4] = [
    ("contention", "tglass_demo::contention::CACHE"),
    ("starvation", "all 4 workers of the pool of tglass_demo::starvation::work wait inside tasks"),
    ("philosophers", "\nDEADLOCK  5 threads, 5 locks"),
    ("pipes", "\nDEADLOCK OF PROCESSES  2 processes"),
];

fn tells(scene: &str, what: &str) {
    any_of(5, || {
        let answer = tool().run(&["demo", scene]);
        ensure(answer.code == Some(0), || format!("{scene}: {}{}", answer.text(), answer.stderr))?;
        let text = answer.text();
        ensure(text.contains(what), || format!("{scene} does not say {what:?}: {text}"))?;
        let pid = text.split("pid ").nth(1).and_then(|rest| rest.split([',', '.']).next()).unwrap_or_default();
        let pid: i32 = pid.parse().map_err(|_| format!("no PID: {text}"))?;
        ensure(task_state(pid, pid).is_none(), || format!("{scene}: its program {pid} still runs"))
    });
}

#[test]
fn every_scene_is_explained() {
    for (scene, what) in SCENES {
        tells(scene, what);
    }
    if have(part("the scene in Go"), "go") {
        tells("go", "\nDEADLOCK OF TASKS  2 tasks");
    }
}

#[test]
fn scenes_are_listed_with_their_commands() {
    let list = tool().run(&["demo", "--list"]).text();
    for (scene, _) in SCENES.into_iter().chain([("deadlock", ""), ("go", "")]) {
        let at = list.find(&format!("tglass demo {scene} ")).unwrap_or_else(|| panic!("no {scene}: {list}"));
        assert!(
            list[at..].lines().nth(1).is_some_and(|line| line.contains("explained by `tglass ")),
            "{scene}: {list}"
        );
    }
    assert!(tool().run(&["demo", "nonsense"]).stderr.contains("philosophers"), "the scenes are named");
}

/// Without Go, that is said; nothing is left behind.
#[test]
fn a_scene_in_go_without_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = tool().command(&["demo", "go"]);
    command.env("PATH", dir.path()).env("TMPDIR", dir.path());
    let answer = Answer::of(command);
    assert!(answer.assert_refused().contains("install Go"), "{}", answer.stderr);
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "a directory is left");
}

/// However the tool ends, the program that it has started ends.
#[test]
fn a_program_of_the_demo_does_not_outlive_it() {
    let mut command = tool().command(&["demo", "pipes", "--stay", "10m"]);
    let mut demo = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("It stays for ")).expect("it stays");
    let pid: i32 = line.rsplit(' ').next().unwrap().trim_end_matches('.').parse().unwrap();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let filter: i32 = children.trim().parse().expect("one child");
    assert!(task_state(pid, pid).is_some() && task_state(filter, filter).is_some());
    demo.kill().unwrap();
    demo.wait().unwrap();
    eventually("both processes should end", || {
        [pid, filter].iter().all(|pid| task_state(*pid, *pid).is_none_or(|task| task.letter == 'Z'))
    });
}

/// What a shell is told that could follow `words`; the last of them is only begun.
fn completed(shell: &str, words: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = tool().command(&["--", "tglass"]);
    command.args(words).env("TGLASS_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    command.envs(variables.iter().copied()).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"));
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{shell} {words:?}: {}", answer.stderr);
    answer.text()
}

#[test]
fn processes_and_files_are_completed() {
    let fixture = Fixture::new("pending.c");
    let pid = fixture.pid().to_string();
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let named = |text: &str| text.lines().any(|line| line.starts_with(&pid) && line.contains(name.trim()));
    let begun = &pid[..pid.len() - 1];
    for words in [&["why", begun][..], &["threads", "--stacks", "-p", begun], &["contend", begun], &["diff", begun]] {
        assert!(named(&completed("fish", words, &[])), "{words:?}");
    }
    // After the second Tab bash shows what it gets, and inserts nothing.
    let listed = [("_CLAP_COMPLETE_COMP_TYPE", "63"), ("_CLAP_IFS", "\n")];
    assert!(named(&completed("bash", &["why", begun], &listed)));
    let plain = [("_CLAP_COMPLETE_COMP_TYPE", "9"), ("_CLAP_IFS", "\n")];
    assert!(completed("bash", &["why", begun], &plain).lines().any(|line| line == pid));
    let files = completed("fish", &["why", "f"], &[]);
    assert!(files.contains("format-1.tgsnap"), "{files}");
    assert!(!completed("fish", &["contend", "f"], &[]).contains("format-1"), "a snapshot has nothing to measure");
    assert!(completed("fish", &["help", "perm"], &[]).contains("permissions"));
    assert!(!completed("fish", &[""], &[]).contains("_scene"), "what is hidden stays so");
}

/// Each shell takes its script.
#[test]
fn shells_take_their_scripts() {
    for (shell, check) in [
        ("bash", "complete -p tglass"),
        ("zsh", "autoload -U compinit; compinit -u -D; source /dev/stdin; (( $+_comps[tglass] ))"),
        ("fish", "source; complete -C 'tglass dem' | string match -q 'demo*'"),
    ] {
        let script = tool().run(&["generate", "completions", shell]);
        assert_eq!(script.code, Some(0), "{}", script.stderr);
        if !have(part(&format!("the script of {shell}")), shell) {
            continue;
        }
        let options: &[&str] = if shell == "zsh" { &["-f", "-c"] } else { &["-c"] };
        let check = if shell == "bash" { format!("source /dev/stdin; {check}") } else { check.to_owned() };
        let mut command = Command::new(shell);
        command.args(options).arg(check);
        // The script calls the tool by its name.
        let bin = std::path::Path::new(env!("CARGO_BIN_EXE_tglass")).parent().unwrap();
        command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.text().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn wrong_calls_lead_on() {
    let pid = std::process::id().to_string();
    for (args, what) in [
        (&["thread", "1"][..], "'threads'"),
        (&["why", "--jsn", "1"], "'--json'"),
        (&[&pid], "`tglass why "),
        (&[env!("CARGO_BIN_EXE_tglass")], "`tglass why "),
        (&["why", "4194305"], "`ps -e`"),
        (&["why", "no-such-thing"], "path of a core file or snapshot"),
        (&["threads", "/etc/passwd"], "`gcore PID`"),
        (&["help", "nonsense"], "permissions, containers, cores"),
    ] {
        let answer = tool().run(args);
        assert_eq!(answer.code, Some(2), "{args:?}: {}", answer.stderr);
        assert!(answer.stderr.contains(what), "{args:?}: {}", answer.stderr);
    }
}

#[test]
fn no_permission_leads_to_its_page() {
    let test = "no_permission_leads_to_its_page";
    if !is_root(test, "to run as another user") || !have(test, "setpriv") {
        return;
    }
    let fixture = Fixture::new("pending.c");
    let public = Public::new();
    let tglass = public.copy(env!("CARGO_BIN_EXE_tglass").as_ref(), "tglass");
    for verb in ["why", "locks", "tsd", "contend"] {
        let mut command = as_user(NOBODY, &tglass);
        command.args([verb, &fixture.pid().to_string()]);
        let answer = Answer::of(command);
        assert!(answer.assert_refused().contains("`tglass help permissions`"), "{verb}: {}", answer.stderr);
    }
    for (page, word) in
        [("permissions", "ptrace_scope"), ("containers", "kubectl debug"), ("cores", "--sysroot"), ("why", "--fail-on")]
    {
        let answer = tool().run(&["help", page]);
        assert!(answer.code == Some(0) && answer.text().contains(word), "{page}: {}", answer.text());
        assert!(answer.text().lines().all(|line| line.chars().count() <= 120), "{page} is too wide");
    }
}

//! Programs whose files are made to harm who looks into them: a look ends soon, takes little memory, and says what it has
//! left out.

use std::path::PathBuf;
use std::process::Command;
use testkit::hostile::{CASES, Case, ObjectPatch};
use testkit::{Answer, Build, Dumpable, Fixture, Value, Variant, have};

/// What a look may use: seconds of CPU time, and bytes.
const CPU: u32 = 10;
const MEMORY: u64 = 1 << 30;

/// The looks, with all that they can read.
const LOOKS: [&[&str]; 4] = [&["why"], &["threads", "--stacks"], &["locks", "--all"], &["tsd"]];

/// Runs the tool as it would be by somebody who has no more than this.
fn look(words: &[&str], target: &str) -> Answer {
    let mut command = Command::new("prlimit");
    command.args([format!("--cpu={CPU}"), format!("--data={MEMORY}"), "--core=0".to_owned()]);
    command.arg(env!("CARGO_BIN_EXE_tglass")).args([words[0], target, "--json"]).args(&words[1..]);
    Answer::of(command)
}

/// Checks an answer, and gives the gaps in it.
fn gaps(case: &Case, words: &[&str], answer: &Answer) -> Vec<String> {
    let about = format!("{words:?} of a file with {case:?}");
    assert!(matches!(answer.code, Some(0 | 1)), "{about}: {:?} {}", answer.code, answer.stderr);
    assert_eq!(answer.stderr, "", "{about}");
    let json = answer.json();
    let gap = |gap: &Value| format!("{}: {}", gap["what"].as_str().unwrap(), gap["why"].as_str().unwrap());
    let gaps: Vec<String> = json["gaps"].as_array().unwrap().iter().map(gap).collect();
    let mut once = gaps.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), gaps.len(), "{about}: each gap once: {gaps:#?}");
    gaps
}

/// Writes the program with this flaw.
fn program(dir: &tempfile::TempDir, case: &Case) -> PathBuf {
    let path = dir.path().join("hostile");
    (case.patch)(ObjectPatch::of(&Build::new("hostile_file.c").variant(Variant::Default).path())).write(&path);
    path
}

fn check_live(case: &Case) {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::start(&program(&dir, case), &[]).settled();
    let mut all = Vec::new();
    for words in LOOKS {
        all.extend(gaps(case, words, &look(words, &fixture.pid().to_string())));
    }
    if let Some(gap) = case.gap {
        // On a slow machine, or in a build that is not optimised, the time is over before there is too much of it.
        let says_so = |one: &String| one.contains(gap) || one.contains("the look used its 6 s of CPU time");
        assert!(all.iter().any(says_so), "{case:?}: no look says that it has left out {gap}: {all:#?}");
    }
}

/// The cases in this part of the list: tests run side by side.
fn check_part(part: usize) {
    const PARTS: usize = 4;
    if have("hostile_files", "prlimit") {
        CASES.iter().skip(part).step_by(PARTS).for_each(check_live);
    }
}

#[test]
fn live_processes_first_part() {
    check_part(0);
}

#[test]
fn live_processes_second_part() {
    check_part(1);
}

#[test]
fn live_processes_third_part() {
    check_part(2);
}

#[test]
fn live_processes_fourth_part() {
    check_part(3);
}

#[test]
fn core_files() {
    let wanted = ["a packed section that is to be of 2^62 bytes", "a symbol table of 6 GiB", "forty million files"];
    let cases: Vec<_> = CASES.iter().filter(|case| wanted.contains(&case.name)).collect();
    assert_eq!(cases.len(), wanted.len());
    for case in cases {
        let dir = tempfile::tempdir().unwrap();
        let program = program(&dir, case);
        // A program that is not hostile wrote the core: only its file has become so since.
        let honest = Build::new("hostile_file.c").variant(Variant::Default).path();
        if !have("core_files", "prlimit") {
            return;
        }
        let Some(core) = Dumpable::start(&honest, &[]).gcore("core_files") else { return };
        let exe = program.to_str().unwrap();
        for words in LOOKS {
            let words: Vec<&str> = words.iter().copied().chain(["--exe", exe]).collect();
            gaps(case, &words, &look(&words, &core.name()));
        }
    }
}

#[test]
fn a_name_that_stands_for_a_very_long_text() {
    if !have("a_name_that_stands_for_a_very_long_text", "prlimit") {
        return;
    }
    // Each parameter is a template of the one before it, twice.
    let mut name = "_Z1f1A".to_owned();
    let mut last = "S_".to_owned();
    for index in 0..17 {
        name += &format!("1BI{last}{last}E");
        let digit = char::from_digit(2 * index + 1, 36).unwrap().to_ascii_uppercase();
        last = format!("S{digit}_");
    }
    let flag = format!("-DSTART=\"{name}\"");
    let path = Build::new("hostile_file.c").variant(Variant::Default).flags(&[flag.as_str()]).path();
    let fixture = Fixture::start(&path, &[]).settled();
    for words in LOOKS {
        let answer = look(words, &fixture.pid().to_string());
        assert!(matches!(answer.code, Some(0 | 1)) && answer.stderr.is_empty(), "{words:?}: {}", answer.stderr);
        assert!(answer.stdout.len() < 1 << 20, "{words:?}: {} bytes", answer.stdout.len());
    }
    let text = look(&["threads", "--stacks"], &fixture.pid().to_string()).text();
    assert!(text.contains(&name), "a name that is not written out is shown as it is: {text}");
}

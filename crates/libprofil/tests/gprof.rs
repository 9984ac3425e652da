//! `gmon.out`, read by gprof.

mod common;

use common::fixture;
use std::process::Command;
use testkit::{Answer, Variant, any_of, ensure, have};

#[test]
fn gprof_shows_where_the_time_went() {
    let test = "gprof_shows_where_the_time_went";
    if !have(test, "gprof") {
        return;
    }
    for variant in [Variant::Default, Variant::NoPie] {
        // Ticks are missing where the host takes a CPU away, and then there are few of one function: of five tries one is
        // undisturbed.
        any_of(5, || shares(variant));
    }
}

fn shares(variant: Variant) -> Result<(), String> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (program, file) = (fixture("profil_split.c", variant), dir.path().join("gmon.out"));
    let mut command = Command::new(&program);
    command.arg(&file).env("PROFIL_HZ", "1000");
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);

    let mut gprof = Command::new("gprof");
    gprof.args(["-b", "-p"]).arg(&program).arg(&file);
    let answer = Answer::of(gprof);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let text = answer.text();
    let percent = |function: &str| {
        let line = text.lines().find(|line| line.trim_end().ends_with(&format!(" {function}")));
        let first = line.and_then(|line| line.split_whitespace().next());
        first.and_then(|word| word.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {function}:\n{text}"))
    };
    let (seventy, twenty, ten) = (percent("seventy"), percent("twenty"), percent("ten"));
    assert!(text.contains("Each sample counts as 0.001 seconds"), "{text}");
    // 400 ticks: about four standard deviations.
    ensure((60.0..80.0).contains(&seventy), || format!("{variant:?}:\n{text}"))?;
    ensure((12.0..28.0).contains(&twenty) && ten < twenty, || format!("{variant:?}:\n{text}"))?;
    ensure(seventy + twenty + ten > 95.0, || format!("{variant:?}:\n{text}"))
}

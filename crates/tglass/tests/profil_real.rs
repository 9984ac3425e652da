//! `tglass profil` beside `perf record`, with programs of the distribution, and within limits.

use std::collections::HashMap;
use std::io::Write;
use std::process::Command;
use testkit::{Answer, Build, Fixture, Tool, Value, Variant, eventually, have, is_root, skip};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// The share of each object, by `tglass profil`.
fn shares(profile: &Value) -> HashMap<String, f64> {
    let all = profile["samples"].as_f64().unwrap();
    let mut shares = HashMap::new();
    for function in profile["functions"].as_array().unwrap() {
        let module = function["module"].as_str().unwrap_or("-").to_owned();
        *shares.entry(module).or_default() += 100.0 * function["samples"].as_f64().unwrap() / all;
    }
    shares
}

/// The same, by perf.
fn shares_by_perf(test: &str, dir: &std::path::Path, command: &[&str]) -> Option<HashMap<String, f64>> {
    let data = dir.join("perf.data");
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-e", "cpu-clock:u", "-F", "997", "-o"]).arg(&data).arg("--").args(command);
    let answer = Answer::of(record);
    if answer.code != Some(0) {
        skip(test, &format!("perf record does not work here: {}", answer.stderr.trim()));
        return None;
    }
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "-q", "-F", "overhead,dso", "-i"]).arg(&data);
    let text = Answer::of(report).text();
    let line = |line: &str| {
        let (share, module) = line.trim().split_once(char::is_whitespace)?;
        Some((module.trim().to_owned(), share.trim_end_matches('%').parse().ok()?))
    };
    Some(text.lines().filter_map(line).collect())
}

#[test]
fn perf_record_says_the_same() {
    let test = "perf_record_says_the_same";
    if !have(test, "perf") || !have(test, "sort") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (input, out) = (dir.path().join("input"), dir.path().join("profile"));
    let mut file = std::io::BufWriter::new(std::fs::File::create(&input).unwrap());
    for number in 0..400_000u64 {
        writeln!(file, "{}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap();
    }
    drop(file);
    let command = ["sort", "--parallel=1", "-o", "/dev/null", input.to_str().unwrap()];
    let mut args = vec!["profil", "--json", "-o", out.to_str().unwrap(), "--"];
    args.extend(command);
    let answer = tool().run(&args);
    if answer.stderr.contains("perf events are not permitted") {
        return skip(test, answer.stderr.trim());
    }
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));
    let Some(theirs) = shares_by_perf(test, dir.path(), &command) else { return };
    let profile: Value = testkit::serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let ours = shares(&profile);
    assert!(profile["samples"].as_u64().unwrap() > 50, "{profile:#}");
    for (module, share) in theirs.iter().filter(|(module, _)| !module.starts_with("[kernel")) {
        let our_share = ours.get(module).copied().unwrap_or(0.0);
        assert!((our_share - share).abs() < 20.0, "{module}: {our_share} and {share}\n{ours:?}\n{theirs:?}");
    }
}

/// More threads than files may be open: one event for each CPU does it, where that is permitted, and only this
/// process is counted.
#[test]
fn more_threads_than_events() {
    let test = "more_threads_than_events";
    if !have(test, "prlimit") || !is_root(test, "to sample whole CPUs") {
        return;
    }
    let mut fixture = Fixture::start(&Build::new("profil_spin.c").variant(Variant::Default).path(), &[]);
    for _ in 0..30 {
        assert_eq!(fixture.ask("more"), "ok");
    }
    let other = Fixture::start(&Build::new("stack_spin.c").path(), &[]);
    let mut got = Value::Null;
    eventually("ticks should be seen", || {
        let mut command = Command::new("prlimit");
        command.args(["--nofile=24:24", env!("CARGO_BIN_EXE_tglass"), "profil", "--json", "-d", "300ms"]);
        command.arg(fixture.pid().to_string());
        let answer = Answer::of(command);
        if answer.stderr.contains("perf events") {
            skip(test, answer.stderr.trim());
            return true;
        }
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        got = answer.json();
        got["samples"].as_u64() > Some(20)
    });
    let strange = got["functions"].as_array().into_iter().flatten().filter(|f| f["name"] == "spin_inner");
    assert_eq!(strange.count(), 0, "{got:#}");
    drop(other);
}

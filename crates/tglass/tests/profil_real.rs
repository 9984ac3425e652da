//! `tglass profil` beside `perf record`, with programs of the distribution, and within limits.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use testkit::{
    Answer, Build, Capability, Fixture, Tool, Value, Variant, any_of, ensure, eventually, has_capability, have, skip,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// Ticks in each object, by `tglass profil`.
fn ticks(profile: &Value) -> HashMap<String, f64> {
    let mut ticks = HashMap::new();
    for function in profile["functions"].as_array().unwrap() {
        let module = function["module"].as_str().unwrap_or("-").to_owned();
        *ticks.entry(module).or_default() += function["samples"].as_f64().unwrap();
    }
    ticks
}

/// The same, by a recording of perf's of the same process.
fn ticks_by_perf(data: &Path, command: &str) -> HashMap<String, f64> {
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "-q", "-F", "sample,comm,dso", "-i"]).arg(data);
    let text = Answer::of(report).text();
    let line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [count, of, module] = words[..] else { return None };
        (of == command).then_some((module.to_owned(), count.parse().ok()?))
    };
    let user = |(module, _): &(String, f64)| !module.starts_with("[kernel");
    text.lines().filter_map(line).filter(user).collect()
}

/// Both tick for one run of one program, each at its own moments: their shares differ by chance alone.
#[test]
fn perf_record_says_the_same() {
    let test = "perf_record_says_the_same";
    if !have(test, "perf") || !have(test, "sort") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [input, out, data] = ["input", "profile", "perf.data"].map(|name| dir.path().join(name));
    let mut file = std::io::BufWriter::new(std::fs::File::create(&input).unwrap());
    for number in 0..1_000_000u64 {
        writeln!(file, "{}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap();
    }
    drop(file);
    let command = |data: &Path| {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-e", "cpu-clock:u", "-F", "4000", "-o"]).arg(data).arg("--");
        command.arg(env!("CARGO_BIN_EXE_tglass")).args(["profil", "--json", "-F", "4000", "-o"]).arg(&out);
        command.args(["--", "sort", "--parallel=1", "-o", "/dev/null"]).arg(&input);
        Answer::of(command)
    };
    let answer = tool().run(&["profil", "--", "true"]);
    if answer.stderr.contains("perf events are not permitted") {
        return skip(test, answer.stderr.trim());
    }
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-e", "cpu-clock:u", "-o"]).arg(&data).args(["--", "true"]);
    let answer = Answer::of(record);
    if answer.code != Some(0) {
        return skip(test, &format!("perf record does not work here: {}", answer.stderr.trim()));
    }
    // Where the host takes the CPUs away, ticks are missing, and there may be too few.
    any_of(5, || {
        let answer = command(&data);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        let profile: Value = testkit::serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
        let (ours, theirs) = (ticks(&profile), ticks_by_perf(&data, "sort"));
        let [all, all_theirs] = [&ours, &theirs].map(|ticks| ticks.values().sum::<f64>());
        ensure(all > 300.0 && all_theirs > 300.0, || format!("too few ticks: {ours:?} {theirs:?}"))?;
        for (module, count) in &theirs {
            let (our_share, share) = (ours.get(module).copied().unwrap_or(0.0) / all, count / all_theirs);
            let deviation = (share * (1.0 - share) * (1.0 / all + 1.0 / all_theirs)).sqrt();
            let margin = 5.0 * deviation + 0.01;
            ensure((our_share - share).abs() < margin, || {
                format!("{module}: {our_share} and {share}, more than {margin} apart\n{ours:?}\n{theirs:?}")
            })?;
        }
        Ok(())
    });
}

/// More threads than files may be open: one event for each CPU does it, where that is permitted, and only this
/// process is counted.
#[test]
fn more_threads_than_events() {
    let test = "more_threads_than_events";
    if !have(test, "prlimit") || !has_capability(test, Capability::Perfmon, "to sample whole CPUs") {
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

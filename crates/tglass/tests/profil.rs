//! `tglass profil`: what is said of programs that spend known parts of their time in known functions.
//!
//! Shares have wide margins, and numbers of ticks none at all: the machine belongs to others too. Where the host takes a CPU
//! away, time passes for who runs on it, and ticks are missing: what needs a number of ticks is tried again, and for longer.

mod profil_files;

use profil_files::{Pprof, folded};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::{
    Answer, Build, Capability, Fixture, Signal, Tool, Value, Variant, any_of, ensure, eventually, has_capability, have,
    json, part, signal, skip,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// Whether perf events are permitted here; counts a skip when not.
fn perf(test: &str) -> bool {
    let answer = tool().run(&["profil", "--", "true"]);
    let refused = answer.stderr.contains("perf events are not permitted");
    if refused {
        skip(test, answer.stderr.trim());
    }
    !refused
}

fn spin(variant: Variant) -> PathBuf {
    Build::new("profil_spin.c").variant(variant).path()
}

/// CPU time that a process (with all its threads) has used in user mode and the kernel, in ms.
fn cpu_ms(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |it| it.1).split(' ').collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 10
}

/// Waits until a process has used so much more CPU time.
fn let_run(pid: i32, ms: u64) {
    let before = cpu_ms(pid);
    eventually("the fixture should get a CPU", || cpu_ms(pid) >= before + ms);
}

/// The tool at work, ended if a test fails.
struct Running(Child);

impl Running {
    /// Starts it, and waits until its clock ticks.
    fn start(args: &[&str]) -> Self {
        let child = tool().command(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut running = Self(child.expect("the tool starts"));
        let fds = format!("/proc/{}/fd", running.0.id());
        eventually("perf events should be opened", || {
            assert_eq!(running.0.try_wait().expect("our child"), None, "the tool ended early");
            let links = std::fs::read_dir(&fds).into_iter().flatten().flatten();
            links.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|to| to.ends_with("anon_inode:[perf_event]"))
        });
        running
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn answer(mut self) -> Value {
        let mut text = String::new();
        std::io::Read::read_to_string(self.0.stdout.as_mut().expect("a pipe"), &mut text).expect("its output");
        let status = self.0.wait().expect("our child");
        assert_eq!(status.code(), Some(0), "{text}");
        testkit::serde_json::from_str(&text).unwrap_or_else(|error| panic!("not JSON: {error}\n{text}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn samples(profile: &Value, function: &str) -> u64 {
    let functions = profile["functions"].as_array().expect("functions");
    functions.iter().filter(|f| f["name"] == function).map(|f| f["samples"].as_u64().expect("a number")).sum()
}

fn all(profile: &Value) -> u64 {
    profile["samples"].as_u64().expect("a number")
}

/// Checks the three shares, as far as the number of ticks allows: each is right within five standard deviations, and what
/// the program does besides.
fn split(profile: &Value) -> Result<(), String> {
    let all = all(profile) as f64;
    ensure(all >= 100.0, || format!("{all} ticks are too few: {profile:#}"))?;
    let mut sum = 0.0;
    for (function, part) in [("seventy", 0.7), ("twenty", 0.2), ("ten", 0.1)] {
        let share = samples(profile, function) as f64 / all;
        let margin = 5.0 * (part * (1.0 - part) / all).sqrt() + 0.02;
        ensure((share - part).abs() < margin, || format!("{function} has {share}: {profile:#}"))?;
        sum += share;
    }
    ensure(sum > 0.9, || format!("the rest has {}: {profile:#}", 1.0 - sum))
}

/// A recording with so many ticks at least, of five tries that are each twice as long as the one before.
fn record_ticks(pid: i32, ticks: u64, options: &[&str]) -> Value {
    let mut ms = ticks;
    any_of(5, || {
        let profile = record(pid, ms, options);
        ms *= 2;
        ensure(all(&profile) >= ticks, || format!("{} ticks in {} ms", all(&profile), ms / 2))?;
        Ok(profile)
    })
}

/// A recording of a fixture that has run for a while.
fn record(pid: i32, ms: u64, options: &[&str]) -> Value {
    let pid_text = pid.to_string();
    let mut args = vec!["profil", pid_text.as_str(), "--json", "-d", "110s"];
    args.extend(options);
    let running = Running::start(&args);
    let_run(pid, ms);
    signal(running.pid(), Signal::SIGINT);
    running.answer()
}

/// Threads that wake each other all the time are not slowed down by clocks of their own, and the others' shares are
/// what they were.
#[test]
fn the_clock_of_threads_that_switch_often() {
    let test = "the_clock_of_threads_that_switch_often";
    if !perf(test) || !has_capability(test, Capability::Perfmon, "to let CPUs tick") {
        return;
    }
    let mut fixture = Fixture::start(&spin(Variant::Default), &[]);
    // Where the host takes the CPUs away for long, ticks are missing, and those of CPUs are rightly preferred.
    any_of(5, || {
        let clock = record(fixture.pid(), 300, &["-F", "250"])["clock"].clone();
        ensure(clock == "threads", || format!("it computes, and has a clock of {clock}"))
    });
    let cpus = std::thread::available_parallelism().expect("a number").get();
    for _ in 0..cpus.div_ceil(4) {
        assert_eq!(fixture.ask("turns"), "ok");
    }
    // On a busy machine they get the CPU seldom, and switch less often.
    any_of(5, || {
        let profile = record(fixture.pid(), 1500, &["-F", "250"]);
        ensure(profile["clock"] == "cpus", || format!("they switch often, and have a clock of {}", profile["clock"]))?;
        let ticks = ["seventy", "twenty", "ten"].map(|function| samples(&profile, function) as f64);
        let share = ticks[0] / ticks.iter().sum::<f64>();
        ensure((0.45..0.92).contains(&share) && ticks[1] > ticks[2], || format!("{profile:#}"))?;
        let functions = profile["functions"].as_array().expect("functions").iter();
        let mut names = functions.filter_map(|function| function["module"].as_str());
        assert!(names.all(|module| !module.contains("tglass")), "others do not count: {profile:#}");
        assert_eq!(samples(&profile, "later"), 0);
        Ok(())
    });
    // Threads that end before a clock of theirs could tick are seen too.
    assert_eq!(fixture.ask("brief"), "ok");
    any_of(5, || {
        let profile = record(fixture.pid(), 1500, &["-F", "250"]);
        ensure(samples(&profile, "later") > 0, || format!("{profile:#}"))
    });
    // Children are followed by what they inherit.
    assert_eq!(record(fixture.pid(), 300, &["-F", "250", "--children"])["clock"], "threads");
}

#[test]
fn shares_of_a_running_process() {
    if !perf("shares_of_a_running_process") {
        return;
    }
    for variant in [Variant::Default, Variant::NoPie] {
        let fixture = Fixture::start(&spin(variant), &[]);
        let profile = any_of(5, || {
            let profile = record(fixture.pid(), 400, &[]);
            split(&profile)?;
            // 400 ms of CPU time were there to be ticked in; a busy machine may take some of it into the kernel.
            ensure(all(&profile) > 150, || format!("{profile:#}"))?;
            Ok(profile)
        });
        assert_eq!(
            (&profile["schema"], &profile["end"], &profile["kind"]),
            (&json!("threadglass/1"), &json!("asked"), &json!("cpu"))
        );
        assert_eq!((&profile["rate"], &profile["threads"]), (&json!(997), &json!(1)));
        assert!(profile["lost"].is_u64() && profile["throttled"].is_u64(), "{profile:#}");
        assert!(profile["duration_ms"].as_u64().expect("a time") > 0);
        let first = &profile["functions"][0];
        assert_eq!(first["name"], "seventy");
        assert!(first["module"].as_str().expect("a module").contains("profil_spin"), "{profile:#}");
        // Hot code is one loop in each of the functions.
        let range = &profile["ranges"][0];
        assert_eq!(range["function"], "seventy");
        assert!(range["samples"].as_u64() > Some(samples(&profile, "seventy") / 2), "{profile:#}");
    }
}

#[test]
fn a_time_ends_it() {
    if !perf("a_time_ends_it") {
        return;
    }
    let fixture = Fixture::start(&spin(Variant::Default), &[]);
    let answer = tool().run(&["profil", &fixture.pid().to_string(), "-d", "200ms", "-F", "100"]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    assert!(answer.text().contains("100 samples per second of CPU time; "), "{}", answer.text());
    assert!(answer.text().contains("none lost, none throttled") && answer.stderr.is_empty(), "{answer:?}");
}

#[test]
fn threads_born_later_are_sampled_and_children_only_when_asked() {
    if !perf("threads_born_later_are_sampled_and_children_only_when_asked") {
        return;
    }
    for children in [false, true] {
        any_of(5, || born_later(children));
    }
}

fn born_later(children: bool) -> Result<(), String> {
    let mut fixture = Fixture::start(&spin(Variant::Default), &[]);
    let pid = fixture.pid().to_string();
    let mut args = vec!["profil", &pid, "--json", "-d", "110s"];
    args.extend(children.then_some("--children"));
    let running = Running::start(&args);
    // Only what is forked after all events are there is followed.
    let_run(fixture.pid(), 1000);
    assert_eq!(fixture.ask("more"), "ok");
    assert_eq!(fixture.ask("fork"), "ok");
    let_run(fixture.pid(), 400);
    let child = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("the kernel lists them");
    let_run(child.trim().parse().expect("one child"), 100);
    signal(running.pid(), Signal::SIGINT);
    let profile = running.answer();
    let [later, seventy, in_child] = ["later", "seventy", "in_child"].map(|function| samples(&profile, function));
    assert!(children || in_child == 0, "{profile:#}");
    ensure(later > 20 && seventy > 20 && (in_child > 0) == children, || format!("{profile:#}"))?;
    // The main thread may have been seen while it started them.
    assert!(profile["threads"].as_u64() >= Some(2 + u64::from(children)), "{profile:#}");
    Ok(())
}

#[test]
fn a_target_that_exits_or_executes_another_program() {
    if !perf("a_target_that_exits_or_executes_another_program") {
        return;
    }
    for (command, end) in [("exit", "exited"), ("exec", "execed")] {
        any_of(5, || {
            let mut fixture = Fixture::start(&spin(Variant::Default), &[]);
            let running = Running::start(&["profil", &fixture.pid().to_string(), "--json", "-d", "110s"]);
            let_run(fixture.pid(), 300);
            fixture.send(command);
            let profile = running.answer();
            assert_eq!(profile["end"], end, "{profile:#}");
            split(&profile)
        });
    }
}

#[test]
fn a_command_keeps_its_output_and_status() {
    if !perf("a_command_keeps_its_output_and_status") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (out, stacks) = (dir.path().join("profile.json"), dir.path().join("stacks"));
    let (out_text, stacks_text) = (out.to_str().unwrap(), stacks.to_str().unwrap());
    let program = spin(Variant::Default);
    let program = program.to_str().unwrap();
    any_of(5, || {
        let answer = tool().run(&["profil", "--json", "-o", out_text, "--folded", stacks_text, "--", program, "4000"]);
        assert_eq!((answer.code, answer.text().as_str(), answer.stderr.as_str()), (Some(7), "done\n", ""));
        let profile: Value = testkit::serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
        assert_eq!(profile["end"], "exited");
        split(&profile)
    });
    let folded = folded(&stacks);
    assert!(folded.keys().any(|stack| stack.ends_with(";main;middle;seventy")), "{folded:?}");

    // Without a file the profile goes to standard error.
    let answer = tool().run(&["profil", "--", program, "2000"]);
    assert_eq!((answer.code, answer.text().as_str()), (Some(7), "done\n"));
    assert!(answer.stderr.contains("seventy"), "{}", answer.stderr);
    // A program that a shell becomes is the one that is shown.
    let answer = tool().run(&["profil", "--", "sh", "-c", &format!("exec {program} 2000")]);
    assert!(answer.code == Some(7) && answer.stderr.contains("seventy"), "{}", answer.stderr);
    let answer = tool().run(&["profil", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(answer.code, Some(128 + 9), "{}", answer.stderr);
    let refused = tool().run(&["profil", "--", "/nonexistent/command"]);
    assert!(refused.assert_refused().contains("cannot start /nonexistent/command: No such file"), "{}", refused.stderr);
}

#[test]
fn files_agree_with_each_other() {
    if !perf("files_agree_with_each_other") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (hist, gmon, stacks, svg, pprof) = (path("hist"), path("gmon"), path("stacks"), path("svg"), path("pb.gz"));
    let files = ["--histogram", &hist, "--gmon", &gmon, "--folded", &stacks, "--svg", &svg, "--pprof", &pprof];
    let program = spin(Variant::Default);
    let fixture = Fixture::start(&program, &[]);
    let profile = any_of(5, || {
        let profile = record(fixture.pid(), 400, &files);
        split(&profile).map(|()| profile)
    });

    // Stacks: the right chain, and every tick once.
    let folded = folded(Path::new(&stacks));
    assert_eq!(folded.values().sum::<u64>(), all(&profile));
    let chain = |end: &str| folded.iter().filter(|(stack, _)| stack.ends_with(end)).map(|it| it.1).sum::<u64>();
    assert_eq!(chain(";work;middle;seventy"), samples(&profile, "seventy"), "{folded:?}");
    assert!(folded.keys().all(|stack| stack.starts_with("profil_spin")), "{folded:?}");

    // pprof: the same numbers.
    let decoded = Pprof::read(Path::new(&pprof));
    assert_eq!(
        decoded.types,
        [("samples", "count"), ("cpu", "nanoseconds")].map(|(a, b)| (a.to_owned(), b.to_owned()))
    );
    assert_eq!(decoded.samples.iter().map(|(_, values)| values[0]).sum::<u64>(), all(&profile));
    assert_eq!(decoded.period, 1_000_000_000 / 997);
    let hot = decoded.samples.iter().filter(|(names, _)| names.first().is_some_and(|name| name == "seventy"));
    let (count, time) = hot.fold((0, 0), |sum, (names, values)| {
        assert_eq!(names[1..3], ["middle", "work"]);
        (sum.0 + values[0], sum.1 + values[1])
    });
    assert_eq!((count, time), (samples(&profile, "seventy"), count * (1_000_000_000 / 997)));
    assert!(decoded.mappings.iter().any(|(_, path)| Path::new(path) == program), "{:?}", decoded.mappings);

    // The histogram: all ticks of the program, none more.
    let cells: Vec<u16> =
        std::fs::read(&hist).unwrap().chunks(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
    let functions = profile["functions"].as_array().unwrap();
    let own = functions.iter().filter(|f| f["module"].as_str().is_some_and(|name| name.contains("profil_spin")));
    let own: u64 = own.map(|f| f["samples"].as_u64().unwrap()).sum();
    assert_eq!(cells.iter().map(|cell| u64::from(*cell)).sum::<u64>(), own);

    let text = std::fs::read_to_string(&svg).unwrap();
    assert!(text.starts_with("<?xml") && text.trim_end().ends_with("</svg>"));
    assert!(text.contains(&format!("<title>seventy: {} samples", samples(&profile, "seventy"))));
    assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());

    if have(part("gmon.out, read by gprof"), "gprof") {
        let mut gprof = Command::new("gprof");
        gprof.args(["-b", "-p"]).arg(&program).arg(&gmon);
        let answer = Answer::of(gprof);
        let line = answer.text().lines().find(|line| line.trim_end().ends_with(" seventy")).map(str::to_owned);
        let seconds: f64 = line.unwrap().split_whitespace().nth(2).unwrap().parse().unwrap();
        let told = samples(&profile, "seventy") as f64 / 997.0;
        assert!((seconds - told).abs() < 0.02, "{seconds} {told}\n{}", answer.text());
    }
    // The tool itself, on its own or with Go.
    let mut tool = match std::env::var_os("PATH").is_some_and(|path| is_in(&path, "pprof")) {
        true => Command::new("pprof"),
        false if !have(part("the profile, read by pprof"), "go") => return,
        false => {
            let mut go = Command::new("go");
            go.args(["tool", "pprof"]);
            go
        }
    };
    tool.args(["-top", "-nodecount=10"]).arg(&pprof);
    let answer = Answer::of(tool);
    let line = answer.text().lines().find(|line| line.trim_end().ends_with(" seventy")).map(str::to_owned);
    let share: f64 = line.unwrap().split_whitespace().nth(1).unwrap().trim_end_matches('%').parse().unwrap();
    let told = 100.0 * samples(&profile, "seventy") as f64 / all(&profile) as f64;
    assert!((share - told).abs() < 0.1, "{share} {told}\n{}", answer.text());
}

fn is_in(path: &std::ffi::OsStr, program: &str) -> bool {
    std::env::split_paths(path).any(|dir| dir.join(program).is_file())
}

#[test]
fn a_region_at_every_scale() {
    if !perf("a_region_at_every_scale") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let hist = dir.path().join("hist");
    let program = spin(Variant::NoPie);
    let fixture = Fixture::start(&program, &[]);
    let mut nm = Command::new("nm");
    nm.arg("-S").arg(&program);
    let symbols = Answer::of(nm).text();
    let line = symbols.lines().find(|line| line.ends_with(" seventy")).expect("a symbol");
    let number = |index| u64::from_str_radix(line.split(' ').nth(index).unwrap(), 16).unwrap();
    let (start, size) = (number(0), number(1));
    for scale in [0x1_0000u64, 0xffff, 0x4000, 0x1000, 3, 2] {
        let scale_text = format!("{scale:#x}");
        let options = ["--function", "seventy", "--scale", &scale_text, "--histogram", hist.to_str().unwrap()];
        let profile = record_ticks(fixture.pid(), 60, &options);
        let cells = std::fs::read(&hist).unwrap();
        let cells: Vec<u64> = cells.chunks(2).map(|two| u64::from(u16::from_le_bytes([two[0], two[1]]))).collect();
        assert_eq!(cells.len() as u64, ((size * scale).div_ceil(0x1_0000)).div_ceil(2), "{scale:#x}");
        // The last cell may stand for more than the function, which begins and ends at a multiple of 16.
        let (counted, inside) = (cells.iter().sum::<u64>(), samples(&profile, "seventy"));
        assert!(counted == inside || (counted > inside && scale < 0x2000), "{scale:#x}: {cells:?} {profile:#}");
        assert_eq!(all(&profile), samples(&profile, "seventy") + profile["outside"].as_u64().unwrap());
        assert!(profile["outside"].as_u64() > Some(0) && samples(&profile, "twenty") == 0, "{profile:#}");
        // The hottest range lies in the hottest cells.
        let hottest = profile["ranges"][0]["from"].as_u64().unwrap() * scale / 0x2_0000;
        assert!(
            cells[hottest as usize] > 0 || cells.get(hottest as usize + 1).is_some_and(|cell| *cell > 0),
            "{cells:?}"
        );
    }
    // By address, and by object.
    let profile = record_ticks(fixture.pid(), 60, &["--offset", &format!("{start:#x}")]);
    assert!(samples(&profile, "seventy") > 0);
    let profile = record_ticks(fixture.pid(), 60, &["--module", program.file_name().unwrap().to_str().unwrap()]);
    assert!(samples(&profile, "seventy") > 0 && samples(&profile, "twenty") > 0);
}

/// Files of a histogram in which nothing fell, or of a region that never was: written with zeros, or named as missing.
#[test]
fn a_histogram_of_nothing_is_told() {
    if !perf("a_histogram_of_nothing_is_told") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (hist, gmon) = (path("hist"), path("gmon"));
    let program = spin(Variant::Default);
    let program = program.to_str().unwrap();
    let run = |options: &[&str]| {
        let mut args = vec!["profil", "--histogram", &hist, "--gmon", &gmon];
        args.extend(options);
        tool().run(&args)
    };
    for json in [&[][..], &["--json"]] {
        let told = run(&[&["--function", "nosuch"], json, &["--", program, "500"]].concat()).stderr;
        for file in [&hist, &gmon] {
            assert!(told.contains(file.as_str()) && told.contains("it was not written"), "{told}");
            assert!(!Path::new(file).exists());
        }
    }
    let fixture = Fixture::new("profil_wait.c").settled();
    let zeros = |told: &str| {
        assert!(told.contains("\nhistogram: ") && told.contains(" cells at scale 0x4000, 0 samples"), "{told}");
        let cells = std::fs::read(&hist).unwrap();
        assert!(!cells.is_empty() && cells.iter().all(|byte| *byte == 0));
        assert!(std::fs::read(&gmon).unwrap().starts_with(b"gmon"));
        for file in [&hist, &gmon] {
            std::fs::remove_file(file).unwrap();
        }
    };
    zeros(&run(&["--function", "later", "--", program, "500"]).stderr);
    // Nothing runs at all.
    zeros(&run(&[&fixture.pid().to_string(), "-d", "10ms"]).text());
}

#[test]
fn a_region_is_not_the_same_addresses_of_another_program() {
    if !perf("a_region_is_not_the_same_addresses_of_another_program") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (hist, out) = (dir.path().join("hist"), dir.path().join("profile.json"));
    let first = spin(Variant::NoPie);
    let second = dir.path().join("second");
    std::fs::copy(&first, &second).unwrap();
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    // Two programs with the same code at the same place, one after the other. The shell becomes the first of them.
    let script = format!("exec {first} 2000 {second} 3000");
    let mut args = vec!["profil", "--json", "-o", out.to_str().unwrap(), "--histogram", hist.to_str().unwrap()];
    args.extend(["--module", first.rsplit_once('/').unwrap().1, "--", "sh", "-c", &script]);
    any_of(5, || {
        let answer = tool().run(&args);
        assert_eq!(answer.code, Some(7), "{}", answer.stderr);
        let profile: Value = testkit::serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
        let functions = profile["functions"].as_array().unwrap();
        let of_second = functions.iter().filter(|function| function["module"].as_str() == Some("second")).count();
        assert_eq!(of_second, 0, "{profile:#}");
        let cells = std::fs::read(&hist).unwrap();
        let counted: u64 = cells.chunks(2).map(|two| u64::from(u16::from_le_bytes([two[0], two[1]]))).sum();
        assert_eq!(counted, all(&profile) - profile["outside"].as_u64().unwrap(), "{profile:#}");
        // More rounds of the second than of the first.
        let is_more = profile["outside"].as_u64() > Some(counted);
        ensure(samples(&profile, "seventy") > 0 && is_more, || format!("{profile:#}"))
    });
}

#[test]
fn waits_with_the_lock_and_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (stacks, svg, pprof) = (path("stacks"), path("svg"), path("pb.gz"));
    let fixture = Fixture::new("profil_wait.c").settled();
    let pid = fixture.pid().to_string();
    let files = ["--folded", &stacks, "--svg", &svg, "--pprof", &pprof];
    let mut args = vec!["profil", &pid, "--wait", "-d", "300ms", "--json"];
    args.extend(files);
    let profile = tool().run(&args).json();
    assert_eq!((&profile["kind"], &profile["threads"]), (&json!("wait"), &json!(5)));
    let looks = profile["looks"].as_u64().unwrap();
    assert!(looks > 0 && all(&profile) == 5 * looks, "{profile:#}");
    let wait = &profile["waits"][0];
    assert_eq!(
        (&wait["kind"], &wait["name"], &wait["function"]),
        (&json!("mutex"), &json!("left"), &json!("wants_left"))
    );
    assert_eq!((&wait["samples"], &wait["threads"], &wait["percent"]), (&json!(3 * looks), &json!(3.0), &json!(60.0)));
    assert!(wait["held_by"].as_str().unwrap().starts_with("holder (lwp "), "{wait:#}");
    let folded = folded(Path::new(&stacks));
    let waits = folded.iter().filter(|(stack, _)| {
        stack.contains(";want;wants_left;") && stack.contains(";[mutex left];[held by holder (lwp ")
    });
    assert_eq!(waits.map(|(_, count)| *count).sum::<u64>(), 3 * looks, "{folded:?}");
    assert!(std::fs::read_to_string(&svg).unwrap().contains("[mutex left]"));
    let decoded = Pprof::read(Path::new(&pprof));
    assert!(
        decoded
            .samples
            .iter()
            .any(|(names, _)| names[0].starts_with("[held by holder, lwp ") && names[1] == "[mutex left]")
    );
    let text = tool().run(&["profil", &pid, "--wait", "-d", "100ms"]).text();
    assert!(text.contains("mutex left") && text.contains("holder (lwp "), "{text}");
}

/// The agent through which a wait goes is not the place where the program waits.
#[test]
fn waits_through_the_agent() {
    let program = Build::new("profil_wait.c").path().display().to_string();
    let fixture = Fixture::command(tool().command(&["run", "--", &program])).settled();
    let pid = fixture.pid().to_string();
    let profile = tool().run(&["profil", &pid, "--wait", "-d", "300ms", "--json"]).json();
    let of = |list: &str, member: &str| -> Vec<String> {
        let list = profile[list].as_array().map_or(&[][..], Vec::as_slice);
        list.iter().filter_map(|one| Some(one[member].as_str()?.to_owned())).collect()
    };
    assert!(of("waits", "function").contains(&"wants_left".to_owned()), "{profile:#}");
    for name in of("waits", "function").iter().chain(&of("functions", "name")) {
        assert!(!name.contains("agent"), "{profile:#}");
    }
}

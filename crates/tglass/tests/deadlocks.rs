//! What `why` finds, against what the fixtures made happen.

use std::path::Path;
use testkit::scenes::DEADLOCKS;
use testkit::{
    Answer, Build, Dumpable, Fixture, Signal, Tool, Value, Variant, eventually, finding_faults, has_static_libc,
    is_hang, part, signal, task_state,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// Scenarios of `deadlocks.c`.
fn scenarios() -> impl Iterator<Item = &'static str> {
    DEADLOCKS.into_iter().chain(["crowd", "chain_running"])
}

fn why(target: &str) -> Answer {
    tool().run(&["why", target, "--json"])
}

/// Compares one look with the truth; what differs.
fn faults(context: &str, truth: &Value, answer: &Answer) -> Vec<String> {
    let snapshot = answer.json();
    let mut faults = finding_faults(truth, &snapshot);
    if answer.code.map(i64::from) != truth["exit"].as_i64() {
        faults.push(format!("exit status is to be {}, was {:?}: {}", truth["exit"], answer.code, answer.stderr));
    }
    if snapshot["pause_us"] != 0 {
        faults.push(format!("it was stopped for {} us", snapshot["pause_us"]));
    }
    faults.into_iter().map(|fault| format!("{context}: {fault}")).collect()
}

fn assert_found(context: &str, fixture: &Fixture) {
    // The target may be a child of the fixture's.
    let faults = faults(context, fixture.truth(), &why(&fixture.truth()["pid"].to_string()));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn start(file: &str, variant: Variant, args: &[&str]) -> Fixture {
    Fixture::start(&Build::new(file).variant(variant).path(), args).settled()
}

#[test]
fn every_scenario_alive() {
    let mut wrong = Vec::new();
    for scenario in scenarios() {
        let fixture = start("deadlocks.c", Variant::Default, &[scenario]);
        wrong.extend(faults(scenario, fixture.truth(), &why(&fixture.pid().to_string())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn without_symbols() {
    let scenarios = ["abba", "abba_heap", "philosophers", "self", "writers", "joins", "join_mutex", "owner_exited"];
    for scenario in scenarios.into_iter().chain(["heir_self", "heir_abba"]) {
        assert_found(scenario, &start("deadlocks.c", Variant::Stripped, &[scenario]));
    }
}

/// The conclusion may be weaker where libc is linked in, but no other one.
#[test]
fn in_static_programs() {
    if !has_static_libc("deadlocks::in_static_programs") {
        return;
    }
    for variant in [Variant::Static, Variant::StaticStripped] {
        for scenario in ["abba", "philosophers", "self", "owner_exited", "timed", "reader_behind_writer"] {
            let fixture = start("deadlocks.c", variant, &[scenario]);
            let answer = why(&fixture.pid().to_string());
            let mut truth = fixture.truth().clone();
            for finding in truth["findings"].as_array_mut().unwrap() {
                finding["needed"] = variant.has_symbols().into();
                if finding["certainty"][0] == "certain" {
                    finding["certainty"] = vec!["certain", "likely", "possible"].into();
                }
            }
            let certain = answer.json()["findings"]
                .as_array()
                .unwrap()
                .iter()
                .any(|finding| is_hang(finding) && finding["certainty"] == "certain");
            truth["exit"] = i64::from(certain).into();
            let faults = faults(&format!("{scenario}, {variant:?}"), &truth, &answer);
            assert!(faults.is_empty(), "{}", faults.join("\n"));
        }
    }
}

fn in_core(program: &Path, scenario: &str, by_kernel: bool) -> Vec<String> {
    let test = format!("deadlocks::cores {scenario}, {}", if by_kernel { "kernel" } else { "gcore" });
    let mut dumpable = Dumpable::start(program, &[scenario]);
    dumpable.fixture = dumpable.fixture.settled();
    let mut truth = dumpable.fixture.truth().clone();
    if scenario == "cond_alone" {
        // Which signals have handlers is not in a core, so this is not certain there.
        truth["exit"] = 0.into();
    }
    let core = if by_kernel { dumpable.kernel_core(part(&test)) } else { dumpable.gcore(part(&test)) };
    core.map_or_else(Vec::new, |core| faults(&test, &truth, &why(&core.name())))
}

#[test]
fn in_cores() {
    let program = Build::new("deadlocks.c").variant(Variant::Default).path();
    let mut wrong = Vec::new();
    // Who runs in a core is not known, nor is who was about to.
    for scenario in scenarios().filter(|name| *name != "chain_running") {
        wrong.extend(in_core(&program, scenario, true));
    }
    for scenario in ["abba", "joins", "owner_exited", "timed", "chain_read"] {
        wrong.extend(in_core(&program, scenario, false));
    }
    wrong.extend(in_core(&Build::new("deadlock_rust.rs").path(), "arc", true));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn in_other_languages() {
    for variant in [Variant::Default, Variant::Stripped] {
        assert_found(&format!("c++, {variant:?}"), &start("deadlock_cxx.cc", variant, &[]));
        assert_found(&format!("c++ statics, {variant:?}"), &start("deadlock_cxx.cc", variant, &["statics"]));
    }
    for place in ["static", "arc", "once"] {
        assert_found(&format!("rust, {place}"), &start("deadlock_rust.rs", Variant::Default, &[place]));
    }
}

#[test]
fn between_processes() {
    for scenario in ["abba", "held"] {
        let fixture = start("deadlock_forked.c", Variant::Default, &[scenario]);
        assert_found(scenario, &fixture);
        // Who holds it is told, with its process.
        let snapshot = tool().look("locks", &fixture.pid().to_string(), &["--all"]);
        let told = &fixture.truth()["objects"][1];
        let seen = snapshot["objects"].as_array().unwrap();
        let object = seen.iter().find(|object| object["address"] == told["address"]).unwrap();
        let (told, holder) = (&told["holders"][0], &object["holders"][0]);
        for field in ["lwp", "pid", "status"] {
            assert_eq!(holder[field], told[field], "{field}: {object:#}");
        }
    }
}

/// A process that has ended holds nothing, though its parent has not asked for its status yet.
#[test]
fn an_owner_that_is_a_zombie() {
    assert_found("ended", &start("deadlock_forked.c", Variant::Default, &["ended"]));
}

#[test]
fn after_a_fork() {
    for scenario in ["inherited", "own"] {
        let fixture = start("deadlock_forked.c", Variant::Default, &[scenario]);
        assert_found(scenario, &fixture);
        // The parent is well.
        let answer = why(&fixture.pid().to_string());
        assert_eq!(answer.code, Some(0), "{}", answer.text());
        let snapshot = answer.json();
        assert!(!snapshot["findings"].as_array().unwrap().iter().any(is_hang), "{snapshot:#}");
    }
}

/// A stopped program is told as one; what it would do next is not a hang.
#[test]
fn a_stopped_program() {
    let fixture = start("deadlocks.c", Variant::Default, &["chain_read"]);
    let pid = fixture.pid();
    signal(pid, Signal::SIGSTOP);
    eventually("all threads should stop", || {
        std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().all(|task| {
            let lwp = task.file_name().to_string_lossy().parse().unwrap();
            task_state(pid, lwp).is_some_and(|state| state.letter == 'T')
        })
    });
    let mut truth = fixture.truth().clone();
    truth["findings"][0]["words"] = vec!["stop"].into();
    let faults = faults("stopped", &truth, &why(&pid.to_string()));
    signal(pid, Signal::SIGCONT);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

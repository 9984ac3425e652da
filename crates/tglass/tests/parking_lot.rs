//! Locks of the `parking_lot` crate: who waits for them, and who holds them.

use std::path::PathBuf;
use testkit::{Build, Dumpable, Fixture, Tool, is_hang, lock_faults};

// Has the crate built beside this program.
use parking_lot as _;

const CIRCLES: [&str; 5] = ["mutexes", "rwlock", "written", "once", "reentrant"];

/// The fixture, built with the crate that this program is built with.
fn build(flags: &[&str]) -> PathBuf {
    Build::new("parking_lot.rs").with_crate("parking_lot").flags(flags).path()
}

fn check(flags: &[&str], may_miss: &[&str]) {
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    let program = build(flags);
    for mode in CIRCLES.into_iter().chain(["locks"]) {
        let fixture = Fixture::start(&program, &[mode]).settled();
        let faults = lock_faults(&tool, &fixture.pid().to_string(), fixture.truth(), may_miss.contains(&mode));
        assert!(faults.is_empty(), "{flags:?} {mode}: {faults:#?}");
    }
}

#[test]
fn optimised() {
    check(&["-Copt-level=2"], &[]);
}

#[test]
fn not_optimised() {
    // What a guard of a reentrant mutex does takes more calls than are followed.
    check(&["-Copt-level=0"], &["reentrant", "locks"]);
}

#[test]
fn without_symbols() {
    check(&["-Copt-level=3", "-Cstrip=symbols"], &[]);
}

/// A reader that waits for another one, which goes on, is in no circle.
#[test]
fn one_of_two_readers_may_write() {
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    for flags in [&["-Copt-level=0"][..], &["-Copt-level=2"]] {
        let fixture = Fixture::start(&build(flags), &["upgradable"]).settled();
        let target = fixture.pid().to_string();
        let faults = lock_faults(&tool, &target, fixture.truth(), false);
        assert!(faults.is_empty(), "{flags:?}: {faults:#?}");
        let why = tool.run(&["why", &target, "--json"]).json();
        assert!(!why["findings"].as_array().expect("findings").iter().any(is_hang), "{flags:?}: {:#}", why["findings"]);
    }
}

#[test]
fn in_a_core() {
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    for flags in [&["-Copt-level=2"][..], &["-Copt-level=3", "-Cstrip=symbols"]] {
        let program = build(flags);
        for mode in ["locks", "rwlock", "written"] {
            let dumped = Dumpable::start(&program, &[mode]);
            let truth = dumped.fixture.truth().clone();
            let Some(core) = dumped.gcore("in_a_core") else { return };
            let faults = lock_faults(&tool, &core.name(), &truth, false);
            assert!(faults.is_empty(), "{flags:?} {mode}: {faults:#?}");
        }
    }
}

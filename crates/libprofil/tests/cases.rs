//! `profil()` and `pcsample()` from C, in programs that spin at known addresses, with both clocks.

mod common;

use common::{case, fixture, have_perf, library_dir};
use std::process::Command;
use testkit::{Answer, NOBODY, Public, Variant, any_of, as_user, ensure, have, is_root, part};

fn program() -> Command {
    Command::new(fixture("profil_cases.c", Variant::Default))
}

/// Runs a case with each clock.
fn both(name: &str) {
    let clock = |clock: &str| {
        let mut command = program();
        command.env("PROFIL_CLOCK", clock);
        case(command, name)
    };
    clock("timers");
    if have_perf(part("the clock of perf")) {
        clock("perf");
    }
}

/// The same of a case that compares ticks with time: where the host takes a CPU away, ticks are missing. Of five tries one is
/// undisturbed.
fn both_by_ticks(name: &str) {
    let clock = |clock: &str| {
        any_of(5, || {
            let mut command = program();
            command.env("PROFIL_CLOCK", clock).env("PROFIL_HZ", "1000").arg(name);
            let answer = Answer::of(command);
            ensure(answer.code == Some(0), || format!("{clock}: {}", answer.stderr))
        });
    };
    clock("timers");
    if have_perf(part("the clock of perf")) {
        clock("perf");
    }
}

#[test]
fn every_tick_is_in_the_cell_that_the_scale_says() {
    both("scales");
}

#[test]
fn off_is_off() {
    both("off");
}

#[test]
fn odd_buffers_sizes_and_offsets() {
    both("odd");
}

#[test]
fn a_fault_ends_it_and_the_program_lives() {
    both("faults");
}

#[test]
fn the_largest_count_ends_it() {
    both("saturation");
}

#[test]
fn threads_from_before_and_later() {
    both("threads");
}

/// What the pages say of threads that live for less than a period.
#[test]
fn threads_that_are_too_short_for_a_tick() {
    // Ticks are missing where the host takes a CPU away: of five tries one is undisturbed.
    let run = |clock: &str| {
        any_of(5, || {
            let mut command = program();
            command.env("PROFIL_CLOCK", clock).env("PROFIL_HZ", "100").arg("brief");
            let answer = Answer::of(command);
            ensure(answer.code == Some(0), || format!("{clock}: {}", answer.stderr))
        });
    };
    run("timers");
    if have_perf(part("the clock of perf")) {
        run("perf");
    }
    both_by_ticks("brief_and_fast");
}

#[test]
fn threads_that_come_and_go_are_not_counted_twice() {
    both_by_ticks("churn");
}

#[test]
fn goes_on_in_parent_and_child() {
    both("forks");
}

#[test]
fn forks_of_many_threads() {
    both("fork_storm");
}

#[test]
fn forks_of_threads_that_end() {
    both("late_forks");
}

#[test]
fn forks_that_libc_knows_nothing_of() {
    both("raw_fork");
}

#[test]
fn ends_at_exec_and_does_not_harm_the_new_program() {
    both("execs");
}

#[test]
fn the_programs_own_profiling_timer_works_on() {
    both("sigprof");
}

#[test]
fn no_file_of_the_program_is_used() {
    both("files");
}

#[test]
fn pcsample_stores_and_shares() {
    both("samples");
}

#[test]
fn does_not_keep_a_process_alive() {
    both("main_exits");
}

#[test]
fn stands_still_and_goes_on() {
    both("control");
}

#[test]
fn without_perf_there_are_timers() {
    case(program(), "no_perf");
}

#[test]
fn without_process_vm_writev_there_is_a_pipe() {
    if have_perf("without_process_vm_writev_there_is_a_pipe") {
        case(program(), "no_writev");
    }
}

#[test]
fn with_no_clock_there_is_an_error() {
    case(program(), "nothing");
}

#[test]
fn the_rate_is_what_was_asked_for() {
    let test = "the_rate_is_what_was_asked_for";
    if !have_perf(test) {
        return;
    }
    let show = |hz: &str| {
        let mut command = program();
        command.arg("show").env("PROFIL_HZ", hz);
        let text = Answer::of(command).text();
        let words: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [clock, rate, achieved, ticks, _lost] = words[..] else { panic!("{text}") };
        assert_eq!(clock, 1.0, "{text}");
        (rate, achieved, ticks)
    };
    // Margins are wide: the kernel's own bookkeeping of user time is by its clock's ticks.
    for (asked, rate) in [("100", 100.0), ("1000", 1000.0), ("5000", 5000.0)] {
        // Ticks are missing where the host takes a CPU away: of five tries one is undisturbed.
        any_of(5, || {
            let (told, achieved, ticks) = show(asked);
            assert_eq!(told, rate);
            ensure((0.8 * rate..1.25 * rate).contains(&achieved), || format!("{asked}: {achieved}"))?;
            ensure(ticks > 0.7 * rate, || format!("{asked}: {ticks}"))
        });
    }
    // What makes no sense is not taken.
    for asked in ["0", "10001", "-5", "", "many"] {
        assert_eq!(show(asked).0, 100.0, "{asked}");
    }
}

#[test]
fn works_for_users_without_privileges() {
    let test = "works_for_users_without_privileges";
    if !is_root(test, "to run as another user") || !have(test, "setpriv") {
        return;
    }
    let public = Public::new();
    let copy = public.copy(&fixture("profil_cases.c", Variant::Default), "profil_cases");
    public.copy(&library_dir().join("libprofil.so"), "libprofil.so");
    for name in ["scales", "threads", "forks", "faults", "samples"] {
        // Where they may not use perf, they get timers.
        let mut command = as_user(NOBODY, &copy);
        command.env("LD_LIBRARY_PATH", public.path());
        case(command, name);
    }
}

//! The headers: they compile as C11 and C++17, and agree with the system's where both have something.

mod common;

use common::{Source, include, run};
use testkit::{Fixture, have};

const PAGES: [&str; 4] = [
    "synopsis_td_ta_enable_stats.c",
    "synopsis_td_sync_get_info.c",
    "synopsis_td_thr_get_info.c",
    "synopsis_td_ta_sync_iter.c",
];

fn with_our_headers(source: Source) -> Source {
    source.flags(&["-I", &include().display().to_string()])
}

#[test]
fn every_number_and_layout_as_c() {
    for standard in ["-std=c11", "-std=gnu11", "-std=gnu17"] {
        with_our_headers(Source::new("layout.c")).flags(&[standard, "-pedantic"]).check();
    }
}

#[test]
fn every_number_and_layout_as_cxx() {
    if have("every_number_and_layout_as_cxx", "c++") {
        for standard in ["-std=c++17", "-std=gnu++20"] {
            with_our_headers(Source::new("layout.cc")).flags(&[standard, "-pedantic"]).check();
        }
    }
}

#[test]
fn the_same_as_the_systems_header() {
    let system = Source::new("layout_system.c").build();
    let ours = with_our_headers(Source::new("layout_ours.c")).build();
    let (system, ours) = (run(&system, &[]), run(&ours, &[]));
    assert!(system.lines().count() > 100, "the list is short: {system}");
    for (system, ours) in system.lines().zip(ours.lines()) {
        assert_eq!(system, ours, "the system's header (left) and ours (right)");
    }
    assert_eq!(system.lines().count(), ours.lines().count());
}

/// An address in the process that can be written.
fn writable(pid: i32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its mappings");
    let line = maps.lines().find(|line| line.contains(" rw-p ")).expect("data");
    u64::from_str_radix(line.split('-').next().unwrap_or_default(), 16).expect("an address")
}

/// One program per manual page of the seed, built as a user would, in both languages.
#[test]
fn a_program_per_manual_page() {
    let fixture = Fixture::new("threads_truth.c").settled();
    let pid = fixture.pid().to_string();
    let object = format!("{:#x}", writable(fixture.pid()));
    for page in PAGES {
        let program = Source::new(page).with_libc_db().build();
        let mut command = std::process::Command::new(&program);
        command.arg(&pid);
        match page {
            "synopsis_td_ta_enable_stats.c" => command.arg("1"), // the seconds to watch
            "synopsis_td_sync_get_info.c" => command.arg(&object),
            _ => &mut command,
        };
        let answer = testkit::Answer::of(command);
        assert_eq!(answer.code, Some(0), "{page}: {}", answer.stderr);
        if page == "synopsis_td_ta_enable_stats.c" {
            let lwps = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").count();
            let lwps = format!("LWPs      {lwps}.00");
            assert!(answer.text().lines().any(|line| line == lwps), "no {lwps}:\n{}", answer.text());
        }
        if page == "synopsis_td_thr_get_info.c" {
            let seen = answer.text().lines().filter(|line| line.starts_with("thread 0x")).count();
            assert_eq!(seen, testkit::threads(fixture.truth()).len(), "{}", answer.text());
        }
    }
}

#[test]
fn pages_compile_as_strict_c() {
    for page in PAGES {
        with_our_headers(Source::new(page)).flags(&["-std=c11", "-D_DEFAULT_SOURCE"]).check();
    }
}

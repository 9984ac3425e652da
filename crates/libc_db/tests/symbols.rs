//! What the library exports, imports and is called.

mod common;

use common::{include, library};
use std::collections::BTreeSet;
use std::process::Command;
use testkit::{Answer, have};

fn output(program: &str, args: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(args).arg(library());
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    answer.text()
}

/// The functions that `thread_db.h` declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(include().join("thread_db.h")).expect("the header");
    let name = |line: &str| {
        let before = line.strip_prefix("extern ")?.split_once('(')?.0;
        Some(before.rsplit([' ', '*']).next()?.to_owned())
    };
    header.lines().filter_map(name).filter(|name| name.starts_with("td_") || name.starts_with("tg_")).collect()
}

#[test]
fn exports_are_the_headers_functions() {
    if !have("exports_are_the_headers_functions", "nm") {
        return;
    }
    let nm = output("nm", &["-D", "--defined-only"]);
    let exported: BTreeSet<_> =
        nm.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect();
    let declared = declared();
    // 47 of Solaris, two of glibc, five of ours.
    assert_eq!(declared.len(), 54, "{declared:?}");
    assert_eq!(exported, declared, "exported (left) and declared (right)");
}

#[test]
fn clients_routines_are_weak_imports() {
    if !have("clients_routines_are_weak_imports", "nm") {
        return;
    }
    let nm = output("nm", &["-D", "--undefined-only"]);
    let ours = |name: &str| ["ps_", "td_", "tg_"].iter().any(|start| name.starts_with(start));
    let imports: Vec<_> = nm.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    let routines: Vec<_> = imports.iter().filter(|line| line.last().is_some_and(|name| ours(name))).collect();
    assert!(routines.len() >= 9, "{nm}");
    for routine in routines {
        assert_eq!(routine[0], "w", "{routine:?} would make gdb refuse the library");
    }
}

#[test]
fn every_declared_routine_has_a_comment_that_holds() {
    // The header says which routines are looked up; the imports must be those.
    let header = std::fs::read_to_string(include().join("proc_service.h")).expect("the header");
    let nm = output("nm", &["-D", "--undefined-only"]);
    let unused = ["ps_pread", "ps_pwrite", "ps_ptread", "ps_ptwrite", "ps_kill", "ps_lrolltoaddr"];
    let imported: BTreeSet<_> =
        nm.split_whitespace().filter(|word| word.starts_with("ps_")).map(str::to_owned).collect();
    for name in &imported {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
        assert!(!unused.contains(&name.as_str()), "the header calls {name} unused");
    }
}

#[test]
fn it_has_a_soname_and_stays_loaded() {
    if !have("it_has_a_soname_and_stays_loaded", "readelf") {
        return;
    }
    let dynamic = output("readelf", &["-d", "-W"]);
    assert!(dynamic.contains("Library soname: [libc_db.so]"), "{dynamic}");
    let flags = dynamic.lines().find(|line| line.contains("FLAGS_1")).unwrap_or_default();
    assert!(flags.contains("NODELETE"), "{dynamic}");
    // Nothing but the system's own libraries is needed to load it.
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let known = ["libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"];
        assert!(known.iter().any(|name| line.contains(name)), "{line}");
    }
}

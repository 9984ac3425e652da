//! A program that is busy with its locks, looked at again and again: nothing in it ever hangs.

use std::collections::BTreeSet;
use std::time::Duration;
use testkit::{Build, Fixture, Tool, Variant, have, is_hang};
use threadglass::look::{Names, Scope};
use threadglass::model::{Certainty, Evidence, Finding, FindingKind, HolderStatus, Snapshot, SyncKind, VerdictKind};
use threadglass::target::Live;
use threadglass::{Pid, look};

/// Looks that a test takes; `make soak` takes thousands.
fn looks(usual: usize) -> usize {
    std::env::var("TG_LOOKS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

fn tasks(pid: i32) -> BTreeSet<i32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the fixture lives");
    entries.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect()
}

fn start(args: &[&str]) -> Fixture {
    Fixture::start(&Build::new("busy_locks.c").variant(Variant::Default).path(), args)
}

/// The same program on musl, as a part of it or beside it.
fn start_on_musl(variant: Variant, args: &[&str]) -> Fixture {
    Fixture::start(&Build::new("busy_locks.c").musl().variant(variant).path(), args)
}

/// Looks again and again. What is certain is never wrong, and what is likely at most once in a thousand looks. `each` checks more
/// of every snapshot, and counts what it has checked.
fn look_often(mut fixture: Fixture, looks: usize, mut each: impl FnMut(&BTreeSet<i32>, &Snapshot) -> usize) {
    let lasting = tasks(fixture.pid());
    let live = Live::open(Pid(fixture.pid())).unwrap();
    let (mut waiters, mut checked, mut rounds, mut alarms) = (0, 0, 0, 0);
    let mut look = 0;
    // Looks that see nothing prove nothing: where the fixture gets no CPU there are more of them, five times as many at most.
    while look < looks || look < 5 * looks && (waiters <= look || checked <= look / 10) {
        let snapshot = look::look(&live, Scope::Waited, Names::Findings).unwrap();
        for finding in snapshot.findings.iter().filter(|finding| finding.kind.is_hang()) {
            let what = || format!("look {look}: {finding:?}\n{:#?}", snapshot.objects);
            assert!(finding.certainty != Certainty::Certain, "{}", what());
            if finding.certainty == Certainty::Likely {
                eprintln!("look {look} is wrong: {}", finding.text);
                alarms += 1;
            }
            assert!(alarms <= looks / 1000, "{alarms} are wrong, the last in {}", what());
        }
        waiters += snapshot.objects.iter().map(|object| object.waiters.len()).sum::<usize>();
        checked += each(&lasting, &snapshot);
        if look % 100 == 0 {
            fixture.goes_on(&mut rounds);
        }
        look += 1;
    }
    assert!(waiters > look && checked > look / 10, "{waiters} waiters, {checked} checked in {look} looks");
    eprintln!("{look} looks, {waiters} waiters, {alarms} wrong");
}

/// Threads come and go here, and each has just held what others wait for.
#[test]
fn a_busy_program_does_not_hang() {
    look_often(start(&[]), looks(300), |_, snapshot| snapshot.objects.len());
}

/// No thread comes or goes here, so who holds something is there.
#[test]
fn holders_are_threads() {
    look_often(start(&["steady"]), looks(300), asserted_holders);
}

/// The same on musl, which records the owner of some mutexes only.
#[test]
fn a_busy_program_on_musl_does_not_hang() {
    if !have("a_busy_program_on_musl_does_not_hang", "musl-gcc") {
        return;
    }
    look_often(start_on_musl(Variant::Default, &[]), looks(150), |_, snapshot| snapshot.objects.len());
    look_often(start_on_musl(Variant::StaticStripped, &["steady"]), looks(150), asserted_holders);
}

/// Checks the holders that are more than inferred: how many there are.
fn asserted_holders(lasting: &BTreeSet<i32>, snapshot: &Snapshot) -> usize {
    let mut checked = 0;
    for object in &snapshot.objects {
        let asserted: Vec<_> = (object.holders.iter())
            .filter(|holder| matches!(holder.evidence, Evidence::Recorded | Evidence::Derived))
            .collect();
        for holder in &asserted {
            assert_eq!(holder.status, HolderStatus::Alive, "{object:#?}");
            assert!(holder.lwp.is_some_and(|lwp| lasting.contains(&lwp.0)), "{object:#?}");
            checked += 1;
        }
        assert!(object.kind != SyncKind::Mutex || asserted.len() <= 1, "{object:#?}");
    }
    checked
}

/// Whether a finding says what cannot be so: that a thread which others wait for waits itself for what it holds.
fn is_absurd(finding: &Finding, snapshot: &Snapshot) -> bool {
    let root = finding.threads.last().filter(|_| finding.kind == FindingKind::LongChain);
    let root = snapshot.threads.iter().find(|thread| thread.lwp.as_ref() == root);
    let waits = root.and_then(|root| root.waits_for.as_ref());
    waits.is_some_and(|waits| finding.objects.contains(&waits.address)) || finding.text.contains("futex")
}

/// What single looks say of two programs in which nothing hangs.
#[test]
fn single_looks_give_no_false_verdict() {
    for args in [&[][..], &["steady"]] {
        single_looks(&start(args), looks(200) / 2);
    }
}

#[test]
fn single_looks_at_musl_give_no_false_verdict() {
    if !have("single_looks_at_musl_give_no_false_verdict", "musl-gcc") {
        return;
    }
    single_looks(&start_on_musl(Variant::Static, &[]), looks(100) / 2);
    single_looks(&start_on_musl(Variant::StaticStripped, &["steady"]), looks(100) / 2);
}

/// Looks at a program in which nothing hangs.
fn single_looks(fixture: &Fixture, looks: usize) {
    let live = Live::open(Pid(fixture.pid())).unwrap();
    let (mut likely, mut kinds) = (0, BTreeSet::new());
    for look in 0..looks {
        let snapshot = look::explain_for(&live, Duration::ZERO).unwrap();
        let verdict = snapshot.verdict.as_ref().expect("an answer");
        let is_alarm = matches!(verdict.kind, VerdictKind::Deadlock | VerdictKind::NobodyLeft);
        let absurd = snapshot.findings.iter().find(|finding| is_absurd(finding, &snapshot));
        let root =
            absurd.and_then(|it| snapshot.threads.iter().find(|thread| thread.lwp.as_ref() == it.threads.last()));
        assert!(absurd.is_none(), "look {look}: {absurd:?} {root:?}");
        assert!(!is_alarm || verdict.certainty != Certainty::Certain, "look {look}: {verdict:?}");
        likely += usize::from(is_alarm && verdict.certainty == Certainty::Likely);
        kinds.insert(verdict.kind);
    }
    assert!(likely <= looks / 1000, "{likely} of {looks} looks gave a false alarm");
    // Looks at a program that never waits, or never runs, prove nothing.
    assert!(kinds.contains(&VerdictKind::Behind) || kinds.contains(&VerdictKind::Busy), "{kinds:?}");
    eprintln!("{looks} single looks: {likely} likely, {kinds:?}");
}

#[test]
fn the_command_is_calm_too() {
    let fixture = start(&[]);
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    for _ in 0..50 {
        let answer = tool.run(&["why", &fixture.pid().to_string(), "--json"]);
        assert_eq!(answer.code, Some(0), "{}{}", answer.text(), answer.stderr);
        let snapshot = answer.json();
        let findings = snapshot["findings"].as_array().unwrap();
        let alarm = findings.iter().find(|finding| is_hang(finding) && finding["certainty"] != "possible");
        assert!(alarm.is_none(), "{alarm:#?}");
    }
}

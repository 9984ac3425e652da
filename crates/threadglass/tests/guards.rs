//! Holders of locks that record none: the fixtures know the truth.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use testkit::{Build, Fixture, address, wait_asleep};
use threadglass::internals::{
    RestingThread, Space, Suspect, SyscallFile, WantedLock, follow_bytes, landing_pad, suspects,
};
use threadglass::look::{Look, Names, Scope, look};
use threadglass::model::{Family, SyncKind};
use threadglass::target::{Bytes, KernelFacts, Live};
use threadglass::{Lwp, Pid, RemoteAddr};

/// Who holds what, by a fixture's own account: by lock, and thread.
struct Truth {
    wanted: Vec<WantedLock>,
    waits: HashMap<i32, u64>,
    /// What each thread does with each lock, and whether it holds it.
    roles: BTreeMap<(u64, i32), (String, bool)>,
}

impl Truth {
    fn of(fixture: &Fixture) -> Self {
        let mut truth = Self { wanted: Vec::new(), waits: HashMap::new(), roles: BTreeMap::new() };
        for word in fixture.truth().as_array().expect("a list") {
            let (lock, tid) = (address(&word["lock"]), word["tid"].as_i64().unwrap() as i32);
            let text = |key: &str| word[key].as_str().unwrap().to_owned();
            let rust = text("family") == "rust";
            let (kind, size) = match text("kind").as_str() {
                "mutex" => (SyncKind::Mutex, 4),
                "rwlock" => (SyncKind::Rwlock, if rust { 8 } else { 56 }),
                "semaphore" => (SyncKind::Semaphore, 32),
                other => panic!("{other}"),
            };
            let family = if rust { Family::RustStd } else { Family::Pthread };
            if truth.wanted.iter().all(|wanted| wanted.address.0 != lock) {
                truth.wanted.push(WantedLock { address: RemoteAddr(lock), size, kind, family });
            }
            if address(&word["waits"]) != 0 {
                truth.waits.insert(tid, address(&word["waits"]));
            }
            truth.roles.insert((lock, tid), (text("what"), word["holds"].as_bool().unwrap()));
        }
        truth
    }
}

fn resting(live: &Live, pid: i32, truth: &Truth) -> Vec<RestingThread> {
    let lwps = live.lwps().unwrap();
    for lwp in &lwps {
        wait_asleep(pid, lwp.0);
    }
    let snapshot = look(live, Scope::Threads, Names::None).unwrap();
    let at_rest = |lwp: &Lwp| {
        let thread = snapshot.threads.iter().find(|thread| thread.lwp == Some(*lwp));
        let call = live.wait_call(*lwp)?;
        let (sp, pc) = call.registers()?;
        let futex = match call {
            SyscallFile::Inside { number: 202, args, .. } => Some(RemoteAddr(args[0])),
            _ => None,
        };
        let waits_on = truth.waits.get(&lwp.0).map(|addr| RemoteAddr(*addr));
        Some(RestingThread {
            lwp: *lwp,
            sp,
            pc,
            stack_base: None,
            start: thread.and_then(|thread| thread.start),
            waits_on,
            futex,
        })
    };
    lwps.iter().filter_map(at_rest).collect()
}

/// How a fixture's locks came out: by what threads do with them, how many were found of how many.
#[derive(Default)]
struct Score {
    found: BTreeMap<String, (usize, usize)>,
    wrong: Vec<String>,
    missed: Vec<String>,
}

fn score(program: &str, flags: &[&str]) -> Score {
    let fixture = Fixture::start(&Build::new(program).flags(flags).path(), &[]).settled();
    let truth = Truth::of(&fixture);
    let live = Live::open(Pid(fixture.pid())).unwrap();
    let resting = resting(&live, fixture.pid(), &truth);
    let found: Vec<Suspect> = suspects(&Look::new(&live), &truth.wanted, &resting);
    let named: BTreeSet<(u64, i32)> = found.iter().map(|suspect| (suspect.object.0, suspect.lwp.0)).collect();
    let mut score = Score::default();
    for ((lock, tid), (what, holds)) in &truth.roles {
        if *holds {
            let entry = score.found.entry(what.clone()).or_default();
            entry.1 += 1;
            entry.0 += usize::from(named.contains(&(*lock, *tid)));
            if !named.contains(&(*lock, *tid)) {
                score.missed.push(format!("{what} {lock:#x} by {tid}"));
            }
        }
    }
    for suspect in &found {
        let role = truth.roles.get(&(suspect.object.0, suspect.lwp.0));
        if role.is_none_or(|(_, holds)| !holds) {
            score.wrong.push(format!("{role:?} {suspect:?}"));
        }
    }
    if std::env::var_os("GUARDS_SHOW").is_some() {
        println!("== {program} {flags:?}");
        println!("   {:?}", score.found);
        for suspect in &found {
            println!("   {:?} {suspect:?}", truth.roles.get(&(suspect.object.0, suspect.lwp.0)));
        }
        for missed in &score.missed {
            println!("   missed {missed}");
        }
        for wrong in &score.wrong {
            println!("   WRONG {wrong}");
        }
    }
    score
}

/// Checks that nobody is named who holds nothing, and that all are found but those that may be missed.
fn check(program: &str, flags: &[&str], may_miss: &[&str]) {
    let score = score(program, flags);
    assert!(score.wrong.is_empty(), "{program} {flags:?}: {:#?}", score.wrong);
    let missed: Vec<_> = score.missed.iter().filter(|what| !may_miss.iter().any(|may| what.starts_with(may))).collect();
    assert!(missed.is_empty(), "{program} {flags:?}: {missed:#?}");
    assert!(!score.found.is_empty(), "{program} has locks that are held");
}

#[test]
fn rust() {
    for flags in [
        &["-Copt-level=0"][..],
        &["-Copt-level=2"],
        &["-Copt-level=3", "-Cstrip=symbols"],
        &["-Copt-level=s", "-Cpanic=abort"],
        &["-Copt-level=2", "-Crelocation-model=static", "-Cstrip=symbols"],
    ] {
        // Without landing pads only what is written after the call tells of a guard.
        let may_miss: &[&str] = if flags.contains(&"-Cpanic=abort") { &["chain"] } else { &[] };
        check("guard_rust.rs", flags, may_miss);
    }
}

/// With musl inside, and its functions among those of the program.
#[test]
fn rust_on_musl() {
    if !testkit::has_rust_on_musl("rust_on_musl") {
        return;
    }
    for flags in [
        &["-Copt-level=0"][..],
        &["-Copt-level=2"],
        &["-Copt-level=3", "-Cstrip=symbols"],
        &["-Copt-level=2", "-Crelocation-model=static", "-Cstrip=symbols"],
    ] {
        let flags: Vec<&str> = ["--target", testkit::RUST_ON_MUSL].iter().chain(flags).copied().collect();
        check("guard_rust.rs", &flags, &[]);
    }
}

#[test]
fn c() {
    for flags in [
        &["-O0"][..],
        &["-O2", "-fPIE", "-pie"],
        &["-O2", "-fno-pie", "-no-pie", "-s"],
        &["-O2", "-Wl,-z,now"],
        &["-O3", "-s"],
    ] {
        check("guard_c.c", flags, &[]);
    }
    // With libc linked in, nothing names what takes and releases.
    if testkit::has_static_libc(testkit::part("static programs")) {
        for flags in [&["-O2", "-static"][..], &["-O2", "-static", "-s"]] {
            check("guard_c.c", flags, &["again", "read-member"]);
        }
    }
}

/// What only the way to where a thread stands tells.
#[test]
fn taken_on_the_way() {
    for flags in [&["-O0"][..], &["-O1"], &["-O2"], &["-O2", "-fno-pie", "-no-pie", "-s"], &["-O3", "-s"]] {
        check("guard_taken.c", flags, &[]);
    }
}

#[test]
fn cxx() {
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-fno-pie", "-no-pie", "-s"], &["-O3", "-fno-exceptions"]] {
        // Without position independence, registers that nobody saves hold more of what is needed.
        let may_miss: &[&str] = if flags.contains(&"-no-pie") { &["static", "by-hand"] } else { &[] };
        check("guard_cxx.cc", &[&["-std=c++17"], flags].concat(), may_miss);
    }
}

#[test]
fn many_threads_for_few_locks() {
    let fixture = Fixture::start(&Build::new("guard_many.rs").path(), &["1000"]).settled();
    let truth = Truth::of(&fixture);
    let live = Live::open(Pid(fixture.pid())).unwrap();
    let resting = resting(&live, fixture.pid(), &truth);
    let begin = std::time::Instant::now();
    let found = suspects(&Look::new(&live), &truth.wanted, &resting);
    println!("{} threads: {:?}", resting.len(), begin.elapsed());
    let named: BTreeSet<_> = found.iter().map(|suspect| (suspect.object.0, suspect.lwp.0)).collect();
    let holders = truth.roles.iter().filter(|(_, (_, holds))| *holds).map(|(key, _)| *key);
    assert_eq!(named, holders.collect());
}

proptest! {
    #[test]
    fn tables_of_landing_pads_that_lie(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        head in prop::sample::select(vec![vec![], vec![0xff, 0xff, 1], vec![0xff, 0x9b, 4, 1], vec![0x1b]]),
        at: u64,
        function: u64,
        distance in 0u64..300,
    ) {
        let table = [head, bytes].concat();
        let _ = landing_pad(&table, at, function, function.wrapping_add(distance));
    }

    #[test]
    fn code_that_nobody_wrote(
        code in prop::collection::vec(any::<u8>(), 64..4096),
        stack in prop::collection::vec(prop_oneof![any::<u64>(), (0u64..4096).prop_map(|at| 0x1000 + at)], 1..64),
        lock in prop_oneof![Just(0x1100u64), Just(0x9000), any::<u64>()],
    ) {
        let mut target = Bytes::default();
        let end = 0x1000 + code.len() as u64;
        target.map(RemoteAddr(0x1000), code);
        target.map(RemoteAddr(0x9000), stack.into_iter().flat_map(u64::to_le_bytes).collect());
        let space = Space::new(&target, &[(RemoteAddr(0x1000), RemoteAddr(end))]);
        let lock = WantedLock { address: RemoteAddr(lock), size: 4, kind: SyncKind::Mutex, family: Family::RustStd };
        follow_bytes(&space, RemoteAddr(0x1000), RemoteAddr(0x9000), &lock);
    }
}

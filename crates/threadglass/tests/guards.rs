//! Holders of locks that record none: the fixtures know the truth.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use testkit::{Build, Fixture, address, wait_asleep};
use threadglass::guards::{Stander, Suspect, Wanted, suspects};
use threadglass::model::{Family, SyncKind};
use threadglass::proc::SyscallFile;
use threadglass::target::{KernelFacts, Live};
use threadglass::{Lwp, Pid, RemoteAddr, threads};

/// Who holds what, by a fixture's own account: by lock, and thread.
struct Truth {
    wanted: Vec<Wanted>,
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
                truth.wanted.push(Wanted { address: RemoteAddr(lock), size, kind, family });
            }
            if address(&word["waits"]) != 0 {
                truth.waits.insert(tid, address(&word["waits"]));
            }
            truth.roles.insert((lock, tid), (text("what"), word["holds"].as_bool().unwrap()));
        }
        truth
    }
}

fn standers(live: &Live, pid: i32, truth: &Truth) -> Vec<Stander> {
    let lwps = live.lwps().unwrap();
    for lwp in &lwps {
        wait_asleep(pid, lwp.0);
    }
    let snapshot = threads::collect(live).unwrap();
    let stander = |lwp: &Lwp| {
        let thread = snapshot.threads.iter().find(|thread| thread.lwp == Some(*lwp));
        let call = live.wait_call(*lwp)?;
        let (sp, pc) = call.registers()?;
        let futex = match call {
            SyscallFile::Inside { number: 202, args, .. } => Some(RemoteAddr(args[0])),
            _ => None,
        };
        let waits_on = truth.waits.get(&lwp.0).map(|addr| RemoteAddr(*addr));
        Some(Stander {
            lwp: *lwp,
            sp,
            pc,
            stack_base: None,
            start: thread.and_then(|thread| thread.start),
            waits_on,
            futex,
        })
    };
    lwps.iter().filter_map(stander).collect()
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
    let standers = standers(&live, fixture.pid(), &truth);
    let found: Vec<Suspect> = suspects(&live, &truth.wanted, &standers);
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

#[test]
fn rust() {
    for flags in [&["-Copt-level=0"][..], &["-Copt-level=2"], &["-Copt-level=3", "-Cstrip=symbols"]] {
        let score = score("guard_rust.rs", flags);
        assert!(score.wrong.is_empty(), "{flags:?}: {:#?}", score.wrong);
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
        &["-O2", "-static"],
        &["-O0", "-static", "-s"],
    ] {
        let score = score("guard_c.c", flags);
        assert!(score.wrong.is_empty(), "{flags:?}: {:#?}", score.wrong);
    }
}

#[test]
fn cxx() {
    for flags in [
        &["-std=c++17", "-O0"][..],
        &["-std=c++17", "-O2"],
        &["-std=c++17", "-O2", "-fno-pie", "-no-pie", "-s"],
        &["-std=c++17", "-O3", "-fno-exceptions"],
    ] {
        let score = score("guard_cxx.cc", flags);
        assert!(score.wrong.is_empty(), "{flags:?}: {:#?}", score.wrong);
    }
}

#[test]
fn debug_one() {
    let Ok(spec) = std::env::var("GUARDS_ONE") else { return };
    let mut words = spec.split(' ');
    let program = words.next().unwrap();
    let what = words.next().unwrap();
    let flags: Vec<&str> = words.collect();
    let fixture = Fixture::start(&Build::new(program).flags(&flags).path(), &[]).settled();
    let truth = Truth::of(&fixture);
    let live = Live::open(Pid(fixture.pid())).unwrap();
    let standers = standers(&live, fixture.pid(), &truth);
    let ((lock, tid), _) = truth.roles.iter().find(|(_, (role, _))| role == what).unwrap();
    let wanted: Vec<_> = truth.wanted.iter().filter(|w| w.address.0 == *lock).copied().collect();
    let standers: Vec<_> = standers.into_iter().filter(|s| s.lwp.0 == *tid).collect();
    println!("{wanted:?} {standers:?}");
    println!("{:?}", suspects(&live, &wanted, &standers));
    println!("{}", std::fs::read_to_string(format!("/proc/{}/maps", fixture.pid())).unwrap().lines().next().unwrap());
}

#[test]
fn many() {
    let fixture = Fixture::start(&Build::new("guard_many.rs").path(), &["1000"]).settled();
    let truth = Truth::of(&fixture);
    let live = Live::open(Pid(fixture.pid())).unwrap();
    let standers = standers(&live, fixture.pid(), &truth);
    for _ in 0..5 {
        let begin = std::time::Instant::now();
        let found = suspects(&live, &truth.wanted, &standers);
        println!("{} standers, {:?}", standers.len(), begin.elapsed());
        assert_eq!(found.len(), 10, "{found:#?}");
    }
}

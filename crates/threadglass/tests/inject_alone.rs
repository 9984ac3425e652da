//! The agent in programs with one thread, whose C library uses neither locks nor atomic instructions until there is another.

use std::process::{Command, Stdio};
use testkit::{Build, Fixture, GlibcRoots, Value, Variant, address, agent_threads, eventually, serde_json};
use threadglass::act::inject::{InjectError, Injected, Options, attach};
use threadglass::internals::Agent;
use threadglass::model::SyncStats;
use threadglass::target::Live;
use threadglass::{Pid, RemoteAddr};

const ALONE: Options = Options { exact: false, size: None, force: false, single: true };

fn start(args: &[&str]) -> Fixture {
    Fixture::start(&Build::new("inject_alone.c").variant(Variant::Default).path(), args)
}

/// The program may be inside the C library for a second, if it gets no CPU.
fn put_in(pid: i32) -> Injected {
    let mut injected = None;
    eventually("the agent should come in", || {
        match attach(Pid(pid), &ALONE) {
            Ok(attached) => injected = Some(attached),
            Err(InjectError::InLibc(_) | InjectError::NoVictim) => {}
            Err(error) => panic!("{error}"),
        }
        injected.is_some()
    });
    injected.expect("it came in")
}

fn locks(pid: i32, mutex: u64) -> u64 {
    let live = Live::open(Pid(pid)).unwrap();
    let agent = Agent::find(&live).unwrap().expect("the agent is there");
    match agent.object(&live, RemoteAddr(mutex)).map(|object| object.stats()) {
        Some(SyncStats::Lock(lock)) => lock.lock,
        None => 0,
        other => panic!("not a lock: {other:?}"),
    }
}

/// It goes on, and nothing came out wrong.
fn goes_on(fixture: &mut Fixture) {
    let mut ask = || -> Value { serde_json::from_str(&fixture.ask("progress")).unwrap() };
    let before = ask();
    eventually("it should go on", || {
        let now = ask();
        assert_eq!(now["violations"], 0, "{now}");
        now["rounds"].as_u64() > before["rounds"].as_u64().map(|rounds| rounds + 50)
    });
}

/// Each time another process: one that had the agent once is not taken for one with one thread again.
#[test]
fn a_program_that_allocates_and_locks_all_the_time_stays_right() {
    testkit::needs_ptrace!();
    let rounds: u32 = std::env::var("TG_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let mut pauses = Vec::new();
    for round in 0..rounds {
        let mut fixture = start(&[]);
        let pid = fixture.pid();
        let mutex = address(&fixture.truth()["mutex"]);
        let injected = put_in(pid);
        pauses.push(injected.pause.expect("a thread was stopped"));
        assert_eq!(injected.interrupted, None);
        assert_eq!(agent_threads(pid), 1);
        eventually("locks should be counted", || locks(pid, mutex) > 0);
        goes_on(&mut fixture);
        assert!(injected.detach().unwrap(), "round {round}");
        goes_on(&mut fixture);
        eventually("the agent's thread should end", || agent_threads(pid) == 0);
        if round % 10 == 0 {
            // Once more, now as in any other program.
            let injected = put_in(pid);
            goes_on(&mut fixture);
            assert!(injected.detach().unwrap(), "round {round}");
            goes_on(&mut fixture);
        }
    }
    pauses.sort();
    let [first, .., last] = pauses[..] else { return };
    eprintln!("{rounds} rounds; pause min {first:?} median {:?} max {last:?}", pauses[pauses.len() / 2]);
}

#[test]
fn it_is_refused_unless_asked_for() {
    let mut fixture = start(&[]);
    let error = attach(Pid(fixture.pid()), &Options::default()).expect_err("one thread");
    assert!(matches!(error, InjectError::Single(_)) && error.remedy().is_some(), "{error}");
    goes_on(&mut fixture);
}

/// It waits in a function of the C library that has its own data in hand; and in one that has not.
#[test]
fn where_something_is_half_done_it_is_not_stopped_for_it() {
    testkit::needs_ptrace!();
    let inside = start(&["fgets"]).settled();
    let error = attach(Pid(inside.pid()), &ALONE).expect_err("inside the C library");
    assert!(matches!(error, InjectError::InLibc(_)), "{error}");
    let mut outside = start(&["read"]).settled();
    let injected = put_in(outside.pid());
    assert_eq!(outside.ask("take"), "taken");
    let mutex = address(&outside.truth()["mutex"]);
    assert_eq!(locks(outside.pid(), mutex), 1);
    assert!(injected.detach().unwrap());
    assert_eq!(outside.ask("take"), "taken");
}

#[test]
fn an_allocator_of_its_own_is_left_alone() {
    let build = Build::new("inject_alone.c").variant(Variant::Default).flags(&["-DOWN_MEMORY"]);
    let mut fixture = Fixture::start(&build.path(), &[]);
    let error = attach(Pid(fixture.pid()), &ALONE).expect_err("its own malloc");
    assert!(error.to_string().contains("its malloc is that of"), "{error}");
    goes_on(&mut fixture);
}

#[test]
fn a_program_that_nobody_here_wrote() {
    testkit::needs_ptrace!();
    let mut sleep = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("sleep");
    let pid = sleep.id() as i32;
    testkit::eventually("it should sleep", || {
        testkit::task_state(pid, pid).is_some_and(|task| task.call.starts_with("230 "))
    });
    let injected = put_in(pid);
    assert_eq!(agent_threads(pid), 1);
    let restored = injected.detach();
    let is_alive = matches!(sleep.try_wait(), Ok(None));
    let _ = sleep.kill();
    let _ = sleep.wait();
    assert!(restored.unwrap() && is_alive);
}

/// The C libraries of other releases: what they do without locks differs.
#[test]
fn every_glibc_version_can_have_it_alone() {
    let Some(roots) = GlibcRoots::find("every_glibc_version_can_have_it_alone") else { return };
    for (version, root) in roots.iter() {
        for _ in 0..5 {
            eprintln!("glibc {version}");
            let mut fixture = Fixture::start(&roots.build("inject_alone.c", root), &[]);
            let injected = put_in(fixture.pid());
            goes_on(&mut fixture);
            assert!(injected.detach().unwrap());
            goes_on(&mut fixture);
        }
    }
}

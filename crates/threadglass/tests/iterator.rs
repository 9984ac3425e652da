//! The facts of threads from the kernel's task iterator are those of `/proc`, field by field.

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use testkit::{Build, Fixture, Signal, eventually, skip};
use threadglass::internals::{KernelState, SyscallFile};
use threadglass::target::{KernelFacts, Live, LwpFacts};
use threadglass::{Lwp, Pid};

/// One test at a time: they count descriptors, and spinning threads disturb each other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(fixture: &Fixture) -> Live {
    Live::open(Pid(fixture.pid())).unwrap()
}

/// Says why the iterator cannot be used, if it cannot.
fn is_usable(test: &str, live: &Live) -> bool {
    let usable = live.facts_by_iterator(&[]).is_some();
    if !usable {
        skip(test, "needs root in the initial pid namespace, and a kernel since 6.1 with BTF, for a BPF task iterator");
    }
    usable
}

/// How many of `lwps` the iterator tells of.
fn told(live: &Live, lwps: &[Lwp]) -> usize {
    live.facts_by_iterator(lwps).unwrap().iter().flatten().count()
}

fn sleeping(fixture: &Fixture) -> Vec<Lwp> {
    let numbers = fixture.truth()["sleeping"].as_array().unwrap().iter();
    numbers.map(|number| Lwp(number.as_i64().unwrap() as i32)).collect()
}

/// One look at `lwps` by the iterator between two by `/proc`: what was equal in both must be equal in
/// the middle too, and what grew is in between. Gives the number of threads the iterator told of.
fn compare(live: &Live, lwps: &[Lwp]) -> usize {
    let before = live.facts_by_proc(lwps);
    let middle = live.facts_by_iterator(lwps).expect("it was usable a moment ago");
    let after = live.facts_by_proc(lwps);
    let mut told = 0;
    for ((before, middle), after) in before.into_iter().zip(middle).zip(after) {
        let (Some(before), Some(middle), Some(after)) = (before, middle, after) else { continue };
        told += 1;
        let lwp = middle.lwp;
        // A tick may be counted as the other kind of time, but none is lost.
        let ticks = |facts: &LwpFacts| facts.cpu_ticks.unwrap();
        let sum = |facts: &LwpFacts| ticks(facts).0 + ticks(facts).1;
        assert!(ticks(&before).0 <= ticks(&middle).0 + 1 && ticks(&middle).0 <= ticks(&after).0 + 1, "{lwp} user time");
        assert!(ticks(&before).1 <= ticks(&middle).1 + 1 && ticks(&middle).1 <= ticks(&after).1 + 1, "{lwp} system");
        assert!(sum(&before) <= sum(&middle) + 1 && sum(&middle) <= sum(&after) + 1, "{lwp} CPU time");
        let (low, switches, high) = (before.switches.unwrap(), middle.switches.unwrap(), after.switches.unwrap());
        assert!((low.0..=high.0).contains(&switches.0) && (low.1..=high.1).contains(&switches.1), "{lwp} switches");
        let steady = |facts: &LwpFacts| LwpFacts { cpu_ticks: None, switches: None, ..facts.clone() };
        if steady(&before) == steady(&after) {
            assert_eq!(steady(&middle), steady(&before), "{lwp}");
        }
        if before == after {
            assert_eq!(middle, before, "{lwp}");
        }
    }
    told
}

#[test]
fn sleeping_and_running_threads_are_as_proc_shows_them() {
    let _alone = alone();
    let fixture = Fixture::new("iterator_states.c").settled();
    let live = open(&fixture);
    if !is_usable("sleeping_and_running_threads_are_as_proc_shows_them", &live) {
        return;
    }
    let lwps = live.lwps().unwrap();
    let sleeping = sleeping(&fixture);
    assert!(sleeping.len() > 600 && lwps.len() > sleeping.len());
    for _ in 0..5 {
        assert!(compare(&live, &lwps) > 0);
    }
    // A thread may stay queued for a while after it fell asleep; in the end only the 32-bit call is
    // left to /proc.
    let untold = usize::from(fixture.truth()["compat"] == true);
    eventually("all sleeping threads should be told of", || told(&live, &sleeping) == sleeping.len() - untold);
    assert!(compare(&live, &sleeping) >= 600);
    // The order of the answers is that of the question, and strangers are not told of.
    let mut question: Vec<_> = sleeping.iter().copied().rev().collect();
    question.push(Lwp(1));
    let answers = live.facts_by_iterator(&question).unwrap();
    assert!(answers.iter().zip(&question).all(|(facts, lwp)| facts.as_ref().is_none_or(|facts| facts.lwp == *lwp)));
    assert_eq!(answers.last(), Some(&None));
    // Whichever way is taken, every thread is told of.
    let all = live.facts(&lwps);
    assert!(all.iter().zip(&lwps).all(|(facts, lwp)| facts.as_ref().is_some_and(|facts| facts.lwp == *lwp)));
}

#[test]
fn a_stopped_process_is_equal_in_every_field() {
    let _alone = alone();
    let fixture = Fixture::new("iterator_states.c").settled();
    let live = open(&fixture);
    if !is_usable("a_stopped_process_is_equal_in_every_field", &live) {
        return;
    }
    let lwps = live.lwps().unwrap();
    testkit::signal(fixture.pid(), Signal::SIGSTOP);
    eventually("all threads should stop", || {
        live.facts_by_proc(&lwps).iter().flatten().all(|facts| facts.state == KernelState::Stopped)
    });
    eventually("all but a 32-bit call should be told of", || told(&live, &lwps) >= lwps.len() - 1);
    let (proc, iterator) = (live.facts_by_proc(&lwps), live.facts_by_iterator(&lwps).unwrap());
    let mut outside = 0;
    for (proc, iterator) in proc.iter().zip(&iterator).filter(|(_, iterator)| iterator.is_some()) {
        assert_eq!(iterator, proc);
        let call = iterator.as_ref().and_then(|facts| facts.syscall);
        outside += usize::from(matches!(call, Some(SyscallFile::Outside { .. })));
    }
    assert!(outside >= 2, "the spinning threads were stopped outside of system calls");
    testkit::signal(fixture.pid(), Signal::SIGCONT);
}

#[test]
fn a_traced_thread_names_its_tracer() {
    let _alone = alone();
    let fixture = Fixture::new("iterator_states.c").settled();
    let live = open(&fixture);
    if !is_usable("a_traced_thread_names_its_tracer", &live) {
        return;
    }
    let lwp = sleeping(&fixture)[100];
    let task = nix::unistd::Pid::from_raw(lwp.0);
    ptrace::seize(task, ptrace::Options::empty()).unwrap();
    ptrace::interrupt(task).unwrap();
    let stop = waitpid(task, Some(WaitPidFlag::__WALL)).unwrap();
    assert!(matches!(stop, WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..)), "{stop:?}");
    eventually("the traced thread should be told of", || told(&live, &[lwp]) == 1);
    let (proc, iterator) = (live.facts_by_proc(&[lwp]), live.facts_by_iterator(&[lwp]).unwrap());
    assert_eq!(iterator, proc);
    let facts = iterator[0].as_ref().unwrap();
    assert_eq!((facts.tracer, facts.state), (nix::unistd::gettid().as_raw(), KernelState::Traced));
    ptrace::detach(task, None).unwrap();
}

#[test]
fn an_ended_leader_is_left_to_proc() {
    let _alone = alone();
    let fixture = Fixture::new("main_exited.c");
    let live = open(&fixture);
    if !is_usable("an_ended_leader_is_left_to_proc", &live) {
        return;
    }
    let lwps = live.lwps().unwrap();
    assert_eq!(lwps[0], live.pid().leader());
    eventually("the other threads should be told of", || told(&live, &lwps[1..]) == lwps.len() - 1);
    assert_eq!(live.facts_by_iterator(&lwps).unwrap()[0], None);
    assert_eq!(compare(&live, &lwps), lwps.len() - 1);
}

#[test]
fn threads_that_come_and_go_disturb_nobody() {
    let _alone = alone();
    let program = Build::new("iterator_states.c").path();
    let fixture = Fixture::start(&program, &["3"]);
    let live = open(&fixture);
    if !is_usable("threads_that_come_and_go_disturb_nobody", &live) {
        return;
    }
    let sleeping = sleeping(&fixture);
    let truth = live.facts_by_proc(&sleeping);
    let steady: HashSet<_> = sleeping.iter().copied().collect();
    let mut passing = 0;
    let mut look = 0;
    // On a busy machine the passing threads are seen asleep in few of the looks.
    eventually("a passing thread should be seen in one of a hundred looks or more", || {
        let lwps = live.lwps().unwrap();
        let facts = live.facts(&lwps);
        let known: Vec<_> = facts.iter().flatten().filter(|facts| steady.contains(&facts.lwp)).collect();
        assert_eq!(known.len(), sleeping.len(), "look {look}: a thread that never moved is missing");
        // In the kernel's order, as they were made.
        for (truth, seen) in truth.iter().flatten().zip(known) {
            assert_eq!(seen, truth, "look {look}");
        }
        for facts in live.facts_by_iterator(&lwps).unwrap().iter().flatten() {
            passing += usize::from(facts.name.as_deref() == Some(b"passing"));
            assert!(facts.agree(), "look {look}: two moments in {facts:?}");
        }
        look += 1;
        look >= 100 && passing > 0
    });
    eprintln!("{look} looks, {passing} passing threads seen");
}

/// Descriptors of this process that belong to BPF.
fn descriptors() -> Vec<String> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.map(|link| link.to_string_lossy().into_owned()).filter(|link| link.contains("bpf")).collect()
}

#[test]
fn nothing_is_left_behind() {
    let _alone = alone();
    let fixture = Fixture::new("main_exited.c");
    let live = open(&fixture);
    if !is_usable("nothing_is_left_behind", &live) {
        return;
    }
    let lwps = live.lwps().unwrap();
    for _ in 0..10 {
        live.facts_by_iterator(&lwps).unwrap();
    }
    assert_eq!(descriptors().len(), 1, "the link alone: {:?}", descriptors());
    drop(live);
    assert_eq!(descriptors(), Vec::<String>::new());
    assert!(!Path::new("/sys/fs/bpf/threadglass").exists());
}

#[test]
fn the_environment_turns_it_off() {
    let _alone = alone();
    let fixture = Fixture::new("main_exited.c");
    if !is_usable("the_environment_turns_it_off", &open(&fixture)) {
        return;
    }
    // SAFETY: every test of this program holds the lock, so no other thread uses the environment.
    unsafe { std::env::set_var("THREADGLASS_NO_BPF", "1") };
    let off = open(&fixture);
    let answer = off.facts_by_iterator(&[]);
    // SAFETY: as above.
    unsafe { std::env::remove_var("THREADGLASS_NO_BPF") };
    assert_eq!(answer, None);
    assert_eq!(off.facts_by_iterator(&[]), None, "decided once for each target");
    assert!(open(&fixture).facts_by_iterator(&[]).is_some());
}

#[test]
fn a_process_that_has_gone_is_told_nothing_of() {
    let _alone = alone();
    let mut fixture = Fixture::new("main_exited.c");
    let live = open(&fixture);
    if !is_usable("a_process_that_has_gone_is_told_nothing_of", &live) {
        return;
    }
    let lwps = live.lwps().unwrap();
    fixture.kill();
    drop(fixture);
    assert_eq!(live.facts_by_iterator(&lwps), None);
    // Nor of ourselves, whose looking thread would seem to run.
    assert_eq!(Live::open(Pid::me()).unwrap().facts_by_iterator(&[]), None);
}

/// When threads at rest were last on a CPU, and on which, is told as in their files.
#[test]
fn the_last_time_on_a_cpu() {
    let _alone = alone();
    let fixture = Fixture::start(&Build::new("many.c").path(), &["600"]).settled();
    let live = open(&fixture);
    if !is_usable("the_last_time_on_a_cpu", &live) {
        return;
    }
    let lwps = live.lwps().unwrap();
    let by_iterator = live.last_runs_by_iterator(lwps.len()).expect("there are enough threads");
    let mut known = 0;
    for lwp in &lwps {
        let (seen, file) = (by_iterator[lwp], live.last_run(*lwp));
        let (Some((cpu, at)), Some((cpu_of_file, at_of_file))) = (seen, file) else {
            assert_eq!(seen, file, "{lwp}");
            continue;
        };
        // The file has six digits behind the point.
        assert!(cpu == cpu_of_file && (at - at_of_file).abs() < 1e-5, "{lwp}: {seen:?} {file:?}");
        known += 1;
    }
    assert!(known > 300, "{known} of {}", lwps.len());
    assert!(live.last_runs_by_iterator(1).is_none(), "one thread is not worth a pass");
}

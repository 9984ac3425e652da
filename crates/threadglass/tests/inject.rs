//! The agent put into programs that run: they never notice, and what it counts is exact.

use testkit::{
    Build, Capability, Fixture, Value, Variant, address, agent_threads, eventually, goes_on, hammer, plugin,
};
use threadglass::act::inject;
use threadglass::act::inject::{InjectError, Injected, Options};
use threadglass::internals::{Agent, Tracked};
use threadglass::model::SyncStats;
use threadglass::target::Live;
use threadglass::{Pid, RemoteAddr};

fn attach(pid: i32) -> Injected {
    inject::attach(Pid(pid), &Options::default()).unwrap_or_else(|error| panic!("cannot attach: {error}"))
}

fn rounds(usual: u32) -> u32 {
    std::env::var("TG_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn object(pid: i32, at: u64) -> Option<Tracked> {
    let live = Live::open(Pid(pid)).unwrap();
    let agent = Agent::find(&live).unwrap().expect("the agent is there");
    agent.object(&live, RemoteAddr(at))
}

/// An allocator that keeps a list of threads must not keep one that has gone.
#[test]
fn jemalloc_forgets_the_thread_that_was_made_first() {
    testkit::needs_ptrace!();
    let test = "jemalloc_forgets_the_thread_that_was_made_first";
    let Some(library) = testkit::library(test, "libjemalloc.so.2") else { return };
    let program = Build::new("inject_hammer.c").variant(Variant::Default).path();
    let mut command = std::process::Command::new(program);
    command.arg(plugin()).env("LD_PRELOAD", library);
    let mut fixture = Fixture::command(command);
    for _ in 0..rounds(12) {
        let injected = attach(fixture.pid());
        goes_on(&mut fixture, &[]);
        assert!(injected.detach().unwrap());
        goes_on(&mut fixture, &[]);
    }
}

#[test]
fn a_program_that_does_everything_at_once_does_not_notice() {
    testkit::needs_ptrace!();
    let mut fixture = hammer();
    let mut pauses = Vec::new();
    for round in 0..rounds(60) {
        let injected = attach(fixture.pid());
        pauses.push(injected.pause.expect("a thread was stopped"));
        assert!(injected.slots().0 >= 10, "{:?}", injected.slots());
        assert_eq!(injected.slots().1, 0);
        assert_eq!(injected.interrupted, None);
        if round % 2 == 0 {
            goes_on(&mut fixture, &[]);
        }
        assert!(injected.detach().unwrap());
        if round % 8 == 0 {
            goes_on(&mut fixture, &[]);
        }
    }
    goes_on(&mut fixture, &[]);
    eventually("the agent's thread should end", || agent_threads(fixture.pid()) == 0);
    pauses.sort();
    eprintln!(
        "{} rounds; pause min {:?} median {:?} max {:?}",
        pauses.len(),
        pauses[0],
        pauses[pauses.len() / 2],
        pauses[pauses.len() - 1]
    );
}

fn lock_count(tracked: Option<&Tracked>) -> u64 {
    match tracked.map(Tracked::stats) {
        Some(SyncStats::Lock(lock)) => lock.lock,
        None => 0,
        other => panic!("not a lock: {other:?}"),
    }
}

/// Every way of linking that makes slots differ.
fn styles() -> [(&'static str, Vec<&'static str>); 4] {
    [
        ("lazy", vec!["-fPIE", "-pie", "-Wl,-z,lazy", "-Wl,-z,norelro"]),
        ("now", vec!["-fPIE", "-pie", "-Wl,-z,now", "-Wl,-z,relro"]),
        ("no-plt", vec!["-fPIE", "-pie", "-fno-plt", "-Wl,-z,relro"]),
        ("no-pie", vec!["-fno-pie", "-no-pie", "-Wl,-z,lazy", "-Wl,-z,relro"]),
    ]
}

#[test]
fn counts_are_exact_from_attach_to_detach() {
    testkit::needs_ptrace!();
    for (style, flags) in styles() {
        let program = Build::new("inject_counts.c").flags(&flags).path();
        counts_of(style, Fixture::start(&program, &[]).settled());
    }
}

/// A name that the loader searches for where the program says: it must see who asks, and the first call is counted.
#[test]
fn an_object_loaded_by_its_name_is_counted_at_once() {
    testkit::needs_ptrace!();
    let path = plugin();
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
    for (style, flags) in styles() {
        for dtags in ["-Wl,--enable-new-dtags,-rpath,$ORIGIN", "-Wl,--disable-new-dtags,-rpath,$ORIGIN"] {
            let program = Build::new("inject_counts.c").flags(&flags).flags(&[dtags]).path();
            let mut fixture = Fixture::start(&program, &[]).settled();
            let injected = attach(fixture.pid());
            let at = address(&Value::String(fixture.ask(&format!("load {name} 300"))));
            assert_eq!(lock_count(object(fixture.pid(), at).as_ref()), 300, "{style} {dtags}");
            assert!(injected.detach().unwrap());
            fixture.ask(&format!("load {name} 50"));
            assert_eq!(lock_count(object(fixture.pid(), at).as_ref()), 300, "{style} {dtags}");
        }
    }
}

fn counts_of(style: &str, mut fixture: Fixture) {
    let pid = fixture.pid();
    let at = |name: &str, truth: &Value| address(&truth[name]);
    let truth = fixture.truth().clone();
    let place = |name: &str| at(name, &truth);
    // What is done before does not count.
    assert_eq!(fixture.ask("work 10"), "done");
    let injected = attach(pid);
    assert!(injected.pause.is_some());
    assert_eq!(fixture.ask("work 1000"), "done");
    let tracked = |name: &str| object(pid, place(name));
    assert_eq!(lock_count(tracked("counted").as_ref()), 4000, "{style}");
    assert_eq!(lock_count(tracked("spin").as_ref()), 4000, "{style}");
    match tracked("rwlock").unwrap().stats() {
        SyncStats::Rwlock(lock) => assert_eq!((lock.read.lock, lock.write.lock), (4000, 0), "{style}"),
        other => panic!("{other:?}"),
    }
    match tracked("sem").unwrap().stats() {
        SyncStats::Semaphore(sem) => assert_eq!((sem.wait, sem.post), (4000, 4000), "{style}"),
        other => panic!("{other:?}"),
    }
    // Holds and waits that there were before: their ends leave nothing behind but what was called since.
    assert_eq!(fixture.ask("release"), "done");
    match tracked("held").map(|held| held.stats()) {
        None => {}
        Some(SyncStats::Lock(held)) => {
            assert_eq!((held.lock, held.sleep, held.hold_time.timed), (0, 0, 0), "{style}");
        }
        other => panic!("{other:?}"),
    }
    match tracked("awaited").unwrap().stats() {
        SyncStats::Cond(cond) => assert_eq!((cond.wait, cond.signal, cond.broadcast), (0, 1, 0), "{style}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(lock_count(tracked("awaited_lock").as_ref()), 1, "{style}");
    // A lock that is released by a pointer which was taken before: counted once, and nothing goes below 0.
    assert_eq!(fixture.ask("early"), "done");
    assert_eq!(lock_count(tracked("early").as_ref()), 1, "{style}");
    // An object that is loaded now, and whose name is like that of the C library.
    let dir = tempfile::tempdir().unwrap();
    let loaded = dir.path().join("libc-client.so.1");
    std::fs::copy(plugin(), &loaded).unwrap();
    let answer = fixture.ask(&format!("load {} 300", loaded.display()));
    let plugin_lock = address(&Value::String(answer));
    assert_eq!(lock_count(object(pid, plugin_lock).as_ref()), 300, "{style}");
    assert!(injected.detach().unwrap());
    // Nothing is counted any more, in it neither.
    assert_eq!(fixture.ask("work 1000"), "done");
    fixture.ask(&format!("load {} 50", loaded.display()));
    assert_eq!(lock_count(tracked("counted").as_ref()), 4000, "{style}");
    assert_eq!(lock_count(object(pid, plugin_lock).as_ref()), 300, "{style}");
    // The second time the agent is there already.
    let maps = || std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let objects = maps().matches("threadglass-agent").count();
    let again = attach(pid);
    assert_eq!(maps().matches("threadglass-agent").count(), objects);
    assert_eq!(fixture.ask("work 100"), "done");
    fixture.ask(&format!("load {} 50", loaded.display()));
    assert_eq!(lock_count(tracked("counted").as_ref()), 4400, "{style}");
    assert_eq!(lock_count(object(pid, plugin_lock).as_ref()), 350, "{style}");
    assert!(again.detach().unwrap());
    assert_eq!(agent_threads(pid), 0);
    // Nothing of the memory is left in which the first thread began.
    assert!(!maps().lines().any(|line| line.contains("r-xp") && line.contains("00:00 0") && !line.contains('[')));
}

#[test]
fn two_tools_at_once() {
    testkit::needs_ptrace!();
    let mut fixture = hammer();
    let pid = fixture.pid();
    let first = attach(pid);
    let second = attach(pid);
    assert_eq!(second.pause, None, "nobody is stopped for the second");
    assert!(!first.detach().unwrap(), "the second still wants it");
    assert_eq!(agent_threads(pid), 1);
    goes_on(&mut fixture, &[]);
    assert!(second.detach().unwrap());
    // By hand, while somebody wants it.
    let third = attach(pid);
    assert!(inject::detach(Pid(pid)).unwrap());
    assert!(!inject::detach(Pid(pid)).unwrap());
    assert!(third.detach().unwrap());
    goes_on(&mut fixture, &[]);
}

#[test]
fn a_dropped_attachment_restores_by_itself() {
    testkit::needs_ptrace!();
    let mut fixture = hammer();
    let pid = fixture.pid();
    drop(attach(pid));
    eventually("the agent's thread should end", || agent_threads(pid) == 0);
    assert!(!inject::detach(Pid(pid)).unwrap());
    goes_on(&mut fixture, &[]);
}

fn refusal(pid: i32) -> InjectError {
    let maps = || std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let before = maps();
    let error = inject::attach(Pid(pid), &Options::default()).expect_err("it should be refused");
    assert_eq!(maps(), before, "nothing was changed: {error}");
    error
}

#[test]
fn what_cannot_have_it_is_refused_and_unchanged() {
    if testkit::has_static_libc(testkit::part("a static program")) {
        let fixture = Fixture::start(&Build::new("many.c").variant(Variant::Static).path(), &["3"]).settled();
        assert!(refusal(fixture.pid()).to_string().contains("statically"));
    }
    // One thread: nobody waits for its locks.
    let mut single = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    // Asleep in the call that it is for, clock_nanosleep: before, it maps what it needs, and may wait for that.
    let call = format!("/proc/{}/syscall", single.id());
    eventually("it should sleep", || std::fs::read_to_string(&call).is_ok_and(|call| call.starts_with("230 ")));
    assert!(refusal(single.id() as i32).to_string().contains("only one thread"));
    let _ = single.kill();
    // Ended, but not collected.
    eventually("it should end", || {
        std::fs::read_to_string(format!("/proc/{}/stat", single.id())).is_ok_and(|stat| stat.contains(") Z"))
    });
    assert!(matches!(refusal(single.id() as i32), InjectError::Target(_)));
    let _ = single.wait();
    // A thread of the kernel, and nobody.
    match std::fs::read_to_string("/proc/2/comm") {
        Ok(name) if name == "kthreadd\n" => {
            assert!(matches!(refusal(2), InjectError::Target(_) | InjectError::Denied(..)));
        }
        _ => testkit::skip(testkit::part("a thread of the kernel"), "none is visible from this pid namespace"),
    }
    assert!(matches!(refusal(i32::MAX), InjectError::Target(_)));
}

/// Filters that look at what a call is to do: each kills for something that loading the agent does.
#[test]
fn filters_that_look_at_arguments_are_heeded() {
    testkit::needs_ptrace!();
    if !testkit::has_capability("filters_that_look_at_arguments_are_heeded", Capability::Admin, "to read filters") {
        return;
    }
    let program = Build::new("inject_refuse.c").variant(Variant::Default).path();
    let killing = [
        ("319", "1", "has", "0x10"),    // memfd_create: may be executed
        ("319", "1", "is", "1"),        // the same for older kernels
        ("293", "1", "has", "0x800"),   // pipe2: without waiting
        ("257", "2", "has", "0x80000"), // openat: closed on exec
        ("9", "3", "has", "0x4000"),    // mmap: not reserved
        ("9", "3", "has", "0x100000"),  // at an address that is free
        ("9", "2", "has", "4"),         // code
        ("10", "2", "is", "3"),         // mprotect: to be written
        ("28", "2", "is", "18"),        // madvise: wiped on fork
        ("28", "2", "is", "14"),        // large pages
        ("7", "2", "is", "5000"),       // poll: for so long
        ("436", "2", "has", "2"),       // close_range: a table of its own
        ("56", "0", "has", "0x80000"),  // clone: with thread-local data
        ("157", "0", "is", "15"),       // prctl: a thread's name
        ("202", "1", "is", "0x85"),     // futex: change and wake
        ("1", "0", "is", "7"),          // write: to some descriptor
        ("14", "0", "is", "2"),         // rt_sigprocmask: set
    ];
    for (number, argument, how, value) in killing {
        let mut fixture = Fixture::start(&program, &["filter-argument", number, argument, how, value]).settled();
        let refused = refusal(fixture.pid());
        assert!(matches!(refused, InjectError::Seccomp(..)), "{number} {argument} {how} {value}: {refused}");
        assert_eq!(fixture.ask("alive"), "alive", "{number} {argument} {how} {value}");
    }
    // And one that kills for something that is not done.
    let mut fixture = Fixture::start(&program, &["filter-argument", "319", "1", "has", "4", "busy"]).settled();
    assert!(attach(fixture.pid()).detach().unwrap());
    assert_eq!(fixture.ask("alive"), "alive");
}

/// Threads that sleep in calls which filters have forbidden since: the stop alone would kill them.
#[test]
fn a_thread_that_may_not_repeat_its_call_is_not_stopped() {
    use threadglass::act::{ControlError, StoppedThread};
    let program = Build::new("inject_refuse.c").variant(Variant::Default).path();
    let mut fixture = Fixture::start(&program, &["filter-futex"]).settled();
    let refused = refusal(fixture.pid());
    assert!(matches!(refused, InjectError::Seccomp(..)), "{refused}");
    let live = Live::open(Pid(fixture.pid())).unwrap();
    let sleepers: Vec<_> = threadglass::target::KernelFacts::lwps(&live).unwrap();
    let mut kept = 0;
    for lwp in sleepers.into_iter().filter(|lwp| *lwp != Pid(fixture.pid()).leader()) {
        assert!(matches!(StoppedThread::stop(Pid(fixture.pid()), lwp), Err(ControlError::Filtered(..))), "{lwp}");
        kept += 1;
    }
    assert_eq!(kept, 3);
    assert_eq!(fixture.ask("alive"), "alive");
}

/// SIGSTOP cannot be blocked, and interrupts the calls that a stopped thread makes for us.
#[test]
fn a_program_that_is_stopped_and_continued_all_the_time_can_have_it() {
    testkit::needs_ptrace!();
    use std::sync::atomic::{AtomicBool, Ordering};
    let mut fixture = hammer();
    let pid = fixture.pid();
    let is_over = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for signal in [testkit::Signal::SIGSTOP, testkit::Signal::SIGCONT] {
                    testkit::signal(pid, signal);
                    std::thread::sleep(std::time::Duration::from_micros(300));
                }
            }
        });
        let (mut done, mut tries) = (Ok(0), 0);
        // On a busy machine it is stopped for long, and fewer tries come at a good moment.
        while done.as_ref().is_ok_and(|done| tries < rounds(120) || *done == 0 && tries < 2000) {
            let now = match inject::attach(Pid(pid), &Options::default()) {
                Ok(injected) => Ok(u32::from(injected.detach().is_ok())),
                // It happened to be stopped when it was looked at, or for too long.
                Err(InjectError::Stopped(_) | InjectError::Silent | InjectError::NoVictim) => Ok(0),
                Err(other) => Err(other.to_string()),
            };
            done = done.and_then(|done| now.map(|now| done + now));
            tries += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        done.map(|done| (done, tries))
    });
    assert!(done.as_ref().is_ok_and(|(done, _)| *done > 0), "{done:?}");
    eprintln!("{done:?}: attached, of so many tries");
    goes_on(&mut fixture, &[]);
}

/// What the agent counts it counts in every thread, under the filters of that thread.
#[test]
fn a_thread_that_has_confined_itself_alone_is_asked_too() {
    testkit::needs_ptrace!();
    const CLOCK_GETTIME: &str = "228";
    const REBOOT: &str = "169";
    let program = Build::new("inject_refuse.c").variant(Variant::Default).path();
    for (number, is_allowed) in [(CLOCK_GETTIME, false), (REBOOT, Capability::Admin.is_ours())] {
        let mut fixture = Fixture::start(&program, &["filter-one", number]).settled();
        match is_allowed {
            true => assert!(attach(fixture.pid()).detach().unwrap()),
            false => assert!(matches!(refusal(fixture.pid()), InjectError::Seccomp(..))),
        }
        assert_eq!(fixture.ask("alive"), "alive");
    }
}

#[test]
fn a_program_that_refuses_is_left_alone() {
    testkit::needs_ptrace!();
    let build = |what: &str| {
        let program = Build::new("inject_refuse.c").variant(Variant::Default).path();
        Fixture::start(&program, &[what]).settled()
    };
    let fixture = build("stopped");
    testkit::signal(fixture.pid(), testkit::Signal::SIGSTOP);
    eventually("it should stop", || testkit::task_state(fixture.pid(), fixture.pid()).is_some_and(|t| t.letter == 'T'));
    assert!(matches!(refusal(fixture.pid()), InjectError::Stopped(_)));
    testkit::signal(fixture.pid(), testkit::Signal::SIGCONT);
    // Filters: some allow all that is needed, which only somebody who may read them can see.
    let killing = ["filter-kill", "filter-restart", "filter-clock", "filter-pidfd"].map(|filter| (filter, false));
    let others = [("filter-harmless", Capability::Admin.is_ours()), ("filter-errno", false)];
    for (filter, is_allowed) in killing.into_iter().chain(others) {
        let mut fixture = build(filter);
        match is_allowed {
            true => assert!(attach(fixture.pid()).detach().unwrap()),
            false => assert!(matches!(refusal(fixture.pid()), InjectError::Seccomp(..))),
        }
        assert_eq!(fixture.ask("alive"), "alive");
    }
    // One that must know all its threads, such as a sanitizer that is linked into it.
    let own = |flags: &[&str]| {
        let build = Build::new("inject_refuse.c").variant(Variant::Default).flags(&["-DOWN_THREADS", "-rdynamic"]);
        Fixture::start(&build.flags(flags).path(), &[]).settled()
    };
    let mut fixture = own(&["-DOWN_MEMORY"]);
    assert!(refusal(fixture.pid()).to_string().contains("pthread_create of its own"));
    assert_eq!(fixture.ask("alive"), "alive");
    // Without that it can have the agent, which then lies between two functions that it leads on to.
    let mut fixture = own(&[]);
    let first = attach(fixture.pid());
    eventually("the second look should be over", || attach(fixture.pid()).slots() == first.slots());
    assert_ne!(first.slots().0, 0);
    assert!(first.detach().unwrap());
    assert_eq!(fixture.ask("alive"), "alive");
    let mut fixture = build("small-files");
    assert!(refusal(fixture.pid()).to_string().contains("RLIMIT_FSIZE"));
    assert_eq!(fixture.ask("alive"), "alive");
    let mut fixture = build("locked");
    assert!(matches!(refusal(fixture.pid()), InjectError::Locked(_)));
    assert_eq!(fixture.ask("alive"), "alive");
    let mut fixture = build("no-exec");
    match fixture.truth()["refuses"] == true {
        // It may map code that nobody can write: the loader does no more.
        true => assert!(attach(fixture.pid()).detach().unwrap()),
        false => testkit::skip(
            testkit::part("memory that may not become code"),
            "PR_SET_MDWE is refused: needs a kernel since 6.3",
        ),
    }
    assert_eq!(fixture.ask("alive"), "alive");
}

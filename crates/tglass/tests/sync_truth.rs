//! Synchronization objects against what the fixtures know of their own: kind, state, holders, waiters.

use testkit::{
    Build, Dumpable, Fixture, SyncView, Tool, Value, Variant, address, has_static_libc, part, sync_faults, thread,
    threads,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// Every kind and state, and the languages whose locks are known.
const IN_C: [&str; 4] = ["sync_mutexes.c", "sync_rwlocks.c", "sync_kinds.c", "sync_spin.c"];
const OTHERS: [&str; 2] = ["sync_cxx.cc", "sync_rust.rs"];

fn all() -> impl Iterator<Item = &'static str> {
    IN_C.into_iter().chain(OTHERS)
}

fn start(file: &str, variant: Variant) -> Fixture {
    Fixture::start(&Build::new(file).variant(variant).path(), &[]).settled()
}

/// Everything that differs, of all fixtures: what is wrong with one is often wrong with another.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn look(&mut self, context: &str, truth: &Value, target: &str, view: SyncView) {
        let snapshot = tool().look("locks", target, &["--all"]);
        let mut faults = sync_faults(truth, &snapshot, view);
        if snapshot["pause_us"] != 0 {
            faults.push(format!("it was stopped for {} us", snapshot["pause_us"]));
        }
        self.0.extend(faults.into_iter().map(|fault| format!("{context}: {fault}")));
    }

    fn live(&mut self, file: &str, variant: Variant, view: SyncView) {
        let fixture = start(file, variant);
        self.look(&format!("{file}, {variant:?}"), fixture.truth(), &fixture.pid().to_string(), view);
    }

    fn assert_none(&self) {
        assert!(self.0.is_empty(), "\n{}", self.0.join("\n"));
    }
}

fn objects(snapshot: &Value) -> &[Value] {
    snapshot["objects"].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn alive() {
    let mut faults = Faults::default();
    for file in all() {
        faults.live(file, Variant::Default, SyncView::PLAIN);
    }
    faults.assert_none();
}

#[test]
fn without_symbols() {
    let mut faults = Faults::default();
    for file in all() {
        faults.live(file, Variant::Stripped, SyncView { symbols: false, functions: file.ends_with(".c") });
    }
    faults.assert_none();
}

#[test]
fn at_a_fixed_address() {
    let mut faults = Faults::default();
    for file in all() {
        faults.live(file, Variant::NoPie, SyncView::PLAIN);
    }
    faults.assert_none();
}

/// Waits that go through the agent are known as well as those that do not.
#[test]
fn through_the_agent() {
    let mut faults = Faults::default();
    for file in IN_C.into_iter().chain(["sync_cxx.cc"]) {
        let program = Build::new(file).path().display().to_string();
        let fixture = Fixture::command(tool().command(&["run", "--", &program])).settled();
        let pid = fixture.pid().to_string();
        faults.look(&format!("{file}, tracked"), fixture.truth(), &pid, SyncView::PLAIN);
        let stacks = tool().look("threads", &pid, &["--stacks"]);
        for thread in threads(&stacks).iter().filter(|thread| !thread["call_site"].is_null()) {
            let called = address(&thread["call_site"]["address"]);
            let frames = thread["frames"].as_array().map_or(&[][..], Vec::as_slice);
            let frame = frames.iter().find(|frame| address(&frame["pc"]) == called);
            let module = frame.map_or("", |frame| frame["module"].as_str().unwrap_or_default());
            if module.is_empty() || module.contains("agent") {
                faults.0.push(format!("{file}: {} is called by {module:?}", thread["call_site"]["function"]));
            }
        }
    }
    faults.assert_none();
}

/// With libc linked in less may be certain, but nothing may be wrong.
#[test]
fn static_programs() {
    if !has_static_libc("sync_truth::static_programs") {
        return;
    }
    let mut faults = Faults::default();
    for file in all() {
        for variant in [Variant::Static, Variant::StaticStripped] {
            faults.live(file, variant, SyncView { symbols: variant.has_symbols(), functions: false });
        }
    }
    faults.assert_none();
}

/// A core tells the same as the process did, whoever wrote it.
#[test]
fn as_cores() {
    let mut faults = Faults::default();
    for file in all() {
        for by_kernel in [true, false] {
            let test = format!("sync_truth::as_cores {file}, {}", if by_kernel { "kernel" } else { "gcore" });
            let mut dumpable = Dumpable::start(&Build::new(file).variant(Variant::Default).path(), &[]);
            dumpable.fixture = dumpable.fixture.settled();
            let truth = dumpable.fixture.truth().clone();
            let core = if by_kernel { dumpable.kernel_core(part(&test)) } else { dumpable.gcore(part(&test)) };
            let Some(core) = core else { continue };
            faults.look(&test, &truth, &core.name(), SyncView::PLAIN);
        }
    }
    faults.assert_none();
}

/// The mutex that a waiter has given up is found, where libc's frames can be read.
#[test]
fn mutexes_of_condition_variables() {
    for file in ["sync_kinds.c", "sync_cxx.cc"] {
        let fixture = start(file, Variant::Default);
        let snapshot = tool().look("locks", &fixture.pid().to_string(), &["--waited", "--kind", "cond"]);
        let waited = objects(&snapshot);
        assert!(!waited.is_empty());
        for cond in waited {
            let truth = fixture.truth()["objects"].as_array().unwrap();
            let told = truth.iter().find(|object| object["address"] == cond["address"]).unwrap();
            assert_eq!(cond["mutex"], told["mutex"], "{cond:#}");
        }
    }
}

/// Which objects are listed by which option.
#[test]
fn options_choose_objects() {
    let fixture = start("sync_rwlocks.c", Variant::Default);
    let pid = fixture.pid().to_string();
    let told = fixture.truth()["objects"].as_array().unwrap().clone();
    let addresses = |options: &[&str]| -> Vec<u64> {
        let snapshot = tool().look("locks", &pid, options);
        let mut list: Vec<_> = objects(&snapshot).iter().map(|object| address(&object["address"])).collect();
        list.sort_unstable();
        list
    };
    let of = |choose: &dyn Fn(&Value) -> bool| -> Vec<u64> {
        let mut list: Vec<_> =
            told.iter().filter(|object| choose(object)).map(|object| address(&object["address"])).collect();
        list.sort_unstable();
        list
    };
    let is_held = |object: &Value| object["state"] != "unlocked";
    let is_waited = |object: &Value| !object["waiters"].as_array().unwrap().is_empty();
    assert_eq!(addresses(&["--held"]), of(&is_held));
    assert_eq!(addresses(&["--waited"]), of(&is_waited));
    assert_eq!(addresses(&[]), of(&|object| is_held(object) || is_waited(object)));
    assert_eq!(addresses(&["--all", "--kind", "rwlock"]), of(&|_| true));
    assert_eq!(addresses(&["--all", "--kind", "barrier"]), Vec::<u64>::new());
    for object in &told {
        let one = addresses(&["--address", object["address"].as_str().unwrap()]);
        assert_eq!(one, [address(&object["address"])], "{object}");
    }
}

/// `threads` tells of the same waits.
#[test]
fn threads_say_what_they_wait_for() {
    let fixture = start("sync_mutexes.c", Variant::Default);
    let snapshot = tool().threads(fixture.pid(), &[]);
    let mut waiting = 0;
    for object in fixture.truth()["objects"].as_array().unwrap() {
        for waiter in object["waiters"].as_array().unwrap() {
            let wait = &thread(&snapshot, waiter["lwp"].as_i64().unwrap())["waits_for"];
            assert_eq!(wait["address"], object["address"], "{wait}");
            assert_eq!(wait["kind"], "mutex");
            assert_eq!(wait["held_by"][0], object["holders"][0]["lwp"], "{wait}");
            waiting += 1;
        }
    }
    assert!(waiting > 20);
    let said = threads(&snapshot).iter().filter(|thread| !thread["waits_for"].is_null()).count();
    assert_eq!(said, waiting, "others do not wait");
}

/// A wait that was made past libc is none for an object of libc's, whatever lies around the word.
#[test]
fn a_wait_past_libc() {
    let fixture = start("own_futex.c", Variant::Default);
    let snapshot = tool().look("locks", &fixture.pid().to_string(), &[]);
    let seen = |field: &str| {
        let address = &fixture.truth()[field];
        objects(&snapshot).iter().find(|object| object["address"] == *address).map(|object| object["kind"].clone())
    };
    assert_eq!(seen("real"), Some("barrier".into()), "{snapshot:#}");
    assert_eq!(seen("own"), Some("futex".into()), "{snapshot:#}");
}

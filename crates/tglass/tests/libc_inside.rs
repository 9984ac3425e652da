//! What libc keeps inside: who executes a `pthread_once`, and the dynamic loader's lock.

use testkit::{Build, Dumpable, Fixture, Tool, Variant, lock_faults, thread};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

#[test]
fn who_executes_a_once() {
    for variant in [Variant::Default, Variant::Stripped, Variant::NoPie] {
        let program = Build::new("libc_inside.c").variant(variant).path();
        for mode in ["once", "circle"] {
            let fixture = Fixture::start(&program, &[mode]).settled();
            let faults = lock_faults(&tool(), &fixture.pid().to_string(), fixture.truth(), false);
            assert!(faults.is_empty(), "{variant:?} {mode}: {faults:#?}");
        }
    }
}

#[test]
fn who_executes_a_once_in_a_core() {
    let dumped = Dumpable::start(&Build::new("libc_inside.c").variant(Variant::Default).path(), &["circle"]);
    let truth = dumped.fixture.truth().clone();
    let Some(core) = dumped.gcore("who_executes_a_once_in_a_core") else { return };
    let faults = lock_faults(&tool(), &core.name(), &truth, false);
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_lock_of_the_loader_has_a_name() {
    let library = Build::new("slow_library.c").variant(Variant::Library).path();
    let program = Build::new("libc_inside.c").variant(Variant::Default).path();
    let fixture = Fixture::start(&program, &["loader", &library.to_string_lossy()]).settled();
    let seen = tool().look("locks", &fixture.pid().to_string(), &[]);
    let lwp = |role: &str| fixture.truth()[role].as_i64().unwrap();
    let wait = &thread(&seen, lwp("waiter"))["waits_for"];
    assert_eq!(wait["kind"], "mutex", "{wait:#}");
    assert!(wait["name"].as_str().is_some_and(|name| name.starts_with("the dynamic loader's lock (")), "{wait:#}");
    assert_eq!(wait["held_by"][0], lwp("holder"), "{wait:#}");
}

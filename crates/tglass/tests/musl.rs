//! Programs that run on musl: their threads, their locks, and who holds them.

use testkit::{Build, Dumpable, Fixture, RUST_ON_MUSL, Tool, Value, Variant};
use testkit::{finding_faults, has_rust_on_musl, have, lock_faults, part, thread};

/// Variants of programs with musl, each with the flags that it is built with.
const BUILDS: [(Variant, &str); 5] = [
    (Variant::Default, "-O2"),
    (Variant::NoPie, "-O0"),
    (Variant::Stripped, "-O2"),
    (Variant::Static, "-O2"),
    (Variant::StaticStripped, "-O2"),
];

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn build(variant: Variant, flag: &str) -> std::path::PathBuf {
    Build::new("musl_locks.c").musl().variant(variant).flags(&[flag]).path()
}

/// The findings of `why` of one kind.
fn findings(target: &str, kind: &str) -> (Value, Vec<Value>) {
    let why = tool().run(&["why", target, "--json"]).json();
    let found = why["findings"].as_array().expect("findings").iter().filter(|it| it["kind"] == kind).cloned().collect();
    (why, found)
}

/// The fixture, alive and as both kinds of core.
fn everywhere(program: &std::path::Path, args: &[&str], mut check: impl FnMut(&str, &str, &Value)) {
    let fixture = Fixture::start(program, args).settled();
    check("alive", &fixture.pid().to_string(), fixture.truth());
    let dumped = Dumpable::start(program, args);
    let truth = dumped.fixture.truth().clone();
    if let Some(core) = dumped.gcore(part("a core of gdb's")) {
        check("gcore", &core.name(), &truth);
    }
    let dumped = Dumpable::start(program, args);
    let truth = dumped.fixture.truth().clone();
    if let Some(core) = dumped.kernel_core(part("a core of the kernel's")) {
        check("kernel core", &core.name(), &truth);
    }
}

/// Who waits for what, and who holds it: with others that only know a lock, had it, or will have it.
#[test]
fn locks_and_their_holders() {
    if !have("locks_and_their_holders", "musl-gcc") {
        return;
    }
    for (variant, flag) in BUILDS {
        everywhere(&build(variant, flag), &["locks"], |form, target, truth| {
            let faults = lock_faults(&tool(), target, truth, false);
            assert!(faults.is_empty(), "{variant:?} {form}: {faults:#?}");
        });
    }
}

/// A mutex that records its owner makes a circle certain, any other likely.
#[test]
fn circles() {
    if !have("circles", "musl-gcc") {
        return;
    }
    let kinds = [("errorcheck", "certain"), ("recursive", "certain"), ("robust", "certain"), ("normal", "likely")];
    for (variant, flag) in BUILDS {
        let program = build(variant, flag);
        let mutexes = kinds.iter().map(|(kind, certainty)| (["circle", *kind], *certainty));
        for (args, certainty) in mutexes.chain([(["shelves", ""], "likely")]) {
            let check = |form: &str, target: &str, truth: &Value| {
                let (why, found) = findings(target, "deadlock");
                let context = format!("{variant:?} {args:?} {form}: {:#}", why["findings"]);
                assert_eq!(found.len(), 1, "{context}");
                assert_eq!(found[0]["certainty"], certainty, "{context}");
                let lwps = |list: &Value| list.as_array().map(|list| list.iter().filter_map(Value::as_i64).collect());
                let (mut seen, mut told): (Vec<i64>, Vec<i64>) =
                    (lwps(&found[0]["threads"]).unwrap_or_default(), lwps(&truth["deadlock"]).unwrap_or_default());
                seen.sort_unstable();
                told.sort_unstable();
                assert_eq!(seen, told, "{context}");
            };
            // One of each kind of core is enough for each sort of program.
            if args[1] == "errorcheck" {
                everywhere(&program, &args, check);
            } else {
                let fixture = Fixture::start(&program, &args).settled();
                check("alive", &fixture.pid().to_string(), fixture.truth());
            }
        }
    }
}

/// Where nobody is left that could wake a thread.
#[test]
fn nobody_is_left() {
    if !have("nobody_is_left", "musl-gcc") {
        return;
    }
    let scenes = [("cond", "cond_without_signaller"), ("sem", "nobody_left"), ("barrier", "nobody_left")];
    for (variant, flag) in BUILDS {
        for (what, kind) in scenes {
            let fixture = Fixture::start(&build(variant, flag), &["alone", what]).settled();
            let (why, found) = findings(&fixture.pid().to_string(), kind);
            let objects: Vec<&Value> = found.iter().flat_map(|it| it["objects"].as_array()).flatten().collect();
            assert_eq!(objects, [&fixture.truth()["object"]], "{variant:?} {what}: {:#}", why["findings"]);
        }
        let fixture = Fixture::start(&build(variant, flag), &["ended"]).settled();
        let (why, found) = findings(&fixture.pid().to_string(), "owner_exited");
        assert_eq!(found.len(), 1, "{variant:?}: {:#}", why["findings"]);
        assert_eq!(found[0]["threads"][0], fixture.truth()["waiter"], "{variant:?}: {:#}", why["findings"]);
    }
}

/// Threads have their ids, stacks and start functions; who joins one is known.
#[test]
fn threads_and_joins() {
    if !have("threads_and_joins", "musl-gcc") {
        return;
    }
    for (variant, flag) in BUILDS {
        everywhere(&build(variant, flag), &["locks"], |form, target, truth| {
            let seen = tool().look("locks", target, &["--all"]);
            let context = format!("{variant:?} {form}");
            assert_eq!(seen["target"]["libc"]["kind"], "musl", "{context}");
            let lwp = truth["sleeper"].as_i64().expect("its LWP");
            let sleeper = thread(&seen, lwp);
            assert_eq!(sleeper["id"], truth["sleeper_id"], "{context}: {sleeper:#}");
            if variant.has_symbols() {
                assert_eq!(sleeper["start_function"], "begin", "{context}: {sleeper:#}");
            }
            let (sp, base) = (address(&sleeper["sp"]), address(&sleeper["stack"]["base"]));
            let size = sleeper["stack"]["size"].as_u64().expect("a size");
            assert!(sp < base && base - sp < size, "{context}: {sleeper:#}");
            let wait = &thread(&seen, truth["joiner"].as_i64().expect("its LWP"))["waits_for"];
            assert_eq!(wait["kind"], "join", "{context}: {wait:#}");
            assert_eq!(wait["held_by"], serde_json::json!([lwp]), "{context}: {wait:#}");
        });
    }
}

fn address(value: &Value) -> u64 {
    let text = value.as_str().and_then(|text| text.strip_prefix("0x")).expect("an address");
    u64::from_str_radix(text, 16).expect("an address")
}

/// Stacks lead through the library, which has no unwind tables, to where the thread began.
#[test]
fn stacks_lead_through_the_library() {
    if !have("stacks_lead_through_the_library", "musl-gcc") {
        return;
    }
    for (variant, flag) in BUILDS.into_iter().filter(|(variant, _)| variant.has_symbols()) {
        let fixture = Fixture::start(&build(variant, flag), &["circle", "normal"]).settled();
        let seen = tool().look("threads", &fixture.pid().to_string(), &["--stacks"]);
        let lwp = fixture.truth()["deadlock"][0].as_i64().expect("its LWP");
        let frames = thread(&seen, lwp)["frames"].as_array().expect("frames").clone();
        let names: Vec<&str> = frames.iter().filter_map(|frame| frame["function"].as_str()).collect();
        let at = |name: &str| names.iter().position(|it| *it == name);
        assert!(at("crosses").is_some() && at("crosses") < at("begin"), "{variant:?}: {names:?}");
        assert_eq!(thread(&seen, lwp)["frames_end"]["kind"], "start", "{variant:?}: {:#}", thread(&seen, lwp));
    }
}

/// Programs of Rust with musl inside: what threads wait for, and who holds it.
#[test]
fn programs_of_rust() {
    if !has_rust_on_musl("programs_of_rust") {
        return;
    }
    for flags in [&["-g", "-Copt-level=0"][..], &["-Copt-level=2"], &["-Copt-level=3", "-Cstrip=symbols"]] {
        let program = Build::new("deadlock_rust.rs").flags(&["--target", RUST_ON_MUSL]).flags(flags).path();
        for scene in ["static", "arc", "once"] {
            everywhere(&program, &[scene], |form, target, truth| {
                let faults = finding_faults(truth, &tool().run(&["why", target, "--json"]).json());
                assert!(faults.is_empty(), "{flags:?} {scene} {form}: {faults:#?}");
            });
        }
    }
}

/// What a thread waits for is told by the functions around those of musl, which the program contains.
#[test]
fn waits_of_rust() {
    if !has_rust_on_musl("waits_of_rust") {
        return;
    }
    for level in ["-Copt-level=0", "-Copt-level=2"] {
        let program = Build::new("hangs_rust.rs").flags(&["--target", RUST_ON_MUSL, level]).path();
        for scene in ["channel_alone", "barrier_alone"] {
            let fixture = Fixture::start(&program, &[scene]).settled();
            let why = tool().run(&["why", &fixture.pid().to_string(), "--json"]).json();
            let (verdict, words) = (&why["verdict"], fixture.truth()["words"].as_str().expect("words"));
            assert_eq!(verdict["kind"], "nobody_left", "{level} {scene}: {verdict:#}");
            assert!(verdict["text"].as_str().is_some_and(|text| text.contains(words)), "{level} {scene}: {verdict:#}");
        }
    }
}

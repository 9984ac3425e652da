//! Names of synchronization objects, compared with what programs say of themselves.

use std::path::Path;
use std::process::Command;
use testkit::{Build, Dumpable, Fixture, Value, Variant, address, eventually, has_static_libc};
use threadglass::Limits;
use threadglass::internals::{DataNames, LockVariable, ObjectNames};
use threadglass::look::{Look, Names, Scope, look};
use threadglass::memory::Memory;
use threadglass::model::{Evidence, Snapshot, SyncKind};
use threadglass::target::{Core, CoreOptions, Live};
use threadglass::{Lwp, Pid, RemoteAddr};

fn open(fixture: &Fixture) -> Live {
    Live::open(Pid(fixture.pid())).expect("the fixture can be looked at")
}

fn list<'a>(truth: &'a Value, member: &str) -> &'a [Value] {
    truth[member].as_array().unwrap_or_else(|| panic!("no list {member} in {truth}"))
}

fn name(value: &Value) -> Option<&str> {
    value["name"].as_str()
}

/// Every variable has its name, and is found among all locks with its kind.
fn check_variables(fixture: &Fixture) {
    let live = open(fixture);
    let mut names = Look::new(&live).data_names();
    for truth in list(fixture.truth(), "variables") {
        let at = RemoteAddr(address(&truth["at"]));
        assert_eq!(names.variable_at(at).as_deref(), name(truth), "{truth}");
    }
    let locks = Look::new(&live).data_names().lock_variables();
    for truth in list(fixture.truth(), "variables") {
        let lock = find(&locks, truth);
        assert_eq!(Some(lock.kind.word()), truth["kind"].as_str(), "{lock:?}");
        let expected = if lock.name.contains("padded") || lock.name.ends_with("LATE") {
            Evidence::Inferred
        } else {
            Evidence::Derived
        };
        assert_eq!(lock.evidence, expected, "{lock:?}");
    }
}

/// The lock at a variable's address; two may be there when one is in the other's value.
fn find<'a>(locks: &'a [LockVariable], truth: &Value) -> &'a LockVariable {
    let at = RemoteAddr(address(&truth["at"]));
    let found = locks.iter().find(|lock| lock.address == at && Some(lock.name.as_str()) == name(truth));
    found.unwrap_or_else(|| panic!("{truth} is not among {locks:#?}"))
}

/// The locks in structures on the heap have the names of members, by way of the threads that wait for them.
fn check_members(fixture: &Fixture) {
    let live = open(fixture);
    let members = list(fixture.truth(), "members");
    let lwps: Vec<Lwp> = members.iter().map(|truth| waiter(fixture, truth)).collect();
    for lwp in &lwps {
        // A futex call, whose number is 202.
        eventually("the thread waits for a lock", || call_of(&live, *lwp).starts_with("202 "));
    }
    let mut snapshot = look(&live, Scope::Threads, Names::None).expect("its threads");
    Look::new(&live).add_stacks(&mut snapshot);
    let mut names = Look::new(&live).data_names();
    for (truth, lwp) in members.iter().zip(lwps) {
        let (frames, words) = stack_of(&live, &snapshot, lwp);
        let kind = SyncKind::ALL.into_iter().find(|kind| Some(kind.word()) == truth["kind"].as_str()).expect("a kind");
        let at = RemoteAddr(address(&truth["at"]));
        assert_eq!(names.variable_at(at), None, "{truth}");
        let found = names.member_of(at, kind, &frames, &words);
        assert_eq!(found.as_deref(), name(truth), "{truth} by {frames:?}");
        // A lock of another kind is not there, nor one where no pointer leads.
        assert_eq!(names.member_of(at, SyncKind::Barrier, &frames, &words), None);
        assert_eq!(names.member_of(at.offset(0x10000), kind, &frames, &words), None);
    }
}

fn waiter(fixture: &Fixture, truth: &Value) -> Lwp {
    match truth["lwp"].as_i64() {
        Some(lwp) => Lwp(lwp as i32),
        None => thread_named(fixture, truth["thread"].as_str().expect("a thread's name")),
    }
}

fn call_of(live: &Live, lwp: Lwp) -> String {
    std::fs::read_to_string(format!("/proc/{}/task/{lwp}/syscall", live.pid())).unwrap_or_default()
}

/// Places and words of a thread's stack.
fn stack_of(live: &Live, snapshot: &Snapshot, lwp: Lwp) -> (Vec<RemoteAddr>, Vec<u64>) {
    let thread = snapshot.threads.iter().find(|thread| thread.lwp == Some(lwp)).expect("the thread");
    let sp = thread.sp.expect("a blocked thread has a stack pointer");
    let mut stack = vec![0; 8192];
    let got = live.read_at(sp, &mut stack).expect("its stack");
    let words = stack[..got].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let mut pcs: Vec<u64> = thread.frames.iter().map(|frame| frame.pc.0).collect();
    pcs.dedup();
    let frames = pcs.iter().enumerate().map(|(index, pc)| RemoteAddr(if index == 0 { *pc } else { pc - 1 }));
    (frames.collect(), words)
}

fn thread_named(fixture: &Fixture, name: &str) -> Lwp {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", fixture.pid())).expect("its threads");
    let mut tids = tasks.flatten().map(|task| task.file_name().to_string_lossy().parse().expect("a number"));
    let comm = |tid: &i32| std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", fixture.pid()));
    Lwp(tids.find(|tid| comm(tid).is_ok_and(|comm| comm.trim() == name)).expect("a thread of that name"))
}

/// Ways of compiling that change what debug information looks like.
const FLAGS: [&[&str]; 6] =
    [&["-O2"], &["-flto"], &["-O0"], &["-gdwarf-4"], &["-gz=zlib"], &["-O1", "-fdebug-types-section"]];

#[test]
fn variables_and_members_of_c() {
    for flags in FLAGS {
        let fixture = Fixture::start(&Build::new("names_data.c").variant(Variant::Default).flags(flags).path(), &[]);
        check_variables(&fixture);
        check_members(&fixture);
    }
}

#[test]
fn variables_and_members_of_c_at_fixed_addresses_and_with_libc_linked_in() {
    for variant in [Variant::NoPie, Variant::Static] {
        if variant.is_static() && !has_static_libc(testkit::part("a static program")) {
            continue;
        }
        let fixture = Fixture::start(&Build::new("names_data.c").variant(variant).path(), &[]);
        check_variables(&fixture);
        check_members(&fixture);
    }
}

#[test]
fn variables_and_members_of_cxx() {
    for flags in FLAGS {
        let fixture = Fixture::start(&Build::new("names_data.cc").variant(Variant::Default).flags(flags).path(), &[]);
        check_variables(&fixture);
        check_members(&fixture);
    }
}

#[test]
fn variables_and_members_of_rust() {
    for flags in [&["-Copt-level=2"], &["-Copt-level=0"], &["-Cdebuginfo=2"]] {
        let fixture = Fixture::start(&Build::new("names_data.rs").flags(flags).path(), &[]);
        check_variables(&fixture);
        check_members(&fixture);
    }
}

#[test]
fn a_lock_of_unknown_code_is_not_given_the_name_of_a_callers_type() {
    let library = |flags: &[&str]| {
        let build = Build::new("names_blind.c").variant(Variant::Library).flags(&["-DLIBRARY"]).flags(flags);
        build.path().to_string_lossy().into_owned()
    };
    let program = Build::new("names_blind.c").variant(Variant::Default).path();
    // Where the library is known, its type fits as well as the caller's, and is nearer.
    for (library, expected) in [(library(&["-g0"]), None), (library(&[]), Some("struct inside::lock"))] {
        let fixture = Fixture::start(&program, &[&library]);
        let live = open(&fixture);
        let mut snapshot = look(&live, Scope::Threads, Names::None).expect("its threads");
        Look::new(&live).add_stacks(&mut snapshot);
        let (frames, words) = stack_of(&live, &snapshot, waiter(&fixture, fixture.truth()));
        let [at, start] = ["at", "start"].map(|member| address(&fixture.truth()[member]));
        assert!(words.contains(&start), "the pointer is on the stack");
        let found = Look::new(&live).data_names().member_of(RemoteAddr(at), SyncKind::Mutex, &frames, &words);
        assert_eq!(found.as_deref(), expected);
    }
}

#[test]
fn a_core_has_the_same_names() {
    let program = Build::new("names_data.c").variant(Variant::Default).path();
    let running = Dumpable::start(&program, &[]);
    let truth = running.fixture.truth().clone();
    let Some(file) = running.gcore("a_core_has_the_same_names") else { return };
    let core = Core::open(file.path(), CoreOptions::default()).expect("the core can be read");
    let mut names = Look::new(&core).data_names();
    for truth in list(&truth, "variables") {
        assert_eq!(names.variable_at(RemoteAddr(address(&truth["at"]))).as_deref(), name(truth), "{truth}");
    }
    let place = names.place_of(RemoteAddr(address(&truth["room"])));
    assert!(place.is_some_and(|place| place.starts_with("names_data-")));
}

#[test]
fn symbols_name_variables_without_debug_information() {
    let build = Build::new("names_data.c").variant(Variant::Default).flags(&["-g0"]);
    let fixture = Fixture::start(&build.path(), &[]);
    let live = open(&fixture);
    let mut names = Look::new(&live).data_names();
    let at = |member: &str| RemoteAddr(address(&fixture.truth()[member]));
    assert_eq!(names.variable_at(at("registry")).as_deref(), Some("registry"));
    assert_eq!(names.variable_at(at("registry").offset(0x40)).as_deref(), Some("registry+0x40"));
    assert_eq!(names.variable_at(at("room").offset(0xfffff)).as_deref(), Some("room+0xfffff"));
    let locks = names.lock_variables();
    for (name, kind) in [
        ("lock_a", SyncKind::Mutex),
        ("lock_b", SyncKind::Mutex),
        ("filled", SyncKind::Cond),
        ("table_lock", SyncKind::Rwlock),
        ("slots", SyncKind::Semaphore),
        ("gate", SyncKind::Semaphore),
    ] {
        let lock = locks.iter().find(|lock| lock.name == name).unwrap_or_else(|| panic!("no {name} in {locks:#?}"));
        assert_eq!((lock.kind, lock.evidence), (kind, Evidence::Inferred));
        let truth = list(fixture.truth(), "variables").iter().find(|truth| truth["name"] == name).expect(name);
        assert_eq!(lock.address.0, address(&truth["at"]));
    }
    assert!(locks.iter().all(|lock| lock.name != "room" && lock.name != "registry"));
    let mut snapshot = look(&live, Scope::Threads, Names::None).expect("its threads");
    Look::new(&live).add_stacks(&mut snapshot);
    for truth in list(fixture.truth(), "members") {
        let (frames, words) = stack_of(&live, &snapshot, waiter(&fixture, truth));
        assert_eq!(names.member_of(RemoteAddr(address(&truth["at"])), SyncKind::Mutex, &frames, &words), None);
    }
}

#[test]
fn a_stripped_program_has_places_only() {
    let fixture = Fixture::start(&Build::new("names_data.c").variant(Variant::Stripped).path(), &[]);
    let live = open(&fixture);
    let mut names = Look::new(&live).data_names();
    let program = std::fs::read_link(format!("/proc/{}/exe", fixture.pid())).expect("its program");
    let program = program.file_name().expect("a name").to_string_lossy().into_owned();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", fixture.pid())).expect("its mappings");
    let base = maps.lines().find(|line| line.ends_with(&program)).expect("the program is mapped");
    let base = u64::from_str_radix(base.split('-').next().unwrap_or_default(), 16).expect("an address");
    let far = list(fixture.truth(), "variables").iter().find(|truth| truth["name"] == "far_lock[1]").expect("far");
    // The latter lies behind the last mapping of the file.
    for at in [address(&fixture.truth()["registry"]), address(&far["at"])] {
        assert_eq!(names.variable_at(RemoteAddr(at)), None);
        assert_eq!(names.place_of(RemoteAddr(at)), Some(format!("{program}+{:#x}", at - base)));
    }
    let place = |names: &mut DataNames<'_>, member: &str| names.place_of(RemoteAddr(address(&fixture.truth()[member])));
    assert_eq!(place(&mut names, "heap").as_deref(), Some("heap"));
    assert_eq!(place(&mut names, "stack").as_deref(), Some("stack"));
    assert_eq!(names.place_of(RemoteAddr(8)), None);
    assert!(names.lock_variables().is_empty(), "{:?}", names.lock_variables());
}

#[test]
fn debug_information_in_a_file_of_its_own() {
    let built = Build::new("names_data.c").variant(Variant::Default).flags(&["-Wl,--build-id"]).path();
    let dir = tempfile::tempdir().expect("a directory");
    let (program, debug) = (dir.path().join("program"), dir.path().join("program.debug"));
    let run = |args: &[&str], paths: &[&Path]| {
        let output = Command::new("objcopy").args(args).args(paths).output().expect("objcopy runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["--only-keep-debug", "--compress-debug-sections=zlib"], &[&built, &debug]);
    run(&["--strip-all", &format!("--add-gnu-debuglink={}", debug.display())], &[&built, &program]);
    let fixture = Fixture::start(&program, &[]);
    check_variables(&fixture);
    check_members(&fixture);
    drop(fixture);
    // One without the types has the symbols.
    run(&["--only-keep-debug", "--remove-section=.debug_*"], &[&built, &debug]);
    let fixture = Fixture::start(&program, &[]);
    let live = open(&fixture);
    let at = RemoteAddr(address(&fixture.truth()["registry"])).offset(8);
    assert_eq!(Look::new(&live).data_names().variable_at(at).as_deref(), Some("registry+0x8"));
}

#[test]
fn damaged_debug_information_is_survived() {
    for flags in [&[][..], &["-gz=zlib"], &["-gdwarf-4"]] {
        let build = Build::new("names_data.cc").variant(Variant::Default).flags(flags);
        survive_damage(&std::fs::read(build.path()).expect("the program"));
    }
}

fn survive_damage(whole: &[u8]) {
    let (variable, code) = {
        let names = ObjectNames::new(file(whole), &Limits::default(), &threadglass::internals::Types);
        let locks = names.lock_variables();
        assert!(locks.iter().any(|lock| lock.name == "ns::lock_a"), "{locks:?}");
        let has_line = |pc: &u64| names.functions_at(*pc).iter().any(|function| function.line.is_some());
        let code: Vec<u64> = (0x1000..0x4000).step_by(16).filter(has_line).take(8).collect();
        assert_eq!(code.len(), 8, "lines of the program");
        (locks[0].address.0, code)
    };
    let mut seed = 1u64;
    let mut random = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize
    };
    for round in 0..60 {
        let mut bytes = whole.to_vec();
        // The headers stay, so that there is something to decode.
        for _ in 0..[1, 20, 4000][round % 3] {
            let at = 0x1000 + random() % (bytes.len() - 0x3000);
            bytes[at] = random() as u8;
        }
        let names = ObjectNames::new(file(&bytes), &Limits::default(), &threadglass::internals::Types);
        let _ = names.variable_at(variable);
        let _ = names.lock_variables();
        for pc in &code {
            let _ = names.functions_at(*pc);
        }
    }
}

fn file(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().expect("a file");
    std::io::Write::write_all(&mut file, bytes).expect("it is written");
    file
}

//! Stacks, frame by frame against gdb, without stopping the target.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::{
    Answer, Build, Dumpable, Fixture, GlibcRoots, Tool, Value, Variant, address, eventually, has_static_libc, have,
    kill_while_it_holds, part, skip, task_state, thread, threads,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// A frame as gdb has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    pc: u64,
    name: String,
    line: u64,
    inlined: bool,
}

/// The stacks of all threads by gdb, which stops a process for it. `target` is what gdb is given: `-p` and a
/// pid, or a program and its core.
fn by_gdb(what: &str, target: &[&str]) -> Option<BTreeMap<i64, Vec<Told>>> {
    const SCRIPT: &str = r#"
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame = gdb.newest_frame()
    while frame is not None:
        # Frames that gdb adds for functions that have jumped to others: they are on no stack.
        if frame.type() == gdb.TAILCALL_FRAME:
            frame = frame.older()
            continue
        inlined = frame.type() == gdb.INLINE_FRAME
        print("FRAME", thread.ptid[1], hex(frame.pc()), frame.find_sal().line, int(inlined), frame.name(), sep="\t")
        frame = frame.older()
"#;
    if !have(part(what), "gdb") {
        return None;
    }
    let script = tempfile::Builder::new().suffix(".py").tempfile().unwrap();
    std::fs::write(script.path(), SCRIPT).unwrap();
    let mut command = Command::new("gdb");
    command.args(["-batch", "-nx", "-ex", "set backtrace past-main on"]).args(target).arg("-x").arg(script.path());
    command.env("DEBUGINFOD_URLS", "");
    let answer = Answer::of(command);
    let mut stacks: BTreeMap<i64, Vec<Told>> = BTreeMap::new();
    for line in answer.text().lines().filter(|line| line.starts_with("FRAME\t")) {
        let fields: Vec<&str> = line.splitn(6, '\t').collect();
        let pc = u64::from_str_radix(fields[2].trim_start_matches("0x"), 16).unwrap();
        let told = Told { pc, name: fields[5].to_owned(), line: fields[3].parse().unwrap(), inlined: fields[4] == "1" };
        stacks.entry(fields[1].parse().unwrap()).or_default().push(told);
    }
    if stacks.is_empty() {
        skip(part(what), &format!("gdb shows no stacks here: {}", answer.stderr));
        return None;
    }
    Some(stacks)
}

fn frames(thread: &Value) -> &[Value] {
    thread["frames"].as_array().map_or(&[], Vec::as_slice)
}

fn is_libc(module: &Value) -> bool {
    module.as_str().is_some_and(|name| name.starts_with("libc.so") || name.starts_with("libc-2"))
}

/// Compares one of our stacks with gdb's. Frames that we show must be gdb's; whether there have to be all
/// of them is `whole`.
fn assert_same(thread: &Value, told: &[Told], whole: bool, context: &str) {
    let ours: Vec<&Value> = frames(thread).iter().filter(|frame| frame["inlined"] == false).collect();
    let theirs: Vec<&Told> = told.iter().filter(|frame| !frame.inlined).collect();
    let show = || format!("{context}\n{thread:#}\n{told:#x?}");
    assert!(!ours.is_empty(), "no frames: {}", show());
    for (frame, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(address(&frame["pc"]), theirs.pc, "{}", show());
        let Some(name) = frame["function"].as_str().filter(|_| theirs.name != "None") else { continue };
        if is_libc(&frame["module"]) || name == "<signal handler called>" {
            continue;
        }
        let base = |name: &str| name.split(['(', '<', '{']).next().unwrap_or_default().to_owned();
        let same =
            base(name) == base(&theirs.name) || name.contains(&base(&theirs.name)) || theirs.name.contains(&base(name));
        assert!(same, "{name} is {}: {}", theirs.name, show());
    }
    if whole {
        assert_eq!(thread["frames_end"]["kind"], "start", "{}", show());
        assert!(ours.len() >= theirs.len(), "frames are missing: {}", show());
    } else {
        assert!(["start", "unknown"].contains(&thread["frames_end"]["kind"].as_str().unwrap()), "{}", show());
    }
}

/// Waits until every thread sleeps: on a busy machine one may still be about to begin.
fn all_asleep(fixture: Fixture) -> Fixture {
    eventually("all threads should sleep", || {
        threads(&tool().threads(fixture.pid(), &[])).iter().all(|thread| thread["state"] == "sleep")
    });
    fixture
}

fn assert_all_same(test: &str, path: &Path, whole: bool) {
    let fixture = all_asleep(Fixture::start(path, &[]).settled());
    let snapshot = tool().threads(fixture.pid(), &["--stacks"]);
    assert_eq!(snapshot["pause_us"], 0);
    assert_eq!(snapshot["gaps"], Value::Array(Vec::new()), "{test}");
    let Some(told) = by_gdb(test, &["-p", &fixture.pid().to_string()]) else { return };
    assert_eq!(told.len(), threads(&snapshot).len());
    for (lwp, told) in told {
        assert_same(thread(&snapshot, lwp), &told, whole, test);
    }
}

#[test]
fn optimised_code_agrees_with_gdb() {
    for file in ["stack_waits.c", "stack_cxx.cc", "stack_signal.c"] {
        for flags in [&["-O2"][..], &["-O2", "-fomit-frame-pointer"], &["-O3"], &["-Os"]] {
            assert_all_same(&format!("stacks::{file} {flags:?}"), &Build::new(file).flags(flags).path(), true);
        }
    }
}

/// A core has all registers, so nothing has to be inferred, also in code that needs rbp.
#[test]
fn cores_agree_with_gdb() {
    for (file, flags) in [("stack_waits.c", "-O0"), ("stack_waits.c", "-O2"), ("stack_cxx.cc", "-O2")] {
        let test = format!("stacks::cores {file} {flags}");
        let path = Build::new(file).flags(&[flags]).path();
        for by_kernel in [false, true] {
            let mut dumpable = Dumpable::start(&path, &[]);
            dumpable.fixture = all_asleep(dumpable.fixture.settled());
            let core = if by_kernel { dumpable.kernel_core(part(&test)) } else { dumpable.gcore(part(&test)) };
            let Some(core) = core else { continue };
            let snapshot = tool().run(&["threads", &core.name(), "--stacks", "--json"]).json();
            let Some(told) = by_gdb(&test, &[&path.display().to_string(), &core.name()]) else { continue };
            for (lwp, told) in told {
                let thread = thread(&snapshot, lwp);
                assert_same(thread, &told, true, &test);
                assert!(frames(thread).iter().all(|frame| frame["evidence"] != "inferred"), "{thread:#}");
            }
        }
    }
}

#[test]
fn other_glibc_versions_agree_with_gdb() {
    let Some(roots) = GlibcRoots::find("other_glibc_versions_agree_with_gdb") else { return };
    for (version, root) in roots.iter() {
        assert_all_same(&format!("stacks::glibc {version}"), &roots.build("stack_waits.c", root), true);
    }
}

#[test]
fn frame_pointers_are_found_on_the_stack() {
    for file in ["stack_waits.c", "stack_cxx.cc", "stack_signal.c"] {
        for flags in [&["-O0"][..], &["-O0", "-fcf-protection"], &["-O2", "-fno-omit-frame-pointer"], &["-Og"]] {
            // A tail call hides the caller of a function that needs rbp: such a stack may end there.
            let whole = flags.contains(&"-O0");
            assert_all_same(&format!("stacks::{file} {flags:?}"), &Build::new(file).flags(flags).path(), whole);
        }
    }
}

#[test]
fn what_rests_on_a_found_frame_pointer_is_marked() {
    let fixture = Fixture::start(&Build::new("stack_waits.c").flags(&["-O0"]).path(), &[]).settled();
    let snapshot = tool().threads(fixture.pid(), &["--stacks"]);
    let mut seen = Vec::new();
    for thread in threads(&snapshot) {
        let evidence: Vec<&str> = frames(thread).iter().map(|frame| frame["evidence"].as_str().unwrap()).collect();
        let order = ["recorded", "derived", "inferred"];
        let ranks: Vec<_> = evidence.iter().map(|word| order.iter().position(|other| other == word).unwrap()).collect();
        assert!(ranks.is_sorted(), "evidence does not get better further out: {thread:#}");
        seen.extend(ranks);
    }
    assert!((0..3).all(|rank| seen.contains(&rank)), "{snapshot:#}");
    // Optimised code needs no conclusions.
    let fixture = Fixture::start(&Build::new("stack_waits.c").flags(&["-O2"]).path(), &[]).settled();
    for thread in threads(&tool().threads(fixture.pid(), &["--stacks"])) {
        assert!(frames(thread).iter().all(|frame| frame["evidence"] != "inferred"), "{thread:#}");
    }
}

#[test]
fn stripped_static_and_fixed_programs_agree_with_gdb() {
    for variant in [Variant::Stripped, Variant::NoPie, Variant::Static, Variant::StaticStripped] {
        let name = format!("stacks::{variant:?}");
        if variant.is_static() && !has_static_libc(part(&name)) {
            continue;
        }
        assert_all_same(&name, &Build::new("stack_waits.c").variant(variant).path(), true);
    }
}

#[test]
fn rust_programs_agree_with_gdb() {
    for flags in [&["-Copt-level=2"][..], &["-Copt-level=0"], &["-Copt-level=3", "-Cforce-frame-pointers=no"]] {
        let path = Build::new("stack_rust.rs").flags(flags).path();
        assert_all_same(&format!("stacks::rust {flags:?}"), &path, true);
        let fixture = Fixture::start(&path, &[]).settled();
        let text = tool().run(&["threads", &fixture.pid().to_string(), "--stacks"]).text();
        for name in ["stack_rust::Worker<", "::locked", "stack_rust::waiting", "stack_rust::reading"] {
            assert!(text.contains(name), "{name}: {text}");
        }
    }
}

/// The function of libc that was called, where the program has no names and libc names few.
#[test]
fn call_sites_in_libc_are_named_without_symbols() {
    let flag_sets: [&[&str]; 5] = [
        &["-O2", "-s"],
        &["-O0", "-s"],
        &["-O2", "-s", "-fno-plt"],
        &["-O2", "-s", "-Wl,-z,lazy"],
        &["-O2", "-s", "-fcf-protection"],
    ];
    for flags in flag_sets {
        let fixture = Fixture::start(&Build::new("stack_waits.c").flags(flags).path(), &[]).settled();
        let snapshot = tool().threads(fixture.pid(), &["--stacks"]);
        for truth in threads(fixture.truth()).iter().filter(|truth| truth["call"] != "") {
            let thread = thread(&snapshot, truth["lwp"].as_i64().unwrap());
            let (role, site) = (&truth["role"], &thread["call_site"]);
            assert_eq!(site["function"], truth["call"], "{flags:?} {role}: {thread:#}");
            assert_eq!(site["evidence"], "derived", "{flags:?} {role}: {thread:#}");
            let frame = frames(thread).iter().find(|frame| frame["pc"] == site["address"]);
            assert!(frame.is_some_and(|frame| !is_libc(&frame["module"])), "{role}: {thread:#}");
        }
    }
}

#[test]
fn call_sites_of_the_cxx_library() {
    for flags in [&["-O2", "-s"][..], &["-O0"]] {
        let fixture = Fixture::start(&Build::new("stack_cxx.cc").flags(flags).path(), &[]).settled();
        let mut sites = Vec::new();
        eventually("all threads of the fixture should wait", || {
            let snapshot = tool().threads(fixture.pid(), &["--stacks"]);
            sites = threads(&snapshot)
                .iter()
                .filter_map(|t| Some(t["call_site"]["function"].as_str()?.to_owned()))
                .collect();
            sites.sort();
            sites == ["pthread_cond_wait", "pthread_join", "pthread_mutex_lock", "pthread_rwlock_rdlock", "read"]
        });
    }
}

#[test]
fn deep_stacks_are_followed_and_bounded() {
    for flags in [&["-O2"][..], &["-O0"]] {
        let path = Build::new("stack_deep.c").flags(flags).path();
        for (depth, size, whole) in [("300", "16", true), ("100", "30000", true), ("5000", "16", false)] {
            let fixture = Fixture::start(&path, &[depth, size]).settled();
            let stack_of = |snapshot: &Value| {
                let found = threads(snapshot).iter().find(|thread| thread["start_function"] == "start");
                found.cloned().unwrap_or_default()
            };
            let mut thread = Value::Null;
            eventually("the fixture should sleep at its depth", || {
                thread = stack_of(&tool().threads(fixture.pid(), &["--stacks"]));
                thread["syscall"]["name"] == "clock_nanosleep" && thread["frames_end"].is_object()
            });
            let down = frames(&thread).iter().filter(|frame| frame["function"] == "down").count();
            if whole {
                assert_eq!(thread["frames_end"]["kind"], "start", "{flags:?} {depth}: {thread:#}");
                assert_eq!(down, depth.parse::<usize>().unwrap() + 1, "{flags:?} {thread:#}");
            } else {
                assert_eq!(thread["frames_end"]["kind"], "limit", "{flags:?} {thread:#}");
                assert!((500..=512).contains(&down));
            }
        }
    }
}

#[test]
fn inlined_functions_and_lines() {
    let fixture = Fixture::start(&Build::new("stack_inline.c").path(), &[]).settled();
    let truth = fixture.truth().clone();
    let mut seen = Vec::new();
    eventually("the fixture should wait", || {
        let snapshot = tool().threads(fixture.pid(), &["--stacks"]);
        let Some(thread) = threads(&snapshot).iter().find(|thread| thread["start_function"] == "start") else {
            return false;
        };
        let own =
            frames(thread).iter().filter(|frame| frame["file"].as_str().is_some_and(|f| f.ends_with("stack_inline.c")));
        seen = own.map(|f| (f["function"].clone(), f["line"].clone(), f["inlined"].clone())).collect();
        seen.len() >= 4
    });
    let expected =
        [("innermost", &truth["wait"], true), ("middle", &truth["middle"], true), ("outer", &truth["outer"], false)];
    for ((function, line, inlined), seen) in expected.iter().zip(&seen) {
        assert_eq!((&Value::from(*function), *line, &Value::from(*inlined)), (&seen.0, &seen.1, &seen.2), "{seen:?}");
    }
    assert_eq!(seen[3].0, "start");
}

/// Debug information in a file of its own: by debuglink beside the program, and by its build id only there
/// where distributions put it.
#[test]
fn separate_debug_files_are_found() {
    let test = "stacks::separate_debug_files";
    if !have(test, "objcopy") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (program, debug) = (dir.path().join("program"), dir.path().join("program.debug"));
    std::fs::copy(Build::new("stack_inline.c").flags(&["-Wl,--build-id"]).path(), &program).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new("objcopy");
        command.current_dir(dir.path()).args(args);
        let answer = Answer::of(command);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    };
    run(&["--only-keep-debug", "program", "program.debug"]);
    run(&["--strip-all", "--add-gnu-debuglink=program.debug", "program"]);
    let lines = || {
        let fixture = Fixture::start(&program, &[]).settled();
        let text = tool().run(&["threads", &fixture.pid().to_string(), "--stacks"]).text();
        text.lines().filter(|line| line.contains("stack_inline.c:")).count()
    };
    assert!(lines() >= 4);
    // One of another build is not believed.
    std::fs::copy(Build::new("stack_spin.c").flags(&["-Wl,--build-id"]).path(), &debug).unwrap();
    assert_eq!(lines(), 0);
}

#[test]
fn equal_stacks_are_shown_once_the_largest_group_first() {
    let fixture = Fixture::start(&Build::new("many.c").path(), &["40"]).settled();
    let text = tool().run(&["threads", &fixture.pid().to_string(), "--stacks"]).text();
    let counts: Vec<usize> = text
        .lines()
        .filter(|line| line.contains(" thread: ") || line.contains(" threads: "))
        .filter_map(|line| line.split(' ').next()?.parse().ok())
        .collect();
    assert!(counts.is_sorted_by(|a, b| a >= b) && counts[0] >= 39, "{counts:?}: {text}");
    assert!(text.contains("0 us pause") && text.contains("#0  "), "{text}");
}

#[test]
fn a_thousand_threads() {
    let fixture = Fixture::start(&Build::new("many.c").path(), &["1000"]).settled();
    let mut missing = Vec::new();
    eventually("all threads should wait", || {
        let snapshot = tool().threads(fixture.pid(), &["--stacks"]);
        assert_eq!(snapshot["pause_us"], 0);
        missing = threads(&snapshot).iter().filter(|thread| thread["frames_end"]["kind"] != "start").cloned().collect();
        missing.is_empty() && threads(&snapshot).len() >= 1000
    });
}

#[test]
fn running_threads_need_a_stop_and_survive_it() {
    testkit::needs_ptrace!();
    let mut fixture = Fixture::start(&Build::new("stack_spin.c").path(), &[]).settled();
    // Each has come to where it spins.
    assert_counts_go_on(&mut fixture);
    let pid = fixture.pid();
    let spins = |thread: &&Value| thread["start_function"] == "start";
    let looked = tool().threads(pid, &["--stacks"]);
    assert_eq!(looked["pause_us"], 0);
    assert!(threads(&looked).iter().filter(spins).all(|thread| frames(thread).is_empty()), "{looked:#}");
    let gap = looked["gaps"].as_array().unwrap().iter().find(|gap| gap["what"] == "stack").unwrap();
    assert!(gap["why"].as_str().unwrap().contains("--stop") && gap["lwps"].as_array().unwrap().len() == 3, "{gap}");

    let stopped = tool().threads(pid, &["--stacks", "--stop"]);
    assert!(stopped["pause_us"].as_u64().unwrap() > 0);
    assert!(stopped["longest_pause_us"].as_u64().unwrap() <= stopped["pause_us"].as_u64().unwrap());
    for thread in threads(&stopped).iter().filter(spins) {
        let names: Vec<_> = frames(thread).iter().filter_map(|frame| frame["function"].as_str()).collect();
        assert_eq!(names[..3], ["spin_inner", "spin_outer", "start"], "{thread:#}");
        assert_eq!(thread["frames_end"]["kind"], "start", "{thread:#}");
        assert!(frames(thread).iter().all(|frame| frame["evidence"] != "inferred"), "{thread:#}");
    }
    assert_counts_go_on(&mut fixture);
    // The word of the text, and the rule that only stacks need a stop.
    let text = tool().run(&["threads", &pid.to_string(), "--stacks", "--stop"]).text();
    assert!(text.contains("us pause in all"), "{text}");
    assert_eq!(tool().run(&["threads", &pid.to_string(), "--stop"]).code, Some(2));
}

fn assert_counts_go_on(fixture: &mut Fixture) {
    let mut counts = || {
        let line = fixture.ask("count");
        line.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<u64>>()
    };
    let before = counts();
    eventually("every thread should go on", || counts().iter().zip(&before).all(|(now, before)| now > before));
}

/// Whatever becomes of us, the target's threads run on.
#[test]
fn killing_the_tool_in_the_midst_of_a_stop_leaves_the_target_running() {
    testkit::needs_ptrace!();
    let mut fixture = Fixture::start(&Build::new("stack_spin.c").path(), &[]).settled();
    let pid = fixture.pid();
    let (mut kills, mut hits) = (0, 0);
    // A thread is held for a part of a millisecond: some kills come too late.
    eventually("five kills should come while a thread is held", || {
        let mut child = tool()
            .command(&["threads", &pid.to_string(), "--stacks", "--stop"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        kills += 1;
        hits += u32::from(kill_while_it_holds(&mut child, pid, || false));
        hits >= 5
    });
    eprintln!("{hits} of {kills} kills came while a thread was held");
    assert_counts_go_on(&mut fixture);
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    for task in tasks.map(|task| task.unwrap().file_name().to_string_lossy().parse::<i32>().unwrap()) {
        let letter = task_state(pid, task).unwrap().letter;
        assert!("RS".contains(letter), "thread {task} is {letter}");
    }
}

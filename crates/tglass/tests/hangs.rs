//! What `why` says of programs that hang or seem to: the verdict, the thread at the root of it, and who is behind.

use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::scenes::{DEADLOCKS, OF_CXX, OF_RUST, SCENES};
use testkit::{
    Answer, Build, Dumpable, Fixture, Signal, Tool, Value, Variant, any_of, ensure, eventually, finding_faults, part,
    signal, task_state, threads,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn why(target: &str) -> Answer {
    tool().run(&["why", target, "--json"])
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map_or(&[], Vec::as_slice)
}

/// What differs between the truth of a scene and an answer; names are looked for only if there are any.
fn faults(truth: &Value, snapshot: &Value, has_names: bool) -> Vec<String> {
    let (wanted, verdict) = (truth["verdict"].as_str().unwrap(), &snapshot["verdict"]);
    let text = verdict["text"].as_str().unwrap_or_default();
    let kind = verdict["kind"].as_str().unwrap_or_default();
    let mut faults = Vec::new();
    let is_right = match wanted {
        // Whatever one look sees of it, it goes on, and nobody waits for a thread that waits for the same.
        "moves" => {
            ["behind", "busy", "idle", "unknown"].contains(&kind)
                && !(text.contains("which holds") && text.contains("futex"))
        }
        "other_process" if !snapshot["target"]["core"].is_null() => kind == "idle",
        // A core does not tell who has the other end of a pipe.
        "own_pipe" if !snapshot["target"]["core"].is_null() => kind == "behind",
        "own_pipe" => kind == "nobody_left",
        wanted => kind == wanted,
    };
    if !is_right {
        faults.push(format!("the verdict is to be {wanted}"));
    }
    faults.extend(root_fault(truth, snapshot));
    let name = truth["name"].as_str().unwrap_or_default();
    // On a busy machine no sample may find a thread that is to run.
    if has_names && !text.contains(name) && !text.contains("gets no CPU") {
        faults.push(format!("it does not name {name}"));
    }
    let words = truth["words"].as_str().unwrap_or_default();
    // Only names tell what a word is of C++.
    let is_bare = !has_names && truth["name"] == "" && text.contains("waits on futex");
    if !text.contains(words) && !is_bare {
        faults.push(format!("it does not say `{words}`"));
    }
    if kind == "deadlock" && verdict["certainty"] == "certain" {
        faults.push("who reads is not recorded, so this is not certain".to_owned());
    }
    faults.into_iter().map(|fault| format!("{fault}: {verdict}\n{truth}\n{:#}", snapshot["findings"])).collect()
}

/// Whether the first finding has another root, object or number of threads than the truth.
fn root_fault(truth: &Value, snapshot: &Value) -> Option<String> {
    let first = list(snapshot, "findings").first().unwrap_or(&Value::Null);
    let (members, objects) = (list(first, "threads"), list(first, "objects"));
    let behind = list(first, "behind").len();
    let (root, object, waiting) = match truth["verdict"].as_str()? {
        "behind" | "own_pipe" => {
            (members.last().cloned(), objects.last().cloned(), (members.len() + behind).saturating_sub(1))
        }
        "deadlock" => {
            // Who comes first in a circle is nobody's choice.
            let at = members.iter().position(|member| *member == truth["root"]);
            (at.map(|at| members[at].clone()), at.and_then(|at| objects.get(at).cloned()), members.len())
        }
        "nobody_left" => (Some(0.into()), objects.first().cloned(), members.len()),
        "busy" => {
            let runs = |thread: &&Value| thread["state"] == "active" || thread["state"] == "run";
            let running: Vec<&Value> = threads(snapshot).iter().filter(runs).collect();
            (running.first().map(|thread| thread["lwp"].clone()), None, 0)
        }
        _ => return None,
    };
    let seen = (root.unwrap_or_default(), object.unwrap_or_default(), Value::from(waiting));
    let told = (truth["root"].clone(), truth["object"].clone(), truth["waiting"].clone());
    (seen != told).then(|| format!("root, object and number of waiters are {seen:?}"))
}

/// The first line of the text, below what process it is about.
fn first_line_fault(truth: &Value, target: &str) -> Option<String> {
    let text = tool().run(&["why", target]).text();
    let word = match truth["verdict"].as_str()? {
        "deadlock" => "DEADLOCK",
        "nobody_left" | "own_pipe" => "NOBODY LEFT",
        "behind" => "WAITS BEHIND",
        "busy" => "BUSY",
        "idle" => "IDLE",
        "unknown" => "NOT KNOWN",
        "other_process" => "WAITS FOR ANOTHER PROCESS",
        _ => return None,
    };
    let line = text.split("\n\n").nth(1).and_then(|verdict| verdict.lines().next()).unwrap_or_default();
    (!line.starts_with(word)).then(|| format!("the first line is to begin with {word}: {text}"))
}

/// Whether threads hang for certain. Why they do may be only likely.
fn hangs_for_certain(snapshot: &Value) -> bool {
    let kinds = ["deadlock", "self_deadlock", "owner_exited", "nobody_left", "cond_without_signaller"];
    list(snapshot, "findings")
        .iter()
        .any(|finding| finding["certainty"] == "certain" && kinds.iter().any(|kind| finding["kind"] == *kind))
}

/// Looks at scenes as they run.
fn alive(program: &Path, scenes: &[&str], has_names: bool) {
    let mut wrong = Vec::new();
    for scene in scenes {
        let fixture = Fixture::start(program, &[scene]).settled();
        let (truth, target) = (fixture.truth(), fixture.pid().to_string());
        let answer = why(&target);
        let mut faults = faults(truth, &answer.json(), has_names);
        faults.extend(first_line_fault(truth, &target));
        if answer.code != Some(i32::from(hangs_for_certain(&answer.json()))) {
            faults.push(format!("it exits with {:?}: {} {}", answer.code, answer.json()["findings"], answer.stderr));
        }
        wrong.extend(faults.into_iter().map(|fault| format!("{scene}, {}: {fault}", program.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn programs_of_c() {
    alive(&Build::new("hangs.c").variant(Variant::Default).path(), &SCENES, true);
}

#[test]
fn programs_of_cxx_and_rust() {
    alive(&Build::new("hangs_cxx.cc").variant(Variant::Default).path(), &OF_CXX, true);
    alive(&Build::new("hangs_rust.rs").path(), &OF_RUST, true);
}

/// A copy of a program that `strip` has taken something from.
fn stripped(program: &Path, option: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join(program.file_name().unwrap());
    let done = Command::new("strip").arg(option).arg("-o").args([&copy, program]).status().unwrap();
    assert!(done.success());
    (dir, copy)
}

#[test]
fn without_debug_information() {
    for (file, scenes) in [("hangs.c", &SCENES[..]), ("hangs_cxx.cc", &OF_CXX), ("hangs_rust.rs", &OF_RUST)] {
        let (_dir, program) = stripped(&Build::new(file).path(), "-g");
        alive(&program, scenes, true);
    }
}

#[test]
fn without_symbols() {
    for (file, scenes) in [("hangs.c", &SCENES[..]), ("hangs_cxx.cc", &OF_CXX)] {
        let (_dir, program) = stripped(&Build::new(file).path(), "-s");
        alive(&program, scenes, false);
    }
}

/// What a snapshot says that a core has to say too. Only a process tells whether a handler of a signal could wake threads,
/// and which other process has the other end of a pipe.
fn told(snapshot: &Value) -> Value {
    let certainty = |of: &Value| {
        let is_unwoken = ["nobody_left", "cond_without_signaller"].iter().any(|kind| of["kind"] == *kind);
        if is_unwoken { "any".into() } else { of["certainty"].clone() }
    };
    let fields = ["kind", "threads", "objects", "behind"];
    let finding = |finding: &Value| (certainty(finding), fields.map(|field| finding[field].clone()));
    let verdict = &snapshot["verdict"];
    let kind = if verdict["kind"] == "other_process" { "idle".into() } else { verdict["kind"].clone() };
    let findings: Vec<_> = list(snapshot, "findings").iter().map(finding).collect();
    serde_json::json!({ "verdict": [kind, certainty(verdict)], "findings": findings })
}

/// Looks at a scene as it runs, and at its core; what differs.
fn in_core(program: &Path, scene: &str, has_names: bool, by_kernel: bool) -> Vec<String> {
    let writer = if by_kernel { "kernel" } else { "gcore" };
    let context = format!("{scene} of {}, {writer}", program.display());
    let mut dumpable = Dumpable::start(program, &[scene]);
    dumpable.fixture = dumpable.fixture.settled();
    let truth = dumpable.fixture.truth().clone();
    let live = why(&dumpable.fixture.pid().to_string());
    let core = if by_kernel { dumpable.kernel_core(part(&context)) } else { dumpable.gcore(part(&context)) };
    let Some(core) = core else { return Vec::new() };
    let dead = why(&core.name());
    let mut faults = match truth["verdict"].is_string() {
        true => faults(&truth, &dead.json(), has_names),
        false => finding_faults(&truth, &dead.json()),
    };
    let (then, now) = (told(&live.json()), told(&dead.json()));
    let may_differ = ["moves", "own_pipe"].iter().any(|verdict| truth["verdict"] == *verdict);
    if !may_differ && then != now {
        faults.push(format!("it was {then}, is {now}"));
    }
    // What only a process tells is listed.
    let gaps = dead.json()["gaps"].to_string();
    for lost in [
        "what descriptors refer to",
        "how long threads have waited",
        "which signals have handlers",
        "other ends of pipes",
    ] {
        if !gaps.contains(lost) {
            faults.push(format!("`{lost}` is not among what is not seen: {gaps}"));
        }
    }
    faults.into_iter().map(|fault| format!("{context}: {fault}")).collect()
}

fn in_cores(file: &str, flags: &[&str], scenes: &[&str]) {
    in_cores_of(&Build::new(file).flags(flags).path(), scenes, true);
}

fn in_cores_of(program: &Path, scenes: &[&str], has_names: bool) {
    let each = scenes.iter().flat_map(|scene| [false, true].map(|by_kernel| (scene, by_kernel)));
    let wrong: Vec<String> =
        each.flat_map(|(scene, by_kernel)| in_core(program, scene, has_names, by_kernel)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn cores_of_c_not_optimised() {
    in_cores("hangs.c", &["-O0"], &SCENES);
    in_cores("deadlocks.c", &["-O0"], &DEADLOCKS);
}

#[test]
fn cores_of_c_optimised_a_little() {
    in_cores("hangs.c", &["-O1"], &SCENES);
    in_cores("deadlocks.c", &["-O1"], &DEADLOCKS);
}

#[test]
fn cores_of_c_optimised() {
    in_cores("hangs.c", &["-O2"], &SCENES);
    in_cores("deadlocks.c", &["-O2"], &DEADLOCKS);
}

#[test]
fn cores_without_debug_information() {
    for (option, has_names) in [("-g", true), ("-s", false)] {
        let (_dir, program) = stripped(&Build::new("hangs.c").path(), option);
        in_cores_of(&program, &SCENES, has_names);
    }
}

#[test]
fn cores_of_cxx() {
    for level in ["-O0", "-O1", "-O2"] {
        in_cores("hangs_cxx.cc", &[level], &OF_CXX);
    }
}

#[test]
fn cores_of_rust() {
    in_cores("hangs_rust.rs", &[], &OF_RUST);
    in_cores("hangs_rust.rs", &["-Copt-level=1"], &OF_RUST);
    // Who reads a lock is not found in a program of Rust that is not optimised: neither alive nor in a core.
    in_cores("hangs_rust.rs", &["-Copt-level=0"], &OF_RUST[..5]);
}

/// Threads that try again and again to lock a mutex that nobody lets go of: each wait is short, but no lock is handed over.
#[test]
fn timed_waits_that_repeat() {
    let fixture = Fixture::start(&Build::new("hangs.c").path(), &["tried_again"]);
    any_of(20, || {
        let verdict = why(&fixture.pid().to_string()).json()["verdict"].clone();
        let text = verdict["text"].as_str().unwrap_or_default();
        assert!(!text.contains("from thread to thread"), "{text}");
        ensure(text.contains("which holds mutex log_lock and is sleeping for a time"), || verdict.to_string())
    });
}

/// A call that was interrupted goes on as another one, `restart_syscall`; it is told as the one that the program made.
#[test]
fn calls_that_were_interrupted() {
    let mut dumpable = Dumpable::start(&Build::new("hangs.c").path(), &["behind_sleep"]);
    dumpable.fixture = dumpable.fixture.settled();
    let (pid, root) = (dumpable.fixture.pid(), dumpable.fixture.truth()["root"].clone());
    stop(pid);
    signal(pid, Signal::SIGCONT);
    let call = format!("/proc/{pid}/task/{root}/syscall");
    // The number of restart_syscall.
    let goes_on = || std::fs::read_to_string(&call).is_ok_and(|call| call.starts_with("219 "));
    eventually("the call should go on", goes_on);
    let truth = dumpable.fixture.truth().clone();
    let live = why(&pid.to_string()).json();
    assert_eq!(faults(&truth, &live, true), Vec::<String>::new());
    let Some(core) = dumpable.kernel_core("hangs::calls_that_were_interrupted") else { return };
    assert_eq!(faults(&truth, &why(&core.name()).json(), true), Vec::<String>::new());
}

/// A core has no names of threads, and leaves no empty place for them.
#[test]
fn the_screen_of_a_core() {
    let dumpable = Dumpable::start(&Build::new("hangs.c").path(), &["several_roots"]);
    let Some(core) = dumpable.gcore("hangs::the_screen_of_a_core") else { return };
    let text = tool().run(&["why", &core.name()]).text();
    assert!(text.contains("behind: ") && text.contains("the end of thread "), "{text}");
    assert!(!text.contains("()") && !text.contains("join at"), "{text}");
}

/// What is behind the code of a program in its last page is in the file too, and so in the process.
#[test]
fn a_program_smaller_than_a_page() {
    for level in ["-O0", "-O1", "-O2"] {
        let program = Build::new("rw_circle.c").flags(&[level]).path();
        for by_kernel in [false, true] {
            let what = format!("hangs::a_program_smaller_than_a_page {level}, kernel: {by_kernel}");
            let dumpable = Dumpable::start(&program, &[]);
            let live = why(&dumpable.fixture.pid().to_string()).json();
            assert_eq!(live["verdict"]["kind"], "deadlock", "{level}: {live:#}");
            let core = if by_kernel { dumpable.kernel_core(part(&what)) } else { dumpable.gcore(part(&what)) };
            let Some(core) = core else { continue };
            let dead = why(&core.name()).json();
            assert_eq!(told(&live), told(&dead), "{what}: {dead:#}");
        }
    }
}

/// A thread that waits in a signal handler is shown to do so.
#[test]
fn a_handler_is_told_as_one() {
    let fixture = Fixture::start(&Build::new("hangs.c").path(), &["in_handler"]).settled();
    let snapshot = why(&fixture.pid().to_string()).json();
    let finding = &list(&snapshot, "findings")[0];
    let waiter = testkit::thread(&snapshot, finding["threads"][0].as_i64().unwrap());
    let frames = list(waiter, "frames");
    let in_handler = frames.iter().position(|frame| frame["function"] == "handler").expect("its frame");
    assert_eq!(frames[in_handler + 1]["function"], "<signal handler called>", "{waiter:#}");
    let text = tool().run(&["why", &fixture.pid().to_string()]).text();
    let (handler, called) = (text.find(" handler+0x"), text.find("<signal handler called>"));
    assert!(handler.is_some() && handler < called, "{text}");
}

/// An address between two mappings of a program is not in the program.
#[test]
fn a_program_that_is_mapped_twice() {
    let program = Build::new("hangs.c").path();
    let check = |target: &str| {
        let snapshot = why(target).json();
        let name = list(&snapshot, "objects")[0]["name"].as_str().unwrap();
        assert!(name.starts_with("heap") || name.starts_with("[anon]"), "{target}: {name}");
    };
    let dumpable = Dumpable::start(&program, &["mapped_twice"]);
    check(&dumpable.fixture.pid().to_string());
    if let Some(core) = dumpable.kernel_core(part("hangs::a_program_that_is_mapped_twice, kernel")) {
        check(&core.name());
    }
}

/// A program that was started through a link has the name of that, as its process has.
#[test]
fn a_program_that_was_started_through_a_link() {
    let (dir, program) = stripped(&Build::new("hangs.c").path(), "-s");
    let link = dir.path().join("linked-program");
    std::os::unix::fs::symlink(&program, &link).unwrap();
    let check = |target: &str| {
        let snapshot = why(target).json();
        let name = list(&snapshot, "objects")[0]["name"].as_str().unwrap();
        assert!(name.starts_with("linked-program+0x"), "{target}: {name}");
    };
    let dumpable = Dumpable::start(&link, &["behind_read"]);
    check(&dumpable.fixture.pid().to_string());
    if let Some(core) = dumpable.kernel_core(part("hangs::a_program_that_was_started_through_a_link, kernel")) {
        check(&core.name());
    }
}

/// Nothing is certain that rests on what was inferred, as of a core without the stacks of its threads.
#[test]
fn cores_that_are_cut_short() {
    let program = Build::new("deadlocks.c").path();
    let dumpable = Dumpable::start(&program, &["abba"]);
    let Some(core) = dumpable.kernel_core("hangs::cores_that_are_cut_short") else { return };
    let bytes = std::fs::read(core.path()).unwrap();
    let cut = core.dir().join("cut");
    let mut inferred = 0;
    for part in (1..20).rev() {
        std::fs::write(&cut, &bytes[..bytes.len() / 20 * part]).unwrap();
        let answer = why(cut.to_str().unwrap());
        if answer.code == Some(2) {
            continue;
        }
        let snapshot = answer.json();
        for finding in list(&snapshot, "findings") {
            let about = |object: &&Value| list(finding, "objects").contains(&object["address"]);
            let objects = list(&snapshot, "objects").iter().filter(about);
            let rests_on_guess = objects.clone().any(|object| object["evidence"] == "inferred");
            inferred += usize::from(rests_on_guess);
            assert!(!rests_on_guess || finding["certainty"] != "certain", "{part} of 20: {snapshot:#}");
        }
        let certain = list(&snapshot, "findings").iter().any(|it| testkit::is_hang(it) && it["certainty"] == "certain");
        assert_eq!(answer.code, Some(i32::from(certain)), "{part} of 20");
    }
    assert!(inferred > 0, "no cut leaves a circle of inferred locks");
}

/// Two locks with different numbers of threads behind: both are told, the worse first, and main's join hides neither.
#[test]
fn several_roots_by_rank() {
    let fixture = Fixture::start(&Build::new("hangs.c").path(), &["several_roots"]).settled();
    let snapshot = why(&fixture.pid().to_string()).json();
    let chains = list(&snapshot, "findings").iter().filter(|finding| finding["kind"] == "long_chain");
    let behind = |chain: &Value| list(chain, "threads").len() - 1 + list(chain, "behind").len();
    assert_eq!(chains.map(behind).collect::<Vec<_>>(), [21, 5], "{:#}", snapshot["findings"]);
}

/// Stops a process, and waits until all its threads have stopped.
fn stop(pid: i32) {
    signal(pid, Signal::SIGSTOP);
    eventually("all threads should stop", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let stopped = |lwp| task_state(pid, lwp).is_some_and(|task| task.letter == 'T');
        tasks.map(|task| task.file_name().to_string_lossy().parse().unwrap()).all(stopped)
    });
}

/// The screen of a stopped deadlock tells of both, and the end of a thread is no lock.
#[test]
fn a_deadlock_that_was_stopped() {
    let fixture = Fixture::start(&Build::new("deadlocks.c").path(), &["join_mutex"]).settled();
    let pid = fixture.pid();
    stop(pid);
    let screen = tool().run(&["why", &pid.to_string()]).text();
    signal(pid, Signal::SIGCONT);
    assert!(screen.contains("DEADLOCK  2 threads, 1 lock."), "{screen}");
    assert!(screen.contains("STOPPED  all threads are stopped by job control"), "{screen}");
    assert!(screen.contains(&format!("way out: kill -CONT {pid}")), "{screen}");
}

/// A stop is told first where nothing else is wrong, and never hides a deadlock.
#[test]
fn stopped_programs() {
    let program = Build::new("hangs.c").path();
    for (scene, kind) in [("behind_read", "stopped"), ("rw_circle", "deadlock"), ("busy", "stopped")] {
        let fixture = Fixture::start(&program, &[scene]).settled();
        let pid = fixture.pid();
        stop(pid);
        let snapshot = why(&pid.to_string()).json();
        let verdict = &snapshot["verdict"];
        assert_eq!(verdict["kind"], kind, "{scene}: {verdict:#}");
        assert!(verdict["text"].as_str().unwrap().contains("stopped"), "{scene}: {verdict:#}");
        assert_eq!(verdict["way_out"], format!("kill -CONT {pid}"), "{scene}");
        assert!(threads(&snapshot).iter().all(|thread| thread["stop"]["kind"] == "job_control"), "{snapshot:#}");
        signal(pid, Signal::SIGCONT);

        let tracer = Fixture::start(&Build::new("tracer.c").path(), &[&pid.to_string()]);
        let snapshot = why(&pid.to_string()).json();
        let verdict = &snapshot["verdict"];
        assert_eq!(verdict["kind"], kind, "{scene}: {verdict:#}");
        assert!(verdict["text"].as_str().unwrap().contains(&tracer.pid().to_string()), "{scene}: {verdict:#}");
        assert!(threads(&snapshot).iter().all(|thread| thread["stop"]["kind"] == "traced"), "{snapshot:#}");
    }
}

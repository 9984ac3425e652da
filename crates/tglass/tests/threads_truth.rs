//! `tglass threads` against what each thread says of itself.

use testkit::{Build, Fixture, Tool, Variant, View, differences, eventually, file_at_pc, has_static_libc, threads};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn agrees(variant: Variant) {
    if variant.is_static() && !has_static_libc(&format!("threads_truth::{variant:?}")) {
        return;
    }
    let fixture = Fixture::start(&Build::new("threads_truth.c").variant(variant).path(), &[]).settled();
    let view = View { symbols: variant.has_symbols(), inner: false };
    let mut faults = Vec::new();
    // Repeated for the spinner alone: on a busy machine it may have to wait for a CPU.
    eventually("the spinner should get a CPU", || {
        faults = differences(fixture.truth(), &tool().threads(fixture.pid(), &[]), view);
        faults.iter().all(|fault| !fault.starts_with("spinner: state is \"active\", seen as \"run\""))
    });
    assert!(faults.is_empty(), "{variant:?}:\n{}", faults.join("\n"));

    let snapshot = tool().threads(fixture.pid(), &[]);
    let exe = std::fs::read_link(format!("/proc/{}/exe", fixture.pid())).unwrap().to_string_lossy().into_owned();
    for thread in threads(&snapshot).iter().filter(|thread| thread["state"] == "sleep") {
        let file = file_at_pc(fixture.pid(), thread);
        let home =
            if variant.is_static() { file == exe } else { file.contains("/libc.so") || file.contains("/libc-2") };
        assert!(home, "{} sleeps in {file}", thread["name"]);
    }
}

#[test]
fn position_independent() {
    agrees(Variant::Default);
}

#[test]
fn at_a_fixed_address() {
    agrees(Variant::NoPie);
}

#[test]
fn stripped() {
    agrees(Variant::Stripped);
}

#[test]
fn static_with_symbols() {
    agrees(Variant::Static);
}

#[test]
fn static_without_symbols() {
    agrees(Variant::StaticStripped);
}

/// A program without symbols must not get names that are not its own.
#[test]
fn stripped_start_functions_are_told_by_module_and_offset() {
    let path = Build::new("threads_truth.c").variant(Variant::Stripped).path();
    let fixture = Fixture::start(&path, &[]).settled();
    let module = path.file_name().unwrap().to_string_lossy().into_owned();
    let snapshot = tool().threads(fixture.pid(), &[]);
    for thread in threads(&snapshot).iter().filter(|thread| !thread["start"].is_null()) {
        let name = thread["start_function"].as_str().unwrap_or_default();
        assert!(name.starts_with(&format!("{module}+0x")), "{name}");
    }
}

#[test]
fn signals_pending_for_the_whole_process() {
    let fixture = Fixture::new("pending.c").settled();
    let snapshot = tool().threads(fixture.pid(), &[]);
    assert_eq!(snapshot["target"]["shared_pending"], fixture.truth()["shared"]);
    for thread in threads(&snapshot) {
        let own = &fixture.truth()["own"][thread["lwp"].to_string()];
        assert_eq!(&thread["pending"], own, "{}", thread["lwp"]);
    }
}

#[test]
fn start_functions_of_cxx_are_told_as_their_author_wrote_them() {
    if !testkit::have("start_functions_of_cxx_are_told_as_their_author_wrote_them", "c++") {
        return;
    }
    let fixture = Fixture::new("cxx_names.cc").settled();
    let snapshot = tool().threads(fixture.pid(), &[]);
    let thread = testkit::thread(&snapshot, fixture.truth()["lwp"].as_i64().unwrap());
    assert_eq!(thread["start_function"], fixture.truth()["function"]);
}

/// The main thread's stack is what its limit and the mapping below leave of it.
#[test]
fn the_main_stack_under_other_limits() {
    let program = Build::new("threads_truth.c").variant(Variant::Default).path();
    for limit in ["256", "1000000", "unlimited"] {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &format!("ulimit -s {limit} 2>/dev/null; exec {}", program.display())]);
        let fixture = Fixture::command(command).settled();
        let snapshot = tool().threads(fixture.pid(), &[]);
        let truth = threads(fixture.truth()).iter().find(|truth| truth["role"] == "main").unwrap();
        assert_eq!(testkit::thread(&snapshot, fixture.pid().into())["stack"], truth["stack"], "ulimit -s {limit}");
    }
}

/// A static program begins to use its stack before libc notes where it is: at the start of a page that makes a
/// difference.
#[test]
fn a_main_stack_that_begins_with_a_page() {
    if !has_static_libc("a_main_stack_that_begins_with_a_page") {
        return;
    }
    for variant in [Variant::Default, Variant::Static, Variant::StaticStripped] {
        let program = Build::new("threads_truth.c").variant(variant).path();
        let (mut fixture, mut over, mut pad) = (None, 1, 0);
        // What is above the initial stack pointer is kept at a multiple of 16: the first try may miss by that.
        for _ in 0..4 {
            let mut command = std::process::Command::new("setarch");
            command.arg("-R").arg(&program).env_clear().env("PAD", "x".repeat(pad));
            let started = Fixture::command(command).settled();
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", started.pid())).unwrap();
            let initial: usize = stat.rsplit_once(") ").unwrap().1.split(' ').nth(25).unwrap().parse().unwrap();
            fixture = Some(started);
            over = initial % 4096;
            pad += over;
        }
        let fixture = fixture.filter(|_| over == 0).expect("a stack that begins with a page");
        let snapshot = tool().threads(fixture.pid(), &[]);
        let truth = threads(fixture.truth()).iter().find(|truth| truth["role"] == "main").unwrap();
        assert_eq!(testkit::thread(&snapshot, fixture.pid().into())["stack"], truth["stack"], "{variant:?}");
    }
}

/// So many that they are read by several readers and in several batches.
#[test]
fn all_of_many_threads() {
    let fixture = Fixture::start(&Build::new("many.c").variant(Variant::Default).path(), &["1500"]).settled();
    let snapshot = tool().threads(fixture.pid(), &[]);
    let told = fixture.truth().as_object().unwrap();
    assert_eq!(threads(&snapshot).len(), told.len());
    let wrong: Vec<_> = threads(&snapshot)
        .iter()
        .filter(|thread| told.get(&thread["lwp"].to_string()) != Some(&thread["id"]) || thread["state"] != "sleep")
        .collect();
    assert!(wrong.is_empty(), "{} of {}, the first: {:#}", wrong.len(), told.len(), wrong[0]);
    assert_eq!(snapshot["gaps"].as_array().map(Vec::len), Some(0), "{:#}", snapshot["gaps"]);
}

#[test]
fn a_thread_that_libc_made_for_itself() {
    let fixture = Fixture::new("timer_thread.c").settled();
    let snapshot = tool().threads(fixture.pid(), &[]);
    let kind = |main: bool| {
        let found = threads(&snapshot).iter().find(|thread| (thread["lwp"] == fixture.pid()) == main);
        found.unwrap_or_else(|| panic!("two threads: {snapshot:#}"))["type"].clone()
    };
    assert_eq!((kind(true), kind(false)), ("user".into(), "system".into()));
}

#[test]
fn a_thread_that_runs_at_anothers_priority() {
    let fixture = Fixture::new("boosted.c").settled();
    let lwp = |role: &str| fixture.truth()[role].as_i64().unwrap();
    if lwp("waiter") < 0 {
        return testkit::skip("a_thread_that_runs_at_anothers_priority", "real-time scheduling is not permitted");
    }
    let snapshot = tool().threads(fixture.pid(), &[]);
    let seen = |role: &str| testkit::thread(&snapshot, lwp(role));
    assert_eq!((&seen("holder")["inherited_priority"], &seen("holder")["priority"]), (&true.into(), &0.into()));
    assert_eq!((&seen("waiter")["inherited_priority"], &seen("waiter")["priority"]), (&false.into(), &30.into()));
    assert_eq!(testkit::thread(&snapshot, fixture.pid().into())["inherited_priority"], false);
}

/// Containers often filter process_vm_readv; the kernel's older ways, a file each, still tell everything.
#[test]
fn without_the_newer_calls_the_answer_is_the_same() {
    let test = "without_the_newer_calls_the_answer_is_the_same";
    if !testkit::have(test, "strace") {
        return;
    }
    let fixture = Fixture::new("threads_truth.c").settled();
    let mut faults = Vec::new();
    testkit::eventually("the spinner should get a CPU", || {
        let mut command = std::process::Command::new("strace");
        command.args(["-f", "-o", "/dev/null", "-e", "trace=process_vm_readv,ioctl,bpf"]);
        for call in ["process_vm_readv:error=EPERM", "ioctl:error=ENOTTY", "bpf:error=EPERM"] {
            command.arg("-e").arg(format!("inject={call}"));
        }
        command.arg(env!("CARGO_BIN_EXE_tglass")).args(["threads", &fixture.pid().to_string(), "--json"]);
        let answer = testkit::Answer::of(command);
        if answer.stderr.contains("PTRACE_TRACEME") {
            testkit::skip(test, "strace may not trace here (ptrace is not permitted)");
            faults.clear();
            return true;
        }
        faults = differences(fixture.truth(), &answer.json(), View::PLAIN);
        faults.iter().all(|fault| !fault.starts_with("spinner: state is \"active\", seen as \"run\""))
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

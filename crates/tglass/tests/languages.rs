//! Programs of languages with threads and locks of their own: Python, Java, JavaScript.
//!
//! `TG_PYTHONS` names interpreters to try, separated by colons; else it is the one that `PATH` finds.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;
use testkit::{Build, Dumpable, Fixture, Tool, Variant, eventually, have, is_hang, part};
use threadglass::model::{Certainty, VerdictKind};
use threadglass::target::Live;
use threadglass::{Pid, look};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn fixture_file(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name).to_string_lossy().into_owned()
}

/// The interpreters to try; none (and a skip) where there is none.
fn pythons(test: &str) -> Vec<PathBuf> {
    if let Ok(list) = std::env::var("TG_PYTHONS") {
        return list.split(':').map(PathBuf::from).collect();
    }
    if have(test, "python3") { vec![PathBuf::from("python3")] } else { Vec::new() }
}

fn python(interpreter: &Path, mode: &str) -> Fixture {
    Fixture::start(interpreter, &[&fixture_file("languages.py"), mode])
}

/// Options by which the virtual machine stays small, and leaves SIGQUIT to the kernel.
const SMALL: [&str; 5] =
    ["-Xmx24m", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=16m", "-XX:CompressedClassSpaceSize=16m", "-Xrs"];

/// The arguments for a mode of the Java fixture; `None` (and a skip) without a compiler.
fn java_arguments(test: &str, mode: &str) -> Option<Vec<String>> {
    static CLASSES: OnceLock<TempDir> = OnceLock::new();
    if !have(test, "java") || !have(test, "javac") {
        return None;
    }
    let classes = CLASSES.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let status = Command::new("javac").arg("-d").arg(dir.path()).arg(fixture_file("Languages.java")).status();
        assert!(status.expect("javac runs").success());
        dir
    });
    let classes = classes.path().to_string_lossy().into_owned();
    Some(
        SMALL
            .iter()
            .map(|option| (*option).to_owned())
            .chain(["-cp".into(), classes, "Languages".into(), mode.into()])
            .collect(),
    )
}

fn java(test: &str, mode: &str) -> Option<Fixture> {
    let arguments = java_arguments(test, mode)?;
    Some(Fixture::start(Path::new("java"), &arguments.iter().map(String::as_str).collect::<Vec<_>>()))
}

fn why(target: &str) -> Value {
    // The exit status tells of a hang.
    tool().run(&["why", target, "--json"]).json()
}

fn numbers(value: &Value) -> Vec<i64> {
    let mut numbers: Vec<i64> = value.as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    numbers.sort_unstable();
    numbers
}

/// The LWPs of the threads that have these names.
fn named(snapshot: &Value, names: &Value) -> Vec<i64> {
    let one = std::slice::from_ref(names);
    let names = names.as_array().map_or(one, Vec::as_slice);
    let threads = snapshot["threads"].as_array().expect("threads").iter();
    let mut lwps: Vec<i64> =
        threads.filter(|thread| names.contains(&thread["name"])).filter_map(|thread| thread["lwp"].as_i64()).collect();
    lwps.sort_unstable();
    lwps
}

/// The threads of the only hang, which must be certain.
fn certain_hang(snapshot: &Value) -> Option<Vec<i64>> {
    let hangs: Vec<&Value> = snapshot["findings"].as_array()?.iter().filter(|finding| is_hang(finding)).collect();
    match hangs.as_slice() {
        [hang] if hang["certainty"] == "certain" => Some(numbers(&hang["threads"])),
        _ => None,
    }
}

fn waits_for(snapshot: &Value, lwp: i64) -> &Value {
    &testkit::thread(snapshot, lwp)["waits_for"]
}

/// What the object at the address of a wait is.
fn family_of(snapshot: &Value, waits: &Value) -> String {
    let objects = snapshot["objects"].as_array().expect("objects");
    let object = objects.iter().find(|object| object["address"] == waits["address"]);
    object.map_or_else(String::new, |object| object["family"].as_str().unwrap_or_default().to_owned())
}

fn verdict(snapshot: &Value) -> (&str, &str) {
    let part = |name: &str| snapshot["verdict"][name].as_str().expect("a verdict");
    (part("kind"), part("text"))
}

/// A circle of two threads: running, and in cores of both writers. A thread that a debugger stops may be awake just then: for
/// cores there is another mode.
fn circle_everywhere(test: &str, interpreter: &Path, mode: &str, core_mode: &str) {
    let script = fixture_file("languages.py");
    let fixture = python(interpreter, mode);
    let circle = numbers(&fixture.truth()["circle"]);
    eventually("the circle should be found", || certain_hang(&why(&fixture.pid().to_string())) == Some(circle.clone()));
    for writer in ["gcore", "kernel"] {
        let dumped = Dumpable::start(interpreter, &[&script, core_mode]);
        let circle = numbers(&dumped.fixture.truth()["circle"]);
        let pid = dumped.fixture.pid();
        eventually("the threads should wait", || certain_hang(&why(&pid.to_string())).is_some());
        let core = if writer == "gcore" { dumped.gcore(part(test)) } else { dumped.kernel_core(part(test)) };
        let Some(core) = core else { continue };
        let snapshot = why(&core.name());
        assert_eq!(certain_hang(&snapshot), Some(circle), "{writer} {interpreter:?}: {:#}", snapshot["findings"]);
        let tool = snapshot["runtimes"][0]["tool"].as_str().expect("a tool");
        assert!(tool.starts_with("pystack core") && tool.contains(&core.name()), "{tool}");
    }
}

#[test]
fn a_circle_of_python_rlocks() {
    for interpreter in pythons("a_circle_of_python_rlocks") {
        circle_everywhere("python_rlocks", &interpreter, "rlocks", "rlocks");
    }
}

#[test]
fn a_circle_of_the_gil_and_a_mutex() {
    for interpreter in pythons("a_circle_of_the_gil_and_a_mutex") {
        circle_everywhere("gil_and_mutex", &interpreter, "gil_and_mutex", "gil_and_mutex_calm");
    }
}

#[test]
fn who_has_the_gil() {
    for interpreter in pythons("who_has_the_gil") {
        let fixture = python(&interpreter, "gil");
        let holder = fixture.truth()["holder"].as_i64().expect("a holder");
        eventually("threads should wait for the GIL behind the one that keeps it", || {
            let snapshot = why(&fixture.pid().to_string());
            let (kind, text) = verdict(&snapshot);
            kind == "behind"
                && text.contains(&format!("({holder}), which holds the GIL and is sleeping"))
                && numbers(&fixture.truth()["waiting"]).iter().any(|lwp| {
                    let waits = waits_for(&snapshot, *lwp);
                    family_of(&snapshot, waits) == "gil" && numbers(&waits["held_by"]) == [holder]
                })
        });
    }
}

/// Python does not record who has a plain lock: nobody is named, and the process is not called idle.
#[test]
fn plain_python_locks_name_nobody() {
    for interpreter in pythons("plain_python_locks_name_nobody") {
        let fixture = python(&interpreter, "locks");
        let waiting = numbers(&fixture.truth()["waiting"]);
        let pid = fixture.pid().to_string();
        eventually("both should be seen to wait for Python locks", || {
            let snapshot = why(&pid);
            waiting.iter().all(|lwp| family_of(&snapshot, waits_for(&snapshot, *lwp)) == "python")
        });
        let snapshot = why(&pid);
        let (kind, text) = verdict(&snapshot);
        assert!(!snapshot["findings"].as_array().unwrap().iter().any(is_hang), "{:#}", snapshot["findings"]);
        assert!(snapshot["objects"].as_array().unwrap().iter().all(|object| object["holders"] == Value::Array(vec![])));
        // The main thread reads what the test writes.
        assert_eq!(kind, "other_process", "{text}");
        let gap = |gap: &Value| gap["what"].as_str().is_some_and(|what| what.contains("threading.Lock"));
        assert!(snapshot["gaps"].as_array().unwrap().iter().any(gap), "{:#}", snapshot["gaps"]);
        assert_eq!(snapshot["runtimes"][0]["tool"], format!("py-spy dump --pid {pid}"));
    }
}

/// Who has had a lock, or only knows it, is no holder.
#[test]
fn the_holder_of_a_python_rlock() {
    for interpreter in pythons("the_holder_of_a_python_rlock") {
        let fixture = python(&interpreter, "handed_over");
        let truth = fixture.truth().clone();
        let waiting = truth["waiting"][0].as_i64().expect("one that waits");
        eventually("the holder should be named", || {
            let snapshot = why(&fixture.pid().to_string());
            let holders: Vec<&Value> = snapshot["objects"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|object| object["holders"].as_array().unwrap())
                .collect();
            assert!(holders.iter().all(|holder| holder["lwp"] == truth["holder"]), "{holders:#?}");
            waits_for(&snapshot, waiting)["held_by"][0] == truth["holder"]
        });
    }
}

#[test]
fn an_idle_pool_of_python() {
    for interpreter in pythons("an_idle_pool_of_python") {
        let fixture = python(&interpreter, "pool").settled();
        let snapshot = why(&fixture.pid().to_string());
        let workers = numbers(&fixture.truth()["workers"]);
        let groups = snapshot["groups"].as_array().unwrap();
        let of_workers =
            groups.iter().filter(|group| numbers(&group["threads"]).iter().any(|lwp| workers.contains(lwp)));
        assert!(of_workers.clone().all(|group| group["idle"] == true), "{groups:#?}");
        assert!(of_workers.count() > 0, "{groups:#?}");
    }
}

#[test]
fn a_circle_of_java_monitors() {
    let test = "a_circle_of_java_monitors";
    let Some(fixture) = java(test, "monitors") else { return };
    let truth = fixture.truth().clone();
    let check = |target: &str, names: &Value| {
        let snapshot = why(target);
        let circle = named(&snapshot, &names["circle"]);
        assert_eq!(circle.len(), 2, "{:#}", snapshot["threads"]);
        let found = certain_hang(&snapshot);
        let behind = snapshot["findings"][0]["behind"].clone();
        (found == Some(circle), numbers(&behind) == named(&snapshot, &names["behind"]))
    };
    eventually("the circle should be found", || check(&fixture.pid().to_string(), &truth) == (true, true));
    let arguments = java_arguments(test, "monitors").expect("there is Java");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    for writer in ["gcore", "kernel"] {
        let dumped = Dumpable::start(Path::new("java"), &arguments);
        let running = why(&dumped.fixture.pid().to_string());
        let circle = named(&running, &truth["circle"]);
        let core = if writer == "gcore" { dumped.gcore(part(test)) } else { dumped.kernel_core(part(test)) };
        let Some(core) = core else { continue };
        let snapshot = why(&core.name());
        assert_eq!(certain_hang(&snapshot), Some(circle), "{writer}: {:#}", snapshot["findings"]);
        let tool = snapshot["runtimes"][0]["tool"].as_str().expect("a tool");
        assert!(tool.starts_with("jhsdb jstack --exe"), "{tool}");
    }
}

#[test]
fn the_holder_of_a_java_monitor() {
    let Some(fixture) = java("the_holder_of_a_java_monitor", "held") else { return };
    let truth = fixture.truth().clone();
    eventually("the holder should be named", || {
        let snapshot = why(&fixture.pid().to_string());
        let one = |name: &str| named(&snapshot, &truth[name])[0];
        let waits = waits_for(&snapshot, one("waiter"));
        let notified = waits_for(&snapshot, one("notified"));
        assert!(!snapshot["findings"].as_array().unwrap().iter().any(is_hang), "{:#}", snapshot["findings"]);
        waits["kind"] == "mutex"
            && numbers(&waits["held_by"]) == [one("holder")]
            && notified["kind"] == "cond"
            && family_of(&snapshot, notified) == "java"
    });
}

/// Who holds a lock of java.util.concurrent only the heap knows: the threads are parked, and another tool is named.
#[test]
fn parked_java_threads_are_not_called_idle() {
    let Some(fixture) = java("parked_java_threads_are_not_called_idle", "locks") else { return };
    let pid = fixture.pid().to_string();
    let snapshot = why(&pid);
    for lwp in named(&snapshot, &fixture.truth()["parked"]) {
        let waits = waits_for(&snapshot, lwp);
        assert_eq!((waits["kind"].as_str(), family_of(&snapshot, waits).as_str()), (Some("park"), "java"), "{waits:#}");
    }
    let groups = snapshot["groups"].as_array().unwrap();
    let parked = groups.iter().find(|group| group["what"] == "parked by Java code").expect("a group");
    assert_eq!((parked["idle"].as_bool(), parked["threads"].as_array().unwrap().len()), (Some(false), 2));
    let text = tool().run(&["why", &pid]).text();
    assert!(text.contains(&format!("jstack {pid}")) && text.contains("java.util.concurrent"), "{text}");
    assert!(!text.contains("IDLE"), "{text}");
}

/// Threads of the virtual machine itself are no reason to worry.
#[test]
fn an_idle_java_program() {
    let Some(fixture) = java("an_idle_java_program", "idle") else { return };
    let snapshot = why(&fixture.pid().to_string());
    let groups = snapshot["groups"].as_array().unwrap();
    let own = groups.iter().find(|group| group["what"] == "waiting for work of the runtime's own").expect("a group");
    assert!(own["idle"] == true && own["threads"].as_array().unwrap().len() > 3, "{groups:#?}");
    assert!(groups.iter().all(|group| group["what"] != "parked by Java code"), "{groups:#?}");
    assert_ne!(verdict(&snapshot).0, "unknown", "{groups:#?}");
    assert!(!snapshot["findings"].as_array().unwrap().iter().any(is_hang), "{:#}", snapshot["findings"]);
}

fn node(script: &str) -> Fixture {
    Fixture::start(Path::new("node"), &["-e", &format!("require('fs').writeSync(1, 'ready\\n'); {script}")])
}

#[test]
fn node_waits_for_work_or_in_javascript() {
    if !have("node_waits_for_work_or_in_javascript", "node") {
        return;
    }
    let idle = node("setInterval(() => {}, 1000000)");
    let pid = idle.pid().to_string();
    eventually("the process should be idle", || verdict(&why(&pid)).0 == "idle");
    let text = tool().run(&["why", &pid]).text();
    assert!(text.contains("waiting for work of the runtime's own"), "{text}");
    assert!(text.contains(&format!("node inspect -p {pid}   (acts on the process")), "{text}");
    let waits = node("Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)");
    eventually("a wait in JavaScript should not be called idle", || {
        let snapshot = why(&waits.pid().to_string());
        let (kind, text) = verdict(&snapshot);
        kind == "unknown" && text.contains("1 thread is waiting in JavaScript")
    });
}

/// Looks that a test takes; `make soak` takes thousands.
fn looks(usual: usize) -> usize {
    std::env::var("TG_LOOKS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// Looks at a busy program again and again: nothing in it ever hangs.
fn stays_calm(what: &str, mut fixture: Fixture) {
    let live = Live::open(Pid(fixture.pid())).unwrap();
    let looks = looks(25);
    let (mut likely, mut waits, mut rounds) = (0, 0, 0);
    for look in 0..looks {
        let snapshot = look::explain_for(&live, Duration::ZERO).unwrap();
        let verdict = snapshot.verdict.as_ref().expect("an answer");
        let is_alarm = matches!(verdict.kind, VerdictKind::Deadlock | VerdictKind::NobodyLeft);
        assert!(
            !is_alarm || verdict.certainty != Certainty::Certain,
            "look {look}: {verdict:?} {:#?}",
            snapshot.objects
        );
        likely += usize::from(is_alarm && verdict.certainty == Certainty::Likely);
        waits += snapshot.objects.iter().map(|object| object.waiters.len()).sum::<usize>();
        if look % 50 == 0 {
            let before = rounds;
            eventually("the fixture itself should go on", || {
                rounds = fixture.ask("").parse::<u64>().unwrap();
                rounds > before
            });
        }
    }
    assert!(likely <= looks / 1000, "{what}: {likely} of {looks} looks gave a false alarm");
    assert!(waits > looks / 4, "{what}: {waits} waits in {looks} looks");
    eprintln!("{what}: {looks} single looks, {waits} waits, {likely} likely");
}

#[test]
fn a_busy_python_program_does_not_hang() {
    for interpreter in pythons("a_busy_python_program_does_not_hang") {
        stays_calm("python", python(&interpreter, "busy"));
    }
}

#[test]
fn a_busy_java_program_does_not_hang() {
    if let Some(fixture) = java("a_busy_java_program_does_not_hang", "busy") {
        stays_calm("java", fixture);
    }
}

/// Two workers that hand a word of shared memory to each other.
#[test]
fn a_busy_node_program_does_not_hang() {
    if !have("a_busy_node_program_does_not_hang", "node") {
        return;
    }
    let worker = "const { workerData: { words, turn } } = require('worker_threads'); \
                  for (;;) { while (Atomics.load(words, 0) !== turn) Atomics.wait(words, 0, 1 - turn); \
                  Atomics.add(words, 1, 1); Atomics.store(words, 0, 1 - turn); Atomics.notify(words, 0); }";
    let script = format!(
        "const words = new Int32Array(new SharedArrayBuffer(8)); \
         for (const turn of [0, 1]) \
         new (require('worker_threads').Worker)({}, {{ eval: true, workerData: {{ words, turn }} }}); \
         process.stdin.on('data', () => require('fs').writeSync(1, Atomics.load(words, 1) + '\\n'));",
        serde_json::json!(worker)
    );
    stays_calm("node", node(&script));
}

/// A program may export what a language does, and mean nothing by it.
#[test]
fn a_program_that_lies_about_its_language() {
    let program = Build::new("hostile_languages.c").flags(&["-rdynamic"]).variant(Variant::Default).path();
    let fixture = Fixture::start(&program, &[]).settled();
    for command in ["why", "locks", "threads"] {
        let answer = tool().run(&[command, &fixture.pid().to_string(), "--json"]);
        assert_eq!(answer.code, Some(0), "{command}: {}{}", answer.text(), answer.stderr);
        let snapshot = answer.json();
        assert!(!snapshot["findings"].as_array().unwrap().iter().any(is_hang), "{:#}", snapshot["findings"]);
        let objects = snapshot["objects"].as_array().unwrap();
        assert!(objects.iter().all(|object| object["holders"] == Value::Array(vec![])), "{objects:#?}");
        if command == "why" {
            assert_eq!(snapshot["runtimes"].as_array().unwrap().len(), 3);
        }
    }
}

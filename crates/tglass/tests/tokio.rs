//! Tasks of tokio: which there are, what they await, and the hangs of programs that are made of them.
//!
//! Two versions of tokio are tried; with `TG_TOKIO_ALL` in the environment more of them, in more ways (`make test-matrix`).

use std::path::PathBuf;
use std::sync::OnceLock;
use testkit::{Dumpable, Fixture, Keeps, TokioProgram, Tool, Value, eventually};

const USUAL: [&str; 2] = ["1.35.1", "1.54.1"];
const ALL: [&str; 5] = ["1.35.1", "1.38.2", "1.43.1", "1.47.1", "1.54.1"];

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// The programs with debug information, not optimised.
fn programs() -> &'static [PathBuf] {
    static BUILT: OnceLock<Vec<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| {
        let versions: &[&str] = if std::env::var_os("TG_TOKIO_ALL").is_some() { &ALL } else { &USUAL };
        let program = |version| TokioProgram { version, optimised: false, debug: "2", keeps: Keeps::All, lto: false };
        versions.iter().filter_map(|version| program(version).build(testkit::part("a version of tokio"))).collect()
    })
}

/// The tasks that the tool lists.
fn tasks(target: &str) -> Vec<Value> {
    let snapshot = tool().look("threads", target, &["--stacks"]);
    assert_eq!(snapshot["pause_us"], 0);
    snapshot["tasks"].as_array().expect("tasks").clone()
}

fn task<'t>(tasks: &'t [Value], truth: &Value, name: &str) -> &'t Value {
    let id = &truth[name];
    tasks.iter().find(|task| task["id"] == *id).unwrap_or_else(|| panic!("no task {name}, {id}: {tasks:#?}"))
}

/// The findings of `why` of a kind.
fn findings(target: &str, kind: &str) -> Vec<Value> {
    // A certain hang is an exit status of its own.
    let answer = tool().run(&["why", target, "--json", "--fail-on", "never"]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let snapshot = answer.json();
    let all = snapshot["findings"].as_array().expect("findings");
    all.iter().filter(|finding| finding["kind"] == kind).cloned().collect()
}

/// The one finding of a kind, once the tasks have come to where they stay.
fn finding(target: &str, kind: &str) -> Value {
    let mut found = Vec::new();
    eventually(&format!("{target} should have one {kind}"), || {
        found = findings(target, kind);
        found.len() == 1
    });
    found.remove(0)
}

/// The same, with the sentence that the text of the finding is.
fn told(target: &str, kind: &str) -> (Value, String) {
    let found = finding(target, kind);
    let text = found["text"].as_str().expect("a sentence").to_owned();
    (found, text)
}

/// Waits until the task of the truth waits for this.
fn wait_for(target: &str, truth: &Value, name: &str, reason: &str) {
    eventually(&format!("{name} should wait: {reason}"), || {
        tasks(target).iter().any(|task| task["id"] == truth[name] && task["wait"]["reason"] == reason)
    });
}

#[test]
fn every_kind_of_wait() {
    let reasons = [
        ("mutex", "mutex"),
        ("rwlock_read", "rwlock to read"),
        ("rwlock_write", "rwlock to write"),
        ("semaphore", "semaphore"),
        ("notify", "notify"),
        ("mpsc_recv", "channel receive"),
        ("mpsc_send", "channel send"),
        ("unbounded_recv", "channel receive"),
        ("oneshot", "oneshot channel receive"),
        ("watch", "watch channel receive"),
        ("broadcast", "broadcast channel receive"),
        ("barrier", "barrier"),
        ("join", "end of a task"),
        ("sleep", "sleep"),
        ("interval", "sleep"),
        ("accept", "input or output"),
        ("read", "input or output"),
        ("blocking", "end of a task"),
    ];
    for program in programs() {
        let fixture = Fixture::start(program, &["waits"]);
        let target = fixture.pid().to_string();
        wait_for(&target, fixture.truth(), "select", "sleep or nothing, for ever");
        let tasks = tasks(&target);
        for (name, reason) in reasons {
            let task = task(&tasks, fixture.truth(), name);
            assert_eq!(task["wait"]["reason"], reason, "{program:?} {name}: {task:#}");
            assert_eq!(task["state"], "sleep", "{program:?} {name}: {task:#}");
            assert_eq!(task["runtime"], "tokio");
        }
        for (name, descriptor) in [("accept", "accept_fd"), ("read", "read_fd")] {
            let task = task(&tasks, fixture.truth(), name);
            assert_eq!(task["wait"]["descriptor"], fixture.truth()[descriptor], "{program:?} {name}: {task:#}");
        }
        let joined = task(&tasks, fixture.truth(), "join");
        assert_eq!(joined["wait"]["objects"][0]["held_by"][0], fixture.truth()["joined"], "{joined:#}");
    }
}

#[test]
fn a_chain_of_awaits_goes_through_boxes() {
    for program in programs() {
        let fixture = Fixture::start(program, &["dynamic"]);
        let target = fixture.pid().to_string();
        wait_for(&target, fixture.truth(), "task", "sleep");
        let tasks = tasks(&target);
        let frames = task(&tasks, fixture.truth(), "task")["frames"].as_array().expect("frames").clone();
        let names: Vec<&str> = frames.iter().filter_map(|frame| frame["function"].as_str()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names[0].ends_with("::sleeps_deep"), "{names:?}");
        assert!(names[1].ends_with("::middle") && names[2].ends_with("::outer"), "{names:?}");
        for frame in &frames {
            assert!(frame["file"].as_str().is_some_and(|file| file.ends_with("waits.rs")), "{frame:#}");
            assert!(frame["line"].as_u64().is_some_and(|line| line > 90), "{frame:#}");
        }
    }
}

#[test]
fn two_tasks_that_wait_for_each_other() {
    for program in programs() {
        let fixture = Fixture::start(program, &["mutexes"]);
        let (found, text) = told(&fixture.pid().to_string(), "task_deadlock");
        assert_eq!(found["tasks"].as_array().map(Vec::len), Some(2), "{found:#}");
        assert_eq!(found["certainty"], "likely", "{found:#}");
        for name in ["first", "second"] {
            assert!(text.contains(&format!("task {} (", fixture.truth()[name])), "{text}");
        }
        assert!(!text.contains(&format!("task {} (", fixture.truth()["bystander"])), "{text}");
        assert!(text.contains(&format!("circles.rs:{}", fixture.truth()["await_line"])), "{text}");
    }
}

#[test]
fn a_task_that_waits_for_one_that_sleeps_is_no_circle() {
    for program in programs() {
        let fixture = Fixture::start(program, &["almost"]);
        let target = fixture.pid().to_string();
        wait_for(&target, fixture.truth(), "waiter", "mutex");
        assert_eq!(findings(&target, "task_deadlock"), Vec::<Value>::new());
        let (root, text) = told(&target, "long_chain");
        assert_eq!(root["tasks"], serde_json::json!([fixture.truth()["holder"]]), "{root:#}");
        assert!(text.starts_with("1 task waits for the mutex") && text.contains("sleep"), "{text}");
        let tasks = tasks(&target);
        let waiter = task(&tasks, fixture.truth(), "waiter");
        assert_eq!(waiter["wait"]["objects"][0]["held_by"][0], fixture.truth()["holder"], "{waiter:#}");
    }
}

#[test]
fn a_lock_that_was_given_to_who_does_not_ask() {
    for program in programs() {
        for scene in ["futurelock", "futurelock_unordered"] {
            let fixture = Fixture::start(program, &[scene]);
            let (_, text) = told(&fixture.pid().to_string(), "task_deadlock");
            assert!(text.starts_with(&format!("task {} (", fixture.truth()["task"])), "{text}");
            assert!(text.contains("a futurelock"), "{text}");
        }
    }
}

#[test]
fn a_worker_that_is_blocked_by_a_guard_of_a_task() {
    for program in programs() {
        let fixture = Fixture::start(program, &["std_mutex"]);
        let (found, text) = told(&fixture.pid().to_string(), "task_deadlock");
        assert!(text.contains(&format!("which task {} (", fixture.truth()["keeper"])), "{text}");
        assert!(text.contains(&format!("polls task {} (", fixture.truth()["blocked"])), "{text}");
        assert_eq!(found["certainty"], "likely");
    }
}

/// The verdict of `why`: its kind and its sentence.
fn verdict(target: &str) -> (String, String) {
    let answer = tool().run(&["why", target, "--json", "--fail-on", "never"]).json();
    let text = |name: &str| answer["verdict"][name].as_str().expect("a text").to_owned();
    (text("kind"), text("text"))
}

#[test]
fn tasks_that_nothing_is_left_to_wake() {
    for program in programs() {
        let fixture = Fixture::start(program, &["lost"]);
        let target = fixture.pid().to_string();
        wait_for(&target, fixture.truth(), "waiter", "notify");
        eventually("nothing should be left that could wake the tasks", || verdict(&target).0 == "nobody_left");
        let (_, text) = verdict(&target);
        assert!(text.contains("3 tasks in notify at stuck.rs:"), "{text}");
        let fixture = Fixture::start(program, &["lost_for_a_time"]);
        let target = fixture.pid().to_string();
        wait_for(&target, fixture.truth(), "waiter", "notify");
        eventually("the threads should wait for tasks", || verdict(&target).1.starts_with("no task runs"));
        assert_eq!(verdict(&target).0, "idle", "{program:?}");
    }
}

#[test]
fn circles_through_channels() {
    for program in programs() {
        let fixture = Fixture::start(program, &["channels"]);
        let (found, text) = told(&fixture.pid().to_string(), "task_deadlock");
        assert_eq!(found["certainty"], "likely", "{found:#}");
        assert_eq!(text.matches("whose only receiver").count(), 2, "{text}");
        let fixture = Fixture::start(program, &["answer"]);
        let (found, text) = told(&fixture.pid().to_string(), "task_deadlock");
        assert_eq!(found["certainty"], "likely", "{found:#}");
        assert!(text.contains(&format!("whose only sender task {} (", fixture.truth()["answers"])), "{text}");
        // Who has made a channel has it no more.
        let fixture = Fixture::start(program, &["given_away"]);
        let target = fixture.pid().to_string();
        wait_for(&target, fixture.truth(), "maker", "end of a task");
        assert_eq!(findings(&target, "task_deadlock"), Vec::<Value>::new(), "{program:?}");
        assert_eq!(verdict(&target).0, "idle", "{program:?}");
    }
}

#[test]
fn guards_that_were_dropped_by_hand() {
    for program in programs() {
        let fixture = Fixture::start(program, &["dropped"]);
        let target = fixture.pid().to_string();
        wait_for(&target, fixture.truth(), "waiter", "mutex");
        assert_eq!(findings(&target, "guard_across_await"), Vec::<Value>::new(), "{program:?}");
        assert_eq!(findings(&target, "task_deadlock"), Vec::<Value>::new(), "{program:?}");
        let tasks = tasks(&target);
        let held = |name: &str| task(&tasks, fixture.truth(), name)["holds"].as_array().expect("locks").clone();
        // The lock is one of both tasks; the free ones are nobody's.
        for name in ["dropped", "holder"] {
            let held = held(name);
            assert_eq!(held.len(), 1, "{program:?} {name}: {held:#?}");
            assert_eq!(held[0]["evidence"], "inferred", "{program:?} {name}: {held:#?}");
        }
    }
}

#[test]
fn a_call_that_blocks_is_part_of_a_circle() {
    for program in programs() {
        let fixture = Fixture::start(program, &["blocking_call"]);
        let (found, text) = told(&fixture.pid().to_string(), "task_deadlock");
        assert!(text.contains(&format!("which task {} (", fixture.truth()["waiter"])), "{text}");
        assert!(text.contains("::{closure}), is blocked on the mutex"), "{text}");
        assert_eq!(found["tasks"].as_array().map(Vec::len), Some(2), "{found:#}");
    }
}

#[test]
fn rows_of_guards_and_of_futures() {
    for program in programs() {
        let fixture = Fixture::start(program, &["rows"]);
        let target = fixture.pid().to_string();
        let (_, text) = told(&target, "task_deadlock");
        assert!(text.starts_with(&format!("task {} (", fixture.truth()["task"])), "{text}");
        let tasks = tasks(&target);
        let task = task(&tasks, fixture.truth(), "task");
        assert_eq!(task["holds"].as_array().map(Vec::len), Some(3), "{task:#}");
    }
}

#[test]
fn a_guard_that_nobody_wants_is_no_deadlock() {
    for program in programs() {
        let fixture = Fixture::start(program, &["std_guard"]);
        let target = fixture.pid().to_string();
        wait_for(&target, fixture.truth(), "keeper", "notify");
        assert_eq!(findings(&target, "task_deadlock"), Vec::<Value>::new());
        let tasks = tasks(&target);
        let keeper = task(&tasks, fixture.truth(), "keeper");
        assert_eq!(keeper["holds"][0]["kind"], "mutex", "{keeper:#}");
        assert_eq!(keeper["holds"][0]["blocks_threads"], true, "{keeper:#}");
        let (_, text) = told(&target, "guard_across_await");
        assert!(text.contains("keeps_std_guard"), "{text}");
    }
}

#[test]
fn a_circle_of_tasks_and_a_thread() {
    for program in programs() {
        let fixture = Fixture::start(program, &["thread_circle"]);
        let target = fixture.pid().to_string();
        let (found, text) = told(&target, "task_deadlock");
        assert!(text.contains("tasks of tokio and threads wait for each other"), "{text}");
        for name in ["keeper", "blocked"] {
            assert!(text.contains(&format!("task {} (", fixture.truth()[name])), "{text}");
        }
        let worker = task(&tasks(&target), fixture.truth(), "blocked")["carried_by"].clone();
        assert_eq!(found["threads"], serde_json::json!([worker]), "{found:#}");
    }
}

#[test]
fn the_future_of_block_on_is_one_like_others() {
    for program in programs() {
        let fixture = Fixture::start(program, &["block_on"]);
        let target = fixture.pid().to_string();
        let (_, text) = told(&target, "task_deadlock");
        let tasks = tasks(&target);
        let root = tasks.iter().find(|task| task["id"] == 0).unwrap_or_else(|| panic!("{tasks:#?}"));
        assert_eq!(root["bound_to"], fixture.truth()["thread"], "{root:#}");
        assert_eq!(root["start_function"], "tokio_scenes::circles::root_transfer", "{root:#}");
        assert_eq!(root["wait"]["reason"], "mutex", "{root:#}");
        assert!(text.contains(&format!("the future of block_on in thread {}", fixture.truth()["thread"])), "{text}");
        assert!(text.contains(&format!("task {} (", fixture.truth()["task"])), "{text}");
    }
}

#[test]
fn a_runtime_that_no_thread_is_in() {
    for program in programs() {
        let fixture = Fixture::start(program, &["left_alone"]);
        wait_for(&fixture.pid().to_string(), fixture.truth(), "task", "sleep");
    }
}

#[test]
fn a_worker_that_computes_starves_tasks() {
    for program in programs() {
        let fixture = Fixture::start(program, &["computing_worker"]);
        let (_, text) = told(&fixture.pid().to_string(), "blocked_worker");
        assert!(text.contains(&format!("polls task {} (", fixture.truth()["computing"])), "{text}");
        assert!(text.contains(&format!("{} tasks could run", fixture.truth()["starving_count"])), "{text}");
    }
}

#[test]
fn the_version_and_executors_that_are_not_read() {
    for program in programs() {
        let fixture = Fixture::start(program, &["futures_executor"]);
        let snapshot = tool().look("threads", &fixture.pid().to_string(), &[]);
        assert!(snapshot["gaps"].to_string().contains("futures-executor 0.3."), "{snapshot:#}");
        let fixture = Fixture::start(program, &["dynamic"]);
        let snapshot = tool().look("threads", &fixture.pid().to_string(), &[]);
        let version = snapshot["task_runtimes"][0]["version"].as_str().expect("a version");
        assert!(program.to_string_lossy().contains(&format!("tokio-{version}/")), "{program:?} {version}");
    }
}

#[test]
fn built_in_other_ways() {
    if std::env::var_os("TG_TOKIO_ALL").is_none() {
        return testkit::skip("built_in_other_ways", "four release builds take minutes: `make test-matrix` runs it");
    }
    for (optimised, debug, keeps, lto) in [
        (true, "2", Keeps::All, true),
        (true, "1", Keeps::All, false),
        (false, "line-tables-only", Keeps::All, false),
        (true, "2", Keeps::Symbols, true),
    ] {
        let program = TokioProgram { version: USUAL[1], optimised, debug, keeps, lto };
        let Some(program) = program.build(testkit::part("a version of tokio")) else { return };
        let fixture = Fixture::start(&program, &["mutexes"]);
        let target = fixture.pid().to_string();
        let tasks = tasks(&target);
        assert_eq!(tasks.len(), 3, "{program:?}: {tasks:#?}");
        let first = task(&tasks, fixture.truth(), "first");
        assert_eq!(first["start_function"], "tokio_scenes::circles::transfer", "{program:?}: {first:#}");
        let has_types = debug == "2" && keeps == Keeps::All;
        if has_types {
            finding(&target, "task_deadlock");
        } else {
            assert_eq!(findings(&target, "task_deadlock"), Vec::<Value>::new(), "{program:?}");
        }
        let gaps = tool().look("threads", &target, &[])["gaps"].to_string();
        assert_eq!(gaps.contains("debug = 2"), !has_types, "{program:?}: {gaps}");
    }
}

#[test]
fn a_worker_in_a_call_that_blocks_starves_tasks() {
    for program in programs() {
        let fixture = Fixture::start(program, &["blocked_worker"]);
        let (_, text) = told(&fixture.pid().to_string(), "blocked_worker");
        assert!(text.contains(&format!("polls task {} (", fixture.truth()["blocker"])), "{text}");
        assert!(text.contains(&format!("{} tasks could run", fixture.truth()["starving_count"])), "{text}");
    }
}

#[test]
fn other_runtimes_than_one_with_workers() {
    for program in programs() {
        for (scene, names) in [
            ("current_thread", &["first", "second"][..]),
            ("local_set", &["local"]),
            ("several", &["one", "two", "three"]),
        ] {
            let fixture = Fixture::start(program, &[scene]);
            let target = fixture.pid().to_string();
            names.iter().for_each(|name| wait_for(&target, fixture.truth(), name, "sleep"));
            let spawned = tasks(&target).iter().filter(|task| task["id"] != 0).count();
            assert_eq!(spawned, names.len(), "{scene}");
        }
    }
}

#[test]
fn without_debug_information_and_without_symbols() {
    let version = USUAL[1];
    for keeps in [Keeps::All, Keeps::Symbols, Keeps::Nothing] {
        let program = TokioProgram { version, optimised: true, debug: "2", keeps, lto: false };
        let Some(program) = program.build("without_debug_information_and_without_symbols") else { return };
        let fixture = Fixture::start(&program, &["mutexes"]);
        let target = fixture.pid().to_string();
        if keeps == Keeps::All {
            finding(&target, "task_deadlock");
            continue;
        }
        let snapshot = tool().look("threads", &target, &[]);
        let tasks = snapshot["tasks"].as_array().expect("tasks");
        assert_eq!(tasks.len(), 3, "{snapshot:#}");
        let first = task(tasks, fixture.truth(), "first");
        assert_eq!((&first["state"], &first["wait"]), (&Value::from("sleep"), &Value::Null), "{first:#}");
        let name = first["start_function"].as_str();
        assert_eq!(
            name,
            if keeps == Keeps::Nothing { None } else { Some("tokio_scenes::circles::transfer") },
            "{first:#}"
        );
        let gaps = snapshot["gaps"].to_string();
        assert!(gaps.contains("debug = 2"), "{gaps}");
    }
}

#[test]
fn cores_tell_the_same() {
    let Some(program) = programs().last() else { return };
    let check = |core: &str, truth: &Value| {
        let found = findings(core, "task_deadlock");
        assert_eq!(found.len(), 1, "{core}: {found:#?}");
        let tasks = tasks(core);
        assert_eq!(tasks.len(), 3, "{core}: {tasks:#?}");
        assert_eq!(task(&tasks, truth, "bystander")["wait"]["reason"], "mutex");
    };
    let start = || {
        let dumpable = Dumpable::start(program, &["mutexes"]);
        finding(&dumpable.fixture.pid().to_string(), "task_deadlock");
        wait_for(&dumpable.fixture.pid().to_string(), dumpable.fixture.truth(), "bystander", "mutex");
        dumpable
    };
    let dumpable = start();
    let truth = dumpable.fixture.truth().clone();
    if let Some(core) = dumpable.gcore(testkit::part("a core of gdb")) {
        check(&core.name(), &truth);
    }
    let dumpable = start();
    let truth = dumpable.fixture.truth().clone();
    if let Some(core) = dumpable.kernel_core(testkit::part("a core of the kernel")) {
        check(&core.name(), &truth);
    }
}

#[test]
fn under_churn_every_task_that_is_shown_is_one() {
    for program in programs() {
        let fixture = Fixture::start(program, &["churn"]);
        for _ in 0..10 {
            let tasks = tasks(&fixture.pid().to_string());
            let named = |part: &str| {
                let name = |task: &&Value| task["start_function"].as_str().is_some_and(|name| name.contains(part));
                tasks.iter().filter(name).count()
            };
            assert_eq!(named("::waits_for_end"), 10, "{tasks:#?}");
            assert_eq!(named("tokio_scenes::waits::"), tasks.len(), "{tasks:#?}");
            let staying = tasks.iter().filter(|task| task["wait"]["reason"] == "notify").count();
            assert_eq!(staying, 10, "{tasks:#?}");
        }
    }
}

/// The locks of tasks are objects like others: with those who wait and those who hold.
#[test]
fn locks_of_tasks_are_listed() {
    for program in programs() {
        let fixture = Fixture::start(program, &["mutexes"]);
        let target = fixture.pid().to_string();
        finding(&target, "task_deadlock");
        wait_for(&target, fixture.truth(), "bystander", "mutex");
        let snapshot = tool().look("locks", &target, &[]);
        let objects = snapshot["objects"].as_array().expect("objects");
        let of_tokio: Vec<&Value> = objects.iter().filter(|object| object["family"] == "tokio").collect();
        assert_eq!(of_tokio.len(), 2, "{objects:#?}");
        let ids = |object: &Value, list: &str| -> Vec<u64> {
            let all = object[list].as_array().expect("tasks");
            all.iter().map(|task| task["task"].as_u64().expect("an id")).collect()
        };
        let id = |name: &str| fixture.truth()[name].as_u64().expect("an id");
        for (holder, waiters) in [("first", vec![id("second"), id("bystander")]), ("second", vec![id("first")])] {
            let held = of_tokio.iter().find(|object| ids(object, "holding_tasks") == [id(holder)]);
            let held = held.unwrap_or_else(|| panic!("{of_tokio:#?}"));
            assert_eq!(ids(held, "waiting_tasks"), waiters, "{held:#}");
            assert_eq!((&held["kind"], &held["state"]), (&Value::from("mutex"), &Value::from("locked")), "{held:#}");
        }
    }
}

#[test]
fn statistics_and_profiles_know_tasks() {
    for program in programs() {
        let fixture = Fixture::start(program, &["computing_worker"]);
        let target = fixture.pid().to_string();
        finding(&target, "blocked_worker");
        let stats = tool().run(&["stats", &target, "-i", "300ms", "--json"]).json();
        let process = &stats["process"];
        assert_eq!(process["tasks_of"], serde_json::json!(["tokio"]), "{process}");
        assert_eq!((&process["nthreads"], &process["r_concurrency"]), (&Value::from(4), &Value::from(1)), "{process}");
        // Three that could run, and the one that does, as far as it gets a CPU.
        assert!(process["nrunnable"].as_f64().is_some_and(|number| (2.9..4.6).contains(&number)), "{process}");
        let fixture = Fixture::start(program, &["mutexes"]);
        let target = fixture.pid().to_string();
        finding(&target, "task_deadlock");
        wait_for(&target, fixture.truth(), "bystander", "mutex");
        let profile = tool().run(&["profil", &target, "--wait", "-d", "300ms", "--json"]).json();
        let held_by = |name: &str| {
            let holder = format!("task {}", fixture.truth()[name]);
            let waits = profile["waits"].as_array().expect("waits").iter();
            let found: Vec<&Value> = waits.filter(|wait| wait["held_by"] == holder.as_str()).collect();
            assert_eq!(found.len(), 1, "{holder}: {profile:#}");
            (found[0]["samples"].clone(), found[0]["function"].clone())
        };
        let looks = profile["looks"].as_u64().expect("a number");
        assert_eq!(held_by("first").0, 2 * looks, "{profile:#}");
        assert_eq!(held_by("second"), (looks.into(), "tokio_scenes::circles::transfer".into()), "{profile:#}");
    }
}

//! Tasks of tokio as threads of the C interface: only where a client asks for them.

mod common;

use common::{Source, run};
use testkit::{Dumpable, Fixture, Keeps, TokioProgram, Value, eventually};

/// The words of lines that begin with `word`.
fn lines<'t>(text: &'t str, word: &str) -> Vec<Vec<&'t str>> {
    let all = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    all.filter(|words| words.first() == Some(&word)).map(|words| words[1..].to_vec()).collect()
}

/// Compares what the client printed with what the scene `mutexes` said of itself.
fn check(text: &str, truth: &Value, lwps: usize) {
    let number = |word: &str| lines(text, word)[0][0].parse::<usize>().expect("a number");
    assert_eq!((number("threads"), number("tasks"), number("threads_again")), (lwps, 3, lwps), "{text}");
    let id = |name: &str| truth[name].to_string();
    let address = |word: &str, name: &str| {
        let all = lines(text, word);
        let of: Vec<&str> = all.iter().filter(|words| words[0] == id(name)).map(|words| words[1]).collect();
        assert_eq!(of.len(), 1, "{word} {name}: {text}");
        of[0].to_owned()
    };
    // Each wants what the other one has; TD_THR_SLEEP.
    assert_eq!(address("waits", "first"), address("holds", "second"), "{text}");
    assert_eq!(address("waits", "second"), address("holds", "first"), "{text}");
    assert!(lines(text, "task").iter().all(|words| words[1..] == ["6", "0"]), "{text}");
    // A locked mutex, with its owner.
    let sync = lines(text, "sync");
    let of = |address: &str| sync.iter().find(|words| words[0] == address).expect("the mutex")[1..].to_vec();
    assert_eq!(of(&address("waits", "first")), ["2", "1", id("second").as_str()], "{text}");
}

#[test]
fn tasks_are_threads_where_that_is_asked_for() {
    testkit::needs_ptrace!();
    const TEST: &str = "tasks_are_threads_where_that_is_asked_for";
    let program = TokioProgram { version: "1.54.1", optimised: false, debug: "2", keeps: Keeps::All, lto: false };
    let Some(program) = program.build(TEST) else { return };
    let client = Source::new("tokio_tasks.c").with_libc_db().build();
    let target = Dumpable::start(&program, &["mutexes"]);
    let (fixture, pid): (&Fixture, String) = (&target.fixture, target.fixture.pid().to_string());
    let lwps = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").count();
    let mut text = String::new();
    eventually("all tasks should wait", || {
        text = run(&client, &["pid", &pid]);
        lines(&text, "waits").len() == 3
    });
    check(&text, fixture.truth(), lwps);
    assert_eq!(lines(&text, "concurrency"), [["2"]], "{text}");
    let truth = fixture.truth().clone();
    if let Some(core) = target.gcore(testkit::part("a core of gdb")) {
        let core = core.path().display().to_string();
        check(&run(&client, &["core", &core, &program.display().to_string()]), &truth, lwps);
    }
}

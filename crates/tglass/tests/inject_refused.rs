//! The agent and processes that stand still, end, or have lost their first thread.

use std::path::PathBuf;
use testkit::{Build, Fixture, Tool, Variant, wait_asleep};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn built(file: &str) -> PathBuf {
    Build::new(file).variant(Variant::Default).path()
}

/// What `/proc/PID` itself tells of files and namespaces is that of the leader, which has none any more. One of the other
/// two threads must not be stopped, and of the other it matters what it reads from.
#[test]
fn a_program_whose_main_thread_has_left_can_have_it() {
    for args in [&[][..], &["epoll"]] {
        let fixture = Fixture::start(&built("main_exited.c"), args);
        wait_asleep(fixture.pid(), fixture.truth()["last"]["lwp"].as_i64().expect("its LWP") as i32);
        let answer = tool().run(&["contend", &fixture.pid().to_string(), "-d", "10ms", "--json"]);
        assert_eq!(answer.code, Some(0), "{args:?}: {}", answer.stderr);
        assert_eq!(answer.json()["tracked"]["restored"], true, "{args:?}");
        assert_eq!(answer.json()["tracked"]["interrupted"], testkit::Value::Null, "{args:?}");
    }
}

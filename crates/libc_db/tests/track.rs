//! Lock statistics through the C interface, of a program with the agent in it.

mod common;

use common::Source;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use testkit::{Answer, Build, Capability, Fixture, NOBODY, Public, Variant, has_capability, is_root};

/// Runs the client on a program with the agent in it, with these words for the agent.
fn run(words: &str) {
    // As `tglass run` does, without the tool.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let agent = dir.path().join("libthreadglass-agent.so");
    std::fs::write(&agent, agent::AGENT).expect("the agent is written");
    let mut command = Command::new(Build::new("track_step.c").variant(Variant::Default).path());
    command.env("LD_PRELOAD", &agent).env(agent::VARIABLE, words);
    let fixture = Fixture::command(command).settled();
    let client = Source::new("track_stats.c").flags(&[]).with_libc_db().build();
    let mut command = Command::new(&client);
    command.arg(fixture.pid().to_string()).arg(fixture.truth()["address"].as_str().unwrap_or_default());
    command.args((words == "off").then_some(words));
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{}{}", answer.text(), answer.stderr);
}

/// A client and the process that it forks, both with the agent in them: waits that go through the agent are seen for what
/// they are.
#[test]
fn states_of_tracked_locks_are_changed() {
    testkit::needs_ptrace!();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let agent = dir.path().join("libthreadglass-agent.so");
    std::fs::write(&agent, agent::AGENT).expect("the agent is written");
    for flags in [&[][..], &["-DDEBUGGER"], &["-DDEBUGGER", "-DWITH_LSTOP"]] {
        let mut command = Command::new(Source::new("sync_set.c").flags(flags).with_libc_db().build());
        command.env("LD_PRELOAD", &agent);
        let answer = Answer::of(command);
        assert_eq!(answer.code, Some(0), "{flags:?}\n{}{}", answer.text(), answer.stderr);
    }
}

#[test]
fn controllers_have_their_own_views() {
    run("");
}

#[test]
fn controllers_switch_it_on() {
    run("off");
}

#[test]
fn tracking_puts_the_agent_into_a_program_that_runs() {
    testkit::needs_ptrace!();
    let fixture = Fixture::new("track_step.c").settled();
    let client = Source::new("track_inject.c").flags(&[]).with_libc_db().build();
    let mut command = Command::new(&client);
    command.arg(fixture.pid().to_string());
    command.args(["address", "semaphore"].map(|object| fixture.truth()[object].as_str().unwrap_or_default()));
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{}{}", answer.text(), answer.stderr);
}

/// The moment at which a debugger would switch it on: no thread was created yet.
#[test]
fn tracking_begins_in_a_program_with_one_thread() {
    testkit::needs_ptrace!();
    let fixture = Fixture::new("inject_alone.c");
    let client = Source::new("track_alone.c").flags(&[]).with_libc_db().build();
    let mut command = Command::new(&client);
    command.arg(fixture.pid().to_string()).arg(fixture.truth()["mutex"].as_str().unwrap_or_default());
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{}{}", answer.text(), answer.stderr);
}

/// The program says that a file of root's is the agent's pipe, or the file that is to hold the agent.
#[test]
fn a_descriptor_that_a_program_names_is_never_written_to() {
    let test = "a_descriptor_that_a_program_names_is_never_written_to";
    if !is_root(test, "to start a program as another user")
        || !has_capability(test, Capability::Ptrace, "to look at another user's program")
    {
        return;
    }
    let public = Public::new();
    let secret = public.path().join("secret");
    std::fs::write(&secret, "of root").expect("a file");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    let fifo = public.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let program = Build::new("hostile_inject.c").variant(Variant::Default).flags(&["-rdynamic"]).path();
    let client = Source::new("track_hostile.c").flags(&[]).with_libc_db().build();
    for (what, path) in [("control", &secret), ("control", &fifo), ("mail", &secret), ("mail", &fifo)] {
        // By its name the first seems to have the agent in it.
        let program = public.copy(&program, if what == "control" { "threadglass-agent-not" } else { "program" });
        let mut command = testkit::as_user(NOBODY, &program);
        command.arg(what).arg(path).arg(table::VERSION.to_string());
        let mut fixture = Fixture::command(command).settled();
        let mut command = Command::new(&client);
        command.arg(fixture.pid().to_string());
        let answer = Answer::of(command);
        assert_eq!(answer.code, Some(0), "{what} {path:?}: {}{}", answer.text(), answer.stderr);
        assert_eq!(std::fs::read(&secret).expect("it is there"), b"of root", "{what}");
        assert_eq!(fixture.ask("alive"), "alive");
    }
}

//! `tglass profil` where it cannot record: said in one line, and nothing is left behind.

use std::path::Path;
use std::process::Command;
use testkit::{
    Answer, Build, Capability, Fixture, NOBODY, Public, STRANGER, Tool, Variant, as_user, eventually, has_capability,
    have, is_root, part, skip,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

#[test]
fn what_cannot_be_recorded_is_said_in_one_line() {
    let fixture = Fixture::new("profil_wait.c").settled();
    let pid = fixture.pid().to_string();
    let refusals: [(&[&str], &str); 9] = [
        (&["-F", "10001"], "use 1 to 10000"),
        (&["-F", "0"], "use 1 to 10000"),
        (&["--wait", "-F", "0"], "use 1 to 1000 looks per second"),
        (&["--function", "nosuch"], "no function nosuch"),
        (&["--module", "nosuch"], "no file nosuch"),
        (&["--offset", "0x10"], "no code is mapped at 0x10"),
        (&["--folded", "/nonexistent/dir/file"], "cannot write /nonexistent/dir/file"),
        (&["--scale", "1"], "0 and 1 turn profiling off"),
        (&["--module", "libc", "--histogram", "/dev/null", "--scale", "0xffffffff"], "too large"),
    ];
    for (options, expected) in refusals {
        let mut args = vec!["profil", pid.as_str(), "-d", "1ms"];
        args.extend(options);
        let answer = tool().run(&args);
        assert!(answer.assert_refused().contains(expected), "{options:?}: {}", answer.stderr);
    }
    for (target, expected) in [("4194305", "no process 4194305"), ("/etc/passwd", "profil needs a running process")] {
        let answer = tool().run(&["profil", target]);
        assert!(answer.assert_refused().contains(expected), "{}", answer.stderr);
    }
    // A file that was to be written and was not is not there.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stacks");
    tool().run(&["profil", "4194305", "--folded", file.to_str().unwrap()]).assert_refused();
    assert!(!file.exists());
}

#[test]
fn perf_that_is_forbidden() {
    let fixture = Fixture::new("profil_wait.c").settled();
    let pid = fixture.pid().to_string();
    let seccomp = Build::new("no_perf.c").path();
    for target in [&[pid.as_str()][..], &["--", "true"]] {
        let mut command = Command::new(&seccomp);
        command.arg(env!("CARGO_BIN_EXE_tglass")).arg("profil").args(target);
        let answer = Answer::of(command);
        let line = answer.assert_refused();
        assert!(line.contains("perf events are not permitted here") && line.contains("seccomp"), "{line}");
    }
    // Waits need no perf.
    let mut command = Command::new(&seccomp);
    command.arg(env!("CARGO_BIN_EXE_tglass")).args(["profil", &pid, "--wait", "-d", "10ms"]);
    assert_eq!(Answer::of(command).code, Some(0));
}

#[test]
fn other_users() {
    let test = "other_users";
    if !is_root(test, "to run as two users") || !have(test, "setpriv") {
        return;
    }
    let public = Public::new();
    let tglass = public.copy(Path::new(env!("CARGO_BIN_EXE_tglass")), "tglass");
    let program = public.copy(&Build::new("profil_spin.c").variant(Variant::Default).path(), "profil_spin");
    let fixture = Fixture::command(as_user(NOBODY, &program));
    let pid = fixture.pid().to_string();
    let run = |user| {
        let mut command = as_user(user, &tglass);
        command.args(["profil", &pid, "-d", "300ms", "-g"]);
        Answer::of(command)
    };
    let refused = run(STRANGER);
    assert!(refused.assert_refused().contains("belongs to user 65534"), "{}", refused.stderr);
    let own = run(NOBODY);
    if own.stderr.contains("perf events are not permitted") {
        return skip(part("one's own process"), own.stderr.trim());
    }
    // The program may get no CPU in so short a time.
    eventually("the program's functions should be told", || {
        let own = run(NOBODY);
        assert_eq!(own.code, Some(0), "{}", own.stderr);
        own.text().contains("  seventy < middle < work")
    });
}

/// The kernel ends the clock of a program that it gives other rights: that it had no ticks does not mean it did not run,
/// and clocks of CPUs see it.
#[test]
fn a_command_with_the_rights_of_another_user() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let test = "a_command_with_the_rights_of_another_user";
    if !is_root(test, "to give a program away") {
        return;
    }
    let public = Public::new();
    let program = public.copy(&Build::new("profil_spin.c").variant(Variant::Static).path(), "profil_spin");
    chown(&program, Some(NOBODY), None).expect("root may give it away");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("an own file");
    assert_eq!(std::fs::metadata(&program).expect("a file").mode() & 0o7777, 0o4755);
    let answer = tool().run(&["profil", "--children", "--", program.to_str().unwrap(), "8000"]);
    if answer.stderr.contains("perf events are not permitted") || answer.stderr.contains("seventy") {
        return skip(test, "perf, or set-user-ID programs, are not permitted here");
    }
    assert_eq!(answer.code, Some(7), "{}", answer.stderr);
    assert!(
        answer.stderr.contains("There are no samples") && !answer.stderr.contains("No thread"),
        "{}",
        answer.stderr
    );
    assert!(answer.stderr.contains("set-user-ID"), "{}", answer.stderr);
    if !has_capability(part("clocks of CPUs"), Capability::Perfmon, "to sample whole CPUs") {
        return;
    }
    // Ticks of half a second must be missing, and still be missing at the next look.
    let answer = tool().run(&["profil", "--", program.to_str().unwrap(), "3s"]);
    assert!(answer.stderr.contains("seventy") && answer.stderr.contains("a clock on each CPU"), "{}", answer.stderr);
}

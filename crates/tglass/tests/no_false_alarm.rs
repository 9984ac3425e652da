//! A program that is busy with its locks, looked at thousands of times: nothing in it ever hangs.

use std::collections::BTreeSet;
use testkit::{Fixture, Tool, is_hang};
use threadglass::model::{Certainty, Evidence, HolderStatus, SyncKind};
use threadglass::target::Live;
use threadglass::{Lwp, Pid, waits};

const LOOKS: usize = 2000;

fn tasks(pid: i32) -> BTreeSet<i32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the fixture lives");
    entries.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect()
}

#[test]
fn a_busy_program_does_not_hang() {
    let mut fixture = Fixture::new("busy_locks.c");
    let pid = fixture.pid();
    let lasting = tasks(pid);
    let live = Live::open(Pid(pid)).unwrap();
    let (mut waiters, mut holders, mut rounds) = (0, 0, 0);
    for look in 0..LOOKS {
        let before = tasks(pid);
        let snapshot = waits::collect(&live).unwrap();
        for finding in &snapshot.findings {
            let is_alarm = finding.kind.is_hang() && finding.certainty != Certainty::Possible;
            assert!(!is_alarm, "look {look}: {finding:?}\n{:#?}", snapshot.objects);
        }
        for object in &snapshot.objects {
            waiters += object.waiters.len();
            for holder in &object.holders {
                let is_asserted = matches!(holder.evidence, Evidence::Recorded | Evidence::Derived);
                if !is_asserted || holder.status != HolderStatus::Alive {
                    // Who was gone when it was asked for may have lived when the object was read.
                    continue;
                }
                holders += 1;
                let Some(Lwp(lwp)) = holder.lwp else { panic!("look {look}: alive, but who? {holder:?}") };
                let known = lasting.contains(&lwp)
                    || before.contains(&lwp)
                    || snapshot.threads.iter().any(|thread| thread.lwp == Some(Lwp(lwp)))
                    || tasks(pid).contains(&lwp);
                assert!(known, "look {look}: {holder:?} is no thread, {object:?}");
            }
            // One at a time may hold it; two that are sure of it were not seen at the same time.
            let sure = object.holders.iter().filter(|holder| holder.evidence == Evidence::Recorded).count();
            assert!(object.kind != SyncKind::Mutex || sure <= 1, "look {look}: {object:?}");
        }
        if look % 100 == 0 {
            // It lives: what it has done since the last time.
            let now: u64 = fixture.ask("").parse().unwrap();
            assert!(now > rounds, "the fixture itself is stuck");
            rounds = now;
        }
    }
    // Looks that see nothing prove nothing.
    assert!(waiters > LOOKS && holders > LOOKS / 10, "{waiters} waiters, {holders} holders in {LOOKS} looks");
}

#[test]
fn the_command_is_calm_too() {
    let fixture = Fixture::new("busy_locks.c");
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    for _ in 0..50 {
        let answer = tool.run(&["why", &fixture.pid().to_string(), "--json"]);
        assert_eq!(answer.code, Some(0), "{}{}", answer.text(), answer.stderr);
        let snapshot = answer.json();
        let findings = snapshot["findings"].as_array().unwrap();
        let alarm = findings.iter().find(|finding| is_hang(finding) && finding["certainty"] != "possible");
        assert!(alarm.is_none(), "{alarm:#?}");
    }
}

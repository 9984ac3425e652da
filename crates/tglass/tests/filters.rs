//! The four filters of `tglass threads`, each against the truth and together.

use std::collections::BTreeSet;
use testkit::{Fixture, Tool, Value, threads};

struct Filters {
    fixture: Fixture,
    tool: Tool,
}

impl Filters {
    fn new() -> Self {
        Self { fixture: Fixture::new("threads_truth.c").settled(), tool: Tool::new(env!("CARGO_BIN_EXE_tglass")) }
    }

    fn roles<'a>(&'a self, keep: impl Fn(&'a Value) -> bool) -> BTreeSet<&'a str> {
        // The spinner's state is the scheduler's choice: it is left out on both sides.
        let told = threads(self.fixture.truth()).iter().filter(|truth| truth["role"] != "spinner" && keep(truth));
        told.map(|truth| truth["role"].as_str().unwrap()).collect()
    }

    /// Which threads the options let through, by role.
    fn seen(&self, options: &[&str]) -> BTreeSet<&str> {
        let snapshot = self.tool.threads(self.fixture.pid(), options);
        let ids: BTreeSet<_> = threads(&snapshot).iter().map(|thread| thread["id"].to_string()).collect();
        assert_eq!(ids.len(), threads(&snapshot).len());
        self.roles(|truth| ids.contains(&truth["id"].to_string()))
    }

    fn check(&self, options: &[&str], keep: impl Fn(&Value) -> bool) {
        let expected = self.roles(keep);
        assert_eq!(self.seen(options), expected, "{options:?}");
    }
}

fn priority(truth: &Value) -> i64 {
    // A thread that has ended has none, which counts as 0.
    truth["priority"].as_i64().unwrap_or(0)
}

fn mask(truth: &Value) -> Vec<&str> {
    truth["signal_mask"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

const MASKED: [&str; 4] = ["SIGUSR1", "SIGUSR2", "SIGRTMIN+3", "SIGRTMIN+30"];

#[test]
fn by_state() {
    let filters = Filters::new();
    for state in ["unknown", "stopped", "run", "active", "zombie", "sleep", "stopped_asleep"] {
        filters.check(&["--state", state], |truth| truth["state"] == state);
    }
    filters.check(&["--state", "any"], |_| true);
    filters.check(&[], |_| true);
    assert_eq!(filters.seen(&["--state", "zombie"]).into_iter().collect::<Vec<_>>(), ["ended"]);
}

#[test]
fn by_priority() {
    let filters = Filters::new();
    for min in [-1000, -20, -5, 0, 1, 7, 8, 42, 43, 99, 1000] {
        let text = min.to_string();
        filters.check(&["--min-priority", &text], |truth| priority(truth) >= min);
    }
}

#[test]
fn by_signal_mask() {
    let filters = Filters::new();
    let all = MASKED.join(",");
    let bits = 1u64 << 9 | 1 << 11 | 1 << 36 | 1 << 63;
    for set in [all.clone(), "10,12,37,64".to_owned(), format!("{bits:#x}")] {
        filters.check(&["--sigmask", &set], |truth| mask(truth) == MASKED);
    }
    // Exactly the set: neither a part of it nor more.
    for set in ["SIGUSR1", "SIGUSR1,SIGUSR2", &format!("{all},SIGTERM")] {
        filters.check(&["--sigmask", set], |_| false);
    }
    for set in ["none", "", "0x0"] {
        filters.check(&["--sigmask", set], |truth| mask(truth).is_empty());
    }
}

#[test]
fn by_flags() {
    let filters = Filters::new();
    for (flags, detached) in [("0x40", true), ("64", true), ("0", false), ("0x0", false)] {
        filters.check(&["--flags", flags], |truth| truth["detached"] == detached);
    }
    filters.check(&["--flags", "1"], |_| false);
    filters.check(&["--flags", "0x41"], |_| false);
}

#[test]
fn all_together() {
    let filters = Filters::new();
    filters.check(&["--state", "sleep", "--min-priority", "7", "--sigmask", "none", "--flags", "0"], |truth| {
        truth["state"] == "sleep" && priority(truth) >= 7 && mask(truth).is_empty() && truth["detached"] == false
    });
    filters.check(&["--state", "zombie", "--min-priority", "0", "--sigmask", "none"], |truth| truth["role"] == "ended");
    filters.check(&["--state", "zombie", "--min-priority", "1"], |_| false);
    filters.check(&["--sigmask", &MASKED.join(","), "--flags", "0x40"], |_| false);
    filters.check(&["--state", "any", "--min-priority", "-20"], |_| true);
}

/// The screen says how many it leaves out.
#[test]
fn the_screen_counts_what_is_hidden() {
    let filters = Filters::new();
    let pid = filters.fixture.pid().to_string();
    let all = threads(filters.fixture.truth()).len();
    let text = filters.tool.run(&["threads", &pid, "--state", "zombie"]).text();
    assert!(text.contains(&format!("1 of {all} threads")), "{text}");
}

//! Figures of a watch in the text form of OpenMetrics.
//!
//! The number of series is bounded, over the whole life of a watch: names of processes and locks are of somebody else's making, and
//! each new one would be a series for ever in the database that scrapes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use threadglass::model::{ProcessFigures, TroubleKind, WatchFigures};

/// Names of processes and of locks that are ever told; all others are `other`.
const PROCESSES: usize = 256;
const LOCKS: usize = 1024;
/// Letters of a name.
const LETTERS: usize = 64;
const OTHER: &str = "other";
const UNNAMED: &str = "unnamed";

/// The content type that belongs to it.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The names that were told so far.
#[derive(Default)]
pub struct Labels {
    processes: BTreeSet<String>,
    locks: BTreeSet<(String, String, &'static str)>,
}

impl Labels {
    fn process(&mut self, name: &str) -> String {
        let name = cut(name);
        if self.processes.contains(&name) || self.processes.len() < PROCESSES && self.processes.insert(name.clone()) {
            return name;
        }
        OTHER.to_owned()
    }

    fn lock(&mut self, process: &str, name: Option<&str>, kind: &'static str) -> (String, String, &'static str) {
        // An address is a name of this one run alone.
        let name = name.filter(|name| !name.contains("0x")).map_or_else(|| UNNAMED.to_owned(), cut);
        let key = (process.to_owned(), name, kind);
        if self.locks.contains(&key) || self.locks.len() < LOCKS && self.locks.insert(key.clone()) {
            return key;
        }
        (OTHER.to_owned(), OTHER.to_owned(), kind)
    }
}

fn cut(name: &str) -> String {
    name.chars().take(LETTERS).collect()
}

/// A label's value between quotes.
fn quoted(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// What is added up of all processes of one name.
#[derive(Default)]
struct Sums {
    processes: usize,
    states: [usize; 5],
    runnable: f64,
    running: f64,
    longest_ms: u64,
}

const STATES: [&str; 5] = ["running", "on_word", "asleep", "unkillable", "stopped"];

impl Sums {
    fn add(&mut self, process: &ProcessFigures) {
        let states = &process.threads;
        let counts = [states.running, states.on_words, states.asleep, states.unkillable, states.stopped];
        self.processes += 1;
        self.states.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        self.runnable += process.runnable;
        self.running += process.running;
        let longest = process.locks.iter().filter(|lock| lock.kind.is_lock()).map(|lock| lock.longest_ms).max();
        self.longest_ms = self.longest_ms.max(longest.unwrap_or(0));
    }
}

/// One family of metrics: its type, unit and help, and then its samples.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let unit = ["seconds"].into_iter().find(|unit| name.ends_with(&format!("_{unit}")));
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        if let Some(unit) = unit {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

/// The whole page.
pub fn text(figures: &WatchFigures, labels: &mut Labels) -> String {
    let mut sums: BTreeMap<String, Sums> = BTreeMap::new();
    let mut locks: BTreeMap<(String, String, &'static str), usize> = BTreeMap::new();
    let mut troubles: BTreeMap<(String, TroubleKind), usize> = BTreeMap::new();
    // The largest first, so that those are told by their names.
    let mut processes: Vec<&ProcessFigures> = figures.processes.iter().collect();
    processes.sort_by_key(|process| (std::cmp::Reverse(process.threads.all()), process.process.pid));
    for process in processes {
        let name = labels.process(&process.process.name);
        sums.entry(name.clone()).or_default().add(process);
        for lock in &process.locks {
            let key = labels.lock(&name, lock.name.as_deref(), lock.kind.word());
            *locks.entry(key).or_default() += lock.waiters;
        }
        for trouble in &process.troubles {
            *troubles.entry((name.clone(), trouble.kind)).or_default() += 1;
        }
    }
    let mut page = Page(String::new());
    let seconds = |us: u64| us as f64 / 1e6;
    page.family("tglass_looks", "counter", "Looks taken.");
    page.sample("tglass_looks_total", &[], figures.looks);
    page.family("tglass_closer_looks", "counter", "Closer looks, at processes in which something had not moved.");
    page.sample("tglass_closer_looks_total", &[], figures.closer_looks);
    page.family("tglass_look_cpu_seconds", "counter", "CPU time that looking has cost.");
    let always = figures.cpu_us.saturating_sub(figures.closer_cpu_us);
    page.sample("tglass_look_cpu_seconds_total", &[("part", "always")], seconds(always));
    page.sample("tglass_look_cpu_seconds_total", &[("part", "closer")], seconds(figures.closer_cpu_us));
    page.family("tglass_processes", "gauge", "Processes that are watched, by name.");
    for (name, sum) in &sums {
        page.sample("tglass_processes", &[("process", name)], sum.processes);
    }
    page.family("tglass_processes_not_seen", "gauge", "Of them, processes that may not be looked into.");
    page.sample("tglass_processes_not_seen", &[], figures.not_seen);
    page.family("tglass_threads", "gauge", "Threads by what they do.");
    for (name, sum) in &sums {
        for (state, count) in STATES.iter().zip(sum.states) {
            page.sample("tglass_threads", &[("process", name), ("state", state)], count);
        }
    }
    page.family("tglass_runnable_threads", "gauge", "Threads that ran or wanted to, on average since the look before.");
    for (name, sum) in &sums {
        page.sample("tglass_runnable_threads", &[("process", name)], format!("{:.3}", sum.runnable));
    }
    page.family("tglass_running_threads", "gauge", "Threads that ran, on average since the look before.");
    for (name, sum) in &sums {
        page.sample("tglass_running_threads", &[("process", name)], format!("{:.3}", sum.running));
    }
    page.family("tglass_lock_waiters", "gauge", "Threads that waited for a lock at the last closer look, by its name.");
    for ((process, lock, kind), waiters) in &locks {
        page.sample("tglass_lock_waiters", &[("process", process), ("lock", lock), ("kind", kind)], waiters);
    }
    page.family("tglass_longest_lock_wait_seconds", "gauge", "The longest wait for a lock at the last closer look.");
    for (name, sum) in sums.iter().filter(|(_, sum)| sum.longest_ms > 0) {
        page.sample("tglass_longest_lock_wait_seconds", &[("process", name)], sum.longest_ms as f64 / 1e3);
    }
    page.family("tglass_trouble", "gauge", "Processes that are in trouble now, by its kind.");
    for ((process, kind), count) in &troubles {
        page.sample("tglass_trouble", &[("process", process), ("kind", kind.word())], count);
    }
    page.family("tglass_found", "counter", "Trouble that was found, by its kind.");
    for (kind, count) in &figures.found {
        page.sample("tglass_found_total", &[("kind", kind.word())], count);
    }
    page.0 + "# EOF\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use threadglass::Pid;
    use threadglass::model::{LockWaits, SyncKind, ThreadStates, WatchedProcess};

    fn process(number: usize, name: &str, lock: &str) -> ProcessFigures {
        let kind = SyncKind::Mutex;
        ProcessFigures {
            process: WatchedProcess { pid: Pid(number as i32), name: name.to_owned(), start_time: 1 },
            threads: ThreadStates { running: 1, on_words: 2, ..ThreadStates::default() },
            runnable: 1.5,
            running: 1.0,
            locks: vec![LockWaits { name: Some(lock.to_owned()), kind, waiters: 2, longest_ms: 1500 }],
            troubles: Vec::new(),
        }
    }

    #[test]
    fn what_is_told_of_one_process() {
        let figures = WatchFigures { looks: 7, processes: vec![process(1, "db\"\n\\", "table")], ..Default::default() };
        let page = text(&figures, &mut Labels::default());
        for line in [
            "tglass_looks_total 7",
            r#"tglass_threads{process="db\"\n\\",state="on_word"} 2"#,
            r#"tglass_runnable_threads{process="db\"\n\\"} 1.500"#,
            r#"tglass_lock_waiters{process="db\"\n\\",lock="table",kind="mutex"} 2"#,
            r#"tglass_longest_lock_wait_seconds{process="db\"\n\\"} 1.5"#,
        ] {
            assert!(page.lines().any(|it| it == line), "{line}\n{page}");
        }
        assert!(page.ends_with("\n# EOF\n"));
    }

    /// Processes come and go with names that nobody has seen before.
    #[test]
    fn the_number_of_series_is_bounded_for_ever() {
        let mut labels = Labels::default();
        let mut series = BTreeSet::new();
        for round in 0..100 {
            let name = |number: usize| format!("worker-{round}-{number}");
            let many = (0..100).map(|number| process(number, &name(number), &name(number)));
            let figures = WatchFigures { processes: many.collect(), ..Default::default() };
            let page = text(&figures, &mut labels);
            let sum: usize = page
                .lines()
                .filter_map(|line| line.strip_prefix("tglass_processes{")?.rsplit(' ').next()?.parse::<usize>().ok())
                .sum();
            assert_eq!(sum, 100, "none is left out");
            series.extend(
                page.lines()
                    .filter(|line| !line.starts_with('#'))
                    .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())),
            );
        }
        assert!(series.len() < 10 * PROCESSES + LOCKS + 100, "{}", series.len());
    }
}

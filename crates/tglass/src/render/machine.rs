//! The screen of `tglass why` without a target: processes that are worth a look, the worst first.

use super::why::headword;
use super::{BOLD, DIM, FAIR, GOOD, fit, gaps, paint, safe};
use std::time::Duration;
use threadglass::Pid;
use threadglass::model::{Certainty, Machine, ProcessToSee};

/// Processes that are named of those that wait for one.
const NAMED: usize = 6;

/// The whole screen, in lines of at most `width` columns.
pub fn text(machine: &Machine, width: Option<usize>) -> String {
    let ms = |us: u64| format!("{} ms", Duration::from_micros(us).as_millis());
    let mut out = format!(
        "{}, {}; locks read of {} ({} + {} of CPU time)\n\n",
        count(machine.processes, "process", "processes"),
        count(machine.threads, "thread", "threads"),
        count(machine.opened, "process", "processes"),
        ms(machine.survey_us),
        ms(machine.locks_us),
    );
    if machine.processes_to_see.is_empty() {
        out += &nothing_found(machine);
    }
    for process in &machine.processes_to_see {
        out += &one(process);
    }
    if let Some(first) = machine.processes_to_see.first() {
        out += &format!("{}        tglass why {}\n", paint(DIM, "look closer"), first.pid);
    }
    fit::wrapped(out + &gaps::text(&machine.gaps), width)
}

/// What is said if no process is worth a look.
fn nothing_found(machine: &Machine) -> String {
    if machine.not_seen > 0 && machine.not_seen >= machine.processes {
        return format!("{}  no process could be looked into.\n\n", paint(FAIR.bold(), "NOT KNOWN"));
    }
    let seen = if machine.not_seen > 0 { " that could be looked into" } else { "" };
    format!("{}  no process{seen} hangs, is stopped or keeps others waiting.\n\n", paint(GOOD.bold(), "FINE"))
}

fn one(process: &ProcessToSee) -> String {
    let (word, style) = headword(process.verdict.kind);
    let certainty = match process.verdict.certainty {
        Certainty::Certain => String::new(),
        certainty => format!("  {}", paint(style, certainty.word())),
    };
    let name = format!("{} ({})", safe(&process.name), process.pid);
    let verdict = &process.verdict;
    let mut out =
        format!("{}  {}  {}.{certainty}\n", paint(style.bold(), word), paint(BOLD, &name), safe(&verdict.text));
    if let Some(way) = &verdict.way_out {
        out += &format!("  {} {}\n", paint(DIM, "way out:"), safe(way));
    }
    if !process.circle.is_empty() {
        let pids: Vec<String> = process.circle.iter().take(NAMED).map(Pid::to_string).collect();
        let more = if process.circle.len() > NAMED { ", .." } else { "" };
        out += &format!("  in the same circle: {}{more}\n", pids.join(", "));
    }
    if !process.behind.is_empty() {
        let pids: Vec<String> = process.behind.iter().take(NAMED).map(Pid::to_string).collect();
        let more = if process.behind.len() > NAMED { ", .." } else { "" };
        let wait = count(process.behind.len(), "process waits", "processes wait");
        out += &format!("  {wait} for it: {}{more}\n", pids.join(", "));
    }
    out + "\n"
}

fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

//! The screen of `tglass contend`.

use super::safe;
use super::sync::whose;
use super::table::{Cell, Table};
use std::cmp::Reverse;
use threadglass::model::{
    Contended, ContentionReport, Family, Frame, HolderDid, InjectionReport, SyncKind, SyncStats, WaitStack,
};

/// The whole screen.
pub fn text(report: &ContentionReport) -> String {
    screen(report) + &report.tracked.as_ref().map(injection).unwrap_or_default()
}

/// What was done to a process.
pub fn injection(report: &InjectionReport) -> String {
    let mut out = match report.pause_us {
        Some(pause) => format!("injected the agent: one thread was stopped for {pause} us"),
        None => "the agent was already active".to_owned(),
    };
    out += &format!("; {} hooks were set", report.slots);
    if report.missed > 0 {
        out += &format!(" ({} could not be set)", report.missed);
    }
    out += if report.restored { " and removed\n" } else { " and left in place: another tool tracks the process\n" };
    if let Some(call) = report.interrupted {
        out += &format!("note: the stop made {call} return early in one thread\n");
    }
    out
}

fn screen(report: &ContentionReport) -> String {
    let mut out = counted(report);
    out += &format!(
        "\nSampled (looks: {}; nothing was stopped): locks of Rust's standard library, parking_lot and bare futexes, which\n\
         do not go through the C library\n",
        report.looks
    );
    if report.sampled.is_empty() {
        return out + "no thread was seen to wait for one\n";
    }
    let mut table = Table::new(&["LOCK", "KIND", "ADDRESS", ">LOOKS", ">WAITING", "WAITED IN"]);
    for lock in &report.sampled {
        let whole = report.looks.max(1) as f64;
        table.row(vec![
            Cell::from(lock.name.as_deref().map_or_else(|| "-".to_owned(), |name| safe(name).to_string())),
            Cell::from(kind_of(lock.family, lock.kind)),
            Cell::from(lock.address.to_string()),
            Cell::from(format!("{:.0}%", 100.0 * lock.looks as f64 / whole)),
            Cell::from(format!("{:.1}", lock.samples as f64 / whole)),
            Cell::from(lock.sites.first().map_or_else(|| "-".to_owned(), |(site, _)| safe(site).to_string())),
        ]);
    }
    out += &table.render();
    out
}

fn kind_of(family: Family, kind: SyncKind) -> String {
    match whose(family) {
        Some(whose) => format!("{whose} {}", kind.word()),
        None => kind.word().to_owned(),
    }
}

fn counted(report: &ContentionReport) -> String {
    let ContentionReport { locks, seconds, run_seconds, .. } = report;
    let mut out = format!("{seconds:.1} s counted, {run_seconds:.1} s in all · POSIX and C11 locks\n");
    if locks.is_empty() {
        return out + "no thread waited for one\n";
    }
    let mut table =
        Table::new(&["LOCK", "KIND", "ADDRESS", ">WAIT/s", ">WAITS", ">p50", ">p99", ">HOLD", "WAITED IN", "HELD BY"]);
    for lock in locks {
        let contention = lock.stats.contention();
        let percentile = |of: Option<u64>| of.map_or_else(|| "-".to_owned(), |ns| format!("<{}", time(ns as f64)));
        let open = if lock.open_waits > 0 { format!(" +{} open", lock.open_waits) } else { String::new() };
        let waited = lock.wait_ns.saturating_add(lock.open_wait_ns) as f64;
        table.row(vec![
            Cell::from(name(lock)),
            Cell::from(lock.kind.word()),
            Cell::from(lock.address.to_string()),
            Cell::from(time(waited / seconds.max(1e-9))),
            Cell::from(format!("{}{open}", lock.waits)),
            Cell::from(percentile(contention.map(|contention| contention.p50_ns))),
            Cell::from(percentile(contention.map(|contention| contention.p99_ns))),
            Cell::from(hold(&lock.stats)),
            Cell::from(lock.waited_in.first().map_or_else(|| "-".to_owned(), waited_in)),
            Cell::from(lock.held_in.first().map_or_else(|| "-".to_owned(), |held| place(&held.frame))),
        ]);
    }
    out += &table.render();
    if locks.iter().any(|lock| lock.open_waits > 0) {
        out += "open: waits that have not ended, or had begun before; they count from the beginning of the look\n";
    }
    out + &locks.iter().take(EXPLAINED).map(explained).collect::<String>()
}

/// Locks whose waiters and holders are told.
const EXPLAINED: usize = 5;
/// Places of one lock that are told.
const PLACES: usize = 4;

fn name(lock: &Contended) -> String {
    lock.name.as_deref().map_or_else(|| "-".to_owned(), |name| safe(name).to_string())
}

/// `update_row table.c:88`
fn place(frame: &Frame) -> String {
    let function = frame.function.as_deref().map_or_else(|| frame.pc.to_string(), |name| safe(name).to_string());
    let file = frame.file.as_deref().and_then(|file| file.rsplit('/').next());
    match (file, frame.line) {
        (Some(file), Some(line)) => format!("{function} {}:{line}", safe(file)),
        _ => function,
    }
}

/// The first function that is no wrapper, and which one it called: `update_row table.c:88 by rw_pr_wrlock`.
fn waited_in(stack: &WaitStack) -> String {
    let Some(caller) = stack.frames.get(stack.caller) else { return "-".to_owned() };
    let wrapper = stack.frames.first().filter(|_| stack.caller > 0).and_then(|frame| frame.function.as_deref());
    place(caller) + &wrapper.map_or_else(String::new, |name| format!(" by {}", safe(name)))
}

/// Who waited where, if in more than one place, and what holders did.
fn explained(lock: &Contended) -> String {
    let label = lock.name.as_deref().map_or_else(|| lock.address.to_string(), |name| safe(name).to_string());
    let mut out = String::new();
    let waits = lock.waited_in.iter().map(|stack| {
        let from = stack.frames.get(stack.caller + 1).map(|frame| format!(" < {}", place(frame)));
        (stack.time_ns, waited_in(stack) + &from.unwrap_or_default())
    });
    let waits = shares(waits);
    if waits.len() > 1 {
        out += &format!("{label} was waited for in: {}\n", waits.join(", "));
    }
    let looks: u64 = lock.holders_did.iter().map(|did| did.looks).sum();
    let did = shares(lock.holders_did.iter().map(|did| (did.looks, deed(did))));
    if !did.is_empty() {
        out += &format!("{label}: its holder was, in {looks} looks: {}\n", did.join(", "));
    }
    out
}

/// The largest parts with their shares of the whole, `54% update_row`: equal texts once, and nothing that is 0 %.
fn shares(parts: impl Iterator<Item = (u64, String)>) -> Vec<String> {
    let mut sums: Vec<(u64, String)> = Vec::new();
    for (part, text) in parts {
        match sums.iter_mut().find(|(_, known)| *known == text) {
            Some((sum, _)) => *sum = sum.saturating_add(part),
            None => sums.push((part, text)),
        }
    }
    let whole = sums.iter().map(|(sum, _)| *sum as f64).sum::<f64>().max(1.0);
    sums.sort_by_key(|(sum, _)| Reverse(*sum));
    let told = sums.into_iter().map(|(sum, text)| (format!("{:.0}%", 100.0 * sum as f64 / whole), text));
    told.filter(|(share, _)| share != "0%").take(PLACES).map(|(share, text)| format!("{share} {text}")).collect()
}

fn deed(did: &HolderDid) -> String {
    match (did.what, &did.call, did.lock) {
        ("on_cpu", ..) => "on a CPU".to_owned(),
        ("runnable", ..) => "without a CPU".to_owned(),
        ("asleep", Some(call), _) => format!("asleep in {}", safe(call)),
        ("waiting", _, Some(lock)) => format!("waiting for the lock at {lock}"),
        (what, ..) => what.to_owned(),
    }
}

/// How long it is held, on the average.
fn hold(stats: &SyncStats) -> String {
    let (total, count) = match stats {
        SyncStats::Lock(lock) => (lock.hold_time.total_ns, lock.lock),
        SyncStats::Rwlock(lock) => (lock.hold_time.total_ns, u64::from(lock.write.lock)),
        _ => (0, 0),
    };
    if count == 0 || total == 0 { "-".to_owned() } else { time(total as f64 / count as f64) }
}

/// A time in three digits.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_places_are_told_once_and_none_of_no_weight() {
        let parts = [(540, "update_row"), (300, "drop_row"), (4, "main"), (156, "update_row")];
        let parts = parts.map(|(part, text)| (part, text.to_owned()));
        assert_eq!(shares(parts.into_iter()), ["70% update_row", "30% drop_row"]);
        assert!(shares([(0, "main".to_owned())].into_iter()).is_empty());
    }

    #[test]
    fn times_have_three_digits() {
        let times = [0.0, 5.0, 1234.0, 56_789.0, 123_456_789.0, 2e9].map(time);
        assert_eq!(times, ["0.00 ns", "5.00 ns", "1.23 us", "56.8 us", "123 ms", "2.00 s"]);
    }
}

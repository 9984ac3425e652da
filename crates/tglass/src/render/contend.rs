//! The screen of `tglass contend`.

use super::safe;
use super::table::{Cell, Table};
use threadglass::model::{Contended, ContentionReport, Family, InjectionReport, SyncKind, SyncStats};

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
    let mut out = counted(&report.locks, report.seconds);
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
    let kind = kind.word();
    match family {
        Family::RustStd => format!("Rust {kind}"),
        Family::ParkingLot => format!("parking_lot {kind}"),
        Family::Cxx => format!("C++ {kind}"),
        _ => kind.to_owned(),
    }
}

fn counted(locks: &[Contended], seconds: f64) -> String {
    let mut out = format!("{seconds:.1} s · POSIX and C11 locks, counted\n");
    if locks.is_empty() {
        return out + "no thread waited for one\n";
    }
    let mut table =
        Table::new(&["LOCK", "KIND", "ADDRESS", ">WAIT/s", ">WAITS", ">p50", ">p99", ">HOLD", "WAITED IN", "HELD BY"]);
    for lock in locks {
        let contention = lock.stats.contention();
        let percentile = |of: Option<u64>| of.map_or_else(|| "-".to_owned(), |ns| format!("<{}", time(ns as f64)));
        let (waiter, holder) = lock.sites.first().map_or(("-".to_owned(), "-".to_owned()), |(waiter, holder, _)| {
            (safe(waiter).to_string(), holder.as_deref().map_or("-".to_owned(), |holder| safe(holder).to_string()))
        });
        table.row(vec![
            Cell::from(lock.name.as_deref().map_or_else(|| "-".to_owned(), |name| safe(name).to_string())),
            Cell::from(lock.kind.word()),
            Cell::from(lock.address.to_string()),
            Cell::from(time(lock.wait_ns as f64 / seconds.max(1e-9))),
            Cell::from(lock.waits.to_string()),
            Cell::from(percentile(contention.map(|contention| contention.p50_ns))),
            Cell::from(percentile(contention.map(|contention| contention.p99_ns))),
            Cell::from(hold(&lock.stats)),
            Cell::from(waiter),
            Cell::from(holder),
        ]);
    }
    out += &table.render();
    out
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
    fn times_have_three_digits() {
        let times = [0.0, 5.0, 1234.0, 56_789.0, 123_456_789.0, 2e9].map(time);
        assert_eq!(times, ["0.00 ns", "5.00 ns", "1.23 us", "56.8 us", "123 ms", "2.00 s"]);
    }
}

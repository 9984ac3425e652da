//! The screen of `tglass stats`.

use super::table::{Cell, Table};
use super::{BAD, BOLD, DIM, FAIR, GOOD, gaps, paint, safe};
use anstyle::Style;
use threadglass::model::{Stats, ThreadStats};

/// The whole screen, with at most `most` threads.
pub fn text(stats: &Stats, most: usize) -> String {
    let process = &stats.process;
    let plural = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let count = match process.tasks_of.as_slice() {
        [] => plural(process.nthreads, "thread"),
        runtimes => {
            let threads = plural(stats.threads.len(), "thread");
            format!("{} of {} on {threads}", plural(process.nthreads, "task"), runtimes.join(" and "))
        }
    };
    let seconds = stats.interval_ms as f64 / 1e3;
    let took = format!("{} samples in {seconds:.2} s", stats.samples);
    let mut out = format!(
        "{}  {count}, {seconds:.2} s\n{}\n\n",
        super::target::name(&stats.target),
        super::target::how(&stats.target, (stats.pause_us, 0), Some(took)),
    );
    let asked = process.r_concurrency.map_or("unknown".to_owned(), |level| level.to_string());
    out += &format!(
        "on average  {}, {:.2} runnable, {:.2} LWPs, {:.2} idle  {}\n",
        paint(BOLD, &format!("{:.2} running", process.a_concurrency)),
        process.nrunnable,
        process.nlwps,
        process.nidle,
        paint(DIM, &format!("(concurrency asked for: {asked})")),
    );
    if process.ended > 0 || process.ended_cpu >= 1.0 {
        let who = match process.ended {
            0 => "threads too short-lived to be seen".to_owned(),
            1 => "1 thread that has ended, and threads too short-lived to be seen".to_owned(),
            count => format!("{count} threads that have ended, and threads too short-lived to be seen"),
        };
        out += &format!("not listed  {who}: {:.1} % CPU\n", process.ended_cpu);
    }
    out.push('\n');
    let mut table = Table::new(&[">LWP", "NAME", ">CPU%", ">RUNQ%", ">LCK%", ">SLP%"]);
    for thread in stats.threads.iter().take(most) {
        table.row(row(thread));
    }
    out += &table.render();
    if let Some(more) = stats.threads.len().checked_sub(most).filter(|more| *more > 0) {
        out += &paint(DIM, &format!("  and {more} more that did less (--all shows them)\n"));
    }
    out + &gaps::text(&stats.gaps)
}

fn row(thread: &ThreadStats) -> Vec<Cell> {
    let dash = || Cell::styled("-", DIM);
    let part = |percent: f64, style: Style| {
        let style = if percent >= 1.0 { style } else { DIM };
        Cell::styled(format!("{percent:.1}"), style)
    };
    vec![
        thread.lwp.to_string().into(),
        thread.name.as_deref().map_or_else(dash, |name| safe(name).into()),
        part(thread.cpu, GOOD),
        part(thread.runqueue, FAIR),
        thread.lock.map_or_else(dash, |lock| part(lock, BAD)),
        part(thread.sleep, Style::new()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use threadglass::model::{Evidence, Libc, ProcessStats, SCHEMA, TargetInfo};
    use threadglass::{Lwp, Pid};

    fn stats() -> Stats {
        let thread = |lwp, name: &str, cpu, runqueue, lock, sleep| ThreadStats {
            lwp: Lwp(lwp),
            name: Some(name.to_owned()),
            cpu,
            runqueue,
            lock,
            sleep,
        };
        Stats {
            schema: SCHEMA,
            target: TargetInfo {
                pid: Pid(10),
                name: "mill".to_owned(),
                exe: None,
                uid: None,
                in_pid_namespace: false,
                libc: Libc::Unread,
                shared_pending: None,
                tracer: None,
                core: None,
                snapshot: None,
            },
            taken_at_ms: 0,
            pause_us: 0,
            interval_ms: 1004,
            samples: 50,
            evidence: Evidence::Derived,
            lock_evidence: Evidence::Inferred,
            process: ProcessStats {
                tasks_of: Vec::new(),
                nthreads: 3,
                r_concurrency: Some(0),
                nrunnable: 1.25,
                a_concurrency: 1.0,
                nlwps: 3.0,
                nidle: 1.75,
                ended: 2,
                ended_cpu: 0.5,
            },
            threads: vec![
                thread(11, "grind\x1b[2J", 99.5, 0.5, Some(0.0), 0.0),
                thread(12, "wait", 0.0, 0.0, Some(75.0), 25.0),
                thread(10, "mill", 0.0, 0.0, None, 100.0),
            ],
            gaps: Vec::new(),
        }
    }

    #[test]
    fn the_screen() {
        let plain = anstream::adapter::strip_str(&text(&stats(), usize::MAX)).to_string();
        let expected = "\
mill (pid 10)  3 threads, 1.00 s
memory not readable; read without stopping it (0 us pause, 50 samples in 1.00 s)

on average  1.00 running, 1.25 runnable, 3.00 LWPs, 1.75 idle  (concurrency asked for: 0)
not listed  2 threads that have ended, and threads too short-lived to be seen: 0.5 % CPU

  LWP  NAME            CPU%  RUNQ%  LCK%   SLP%
   11  grind\\u{1b}[2J  99.5    0.5   0.0    0.0
   12  wait             0.0    0.0  75.0   25.0
   10  mill             0.0    0.0     -  100.0
";
        assert_eq!(plain, expected);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let plain = anstream::adapter::strip_str(&text(&stats(), 1)).to_string();
        assert!(plain.ends_with("  and 2 more that did less (--all shows them)\n"), "{plain}");
    }
}

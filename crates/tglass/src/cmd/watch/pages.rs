//! The pages that a watch answers by HTTP.

use crate::render::openmetrics::{self, Labels};
use crate::render::pprof::{SampleNames, encode_as};
use crate::render::report::Measured;
use crate::{remedy, render};
use anyhow::{Result, ensure};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use threadglass::Pid;
use threadglass::look::{self, TaskScope, ThreadList};
use threadglass::measure::profile::{DEFAULT_LOOKS, DEFAULT_RATE, Options, Source, record, record_waits};
use threadglass::model::{
    Profile, ProfileEnd, ProfileKind, ProfiledProcess, RestartHelps, SCHEMA, Snapshot, StackShare, SyncKind,
    WatchEvent, WatchFigures,
};
use threadglass::snap::{TakeOptions, take};
use threadglass::target::Live;

/// How long a profile takes if that is not said, and at most.
const PROFILE: u64 = 10;
const WAITS: u64 = 5;
const LONGEST: u64 = 60;

const TEXT: &str = "text/plain; charset=utf-8";
const BINARY: &str = "application/octet-stream";

const INDEX: &str = "\
tglass watch

/metrics                 figures in the form of OpenMetrics
/healthz                 200 while looks are taken
/healthz/targets         503 while a process is in trouble that a restart helps
/report                  the report of a process: one HTML file
/snapshot                its snapshot, for `tglass why FILE`
/debug/pprof/profile     where it uses CPU time, for ?seconds=10
/debug/pprof/mutex       where threads wait for locks, for ?seconds=5
/debug/pprof/block       where threads wait for each other, for ?seconds=5
/debug/pprof/goroutine   where its threads or tasks are now

With several processes: ?pid=PID
";

/// What is sent back.
pub struct Answer {
    pub status: u16,
    pub kind: &'static str,
    pub body: Vec<u8>,
    /// A name to save it by.
    pub file: Option<String>,
}

impl Answer {
    pub fn refused(status: u16, why: &str) -> Self {
        Self { status, kind: TEXT, body: format!("{why}\n").into_bytes(), file: None }
    }

    fn of(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, kind, body: body.into(), file: None }
    }
}

/// What the pages tell, which the watch brings up to date.
pub struct Pages {
    state: Mutex<State>,
    redact: bool,
}

struct State {
    figures: Arc<WatchFigures>,
    labels: Labels,
    /// When the last look ended, and when the next one should at the latest.
    looked: Instant,
    next: Duration,
}

impl Pages {
    pub fn new(redact: bool) -> Self {
        let state = State {
            figures: Arc::default(),
            labels: Labels::default(),
            looked: Instant::now(),
            next: Duration::from_secs(60),
        };
        Self { state: Mutex::new(state), redact }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the last look has seen. The next one ends within `next`.
    pub fn update(&self, figures: WatchFigures, next: Duration) {
        let mut state = self.state();
        state.figures = Arc::new(figures);
        state.looked = Instant::now();
        state.next = next;
    }

    fn figures(&self) -> Arc<WatchFigures> {
        self.state().figures.clone()
    }

    /// The answer to what takes no time; `None` for what does.
    pub fn quick(&self, path: &str, query: &str) -> Option<Answer> {
        Some(match path {
            "/" | "/debug/pprof" | "/debug/pprof/" => Answer::of(TEXT, INDEX),
            "/metrics" => {
                let figures = self.figures();
                let text = openmetrics::text(&figures, &mut self.state().labels);
                Answer::of(openmetrics::CONTENT_TYPE, text)
            }
            "/healthz" => self.health(),
            "/healthz/targets" => self.health_of_targets(),
            "/report"
            | "/snapshot"
            | "/debug/pprof/profile"
            | "/debug/pprof/mutex"
            | "/debug/pprof/block"
            | "/debug/pprof/goroutine" => match self.pid(query).and_then(|_| seconds(query, PROFILE)) {
                Ok(_) => return None,
                Err(error) => Answer::refused(400, &render::safe(&format!("{error:#}"))),
            },
            _ => Answer::refused(404, "there is no such page; `/` lists them"),
        })
    }

    fn health(&self) -> Answer {
        let state = self.state();
        let late = state.looked.elapsed();
        match late <= state.next * 3 + Duration::from_secs(10) {
            true => Answer::of(TEXT, "ok\n"),
            false => Answer::refused(503, &format!("no look has been taken for {} s", late.as_secs())),
        }
    }

    fn health_of_targets(&self) -> Answer {
        let figures = self.figures();
        let troubles = figures.processes.iter().flat_map(|process| &process.troubles);
        let (mut text, mut helps) = (String::new(), false);
        for trouble in troubles {
            helps |= trouble.restart_helps == RestartHelps::Yes;
            text += &line(trouble);
        }
        match helps {
            true => Answer::refused(503, text.trim_end()),
            false => Answer::of(TEXT, text + "ok\n"),
        }
    }

    /// What takes long.
    pub fn long(&self, path: &str, query: &str) -> Answer {
        let answer = self.pid(query).and_then(|pid| match path {
            "/report" => report(pid),
            "/snapshot" => snapshot(pid, self.redact),
            "/debug/pprof/profile" => cpu_profile(pid, seconds(query, PROFILE)?),
            "/debug/pprof/mutex" => wait_profile(pid, seconds(query, WAITS)?, &SyncKind::is_lock),
            "/debug/pprof/block" => wait_profile(pid, seconds(query, WAITS)?, &|_| true),
            _ => stacks(pid),
        });
        answer.unwrap_or_else(|error| Answer::refused(500, &render::safe(&remedy::of_error(&error))))
    }

    /// The process that is asked about: one of those that are watched.
    fn pid(&self, query: &str) -> Result<Pid> {
        let figures = self.figures();
        let all = || figures.processes.iter().map(|process| &process.process);
        if let Some(asked) = value(query, "pid") {
            let pid = asked.parse().ok().map(Pid);
            ensure!(all().any(|process| Some(process.pid) == pid), "no process with this PID is watched");
            return Ok(pid.unwrap_or(Pid(0)));
        }
        let few: Vec<String> = all().take(20).map(|process| format!("?pid={} {}", process.pid, process.name)).collect();
        match all().next() {
            Some(one) if all().count() == 1 => Ok(one.pid),
            None => anyhow::bail!("no process is watched now"),
            Some(_) => anyhow::bail!("{} processes are watched; say which: {}", all().count(), few.join(", ")),
        }
    }
}

fn line(trouble: &WatchEvent) -> String {
    anstream::adapter::strip_str(&render::watch::line(trouble)).to_string()
}

/// The value of `name` in `a=1&b=2`. Only numbers are asked for, so nothing is decoded.
fn value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value))
}

fn seconds(query: &str, usual: u64) -> Result<Duration> {
    let asked = value(query, "seconds").map_or(Some(usual), |text| text.parse().ok());
    let seconds = asked.filter(|seconds| (1..=LONGEST).contains(seconds));
    ensure!(seconds.is_some(), "seconds must be a number from 1 to {LONGEST}");
    Ok(Duration::from_secs(seconds.unwrap_or(usual)))
}

fn report(pid: Pid) -> Result<Answer> {
    let begun = Instant::now();
    let live = Live::open(pid)?;
    let mut snapshot = look::explain_whole(&live, look::USUAL_TIME)?;
    remedy::of_gaps(&mut snapshot.gaps);
    let page = render::report::page(&snapshot, &Measured::default(), begun.elapsed())?;
    Ok(Answer::of("text/html; charset=utf-8", page))
}

fn snapshot(pid: Pid, redact: bool) -> Result<Answer> {
    let taken = take(&Live::open(pid)?, TakeOptions { redact, ..TakeOptions::default() })?;
    let file = Some(format!("tglass-{pid}.{}", super::super::target::SNAPSHOT));
    Ok(Answer { file, ..Answer::of(BINARY, taken.bytes) })
}

fn cpu_profile(pid: Pid, time: Duration) -> Result<Answer> {
    let options = Options { stacks: true, ..Options::new(DEFAULT_RATE, Some(time)) };
    let profile = record(Source::Process(pid), &options, &mut |time, _| {
        thread::sleep(time);
        false
    })?;
    pprof(&profile, SampleNames { count: "samples", time: Some("cpu") }, "profile")
}

/// Of waits for what is `wanted`. The names of the values are those of Go's profiles, which tools know.
fn wait_profile(pid: Pid, time: Duration, wanted: &dyn Fn(SyncKind) -> bool) -> Result<Answer> {
    let options = Options { stacks: true, ..Options::new(DEFAULT_LOOKS, Some(time)) };
    let mut profile = record_waits(pid, &options, &mut |time, _| {
        thread::sleep(time);
        false
    })?;
    let kinds: Vec<String> =
        SyncKind::ALL.into_iter().filter(|kind| wanted(*kind)).map(|kind| format!("{} ", kind.word())).collect();
    let is_wanted = |stack: &StackShare| {
        stack.waits_for.first().is_some_and(|what| kinds.iter().any(|kind| what.starts_with(kind.as_str())))
    };
    profile.stacks.retain(is_wanted);
    pprof(&profile, SampleNames { count: "contentions", time: Some("delay") }, "waits")
}

/// Where all threads are, or the tasks of programs that have any.
fn stacks(pid: Pid) -> Result<Answer> {
    let live = Live::open(pid)?;
    let list = ThreadList { tasks: Some(TaskScope::Stacks), stacks: true };
    let snapshot = look::list_threads(&live, list, |_| ())?;
    let stacks = if snapshot.tasks.is_empty() { of_threads(&snapshot) } else { of_tasks(&snapshot) };
    let target = ProfiledProcess { pid, name: snapshot.target.name, exe: snapshot.target.exe };
    let samples = stacks.iter().map(|stack| stack.samples).sum();
    let profile = Profile {
        schema: SCHEMA,
        target,
        kind: ProfileKind::Wait,
        rate: 1,
        clock: None,
        duration_ms: 0,
        end: ProfileEnd::Time,
        samples,
        outside: 0,
        kernel: None,
        cpu_ms: None,
        kernel_ms: None,
        lost: 0,
        throttled: 0,
        threads: snapshot.threads.len(),
        tasks_of: Vec::new(),
        looks: Some(1),
        functions: Vec::new(),
        ranges: Vec::new(),
        waits: Vec::new(),
        stacks,
        mapped: Vec::new(),
        histogram: None,
        gaps: Vec::new(),
    };
    pprof(&profile, SampleNames { count: "goroutine", time: None }, "goroutine")
}

fn of_threads(snapshot: &Snapshot) -> Vec<StackShare> {
    let stack = |thread: &threadglass::model::Thread| {
        let waits = thread.waits_for.as_ref();
        let name =
            |waits: &threadglass::model::WaitsFor| waits.name.clone().unwrap_or_else(|| waits.address.to_string());
        StackShare {
            frames: thread.frames.clone(),
            whole: false,
            waits_for: waits.map(|waits| format!("{} {}", waits.kind.word(), name(waits))).into_iter().collect(),
            samples: 1,
        }
    };
    // Of a thread that runs there is no stack without a stop; it is counted by its state.
    let named = |thread: &threadglass::model::Thread| match thread.frames.is_empty() {
        true => StackShare { waits_for: vec![thread.state.word().to_owned()], ..stack(thread) },
        false => stack(thread),
    };
    snapshot.threads.iter().map(named).collect()
}

fn of_tasks(snapshot: &Snapshot) -> Vec<StackShare> {
    let stack = |task: &threadglass::model::Task| StackShare {
        frames: task.frames.to_vec(),
        whole: false,
        waits_for: vec![task.status.to_owned()],
        samples: 1,
    };
    snapshot.tasks.iter().map(stack).collect()
}

fn pprof(profile: &Profile, names: SampleNames, what: &str) -> Result<Answer> {
    let file = Some(format!("{what}-{}.pb.gz", profile.target.pid));
    Ok(Answer { file, ..Answer::of(BINARY, encode_as(profile, names)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        assert_eq!(value("pid=7&seconds=3", "seconds"), Some("3"));
        assert_eq!(value("seconds=3", "pid"), None);
        assert_eq!(value("", "pid"), None);
        assert_eq!(seconds("", 5).ok(), Some(Duration::from_secs(5)));
        for bad in ["seconds=", "seconds=0", "seconds=61", "seconds=-1", "seconds=1e9", "seconds=99999999999999999999"]
        {
            assert!(seconds(bad, 5).is_err(), "{bad}");
        }
        let pages = Pages::new(false);
        assert_eq!(pages.quick("/healthz", "").map(|answer| answer.status), Some(200));
        assert_eq!(pages.quick("/nothing", "").map(|answer| answer.status), Some(404));
        let none = pages.quick("/snapshot", "pid=1").expect("an answer");
        assert_eq!((none.status, String::from_utf8_lossy(&none.body).contains("watched")), (400, true));
    }
}

//! The helper thread that takes the ticks, and talking to it.

use crate::clock::{Choice, Clock, Refused, Source};
use crate::sink::{Counter, Ended, Progress, Sink, Tick};
use crate::sys::process::{self, Usage};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How ticks are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub rate: u32,
    pub choice: Choice,
}

/// How a profile has gone so far.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The clock, once it runs.
    pub clock: Option<Clock>,
    /// Why it is not [`Clock::Perf`], where that was wanted.
    pub perf_refused: Option<String>,
    /// Ticks per second of CPU time that were asked for.
    pub rate: u32,
    /// Times that a thread was looked at. With [`Clock::Perf`] each is one tick.
    pub samples: u64,
    /// Ticks counted in the histogram (or stored).
    pub ticks: u64,
    /// Ticks outside the region.
    pub outside: u64,
    /// Ticks that were lost because there was no room, or no time, for them.
    pub lost: u64,
    /// Times that the kernel slowed the clock down.
    pub throttled: u64,
    /// CPU time of the process while the clock ran: with [`Clock::Perf`] in user mode, as only that has ticks.
    pub cpu_time: Duration,
    /// What ended it, if not its owner.
    pub ended: Option<Ended>,
    /// Whether it is paused.
    pub paused: bool,
}

impl Stats {
    /// Samples per second of CPU time, as they really were; `None` before there is any CPU time.
    pub fn achieved_rate(&self) -> Option<f64> {
        let seconds = self.cpu_time.as_secs_f64();
        (seconds > 0.0).then(|| self.samples as f64 / seconds)
    }
}

/// What the helper is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// Count what is there.
    Flush,
    /// Count what is there, and nothing more until the next command.
    Hold,
    Pause,
    Resume,
    Stop,
}

#[derive(Debug, Default)]
struct Control {
    command: Option<Command>,
    stats: Stats,
    finished: bool,
    /// How the start went, once it has; taken by who waits for it.
    started: Option<Result<(), Refused>>,
}

/// One profile: what the program and its helper thread share.
#[derive(Debug)]
pub(crate) struct Session {
    settings: Settings,
    sink: Sink,
    /// The process it belongs to. A child made without the handlers of fork has a copy, and no helper.
    pid: AtomicU32,
    control: Mutex<Control>,
    /// For the helper: there is a command.
    wake: Condvar,
    /// For the others: it is done.
    done: Condvar,
}

/// Nothing panics while it holds the lock; if it did, the numbers would still be usable.
fn lock(control: &Mutex<Control>) -> MutexGuard<'_, Control> {
    control.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Why a profile could not be started.
#[derive(Debug)]
pub(crate) enum StartError {
    Thread(io::Error),
    Clock(Refused),
}

impl Session {
    /// Starts the helper, and returns when the clock runs.
    pub fn start(settings: Settings, sink: Sink) -> Result<Arc<Self>, StartError> {
        let control = Control { stats: Stats { rate: settings.rate, ..Stats::default() }, ..Control::default() };
        let session = Arc::new(Self {
            settings,
            sink,
            pid: AtomicU32::new(std::process::id()),
            control: Mutex::new(control),
            wake: Condvar::new(),
            done: Condvar::new(),
        });
        session.spawn().map_err(StartError::Thread)?;
        let mut control = lock(&session.control);
        loop {
            match control.started.take() {
                Some(Ok(())) => break,
                Some(Err(refused)) => return Err(StartError::Clock(refused)),
                None if control.finished => {
                    return Err(StartError::Thread(io::Error::other("the helper thread has ended")));
                }
                None => control = session.done.wait(control).unwrap_or_else(|poison| poison.into_inner()),
            }
        }
        drop(control);
        Ok(session)
    }

    /// In the child of a fork, where the helper is gone: starts another, for the child's copy of all.
    /// The parent held the old one still, so everything it shares is at rest.
    pub fn start_again(self: &Arc<Self>) {
        self.pid.store(std::process::id(), Ordering::Relaxed);
        {
            let mut control = lock(&self.control);
            control.command = None;
            if control.finished {
                return;
            }
        }
        // Does not wait for the clock: many children only execute another program.
        if self.spawn().is_err() {
            self.finish(Some(Ended::Failed));
        }
    }

    fn spawn(self: &Arc<Self>) -> io::Result<()> {
        let session = Arc::clone(self);
        let builder = std::thread::Builder::new().name("profil".to_owned()).stack_size(256 << 10);
        process::without_signals(|| builder.spawn(move || session.run())).map(drop)
    }

    /// Whether the helper has ended, or never ran.
    pub fn is_finished(&self) -> bool {
        !self.is_ours() || lock(&self.control).finished
    }

    /// Whether it belongs to the calling process, and not to its parent.
    fn is_ours(&self) -> bool {
        self.pid.load(Ordering::Relaxed) == std::process::id()
    }

    /// What is counted, and how.
    pub fn sink(&self) -> &Sink {
        &self.sink
    }

    /// How it has gone, as of the last time the helper looked.
    pub fn stats(&self) -> Stats {
        lock(&self.control).stats.clone()
    }

    /// Has a command done. One caller at a time: the others wait for a lock outside.
    fn ask(&self, command: Command) {
        if !self.is_ours() {
            return;
        }
        let mut control = lock(&self.control);
        if control.finished {
            return;
        }
        control.command = Some(command);
        self.wake.notify_one();
        while control.command.is_some() && !control.finished {
            control = self.done.wait(control).unwrap_or_else(|poison| poison.into_inner());
        }
    }

    pub fn flush(&self) {
        self.ask(Command::Flush);
    }

    /// Stands still until the next command.
    pub fn hold(&self) {
        self.ask(Command::Hold);
    }

    pub fn pause(&self) {
        self.ask(Command::Pause);
    }

    pub fn resume(&self) {
        self.ask(Command::Resume);
    }

    /// Counts what is there and ends. Afterwards nothing is open and the buffer is not touched.
    pub fn stop(&self) {
        self.ask(Command::Stop);
    }

    fn finish(&self, ended: Option<Ended>) {
        let mut control = lock(&self.control);
        control.finished = true;
        control.command = None;
        if let Some(ended) = ended {
            control.stats.ended.get_or_insert(ended);
        }
        self.done.notify_all();
    }

    /// The helper thread.
    fn run(&self) {
        struct Finish<'a>(&'a Session);
        impl Drop for Finish<'_> {
            fn drop(&mut self) {
                // A panic is a failure of the clock; the program goes on.
                self.0.finish(std::thread::panicking().then_some(Ended::Failed));
            }
        }
        // Declared first, so that it is dropped last: when the others hear of the end, all is closed.
        let _finish = Finish(self);
        let (mut source, refused) = match Source::open(self.settings.choice, self.settings.rate) {
            Ok(opened) => opened,
            Err(error) => {
                let mut control = lock(&self.control);
                control.stats.ended = Some(Ended::Failed);
                control.started = Some(Err(error));
                return;
            }
        };
        let mut helper = {
            let mut control = lock(&self.control);
            control.stats.clock = Some(source.clock());
            control.stats.perf_refused = refused.map(|error| error.to_string());
            if control.stats.paused {
                source.pause();
            }
            control.started = Some(Ok(()));
            self.done.notify_all();
            Helper::new(source, self.sink.clone(), control.stats.clone())
        };
        self.serve(&mut helper);
    }

    fn serve(&self, helper: &mut Helper) {
        const SHORT: Duration = Duration::from_millis(100);
        let mut nap = SHORT;
        let mut hold = false;
        loop {
            let command = {
                let mut control = lock(&self.control);
                if control.command.is_none() {
                    control = if hold {
                        self.wake.wait(control).unwrap_or_else(|poison| poison.into_inner())
                    } else {
                        self.wake.wait_timeout(control, nap).unwrap_or_else(|poison| poison.into_inner()).0
                    };
                }
                control.command
            };
            if hold && command.is_none() {
                continue;
            }
            hold = command == Some(Command::Hold);
            match command {
                Some(Command::Pause) => helper.pause(),
                Some(Command::Stop) => helper.end(),
                Some(Command::Resume) => helper.resume(),
                _ => {}
            }
            let any = helper.drain();
            let over = command == Some(Command::Stop) || helper.stats.ended.is_some();
            if over || command.is_some() {
                helper.stats.cpu_time = helper.before.cpu_time + helper.used_now();
            }
            let mut control = lock(&self.control);
            control.stats = helper.stats.clone();
            if over {
                // The answer comes when everything is closed.
                return;
            }
            if command.is_some() {
                control.command = None;
                self.done.notify_all();
            }
            drop(control);
            // Whoever computes is counted soon; in a program that sleeps the helper sleeps too.
            nap = if any { SHORT } else { (nap * 2).min(helper.source.longest_nap()) };
            if !any && command.is_none() && alone() {
                return;
            }
        }
    }
}

/// Whether no other thread lives: then the program has ended by `pthread_exit`, and only waits for us.
fn alone() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
    let mut fields = fields.split(' ');
    let state = fields.next();
    // `num_threads`, with the main thread, which stays as a zombie until the last has ended.
    let threads = fields.nth(16).and_then(|field| field.parse::<u32>().ok());
    state == Some("Z") && threads.is_some_and(|threads| threads <= 2)
}

/// What the helper thread keeps for itself.
struct Helper {
    source: Source,
    counter: Counter,
    batch: Vec<Tick>,
    /// Of the time before this helper: those of the parent, in the child of a fork.
    before: Stats,
    stats: Stats,
    progress: Progress,
    /// CPU time when the clock was last started, and what had been used until then.
    since: Option<Usage>,
    used: Duration,
}

impl Helper {
    fn new(source: Source, sink: Sink, before: Stats) -> Self {
        let mut progress = Progress::default();
        if let Sink::Samples { .. } = sink {
            // Where the next sample goes.
            progress.ticks = before.ticks;
        }
        let since = (!before.paused).then(process::usage_of_others);
        let stats = before.clone();
        let counter = Counter::new(sink);
        Self { source, counter, batch: Vec::new(), before, stats, progress, since, used: Duration::ZERO }
    }

    fn used_now(&self) -> Duration {
        let Some(since) = self.since else { return self.used };
        let now = process::usage_of_others();
        let mut more = now.user.saturating_sub(since.user);
        if self.source.clock() == Clock::Timers {
            more += now.system.saturating_sub(since.system);
        }
        self.used + more
    }

    fn end(&mut self) {
        self.source.pause();
        self.used = self.used_now();
        self.since = None;
    }

    fn pause(&mut self) {
        self.end();
        self.stats.paused = true;
    }

    fn resume(&mut self) {
        if self.stats.paused {
            self.stats.paused = false;
            self.since = Some(process::usage_of_others());
            self.source.resume();
        }
    }

    /// Counts what is there; whether there was anything.
    fn drain(&mut self) -> bool {
        let Self { source, batch, .. } = self;
        batch.clear();
        source.drain(|pc, ticks| batch.push((pc, ticks)));
        let any = !self.batch.is_empty();
        self.counter.count(&self.batch, &mut self.progress);
        let (lost, throttled) = self.source.losses();
        let (before, progress) = (&self.before, &self.progress);
        let stored = matches!(self.counter.sink(), Sink::Samples { .. });
        let stats = &mut self.stats;
        stats.samples = before.samples + progress.samples;
        stats.ticks = if stored { progress.ticks } else { before.ticks + progress.ticks };
        stats.outside = before.outside + progress.outside;
        stats.lost = before.lost + lost;
        stats.throttled = before.throttled + throttled;
        stats.ended = progress.ended;
        any
    }
}

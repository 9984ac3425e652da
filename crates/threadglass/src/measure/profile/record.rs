//! Ticks of running threads: the loop that collects them.

use super::image::OpenedProcesses;
use super::recorder::Recorder;
use super::{Launched, Options, ProfileError, Progress};
use crate::Pid;
use crate::model::{Profile, ProfileClock as Clock, ProfileEnd as End};
use crate::perf::{Begin, Record, Sample, Switches, Ticker, are_dear, online_cpus};
use crate::target::Live;
use std::time::{Duration, Instant};

/// How often samples are collected: each time somebody may have to give way for it.
const OFTEN: Duration = Duration::from_millis(100);
/// The same when each carries a stack: rings are small, and stacks must be undone while the process lives.
const VERY_OFTEN: Duration = Duration::from_millis(10);

/// What is recorded.
#[derive(Debug)]
pub enum Source<'l> {
    /// A process that runs.
    Process(Pid),
    /// A command of ours.
    Command(&'l mut Launched),
}

/// Records where a process, or a command of ours, runs. `wait` is called to wait for a time, and gives true to
/// end the recording.
pub fn record(
    source: Source<'_>,
    options: &Options,
    wait: &mut dyn FnMut(Duration, &Progress) -> bool,
) -> Result<Profile, ProfileError> {
    let opened = OpenedProcesses::default();
    let begun = Instant::now();
    let (pid, launched) = match source {
        Source::Process(pid) => (pid, None),
        Source::Command(launched) => (Pid(i32::try_from(launched.child.id()).unwrap_or_default()), Some(launched)),
    };
    let name = launched.as_ref().map_or("", |launched| &launched.name);
    let mut recorder = Recorder::new(&opened, pid, options, name, launched.is_some());
    let (mut ticker, mut launched) = match launched {
        None => {
            let live = Live::open(pid)?;
            if let Some(denial) = live.denial() {
                return Err(ProfileError::Denied(pid, denial));
            }
            recorder.add(pid.0, live)?;
            (Ticker::open(pid, options.ticks(Begin::Now))?, None)
        }
        Some(launched) => {
            // It may have ended already.
            if let Ok(live) = Live::open(pid) {
                recorder.add(pid.0, live)?;
            }
            let Some(ticker) = launched.ticker.take() else { return Err(ProfileError::Recorded) };
            (ticker, Some(launched))
        }
    };
    recorder.begin();
    recorder.tell_refused(ticker.refused());
    // Children can only be told from others by clocks that they inherit.
    let may_widen = ticker.clock == Clock::Threads && !options.children;
    let mut switches = recorder.live().filter(|_| may_widen).map(|live| (live, Switches::new(live)));
    let nap = if options.stacks || launched.is_some() { VERY_OFTEN } else { OFTEN };
    let cpus = online_cpus().len();
    let mut batch = Vec::new();
    let end = loop {
        let left = options.duration.map(|duration| duration.saturating_sub(begun.elapsed()));
        let progress = Progress { elapsed: begun.elapsed(), samples: recorder.samples };
        let asked = wait(left.unwrap_or(nap).min(nap), &progress);
        if launched.is_some() {
            // As long as it is there to be asked.
            recorder.look_at_time();
        }
        // Asked before the samples are taken, so that none is missed of a process that has ended.
        let ended = match &mut launched {
            Some(launched) => launched.child.try_wait().is_ok_and(|status| status.is_some()).then_some(End::Exited),
            None => recorder.has_ended(),
        };
        let over = left == Some(Duration::ZERO);
        let is_last = asked || over || ended.is_some();
        if is_last {
            if ended.is_none() {
                recorder.look_at_time();
            }
            ticker.stop();
        }
        ticker.drain(|record| keep(record, &mut batch));
        if ended == Some(End::Execed) && ticker.clock == Clock::Cpus {
            // Those clocks do not end with the program: what came last may be of the next one.
            batch.clear();
        }
        recorder.take(batch.drain(..));
        if let Some((live, counts)) = &mut switches
            && !is_last
            && let Some(often) = counts.look(live)
            && (are_dear(often, options.rate, cpus) || recorder.misses_ticks())
        {
            ticker.widen(|record| keep(record, &mut batch));
            switches = None;
        }
        if launched.is_some() && ended.is_none() {
            // It may end at any time: what it has mapped meanwhile is taken note of, ticks or not.
            recorder.follow(pid.0);
        }
        match ended {
            Some(end) => break end,
            None if asked => break End::Asked,
            None if over => break End::Time,
            None => {}
        }
    };
    let (losses, clock) = (ticker.losses(), ticker.clock);
    // Nothing ticks any more while names are looked up.
    drop(ticker);
    let mut profile = recorder.finish(end, begun.elapsed());
    (profile.lost, profile.throttled, profile.clock) = (losses.lost, losses.throttled, Some(clock));
    Ok(profile)
}

fn keep(record: Record, samples: &mut Vec<Sample>) {
    if let Record::Sample(sample) = record {
        samples.push(sample);
    }
}

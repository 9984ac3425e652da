//! Watching a program's contention from outside, for as long as somebody wants to see it.

use super::counting::attach;
use super::samples::Samples;
use super::watch::Contention;
use crate::Pid;
use crate::act::inject::{InjectError, Options};
use crate::act::{ControllerSlot, LiveWriter};
use crate::look::{Look, Names, Scope, Stacks};
use crate::model::{ContentionReport, Remedy, SCHEMA, Snapshot, Thread};
use crate::sys::interrupt::Interrupt;
use crate::table::{Agent, TrackError};
use crate::target::{Denial, Live, TargetError};
use std::process::Child;
use std::time::{Duration, Instant};

/// Between two looks: what a program counts in its last moments is lost when it ends.
const NAP: Duration = Duration::from_millis(50);
/// The shortest time between two lookups of names.
const NAMES: Duration = Duration::from_secs(1);
/// After a look that is more than the agent's counts, the pause is this many times as long as the look: the program has
/// a better use for the CPUs.
const REST: u32 = 30;
/// Threads whose stacks are read with the names.
const MOST_STACKS: usize = 256;
/// A command that was just started has its agent by then.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why contention cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum ContendError {
    /// Nobody counts.
    #[error("process {0} has no active agent")]
    NoAgent(Pid),
    /// Its memory is closed to us.
    #[error("the memory of process {0} may not be read: {1}")]
    Denied(Pid, Denial),
    /// The process cannot be looked at.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Its agent cannot be looked at.
    #[error(transparent)]
    Track(#[from] TrackError),
    /// No agent could be put into the process.
    #[error(transparent)]
    Inject(#[from] InjectError),
    /// The progress could not be written.
    #[error(transparent)]
    Progress(#[from] std::io::Error),
}

impl ContendError {
    /// What could be done, where that takes a command of the face.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Target(error) => error.remedy(),
            Self::Track(error) => error.remedy(),
            Self::Inject(error) => error.remedy(),
            _ => None,
        }
    }
}

/// Whose contention is watched.
pub enum Contender<'a> {
    /// A process that runs, into which the agent may have to be put.
    Process(Pid, Options),
    /// A command that was just started with the agent in it. It is watched from its beginning.
    Command(&'a mut Child),
}

impl Contender<'_> {
    fn pid(&self) -> Pid {
        match self {
            Self::Process(pid, _) => *pid,
            Self::Command(child) => Pid(i32::try_from(child.id()).unwrap_or(0)),
        }
    }

    fn is_running(&self) -> bool {
        matches!(self, Self::Process(..))
    }

    /// Whether it is a command that has ended.
    fn has_ended(&mut self) -> bool {
        let Self::Command(child) = self else { return false };
        matches!(child.try_wait(), Ok(Some(_)))
    }
}

/// Takes what there is so far.
pub type Progress<'a> = &'a mut dyn FnMut(&ContentionReport) -> std::io::Result<()>;

/// Watches for `duration` (if there is one), until the program ends or `interrupt` is asked. At most `limit` objects of
/// a sort are told, about every second to `progress` if there is one, and in the end.
pub fn contend(
    mut whose: Contender<'_>,
    duration: Option<Duration>,
    limit: usize,
    interrupt: &Interrupt,
    mut progress: Option<Progress<'_>>,
) -> Result<ContentionReport, ContendError> {
    let asked = Instant::now();
    let injected = match &whose {
        Contender::Process(pid, options) => attach(*pid, options)?,
        Contender::Command(_) => None,
    };
    let mut watch = ContentionWatch::begin(&mut whose, interrupt)?;
    let has_lease = injected.is_none();
    // Waits that had begun before the hooks were set, or the agent was switched on, are none of the agent's.
    watch.is_unseen = match &injected {
        Some(injected) => injected.pause.is_some(),
        None => !watch.counted.agent.is_on(),
    };
    if has_lease {
        watch.want()?;
    }
    watch.sample();
    let began = Instant::now();
    // Nobody knows when a command ends; otherwise names are wanted when something is shown.
    if progress.is_none() && whose.is_running() {
        watch.next_names = began + NAMES;
    }
    loop {
        let left = duration.map(|limit| limit.saturating_sub(began.elapsed()));
        let is_last = left == Some(Duration::ZERO) || interrupt.wait(left.unwrap_or(NAP).min(NAP)).is_some();
        if whose.has_ended() || !watch.counted.look(&watch.live) {
            break;
        }
        if has_lease {
            let _ = watch.want();
        }
        if is_last {
            watch.next_sample = began;
        }
        watch.sample();
        if is_last || Instant::now() >= watch.next_names {
            if !watch.name() {
                break;
            }
            if let Some(progress) = &mut progress {
                progress(&watch.report(limit))?;
            }
        }
        if is_last {
            break;
        }
    }
    watch.unwant();
    let tracked = injected.map(crate::act::inject::Injected::finish);
    Ok(ContentionReport { tracked, run_seconds: asked.elapsed().as_secs_f64(), ..watch.report(limit) })
}

/// A program that is watched, and what was seen of it so far.
struct ContentionWatch {
    live: Live,
    place: Option<ControllerSlot>,
    counted: Contention,
    samples: Samples,
    names: Option<Snapshot>,
    next_sample: Instant,
    next_names: Instant,
    /// Whether waits that were open at the beginning are not seen by the agent.
    is_unseen: bool,
}

impl ContentionWatch {
    /// Begins, as soon as a command that was just started has its agent.
    fn begin(whose: &mut Contender<'_>, interrupt: &Interrupt) -> Result<Self, ContendError> {
        let (pid, is_running, patience) = (whose.pid(), whose.is_running(), Instant::now());
        loop {
            match Self::try_begin(pid, is_running) {
                Err(_) if !is_running => {
                    if whose.has_ended() || patience.elapsed() > PATIENCE {
                        return Err(ContendError::NoAgent(pid));
                    }
                }
                begun => return begun,
            }
            interrupt.wait(Duration::from_millis(2));
        }
    }

    fn try_begin(pid: Pid, is_running: bool) -> Result<Self, ContendError> {
        let live = Live::open(pid)?;
        if let (true, Some(denial)) = (is_running, live.denial()) {
            return Err(ContendError::Denied(pid, denial));
        }
        let agent = Agent::find(&live)?.ok_or(ContendError::NoAgent(pid))?;
        let counted = Contention::begin(agent, &live, is_running);
        let (now, samples) = (Instant::now(), Samples::new(counted.began()));
        let is_unseen = false;
        Ok(Self { live, place: None, counted, samples, names: None, next_sample: now, next_names: now, is_unseen })
    }

    /// An agent that was loaded without being switched on counts while somebody wants it to.
    fn want(&mut self) -> Result<(), TrackError> {
        self.place = self.counted.agent.switch_on(&LiveWriter(&self.live), std::process::id(), self.place)?;
        Ok(())
    }

    fn unwant(&self) {
        if let (Some(place), Some(agent)) = (self.place, self.counted.agent.again(&self.live)) {
            // The program may have ended; the agent looks for us, too.
            let _ = agent.switch_off(&LiveWriter(&self.live), std::process::id(), place);
        }
    }

    /// Looks who waits for what is not counted, if it is time.
    fn sample(&mut self) {
        let now = Instant::now();
        if now >= self.next_sample {
            self.samples.look(&self.live, self.is_unseen);
            self.next_sample = now + now.elapsed() * REST;
        }
    }

    /// Looks names up; `false` if the program has gone.
    fn name(&mut self) -> bool {
        // What was loaded since is only in a new list of mappings.
        let Ok(live) = Live::open(self.live.pid()) else { return false };
        self.live = live;
        let now = Instant::now();
        let look = Look::new(&self.live);
        if let Ok(snapshot) = look.take(Scope::All, Names::Findings) {
            let is_waiting = |thread: &&Thread| thread.waits_for.is_some();
            let waiting = snapshot.threads.iter().filter(is_waiting).take(MOST_STACKS).cloned().collect();
            let mut waiting = Snapshot { threads: waiting, objects: Vec::new(), ..snapshot.clone() };
            // The C library's own lines take long to read, and nobody sees them.
            let mut stacks = Stacks::new(&look).without_libc_lines();
            stacks.read(&waiting.threads, &mut waiting.gaps);
            stacks.finish(&mut waiting);
            self.samples.open.see_stacks(&waiting.threads);
            self.names = Some(snapshot);
            self.counted.name_functions(&look);
        }
        self.next_names = now + (now.elapsed() * REST).max(NAMES);
        true
    }

    fn report(&self, limit: usize) -> ContentionReport {
        let names = self.names.as_ref();
        ContentionReport {
            schema: SCHEMA,
            seconds: self.counted.span().as_secs_f64(),
            run_seconds: self.counted.span().as_secs_f64(),
            locks: self.counted.worst(&self.samples.open, names, limit),
            looks: self.samples.looks,
            sampled: self.samples.worst(&self.counted, names, limit),
            tracked: None,
        }
    }
}

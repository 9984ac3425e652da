//! Taking a snapshot.

use super::file::{About, COUNTERS_AFTER, COUNTERS_BEFORE, Started};
use super::packed::Packer;
use super::{Kept, Part, counters, objects, redact};
use crate::look::{Look, Names, thread_data};
use crate::look::{Scope, TaskScope, ThreadList, USUAL_TIME, explain_for, explain_whole, list_locks, list_threads};
use crate::model::{Remedy, Snapshot, TargetInfo};
use crate::target::{Target, TargetError};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How a snapshot is taken.
#[derive(Clone, Copy, Debug)]
pub struct TakeOptions {
    /// For how long looks are repeated where nothing is certain at once, by each answer that does so.
    pub time: Duration,
    /// Whether what comes from the memory of the process is left out, but for the words of locks.
    pub redact: bool,
}

impl Default for TakeOptions {
    fn default() -> Self {
        Self { time: USUAL_TIME, redact: false }
    }
}

/// A snapshot that was taken.
#[derive(Debug)]
pub struct Taken {
    /// The file.
    pub bytes: Vec<u8>,
    /// What was looked at.
    pub target: TargetInfo,
    /// How many threads it has.
    pub threads: usize,
    /// What the target did not answer, and why.
    pub missing: Vec<(Part, String, Option<Remedy>)>,
}

/// Takes a snapshot of `target`: everything that a [`Snap`](super::Snap) can be asked is asked now. The target is not stopped.
/// An error is one of the target as a whole; where it refuses one question, the snapshot has the others, and says why.
pub fn take(target: &dyn Target, options: TakeOptions) -> Result<Taken, TargetError> {
    if options.redact {
        redact::begin(target.limits());
    }
    let taken_at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let mut taking = Taking { target, packer: Packer::default(), missing: Vec::new() };
    let found = Look::new(target).take(Scope::Threads, Names::None)?;
    let (info, threads) = (found.target, found.threads.len());
    taking.add(COUNTERS_BEFORE, &counters::read(target));
    for part in Part::ALL {
        match part {
            Part::Data if options.redact => taking.refuse(part, redact::WHY.to_owned(), None),
            Part::Data => taking.keep(part, thread_data(target))?,
            _ => {
                let mut answer = ask(target, part, options.time);
                if let Ok(snapshot) = answer.as_mut()
                    && options.redact
                {
                    redact::redact(snapshot);
                }
                taking.keep(part, answer)?;
            }
        }
    }
    taking.add(COUNTERS_AFTER, &counters::read(target));
    target.check_identity()?;
    let about = About {
        target: info.clone(),
        taken_at_ms,
        redacted: options.redact,
        process: started(target),
        files: objects::list(target),
    };
    let written_by = concat!("threadglass ", env!("CARGO_PKG_VERSION"));
    // Neither of them has a map whose keys are no text, which is all that JSON refuses.
    let bytes = taking.packer.finish(written_by, &about).unwrap_or_default();
    Ok(Taken { bytes, target: info, threads, missing: taking.missing })
}

fn ask(target: &dyn Target, part: Part, time: Duration) -> Result<Snapshot, TargetError> {
    let threads = |tasks, stacks| list_threads(target, ThreadList { tasks: Some(tasks), stacks }, |_| ());
    match part {
        Part::Why => explain_for(target, time),
        Part::Report => explain_whole(target, time),
        Part::Threads => threads(TaskScope::Waits, false),
        Part::Stacks => threads(TaskScope::Stacks, true),
        Part::Locks => list_locks(target, Scope::Held),
        Part::AllLocks | Part::Data => list_locks(target, Scope::All),
    }
}

struct Taking<'t> {
    target: &'t dyn Target,
    packer: Packer,
    missing: Vec<(Part, String, Option<Remedy>)>,
}

impl Taking<'_> {
    /// Adds a part; `false` if it is too large.
    fn add(&mut self, name: &str, content: &impl Serialize) -> bool {
        self.packer.add(name, content).unwrap_or(false)
    }

    /// Adds an answer, or why there is none. An error is that the process has ended, or is another one now.
    fn keep<T: Serialize>(&mut self, part: Part, answer: Result<T, TargetError>) -> Result<(), TargetError> {
        match answer {
            Ok(answer) => {
                if !self.add(part.name(), &Kept::Answer(answer)) {
                    self.refuse(part, "the answer is too large for a snapshot".to_owned(), None);
                }
            }
            Err(error) => {
                self.target.check_identity()?;
                if matches!(error, TargetError::Exited(_) | TargetError::Execed(_)) {
                    return Err(error);
                }
                self.refuse(part, error.to_string(), error.remedy());
            }
        }
        Ok(())
    }

    fn refuse(&mut self, part: Part, why: String, remedy: Option<Remedy>) {
        self.add(part.name(), &Kept::<()>::Refused { why: why.clone(), remedy });
        self.missing.push((part, why, remedy));
    }
}

/// Which process it is.
fn started(target: &dyn Target) -> Option<Started> {
    Some(Started { ticks: target.job()?.start_time, boot: first_line("/proc/sys/kernel/random/boot_id")? })
}

fn first_line(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.lines().next()?.to_owned())
}

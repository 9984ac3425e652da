//! `tglass why`

use super::machine;
use super::target::{self, Opened, WhichTarget};
use crate::cli::{FailOn, TargetWord, WhyArgs};
use crate::{is_broken_pipe, remedy, render};
use anyhow::{Result, ensure};
use std::process::ExitCode;
use std::time::Instant;
use threadglass::act::set_state;
use threadglass::model::{Certainty, Evidence, Finding, Snapshot, SyncKind, SyncObject};
use threadglass::snap::Part;
use threadglass::target::{Live, Target};
use threadglass::{RemoteAddr, act, look};

/// Bytes that are read of a lock: no kind that can be set has more.
const LOCK_BYTES: u64 = 64;

/// How the look at one target ended. Of several, the first in this order decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    CertainHang,
    LikelyHang,
    NotSeen,
    Fine,
}

impl Outcome {
    fn of(findings: &[Finding], fail_on: FailOn) -> Self {
        let is_hang = |it: &Finding| it.kind.is_hang() || it.kind.is_unwoken();
        let hangs = |certainty| findings.iter().any(|it| is_hang(it) && it.certainty == certainty);
        match fail_on {
            FailOn::Never => Self::Fine,
            FailOn::Certain | FailOn::Likely if hangs(Certainty::Certain) => Self::CertainHang,
            FailOn::Likely if hangs(Certainty::Likely) => Self::LikelyHang,
            FailOn::Certain | FailOn::Likely => Self::Fine,
        }
    }

    fn status(self) -> u8 {
        match self {
            Self::CertainHang => 1,
            Self::LikelyHang => 3,
            Self::NotSeen => 2,
            Self::Fine => 0,
        }
    }
}

pub fn run(args: &WhyArgs) -> Result<ExitCode> {
    let words = args.words();
    if words.is_empty() {
        let machine = machine::look(&args.machine.among, args.machine.all)?;
        match args.json {
            true => super::print_json(&machine)?,
            false => super::print(&render::machine::text(&machine, super::width(args.wide)))?,
        };
        return Ok(ExitCode::from(machine::status(&machine, args.fail_on)));
    }
    let [word] = words.as_slice() else { return run_several(args, words) };
    let (snapshot, text) = explain(args, word)?;
    match args.json {
        true => super::print_json(&snapshot)?,
        false => super::print(&text)?,
    };
    Ok(ExitCode::from(Outcome::of(&snapshot.findings, args.fail_on).status()))
}

/// One after another. What cannot be looked at does not keep the others from being.
fn run_several(args: &WhyArgs, words: Vec<TargetWord>) -> Result<ExitCode> {
    let mut outcome = Outcome::Fine;
    let mut apart = "";
    for word in words {
        let one = match target::or_ended(explain(args, &word)) {
            Ok((snapshot, text)) => {
                match args.json {
                    true => super::print_json_line(&snapshot)?,
                    false => super::print(&format!("{apart}{text}"))?,
                };
                apart = "\n";
                Outcome::of(&snapshot.findings, args.fail_on)
            }
            Err(error) if is_broken_pipe(&error) => return Err(error),
            Err(error) => {
                super::print_error(&error);
                Outcome::NotSeen
            }
        };
        outcome = outcome.min(one);
    }
    Ok(ExitCode::from(outcome.status()))
}

/// Looks at one target; the screen of it too.
fn explain(args: &WhyArgs, word: &TargetWord) -> Result<(Snapshot, String)> {
    let started = Instant::now();
    let which = WhichTarget::of(Some(word.clone()))?;
    let opened = which.open(&args.files)?;
    let stops = if args.stop { Some(which.process("--stop")?) } else { None };
    let (mut snapshot, settable) = match &opened {
        Opened::Target(target) => {
            let _look = target.limits().begin();
            let mut snapshot = look::explain_for(&**target, args.duration.unwrap_or(look::USUAL_TIME))?;
            if let Some(pid) = stops {
                act::add_missing_stacks_stopping(&Live::open(pid)?.with_limits(target.limits()), &mut snapshot);
            }
            let settable = if args.json { None } else { settable(&**target, &snapshot) };
            (snapshot, settable)
        }
        Opened::Snapshot(snap) => {
            ensure!(args.duration.is_none(), "-d needs a process: a snapshot was taken when it was");
            (snap.answer(Part::Why)?, None)
        }
    };
    remedy::of_gaps(&mut snapshot.gaps);
    let text = match args.json {
        true => String::new(),
        false => render::why::text(&snapshot, started.elapsed(), settable, super::width(args.wide)),
    };
    Ok((snapshot, text))
}

/// A lock of the first hang that `set` would unlock.
pub fn settable(target: &dyn Target, snapshot: &Snapshot) -> Option<RemoteAddr> {
    if snapshot.target.core.is_some() {
        return None;
    }
    let hang = snapshot.findings.iter().find(|finding| finding.kind.is_hang())?;
    let object = |address: &RemoteAddr| snapshot.objects.iter().find(|object| object.address == *address);
    hang.objects.iter().filter_map(object).find(|object| is_settable(target, object)).map(|object| object.address)
}

fn is_settable(target: &dyn Target, object: &SyncObject) -> bool {
    let is_lock = matches!(object.kind, SyncKind::Mutex | SyncKind::Rwlock);
    // What is only inferred is not changed unless the user confirms its kind.
    if !is_lock || object.evidence >= Evidence::Inferred {
        return false;
    }
    let mut bytes = vec![0; object.size.unwrap_or(4).min(LOCK_BYTES) as usize];
    target.read_exact(object.address, &mut bytes).is_ok() && set_state::plan(object, &bytes, 0).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use threadglass::model::FindingKind;

    fn finding(kind: FindingKind, certainty: Certainty) -> Finding {
        let (threads, objects, members, behind, tasks) = Default::default();
        Finding { kind, certainty, threads, objects, members, behind, tasks, seen: 1, text: String::new() }
    }

    #[test]
    fn the_exit_status_tells_what_was_asked() {
        let status = |findings: &[Finding]| {
            [FailOn::Certain, FailOn::Likely, FailOn::Never].map(|on| Outcome::of(findings, on).status())
        };
        let deadlock = |certainty| finding(FindingKind::Deadlock, certainty);
        assert_eq!(status(&[]), [0, 0, 0]);
        assert_eq!(status(&[deadlock(Certainty::Certain)]), [1, 1, 0]);
        assert_eq!(status(&[deadlock(Certainty::Likely)]), [0, 3, 0]);
        assert_eq!(status(&[deadlock(Certainty::Likely), deadlock(Certainty::Certain)]), [1, 1, 0]);
        assert_eq!(status(&[deadlock(Certainty::Possible)]), [0, 0, 0]);
        assert_eq!(status(&[finding(FindingKind::LongChain, Certainty::Certain)]), [0, 0, 0]);
    }

    #[test]
    fn of_several_the_worst_is_told() {
        let order = [Outcome::Fine, Outcome::NotSeen, Outcome::LikelyHang, Outcome::CertainHang];
        let worst = |number: usize| order[..number].iter().copied().min().map(Outcome::status);
        assert_eq!([1, 2, 3, 4].map(worst), [0, 2, 3, 1].map(Some));
    }
}

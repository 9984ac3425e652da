//! Threads that wait without sleeping, found by samples of where they run.

use super::spin::describe;
use crate::RemoteAddr;
use crate::look::Look;
use crate::look::guards::{Round, RunningThread, STEPS, round};
use crate::memory::Memory;
use crate::model::{Spin, Thread};
use crate::perf::Sample;
use std::collections::BTreeSet;

/// Samples that are enough to say that a thread does nothing else, where its code shows that it goes round, and where not.
const ENOUGH: usize = 2;
const ENOUGH_WITHOUT_CODE: usize = 5;
/// Samples from which a round is looked for.
const TRIED: usize = 3;

/// What `thread` waits for in a loop, by its samples.
pub(super) fn spin(look: &Look<'_>, thread: &Thread, samples: &[Sample]) -> Option<Spin> {
    if samples.len() < ENOUGH {
        return None;
    }
    if let Some(round) = round_of(look.target, thread, samples) {
        return describe(look, &round);
    }
    let symbolizer = look.symbolizer();
    let yields = |sample: &&Sample| {
        symbolizer.enclosing_function(RemoteAddr(sample.ip)).is_some_and(|it| it.contains("sched_yield"))
    };
    let is_yielding =
        samples.len() >= ENOUGH_WITHOUT_CODE && samples.iter().filter(yields).count() * 5 >= samples.len();
    is_yielding.then_some(Spin { yields: true, sleeps: false, word: None, name: None, kind: None, held_by: None })
}

/// The round that all samples are in.
fn round_of(memory: &dyn Memory, thread: &Thread, samples: &[Sample]) -> Option<Round> {
    let has_all = |round: &Round| samples.iter().all(|sample| round.places.contains(&sample.ip));
    let mut places = BTreeSet::new();
    let different = samples.iter().filter(|sample| places.insert((sample.ip, sample.kernel)));
    let running = different.filter_map(|sample| {
        let registers = sample.registers.as_ref()?;
        Some(RunningThread {
            pc: registers.ip,
            registers: registers.general.map(Some),
            stack: &sample.stack,
            in_call: sample.kernel,
            thread_pointer: thread.id.map(|id| id.0.0),
        })
    });
    let mut budget = STEPS;
    running.take(TRIED).filter_map(|running| round(memory, &running, &mut budget)).find(has_all)
}

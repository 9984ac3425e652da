//! Where running threads run: a few samples of each by the kernel, without a stop.

use super::sampled_spin::spin;
use crate::Lwp;
use crate::RemoteAddr;
use crate::arch::Registers;
use crate::look::{Look, Stacks};
use crate::model::{FindingKind, Gap, Remedy, Snapshot, Thread, ThreadState, Watched};
use crate::perf::{Record, Sample, SamplingError, Watch};
use std::collections::{BTreeMap, HashMap};

/// Threads that are watched at a time.
const MOST: usize = 16;

/// Samples of the threads of a target that run.
pub(super) struct RunningThreads {
    watch: Option<Watch>,
    samples: BTreeMap<Lwp, Vec<Sample>>,
    refused: Option<(SamplingError, Vec<Lwp>)>,
}

impl RunningThreads {
    /// Begins to watch those threads of `snapshot` that run, the ones that others wait for first.
    pub(super) fn watch(look: &Look<'_>, snapshot: &Snapshot) -> Self {
        let mut this = Self { watch: None, samples: BTreeMap::new(), refused: None };
        let lwps = wanted(snapshot);
        if lwps.is_empty() || look.target.identity().core.is_some() {
            return this;
        }
        match Watch::begin(look.target.pid(), &lwps) {
            Ok(watch) => this.watch = Some(watch),
            Err(error) => this.refused = Some((error, lwps)),
        }
        this
    }

    /// Whether anybody is watched.
    pub(super) fn is_on(&self) -> bool {
        self.watch.is_some()
    }

    /// Takes the samples that have come.
    pub(super) fn collect(&mut self) {
        let samples = &mut self.samples;
        if let Some(watch) = &mut self.watch {
            watch.drain(|record| {
                if let Record::Sample(mut sample) = record {
                    // In the kernel: where the program goes on.
                    if let Some(registers) = sample.registers.as_ref().filter(|_| sample.kernel) {
                        sample.ip = registers.ip;
                    }
                    samples.entry(Lwp(sample.tid)).or_default().push(sample);
                }
            });
        }
    }

    /// Gives `stacks` the place where each watched thread was most often, and tells of it in `snapshot`.
    pub(super) fn finish(mut self, look: &Look<'_>, snapshot: &mut Snapshot, stacks: &mut Stacks<'_>) {
        self.collect();
        if let Some((error, lwps)) = self.refused {
            let gap = Gap::whole("where running threads run", error.to_string()).with(Remedy::StopThread);
            snapshot.gaps.push(Gap { lwps, ..gap });
        }
        let symbolizer = look.symbolizer();
        for (lwp, samples) in self.samples {
            let mut functions: HashMap<String, Vec<usize>> = HashMap::new();
            for (index, sample) in samples.iter().enumerate() {
                let name = symbolizer.enclosing_function(RemoteAddr(sample.ip));
                functions.entry(name.unwrap_or_else(|| format!("{:#x}", sample.ip >> 8))).or_default().push(index);
            }
            let usual = functions.into_iter().max_by_key(|(name, here)| (here.len(), std::cmp::Reverse(name.clone())));
            let Some((_, here)) = usual else { continue };
            let Some(thread) = snapshot.threads.iter_mut().find(|thread| thread.lwp == Some(lwp)) else { continue };
            let spins = spin(look, thread, &samples);
            let (samples_seen, here_seen) = (samples.len() as u32, here.len() as u32);
            thread.watched = Some(Box::new(Watched { samples: samples_seen, here: here_seen, spins }));
            if let Some(sample) = here.last().and_then(|index| samples.get(*index))
                && let Some(registers) = &sample.registers
            {
                let general = Registers::blocked(RemoteAddr(registers.ip), RemoteAddr(registers.sp));
                let general = general.with_frame_pointer(registers.bp);
                stacks.add_copied(thread, general, general.sp, sample.stack.clone());
            }
        }
    }
}

/// Threads that run, roots of chains first.
fn wanted(snapshot: &Snapshot) -> Vec<Lwp> {
    let runs =
        |thread: &&Thread| matches!(thread.state, ThreadState::Active | ThreadState::Run) && thread.stop.is_none();
    let chains = snapshot.findings.iter().filter(|finding| finding.kind == FindingKind::LongChain);
    let roots: Vec<Lwp> = chains.filter_map(|finding| finding.threads.last().copied()).collect();
    let mut running: Vec<Lwp> = snapshot.threads.iter().filter(runs).filter_map(|thread| thread.lwp).collect();
    running.sort_by_key(|lwp| !roots.contains(lwp));
    running.truncate(MOST);
    running
}

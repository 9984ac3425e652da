//! A few samples of chosen threads, with their stacks.

use super::error::SamplingError;
use crate::{Lwp, Pid};
use ::perf::{Options, Record, Sampler};

/// Samples per second of CPU time: enough to see where a thread is within a tenth of a second.
const RATE: u32 = 199;
/// Bytes of stack that a sample carries.
const STACK: u32 = 16 << 10;

/// Samples of some threads while it lives.
#[derive(Debug)]
pub(crate) struct Watch(Sampler);

impl Watch {
    /// Begins to sample `lwps`, threads of `pid`.
    pub(crate) fn begin(pid: Pid, lwps: &[Lwp]) -> Result<Self, SamplingError> {
        let user = Options { inherit: false, remove_on_exec: true, stack: Some(STACK), ..Options::new(RATE) };
        let tids: Vec<i32> = lwps.iter().map(|lwp| lwp.0).collect();
        // A thread that calls the kernel again and again is hardly ever seen outside of it.
        let sampler = Sampler::of_threads(&tids, Options { kernel: true, ..user });
        match sampler.or_else(|_| Sampler::of_threads(&tids, user)) {
            Ok(sampler) => Ok(Self(sampler)),
            Err(error) => Err(SamplingError::of_sampler(error, pid)),
        }
    }

    /// Hands over the samples that are there.
    pub(crate) fn drain(&mut self, take: impl FnMut(Record)) {
        self.0.drain(take);
    }
}

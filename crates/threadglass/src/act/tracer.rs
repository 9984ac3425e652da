//! A thread of ours that does all the tracing for one process.
//!
//! The kernel ties a tracee to the thread that seized it. Callers come on any thread, so requests go
//! to one that stays, and that releases everything it holds when it ends.

use super::stopped::{ControlError, StoppedThread};
use super::suspend::name_suspender;
use crate::model::SignalSet;
use crate::sys::ptrace::RegisterSet;
use crate::{Lwp, Pid};
use nix::errno::Errno;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often held threads are looked after.
const WATCH: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce(&mut SuspendedThreads) + Send>;

/// The threads held suspended, on the tracing thread.
struct SuspendedThreads {
    pid: Pid,
    threads: HashMap<Lwp, StoppedThread>,
}

impl SuspendedThreads {
    /// Runs `act` on a stopped `lwp`: one that is held anyway, or one stopped just for this.
    fn with<R>(
        &mut self,
        lwp: Lwp,
        act: impl FnOnce(&StoppedThread) -> Result<R, ControlError>,
    ) -> Result<R, ControlError> {
        match self.threads.get(&lwp) {
            Some(thread) => act(thread),
            None => act(&StoppedThread::stop(self.pid, lwp)?),
        }
    }
}

/// Acts on the threads of one process. Dropping it resumes every thread it suspended.
#[derive(Debug)]
pub struct Tracer {
    pid: Pid,
    worker: Mutex<Option<Worker>>,
}

/// The thread that traces.
#[derive(Debug)]
struct Worker {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
    /// The process it belongs to. In one that was forked since, there is no such thread.
    owner: u32,
}

impl Worker {
    fn start(pid: Pid) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let thread = std::thread::Builder::new().spawn(move || work(pid, &queue))?;
        Ok(Self { jobs, thread, owner: std::process::id() })
    }

    fn exists(&self) -> bool {
        self.owner == std::process::id()
    }
}

impl Tracer {
    /// A tracer for `pid`. Nothing happens until it is asked to act.
    pub fn new(pid: Pid) -> Self {
        Self { pid, worker: Mutex::new(None) }
    }

    fn ask<R: Send + 'static>(
        &self,
        lwp: Lwp,
        act: impl FnOnce(&mut SuspendedThreads) -> Result<R, ControlError> + Send + 'static,
    ) -> Result<R, ControlError> {
        let failed = || ControlError::System(lwp, Errno::EAGAIN);
        let (answer, result) = channel();
        {
            // No callback or other foreign code runs while this is held.
            let mut worker = self.worker.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            // Nothing of one that was left in the parent may be touched: its memory was given to others.
            std::mem::forget(worker.take_if(|worker| !worker.exists()));
            let worker = match &mut *worker {
                Some(worker) => worker,
                none => none.insert(Worker::start(self.pid).map_err(|_| failed())?),
            };
            let job: Job = Box::new(move |held| {
                let _ = answer.send(act(held));
            });
            worker.jobs.send(job).map_err(|_| failed())?;
        }
        result.recv().unwrap_or(Err(failed()))
    }

    /// Suspends a thread until [`Self::resume`], or until the tracer goes. Suspending twice is the
    /// same as once.
    pub fn suspend(&self, lwp: Lwp) -> Result<(), ControlError> {
        self.ask(lwp, move |held| {
            if !held.threads.contains_key(&lwp) {
                held.threads.insert(lwp, StoppedThread::stop(held.pid, lwp)?);
            }
            Ok(())
        })
    }

    /// Resumes a suspended thread; nothing happens to one that is not.
    pub fn resume(&self, lwp: Lwp) -> Result<(), ControlError> {
        self.ask(lwp, move |held| {
            held.threads.remove(&lwp);
            Ok(())
        })
    }

    /// Whether this tracer holds the thread.
    pub fn is_suspended(&self, lwp: Lwp) -> bool {
        let idle = self.worker.lock().is_ok_and(|worker| !worker.as_ref().is_some_and(Worker::exists));
        !idle && self.ask(lwp, move |held| Ok(held.threads.contains_key(&lwp))).unwrap_or(false)
    }

    /// Reads registers, stopping the thread for a moment unless it is suspended anyway.
    pub fn registers(&self, lwp: Lwp, set: RegisterSet) -> Result<Vec<u8>, ControlError> {
        self.ask(lwp, move |held| held.with(lwp, |thread| thread.registers(set)))
    }

    /// Replaces registers, stopping the thread for a moment unless it is suspended anyway.
    pub fn set_registers(&self, lwp: Lwp, set: RegisterSet, bytes: Vec<u8>) -> Result<(), ControlError> {
        self.ask(lwp, move |held| held.with(lwp, |thread| thread.set_registers(set, &bytes)))
    }

    /// Replaces the signal mask, stopping the thread for a moment unless it is suspended anyway.
    pub fn set_signal_mask(&self, lwp: Lwp, mask: SignalSet) -> Result<(), ControlError> {
        self.ask(lwp, move |held| held.with(lwp, |thread| thread.set_signal_mask(mask)))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let worker = self.worker.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        match worker {
            Some(worker) if worker.exists() => {
                drop(worker.jobs);
                // Wait for the release, so that whoever deleted the agent finds its threads running.
                let _ = worker.thread.join();
            }
            // It holds its threads for the parent.
            left => std::mem::forget(left),
        }
    }
}

fn work(pid: Pid, queue: &Receiver<Job>) {
    // No signal of the host program is to be handled here.
    let _ = nix::sys::signal::SigSet::all().thread_block();
    name_suspender();
    let mut held = SuspendedThreads { pid, threads: HashMap::new() };
    loop {
        let job = match held.threads.is_empty() {
            true => queue.recv().map_err(RecvTimeoutError::from),
            false => queue.recv_timeout(WATCH),
        };
        match job {
            Ok(job) => job(&mut held),
            // A thread that ends while it is held stays until its tracer has noticed: the parent of a dead
            // process, or one that wants to exec, would wait for us.
            Err(RecvTimeoutError::Timeout) => held.threads.retain(|_, thread| !thread.has_ended()),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
}

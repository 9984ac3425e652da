//! Pools of threads that starve: every worker is inside a task that waits, so nobody is left to take the next task.
//!
//! A worker's loop shows on the stack: a function whose code waits for work at one place, and at another calls what it was given,
//! through a pointer. A thread that is inside such a call and waits is in a task; one that is not waits for work.

use super::findings::finding;
use super::words::count;
use crate::look::guards::CallReader;
use crate::look::{Look, library_of};
use crate::model::{
    Certainty, Finding, FindingKind, Frame, Member, Snapshot, SyncKind, SyncObject, Thread, ThreadState,
};
use crate::runtimes::{self, Nature};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Threads whose stacks are looked through.
const MOST: usize = 512;
/// Frames between a call of what was given and the worker's loop: a wrapper of it may make the call.
const WRAPPERS: usize = 3;

/// A worker of a pool.
struct Worker<'s> {
    thread: &'s Thread,
    /// Its frames, the innermost first, without those that were inlined.
    frames: Vec<&'s Frame>,
    /// Which of them is the loop, and which is inside and makes the call of the task; `None` if none does.
    in_loop: usize,
    task: Option<usize>,
}

/// Adds pools that starve to the findings of `snapshot`, whose stacks are known. `is_all` says that every thread waits for ever.
pub(super) fn add_starving(look: &Look<'_>, snapshot: &mut Snapshot, is_all: bool) {
    let found = Pools { calls: CallReader::new(&look.space, look.symbolizer()), is_all }.starving(snapshot);
    let first = snapshot.findings.iter().position(|finding| finding.kind.is_root()).unwrap_or(snapshot.findings.len());
    snapshot.findings.splice(first..first, found);
}

struct Pools<'c> {
    calls: CallReader<'c>,
    /// Whether every thread was found to wait for ever.
    is_all: bool,
}

impl<'c> Pools<'c> {
    fn starving(&mut self, snapshot: &Snapshot) -> Vec<Finding> {
        let main = Lwp(snapshot.target.pid.0);
        let living: Vec<&Thread> =
            snapshot.threads.iter().filter(|thread| thread.state != ThreadState::Zombie).collect();
        // One that runs, or of which nothing is known, may be a worker, or become one.
        let may_work =
            |thread: &&Thread| thread.frames.is_empty() || thread.syscall.is_none() && thread.lwp != Some(main);
        if living.len() > MOST || living.iter().any(may_work) {
            return Vec::new();
        }
        let unseen = unseen(snapshot);
        let may_starve = |thread: &&&Thread| {
            let waited = thread.waits_for.as_ref().map(|waits| waits.address);
            waits_for_others(thread) && waited.is_none_or(|address| !unseen.contains(&address))
        };
        if !living.iter().any(|thread| thread.lwp != Some(main) && may_starve(&thread)) {
            return Vec::new();
        }
        let mut pools: BTreeMap<u64, Vec<Worker<'_>>> = BTreeMap::new();
        // Most threads of a process have the same stack as another one.
        let mut stacks = HashSet::new();
        for thread in living.iter().filter(may_starve) {
            let is_new = stacks.insert(thread.frames.iter().map(|frame| frame.pc).collect::<Vec<_>>());
            if let Some(start) = is_new.then(|| self.loop_of(thread)).flatten() {
                pools.entry(start).or_default();
            }
        }
        for thread in &living {
            for (start, workers) in &mut pools {
                workers.extend(self.worker(thread, *start));
            }
        }
        pools.retain(|_, workers| {
            let starves = |worker: &Worker<'_>| {
                worker.thread.lwp != Some(main) && worker.task.is_some() && waits_for_others(worker.thread)
            };
            // A loop that the main thread is in as well is that of an interpreter.
            workers.iter().all(starves) && (self.is_all || workers.len() > 1)
        });
        let pools: Vec<Vec<Worker<'_>>> = pools.into_values().collect();
        pools.iter().map(|workers| self.finding(snapshot, workers)).collect()
    }

    /// Where the function begins that is the loop of a worker, if `thread` is inside a task: the outermost.
    fn loop_of(&mut self, thread: &Thread) -> Option<u64> {
        let frames = physical(thread);
        let outside = (1..frames.len()).rev().filter(|at| library_of(frames[*at]) != Some("libc"));
        for caller in outside.collect::<Vec<_>>() {
            if !self.calls.is_indirect(frames[caller].pc) {
                continue;
            }
            for frame in frames.iter().skip(caller).take(WRAPPERS) {
                if self.is_own(frame) && self.calls.loops_with(frame.pc, &runtimes::awaits_work) {
                    return self.calls.function(RemoteAddr(frame.pc.0.wrapping_sub(1)));
                }
            }
        }
        None
    }

    /// Whether a frame is the program's own, by its symbol.
    fn is_own(&self, frame: &Frame) -> bool {
        let function = self.calls.name(RemoteAddr(frame.pc.0.wrapping_sub(1)));
        library_of(&Frame { function, module: frame.module.clone(), ..Frame::default() }).is_none()
    }

    /// `thread` as a worker whose loop begins at `start`.
    fn worker<'s>(&mut self, thread: &'s Thread, start: u64) -> Option<Worker<'s>> {
        let frames = physical(thread);
        let is_loop = |calls: &mut CallReader<'c>, frame: &Frame| {
            calls.function(RemoteAddr(frame.pc.0.wrapping_sub(1))) == Some(start)
        };
        let in_loop = (0..frames.len()).rev().find(|at| is_loop(&mut self.calls, frames[*at]))?;
        let from = (in_loop + 1).saturating_sub(WRAPPERS).max(1);
        let may_call = |at: &usize| library_of(frames[*at]) != Some("libc");
        let task = (from..=in_loop).rev().filter(may_call).find(|at| self.calls.is_indirect(frames[*at].pc));
        Some(Worker { thread, frames, in_loop, task })
    }

    fn finding(&mut self, snapshot: &Snapshot, workers: &[Worker<'_>]) -> Finding {
        let submits = workers.iter().all(|worker| self.submits(worker));
        let certainty = if self.is_all || submits { Certainty::Likely } else { Certainty::Possible };
        let lwps: Vec<Lwp> = workers.iter().filter_map(|worker| worker.thread.lwp).collect();
        let waited = |worker: &Worker<'_>| Some(worker.thread.waits_for.as_ref()?.address);
        let objects: Vec<RemoteAddr> = workers.iter().filter_map(waited).collect();
        let how: BTreeSet<&str> = workers
            .iter()
            .map(|worker| worker.thread.waits_for.as_ref().and_then(|waits| waits.how).unwrap_or(""))
            .collect();
        let how =
            how.into_iter().next().filter(|how| !how.is_empty()).map_or_else(String::new, |how| format!(" {how}"));
        let name = workers.first().and_then(|worker| self.calls.name(worker.loop_address()));
        let of = name.map_or_else(|| "a pool".to_owned(), |name| format!("the pool of {name}"));
        let who = match lwps.len() {
            1 => format!("the only worker of {of} waits inside a task{how}"),
            number => format!("all {} of {of} wait inside tasks{how}", count(number, "worker", "workers")),
        };
        let nobody = "nobody of the pool is left to run another task";
        let unless = match (self.is_all, submits) {
            (true, _) | (false, true) => String::new(),
            (false, false) => ", should they wait for that".to_owned(),
        };
        let pid = snapshot.target.pid;
        let member = |(lwp, object): (&Lwp, &RemoteAddr)| Member { pid, lwp: Some(*lwp), object: Some(*object) };
        Finding {
            members: lwps.iter().zip(&objects).map(member).collect(),
            text: format!("{who}, and {nobody}{unless}"),
            ..finding(FindingKind::PoolStarved, certainty, lwps, objects, Vec::new())
        }
    }

    /// Whether a function of the task calls one of the type that the loop belongs to, which wakes somebody: it gives the pool
    /// another task.
    fn submits(&mut self, worker: &Worker<'_>) -> bool {
        let name = self.calls.name(worker.loop_address());
        let Some(own) = name.as_deref().and_then(type_of) else { return false };
        let is_of_pool = |name: &str| {
            let method = name.strip_prefix(own).and_then(|rest| rest.strip_prefix("::"));
            method.is_some_and(|method| !method.contains("{lambda") && !method.contains("{{closure"))
        };
        let tasks = &worker.frames[..worker.task.unwrap_or(0)];
        tasks.iter().any(|frame| {
            let at = RemoteAddr(frame.pc.0.wrapping_sub(1));
            self.is_own(frame) && self.calls.calls_that_call(at, &is_of_pool, &runtimes::wakes)
        })
    }
}

impl Worker<'_> {
    /// An address in its loop.
    fn loop_address(&self) -> RemoteAddr {
        RemoteAddr(self.frames[self.in_loop].pc.0.wrapping_sub(1))
    }
}

/// Objects that only the runtime of a language understands: its threads are all in one loop, that of its interpreter.
fn unseen(snapshot: &Snapshot) -> HashSet<RemoteAddr> {
    let is_unseen = |object: &&SyncObject| matches!(runtimes::nature(object.kind, object.family), Nature::Unseen(_));
    snapshot.objects.iter().filter(is_unseen).map(|object| object.address).collect()
}

/// Whether a thread waits, without a time limit, for what another one has to do: for no lock.
fn waits_for_others(thread: &Thread) -> bool {
    let is_lock = |kind| matches!(kind, SyncKind::Mutex | SyncKind::Rwlock | SyncKind::Once | SyncKind::Spinlock);
    thread.waits_for.as_ref().is_some_and(|waits| !waits.timed && !is_lock(waits.kind))
}

fn physical(thread: &Thread) -> Vec<&Frame> {
    thread.frames.iter().filter(|frame| !frame.inlined).collect()
}

/// The type that a function belongs to: `Pool` of `Pool::work(int)` and of `Pool::new::{{closure}}`.
fn type_of(function: &str) -> Option<&str> {
    let name = function.trim_start_matches(['<', '&']);
    let (hidden, rest) = match name.strip_prefix("(anonymous namespace)::") {
        Some(rest) => (name.len() - rest.len(), rest),
        None => (0, name),
    };
    let end = rest.find(['(', '<', '{']).unwrap_or(rest.len());
    let path = rest[..end].trim_end_matches(':');
    let of = path.rfind("::")?;
    Some(&name[..hidden + of])
}

#[cfg(test)]
mod tests {
    use super::type_of;

    #[test]
    fn types_of_functions() {
        assert_eq!(type_of("(anonymous namespace)::Pool::work()"), Some("(anonymous namespace)::Pool"));
        assert_eq!(type_of("net::Pool::work(int, std::string)"), Some("net::Pool"));
        assert_eq!(type_of("pools::Pool::work"), Some("pools::Pool"));
        assert_eq!(type_of("worker"), None);
        assert_eq!(type_of("(anonymous namespace)::worker()"), None);
    }
}

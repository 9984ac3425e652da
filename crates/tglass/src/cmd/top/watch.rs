//! Looks at a process again and again, without stopping it, and passes on what was seen.
//!
//! Two threads: one looks at what threads wait for, the other measures what they do with their time. What costs by the thread
//! (stacks, descriptors, names of locks) is read only of those that the screen shows. No look takes more than a small part of a
//! CPU: where there is much to look at, looks are made less often.

use super::updates::{Looked, Seen, Update};
use anyhow::Result;
use nix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use threadglass::look::{self, Look, Names, Scope, TaskScope};
use threadglass::measure::stats::{Known, Watch};
use threadglass::model::{Snapshot, SyncObject, Thread};
use threadglass::target::{KeptFacts, Live, Target, TargetError};
use threadglass::{Lwp, Pid, RemoteAddr};

/// A look may take this part of the time to the next one.
const SHARE: u32 = 20;
/// What threads do with their time may take this part, which thousands of threads do.
const SHARE_OF_TIMES: u32 = 40;
/// The whole explanation of `why` may take this part, and comes no more often than this.
const SHARE_OF_WHY: u32 = 150;
const LEAST_BETWEEN_WHY: Duration = Duration::from_secs(5);
/// How often what was learned of the process (its libraries, its C library) is learned anew.
const INTERVALS: u32 = 60;

/// What the screen shows, so what is to be read in full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Threads whose waits are shown.
    pub visible: BTreeSet<Lwp>,
    /// Threads whose stacks are.
    pub stacks: BTreeSet<Lwp>,
    /// Whether locks are shown that nobody waits for.
    pub locks: bool,
    /// What of the tasks is.
    pub tasks: Option<TaskScope>,
    /// Nothing: the screen is frozen.
    pub pause: bool,
}

/// A process that is watched, until this is dropped.
pub struct Session {
    pub number: u64,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Default)]
struct Asked {
    wanted: Wanted,
    stop: bool,
    /// A whole explanation is wanted before its time.
    explain: bool,
}

impl Session {
    /// Begins to watch `pid`.
    pub fn begin(number: u64, pid: Pid, interval: Duration, updates: &Sender<Update>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let spawn = |name: &str, work: fn(&Worker) -> Result<()>| {
            let worker = Worker { number, pid, interval, shared: shared.clone(), updates: updates.clone() };
            thread::Builder::new().name(name.to_owned()).spawn(move || {
                if let Err(error) = work(&worker) {
                    worker.send(Seen::Ended(crate::remedy::of_error(&error)));
                }
            })
        };
        spawn("tg-looks", Worker::look)?;
        spawn("tg-times", Worker::measure)?;
        Ok(Self { number, shared })
    }

    /// Says what the screen shows now.
    pub fn want(&self, wanted: Wanted) {
        let mut asked = self.shared.asked();
        if asked.wanted != wanted {
            asked.wanted = wanted;
            self.shared.changed.notify_all();
        }
    }

    /// Asks for a whole explanation soon.
    pub fn explain(&self) {
        self.shared.asked().explain = true;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.asked().stop = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Worker {
    number: u64,
    pid: Pid,
    interval: Duration,
    shared: Arc<Shared>,
    updates: Sender<Update>,
}

/// CPU time of all our threads: a look at many threads is made by several.
fn own_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

impl Worker {
    fn send(&self, seen: Seen) {
        // Nobody is left to see it: the session ends.
        let _ = self.updates.send(Update::Process(self.number, seen));
    }

    fn is_over(&self) -> bool {
        self.shared.asked().stop
    }

    /// Waits until the screen goes on. Whether it had to.
    fn pause(&self) -> bool {
        let asked = self.shared.asked();
        let was = asked.wanted.pause;
        let held = |asked: &mut Asked| asked.wanted.pause && !asked.stop;
        drop(self.shared.changed.wait_while(asked, held).unwrap_or_else(PoisonError::into_inner));
        was
    }

    /// Waits for a time, or until the screen shows something else than `before`.
    fn wait(&self, time: Duration, before: &Wanted) -> bool {
        let asked = self.shared.asked();
        let same = |asked: &mut Asked| !asked.stop && asked.wanted == *before;
        let result = self.shared.changed.wait_timeout_while(asked, time, same);
        !result.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn look(&self) -> Result<()> {
        let mut next_why = Instant::now();
        let kept = KeptFacts::default();
        while !self.is_over() {
            let live = Live::open(self.pid)?.keeping(&kept);
            let result = self.look_for_a_while(&live, next_why);
            if let Err(error) = result {
                return Err(match (live.has_ended(), live.is_same_image()) {
                    (true, _) => TargetError::Exited(self.pid).into(),
                    // It executes another program: that is looked at from here on.
                    (false, false) => continue,
                    (false, true) => error.into(),
                });
            }
            if self.is_over() {
                return Ok(());
            }
            let (begun, cpu) = (Instant::now(), own_cpu());
            self.shared.asked().explain = false;
            let live = Live::open(self.pid)?.keeping(&kept);
            match look::explain_for(&live, look::USUAL_TIME) {
                Ok(mut snapshot) => {
                    crate::remedy::of_gaps(&mut snapshot.gaps);
                    self.send(Seen::Explained(Box::new(snapshot)));
                }
                Err(_) if live.has_ended() => return Err(TargetError::Exited(self.pid).into()),
                // Where locks may not be read, the look at the threads says so.
                Err(_) => {}
            }
            next_why = begun + (own_cpu().saturating_sub(cpu) * SHARE_OF_WHY).max(LEAST_BETWEEN_WHY);
        }
        Ok(())
    }

    /// Looks with what is learned once, until it is time for an explanation.
    fn look_for_a_while(&self, live: &Live, until: Instant) -> Result<(), TargetError> {
        let look = Look::new(live);
        let mut names = BTreeMap::new();
        loop {
            self.pause();
            let wanted = self.shared.asked().wanted.clone();
            let (begun, cpu) = (Instant::now(), own_cpu());
            let _look = live.limits().begin();
            let scope = if wanted.locks && live.denial().is_none() { Scope::Held } else { Scope::Waited };
            let mut snapshot = look.take(scope, Names::Findings)?;
            look.add_tasks(&mut snapshot, wanted.tasks.unwrap_or(TaskScope::List));
            add_lock_names(&look, &mut snapshot, &wanted, &mut names);
            let details = details(&look, &snapshot, &wanted);
            crate::remedy::of_gaps(&mut snapshot.gaps);
            let took = own_cpu().saturating_sub(cpu);
            let every = self.interval.max(took * SHARE);
            self.send(Seen::Look(Box::new(Looked { snapshot: snapshot.clone(), details, took, every })));
            let mut seen = wanted;
            while self.wait(every.saturating_sub(begun.elapsed()), &seen) {
                let asked = self.shared.asked();
                let wanted = asked.wanted.clone();
                if asked.stop {
                    return Ok(());
                }
                drop(asked);
                if (wanted.locks, wanted.tasks, wanted.pause) != (seen.locks, seen.tasks, seen.pause) {
                    break;
                }
                add_lock_names(&look, &mut snapshot, &wanted, &mut names);
                self.send(Seen::Details(self::details(&look, &snapshot, &wanted)));
                seen = wanted;
            }
            if self.is_over() || Instant::now() >= until || self.shared.asked().explain {
                return Ok(());
            }
        }
    }

    fn measure(&self) -> Result<()> {
        while !self.is_over() {
            self.pause();
            let live = Live::open(self.pid)?;
            let result = self.measure_for_a_while(&live);
            match result {
                Ok(()) => {}
                // The other thread says so.
                Err(_) if live.has_ended() => return Ok(()),
                Err(_) if !live.is_same_image() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn measure_for_a_while(&self, live: &Live) -> Result<(), TargetError> {
        let known = Known::of(live)?;
        let mut watch = Watch::new(live, &known)?.gently();
        let mut interval = self.interval;
        for _ in 0..INTERVALS {
            let cpu = thread_cpu();
            let stats = watch.interval_by(interval, |time| {
                thread::sleep(time);
                self.is_over()
            })?;
            interval = self.interval.max((thread_cpu().saturating_sub(cpu)) * SHARE_OF_TIMES);
            if self.is_over() || watch.is_over() {
                return Ok(());
            }
            self.send(Seen::Times(Box::new(stats)));
            // An interval in which the screen was frozen is none that anybody wants.
            if self.pause() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Names of locks that were looked for once.
type LockNames = BTreeMap<RemoteAddr, Option<String>>;

/// Names the locks that the screen shows.
fn add_lock_names(look: &Look<'_>, snapshot: &mut Snapshot, wanted: &Wanted, known: &mut LockNames) {
    let concerns = |object: &SyncObject| {
        let waiters = object.waiters.iter().map(|waiter| waiter.lwp);
        waiters.chain(object.holders.iter().filter_map(|holder| holder.lwp)).any(|lwp| wanted.visible.contains(&lwp))
    };
    let missing: BTreeSet<RemoteAddr> = snapshot
        .objects
        .iter()
        .filter(|object| object.name.is_none() && !known.contains_key(&object.address) && concerns(object))
        .map(|object| object.address)
        .collect();
    if !missing.is_empty() {
        look.add_names(snapshot, &|object| missing.contains(&object.address));
        let found = snapshot.objects.iter().filter(|object| missing.contains(&object.address));
        known.extend(found.map(|object| (object.address, object.name.clone())));
    }
    let name = |address: &RemoteAddr| known.get(address).cloned().flatten();
    for object in snapshot.objects.iter_mut().filter(|object| object.name.is_none()) {
        object.name = name(&object.address);
    }
    for thread in &mut snapshot.threads {
        if let Some(waits) = thread.waits_for.as_mut().filter(|waits| waits.name.is_none()) {
            waits.name = name(&waits.address);
        }
        for held in thread.holds.iter_mut().filter(|held| held.name.is_none()) {
            held.name = name(&held.address);
        }
    }
}

/// The threads that the screen shows, with the descriptors of their calls, and some with their stacks.
fn details(look: &Look<'_>, snapshot: &Snapshot, wanted: &Wanted) -> BTreeMap<Lwp, Thread> {
    let is_visible = |thread: &&Thread| thread.lwp.is_some_and(|lwp| wanted.visible.contains(&lwp));
    let threads: Vec<Thread> = snapshot.threads.iter().filter(is_visible).cloned().collect();
    let mut part = snapshot.of_threads(threads);
    look.add_stacks_of(&mut part, &wanted.stacks);
    look.add_descriptors(&mut part);
    part.threads.into_iter().filter_map(|thread| Some((thread.lwp?, thread))).collect()
}

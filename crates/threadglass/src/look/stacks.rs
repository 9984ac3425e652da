//! The stacks of many threads.

use super::waits::has_not_moved;
use super::{Look, facts_now};
use crate::arch::Registers;
use crate::limits::Running;
use crate::model::{CallSite, Frame, Gap, Remedy, Snapshot, StackEnd, Thread};
use crate::proc::SyscallFile;
use crate::sys::parallel::in_parallel;
use crate::table::is_in_agent;
use crate::target::{LwpFacts, Target};
use crate::unwind::{FrameNames, Known, MAX_FRAMES, Place, Space, StackWords, Walk, Walker, call_site};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// How often a thread that moves while its stack is read is looked at again.
const TRIES: usize = 3;

/// Frames of all stacks together, and of each one that comes when these are spent.
const ALL_FRAMES: usize = 1 << 20;
const FEW_FRAMES: usize = 4;
/// Bytes of names in all stacks together. A name may be long, and stand in every frame.
const ALL_NAMES: usize = 192 << 20;

const WHAT: &str = "stack";
/// Why a thread has no stack while it runs.
const RUNS: (&str, Option<Remedy>) = ("it was running or about to run", Some(Remedy::StopThread));
const MOVES: (&str, Option<Remedy>) = ("it ran while its stack was read", Some(Remedy::RetryOrStop));

/// Reads the stacks of a target's threads.
pub struct Stacks<'a> {
    target: &'a dyn Target,
    space: Arc<Space<'a>>,
    /// What the kernel told of the threads when they were looked at.
    before: Arc<BTreeMap<Lwp, LwpFacts>>,
    found: HashMap<Lwp, FoundStack>,
    names: FrameNames<'a>,
    /// The stacks are read and named in one look.
    _look: Running,
    /// Frames of all stacks so far.
    frames: AtomicUsize,
}

struct FoundStack {
    walk: Arc<Walk>,
    site: Option<CallSite>,
    /// What the thread was in when its stack was read.
    call: Option<SyscallFile>,
}

/// A thread, and its start routine.
type WantedStack = (Lwp, Option<RemoteAddr>);

/// What came of one thread.
enum Outcome {
    Found(FoundStack),
    /// It does not stand still, for this reason.
    Moving((&'static str, Option<Remedy>)),
    /// Nothing tells where it is.
    Hidden,
}

impl<'a> Stacks<'a> {
    /// Prepares to read the stacks of a target.
    pub fn new(look: &Look<'a>) -> Self {
        let target = look.target;
        Self {
            target,
            space: look.space.clone(),
            before: look.facts(),
            found: HashMap::new(),
            names: FrameNames::new(&look.objects, true),
            frames: AtomicUsize::new(0),
            _look: target.limits().begin(),
        }
    }

    /// Leaves out source lines in libc: its debug information takes long to read.
    pub fn without_libc_lines(mut self) -> Self {
        self.names.libc_lines = false;
        self
    }

    /// Reads the stacks of all `threads` that stand still, without stopping any. Gives those that run,
    /// or keep moving; why others have none is added to `gaps`.
    pub fn read(&mut self, threads: &[Thread], gaps: &mut Vec<Gap>) -> Moving {
        let wanted: Vec<WantedStack> = threads.iter().filter_map(|thread| Some((thread.lwp?, thread.start))).collect();
        let mut moving = Moving::default();
        if let Some(denial) = self.target.denial() {
            gaps.push(Gap::whole("stacks", denial.to_string()));
            return moving;
        }
        // Names are looked up while stacks are still read: opening debug information takes a while.
        let (sender, receiver) = channel();
        let names = self.names.clone();
        let (outcomes, names) = thread::scope(|scope| {
            let namer = thread::Builder::new().spawn_scoped(scope, move || name_all(names, &receiver));
            let outcomes = self.read_all(&wanted, &sender);
            drop(sender);
            (outcomes, namer.ok().and_then(|namer| namer.join().ok()))
        });
        if let Some(names) = names {
            self.names = names;
        }
        for ((lwp, _), outcome) in wanted.iter().zip(outcomes) {
            match outcome {
                Outcome::Found(found) => {
                    self.found.insert(*lwp, found);
                }
                Outcome::Moving(why) => moving.0.push((*lwp, why)),
                Outcome::Hidden => Gap::of_thread(gaps, WHAT, "its program counter is not known", *lwp),
            }
        }
        moving
    }

    /// Reads stacks where the threads were when they were looked at; then, of those that have moved since, again. What is
    /// found on them goes to `namer`.
    fn read_all(&self, wanted: &[WantedStack], namer: &Sender<Vec<Place>>) -> Vec<Outcome> {
        let early = read_each(wanted, namer, |known, one| self.read_early(known, one).unwrap_or(Outcome::Hidden));
        let is_found = |outcome: &Outcome| matches!(outcome, Outcome::Found(_));
        let read = wanted.iter().zip(&early).filter(|(_, early)| is_found(early));
        let lwps: Vec<Lwp> = read.map(|((lwp, _), _)| *lwp).collect();
        let now: HashMap<Lwp, LwpFacts> = facts_now(self.target, &lwps);
        let is_still =
            |lwp| self.before.get(lwp).zip(now.get(lwp)).is_some_and(|(before, now)| has_not_moved(before, now));
        let still: Vec<bool> = wanted.iter().map(|(lwp, _)| is_still(lwp)).collect();
        let moved: Vec<WantedStack> =
            wanted.iter().zip(&still).filter(|(_, still)| !**still).map(|(one, _)| *one).collect();
        let mut late = read_each(&moved, namer, |known, one| self.read_one(known, one)).into_iter();
        let outcome = |(early, still)| match early {
            Outcome::Found(found) if still => Outcome::Found(found),
            dropped => {
                if let Outcome::Found(found) = dropped {
                    self.frames.fetch_sub(found.walk.places.len(), Ordering::Relaxed);
                }
                late.next().unwrap_or(Outcome::Hidden)
            }
        };
        early.into_iter().zip(still).map(outcome).collect()
    }

    /// The stack of a thread where it was when it was looked at.
    fn read_early(&self, known: &mut Known, (lwp, start): WantedStack) -> Option<Outcome> {
        let call = self.before.get(&lwp)?.syscall.filter(|_| self.target.registers_at_rest(lwp).is_none())?;
        let (sp, pc) = call.registers()?;
        let found = self.walk_again(known, Registers::blocked(pc, sp), start);
        Some(Outcome::Found(FoundStack { call: Some(call), ..found }))
    }

    fn read_one(&self, known: &mut Known, (lwp, start): WantedStack) -> Outcome {
        if let Some(registers) = self.target.registers_at_rest(lwp) {
            return Outcome::Found(self.walk_again(known, registers, start));
        }
        for _ in 0..TRIES {
            let counters = self.target.sched_counters(lwp);
            let Some(call) = self.target.wait_call(lwp) else { return Outcome::Hidden };
            let Some((sp, pc)) = call.registers() else { return Outcome::Moving(RUNS) };
            let mut stack = StackWords::live(self.target, sp);
            let mut found = self.walk(known, &mut stack, Registers::blocked(pc, sp), start);
            // It stood still all the time if it is in the same call and never got a CPU since.
            let still = self.target.wait_call(lwp) == Some(call)
                && counters
                    .zip(self.target.sched_counters(lwp))
                    .is_none_or(|(before, now)| before.timeslices == now.timeslices && before.run_ns == now.run_ns);
            if still {
                found.call = Some(call);
                return Outcome::Found(found);
            }
        }
        Outcome::Moving(MOVES)
    }

    /// The stack of a thread that has not moved since the look: it may have been walked already.
    fn walk_again(&self, known: &mut Known, registers: Registers, start: Option<RemoteAddr>) -> FoundStack {
        match self.space.walked(&registers) {
            Some(walk) => self.found(known, walk),
            None => self.walk(known, &mut StackWords::live(self.target, registers.sp), registers, start),
        }
    }

    fn walk(
        &self,
        known: &mut Known,
        stack: &mut StackWords<'_>,
        registers: Registers,
        start: Option<RemoteAddr>,
    ) -> FoundStack {
        // With very many deep stacks, of the rest only where each thread is.
        let most = if self.frames.load(Ordering::Relaxed) < ALL_FRAMES { MAX_FRAMES } else { FEW_FRAMES };
        let mut walker = Walker { most, ..Walker::whole(&self.space, known, start) };
        let walk = Arc::new(walker.walk(stack, registers));
        self.found(known, walk)
    }

    fn found(&self, known: &mut Known, walk: Arc<Walk>) -> FoundStack {
        self.frames.fetch_add(walk.places.len(), Ordering::Relaxed);
        let mut site = call_site(&self.space, known, &walk.places);
        if let Some(site) = site.as_mut().filter(|site| is_in_agent(self.target, site.address)) {
            // The agent has passed the program's call on.
            let is_program = |place: &&Place| !place.signal && !is_in_agent(self.target, place.pc);
            let outside = walk.places.iter().skip_while(|place| place.pc != site.address).find(is_program);
            site.address = outside.map_or(site.address, |place| place.pc);
        }
        FoundStack { walk, site, call: None }
    }

    /// Takes the stack of a thread that was stopped for it: its registers, and a copy of its stack from
    /// `from` on.
    pub fn add_copied(&mut self, thread: &Thread, registers: Registers, from: RemoteAddr, copy: Vec<u8>) {
        let mut stack = StackWords::copied(from, copy);
        let found = self.walk(&mut Known::default(), &mut stack, registers, thread.start);
        if let Some(lwp) = thread.lwp {
            self.found.insert(lwp, found);
        }
    }

    /// Names the frames, each distinct address once, and puts them into the threads of `snapshot`.
    pub fn finish(mut self, snapshot: &mut Snapshot) {
        let places = self.found.values().flat_map(|found| &found.walk.places);
        let missing: Vec<Place> = places.filter(|place| !self.names.has(place)).copied().collect();
        self.names.look_up(&missing);
        let names = &self.names;
        let (mut bytes, limits) = (0, self.target.limits());
        if *self.frames.get_mut() >= ALL_FRAMES {
            limits.leave_out("most frames of some stacks", format!("all stacks together have more than {ALL_FRAMES}"));
        }
        for thread in &mut snapshot.threads {
            let Some(found) = thread.lwp.and_then(|lwp| self.found.remove(&lwp)) else { continue };
            thread.frames_end = Some(found.walk.end.clone());
            for place in &found.walk.places {
                if bytes > ALL_NAMES {
                    thread.frames_end = Some(StackEnd::Limit);
                    limits.leave_out("frames of some stacks", "the names in all stacks take too much memory");
                    break;
                }
                let frames = names.frames(place);
                bytes += frames.iter().map(bytes_of).sum::<usize>();
                thread.frames.extend(frames);
            }
            thread.call_site = found.site;
            // The thread may have gone from one call to another since the first look: what is told of it
            // must fit its frames.
            if let Some(call) = found.call {
                (thread.sp, thread.pc) = call.registers().unzip();
                thread.syscall = call.call();
            }
        }
        limits.report(&mut snapshot.gaps);
    }
}

/// Bytes that a frame takes.
fn bytes_of(frame: &Frame) -> usize {
    let texts = [&frame.function, &frame.module, &frame.file];
    size_of::<Frame>() + texts.iter().filter_map(|text| Some(text.as_ref()?.len())).sum::<usize>()
}

/// What comes of each of `wanted`. New places go to `namer`; without a namer they are named in the end.
fn read_each(
    wanted: &[WantedStack],
    namer: &Sender<Vec<Place>>,
    read: impl Fn(&mut Known, WantedStack) -> Outcome + Sync,
) -> Vec<Outcome> {
    in_parallel(wanted, |part| {
        let mut known = Known::default();
        let read_one = |one: &WantedStack| {
            let outcome = read(&mut known, *one);
            if let Outcome::Found(found) = &outcome {
                let places = found.walk.places.iter();
                let new: Vec<Place> = places.filter(|place| known.named.insert(place.lookup())).copied().collect();
                if !new.is_empty() {
                    let _ = namer.send(new);
                }
            }
            outcome
        };
        part.iter().map(read_one).collect()
    })
}

/// Names the places that come until no more can.
fn name_all<'a>(mut names: FrameNames<'a>, places: &Receiver<Vec<Place>>) -> FrameNames<'a> {
    while let Ok(mut batch) = places.recv() {
        // All that have come meanwhile, at once: some lookups cost the same for one as for many.
        batch.extend(places.try_iter().flatten());
        names.look_up(&batch);
    }
    names
}

/// Threads whose stacks could not be read because they did not stand still.
#[derive(Clone, Debug, Default)]
pub struct Moving(Vec<(Lwp, (&'static str, Option<Remedy>))>);

impl Moving {
    /// The threads.
    pub fn threads(&self) -> impl Iterator<Item = Lwp> {
        self.0.iter().map(|(lwp, _)| *lwp)
    }

    /// Adds one.
    pub(crate) fn push(&mut self, lwp: Lwp, why: &'static str) {
        self.0.push((lwp, (why, None)));
    }

    /// Says so in `gaps`.
    pub fn report(&self, gaps: &mut Vec<Gap>) {
        for (lwp, (why, remedy)) in &self.0 {
            Gap::whole(WHAT, *why).with(*remedy).add_of_thread(gaps, *lwp);
        }
    }
}

/// The stack of one thread in plain memory, for tests and fuzzing.
pub fn walk_bytes(space: &Space<'_>, registers: Registers) -> Walk {
    let mut stack = StackWords::live(space.memory, registers.sp);
    Walker::whole(space, &mut Known::default(), None).walk(&mut stack, registers)
}

impl StackEnd {
    /// Whether the whole stack was seen.
    pub fn is_whole(&self) -> bool {
        *self == Self::Start
    }
}

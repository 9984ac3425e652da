//! Where threads wait: looks at all threads, from time to time, none of which stops any.

use super::flat::{self, Tick};
use super::image::ProgramImage;
use super::recorder::mapped;
use super::{Options, ProfileError, Progress, SamplingError, empty, most_first, percent};
use crate::arch::Registers;
use crate::look::{Look, Names, Scope, TaskScope};
use crate::measure::bounded;
use crate::model::{
    Frame, Gap, HolderShare, Profile, ProfileEnd as End, ProfileKind as Kind, ProfiledProcess as Process, SharedFrames,
    Snapshot, StackEnd, StackShare, SyncKind, Task, Thread, ThreadState, ThreadType, WaitShare,
};
use crate::runtimes::{FutexWait, is_among_threads};
use crate::symbols::DataNames;
use crate::table::is_in_agent;
use crate::target::{KernelFacts, Live, Target, TargetError};
use crate::unwind::{Place, StackWords};
use crate::{Lwp, Pid, RemoteAddr};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Looks per second at most.
const HIGHEST_RATE: u32 = 1000;
/// Stacks that are told apart.
const MAX_DISTINCT: usize = 1 << 18;
/// How far a chain of holders that wait themselves is followed.
const MAX_CHAIN: usize = 8;

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Cause {
    Object(SyncKind, RemoteAddr),
    /// A word, of which the look does not say more: the wait was too short to find out.
    Word(RemoteAddr),
    /// A system call, or a stop.
    Other(String),
}

/// Records where the threads of a process wait. `wait` is called to wait for a time, and gives true to end the
/// recording. The share of a wait among the samples is its share of all time that threads spent waiting.
pub fn record_waits(
    pid: Pid,
    options: &Options,
    wait: &mut dyn FnMut(Duration, &Progress) -> bool,
) -> Result<Profile, ProfileError> {
    if !(1..=HIGHEST_RATE).contains(&options.rate) {
        let limit = format!("use 1 to {HIGHEST_RATE} looks per second");
        return Err(SamplingError::Rate { rate: options.rate, limit }.into());
    }
    let live = Live::open(pid)?;
    if let Some(denial) = live.denial() {
        return Err(ProfileError::Denied(pid, denial));
    }
    let look = Look::new(&live);
    let mut waits = Waits {
        image: ProgramImage::new(&live, &look),
        data: look.data_names(),
        names: HashMap::new(),
        stacks: HashMap::new(),
        causes: HashMap::new(),
        words: HashMap::new(),
        threads: HashSet::new(),
        task_stacks: HashMap::new(),
        tasks: HashSet::new(),
        runtimes: Vec::new(),
        gaps: Vec::new(),
        samples: 0,
        moved: 0,
    };
    let has_tasks = look.has_tasks();
    let has_tasks_alone = has_tasks && look.has_tasks_alone();
    let begun = Instant::now();
    let mut looks = 0;
    let end = loop {
        let started = Instant::now();
        match look.take(Scope::Waited, Names::None) {
            Ok(mut snapshot) if has_tasks => {
                // Where threads do other work as well, their waits count beside those of tasks.
                if !has_tasks_alone {
                    waits.take(&snapshot);
                    snapshot.gaps.clear();
                }
                look.add_tasks(&mut snapshot, TaskScope::Stacks);
                waits.take_tasks(&snapshot.tasks);
                waits.runtimes = snapshot.task_runtimes.iter().map(|runtime| runtime.name).collect();
                if !has_tasks_alone {
                    waits.gaps = snapshot.gaps;
                }
            }
            Ok(snapshot) => waits.take(&snapshot),
            Err(TargetError::Execed(_)) => break End::Execed,
            Err(_) if looks > 0 => break End::Exited,
            Err(error) => return Err(error.into()),
        }
        looks += 1;
        // A look that takes long is followed by a pause as long, whatever the rate.
        let took = started.elapsed();
        let nap = Duration::from_secs(1).div_f64(f64::from(options.rate)).saturating_sub(took).max(took);
        let left = options.duration.map(|duration| duration.saturating_sub(begun.elapsed()));
        if left == Some(Duration::ZERO) {
            break End::Time;
        }
        let progress = Progress { elapsed: begun.elapsed(), samples: waits.samples };
        if wait(nap.min(left.unwrap_or(nap)), &progress) {
            break End::Asked;
        }
    };
    Ok(waits.finish(options, looks, begun.elapsed(), end))
}

struct Waits<'a> {
    image: ProgramImage<'a>,
    data: DataNames<'a>,
    names: HashMap<RemoteAddr, Option<String>>,
    /// By places and what is waited for.
    stacks: HashMap<(Vec<Place>, Vec<String>), (bool, u64)>,
    causes: HashMap<Cause, CauseCounts>,
    /// What a word that threads slept on was seen to belong to. Memory may be used for one thing after the other.
    words: HashMap<RemoteAddr, Vec<(SyncKind, RemoteAddr)>>,
    threads: HashSet<Lwp>,
    /// The same of tasks, whose frames have names already.
    task_stacks: HashMap<(SharedFrames, Vec<String>), (bool, u64)>,
    tasks: HashSet<(&'static str, u64)>,
    runtimes: Vec<&'static str>,
    /// What the last look could not see of tasks.
    gaps: Vec<Gap>,
    samples: u64,
    moved: u64,
}

#[derive(Default)]
struct CauseCounts {
    samples: u64,
    holders: HashMap<String, u64>,
    /// Where the program waits.
    sites: HashMap<Place, u64>,
    /// Where its tasks do.
    task_sites: HashMap<Frame, u64>,
}

/// What of one look is told once: stack and cause of a task.
type SeenTask = (usize, Cause, Option<u64>);

impl Waits<'_> {
    fn take(&mut self, snapshot: &Snapshot) {
        let by_lwp: HashMap<Lwp, &Thread> =
            snapshot.threads.iter().filter_map(|thread| Some((thread.lwp?, thread))).collect();
        for thread in snapshot.threads.iter().filter(|thread| is_waiting(thread)) {
            let Some(lwp) = thread.lwp else { continue };
            self.samples += 1;
            self.threads.insert(lwp);
            let cause = self.cause(thread);
            let words = self.words(thread, &cause, &by_lwp);
            let stack = self.stack(lwp, thread);
            let (places, whole) = stack.unwrap_or_else(|| {
                self.moved += 1;
                (Vec::new(), false)
            });
            let site = places.iter().find(|place| self.is_of_program(place.lookup())).copied();
            let Some(seen) = bounded(&mut self.causes, cause, MAX_DISTINCT) else { continue };
            seen.samples += 1;
            if let Some(holder) = words.iter().find_map(|word| word.strip_prefix("held by ")) {
                *seen.holders.entry(holder.to_owned()).or_default() += 1;
            }
            if let Some(site) = site {
                *seen.sites.entry(site).or_default() += 1;
            }
            if let Some(stack) = bounded(&mut self.stacks, (places, words), MAX_DISTINCT) {
                *stack = (whole, stack.1 + 1);
            }
        }
    }

    /// The waits of tasks of the program. What its runtime's own tasks wait for is no matter of the program, nor that of threads
    /// that carry no task.
    fn take_tasks(&mut self, tasks: &[Task]) {
        let mut seen: HashMap<SeenTask, (&Task, u64)> = HashMap::new();
        let is_asleep = |task: &&Task| task.state == ThreadState::Sleep && task.kind == ThreadType::User;
        for task in tasks.iter().filter(is_asleep) {
            self.samples += 1;
            let known = (task.runtime, task.id);
            if self.tasks.len() < MAX_DISTINCT || self.tasks.contains(&known) {
                self.tasks.insert(known);
            }
            // Not all runtimes have stacks for tasks.
            self.moved += u64::from(task.frames.is_empty() && !is_among_threads(task.runtime));
            // In one look equal stacks are the same one.
            let key = (task.frames.identity(), task_cause(task), holder(task));
            seen.entry(key).or_insert((task, 0)).1 += 1;
        }
        for ((_, cause, holder), (task, number)) in seen {
            let mut words = match &cause {
                Cause::Object(kind, address) => vec![self.told(&(*kind, *address))],
                Cause::Other(what) => vec![what.clone()],
                Cause::Word(_) => Vec::new(),
            };
            words.extend(holder.map(|holder| format!("held by task {holder}")));
            let site = task.frames.iter().find(|frame| is_of_program(frame));
            let Some(counts) = bounded(&mut self.causes, cause, MAX_DISTINCT) else { continue };
            counts.samples += number;
            if let Some(holder) = holder {
                *counts.holders.entry(format!("task {holder}")).or_default() += number;
            }
            if let Some(site) = site.and_then(|site| bounded(&mut counts.task_sites, site.clone(), MAX_DISTINCT)) {
                *site += number;
            }
            if let Some(stack) = bounded(&mut self.task_stacks, (task.frames.clone(), words), MAX_DISTINCT) {
                *stack = (task.frames_end == Some(StackEnd::Start), stack.1 + number);
            }
        }
    }

    /// What a thread waits for, as far as this look or one before it could tell.
    fn cause(&mut self, thread: &Thread) -> Cause {
        if let Some(stop) = &thread.stop {
            return Cause::Other(stop.text());
        }
        let call = thread.syscall.as_ref();
        let word = call.and_then(|call| FutexWait::in_call(call.number, &call.args)).map(|wait| wait.word);
        match (&thread.waits_for, word) {
            (Some(waits), word) if waits.kind != SyncKind::Futex => {
                let object = (waits.kind, waits.address);
                if let Some(owners) = word.and_then(|word| bounded(&mut self.words, word, MAX_DISTINCT))
                    && owners.len() < 2
                    && !owners.contains(&object)
                {
                    owners.push(object);
                }
                Cause::Object(waits.kind, waits.address)
            }
            (_, Some(word)) => Cause::Word(word),
            (Some(waits), None) => Cause::Object(waits.kind, waits.address),
            (None, None) => Cause::Other(call.map_or_else(|| "asleep".to_owned(), |call| call.name.to_string())),
        }
    }

    /// Whether code is neither libc's nor the agent's, through which the program's calls may go.
    fn is_of_program(&self, pc: RemoteAddr) -> bool {
        !self.image.live.is_in_libc(pc) && !is_in_agent(self.image.live, pc)
    }

    /// The stack of a thread that has been in one call all the time.
    fn stack(&mut self, lwp: Lwp, thread: &Thread) -> Option<(Vec<Place>, bool)> {
        let call = self.image.live.wait_call(lwp)?;
        let (sp, pc) = call.registers()?;
        // It must be the call of which the look has told.
        if thread.sp != Some(sp) || thread.pc != Some(pc) {
            return None;
        }
        let mut words = StackWords::begun(self.image.live, sp, Vec::new());
        let walk = self.image.walk_words(&mut words, Registers::blocked(pc, sp), thread.start);
        for place in &walk.places {
            self.image.pin(place.lookup().0);
        }
        (self.image.live.wait_call(lwp) == Some(call)).then(|| (walk.places, walk.end.is_whole()))
    }

    /// What a thread waits for, who holds it, what that one waits for, and so on.
    fn words(&mut self, thread: &Thread, cause: &Cause, by_lwp: &HashMap<Lwp, &Thread>) -> Vec<String> {
        let mut words = Vec::new();
        match cause {
            // Whatever it would wait for, it cannot take it.
            Cause::Other(what) if thread.stop.is_some() => return vec![what.clone()],
            Cause::Word(word) if thread.waits_for.is_none() => words.push(self.told(&self.owner_of(*word))),
            _ => {}
        }
        let mut next = thread;
        let mut passed = HashSet::from([thread.lwp]);
        for _ in 0..MAX_CHAIN {
            let Some(waits) = &next.waits_for else { break };
            words.push(format!("{} {}", waits.kind.word(), self.name(waits.address, waits.name.as_deref())));
            let Some(holder) = waits.held_by.first().filter(|_| waits.kind != SyncKind::Join) else { break };
            let more = match waits.held_by.len() {
                1 => String::new(),
                number => format!(" and {} more", number - 1),
            };
            let Some(thread) = by_lwp.get(holder) else {
                words.push(format!("held by lwp {holder}{more}"));
                break;
            };
            words.push(format!("held by {} (lwp {holder}){more}", thread.name.as_deref().unwrap_or("a thread")));
            if !passed.insert(thread.lwp) {
                break;
            }
            next = thread;
        }
        words
    }

    /// The object that a word belongs to: what another look found out, or the word itself.
    fn owner_of(&self, word: RemoteAddr) -> (SyncKind, RemoteAddr) {
        match self.words.get(&word).map(Vec::as_slice) {
            Some([owner]) => *owner,
            _ => (SyncKind::Futex, word),
        }
    }

    fn told(&mut self, (kind, address): &(SyncKind, RemoteAddr)) -> String {
        format!("{} {}", kind.word(), self.name(*address, None))
    }

    fn name(&mut self, address: RemoteAddr, known: Option<&str>) -> String {
        let data = &mut self.data;
        let name = self.names.entry(address).or_insert_with(|| {
            known.map(str::to_owned).or_else(|| data.variable_at(address)).or_else(|| data.offset_of(address))
        });
        name.clone().unwrap_or_else(|| address.to_string())
    }

    fn finish(mut self, options: &Options, looks: u64, duration: Duration, end: End) -> Profile {
        let mut gaps = std::mem::take(&mut self.gaps);
        if self.moved > 0 {
            gaps.push(Gap::whole(
                format!("stacks of {} waits", self.moved),
                "the waits ended during the look; they are counted",
            ));
        }
        let look = self.image.live.limits().begin();
        let places: Vec<Place> = self.stacks.keys().flat_map(|(places, _)| places.iter().copied()).collect();
        self.image.look_up(&places);
        self.image.live.limits().report(&mut gaps);
        drop(look);
        let all = self.samples;
        let mut causes: HashMap<Result<(SyncKind, RemoteAddr), String>, CauseCounts> = HashMap::new();
        for (cause, seen) in std::mem::take(&mut self.causes) {
            let resolved = match cause {
                Cause::Object(kind, address) => Ok((kind, address)),
                Cause::Word(word) => Ok(self.owner_of(word)),
                Cause::Other(what) => Err(what),
            };
            causes.entry(resolved).or_default().add(seen);
        }
        let mut sites: HashMap<Place, u64> = HashMap::new();
        let mut task_sites: HashMap<Frame, u64> = HashMap::new();
        let mut shares = Vec::new();
        for (cause, seen) in causes {
            let (object, call) = cause.map_or_else(|call| (None, call), |object| (Some(object), String::new()));
            for (site, samples) in &seen.sites {
                *sites.entry(*site).or_default() += samples;
            }
            for (site, samples) in &seen.task_sites {
                *task_sites.entry(site.clone()).or_default() += samples;
            }
            let most = seen.sites.iter().max_by_key(|(place, samples)| (**samples, place.pc)).map(|(place, _)| *place);
            let of_task = seen.task_sites.iter().max_by_key(|(frame, samples)| (**samples, frame.pc));
            let of_task = of_task.and_then(|(frame, _)| frame.function.clone());
            let holders = seen.holders();
            shares.push(WaitShare {
                kind: object.map(|(kind, _)| kind),
                name: object.map_or(call, |(_, address)| self.name(address, None)),
                address: object.map(|(_, address)| address),
                held_by: holders.first().map(|holder| holder.name.clone()),
                holders,
                function: most.and_then(|place| self.image.frames(&place).pop()?.function).or(of_task),
                samples: seen.samples,
                percent: percent(seen.samples, all),
                threads: (seen.samples as f64 * 100.0 / (looks.max(1) as f64)).round() / 100.0,
            });
        }
        shares.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.name.cmp(&b.name)));
        let ticks = sites
            .into_iter()
            .filter_map(|(place, samples)| Some(Tick { frame: self.image.frames(&place).pop()?, samples }));
        let of_tasks = task_sites.into_iter().map(|(frame, samples)| Tick { frame, samples });
        let ticks: Vec<Tick> = ticks.chain(of_tasks).collect();
        let stacks = self.stacks.into_iter().map(|((places, waits_for), (whole, samples))| StackShare {
            frames: places.iter().flat_map(|place| self.image.frames(place)).collect(),
            whole,
            waits_for,
            samples,
        });
        let task_stacks = self.task_stacks.into_iter().map(|((frames, waits_for), (whole, samples))| StackShare {
            frames: frames.to_vec(),
            whole,
            waits_for,
            samples,
        });
        let stacks = most_first(stacks.chain(task_stacks).collect());
        let identity = self.image.live.identity();
        let target = Process { pid: self.image.live.pid(), name: identity.name, exe: identity.exe };
        Profile {
            samples: all,
            threads: self.threads.len() + self.tasks.len(),
            tasks_of: self.runtimes,
            looks: Some(looks),
            functions: flat::functions(&ticks, all),
            waits: shares,
            stacks,
            mapped: mapped(std::slice::from_ref(&self.image)),
            gaps,
            ..empty(Kind::Wait, target, options.rate, duration, end)
        }
    }
}

impl CauseCounts {
    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        other.holders.into_iter().for_each(|(name, samples)| *self.holders.entry(name).or_default() += samples);
        other.sites.into_iter().for_each(|(site, samples)| *self.sites.entry(site).or_default() += samples);
        other.task_sites.into_iter().for_each(|(site, samples)| *self.task_sites.entry(site).or_default() += samples);
    }

    /// Who held it, those that threads waited for most often first.
    fn holders(&self) -> Vec<HolderShare> {
        let share = |(name, samples): (&String, &u64)| HolderShare {
            name: name.clone(),
            samples: *samples,
            percent: percent(*samples, self.samples),
        };
        let mut holders: Vec<HolderShare> = self.holders.iter().map(share).collect();
        holders.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.name.cmp(&b.name)));
        holders
    }
}

/// What a task waits for: the object, or the reason where there is none, or several.
fn task_cause(task: &Task) -> Cause {
    let Some(wait) = &task.wait else { return Cause::Other(task.status.to_owned()) };
    match (wait.objects.as_slice(), wait.descriptor) {
        ([object], _) => Cause::Object(object.kind, object.address),
        ([], Some(descriptor)) => Cause::Other(format!("{} fd {descriptor}", wait.reason)),
        _ => Cause::Other(wait.reason.to_string()),
    }
}

/// The task that has what `task` waits for, where there is one.
fn holder(task: &Task) -> Option<u64> {
    match task.wait.as_ref()?.objects.as_slice() {
        [object] => object.held_by.first().copied(),
        _ => None,
    }
}

/// Whether a frame is of the program, and not of the runtime and the locks of its language.
fn is_of_program(frame: &Frame) -> bool {
    const LANGUAGE: [&str; 6] = ["runtime.", "sync.", "internal/", "syscall.", "tokio::", "runtime/"];
    frame.function.as_deref().is_some_and(|name| !LANGUAGE.iter().any(|own| name.starts_with(own)))
}

/// Whether a thread does nothing until something happens.
fn is_waiting(thread: &Thread) -> bool {
    matches!(thread.state, ThreadState::Sleep | ThreadState::Stopped | ThreadState::StoppedAsleep)
}

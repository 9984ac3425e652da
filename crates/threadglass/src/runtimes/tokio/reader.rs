//! Tasks of tokio as tasks of the model.

use super::NAME;
use super::future::{FutureFacts, FutureReader};
use super::header::{Header, StateWord};
use super::lists::{Finder, FoundTasks, Scheduler};
use super::names::Names;
use super::roots::{self, ThreadPointers};
use super::stacks::{self, Doing, RootFuture, SeenStacks};
use super::types::{KnownType, Leaf, Types, Workers};
use super::vtables::Vtables;
use super::{objects, version, waits};
use crate::model::{
    Frame, Gap, SharedFrames, SharedText, StackEnd, Task, TaskRuntimeInfo, TaskScheduler, ThreadState, ThreadType,
};
use crate::runtimes::records;
use crate::runtimes::tasks::{ROOT_OF_POLLS, SeenTasks, TaskContext, TaskScope};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

/// Tasks whose futures are read at one time.
const BATCH: usize = 1024;
/// Calls that block whose ends are awaited.
const MAX_AWAITED: usize = 4096;
/// What is read of one task. A larger future is read where the walk comes to.
const MAX_CELL: u64 = 16 << 10;

/// A task, or the future of `block_on`.
pub(super) struct ReadTask {
    /// Where it is.
    pub(super) at: RemoteAddr,
    /// 0 of a future of `block_on`.
    pub(super) id: u64,
    state: ThreadState,
    status: &'static str,
    carried_by: Option<Lwp>,
    bound_to: Option<Lwp>,
    scheduler: Option<RemoteAddr>,
    /// The function that polls it.
    poll: Option<RemoteAddr>,
    name: Option<SharedText>,
    pub(super) facts: Option<FutureFacts>,
}

/// What all tasks with the same table of functions have in common.
pub(super) struct TaskKind {
    /// The type of the whole task, where there is debug information.
    cell: Option<Rc<KnownType>>,
    /// The name of the future.
    name: Option<SharedText>,
}

/// All tasks of a program; `None` where no table of functions of tokio is in it.
pub(super) fn read<'t>(context: &TaskContext<'t>) -> Option<SeenTasks<'t>> {
    let target = context.target;
    let vtables = Vtables::find(context.objects);
    if vtables.is_empty() {
        return None;
    }
    let pointers = roots::pointers_of(target, context.threads);
    let mut all: BTreeSet<u64> = pointers.iter().flat_map(|thread| thread.pointers.iter().copied()).collect();
    all.extend(roots::pointers_in_variables(context.objects, &vtables));
    let is_over = || target.limits().is_over();
    let finder = Finder { memory: target, maps: target.maps(), vtables: &vtables, is_over: &is_over };
    let found = finder.find(&all);
    let types = Types::new(context.objects);
    let stacks = stacks::walk(context, &types);
    if found.tasks.is_empty() && found.torn == 0 && stacks.roots.is_empty() {
        return None;
    }
    let names = Names::new(context.objects);
    let reader = Reader { context, types: &types, finder: &finder, names, stacks, pointers };
    Some(reader.seen(found))
}

/// What was read of some tasks.
struct Cells {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
}

impl Cells {
    /// The bytes of one; none if it could not be read, or was not to be.
    fn of(&self, index: usize) -> &[u8] {
        &self.bytes[self.places[index].clone()]
    }
}

struct Reader<'r> {
    context: &'r TaskContext<'r>,
    types: &'r Types<'r>,
    finder: &'r Finder<'r>,
    names: Names<'r>,
    stacks: SeenStacks,
    pointers: Vec<ThreadPointers>,
}

impl Reader<'_> {
    fn seen<'t>(mut self, found: FoundTasks) -> SeenTasks<'t> {
        let mut gaps = Vec::new();
        if self.stacks.left_out > 0 {
            let why = format!("{} threads are more than one look walks", self.stacks.left_out);
            gaps.push(Gap::whole("futures of block_on on some stacks", why));
        }
        if found.torn > 0 {
            let why = format!("{} lists of tasks changed faster than they could be followed", found.torn);
            gaps.push(Gap::whole("some tasks of tokio", why));
        }
        if found.is_cut {
            gaps.push(Gap::whole("some tasks of tokio", "there are more than one look follows"));
        }
        let mut kinds: HashMap<u64, Rc<TaskKind>> = HashMap::new();
        let mut read: Vec<ReadTask> = Vec::with_capacity(found.tasks.len());
        let mut moving = 0;
        for part in found.tasks.chunks(BATCH) {
            self.read_part(part, &mut kinds, &mut read, &mut moving);
        }
        let roots = std::mem::take(&mut self.stacks.roots);
        let from = read.len();
        let singles = self.singles(&found, &kinds);
        read.extend(roots.iter().map(|root| self.root(root, &singles, &mut moving)));
        let is_unread = |task: &&ReadTask| task.facts.is_none() && task.state == ThreadState::Sleep;
        let unread = read[from..].iter().filter(is_unread).count();
        self.read_awaited(&mut kinds, &mut read);
        if unread > 0 && kinds.values().any(|kind| kind.cell.is_some()) {
            let why = "debug information does not tell where on the stack they are";
            let what = if unread == 1 {
                "the future of a block_on awaits".to_owned()
            } else {
                format!("{unread} futures of block_on await")
            };
            gaps.push(Gap::whole(format!("what {what}"), why));
        }
        let has_types = kinds.values().any(|kind| kind.cell.is_some()) || roots.iter().any(|root| root.value.is_some());
        if !has_types {
            let why = "the program has no debug information about types (a build with `debug = 2` has)";
            gaps.push(Gap::whole("what tasks of tokio await, and the lines of their awaits", why));
        }
        if moving > 0 {
            let why = format!("{moving} tasks were polled while they were looked at");
            gaps.push(Gap::whole("what some tasks of tokio await", why));
        }
        let workers = |scheduler: &Scheduler| TaskScheduler {
            address: scheduler.at,
            concurrency: self.workers(scheduler, &found.tasks, &kinds),
        };
        let schedulers: Vec<TaskScheduler> = found.schedulers.iter().map(workers).collect();
        // What one thread at a time polls needs no worker beside that thread.
        let all: Option<u64> = schedulers.iter().map(|scheduler| scheduler.concurrency).sum();
        let concurrency = all.filter(|all| *all > 0);
        let links = waits::Links::of(&read);
        let mut frames = FrameCache::default();
        let mut tasks: Vec<Task> = read.iter().map(|task| self.task(task, &links, &mut frames)).collect();
        tasks.sort_by_key(|task| (task.id, task.bound_to, task.address));
        let count = |state: ThreadState| tasks.iter().filter(|task| task.state == state).count() as u64;
        let info = TaskRuntimeInfo {
            name: NAME,
            version: self.version(),
            concurrency,
            schedulers,
            running: count(ThreadState::Active),
            runnable: count(ThreadState::Run),
            waiting: count(ThreadState::Sleep),
        };
        let objects = if self.context.scope >= TaskScope::Waits { objects::of(&tasks, &read) } else { Vec::new() };
        let executors = self.stacks.is_whole.then(|| self.stacks.executors.iter().copied().collect());
        SeenTasks { info, tasks, objects, gaps, executors, code: None }
    }

    /// Reads futures twice. Those that are the same both times, of a task that nobody polled, are believed.
    fn read_part(
        &mut self,
        part: &[Header],
        kinds: &mut HashMap<u64, Rc<TaskKind>>,
        read: &mut Vec<ReadTask>,
        moving: &mut usize,
    ) {
        let of: Vec<Rc<TaskKind>> = part.iter().map(|task| self.kind(task, kinds)).collect();
        let wants_future = self.context.scope >= TaskScope::Waits;
        let size = |kind: &TaskKind| match &kind.cell {
            Some(cell) if wants_future => usize::try_from(cell.value.size.min(MAX_CELL)).unwrap_or(0),
            _ => 0,
        };
        let sizes: Vec<usize> = of.iter().map(|kind| size(kind)).collect();
        let first = self.read_cells(part, &sizes);
        let second = self.read_cells(part, &sizes);
        // The second read has the header, too.
        let unread = part.iter().enumerate().filter(|(index, _)| second.of(*index).is_empty());
        let unread: Vec<RemoteAddr> = unread.map(|(_, task)| task.at).collect();
        let mut unread = self.finder.read_tasks(&unread).into_iter();
        let mut now = |task: &Header, cell: &[u8]| match cell.is_empty() {
            true => unread.next().flatten(),
            false => self.finder.task_of(task.at, cell),
        };
        let futures = FutureReader { types: self.types, memory: self.context.target };
        let (carriers, mut boxes) = (self.carriers(part), BoxedNames::default());
        for (index, (before, kind)) in part.iter().zip(of).enumerate() {
            // A task that has ended meanwhile is none any more.
            let Some(now) = now(before, second.of(index)).filter(|now| now.is_same(before) && !now.state.is_complete())
            else {
                continue;
            };
            let is_whole = !first.of(index).is_empty();
            let is_still = is_whole && before.state.is_same(now.state) && {
                let place = kind.cell.as_ref().and_then(|cell| futures.place(cell)).unwrap_or_default();
                let [first, second] = [&first, &second].map(|read| {
                    let cell = read.of(index);
                    cell.get(place.start.min(cell.len())..place.end.min(cell.len()))
                });
                first == second
            };
            *moving += usize::from(is_whole && !is_still && !now.state.is_running());
            let cell = kind.cell.as_ref().filter(|_| is_still);
            let carried_by = carriers.get(&now.at).copied().filter(|_| now.state.is_running());
            // A thread whose stack was seen does not run.
            let is_blocked = carried_by.is_some_and(|lwp| self.stacks.is_in(lwp, now.vtable.poll) == Some(true));
            let facts = match now.state.is_running() {
                false => cell.and_then(|cell| futures.read(cell, before.at, first.of(index))),
                true if is_blocked => cell.and_then(|cell| futures.read_guards(cell, before.at, first.of(index))),
                true => None,
            };
            let (mut state, status) = state_of(now.state);
            // Who has given way is woken when the worker has polled others.
            if state == ThreadState::Sleep && facts.as_ref().is_some_and(FutureFacts::yields) {
                state = ThreadState::Run;
            }
            read.push(ReadTask {
                at: now.at,
                id: now.id,
                state,
                status,
                carried_by,
                bound_to: None,
                scheduler: Some(RemoteAddr(now.scheduler)),
                poll: Some(now.vtable.poll),
                name: boxes.name(&kind, facts.as_ref()),
                facts,
            });
        }
    }

    /// Reads calls that block, which are in no list, but whose ends are awaited.
    fn read_awaited(&mut self, kinds: &mut HashMap<u64, Rc<TaskKind>>, read: &mut Vec<ReadTask>) {
        let known: HashSet<RemoteAddr> = read.iter().map(|task| task.at).collect();
        let waits = read.iter().filter_map(|task| task.facts.as_ref()).flat_map(|facts| &facts.waits);
        let ends = waits.filter(|wait| wait.leaf == Leaf::JoinHandle).filter_map(|wait| wait.object);
        let awaited: BTreeSet<RemoteAddr> = ends.filter(|at| !known.contains(at)).collect();
        let awaited: Vec<RemoteAddr> = awaited.into_iter().take(MAX_AWAITED).collect();
        let tasks: Vec<Header> = self.finder.read_tasks(&awaited).into_iter().flatten().collect();
        let carriers = self.carriers(&tasks);
        for task in tasks.iter().filter(|task| task.owner == 0 && !task.state.is_complete()) {
            let (state, status) = state_of(task.state);
            read.push(ReadTask {
                at: task.at,
                id: task.id,
                state,
                status,
                carried_by: carriers.get(&task.at).copied(),
                bound_to: None,
                scheduler: None,
                poll: Some(task.vtable.poll),
                name: self.kind(task, kinds).name.clone(),
                facts: None,
            });
        }
    }

    /// A future of `block_on`, which is read as that of a task is.
    fn root(&self, root: &RootFuture, singles: &BTreeSet<u64>, moving: &mut usize) -> ReadTask {
        let futures = FutureReader { types: self.types, memory: self.context.target };
        let known = root.value.and_then(|(_, of)| self.types.get(of));
        let size = known.as_ref().map_or(0, |known| usize::try_from(known.value.size.min(MAX_CELL)).unwrap_or(0));
        let is_polled = root.doing == Doing::Polls;
        let mut facts = None;
        if let Some((at, of)) = root.value.filter(|_| !is_polled && self.context.scope >= TaskScope::Waits) {
            let target = self.context.target;
            let first = target.read_vec(at, size).ok();
            facts = first.as_deref().map(|bytes| futures.read_value(of, at, bytes));
            if first != target.read_vec(at, size).ok() {
                (facts, *moving) = (None, *moving + 1);
            }
            // What was moved away was not polled there; and whoever waits has polled.
            facts = facts.filter(|facts| root.is_pinned || !facts.frames.is_empty());
        }
        // A runtime of one thread polls no task while that thread polls its `block_on`.
        let pointers = self.pointers.iter().find(|thread| thread.lwp == root.lwp && root.is_single);
        let mut own = singles.iter().filter(|single| pointers.is_some_and(|thread| thread.contains(**single)));
        let scheduler = own.next().filter(|_| own.next().is_none()).map(|single| RemoteAddr(*single));
        let (state, status) = match root.doing {
            Doing::Polls => (ThreadState::Active, "running"),
            Doing::PollsTask => (ThreadState::Sleep, ROOT_OF_POLLS),
            Doing::Waits => (ThreadState::Sleep, "idle"),
        };
        ReadTask {
            at: root.value.map_or(root.frame, |(at, _)| at),
            id: 0,
            state,
            status,
            carried_by: is_polled.then_some(root.lwp),
            bound_to: Some(root.lwp),
            scheduler,
            poll: None,
            name: known.map(|known| SharedText::from(&*known.shown)),
            facts,
        }
    }

    fn read_cells(&self, part: &[Header], sizes: &[usize]) -> Cells {
        let wanted: Vec<usize> = (0..part.len()).filter(|index| sizes[*index] > 0).collect();
        let addresses: Vec<u64> = wanted.iter().map(|index| part[*index].at.0).collect();
        let mut cells = Cells { bytes: Vec::with_capacity(sizes.iter().sum()), places: vec![0..0; part.len()] };
        records::read(
            self.context.target,
            &addresses,
            |number| sizes[wanted[number]],
            |number, bytes| {
                let from = cells.bytes.len();
                cells.bytes.extend_from_slice(bytes);
                cells.places[wanted[number]] = from..cells.bytes.len();
            },
        );
        cells
    }

    fn kind(&mut self, task: &Header, kinds: &mut HashMap<u64, Rc<TaskKind>>) -> Rc<TaskKind> {
        if let Some(known) = kinds.get(&task.vtable_at) {
            return known.clone();
        }
        let cell = self.types.task(task.vtable.poll);
        let described = cell.as_ref().and_then(|cell| self.types.future_name(cell));
        let name = described.or_else(|| self.names.future_of(task.vtable.poll));
        let kind = Rc::new(TaskKind { cell, name: name.map(|name| SharedText::from(name.as_str())) });
        kinds.insert(task.vtable_at, kind.clone());
        kind
    }

    /// The runtimes of one thread.
    fn singles(&self, found: &FoundTasks, kinds: &HashMap<u64, Rc<TaskKind>>) -> BTreeSet<u64> {
        let is_single = |scheduler: &&Scheduler| self.workers(scheduler, &found.tasks, kinds) == Some(1);
        found.schedulers.iter().filter(is_single).map(|scheduler| scheduler.at.0).collect()
    }

    /// How many threads run the tasks of a scheduler.
    fn workers(&self, scheduler: &Scheduler, tasks: &[Header], kinds: &HashMap<u64, Rc<TaskKind>>) -> Option<u64> {
        let own = tasks.iter().filter(|task| task.scheduler == scheduler.at.0);
        let cells = own.filter_map(|task| kinds.get(&task.vtable_at)?.cell.as_ref());
        let described = cells.map(|cell| self.types.workers(cell)).next().flatten();
        match described {
            Some(Workers::One) => Some(1),
            Some(Workers::NotedAt(offset)) => {
                let count = self.context.target.read_u64(scheduler.at.checked_add(offset)?).ok()?;
                (1..1 << 16).contains(&count).then_some(count)
            }
            None => scheduler.workers(),
        }
    }

    /// The version of tokio that the program tells; `None` if there are several.
    fn version(&self) -> Option<String> {
        let objects = self.context.objects.all().iter();
        let with_tasks = objects.filter(|object| self.finder.vtables.is_in(object.module));
        let versions = with_tasks.filter_map(|object| version::of_crate(self.context.target, object, NAME));
        let versions: BTreeSet<String> = versions.collect();
        if versions.is_empty() { None } else { Some(versions.into_iter().collect::<Vec<_>>().join(", ")) }
    }

    fn task(&self, read: &ReadTask, links: &waits::Links, frames: &mut FrameCache) -> Task {
        let facts = read.facts.as_ref();
        let shows = |scope| self.context.scope >= scope;
        let chain = facts.filter(|facts| shows(TaskScope::Stacks) && !facts.frames.is_empty());
        Task {
            runtime: NAME,
            id: read.id,
            kind: ThreadType::User,
            state: read.state,
            status: read.status,
            carried_by: read.carried_by,
            bound_to: read.bound_to,
            scheduler: read.scheduler,
            wait: facts.filter(|_| read.state == ThreadState::Sleep).and_then(|facts| links.wait(facts)),
            holds: facts.map(|facts| links.holds(facts)).unwrap_or_default(),
            parent: None,
            created_by: None,
            start: read.poll,
            start_function: read.name.clone(),
            labels: BTreeMap::new(),
            address: read.at,
            pc: None,
            sp: None,
            fp: None,
            stack: None,
            frames: chain.map(|facts| frames.get(facts)).unwrap_or_default(),
            frames_end: chain.map(|_| StackEnd::Start),
        }
    }

    /// The threads that poll tasks of `part`, which are those that have a pointer to one. Whoever waits for a task, or has polled
    /// it before, has a pointer to it, too: of several threads it is the only one that is seen in the code that polls it, or that
    /// polls no other one.
    fn carriers(&self, part: &[Header]) -> HashMap<RemoteAddr, Lwp> {
        let mut may_be: Vec<(RemoteAddr, BTreeSet<Lwp>)> = Vec::new();
        for task in part.iter().filter(|task| task.state.is_running()) {
            let with = self.pointers.iter().filter(|thread| thread.contains(task.at.0)).map(|thread| thread.lwp);
            let seen: Vec<(Lwp, Option<bool>)> =
                with.map(|lwp| (lwp, self.stacks.is_in(lwp, task.vtable.poll))).collect();
            let those = |wanted: Option<bool>| -> BTreeSet<Lwp> {
                seen.iter().filter(|(_, is_in)| *is_in == wanted).map(|(lwp, _)| *lwp).collect()
            };
            let polling = those(Some(true));
            may_be.push((task.at, if polling.is_empty() { those(None) } else { polling }));
        }
        let mut found = HashMap::new();
        while let Some(index) = may_be.iter().position(|(_, threads)| threads.len() == 1) {
            let (task, threads) = may_be.swap_remove(index);
            let Some(lwp) = threads.first().copied() else { continue };
            found.insert(task, lwp);
            for (_, threads) in may_be.iter_mut().filter(|(_, threads)| threads.len() > 1) {
                threads.remove(&lwp);
            }
        }
        found
    }
}

fn state_of(state: StateWord) -> (ThreadState, &'static str) {
    if state.is_running() {
        (ThreadState::Active, "running")
    } else if state.is_notified() {
        (ThreadState::Run, if state.is_cancelled() { "aborted" } else { "notified" })
    } else {
        (ThreadState::Sleep, "idle")
    }
}

/// Names of tasks that are made of a boxed future: what is in the box tells more.
#[derive(Default)]
struct BoxedNames(HashMap<usize, SharedText>);

impl BoxedNames {
    fn name(&mut self, kind: &TaskKind, facts: Option<&FutureFacts>) -> Option<SharedText> {
        let is_box = kind.name.as_deref().is_some_and(|name| {
            let name = name.strip_prefix("core::pin::Pin<").unwrap_or(name);
            name.starts_with("alloc::boxed::Box<") && name.contains("dyn ")
        });
        let Some(first) = facts.and_then(|facts| facts.frames.first()).filter(|_| is_box) else {
            return kind.name.clone();
        };
        let make = || SharedText::from(&*first.name);
        Some(self.0.entry(first.name.as_ptr().addr()).or_insert_with(make).clone())
    }
}

/// Chains of awaits that were seen: many tasks have the same.
#[derive(Default)]
struct FrameCache(HashMap<Vec<(usize, Option<u32>)>, SharedFrames>);

impl FrameCache {
    fn get(&mut self, facts: &FutureFacts) -> SharedFrames {
        // Names live as long as the types that they are of.
        let key = facts.frames.iter().map(|frame| (frame.name.as_ptr().addr(), frame.line)).collect();
        let make = || {
            let frame = |frame: &super::future::AwaitFrame| Frame {
                function: Some(frame.name.to_string()),
                file: frame.file.as_deref().map(str::to_owned),
                line: frame.line,
                evidence: crate::model::Evidence::Derived,
                ..Frame::default()
            };
            SharedFrames::from(facts.frames.iter().rev().map(frame).collect::<Vec<_>>())
        };
        self.0.entry(key).or_insert_with(make).clone()
    }
}

//! Tasks of tokio as tasks of the model.

use super::NAME;
use super::future::{FutureFacts, FutureReader};
use super::header::{Header, StateWord};
use super::lists::{Finder, FoundTasks};
use super::names::Names;
use super::roots::{self, ThreadPointers};
use super::types::{KnownType, Types};
use super::vtables::Vtables;
use super::waits;
use crate::memory::Slot;
use crate::model::{Frame, Gap, SharedFrames, SharedText, StackEnd, Task, TaskRuntimeInfo, ThreadState, ThreadType};
use crate::runtimes::tasks::{SeenTasks, TaskContext, TaskScope};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Tasks whose futures are read at one time.
const BATCH: usize = 1024;
/// What is read of one task. A larger future is read where the walk comes to.
const MAX_CELL: u64 = 16 << 10;

/// What is known of a task beyond the model.
pub(super) struct ReadTask {
    pub(super) header: Header,
    pub(super) kind: Rc<TaskKind>,
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
    let all: BTreeSet<u64> = pointers.iter().flat_map(|thread| thread.pointers.iter().copied()).collect();
    let is_over = || target.limits().is_over();
    let finder = Finder { memory: target, maps: target.maps(), vtables: &vtables, is_over: &is_over };
    let found = finder.find(&all);
    if found.tasks.is_empty() && found.torn == 0 {
        return None;
    }
    let types = Types::new(context.objects);
    let reader = Reader { context, types: &types, finder: &finder, names: Names::new(context.objects) };
    Some(reader.seen(found, &pointers))
}

struct Reader<'r> {
    context: &'r TaskContext<'r>,
    types: &'r Types<'r>,
    finder: &'r Finder<'r>,
    names: Names<'r>,
}

impl Reader<'_> {
    fn seen<'t>(mut self, found: FoundTasks, pointers: &[ThreadPointers]) -> SeenTasks<'t> {
        let mut gaps = Vec::new();
        if found.torn > 0 {
            let why = format!("{} lists of tasks changed faster than they could be followed", found.torn);
            gaps.push(Gap::whole("some tasks of tokio", why));
        }
        if found.is_cut {
            gaps.push(Gap::whole("some tasks of tokio", "there are more than one look follows"));
        }
        let schedulers: Vec<RemoteAddr> = found.schedulers.iter().map(|scheduler| scheduler.at).collect();
        let mut kinds: HashMap<u64, Rc<TaskKind>> = HashMap::new();
        let mut read: Vec<ReadTask> = Vec::with_capacity(found.tasks.len());
        let mut moving = 0;
        for part in found.tasks.chunks(BATCH) {
            self.read_part(part, &mut kinds, &mut read, &mut moving);
        }
        if !kinds.is_empty() && kinds.values().all(|kind| kind.cell.is_none()) {
            let why = "the program has no debug information about types (a build with `debug = 2` has)";
            gaps.push(Gap::whole("what tasks of tokio await, and the lines of their awaits", why));
        }
        if moving > 0 {
            let why = format!("{moving} tasks were polled while they were looked at");
            gaps.push(Gap::whole("what some tasks of tokio await", why));
        }
        let concurrency = self.workers(&kinds, &schedulers);
        let links = waits::Links::of(&read);
        let mut frames = FrameCache::default();
        let mut tasks: Vec<Task> = read.iter().map(|task| self.task(task, pointers, &links, &mut frames)).collect();
        tasks.sort_by_key(|task| task.id);
        let count = |state: ThreadState| tasks.iter().filter(|task| task.state == state).count() as u64;
        let info = TaskRuntimeInfo {
            name: NAME,
            version: None,
            concurrency,
            running: count(ThreadState::Active),
            runnable: count(ThreadState::Run),
            waiting: count(ThreadState::Sleep),
        };
        SeenTasks { info, tasks, objects: Vec::new(), gaps, code: None }
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
        let unread: Vec<RemoteAddr> =
            part.iter().zip(&second).filter(|(_, cell)| cell.is_empty()).map(|(task, _)| task.at).collect();
        let mut unread = self.finder.read_tasks(&unread).into_iter();
        let mut now = |task: &Header, cell: &[u8]| match cell.is_empty() {
            true => unread.next().flatten(),
            false => self.finder.task_of(task.at, cell),
        };
        let futures = FutureReader { types: self.types, memory: self.context.target };
        for (index, (before, kind)) in part.iter().zip(of).enumerate() {
            // A task that has ended meanwhile is none any more.
            let Some(now) = now(before, &second[index]).filter(|now| now.is_same(before) && !now.state.is_complete())
            else {
                continue;
            };
            let is_whole = first[index].len() == sizes[index] && sizes[index] > 0;
            let is_still = is_whole && first[index] == second[index] && before.state == now.state;
            *moving += usize::from(is_whole && !is_still && !now.state.is_running());
            let cell = kind.cell.as_ref().filter(|_| is_still);
            let facts = cell.and_then(|cell| futures.read(cell, before.at, &first[index]));
            read.push(ReadTask { header: now, kind, facts });
        }
    }

    fn read_cells(&self, part: &[Header], sizes: &[usize]) -> Vec<Vec<u8>> {
        let mut cells: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0; *size]).collect();
        let mut slots: Vec<Slot<'_>> = part
            .iter()
            .zip(&mut cells)
            .filter(|(_, cell)| !cell.is_empty())
            .map(|(task, cell)| Slot::new(task.at, cell))
            .collect();
        self.context.target.read_many(&mut slots);
        let whole: Vec<bool> = slots.iter().map(Slot::is_whole).collect();
        let mut whole = whole.into_iter();
        for cell in cells.iter_mut().filter(|cell| !cell.is_empty()) {
            if whole.next() != Some(true) {
                cell.clear();
            }
        }
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

    /// How many threads run tasks, where debug information tells where that is noted.
    fn workers(&self, kinds: &HashMap<u64, Rc<TaskKind>>, schedulers: &[RemoteAddr]) -> Option<u64> {
        let cells = || kinds.values().filter_map(|kind| kind.cell.as_ref());
        let remotes = cells().find_map(|cell| self.types.workers_offset(cell))?;
        let [scheduler] = schedulers else { return None };
        let count = self.context.target.read_u64(scheduler.checked_add(remotes)?).ok()?;
        (1..1 << 16).contains(&count).then_some(count)
    }

    fn task(
        &self,
        read: &ReadTask,
        pointers: &[ThreadPointers],
        links: &waits::Links,
        frames: &mut FrameCache,
    ) -> Task {
        let header = &read.header;
        let (state, status) = state_of(header.state);
        let facts = read.facts.as_ref();
        let shows = |scope| self.context.scope >= scope;
        let chain = facts.filter(|facts| shows(TaskScope::Stacks) && !facts.frames.is_empty());
        Task {
            runtime: NAME,
            id: header.id,
            kind: ThreadType::User,
            state,
            status,
            carried_by: header.state.is_running().then(|| carrier(header, pointers)).flatten(),
            bound_to: None,
            wait: facts.filter(|_| state == ThreadState::Sleep).and_then(|facts| links.wait(facts)),
            holds: facts.map(|facts| links.holds(read, facts)).unwrap_or_default(),
            parent: None,
            created_by: None,
            start: Some(header.vtable.poll),
            start_function: read.kind.name.clone(),
            labels: BTreeMap::new(),
            address: header.at,
            pc: None,
            sp: None,
            fp: None,
            stack: None,
            frames: chain.map(|facts| frames.get(facts)).unwrap_or_default(),
            frames_end: chain.map(|_| StackEnd::Start),
        }
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

/// The thread that polls a task: the only one that has a pointer to it.
fn carrier(task: &Header, pointers: &[ThreadPointers]) -> Option<Lwp> {
    let with: BTreeSet<Lwp> = pointers.iter().filter(|thread| thread.contains(task.at.0)).map(|it| it.lwp).collect();
    if with.len() == 1 { with.first().copied() } else { None }
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

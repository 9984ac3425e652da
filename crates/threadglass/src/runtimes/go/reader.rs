//! Goroutines as tasks of the model.

use super::described;
use super::follow::GoCode;
use super::goroutines::{self, Goroutine, Status};
use super::labels;
use super::locate::{self, Located};
use super::objects;
use super::program::{LayoutSource, Program};
use super::stacks::{self, StackId, Stacks, Walked};
use super::waits::{self, WaitObjects, Waiting};
use crate::by_number::{ByAddress, ByWords};
use crate::memory::read_arrays;
use crate::model::{
    Evidence, Gap, SharedFrame, SharedFrames, SharedText, StackEnd, Task, TaskRuntimeInfo, TaskWait, ThreadState,
    ThreadType,
};
use crate::runtimes::tasks::{CopiedStack, SeenTasks, TaskContext, TaskScope};
use crate::sys::clock::monotonic;
use crate::target::{Module as MappedFile, Target};
use crate::{InnerTid, Lwp, RemoteAddr};
use std::collections::BTreeMap;

/// How often goroutines that moved while their stacks were read are read again.
const ROUNDS: usize = 4;
/// What `threads` and the runtime call it.
pub(super) const GO: &str = "Go";

/// Functions that Go starts goroutines of the program with, although they are its own.
const OF_PROGRAM: [&str; 2] = ["runtime.main", "runtime.handleAsyncEvent"];

/// All goroutines of `program`.
pub(super) fn read<'t>(
    context: &TaskContext<'t>,
    program: &MappedFile,
    located: Result<Located, String>,
) -> SeenTasks<'t> {
    let (target, scope, module) = (context.target, context.scope, program.name());
    let version = located.as_ref().ok().and_then(|located| located.version.clone());
    let info = TaskRuntimeInfo {
        name: GO,
        version,
        concurrency: None,
        schedulers: Vec::new(),
        running: 0,
        runnable: 0,
        waiting: 0,
    };
    let learned = located.and_then(|located| {
        let described = || described::layout(context.objects, program, located.release);
        Program::learn(target, &located, described)
    });
    match learned {
        Ok(program) => {
            let seen = Reader::new(target, &program, module).read(info, scope);
            if scope < TaskScope::Held {
                return seen;
            }
            SeenTasks { code: Some(Box::new(GoCode::new(program))), ..seen }
        }
        Err(why) => {
            let gaps = vec![Gap::whole("goroutines", why)];
            SeenTasks { info, tasks: Vec::new(), objects: Vec::new(), gaps, executors: None, code: None }
        }
    }
}

/// The stacks of goroutines that ran when they were copied. One that has another stack since, or ran on that of its thread, has none.
pub(super) fn running(
    context: &TaskContext<'_>,
    copied: &[CopiedStack],
) -> Option<Vec<Option<(SharedFrames, StackEnd)>>> {
    let target = context.target;
    if !copied.iter().any(|stack| stack.runtime == GO) {
        return None;
    }
    let file = locate::program(target)?;
    let located = locate::locate(target, file)?.ok()?;
    let described = || described::layout(context.objects, file, located.release);
    let program = Program::learn(target, &located, described).ok()?;
    let mut stacks = Stacks::of_running(target, &program.functions, Some(file.name()));
    let mut walk = |copied: &CopiedStack| {
        let is_it = |it: &Goroutine| it.id == copied.id && it.low < copied.sp.0 && copied.sp.0 < it.high;
        let now = goroutines::read(target, &program.layout, &[copied.address.0]).pop().filter(is_it)?;
        let stood = Goroutine { pc: copied.pc.0, sp: copied.sp.0, ..now };
        match stacks.walk_bytes(&stood, &copied.bytes) {
            Walked::Whole(stack) => Some((stacks.frames(stack), StackEnd::Start)),
            Walked::Deep(stack) => Some((stacks.frames(stack), StackEnd::Limit)),
            Walked::Torn | Walked::Short => None,
        }
    };
    Some(copied.iter().map(&mut walk).collect())
}

/// Whether nobody can end a wait: for no channel at all, or a select in which each channel is none. Of those only its own list of
/// channels tells.
fn waits_for_ever(reason: &str, waiting: u64) -> bool {
    reason.contains("nil chan") || reason.contains("no cases") || reason == "select" && waiting == 0
}

struct Reader<'a> {
    target: &'a dyn Target,
    program: &'a Program<'a>,
    module: String,
    stacks: Stacks<'a>,
    starts: ByAddress<Option<SharedText>>,
    makers: ByAddress<Option<SharedFrame>>,
    labels: ByAddress<BTreeMap<String, String>>,
    unnamed: SharedText,
}

/// A goroutine with its stack, as far as that could be read.
struct Seen {
    goroutine: Goroutine,
    walked: Option<Walked>,
}

impl<'a> Reader<'a> {
    fn new(target: &'a dyn Target, program: &'a Program<'a>, module: String) -> Self {
        Self {
            target,
            program,
            stacks: Stacks::new(target, &program.functions, Some(module.clone())),
            module,
            starts: ByAddress::default(),
            makers: ByAddress::default(),
            labels: ByAddress::default(),
            unnamed: SharedText::from("waiting"),
        }
    }

    fn read<'t>(mut self, mut info: TaskRuntimeInfo, scope: TaskScope) -> SeenTasks<'t> {
        let program = self.program;
        let mut gaps = Vec::new();
        if program.source == LayoutSource::Calibrated {
            let version = info.version.as_deref().unwrap_or("a version of Go that is not told");
            let why =
                format!("{version} is not known: its goroutines make sense as those of go1.{}", program.layout.release);
            gaps.push(Gap::whole("offsets of this version of Go", why));
        }
        let unwalked = |goroutine| Seen { goroutine, walked: None };
        let mut seen = goroutines::read_as(self.target, &program.layout, &program.addresses, unwalked);
        match scope {
            TaskScope::List => {}
            TaskScope::Waits => {
                let waits = |it: &Seen| program.reason(&it.goroutine).is_some_and(|reason| waits::needs_stack(reason));
                self.walk(&mut seen, waits);
            }
            TaskScope::Stacks | TaskScope::Held => self.walk(&mut seen, |_| true),
        }
        let mut waits = if scope >= TaskScope::Waits { self.waits(&seen) } else { Vec::new() };
        let threads = self.threads(&seen);
        let now = self.target.identity().core.is_none().then(monotonic);
        let mut order: Vec<usize> = (0..seen.len()).collect();
        order.sort_unstable_by_key(|index| seen[*index].goroutine.id);
        let mut tasks: Vec<Task> = Vec::with_capacity(seen.len());
        for index in order {
            let mut task = self.task(&seen[index], &threads, now);
            if let Some(wait) = &mut task.wait
                && let Some(found) = waits.get_mut(index)
            {
                wait.objects = std::mem::take(&mut found.objects);
                (wait.descriptor, wait.direction) = found.polled.unzip();
            }
            tasks.push(task);
        }
        if scope < TaskScope::Stacks {
            // Only some were walked, to tell what they wait for.
            tasks.iter_mut().for_each(|task| (task.frames, task.frames_end) = Default::default());
        }
        let count = |state: ThreadState| tasks.iter().filter(|task| task.state == state).count() as u64;
        info.running = count(ThreadState::Active);
        info.runnable = count(ThreadState::Run);
        info.waiting = count(ThreadState::Sleep);
        info.concurrency = program.globals.processors.and_then(|at| self.target.read_u32(at).ok()).map(u64::from);
        info.concurrency = info.concurrency.filter(|number| (1..1 << 20).contains(number));
        let objects = objects::of(self.target, &program.layout, &tasks);
        SeenTasks { info, tasks, objects, gaps, executors: None, code: None }
    }

    /// What each waits for, in the same order.
    fn waits(&mut self, seen: &[Seen]) -> Vec<WaitObjects> {
        let program = self.program;
        let is_waiting = |it: &&Seen| it.goroutine.status.is_waiting();
        let mut frames: ByWords<StackId, SharedFrames> = ByWords::default();
        for it in seen.iter().filter(is_waiting) {
            if let Some(Walked::Whole(stack) | Walked::Deep(stack)) = it.walked {
                frames.entry(stack).or_insert_with(|| self.stacks.frames(stack));
            }
        }
        let stack = |it: &Seen| match it.walked {
            Some(Walked::Whole(stack) | Walked::Deep(stack)) => Some((stack, &**frames.get(&stack)?)),
            _ => None,
        };
        let waiting = seen.iter().map(|it| Waiting {
            is_waiting: is_waiting(&it),
            goroutine: &it.goroutine,
            reason: program.reason(&it.goroutine).map_or("", |reason| reason),
            stack: stack(it),
        });
        waits::find(program, &waiting.collect::<Vec<_>>())
    }

    /// Walks the stacks of those at rest. One that has moved meanwhile is read again.
    fn walk(&mut self, seen: &mut [Seen], is_wanted: impl Fn(&Seen) -> bool) {
        let mut left: Vec<usize> = (0..seen.len()).filter(|index| is_wanted(&seen[*index])).collect();
        for _ in 0..ROUNDS {
            left.retain(|index| seen[*index].goroutine.status.is_at_rest());
            let before: Vec<Goroutine> = left.iter().map(|index| seen[*index].goroutine).collect();
            let walked = self.stacks.walk(&before);
            let addresses: Vec<u64> = before.iter().map(|goroutine| goroutine.address).collect();
            let after = goroutines::read(self.target, &self.program.layout, &addresses);
            left = left
                .into_iter()
                .zip(before.iter().zip(walked))
                .filter(|(index, (before, walked))| {
                    let Ok(now) = after.binary_search_by_key(&before.address, |it| it.address) else { return false };
                    let now = &after[now];
                    let is_whole = matches!(walked, Walked::Whole(_) | Walked::Deep(_)) && now.is_same(before);
                    seen[*index] = Seen { goroutine: *now, walked: is_whole.then_some(*walked) };
                    !is_whole
                })
                .map(|(index, _)| index)
                .collect();
            if left.is_empty() || self.target.limits().is_over() {
                break;
            }
        }
    }

    /// The threads that run goroutines, or may run only one of them.
    fn threads(&self, seen: &[Seen]) -> ByAddress<Lwp> {
        let is_carried = |it: &Goroutine| matches!(it.status, Status::Running | Status::Syscall | Status::CopiesStack);
        let all = seen.iter().map(|seen| &seen.goroutine);
        let mut threads: Vec<u64> =
            all.flat_map(|it| [if is_carried(it) { it.m } else { 0 }, it.locked_m]).filter(|at| *at != 0).collect();
        threads.sort_unstable();
        threads.dedup();
        let at: Vec<RemoteAddr> =
            threads.iter().map(|at| RemoteAddr(*at).offset(self.program.layout.m.id as u64)).collect();
        let ids = read_arrays::<8>(self.target, &at);
        let lwp = |id: Option<[u8; 8]>| {
            let inner = i32::try_from(u64::from_le_bytes(id?)).ok().filter(|id| *id > 0)?;
            self.target.lwp_of_inner(InnerTid(inner))
        };
        threads.into_iter().zip(ids).filter_map(|(at, id)| Some((at, lwp(id)?))).collect()
    }

    fn task(&mut self, seen: &Seen, threads: &ByAddress<Lwp>, now: Option<u64>) -> Task {
        let goroutine = &seen.goroutine;
        let (state, is_carried) = match goroutine.status {
            Status::Runnable | Status::Preempted => (ThreadState::Run, false),
            Status::Running | Status::CopiesStack => (ThreadState::Active, true),
            Status::Syscall => (ThreadState::Active, true),
            Status::Waiting | Status::Leaked => (ThreadState::Sleep, false),
            Status::None | Status::Unknown => (ThreadState::Unknown, false),
        };
        let start_function = self.start(goroutine.start);
        let is_own =
            start_function.as_deref().is_some_and(|name| name.starts_with("runtime.") && !OF_PROGRAM.contains(&name));
        let (frames, frames_end) = match seen.walked {
            Some(Walked::Whole(stack)) => (self.stacks.frames(stack), Some(StackEnd::Start)),
            Some(Walked::Deep(stack)) => (self.stacks.frames(stack), Some(StackEnd::Limit)),
            _ => (SharedFrames::default(), None),
        };
        let is_still = goroutine.status.is_at_rest();
        Task {
            runtime: GO,
            id: goroutine.id,
            kind: if is_own { ThreadType::System } else { ThreadType::User },
            state,
            status: goroutine.status.word(),
            carried_by: threads.get(&goroutine.m).copied().filter(|_| is_carried),
            bound_to: threads.get(&goroutine.locked_m).copied(),
            scheduler: None,
            wait: self.wait(goroutine, now),
            holds: Vec::new(),
            parent: Some(goroutine.parent).filter(|parent| *parent != 0),
            // The first one was made before there was code of the program.
            created_by: if goroutine.id == 1 { None } else { self.maker(goroutine.made_at) },
            start: Some(RemoteAddr(goroutine.start)).filter(|start| !start.is_null()),
            start_function,
            labels: self.labels(goroutine.labels),
            address: RemoteAddr(goroutine.address),
            pc: Some(RemoteAddr(goroutine.pc)).filter(|_| is_still),
            sp: Some(RemoteAddr(goroutine.sp)).filter(|_| is_still),
            fp: Some(RemoteAddr(goroutine.fp)).filter(|fp| is_still && !fp.is_null()),
            stack: goroutine.stack(),
            frames,
            frames_end,
        }
    }

    fn wait(&self, goroutine: &Goroutine, now: Option<u64>) -> Option<TaskWait> {
        if !goroutine.status.is_waiting() {
            return None;
        }
        let reason = self.program.reason(goroutine).unwrap_or(&self.unnamed).clone();
        // The runtime notes the time only at garbage collections.
        let since = (goroutine.wait_since != 0).then_some(goroutine.wait_since);
        let since_ms = now.zip(since).and_then(|(now, since)| now.checked_sub(since)).map(|ns| ns / 1_000_000);
        let timed = &*reason == "sleep";
        let for_ever = goroutine.status == Status::Leaked || waits_for_ever(&reason, goroutine.waiting);
        Some(TaskWait { since_ms, timed, for_ever, ..TaskWait::new(reason) })
    }

    fn start(&mut self, pc: u64) -> Option<SharedText> {
        let functions = &self.program.functions;
        let name = || functions.name(&functions.at(pc)?).map(|name| SharedText::from(name.as_str()));
        self.starts.entry(pc).or_insert_with(name).clone()
    }

    /// Where a goroutine was made: the `go` statement.
    fn maker(&mut self, pc: u64) -> Option<SharedFrame> {
        let (functions, module) = (&self.program.functions, self.module.as_str());
        let frame = || {
            let frames = stacks::named(functions, Some(module), pc, pc.checked_sub(1)?, Evidence::Recorded);
            frames.into_iter().next().map(SharedFrame::from)
        };
        self.makers.entry(pc).or_insert_with(frame).clone()
    }

    fn labels(&mut self, address: u64) -> BTreeMap<String, String> {
        if address == 0 {
            return BTreeMap::new();
        }
        let read = || labels::read(self.target, address);
        self.labels.entry(address).or_insert_with(read).clone()
    }
}

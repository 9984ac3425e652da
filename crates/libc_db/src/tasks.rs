//! Tasks in the place of threads: goroutines and the like, where the process has a runtime that runs them on threads.
//!
//! Clients of handles of ours see them unless they ask for threads; a debugger sees threads unless it asks for tasks. All
//! functions tell of one look at all tasks, which is not older than [`FRESH`]: what can be told of one task alone costs as much
//! as the whole list of a usual program.

use crate::abi::{Td, TdErr, ThrAgent, ThrHandle, code};
use crate::handles::remember;
use crate::picture::open_again;
use crate::session::{Session, lock};
use crate::sessions;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadglass::look::{Look, Names, Scope, TaskScope};
use threadglass::model::{SyncObject, Task, TaskRuntimeInfo, ThreadState};
use threadglass::target::{GeneralRegisters, Target};
use threadglass::{Lwp, Pid, PthreadId, RemoteAddr};

/// For how long a look may be used.
const FRESH: Duration = Duration::from_millis(50);
/// Bits of a handle that are the task's number; those above tell of which runtime it is.
const NUMBER_BITS: u32 = 56;

/// A task by its handle: the number that its runtime has for it, and which runtime of the process that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TaskId(pub(crate) u64);

/// What a session knows of tasks.
#[derive(Default)]
pub(crate) struct Tasks {
    /// What the client wants; `None` if it has not said.
    wanted: Option<bool>,
    /// Whether the process has tasks that take the place of threads, once somebody had to know.
    are_there: Option<bool>,
    last: Option<Arc<TaskPicture>>,
    /// Names of runtimes, in the order in which they were seen.
    runtimes: Vec<&'static str>,
}

impl Tasks {
    /// Forgets the last look: something in the target was changed.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }

    /// Which of the process's runtimes that is.
    fn number_of(&mut self, runtime: &'static str) -> u64 {
        let known = self.runtimes.iter().position(|name| *name == runtime);
        known.unwrap_or_else(|| {
            self.runtimes.push(runtime);
            self.runtimes.len() - 1
        }) as u64
    }
}

/// Tasks by the objects that they have to do with.
type Relation = BTreeMap<RemoteAddr, BTreeSet<TaskId>>;

/// One look at the tasks of a process.
pub(crate) struct TaskPicture {
    scope: TaskScope,
    taken: Instant,
    tasks: BTreeMap<TaskId, Task>,
    carried: HashMap<Lwp, TaskId>,
    objects: BTreeMap<RemoteAddr, SyncObject>,
    /// Who waits for each object, and who holds it.
    waiters: Relation,
    holders: Relation,
    runtimes: Vec<TaskRuntimeInfo>,
}

impl Session {
    /// Whether handles stand for tasks.
    pub(crate) fn shows_tasks(&self) -> bool {
        let (wanted, are_there) = {
            let tasks = lock(&self.tasks);
            (tasks.wanted, tasks.are_there)
        };
        match wanted {
            Some(wanted) => wanted,
            None if self.client().is_some() => false,
            None => are_there.unwrap_or_else(|| self.has_tasks_alone()),
        }
    }

    /// Whether the process has tasks and no threads beside those that run them.
    fn has_tasks_alone(&self) -> bool {
        // Not locked meanwhile: the client's routines run.
        let live = self.live();
        let has = self.looking(live.as_deref(), |target| Ok(Look::new(target).has_tasks_alone())).unwrap_or(false);
        lock(&self.tasks).are_there = Some(has);
        has
    }

    fn has_tasks(&self) -> bool {
        self.looking(self.live().as_deref(), |target| Ok(Look::new(target).has_tasks())).unwrap_or(false)
    }

    /// A handle for a task.
    pub(crate) fn task_handle(&self, id: TaskId) -> ThrHandle {
        self.handle(PthreadId(RemoteAddr(id.0)))
    }

    /// A look that is not older than [`FRESH`], and shows as much as is asked for.
    pub(crate) fn recent_tasks(&self, scope: TaskScope) -> Td<Arc<TaskPicture>> {
        // Nothing moves in a core.
        let is_fresh = |picture: &TaskPicture| self.core().is_some() || picture.taken.elapsed() < FRESH;
        let known = lock(&self.tasks).last.clone().filter(|picture| picture.scope >= scope && is_fresh(picture));
        known.map_or_else(|| self.new_tasks(scope), Ok)
    }

    /// A new look; in a core the one that was taken.
    pub(crate) fn new_tasks(&self, scope: TaskScope) -> Td<Arc<TaskPicture>> {
        let known = lock(&self.tasks).last.clone().filter(|picture| picture.scope >= scope);
        if let Some(known) = known.filter(|_| self.core().is_some()) {
            return Ok(known);
        }
        let picture = Arc::new(TaskPicture::take(self, scope)?);
        lock(&self.tasks).last = Some(picture.clone());
        Ok(picture)
    }

    /// What `find` finds in a recent look, else in a new one: it may be of a task that was made since.
    fn find_in<T>(
        &self,
        scope: TaskScope,
        find: impl Fn(&TaskPicture) -> Option<T>,
    ) -> Td<Option<(Arc<TaskPicture>, T)>> {
        let recent = self.recent_tasks(scope)?;
        if let Some(found) = find(&recent) {
            return Ok(Some((recent, found)));
        }
        let new = self.new_tasks(scope)?;
        Ok(find(&new).map(|found| (new, found)))
    }

    /// The task `id`, as of a recent look.
    pub(crate) fn task(&self, id: TaskId) -> Td<Task> {
        self.task_in(id, TaskScope::List).map(|(_, task)| task)
    }

    /// The same, and the look.
    pub(crate) fn task_in(&self, id: TaskId, scope: TaskScope) -> Td<(Arc<TaskPicture>, Task)> {
        self.find_in(scope, |tasks| tasks.task(id).cloned())?.ok_or(TdErr::BadTh)
    }

    /// Which task has the number `number`.
    pub(crate) fn task_numbered(&self, number: u64) -> Td<TaskId> {
        if number >> NUMBER_BITS != 0 {
            return Err(TdErr::NoThr);
        }
        let find = |tasks: &TaskPicture| {
            let mut ids =
                (0..lock(&self.tasks).runtimes.len() as u64).map(|runtime| TaskId(number | runtime << NUMBER_BITS));
            ids.find(|id| tasks.task(*id).is_some())
        };
        self.find_in(TaskScope::List, find)?.map(|(_, id)| id).ok_or(TdErr::NoThr)
    }

    /// The task that runs on `lwp`.
    pub(crate) fn task_on(&self, lwp: Lwp) -> Td<TaskId> {
        self.find_in(TaskScope::List, |tasks| tasks.on(lwp))?.map(|(_, id)| id).ok_or(TdErr::NoThr)
    }
}

impl TaskPicture {
    fn take(session: &Session, scope: TaskScope) -> Td<Self> {
        let live = open_again(session)?;
        let snapshot = session.looking(live.as_deref(), |target: &dyn Target| {
            let look = Look::new(target);
            let look = match session.layout().ok().filter(|_| session.client().is_some()) {
                Some(layout) => look.with_layout(layout),
                None => look,
            };
            // Locks of libc are those of threads that carry tasks.
            let threads = if scope >= TaskScope::Waits { Scope::Held } else { Scope::Threads };
            let mut snapshot = look.take(threads, Names::None).map_err(|_| TdErr::DbErr)?;
            look.add_tasks(&mut snapshot, scope);
            Ok(snapshot)
        })?;
        let mut known = lock(&session.tasks);
        let mut tasks = BTreeMap::new();
        for task in snapshot.tasks.into_iter().filter(|task| task.id != 0 && task.id >> NUMBER_BITS == 0) {
            let id = TaskId(task.id | known.number_of(task.runtime) << NUMBER_BITS);
            tasks.entry(id).or_insert(task);
        }
        drop(known);
        let carried = tasks.iter().filter_map(|(id, task)| Some((task.carried_by?, *id))).collect();
        let objects = snapshot.objects.into_iter().map(|object| (object.address, object)).collect();
        let (waiters, holders) = (Relation::new(), Relation::new());
        let runtimes = snapshot.task_runtimes;
        let mut picture = Self { scope, taken: Instant::now(), tasks, carried, objects, waiters, holders, runtimes };
        picture.relate();
        Ok(picture)
    }

    /// Notes who waits for objects and who holds them. Objects tell of tasks by their numbers, and of threads, which may carry
    /// tasks; tasks tell of objects.
    fn relate(&mut self) {
        let by_number: HashMap<u64, TaskId> = self.tasks.iter().map(|(id, task)| (task.id, *id)).collect();
        let here = |pid: Option<Pid>, lwp: Option<Lwp>| lwp.filter(|_| pid.is_none()).and_then(|lwp| self.on(lwp));
        let (mut waiters, mut holders) = (Relation::new(), Relation::new());
        for (address, object) in &self.objects {
            let waiting = object.waiting_tasks.iter().filter_map(|waiter| by_number.get(&waiter.task).copied());
            let carried = object.waiters.iter().filter_map(|waiter| here(waiter.pid, Some(waiter.lwp)));
            waiters.entry(*address).or_default().extend(waiting.chain(carried));
            let holding = object.holding_tasks.iter().filter_map(|holder| by_number.get(&holder.task).copied());
            let carried = object.holders.iter().filter_map(|holder| here(holder.pid, holder.lwp));
            holders.entry(*address).or_default().extend(holding.chain(carried));
        }
        for (id, task) in &self.tasks {
            for waits in task.wait.iter().flat_map(|wait| &wait.objects) {
                waiters.entry(waits.address).or_default().insert(*id);
            }
            for held in &task.holds {
                holders.entry(held.address).or_default().insert(*id);
            }
        }
        (self.waiters, self.holders) = (waiters, holders);
    }

    pub(crate) fn count(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.tasks.iter().map(|(id, task)| (*id, task))
    }

    pub(crate) fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id)
    }

    /// The task that runs on `lwp`.
    pub(crate) fn on(&self, lwp: Lwp) -> Option<TaskId> {
        self.carried.get(&lwp).copied()
    }

    /// How many tasks may run at one time.
    pub(crate) fn concurrency(&self) -> Option<u64> {
        self.runtimes.iter().map(|runtime| runtime.concurrency).reduce(|a, b| Some(a?.saturating_add(b?))).flatten()
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &SyncObject> {
        self.objects.values()
    }

    pub(crate) fn object(&self, address: RemoteAddr) -> Option<&SyncObject> {
        self.objects.get(&address)
    }

    /// The tasks that wait for the object at `address`.
    pub(crate) fn waiters(&self, address: RemoteAddr) -> Vec<TaskId> {
        self.waiters.get(&address).into_iter().flatten().copied().collect()
    }

    /// The tasks that hold it.
    pub(crate) fn holders(&self, address: RemoteAddr) -> Vec<TaskId> {
        self.holders.get(&address).into_iter().flatten().copied().collect()
    }

    /// What a task holds.
    pub(crate) fn held_by(&self, id: TaskId) -> Vec<RemoteAddr> {
        let held = self.holders.iter().filter(|(_, holders)| holders.contains(&id));
        held.map(|(address, _)| *address).collect()
    }

    /// What a task waits for: the first of several.
    pub(crate) fn wait_of(&self, id: TaskId) -> Option<RemoteAddr> {
        let own = self.task(id)?.wait.as_ref().and_then(|wait| wait.objects.first()).map(|object| object.address);
        let waits = || self.waiters.iter().find(|(_, waiters)| waiters.contains(&id)).map(|(address, _)| *address);
        own.or_else(waits)
    }
}

/// Where the registers of a task are.
pub(crate) enum TaskRegisters {
    /// All of them: those of the thread that runs it.
    OnLwp(Lwp),
    /// Saved, as far as its runtime needs them: a `prgregset_t`.
    Saved(Vec<u8>),
}

/// Where the registers of `task` are. An error if its runtime saves none.
pub(crate) fn registers_of(task: &Task) -> Td<TaskRegisters> {
    match (task.carried_by, task.pc.zip(task.sp)) {
        (Some(lwp), _) => Ok(TaskRegisters::OnLwp(lwp)),
        (None, Some((pc, sp))) => Ok(TaskRegisters::Saved(GeneralRegisters::of_task(pc, sp, task.fp).bytes())),
        (None, None) if task.state == ThreadState::Active => Err(TdErr::NoLwp),
        (None, None) => Err(TdErr::NoCapab),
    }
}

/// Makes threads of tasks, or of LWPs, in all that a session tells from now on.
///
/// # Safety
///
/// `ta` may be anything: it is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn tg_show_tasks(ta: *const ThrAgent, on: c_int) -> c_int {
    let shown = (|| {
        let session = sessions::enter(ta)?;
        if on == 0 {
            session.layout()?;
        } else if !session.has_tasks() {
            return Err(TdErr::NoCapab);
        }
        lock(&session.tasks).wanted = Some(on != 0);
        Ok(())
    })();
    if let Err(error) = &shown {
        remember(match error {
            TdErr::NoCapab => "the process runs no tasks of Go or tokio that can be read: go on with its threads",
            TdErr::NoLibThread => "the process has no threads of libc: go on with its tasks",
            TdErr::BadTa => "tg_show_tasks: this is no session: make one with td_ta_new()",
            _ => "the session's process or handle is gone: make a new handle",
        });
    }
    code(shown)
}

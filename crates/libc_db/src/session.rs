//! One process under inspection, which a client holds as a `td_thragent_t`, and the functions about that.

use crate::abi::{PsProc, SyncHandle, Td, TdErr, ThrAgent, ThrHandle, code};
use crate::borrowers::Borrowers;
use crate::client::{Client, psaddr};
use crate::facts::FactCache;
use crate::handles::{self, OwnProcess, Subject};
use crate::kernel::{Kernel, can_write};
use crate::lists::Lists;
use crate::picture::{Picture, Variables};
use crate::sessions::{self, Call, Place};
use crate::stats::Statistics;
use crate::stopping::{OuterStop, StoppedByClient};
use crate::tasks::TaskId;
use std::collections::HashSet;
use std::ffi::{CString, c_char, c_int};
use std::ops::Deref;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use threadglass::act::{LiveWriter, Tracer};
use threadglass::internals::glibc::{Layout, LayoutError};
use threadglass::internals::{InspectError, Inspector};
use threadglass::look::{Look, TaskScope};
use threadglass::memory::{Memory, MemoryWrite};
use threadglass::target::{
    Core, KernelFacts, KnownProcess, Live, LwpFacts, ProcService, SYMBOLS, Service, Symbols, Target,
};
use threadglass::{InnerTid, Lwp, Pid, PthreadId, RemoteAddr};

/// Where a session's answers come from.
enum Backend {
    /// The client's `ps_*` routines.
    Client(Kernel),
    /// A process we opened ourselves.
    Own(Arc<OwnProcess>),
}

/// One process under inspection.
pub(crate) struct Session {
    ta: *mut ThrAgent,
    ph: *mut PsProc,
    backend: Backend,
    /// `None` in a program whose threads are no threads of libc's: all that there is of it are tasks.
    layout: Option<Layout>,
    pub(crate) tasks: Mutex<crate::tasks::Tasks>,
    tracer: Mutex<Option<Tracer>>,
    /// Threads that the client's own routine has suspended for us.
    stopped_by_client: Mutex<HashSet<Lwp>>,
    pub(crate) borrowers: Mutex<Borrowers>,
    pub(crate) facts: Mutex<FactCache>,
    /// Locks in variables of the process.
    pub(crate) variables: Mutex<Variables>,
    /// What was asked for of the agent inside the program.
    pub(crate) tracking: Mutex<crate::sync::stats::Tracking>,
    /// The agent that we have put into the program: it leaves when this is dropped.
    pub(crate) inside: Mutex<Option<crate::sync::stats::Inside>>,
    /// The last look at what threads wait for.
    pub(crate) picture: Mutex<Option<Arc<Picture>>>,
    pub(crate) statistics: Mutex<Statistics>,
    pub(crate) stop: Mutex<OuterStop>,
    /// What iterations go through.
    pub(crate) lists: Mutex<Lists>,
    /// The process that made it: what it holds in the target is not its child's.
    owner: u32,
}

// SAFETY: the two pointers are only compared and handed back to the client, on the thread that made
// the call; nothing is read or written through them here.
unsafe impl Send for Session {}
// SAFETY: as above; everything else is behind locks or never changes.
unsafe impl Sync for Session {}

/// Locks without caring for poison: no code of ours panics while it holds one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    fn new(ta: *mut ThrAgent, ph: *mut PsProc, backend: Backend, layout: Option<Layout>) -> Self {
        Self {
            ta,
            ph,
            backend,
            layout,
            tasks: Mutex::default(),
            tracer: Mutex::new(None),
            stopped_by_client: Mutex::default(),
            borrowers: Mutex::default(),
            facts: Mutex::default(),
            variables: Mutex::default(),
            tracking: Mutex::default(),
            inside: Mutex::default(),
            picture: Mutex::default(),
            statistics: Mutex::default(),
            stop: Mutex::default(),
            lists: Mutex::default(),
            owner: std::process::id(),
        }
    }

    /// Whether the handle it was made with has been released.
    pub(crate) fn is_released(&self) -> bool {
        matches!(&self.backend, Backend::Own(process) if process.is_released())
    }

    /// Whether it looks at `process`.
    pub(crate) fn is_of(&self, process: &Arc<OwnProcess>) -> bool {
        matches!(&self.backend, Backend::Own(own) if Arc::ptr_eq(own, process))
    }

    /// Gives up the process of its handle, in the child of a fork.
    pub(crate) fn lose_process(&self) {
        if let Backend::Own(process) = &self.backend {
            process.lose();
        }
    }

    /// Whether the process of its handle was given up.
    pub(crate) fn has_lost_process(&self) -> bool {
        matches!(&self.backend, Backend::Own(process) if process.is_lost())
    }

    /// Whether this process made it, and not one that has forked since.
    pub(crate) fn is_own(&self) -> bool {
        self.owner == std::process::id()
    }

    /// Lets go of everything it holds in the target, and of what it has read. A call that was left by longjmp keeps the session
    /// itself.
    pub(crate) fn end(&self) {
        self.end_statistics();
        let inside = lock(&self.inside).take();
        match self.is_own() {
            true => drop(inside),
            // It is at work for the parent.
            false => std::mem::forget(inside),
        }
        lock(&self.tracer).take();
        lock(&self.lists).end(Place::here());
        self.forget();
        std::mem::take(&mut *lock(&self.variables));
        if let Backend::Client(kernel) = &self.backend {
            kernel.forget();
        }
        let stopped = std::mem::take(&mut *lock(&self.stopped_by_client));
        for lwp in stopped.into_iter().filter(|_| self.is_own()) {
            self.client_continue(lwp);
        }
    }

    /// The client's routines, unless the process is our own.
    pub(crate) fn client(&self) -> Option<Client> {
        match &self.backend {
            Backend::Client(_) => Some(Client::new(self.ph)),
            Backend::Own(_) => None,
        }
    }

    /// The client's process as a target. `live` was shown to be the same.
    pub(crate) fn service<'a>(&'a self, client: Client, live: Option<&'a Live>) -> Service<'a, Client> {
        match &self.layout {
            Some(list) => Service::knowing(client, KnownProcess { live, list }),
            None => Service::new(client),
        }
    }

    /// Whether what was learned from the client's process is all there was: no routine has failed, nor does one now.
    pub(crate) fn was_whole(&self, target: &Service<'_, Client>) -> bool {
        let is_readable = |layout| Inspector { memory: target, layout, target: None }.is_initialised().is_ok();
        !target.has_failed() && self.layout.as_ref().is_none_or(is_readable)
    }

    /// What the client's registers tell of a thread.
    pub(crate) fn facts_by_registers(&self, lwp: Lwp) -> Option<LwpFacts> {
        self.service(self.client()?, None).facts(&[lwp]).pop()?
    }

    /// What the kernel told of a thread, and where it really is if its tracer stopped it at the end of a call.
    pub(crate) fn seen_through_stop(&self, mut facts: LwpFacts) -> LwpFacts {
        if let Some(client) = self.client() {
            self.service(client, None).look_through_stop(&mut facts);
        }
        facts
    }

    /// The live process, where it is known to be one.
    pub(crate) fn live(&self) -> Option<LiveRef<'_>> {
        match &self.backend {
            Backend::Client(kernel) => kernel.live(Client::new(self.ph), self.layout().ok()?).map(LiveRef::Shared),
            Backend::Own(process) => match &process.subject {
                Subject::Live(live) => Some(LiveRef::Own(live)),
                Subject::Core(_) => None,
            },
        }
    }

    /// The live process, to be acted upon. A client's core in which nothing has moved since looks like its process, but
    /// cannot be written.
    pub(crate) fn live_to_act(&self) -> Option<LiveRef<'_>> {
        let live = self.live()?;
        self.client().is_none_or(|client| can_write(client, &live)).then_some(live)
    }

    /// The core file, where the handle is one of ours for a core.
    pub(crate) fn core(&self) -> Option<&Core> {
        match &self.backend {
            Backend::Own(process) => match &process.subject {
                Subject::Core(core) => Some(core),
                Subject::Live(_) => None,
            },
            Backend::Client(_) => None,
        }
    }

    /// The client's handle, to be passed back to its routines.
    pub(crate) fn ph(&self) -> *mut PsProc {
        self.ph
    }

    /// Where things are in its memory.
    pub(crate) fn layout(&self) -> Td<&Layout> {
        self.layout.as_ref().ok_or(TdErr::NoLibThread)
    }

    /// Runs `look` with the process's memory, its layout and (where known for sure) the process itself.
    pub(crate) fn inspect<R>(&self, look: impl FnOnce(&Inspector<'_>) -> Td<R>) -> Td<R> {
        let layout = self.layout()?;
        match &self.backend {
            Backend::Client(_) => {
                let live = self.live();
                let service = self.service(Client::new(self.ph), live.as_deref());
                let target = live.as_deref().map(|live| live as &dyn Target);
                look(&Inspector { memory: &service, layout, target })
            }
            Backend::Own(process) => {
                let target = process.target();
                look(&Inspector { memory: target, layout, target: Some(target) })
            }
        }
    }

    /// Whether the process has set up its threads.
    pub(crate) fn is_initialised(&self) -> Td<bool> {
        self.inspect(|inspector| inspector.is_initialised().map_err(|_| TdErr::DbErr))
    }

    /// Whether there is memory at `address`.
    pub(crate) fn has_memory(&self, address: RemoteAddr) -> bool {
        match &self.backend {
            Backend::Client(_) => self.service(Client::new(self.ph), None).read_u32(address).is_ok(),
            Backend::Own(process) => process.target().read_u32(address).is_ok(),
        }
    }

    /// Runs `act` with memory that can be written; a core's cannot.
    pub(crate) fn writing<R>(&self, act: impl FnOnce(&dyn MemoryWrite) -> Result<R, TdErr>) -> Td<R> {
        match &self.backend {
            Backend::Client(_) => act(&Service::new(Client::new(self.ph))),
            Backend::Own(process) => match &process.subject {
                Subject::Live(live) => act(&LiveWriter(live)),
                Subject::Core(_) => Err(TdErr::DbErr),
            },
        }
    }

    /// Runs `act` with the tracer of the live process.
    pub(crate) fn tracing<R>(&self, pid: Pid, act: impl FnOnce(&Tracer) -> R) -> R {
        act(lock(&self.tracer).get_or_insert_with(|| Tracer::new(pid)))
    }

    /// Whether we hold this thread suspended.
    pub(crate) fn has_suspended(&self, lwp: Lwp) -> bool {
        lock(&self.stopped_by_client).contains(&lwp)
            || lock(&self.tracer).as_ref().is_some_and(|tracer| tracer.is_suspended(lwp))
    }

    /// The set of threads that the client's own routine suspended for us.
    pub(crate) fn stopped_by_client(&self) -> MutexGuard<'_, HashSet<Lwp>> {
        lock(&self.stopped_by_client)
    }

    /// A handle for thread `id`.
    pub(crate) fn handle(&self, id: PthreadId) -> ThrHandle {
        ThrHandle { th_ta_p: self.ta, th_unique: psaddr(id.0) }
    }

    /// A handle for the synchronization object at `address`.
    pub(crate) fn sync_handle(&self, address: RemoteAddr) -> SyncHandle {
        SyncHandle { sh_ta_p: self.ta, sh_unique: psaddr(address) }
    }

    /// The handle that stands for the main thread before threads are set up.
    pub(crate) fn early_handle(&self) -> ThrHandle {
        self.handle(PthreadId(RemoteAddr::NULL))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Option<i32> {
        match &self.backend {
            Backend::Client(_) => Client::new(self.ph).pid().map(|pid| pid.0),
            Backend::Own(process) => Some(process.target().pid().0),
        }
    }

    /// Number of its threads, those that wait to be joined included.
    pub(crate) fn count_threads(&self) -> Td<c_int> {
        let count = match self.shows_tasks() {
            true => self.new_tasks(TaskScope::List)?.count(),
            false => self.inspect(|inspector| match inspector.is_initialised() {
                Ok(true) => inspector.list().map(|threads| threads.len()).map_err(look_error),
                Ok(false) => Ok(1),
                Err(_) => Err(TdErr::DbErr),
            })?,
        };
        Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
    }
}

/// A live process: that of a handle of ours, or the one behind a client's.
pub(crate) enum LiveRef<'a> {
    Own(&'a Live),
    Shared(Arc<Live>),
}

impl Deref for LiveRef<'_> {
    type Target = Live;

    fn deref(&self) -> &Live {
        match self {
            Self::Own(live) => live,
            Self::Shared(live) => live,
        }
    }
}

/// The error of a failed look.
pub(crate) fn look_error(error: InspectError) -> TdErr {
    match error {
        InspectError::NotAThread(_) => TdErr::BadTh,
        InspectError::List(_) => TdErr::Err,
        InspectError::Read(_) => TdErr::DbErr,
    }
}

/// Gate for handles of threads, in functions that mean nothing for a task: not NULL, of a known session, and not the early
/// main thread.
///
/// # Safety
///
/// `th` is NULL or points to a handle.
pub(crate) unsafe fn thread(th: *const ThrHandle) -> Td<(Call, PthreadId)> {
    // SAFETY: by the caller's promise.
    match unsafe { thread_or_early(th) }? {
        (call, Some(id)) => Ok((call, id)),
        (_, None) => Err(TdErr::BadTh),
    }
}

/// [`thread`], with `None` for the main thread of a program that has not set up its threads.
///
/// # Safety
///
/// `th` is NULL or points to a handle.
pub(crate) unsafe fn thread_or_early(th: *const ThrHandle) -> Td<(Call, Option<PthreadId>)> {
    // SAFETY: by the caller's promise.
    match unsafe { thread_or_task(th) }? {
        (call, Who::Early) => Ok((call, None)),
        (call, Who::Thread(id)) => Ok((call, Some(id))),
        (call, Who::Task(task)) => Err(call.task(task).map_or_else(|error| error, |_| TdErr::NoCapab)),
    }
}

/// What a handle of a thread stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The main thread of a program that has not set up its threads.
    Early,
    Thread(PthreadId),
    Task(TaskId),
}

/// Gate for handles of threads, in functions that tell of tasks too: not NULL, of a known session.
///
/// # Safety
///
/// `th` is NULL or points to a handle.
pub(crate) unsafe fn thread_or_task(th: *const ThrHandle) -> Td<(Call, Who)> {
    if th.is_null() {
        return Err(TdErr::BadTh);
    }
    // SAFETY: not NULL, so a handle by the caller's promise.
    let handle = unsafe { th.read() };
    let call = sessions::enter(handle.th_ta_p)?;
    let id = RemoteAddr(handle.th_unique.addr() as u64);
    let who = match call.shows_tasks() {
        true if id.is_null() => return Err(TdErr::BadTh),
        true => Who::Task(TaskId(id.0)),
        false if id.is_null() => Who::Early,
        false => Who::Thread(PthreadId(id)),
    };
    Ok((call, who))
}

/// Prepares the library. Nothing to do: may be called often, or never.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn td_init() -> c_int {
    0
}

/// Does nothing, as ever.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn td_log() -> c_int {
    0
}

/// Every symbol the library may ask for, ended by NULL.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn td_symbol_list() -> *const *const c_char {
    struct List(Vec<*const c_char>);
    // SAFETY: the pointers lead to strings that are never changed or freed.
    unsafe impl Send for List {}
    // SAFETY: as above.
    unsafe impl Sync for List {}
    static LIST: OnceLock<List> = OnceLock::new();
    LIST.get_or_init(|| {
        let names = SYMBOLS.iter().filter_map(|name| CString::new(*name).ok());
        List(names.map(|name| name.into_raw().cast_const()).chain([ptr::null()]).collect())
    })
    .0
    .as_ptr()
}

/// Makes a session.
///
/// # Safety
///
/// `ph` is NULL, a handle of the client's, or one from a `tg_` function; `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_new(ph: *mut PsProc, out: *mut *mut ThrAgent) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(ptr::null_mut()) };
        if ph.is_null() {
            return Err(TdErr::BadPh);
        }
        let ta = match handles::find(ph) {
            Some(process) => {
                let process = process?;
                process.beginning(|| new_own(ph, process.clone()))?
            }
            None => new_client(ph)?,
        };
        // SAFETY: as above.
        unsafe { out.write(ta) };
        Ok(())
    })())
}

fn new_own(ph: *mut PsProc, process: Arc<OwnProcess>) -> Td<*mut ThrAgent> {
    let target = process.target();
    // It may have ended, or run another program by now.
    target.check_identity().map_err(|_| TdErr::BadPh)?;
    let lwps = target.lwps().map_err(|_| TdErr::BadPh)?;
    // A few threads are enough to check the layout against.
    let facts = target.facts(&lwps[..lwps.len().min(16)]);
    let hints: Vec<_> = facts.into_iter().flatten().filter_map(|facts| facts.hint()).collect();
    let layout = match Layout::discover(target, target, &hints) {
        Ok(layout) => Some(layout),
        Err(LayoutError::NoGlibc) if Look::new(target).has_tasks_alone() => None,
        Err(error) => return Err(layout_error(error)),
    };
    Ok(sessions::register(|ta| Session::new(ta, ph, Backend::Own(process), layout)))
}

fn new_client(ph: *mut PsProc) -> Td<*mut ThrAgent> {
    let client = Client::new(ph);
    let stopped = StoppedByClient::stop(client)?;
    // Debuggers try this long before libc is mapped, and must be told quietly.
    let target = Service::new(client);
    let version = target.address_of("__nptl_version").or_else(|| target.address_of("nptl_version"));
    let version = version.ok_or(TdErr::NoLibThread)?;
    target.read_u32(version).map_err(|_| TdErr::DbErr)?;
    // What is learned once and kept must not be learned from half an answer.
    let target = Service::new(client);
    let layout = Layout::discover(&target, &target, &[]);
    let incomplete = match &layout {
        Ok(layout) => !layout.is_complete(),
        Err(error) => matches!(error, LayoutError::Implausible(_)),
    };
    if target.has_failed_to_read() || target.has_failed_to_look_up() && incomplete {
        return Err(TdErr::DbErr);
    }
    let layout = layout.map_err(layout_error)?;
    drop(stopped);
    Ok(sessions::register(|ta| Session::new(ta, ph, Backend::Client(Kernel::default()), Some(layout))))
}

fn layout_error(error: LayoutError) -> TdErr {
    match error {
        LayoutError::NoGlibc => TdErr::NoLibThread,
        LayoutError::Implausible(_) => TdErr::Version,
    }
}

/// Ends a session.
///
/// # Safety
///
/// `ta` may be anything: it is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_delete(ta: *mut ThrAgent) -> c_int {
    if let Ok(session) = sessions::enter(ta)
        && session.is_own()
    {
        crate::sync::stats::end(&session);
    }
    code(sessions::delete(ta))
}

/// The handle a session was made with.
///
/// # Safety
///
/// `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_get_ph(ta: *const ThrAgent, out: *mut *mut PsProc) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        let session = sessions::enter(ta)?;
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(session.ph) };
        Ok(())
    })())
}

/// A wish for a number of LWPs: every thread has its own, so there is nothing to do.
///
/// # Safety
///
/// `ta` may be anything: it is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_setconcurrency(ta: *const ThrAgent, _level: c_int) -> c_int {
    code(sessions::enter(ta).map(drop))
}

/// Number of threads, those that wait to be joined included.
///
/// # Safety
///
/// `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_get_nthreads(ta: *const ThrAgent, out: *mut c_int) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        let count = sessions::enter(ta)?.count_threads()?;
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(count) };
        Ok(())
    })())
}

/// An LWP as the target itself sees it, for comparing with what its memory holds.
pub(crate) fn inner_of(target: Option<&dyn Target>, lwp: Lwp) -> InnerTid {
    let translated = target
        .filter(|target| target.is_namespaced())
        .and_then(|target| target.facts(&[lwp]).pop().flatten())
        .map(|facts| facts.inner);
    translated.unwrap_or(InnerTid(lwp.0))
}

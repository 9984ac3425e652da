//! A live process, looked at without stopping it.

mod elsewhere;
mod facts;
mod idle;
mod iterator;
mod kept;
mod memory;
mod modules;
#[cfg(feature = "profile")]
mod own_files;
mod pulse;
mod wakers;

pub(crate) use iterator::calls_of_all;
pub use kept::KeptFacts;
pub(crate) use pulse::{ProcessPulse, ThreadPulse, name_and_start, pulse};

use super::module::{Module, group};
use super::symbols::GlibcSymbols;
use super::{Identity, Symbols, Target, TargetError, room_in};
use crate::elf::{Image, build_id_of_file};
use crate::limits::Limits;
use crate::proc::{
    AuxVector, MapEntry, StackLimit, Stat, Status, parse_auxv, parse_maps, parse_stack_limit, parse_stat, parse_status,
};
use crate::sys::{address_space, file};
use crate::target::Denial;
use crate::{InnerTid, Lwp, Pid, RemoteAddr};
use facts::TaskReader;
use memory::LiveMemory;
use nix::errno::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

/// How much of a command line is read.
const MAX_COMMAND: u64 = 4096;

/// A live process. Opening and reading it issues no ptrace, signal or write of any kind.
#[derive(Debug)]
pub struct Live {
    pid: Pid,
    /// Pins the identity: once the process has ended, lookups through this answer ESRCH even when
    /// the number is in use again.
    proc_dir: OwnedFd,
    task_dir: OwnedFd,
    /// The thread whose `/proc` files tell of the address space: the leader, or another one when
    /// the leader has ended (main called `pthread_exit`).
    witness: Lwp,
    leader: Stat,
    /// Read when it is asked for where many processes are opened: the kernel takes long to write it.
    status: OnceLock<Status>,
    memory: LiveMemory,
    maps: OnceLock<Vec<MapEntry>>,
    modules: OnceLock<Vec<Module>>,
    /// Ids of a target in a pid namespace of its own, as far as they were asked for.
    inner_ids: Mutex<HashMap<InnerTid, Lwp>>,
    symbols: OnceLock<GlibcSymbols>,
    /// `None` inside where it cannot be used.
    iterator: OnceLock<Option<iterator::TaskIterator>>,
    limits: Limits,
    /// For who looks again and again.
    kept: Option<KeptFacts>,
}

impl Live {
    /// The same process for who looks at it again and again: facts of threads that have not run since the last look are taken from
    /// `kept`. Others cannot have changed, but for what others change of a thread that sleeps: that is seen some seconds later.
    pub fn keeping(self, kept: &KeptFacts) -> Self {
        Self { kept: Some(kept.clone()), ..self }
    }

    /// The same process on the budget of others that are looked at together with it.
    pub fn with_limits(self, limits: &Limits) -> Self {
        Self { limits: limits.clone(), ..self }
    }

    /// Opens process `pid` for looking.
    ///
    /// Succeeds for processes of other users too; what they withhold is then missing, and
    /// [`Live::denial`] says why.
    pub fn open(pid: Pid) -> Result<Self, TargetError> {
        let live = Self::open_listed(pid)?;
        // A thread has such a directory, too; only `/proc` itself does not list it.
        match live.leader_status().tgid {
            Some(tgid) if tgid != pid => Err(TargetError::IsThread { tid: pid.0, pid: tgid }),
            _ => Ok(live),
        }
    }

    /// Opens a process that `/proc` lists.
    pub(crate) fn open_listed(pid: Pid) -> Result<Self, TargetError> {
        let gone = |errno, what: &str| match errno {
            Errno::ENOENT | Errno::ESRCH | Errno::ENOTDIR => TargetError::NoSuchProcess(pid),
            errno => TargetError::Proc { what: format!("/proc/{pid}{what}"), errno },
        };
        if pid.0 <= 0 {
            return Err(TargetError::NoSuchProcess(pid));
        }
        let proc_dir = file::open_dir(format!("/proc/{pid}").as_ref()).map_err(|e| gone(e, ""))?;
        let task_dir = file::open_dir_at(&proc_dir, c"task").map_err(|e| gone(e, "/task"))?;
        // The leader's own files: those of the process would add up its threads, which takes
        // milliseconds when there are thousands.
        let mut reader = TaskReader::new(&task_dir);
        let stat = reader.read(pid.leader(), "stat").map_err(|e| gone(e, "/stat"))?;
        let leader = parse_stat(stat).ok_or(TargetError::NoSuchProcess(pid))?;
        if leader.is_kernel_thread() {
            return Err(TargetError::KernelThread(pid));
        }
        let witness = match leader.state.has_ended() {
            false => pid.leader(),
            // The other threads carry on: any of them can tell of the address space.
            true => {
                let mut others = list_tasks(&task_dir).unwrap_or_default().into_iter();
                others.find(|lwp| *lwp != pid.leader()).ok_or(TargetError::Zombie(pid, leader.parent))?
            }
        };
        Ok(Self {
            pid,
            witness,
            memory: LiveMemory::open(witness, &task_dir),
            proc_dir,
            task_dir,
            leader,
            status: OnceLock::new(),
            maps: OnceLock::new(),
            modules: OnceLock::new(),
            inner_ids: Mutex::default(),
            symbols: OnceLock::new(),
            iterator: OnceLock::new(),
            limits: Limits::default(),
            kept: None,
        })
    }

    /// Its pid.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The thread through which the address space is reached.
    pub(crate) fn witness(&self) -> Lwp {
        self.witness
    }

    /// The leader's `stat` at the time of opening.
    pub fn leader_stat(&self) -> &Stat {
        &self.leader
    }

    /// The leader's `status` at the time of opening.
    pub fn leader_status(&self) -> &Status {
        self.status.get_or_init(|| {
            let status = self.reader().read(self.pid.leader(), "status").ok().and_then(parse_status);
            // One that has ended by now.
            status.unwrap_or(Status { namespaces: 1, ..Status::default() })
        })
    }

    /// Whether `lwp`, which may be of another process (`clone` with CLONE_VM alone), runs in its address space. `None`
    /// where the kernel does not tell.
    pub fn shares_memory_with(&self, lwp: Lwp) -> Option<bool> {
        address_space::is_shared(self.witness, lwp)
    }

    /// Why its memory may not be read, or `None` when it may.
    pub fn denial(&self) -> Option<Denial> {
        self.memory.errno().map(|errno| Denial::explain(self, errno))
    }

    /// Its auxiliary vector.
    pub fn auxv(&self) -> Option<AuxVector> {
        self.read_stream("auxv").ok().map(|bytes| parse_auxv(&bytes))
    }

    /// Whether the address space that was opened still has a user: false after an exec or the end of
    /// the process. Cheaper than [`Live::check_identity`].
    pub fn is_same_image(&self) -> bool {
        self.memory.errno().is_none() && !self.memory.is_abandoned()
    }

    /// Whether it still is the process, and the program, that was opened.
    pub fn check_identity(&self) -> Result<(), TargetError> {
        let now = self.leader_now().ok_or(TargetError::Exited(self.pid))?;
        if now.state.has_ended()
            && !self.leader.state.has_ended()
            && list_tasks(&self.task_dir).is_ok_and(|t| t.len() <= 1)
        {
            return Err(TargetError::Exited(self.pid));
        }
        if self.memory.is_abandoned() {
            // An exec replaces the address space; an end drops it too, a moment before the process is gone.
            let execed = self.leader_now().is_some_and(|now| !now.is_exiting());
            return Err(if execed { TargetError::Execed(self.pid) } else { TargetError::Exited(self.pid) });
        }
        Ok(())
    }

    /// Whether it has ended, or is about to: what fails then fails because of that. Looks again for a moment, since threads
    /// that are killed go one after the other.
    pub fn has_ended(&self) -> bool {
        (0..5).any(|again| {
            std::thread::sleep(std::time::Duration::from_millis(again));
            match self.check_identity() {
                Err(error) => matches!(error, TargetError::Exited(_)),
                Ok(()) => self.is_ending(),
            }
        })
    }

    /// Whether none of its threads will return from the kernel.
    fn is_ending(&self) -> bool {
        const KILL: u64 = 1 << (libc::SIGKILL - 1);
        let mut reader = self.reader();
        let threads = list_tasks(&self.task_dir).unwrap_or_default();
        threads.into_iter().all(|lwp| {
            let is_killed = |status: Status| (status.pending.0 | status.shared_pending.0) & KILL != 0;
            let is_exiting = reader.stat(lwp).is_none_or(|stat| stat.is_exiting());
            is_exiting || reader.read(lwp, "status").ok().and_then(parse_status).is_none_or(is_killed)
        })
    }

    /// An error of something that was done with it, or that it has ended: then that is the reason.
    pub fn or_ended<T, E: From<TargetError>>(&self, result: Result<T, E>) -> Result<T, E> {
        result.map_err(|error| if self.has_ended() { TargetError::Exited(self.pid).into() } else { error })
    }

    fn leader_now(&self) -> Option<Stat> {
        self.reader().stat(self.pid.leader())
    }

    /// A handle of its own on the directory of its threads, which outlives this one.
    pub(crate) fn task_dir_handle(&self) -> Result<OwnedFd, Errno> {
        let copy = self.task_dir.try_clone();
        copy.map_err(|error| error.raw_os_error().map_or(Errno::EMFILE, Errno::from_raw))
    }

    /// One of the files that tell of the address space.
    fn read_stream(&self, name: &str) -> Result<Vec<u8>, Errno> {
        file::read_stream(&self.task_dir, &task_file(self.witness, name))
    }
}

impl Symbols for Live {
    fn address_of(&self, name: &str) -> Option<RemoteAddr> {
        self.symbols.get_or_init(|| GlibcSymbols::load(self)).address_of(name)
    }
}

impl Live {
    /// The beginning of the command line.
    fn command_line(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Ok(file) = file::open_at(&self.task_dir, &task_file(self.witness, "cmdline")) {
            // What was read before an error is as good as all.
            let _ = file.take(MAX_COMMAND).read_to_end(&mut text);
        }
        text
    }
}

impl Target for Live {
    fn pid(&self) -> Pid {
        self.pid
    }

    fn identity(&self) -> Identity {
        let exe = std::fs::read_link(format!("/proc/{}/exe", self.witness)).ok();
        Identity {
            name: String::from_utf8_lossy(&self.leader.comm).into_owned(),
            exe: exe.map(|path| path.to_string_lossy().into_owned()),
            uid: self.leader_status().uid(),
            in_pid_namespace: self.leader_status().namespaces > 1,
            shared_pending: Some(self.leader_status().shared_pending),
            tracer: Some(self.leader_status().tracer).filter(|tracer| *tracer != 0),
            core: None,
        }
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn denial(&self) -> Option<Denial> {
        Self::denial(self)
    }

    fn check_identity(&self) -> Result<(), TargetError> {
        Self::check_identity(self)
    }

    fn maps(&self) -> &[MapEntry] {
        self.maps.get_or_init(|| self.read_stream("maps").map(|bytes| parse_maps(&bytes).0).unwrap_or_default())
    }

    fn room_below(&self, addr: RemoteAddr, top: RemoteAddr, size: u64) -> Option<(RemoteAddr, u64)> {
        self.query_room(addr, top, size).or_else(|| room_in(self.maps(), addr, top, size))
    }

    fn modules(&self) -> &[Module] {
        self.modules.get_or_init(|| {
            let mut modules = self.file_mappings().map_or_else(|| group(self.maps()), |maps| group(&maps));
            if let Some(program) = modules.iter_mut().find(|module| self.is_program(module)) {
                program.note_start(&self.leader.comm, || self.command_line());
            }
            modules
        })
    }

    /// The one that holds the entry point. The name would not do: it changes when the file is deleted
    /// or replaced.
    fn is_program(&self, module: &Module) -> bool {
        self.auxv().and_then(|aux| aux.entry).is_some_and(|entry| module.contains(entry))
    }

    /// Opens the very file that is mapped as `module`, from wherever the target lives and whatever
    /// has become of the path since. `None` when none can be shown to be that file.
    fn open_module(&self, module: &Module) -> Option<File> {
        // The kernel's own handle on the mapped file: right by construction, but needs privilege.
        let link = format!("map_files/{:x}-{:x}", module.first.0.0, module.first.1.0);
        if let Ok(file) = file::open_regular_link(&self.proc_dir, &CString::new(link).ok()?) {
            return Some(file);
        }
        let exe = task_file(self.witness, "exe");
        if self.is_program(module)
            && let Ok(file) = file::open_regular_link(&self.task_dir, &exe)
        {
            return Some(file);
        }
        // By path below the target's root: another file may stand there by now.
        let root = file::open_dir(Path::new(&format!("/proc/{}/root", self.witness))).ok()?;
        let file = file::open_regular_below(&root, &module.path).ok()?;
        let in_memory = Image::load(self, module.base).ok()?.build_id(self);
        let same = match (in_memory, build_id_of_file(&file)) {
            (Some(memory), Some(disk)) => memory == disk,
            _ => std::os::unix::fs::MetadataExt::ino(&file.metadata().ok()?) == module.inode,
        };
        same.then_some(file)
    }

    fn stack_limit(&self) -> Option<StackLimit> {
        parse_stack_limit(&self.read_stream("limits").ok()?)
    }

    fn is_namespaced(&self) -> bool {
        self.leader_status().namespaces > 1
    }

    fn lwp_of_inner(&self, inner: InnerTid) -> Option<Lwp> {
        if self.is_namespaced() { self.search_inner(inner) } else { Some(Lwp(inner.0)) }
    }

    fn other(&self, pid: Pid) -> Option<Box<dyn Target>> {
        // What is read of it is part of the same look.
        Some(Box::new(Self::open(pid).ok()?.with_limits(&self.limits)))
    }

    fn gives_facts_in_bulk(&self) -> bool {
        self.has_worthwhile_iterator()
    }

    fn initial_stack(&self) -> Option<RemoteAddr> {
        Some(RemoteAddr(self.leader.start_stack)).filter(|addr| !addr.is_null())
    }
}

/// Name, relative to the task directory, of a file of one thread.
fn task_file(lwp: Lwp, name: &str) -> CString {
    CString::new(format!("{lwp}/{name}")).unwrap_or_default()
}

fn list_tasks(task_dir: &OwnedFd) -> Result<Vec<Lwp>, Errno> {
    file::list_numbers(task_dir).map(|numbers| numbers.into_iter().map(Lwp).collect())
}

//! A core file: what a process was when it died, or when a debugger wrote it down.
//!
//! A core has the threads' registers (notes) and the memory that differs from files (segments). Code and
//! constants are not in it; they come from the files that the process had mapped, if those are the same
//! still. So memory is two layers, the core's bytes over the files':
//!
//! ```text
//!   libc.so.6    headers   code    constants  relocated  data     heap
//!   segments     [page]                       [======]   [======] [=====]
//!   files        [================================]
//!                          ^ read here only where the core has nothing, never from writable parts
//! ```
//!
//! A byte that neither layer has is unreadable, not zero.

mod error;
mod facts;
mod files;
mod header;
mod maps;
mod notes;
mod records;
mod segments;
mod source;

pub use error::{CoreError, CoreFault};

use super::module::{Module, group};
use super::symbols::GlibcSymbols;
use super::{Identity, Symbols, Target};
use crate::arch::GeneralRegisters;
use crate::limits::Limits;
use crate::memory::{Memory, ReadError, read_pieces};
use crate::model::{CoreInfo, CoreWriter, Gap, signal_name};
use crate::proc::{MapEntry, StackLimit};
use crate::sys::file::reopen;
use crate::{Lwp, Pid, RemoteAddr};
use files::ModuleFiles;
use header::{Headers, MAX_OF_CORE};
use nix::fcntl::OFlag;
use notes::Notes;
use records::FileMapping;
use segments::Segments;
use source::ByteSource;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where to find what a core leaves out.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// The program, if it is not where it was.
    pub exe: Option<PathBuf>,
    /// A directory that stands for the process's root directory.
    pub sysroot: Option<PathBuf>,
    /// Whether the files that the core names may be opened.
    pub use_files: bool,
}

impl Default for CoreOptions {
    fn default() -> Self {
        Self { exe: None, sysroot: None, use_files: true }
    }
}

/// Bytes of one thread's registers: vector and matrix registers have eleven thousand.
const MAX_REGISTERS: u64 = 1 << 20;

/// A core file.
pub struct Core {
    path: PathBuf,
    options: CoreOptions,
    pid: Pid,
    headers_missing: u64,
    segments: Segments,
    notes: Notes,
    maps: OnceLock<Vec<MapEntry>>,
    modules: OnceLock<Vec<Module>>,
    files: OnceLock<ModuleFiles>,
    symbols: OnceLock<GlibcSymbols>,
    limits: Limits,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("path", &self.path).field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// Opens a regular file, without being held up by a FIFO, and without opening a device, which may do something.
fn open_regular(path: &Path) -> Result<File, CoreFault> {
    let handle = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).map_err(CoreFault::from_io)?;
    match handle.metadata().map_err(CoreFault::from_io)?.file_type() {
        kind if kind.is_file() => reopen(&handle, OFlag::O_RDONLY).map_err(|errno| CoreFault::from_io(errno.into())),
        kind if kind.is_dir() => Err(CoreFault::NotAFile("a directory")),
        kind if kind.is_fifo() => Err(CoreFault::NotAFile("a pipe")),
        _ => Err(CoreFault::NotAFile("a device")),
    }
}

impl Core {
    /// Opens the core file at `path`. One that is damaged opens too, if any thread is left in it;
    /// [`Target::losses`] says what is missing.
    pub fn open(path: &Path, options: CoreOptions) -> Result<Self, CoreError> {
        let failed = |fault| CoreError { path: path.to_owned(), fault };
        let check = |given: &Option<PathBuf>, is_right: fn(&Path) -> Result<(), CoreFault>| match given {
            Some(given) => is_right(given).map_err(|fault| CoreError { path: given.clone(), fault }),
            None => Ok(()),
        };
        check(&options.exe, |path| open_regular(path).map(drop))?;
        check(&options.sysroot, |path| match std::fs::metadata(path) {
            Ok(data) if data.is_dir() => Ok(()),
            Ok(_) => Err(CoreFault::Io(std::io::ErrorKind::NotADirectory.into())),
            Err(error) => Err(CoreFault::from_io(error)),
        })?;
        let file = open_regular(path).map_err(failed)?;
        Self::read(Box::new(file), path, options).map_err(failed)
    }

    /// A core that is bytes of ours, for tests. Files that it names are not opened.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, CoreError> {
        let path = Path::new("core");
        let options = CoreOptions { use_files: false, ..CoreOptions::default() };
        Self::read(Box::new(bytes), path, options).map_err(|fault| CoreError { path: path.to_owned(), fault })
    }

    fn read(source: Box<dyn ByteSource>, path: &Path, options: CoreOptions) -> Result<Self, CoreFault> {
        header::check_core(&*source, path)?;
        let headers = Headers::read(&*source, MAX_OF_CORE)
            .ok_or_else(|| CoreFault::NoThreads("its program headers have an unknown form".to_owned()))?;
        let notes = Notes::read(&*source, &headers);
        let segments = Segments::new(&headers, source);
        let Some(first) = notes.threads.first() else {
            let cut = segments.missing > 0 || headers.claimed > headers.entries.len() as u64 || !notes.are_whole();
            let why = match cut {
                true => header::too_short(segments.source.size()),
                false => {
                    "no note in it describes a thread (did another system or an unusual tool write it?)".to_owned()
                }
            };
            return Err(CoreFault::NoThreads(why));
        };
        let pid = notes.process.as_ref().map_or(Pid(first.status.lwp.0), |process| process.pid);
        Ok(Self {
            path: path.to_owned(),
            options,
            pid,
            headers_missing: headers.claimed - headers.entries.len() as u64,
            segments,
            notes,
            maps: OnceLock::new(),
            modules: OnceLock::new(),
            files: OnceLock::new(),
            symbols: OnceLock::new(),
            limits: Limits::default(),
        })
    }

    /// The general registers of a thread.
    pub fn registers(&self, lwp: Lwp) -> Option<GeneralRegisters> {
        Some(self.notes.thread(lwp)?.status.registers)
    }

    /// The floating-point registers of a thread, as `PTRACE_GETFPREGS` gives them.
    pub fn floating_registers(&self, lwp: Lwp) -> Option<Vec<u8>> {
        notes::whole(&*self.segments.source, self.notes.thread(lwp)?.floating?, MAX_REGISTERS)
    }

    /// The whole extended state of a thread, as `PTRACE_GETREGSET` gives it for `NT_X86_XSTATE`.
    pub fn extended_registers(&self, lwp: Lwp) -> Option<Vec<u8>> {
        notes::whole(&*self.segments.source, self.notes.thread(lwp)?.extended?, MAX_REGISTERS)
    }

    fn mapped_files(&self) -> &[FileMapping] {
        self.notes.files.as_deref().unwrap_or_default()
    }

    fn files(&self) -> &ModuleFiles {
        self.files.get_or_init(|| {
            ModuleFiles::find(&self.segments, self.modules(), |module| self.is_program(module), &self.options)
        })
    }

    fn info(&self) -> CoreInfo {
        let first = self.notes.threads.first().map(|thread| thread.status);
        let signal = first.map(|status| status.signal).filter(|signal| (1..=64).contains(signal));
        // A debugger records its own stop of each thread.
        let cause =
            self.notes.signal.filter(|cause| self.notes.writer == CoreWriter::Kernel && Some(cause.signal) == signal);
        CoreInfo {
            path: self.path.to_string_lossy().into_owned(),
            writer: self.notes.writer,
            signal: signal.map(signal_name),
            signal_lwp: first.filter(|_| signal.is_some()).map(|status| status.lwp),
            fault_address: cause.and_then(|cause| cause.fault_address),
            sender: cause.and_then(|cause| cause.sender),
            command: self.notes.process.as_ref().map(|it| String::from_utf8_lossy(&it.command).into_owned()),
        }
    }

    fn damages(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut lack = |what: &str, why: &str| gaps.push(Gap::whole(what, why));
        for fault in &self.notes.faults {
            lack("some of the notes on threads", &format!("the core is damaged: {fault}"));
        }
        if self.notes.more_threads > 0 {
            let why = format!("the core has too many threads; the first {} are kept", notes::MAX_THREADS);
            lack(&format!("{} threads", self.notes.more_threads), &why);
        }
        if self.segments.missing > 0 {
            let (missing, has) = (self.segments.missing, self.segments.source.size());
            let why = format!(
                "the core is cut short: it has {has} bytes and lacks {missing} of memory (`ulimit -c unlimited`, a \
                 larger disk)"
            );
            lack("some of the memory", &why);
        }
        if self.headers_missing > 0 {
            let why = format!("the core is damaged: {} of its program headers are missing", self.headers_missing);
            lack("some of the memory", &why);
        }
        if self.segments.overlapping {
            lack("some of the memory", "the core is damaged: segments overlap (the first one is used)");
        }
        if self.notes.process.is_none() {
            lack("the process's name, user and pid", "the core has no note on the process");
        }
        if self.mapped_files().is_empty() && self.options.use_files {
            let why = "the core does not list the files that were mapped";
            lack("code, names of functions, the version of libc", why);
        }
        gaps
    }
}

impl Memory for Core {
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        read_pieces(addr, buf, |at, rest| match self.segments.read(at, rest) {
            0 => {
                // A file answers as far as the core has nothing.
                let room = usize::try_from(self.segments.next_present(at) - at).unwrap_or(usize::MAX);
                let len = rest.len().min(room);
                self.files().read(self.modules(), at, &mut rest[..len])
            }
            n => n,
        })
    }
}

impl Symbols for Core {
    fn address_of(&self, name: &str) -> Option<RemoteAddr> {
        self.symbols.get_or_init(|| GlibcSymbols::load(self)).address_of(name)
    }
}

impl Target for Core {
    fn pid(&self) -> Pid {
        self.pid
    }

    fn identity(&self) -> Identity {
        let process = self.notes.process.as_ref();
        let exe = self.modules().iter().find(|module| self.is_program(module));
        Identity {
            name: process.map_or_else(|| "?".to_owned(), |it| String::from_utf8_lossy(&it.name).into_owned()),
            exe: exe.map(|module| String::from_utf8_lossy(&module.path).into_owned()),
            uid: process.map(|it| it.uid),
            in_pid_namespace: false,
            shared_pending: None,
            tracer: None,
            core: Some(self.info()),
        }
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn maps(&self) -> &[MapEntry] {
        self.maps.get_or_init(|| {
            let vdso = self.notes.auxv.and_then(|aux| aux.vdso);
            let (maps, nameless) = maps::build(&self.segments, self.mapped_files(), vdso);
            if nameless {
                self.limits.leave_out("files of some mappings", "their names take too much memory");
            }
            maps
        })
    }

    fn modules(&self) -> &[Module] {
        self.modules.get_or_init(|| {
            let mut modules = group(self.maps());
            let entry = self.notes.auxv.and_then(|aux| aux.entry);
            let program = modules.iter_mut().find(|module| entry.is_some_and(|entry| module.contains(entry)));
            if let Some((program, process)) = program.zip(self.notes.process.as_ref()) {
                program.note_start(&process.name, || process.command.clone());
            }
            modules
        })
    }

    /// The one that holds the entry point; the lowest one where that is not recorded.
    fn is_program(&self, module: &Module) -> bool {
        match self.notes.auxv.and_then(|aux| aux.entry) {
            Some(entry) => module.contains(entry),
            None => self.modules().first().is_some_and(|first| first.base == module.base),
        }
    }

    fn open_module(&self, module: &Module) -> Option<File> {
        let index = self.modules().iter().position(|other| other.base == module.base)?;
        self.files().open(index)
    }

    fn stack_limit(&self) -> Option<StackLimit> {
        Some(StackLimit::AsMapped)
    }

    fn losses(&self) -> Vec<Gap> {
        let mut gaps = vec![match self.notes.writer {
            CoreWriter::Kernel => Gap::whole(
                "thread names, nice values, priorities that libc did not record, CPU time of the main thread, signals \
                 pending for the whole process, what descriptors refer to, the main stack's limit (its size is as \
                 mapped)",
                "the kernel does not store them in a core",
            ),
            CoreWriter::Debugger => Gap::whole(
                "thread names, nice values, priorities that libc did not record, CPU times, signal masks, pending \
                 signals, what descriptors refer to, the main stack's limit (its size is as mapped)",
                "a debugger does not store them in a core",
            ),
        }];
        gaps.extend(self.damages());
        gaps.extend(self.files().gaps(self.modules(), |module| self.is_program(module)));
        gaps
    }
}

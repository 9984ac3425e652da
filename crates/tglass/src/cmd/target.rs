//! From the word that names a target to the process or the core file.

use super::process_name;
use crate::cli::{CoreFileArgs, TargetWord};
use crate::is_broken_pipe;
use anyhow::{Result, anyhow, ensure};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use threadglass::Pid;
use threadglass::snap::{self, Snap};
use threadglass::target::{Core, CoreOptions, Live, Target, TargetError};

/// How the name of a snapshot usually ends.
pub const SNAPSHOT: &str = "tgsnap";

/// What is said of a name that no process has.
const IS_DIRECTORY: &str = "a directory is not a core file (give a PID, or the path of a core file or snapshot)";
const IS_NOTHING: &str =
    "there is no such file (give the PID or name of a process, or the path of a core file or snapshot)";

/// The processes that this command is about, as they were when they were named.
static NAMED: Mutex<Vec<Live>> = Mutex::new(Vec::new());

/// An error, or that the process has ended which the command is about: then that is the reason.
pub fn or_ended<T>(result: Result<T>) -> Result<T> {
    let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    let Err(error) = result else { return result };
    match named.iter().find(|live| live.has_ended()) {
        Some(live) if !is_broken_pipe(&error) => Err(TargetError::Exited(live.pid()).into()),
        _ => Err(error),
    }
}

/// Takes note of a process that was named.
fn noted(pid: Pid) -> Pid {
    if let Ok(live) = Live::open(pid) {
        NAMED.lock().unwrap_or_else(PoisonError::into_inner).push(live);
    }
    pid
}

/// A target that can be looked at, or the answers of one that was.
pub enum Opened {
    Target(Box<dyn Target>),
    Snapshot(Box<Snap>),
}

/// Whether a file is a snapshot: by what it begins with, or by its name, so that a damaged one is not taken for a core.
pub fn is_snapshot(path: &Path) -> bool {
    let begins_as_one = || {
        let mut head = [0; 8];
        File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && snap::is_snapshot(&head)
    };
    // Reading from what is no file may take for ever.
    path.metadata().is_ok_and(|about| about.is_file())
        && (path.extension().is_some_and(|ending| ending == SNAPSHOT) || begins_as_one())
}

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichTarget {
    Process(Pid),
    /// A file: a core, or a journal where one is wanted.
    File(PathBuf),
}

impl WhichTarget {
    /// What `word` names. A file is preferred to a process of that name.
    pub fn of(word: Option<TargetWord>) -> Result<Self> {
        match word.ok_or_else(nothing_named)? {
            TargetWord::Pid(pid) => Ok(Self::Process(noted(Pid(pid)))),
            TargetWord::Other(name) => match Entry::of(name.as_ref()) {
                Entry::File => Ok(Self::File(name.into())),
                Entry::Directory => process_name::find(&name, IS_DIRECTORY).map(noted).map(Self::Process),
                Entry::None => process_name::find(&name, IS_NOTHING).map(noted).map(Self::Process),
            },
        }
    }

    /// Opens it.
    pub fn open(&self, files: &CoreFileArgs) -> Result<Opened> {
        let CoreFileArgs { exe, sysroot } = files;
        Ok(match self {
            Self::Process(pid) => {
                ensure!(exe.is_none() && sysroot.is_none(), "--exe and --sysroot are only for core files");
                Opened::Target(Box::new(Live::open(*pid)?))
            }
            Self::File(path) if is_snapshot(path) => {
                ensure!(
                    exe.is_none() && sysroot.is_none(),
                    "--exe and --sysroot are for core files, not for snapshots"
                );
                Opened::Snapshot(Box::new(Snap::open(path)?))
            }
            Self::File(path) => {
                let options = CoreOptions { exe: exe.clone(), sysroot: sysroot.clone(), ..CoreOptions::default() };
                Opened::Target(Box::new(Core::open(path, options)?))
            }
        })
    }

    /// The process, where only a running one will do; `what` needs it.
    pub fn process(&self, what: &str) -> Result<Pid> {
        match self {
            Self::Process(pid) => Ok(*pid),
            Self::File(path) => {
                let kind = if is_snapshot(path) { "a snapshot" } else { "a core file" };
                Err(anyhow!("{what} needs a running process, not {kind}"))
            }
        }
    }
}

/// The process that `word` names, for `command`, which takes no core file.
pub fn process(word: Option<TargetWord>, command: &str) -> Result<Pid> {
    match word.ok_or_else(nothing_named)? {
        TargetWord::Pid(pid) => Ok(noted(Pid(pid))),
        TargetWord::Other(name) => {
            let about = match Entry::of(name.as_ref()) {
                Entry::File => format!("{command} needs a running process, not a file (give a PID)"),
                Entry::Directory | Entry::None => {
                    "there is no such file (give the PID or name of a process)".to_owned()
                }
            };
            process_name::find(&name, &about).map(noted)
        }
    }
}

fn nothing_named() -> anyhow::Error {
    process_name::candidates(
        "no target was named (give a PID, the name of a process, or the path of a core file or snapshot)",
    )
}

/// What has a name in the file system.
enum Entry {
    File,
    Directory,
    None,
}

impl Entry {
    /// What is at `path`. Where that cannot be told, it is taken for a file, so that the error of opening it is told.
    fn of(path: &Path) -> Self {
        match path.metadata() {
            Ok(about) if about.is_dir() => Self::Directory,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Self::None,
            Ok(_) | Err(_) => Self::File,
        }
    }
}

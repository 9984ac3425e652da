//! The process that has a name.
//!
//! Anybody may call a process anything, so no process is preferred: a name that several have is refused with a list.

use super::several::Several;
use crate::render::{cut, safe};
use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use threadglass::Pid;

/// Bytes of a command line that are read, and columns of it that are shown.
const COMMAND_LINE: u64 = 4096;
const SHOWN: usize = 60;
/// Ancestors of this process that are looked for.
const ANCESTORS: usize = 64;

/// The one process that is called `name`. Where there is none, `about` ends the sentence with what else is known.
pub fn find(name: &OsStr, about: &str) -> Result<Pid> {
    let own = own_family();
    let (ours, others): (Vec<NamedProcess>, Vec<NamedProcess>) = processes()
        .filter(|process| process.is_called(name.as_bytes()))
        .partition(|process| own.contains(&process.pid));
    let shown = safe(&name.to_string_lossy());
    match others.as_slice() {
        [one] => Ok(Pid(one.pid)),
        [] if ours.is_empty() => bail!("no process is called `{shown}`, and {about}"),
        [] => bail!("only tglass or what started it is called `{shown}` (to look at that, give its PID)"),
        several => {
            let what = format!("{} processes are called `{shown}` (give the PID of one)", several.len());
            Err(Several::new(what, several.iter().map(NamedProcess::line).collect()).into())
        }
    }
}

/// Whether process `pid` goes by the name `name`.
pub fn is_called(pid: Pid, name: &OsStr) -> bool {
    NamedProcess::read(pid.0).is_some_and(|process| process.is_called(name.as_bytes()))
}

/// This process and those that have started it.
pub fn family() -> Vec<Pid> {
    own_family().into_iter().map(Pid).collect()
}

/// An error that says `what`, with the processes that a look is most likely wanted of: those with most threads.
pub fn candidates(what: &str) -> anyhow::Error {
    let own = own_family();
    let mut found: Vec<(usize, NamedProcess)> = processes()
        .filter(|process| process.exe.is_some() && !own.contains(&process.pid))
        .map(|process| (std::fs::read_dir(format!("/proc/{}/task", process.pid)).map_or(0, Iterator::count), process))
        .filter(|(threads, _)| *threads > 1)
        .collect();
    found.sort_by_key(|(threads, process)| (std::cmp::Reverse(*threads), process.pid));
    let line = |(threads, process): &(usize, NamedProcess)| format!("{}  ({threads} threads)", process.line());
    Several::new(what.to_owned(), found.iter().map(line).collect()).into()
}

/// All programs but this one and those that started it: their IDs, names and command lines.
pub fn others() -> Vec<(i32, String, String)> {
    let own = own_family();
    let others = processes().filter(|process| process.exe.is_some() && !own.contains(&process.pid));
    others.map(|process| (process.pid, safe(&String::from_utf8_lossy(&process.comm)), process.command())).collect()
}

/// A process with the names that it goes by.
#[derive(Debug)]
struct NamedProcess {
    pid: i32,
    /// The kernel's name of its main thread.
    comm: Vec<u8>,
    /// Its executable, where that may be seen.
    exe: Option<Vec<u8>>,
    /// The beginning of its command line: arguments, each ended by a zero byte.
    arguments: Vec<u8>,
}

impl NamedProcess {
    fn read(pid: i32) -> Option<Self> {
        let mut comm = read(pid, "comm")?;
        comm.pop_if(|byte| *byte == b'\n');
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let exe = exe.map(|path| path.as_os_str().as_bytes().to_vec());
        Some(Self { pid, comm, exe, arguments: read(pid, "cmdline").unwrap_or_default() })
    }

    fn is_called(&self, name: &[u8]) -> bool {
        let exe = self.exe.as_deref().map(|path| base(path.strip_suffix(b" (deleted)").unwrap_or(path)));
        let first = self.arguments.split(|byte| *byte == 0).next().map(base);
        !name.is_empty() && (self.comm == name || exe == Some(name) || first == Some(name))
    }

    /// `4711  nginx  nginx: master process ..`
    fn line(&self) -> String {
        let name = safe(&String::from_utf8_lossy(&self.comm));
        format!("{}  {name}  {}", self.pid, self.command()).trim_end().to_owned()
    }

    /// The beginning of its command line.
    fn command(&self) -> String {
        let text = |bytes: &[u8]| safe(&String::from_utf8_lossy(bytes));
        let arguments: Vec<String> = self.arguments.split(|byte| *byte == 0).map(text).collect();
        cut(arguments.join(" ").trim_end(), SHOWN)
    }
}

/// The last part of a path.
fn base(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// The beginning of a file of a process.
fn read(pid: i32, file: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/{file}")).ok()?.take(COMMAND_LINE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// All processes, by their IDs.
fn processes() -> impl Iterator<Item = NamedProcess> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids.into_iter().filter_map(NamedProcess::read)
}

/// This process, and those that started it: the shell, and what is between. What keeps the shell itself, such as a
/// terminal or init, has another session and no terminal, and is as good a target as any.
fn own_family() -> Vec<i32> {
    let me = std::fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
    let Some((me, own)) = me.and_then(|me| Some((me, Place::of(me)?))) else { return Vec::new() };
    let (mut family, mut next) = (vec![me], own.parent);
    while family.len() < ANCESTORS {
        let Some(place) = Place::of(next) else { break };
        if place.session != own.session && place.terminal == 0 {
            break;
        }
        family.push(next);
        next = place.parent;
    }
    family
}

/// Where a process stands among others.
struct Place {
    parent: i32,
    session: i32,
    terminal: i32,
}

impl Place {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&read(pid, "stat")?)
    }

    /// Of the line `PID (NAME) STATE PARENT GROUP SESSION TERMINAL ..`, whose name may hold anything.
    fn parse(stat: &[u8]) -> Option<Self> {
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = String::from_utf8_lossy(stat.get(end + 1..)?).into_owned();
        let mut fields = rest.split_whitespace().skip(1).map(|field| field.parse().ok());
        let (parent, _, session, terminal) =
            (fields.next()??, fields.next()?.unwrap_or(0), fields.next()??, fields.next()??);
        Some(Self { parent, session, terminal })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(comm: &str, exe: Option<&str>, arguments: &str) -> NamedProcess {
        let exe = exe.map(|exe| exe.as_bytes().to_vec());
        NamedProcess { pid: 7, comm: comm.into(), exe, arguments: arguments.replace('|', "\0").into() }
    }

    #[test]
    fn a_process_has_three_names() {
        let server = process("worker", Some("/opt/db/server (deleted)"), "/usr/bin/launcher|--port|80|");
        for name in ["worker", "server", "launcher"] {
            assert!(server.is_called(name.as_bytes()), "{name}");
        }
        for name in ["", "serve", "server (deleted)", "/opt/db/server", "--port", "80", "Worker", "work"] {
            assert!(!server.is_called(name.as_bytes()), "{name}");
        }
        let nameless = process("", None, "");
        assert!(!nameless.is_called(b""), "a thread of the kernel has no arguments");
    }

    #[test]
    fn a_candidate_is_one_harmless_line() {
        let evil = process("e\x1b[2J\n", None, &format!("a\n\x1b[31m|{}|", "b".repeat(5000)));
        let line = evil.line();
        assert!(!line.contains(['\n', '\x1b']), "{line:?}");
        assert!(line.len() < 120 && line.ends_with(".."), "{line}");
        assert_eq!(process("sleep", None, "sleep|60|").line(), "7  sleep  sleep 60");
    }

    #[test]
    fn a_name_cannot_lie_about_its_parent() {
        let place = Place::parse(b"7 (a) S 1 1 1 1 (b) R 42 43 44 45 -1 4194560").expect("a place");
        assert_eq!((place.parent, place.session, place.terminal), (42, 44, 45));
        assert!(Place::parse(b"7 (a").is_none() && Place::parse(b"").is_none());
    }

    #[test]
    fn the_family_begins_with_this_process() {
        assert_eq!(own_family().first().copied(), i32::try_from(std::process::id()).ok());
    }
}

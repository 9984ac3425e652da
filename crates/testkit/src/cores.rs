//! Core files of fixtures, by both of those who write them.

use crate::{Extent, Fixture, Signal, eventually, have, skip, task_state};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A core file, removed when this is dropped.
#[derive(Debug)]
pub struct CoreFile {
    dir: TempDir,
    path: PathBuf,
}

impl CoreFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that it is alone in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its path as text.
    pub fn name(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

/// A command that starts `program` so that it can be dumped: in `dir`, without a limit on cores, and with
/// one heap for all threads (gcore writes out the unused room of each).
fn dumpable(program: &Path, args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -c unlimited 2>/dev/null; exec \"$0\" \"$@\""]).arg(program).args(args);
    command.current_dir(dir).env("MALLOC_ARENA_MAX", "1");
    command
}

/// A fixture to be dumped by one of the two, looked at, and then dumped.
#[derive(Debug)]
pub struct Dumpable {
    /// The running program.
    pub fixture: Fixture,
    dir: TempDir,
}

impl Dumpable {
    /// Starts a built fixture.
    pub fn start(program: &Path, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let fixture = Fixture::command(dumpable(program, args, dir.path()));
        Self { fixture, dir }
    }

    /// The same, with another choice of what the kernel dumps (`coredump_filter` of core(5)).
    pub fn filtered(self, filter: &str) -> Self {
        let path = format!("/proc/{}/coredump_filter", self.fixture.pid());
        std::fs::write(path, filter).expect("the filter of a process of ours");
        self
    }

    /// Has gdb write a core; the program goes on. `None` (and a skip) where that cannot be.
    pub fn gcore<'a>(self, what: impl Into<Extent<'a>>) -> Option<CoreFile> {
        let what = what.into();
        if !have(what, "gcore") {
            return None;
        }
        let pid = self.fixture.pid();
        let output = Command::new("gcore").arg("-o").arg(self.dir.path().join("gdb")).arg(pid.to_string()).output();
        let path = self.dir.path().join(format!("gdb.{pid}"));
        if !path.exists() {
            let said = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
            skip(what, &format!("gcore wrote no core: {}", said.lines().next().unwrap_or_default()));
            return None;
        }
        Some(CoreFile { dir: self.dir, path })
    }

    /// Kills it, so that the kernel writes a core. `None` (and a skip) where the kernel does not do so.
    pub fn kernel_core<'a>(self, what: impl Into<Extent<'a>>) -> Option<CoreFile> {
        let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
        if pattern.contains(['|', '/', '%', '@']) || pattern.trim().is_empty() {
            skip(what, &format!("kernel.core_pattern is `{}`, not a plain name", pattern.trim()));
            return None;
        }
        let pid = self.fixture.pid();
        crate::signal(pid, Signal::SIGQUIT);
        // The record of a process stays until it is collected, and by then the core is written.
        eventually("the fixture should die of SIGQUIT", || {
            task_state(pid, pid).is_some_and(|task| task.letter == 'Z')
                && std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() == 1)
        });
        let named = [pattern.trim().to_owned(), format!("{}.{pid}", pattern.trim())];
        let found = named.iter().map(|name| self.dir.path().join(name)).find(|path| path.exists());
        let Some(path) = found else {
            skip(what, "the kernel wrote no core (a hard limit on cores?)");
            return None;
        };
        Some(CoreFile { dir: self.dir, path })
    }
}

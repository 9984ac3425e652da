//! One tool at a time puts the agent into a process, or removes its hooks: two that did so at once would each load one.
//!
//! A file of our own is locked, in a directory that others cannot write: whoever can lock what we lock can make us wait.
//! So tools of different users do not wait for one another.

use crate::Pid;
use crate::own_dir::{Access, is_root, known_as, own_dir};
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// As long as this lives it is our turn. The end of our process, in whatever way, is the end of it.
#[derive(Debug)]
pub(super) struct Turn {
    _locked: Option<File>,
}

/// Nobody takes longer than this; then we go on without.
const PATIENCE: Duration = Duration::from_secs(12);

impl Turn {
    /// Waits for our turn with a process. Without a place for the file nobody waits.
    pub(super) fn take(pid: Pid) -> Self {
        let uid = nix::unistd::geteuid().as_raw();
        // The same for all tools of a user, whatever their environment.
        let in_tmp = format!("/tmp/threadglass-{}", known_as());
        let dirs = match uid {
            0 => vec!["/run/threadglass".to_owned(), "/var/cache/threadglass".to_owned(), in_tmp],
            uid => vec![format!("/run/user/{uid}/threadglass"), in_tmp],
        };
        let Some(file) = dirs.iter().find_map(|dir| open(Path::new(dir))) else { return Self { _locked: None } };
        let begun = Instant::now();
        // One byte of the file for each process.
        let lock = libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: i64::from(pid.0),
            l_len: 1,
            l_pid: 0,
        };
        while fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)).is_err() {
            if begun.elapsed() > PATIENCE {
                return Self { _locked: None };
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Self { _locked: Some(file) }
    }
}

fn open(dir: &Path) -> Option<File> {
    let access = if is_root() { Access::Search } else { Access::Private };
    let dir = own_dir(dir, access).ok()?;
    let path = dir.join("turns");
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn one_at_a_time_for_each_process_and_nobody_else_can_take_it() {
        let me = Pid::me();
        let turn = Turn::take(me);
        assert!(turn._locked.is_some());
        // Another process is another turn.
        assert!(Turn::take(Pid(me.0 + 1))._locked.is_some());
        let is_taken = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let turn = Turn::take(me);
                assert!(is_taken.load(Ordering::SeqCst));
                turn
            });
            std::thread::sleep(Duration::from_millis(20));
            is_taken.store(true, Ordering::SeqCst);
            drop(turn);
            assert!(waiter.join().unwrap()._locked.is_some());
        });
        // Whoever may look at the directory of the process cannot make us wait by that.
        let about = File::open("/proc/self").unwrap();
        let locked = nix::fcntl::Flock::lock(about, nix::fcntl::FlockArg::LockExclusiveNonblock).unwrap();
        let begun = Instant::now();
        let turn = Turn::take(me);
        assert!(turn._locked.is_some() && begun.elapsed() < PATIENCE);
        drop(locked);
    }
}

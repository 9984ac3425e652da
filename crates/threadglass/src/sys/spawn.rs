//! Starting a command that waits, between fork and exec, for a go-ahead.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::JoinHandle;

/// A forked process that has not executed its command yet. It ends by itself when this is dropped.
#[derive(Debug)]
pub(crate) struct HeldCommand {
    pid: i32,
    go: File,
    spawner: JoinHandle<io::Result<Child>>,
}

impl HeldCommand {
    pub(crate) fn fork(mut command: Command) -> io::Result<Self> {
        let (pid_end, child_pid) = pipe()?;
        let (child_go, go) = pipe()?;
        let (child_pid_fd, child_go_fd, go_fd) = (child_pid.as_raw_fd(), child_go.as_raw_fd(), go.as_raw_fd());
        let wait = move || {
            // SAFETY: the descriptors are open, as the spawning thread owns them, or this process's copy of
            // `go`, which is closed so that the end of the other copy is seen; the buffers are on the stack. All
            // of it may be called between fork and exec.
            unsafe {
                libc::close(go_fd);
                let pid = libc::getpid().to_ne_bytes();
                libc::write(child_pid_fd, pid.as_ptr().cast(), pid.len());
                let mut byte = 0u8;
                loop {
                    match libc::read(child_go_fd, std::ptr::from_mut(&mut byte).cast(), 1) {
                        1 => return Ok(()),
                        -1 if *libc::__errno_location() == libc::EINTR => {}
                        _ => return Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                    }
                }
            }
        };
        // SAFETY: `wait` allocates nothing and takes no lock.
        unsafe { command.pre_exec(wait) };
        // `spawn` returns when the command is executed, so it has a thread of its own.
        let spawner = std::thread::Builder::new().name("spawn".to_owned()).spawn(move || {
            let child = command.spawn();
            drop((child_pid, child_go));
            child
        })?;
        let mut pid = [0; 4];
        match File::from(pid_end).read_exact(&mut pid) {
            Ok(()) => Ok(Self { pid: i32::from_ne_bytes(pid), go: go.into(), spawner }),
            // It could not even fork.
            Err(error) => Err(join(spawner).err().unwrap_or(error)),
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets it execute its command, and waits until it does.
    pub(crate) fn release(mut self) -> io::Result<Child> {
        self.go.write_all(&[1])?;
        join(self.spawner)
    }

    /// Ends it without executing anything.
    pub(crate) fn cancel(self) {
        drop(self.go);
        let _ = join(self.spawner);
    }
}

fn join(spawner: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    spawner.join().unwrap_or_else(|_| Err(io::Error::other("the spawning thread failed")))
}

/// Reading and writing end; closed on exec.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_executed_before_the_go_ahead() {
        let mut command = Command::new("true");
        command.stdin(std::process::Stdio::null());
        let held = HeldCommand::fork(command).unwrap();
        let exe = std::fs::read_link(format!("/proc/{}/exe", held.pid())).unwrap();
        assert_eq!(exe, std::env::current_exe().unwrap());
        let pid = held.pid();
        let mut child = held.release().unwrap();
        assert_eq!(child.id(), pid as u32);
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_command_that_cannot_be_and_one_that_is_not_wanted() {
        let held = HeldCommand::fork(Command::new("/nonexistent/command")).unwrap();
        assert_eq!(held.release().unwrap_err().kind(), io::ErrorKind::NotFound);
        let held = HeldCommand::fork(Command::new("true")).unwrap();
        let pid = held.pid();
        held.cancel();
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}

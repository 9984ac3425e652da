//! `/proc/PID/task/TID/syscall`: what a blocked task is blocked in.

use super::{hex0x, signed, words};
use crate::RemoteAddr;
use crate::arch::{syscall, syscall_word};
use crate::model::Syscall;

/// One reading of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyscallFile {
    /// The task is on a CPU or queued for one; the kernel tells no registers.
    Running,
    /// Blocked, but not in a system call (stopped, or waiting for a page).
    Outside {
        /// Stack pointer.
        sp: RemoteAddr,
        /// Program counter.
        pc: RemoteAddr,
    },
    /// Blocked in a system call.
    Inside {
        /// Its number.
        number: i64,
        /// The six argument registers. Those the call does not use hold leftovers.
        args: [u64; 6],
        /// Stack pointer.
        sp: RemoteAddr,
        /// Program counter.
        pc: RemoteAddr,
    },
}

impl SyscallFile {
    /// Stack pointer and program counter, where the kernel gave them.
    pub fn registers(&self) -> Option<(RemoteAddr, RemoteAddr)> {
        match *self {
            Self::Running => None,
            Self::Outside { sp, pc } | Self::Inside { sp, pc, .. } => Some((sp, pc)),
        }
    }

    /// Whether it is in a call of futex.
    pub(crate) fn is_futex(&self) -> bool {
        matches!(self, Self::Inside { number: syscall::FUTEX, .. })
    }

    /// The call, if it is in one.
    pub(crate) fn call(&self) -> Option<Syscall> {
        match *self {
            Self::Inside { number, args, .. } => {
                Some(Syscall { number, name: syscall_word(number), args, descriptors: Vec::new() })
            }
            _ => None,
        }
    }
}

/// Decodes the file; `None` when it is not one.
pub fn parse_syscall(bytes: &[u8]) -> Option<SyscallFile> {
    let mut fields = words(bytes);
    let first = fields.next()?;
    if first == b"running" {
        return Some(SyscallFile::Running);
    }
    let number = signed(first)?;
    let mut address = || fields.next().and_then(hex0x);
    if number == -1 {
        let (sp, pc) = (RemoteAddr(address()?), RemoteAddr(address()?));
        return Some(SyscallFile::Outside { sp, pc });
    }
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = address()?;
    }
    Some(SyscallFile::Inside { number, args, sp: RemoteAddr(address()?), pc: RemoteAddr(address()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms() {
        assert_eq!(parse_syscall(b"running\n"), Some(SyscallFile::Running));
        assert_eq!(
            parse_syscall(b"-1 0x7ffc 0x401000\n"),
            Some(SyscallFile::Outside { sp: RemoteAddr(0x7ffc), pc: RemoteAddr(0x401000) })
        );
        let blocked = parse_syscall(b"7 0x1 0x80 0x2 0x0 0x5 0xffffffffffffffff 0x7ffc 0x401000\n");
        assert_eq!(
            blocked,
            Some(SyscallFile::Inside {
                number: 7,
                args: [1, 0x80, 2, 0, 5, u64::MAX],
                sp: RemoteAddr(0x7ffc),
                pc: RemoteAddr(0x401000)
            })
        );
        for bad in [&b""[..], b"7", b"7 0x1", b"-1 7ffc 0x1", b"abc", b"-1 0x"] {
            assert_eq!(parse_syscall(bad), None);
        }
    }
}

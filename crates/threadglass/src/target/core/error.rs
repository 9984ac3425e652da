//! Why a file cannot be looked at as a core.

use std::io;
use std::path::{Path, PathBuf};

/// Why a core file cannot be used at all. One that is only damaged is used, with gaps.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct CoreError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: CoreFault,
}

/// What is wrong with a core file, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum CoreFault {
    /// It is not there.
    #[error("no such file (give the PID of a process, or the path of a core file)")]
    NotFound,
    /// It may not be read.
    #[error("permission denied (run as the user of the core file, or as root)")]
    Denied,
    /// The system refuses.
    #[error("cannot read it: {0}")]
    Io(io::Error),
    /// Not a regular file.
    #[error("is {0}, not a file (give the path of a core file, or a PID)")]
    NotAFile(&'static str),
    /// There is nothing in it.
    #[error("is empty: the size of cores was limited, or the disk was full (`ulimit -c unlimited`)")]
    Empty,
    /// It has to be unpacked first.
    #[error("is compressed ({format}): unpack it first (`{command}`)")]
    Compressed {
        /// With what.
        format: &'static str,
        /// How to unpack it.
        command: String,
    },
    /// No ELF header.
    #[error("is not an ELF file, so it is not a core (the kernel and `gcore PID` write cores)")]
    NotElf,
    /// Another kind of ELF file.
    #[error("is {0}, not a core (give the core file, or the PID of the running process)")]
    NotACore(&'static str),
    /// A core of another kind of machine.
    #[error("is a core of {0}: only cores of x86-64 programs can be read")]
    WrongMachine(String),
    /// Its threads are not in it.
    #[error("has no threads: {0}")]
    NoThreads(String),
}

/// How files of other formats begin, what they are, and how to unpack them.
const PACKED: [(&[u8], &str, &str, &str); 5] = [
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d", ".zst"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -d", ".lz4"),
    (b"\xfd7zXZ\0", "xz", "xz -dk", ".xz"),
    (b"\x1f\x8b", "gzip", "gunzip -k", ".gz"),
    (b"BZh", "bzip2", "bunzip2 -k", ".bz2"),
];

impl CoreFault {
    /// What an error of the file system means here.
    pub(super) fn from_io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NotFound,
            io::ErrorKind::PermissionDenied => Self::Denied,
            _ => Self::Io(error),
        }
    }

    /// The fault of a file that begins with `head` and is no ELF file.
    pub(super) fn not_elf(head: &[u8], path: &Path) -> Self {
        let Some((_, format, tool, ending)) = PACKED.iter().find(|(magic, ..)| head.starts_with(magic)) else {
            return Self::NotElf;
        };
        let name = path.display().to_string();
        // systemd keeps cores packed, and unpacks them itself.
        if name.contains("/systemd/coredump/") {
            let pid =
                name.rsplit('.').filter(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit())).nth(1);
            let command = format!("coredumpctl dump {} -o core", pid.unwrap_or("PID"));
            return Self::Compressed { format, command };
        }
        // Some of the tools want a name to end as they made it.
        let command = match name.ends_with(ending) {
            true => format!("{tool} {name}"),
            false => format!("{tool} -c < {name} > core").replace(" -k -c", " -c").replace("-dk -c", "-dc"),
        };
        Self::Compressed { format, command }
    }
}

/// What an ELF machine number and class stand for.
pub(super) fn machine_name(machine: u16, is_32_bit: bool) -> String {
    match (machine, is_32_bit) {
        (3, _) => "a 32-bit x86 program".to_owned(),
        (62, true) => "an x32 program".to_owned(),
        (183, _) => "an ARM 64-bit (aarch64) program".to_owned(),
        (40, _) => "an ARM 32-bit program".to_owned(),
        (243, _) => "a RISC-V program".to_owned(),
        (20 | 21, _) => "a PowerPC program".to_owned(),
        (22, _) => "an IBM Z (s390) program".to_owned(),
        (machine, _) => format!("another machine (ELF machine {machine})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(head: &[u8], path: &str) -> String {
        match CoreFault::not_elf(head, Path::new(path)) {
            CoreFault::Compressed { command, .. } => command,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn packed_cores_come_with_the_command_that_unpacks_them() {
        assert_eq!(command(b"\x28\xb5\x2f\xfd..", "core.zst"), "zstd -d core.zst");
        assert_eq!(command(b"\xfd7zXZ\0..", "core.xz"), "xz -dk core.xz");
        assert_eq!(command(b"\x1f\x8b\x08", "core"), "gunzip -c < core > core");
        let kept =
            "/var/lib/systemd/coredump/core.prog.1000.0123456789abcdef0123456789abcdef.4711.1700000000000000.zst";
        assert_eq!(command(b"\x28\xb5\x2f\xfd", kept), "coredumpctl dump 4711 -o core");
        assert!(matches!(CoreFault::not_elf(b"#!/bin/sh", Path::new("x")), CoreFault::NotElf));
    }
}

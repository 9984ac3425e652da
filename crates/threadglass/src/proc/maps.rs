//! `/proc/PID/maps`.

use super::{decimal, hex};
use crate::RemoteAddr;
use memchr::memmem;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// First address.
    pub start: RemoteAddr,
    /// One past the last address.
    pub end: RemoteAddr,
    /// Readable.
    pub read: bool,
    /// Writable.
    pub write: bool,
    /// Executable.
    pub exec: bool,
    /// Shared between processes.
    pub shared: bool,
    /// Offset into the file.
    pub offset: u64,
    /// Inode of the file, 0 for none.
    pub inode: u64,
    /// File name or pseudo name (`[stack]`), without the ` (deleted)` mark; empty for none.
    pub name: Vec<u8>,
    /// Whether the kernel says that the file has no name any more.
    pub deleted: bool,
}

impl MapEntry {
    /// Whether `addr` lies in it.
    pub fn contains(&self, addr: RemoteAddr) -> bool {
        (self.start..self.end).contains(&addr)
    }

    /// Splits a name as the kernel writes it into the name itself and whether the file is deleted.
    pub(crate) fn split_name(name: &[u8]) -> (&[u8], bool) {
        name.strip_suffix(b" (deleted)").map_or((name, false), |name| (name, true))
    }

    /// Whether it maps a file that has a path (not anonymous memory, not a pseudo name).
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.name.starts_with(b"/")
    }
}

/// The one of `maps`, which are in address order, that holds `addr`.
pub fn map_at(maps: &[MapEntry], addr: RemoteAddr) -> Option<&MapEntry> {
    let behind = maps.partition_point(|map| map.start <= addr);
    maps.get(behind.checked_sub(1)?).filter(|map| map.contains(addr))
}

/// Decodes a `maps` file, line by line. A line that does not parse is skipped and counted: the
/// second value says how many.
pub fn parse_maps(bytes: &[u8]) -> (Vec<MapEntry>, usize) {
    let mut entries = Vec::new();
    let mut bad = 0;
    for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        match parse_line(line) {
            Some(entry) => entries.push(entry),
            None => bad += 1,
        }
    }
    (entries, bad)
}

fn parse_line(line: &[u8]) -> Option<MapEntry> {
    let mut fields = line.splitn(6, |b| *b == b' ');
    let range = fields.next()?;
    let dash = range.iter().position(|b| *b == b'-')?;
    let (start, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
    let perms = fields.next().filter(|perms| perms.len() >= 4)?;
    let offset = hex(fields.next()?)?;
    fields.next()?; // device: not comparable with stat(2) on overlay and btrfs, so not used
    let inode = decimal(fields.next()?)?;
    let name = fields.next().unwrap_or_default().trim_ascii_start();
    let (name, deleted) = MapEntry::split_name(name);
    (start < end).then(|| MapEntry {
        start: RemoteAddr(start),
        end: RemoteAddr(end),
        read: perms[0] == b'r',
        write: perms[1] == b'w',
        exec: perms[2] == b'x',
        shared: perms[3] == b's',
        offset,
        inode,
        name: unescape(name),
        deleted,
    })
}

/// The kernel writes a newline in a file name as `\012`.
fn unescape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = memmem::find(rest, b"\\012") {
        out.extend_from_slice(&rest[..at]);
        out.push(b'\n');
        rest = &rest[at + 4..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_deleted_marks_and_bad_lines() {
        let text = b"1000-2000 r-xp 00001000 08:01 42                         /lib/a b.so (deleted)\n\
            garbage\n\
            3000-4000 rw-p 00000000 00:00 0 \n\
            5000-4000 rw-p 00000000 00:00 0 \n\
            7ff0-7fff rw-s 00000000 00:00 0                          [stack]\n";
        let (maps, bad) = parse_maps(text);
        assert_eq!(bad, 2);
        assert_eq!(maps.len(), 3);
        assert_eq!((maps[0].name.as_slice(), maps[0].deleted, maps[0].exec), (&b"/lib/a b.so"[..], true, true));
        assert!(maps[0].is_file() && !maps[1].is_file() && !maps[2].is_file());
        assert!(maps[2].shared && maps[2].contains(RemoteAddr(0x7ff0)) && !maps[2].contains(RemoteAddr(0x7fff)));
    }

    #[test]
    fn agrees_with_the_procfs_crate_on_this_process() {
        let bytes = std::fs::read("/proc/self/maps").unwrap();
        let (ours, bad) = parse_maps(&bytes);
        let theirs: procfs::process::MemoryMaps = procfs::FromRead::from_read(bytes.as_slice()).unwrap();
        assert_eq!(bad, 0);
        assert_eq!(ours.len(), theirs.0.len());
        for (ours, theirs) in ours.iter().zip(&theirs.0) {
            assert_eq!((ours.start.0, ours.end.0), theirs.address);
            assert_eq!((ours.offset, ours.inode), (theirs.offset, theirs.inode));
        }
    }
}

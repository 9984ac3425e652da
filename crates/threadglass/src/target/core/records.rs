//! The records inside a core's notes, decoded from bytes. Layouts are those of the kernel's
//! `elf_prstatus`, `elf_prpsinfo`, `siginfo_t` and `NT_FILE` on 64-bit machines.

use crate::arch::GeneralRegisters;
use crate::elf::{u16_at, u32_at, u64_at};
use crate::model::SignalSet;
use crate::proc::MapEntry;
use crate::{Lwp, Pid, RemoteAddr};

/// `NT_PRSTATUS`: one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadStatus {
    pub(super) lwp: Lwp,
    /// The signal it was dumped for.
    pub(super) signal: u32,
    pub(super) pending: SignalSet,
    pub(super) blocked: SignalSet,
    /// User and system time in hundredths of a second.
    pub(super) cpu_ticks: (u64, u64),
    pub(super) registers: GeneralRegisters,
}

impl ThreadStatus {
    /// `None` when it is too short, or no thread's.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        const REGISTERS: usize = 112;
        let registers = GeneralRegisters::from_bytes(bytes.get(REGISTERS..)?)?;
        let ticks = |at| u64_at(bytes, at).saturating_mul(100).saturating_add(u64_at(bytes, at + 8) / 10_000);
        let lwp = u32_at(bytes, 32) as i32;
        (lwp > 0).then(|| Self {
            lwp: Lwp(lwp),
            signal: u32::from(u16_at(bytes, 12)),
            pending: SignalSet(u64_at(bytes, 16)),
            blocked: SignalSet(u64_at(bytes, 24)),
            cpu_ticks: (ticks(48), ticks(64)),
            registers,
        })
    }
}

/// `NT_PRPSINFO`: the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessInfo {
    pub(super) pid: Pid,
    pub(super) uid: u32,
    pub(super) name: Vec<u8>,
    pub(super) command: Vec<u8>,
}

impl ProcessInfo {
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let text = |bytes: &[u8]| bytes.iter().copied().take_while(|byte| *byte != 0).collect::<Vec<_>>();
        let (name, command) = (bytes.get(40..56)?, bytes.get(56..136)?);
        let pid = u32_at(bytes, 24) as i32;
        (pid > 0).then(|| Self {
            pid: Pid(pid),
            uid: u32_at(bytes, 16),
            name: text(name),
            command: text(command).trim_ascii_end().to_vec(),
        })
    }
}

/// `NT_SIGINFO`: why the signal came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SignalInfo {
    pub(super) signal: u32,
    pub(super) fault_address: Option<RemoteAddr>,
    pub(super) sender: Option<i32>,
}

impl SignalInfo {
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        const FAULTS: [u32; 4] = [4, 7, 8, 11];
        /// SI_KERNEL: raised by the kernel without an address that would mean anything.
        const BY_KERNEL: i32 = 0x80;
        if bytes.len() < 24 {
            return None;
        }
        let (signal, code) = (u32_at(bytes, 0), u32_at(bytes, 8) as i32);
        let faulted = FAULTS.contains(&signal) && code > 0 && code != BY_KERNEL;
        // SI_USER, SI_QUEUE and SI_TKILL come with the sender's pid.
        let sent = matches!(code, 0 | -1 | -6);
        Some(Self {
            signal,
            fault_address: faulted.then(|| RemoteAddr(u64_at(bytes, 16))),
            sender: sent.then(|| u32_at(bytes, 16) as i32).filter(|pid| *pid > 0),
        })
    }
}

/// One mapping of a file, from `NT_FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileMapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Bytes into the file.
    pub(super) offset: u64,
    pub(super) name: Vec<u8>,
    pub(super) deleted: bool,
}

/// Mappings of files that are kept: twice as many as a process may have mappings, unless it is told otherwise.
const MAX_FILES: usize = 1 << 17;
/// No path is longer.
pub(super) const MAX_NAME: usize = 4096;

/// Decodes `NT_FILE`: mappings in address order, and whether some could not be.
pub(super) fn decode_files(bytes: &[u8]) -> (Vec<FileMapping>, bool) {
    const ENTRY: usize = 24;
    if bytes.len() < 16 {
        return (Vec::new(), true);
    }
    let (count, page) = (u64_at(bytes, 0), u64_at(bytes, 8));
    let room = (bytes.len() - 16) / ENTRY;
    let Some(count) = usize::try_from(count).ok().filter(|count| *count <= room) else { return (Vec::new(), true) };
    let (table, names) = bytes[16..].split_at(count * ENTRY);
    let mut names = names.split(|byte| *byte == 0);
    let mut mappings: Vec<_> = table
        .chunks_exact(ENTRY)
        .take(MAX_FILES)
        .filter_map(|entry| {
            let (name, deleted) = MapEntry::split_name(names.next().filter(|name| name.len() <= MAX_NAME)?);
            let (start, end) = (u64_at(entry, 0), u64_at(entry, 8));
            let offset = u64_at(entry, 16).checked_mul(page)?;
            (start < end).then(|| FileMapping { start, end, offset, name: name.to_vec(), deleted })
        })
        .collect();
    mappings.sort_by_key(|mapping| mapping.start);
    // Mappings do not overlap; a list that says so lies, and the later ones are left out.
    let mut end = 0;
    mappings.retain(|mapping| {
        let fits = mapping.start >= end;
        if fits {
            end = mapping.end;
        }
        fits
    });
    let torn = mappings.len() < count;
    (mappings, torn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_note(entries: &[(u64, u64, u64)], names: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        note.extend((entries.len() as u64).to_le_bytes());
        note.extend(4096u64.to_le_bytes());
        for (start, end, page) in entries {
            [start, end, page].iter().for_each(|word| note.extend(word.to_le_bytes()));
        }
        note.extend(names);
        note
    }

    #[test]
    fn files_with_lies_about_counts_ranges_and_names() {
        let (files, torn) =
            decode_files(&file_note(&[(0x1000, 0x2000, 0), (0x2000, 0x4000, 3)], b"/a\0/b (deleted)\0"));
        assert!(!torn);
        assert_eq!((files[1].offset, files[1].name.as_slice(), files[1].deleted), (0x3000, &b"/b"[..], true));
        for (entries, names) in [
            (&[(0x1000, 0x2000, 0), (0x1800, 0x4000, 3)][..], &b"/a\0/b\0"[..]),
            (&[(0x2000, 0x1000, 0)], b"/a\0"),
            (&[(0x1000, 0x2000, u64::MAX)], b"/a\0"),
            (&[(0x1000, 0x2000, 0), (0x3000, 0x4000, 0)], b""),
        ] {
            assert!(decode_files(&file_note(entries, names)).1, "{entries:?}");
        }
        let mut lying = file_note(&[(0x1000, 0x2000, 0)], b"/a\0");
        lying[7] = 0xff;
        assert_eq!(decode_files(&lying), (Vec::new(), true));
        for cut in 0..16 {
            assert!(decode_files(&lying[..cut]).1);
        }
    }

    #[test]
    fn short_records_are_none() {
        assert_eq!(ThreadStatus::decode(&[1; 327]), None);
        assert!(ThreadStatus::decode(&[1; 328]).is_some());
        assert_eq!(ThreadStatus::decode(&[0; 336]), None, "no thread has the number 0");
        assert_eq!(ProcessInfo::decode(&[1; 135]), None);
        assert_eq!(SignalInfo::decode(&[1; 23]), None);
    }
}

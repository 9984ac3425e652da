//! A core's notes: a walk over their headers that reads only the records of use.

use super::header::Headers;
use super::records::{FileMapping, ProcessInfo, SignalInfo, ThreadStatus, decode_files};
use super::source::ByteSource;
use crate::Lwp;
use crate::arch::EXTENDED_STATE;
use crate::elf::{PT_NOTE, u32_at};
use crate::model::CoreWriter;
use crate::proc::{AuxVector, parse_auxv};
use std::collections::HashMap;

const NT_PRSTATUS: u32 = 1;
const NT_FPREGSET: u32 = 2;
const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
const NT_FILE: u32 = 0x4649_4c45;
const NT_SIGINFO: u32 = 0x5349_4749;

/// Threads that are kept. A process with the usual limit of mappings has a quarter as many; what is told of each takes
/// some kilobytes.
pub(super) const MAX_THREADS: usize = 1 << 17;
/// Notes that are walked over: ten for each of twice as many threads. Threads that are left out are counted so far.
const MAX_NOTES: usize = MAX_THREADS * 20;
/// Records larger than this are not read. The largest is the list of files, which the kernel limits to
/// 4 MiB unless told otherwise.
const MAX_RECORD: u64 = 16 << 20;
/// The same for the auxiliary vector, which has some twenty pairs of words.
const MAX_AUXV: u64 = 64 << 10;
/// What is read at once. A thread's vector registers alone take up to 11 KiB and are skipped, so a
/// larger piece would mostly read those.
const WINDOW: usize = 4096;

/// A part of the core file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileExtent {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// What the notes say of one thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadNotes {
    pub(super) status: ThreadStatus,
    pub(super) floating: Option<FileExtent>,
    pub(super) extended: Option<FileExtent>,
}

/// All that is used of the notes.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) writer: CoreWriter,
    pub(super) threads: Vec<ThreadNotes>,
    /// Where each is among them.
    by_lwp: HashMap<Lwp, usize>,
    pub(super) process: Option<ProcessInfo>,
    pub(super) signal: Option<SignalInfo>,
    pub(super) auxv: Option<AuxVector>,
    /// The files that were mapped, if there is a list of them.
    pub(super) files: Option<Vec<FileMapping>>,
    /// Threads that were left out, because there are so many.
    pub(super) more_threads: usize,
    /// What is wrong with them.
    pub(super) faults: Vec<&'static str>,
}

impl Notes {
    /// Reads the notes of a core.
    pub(super) fn read(source: &dyn ByteSource, headers: &Headers) -> Self {
        let mut notes = Self::default();
        let mut left = MAX_NOTES;
        for header in headers.of_kind(PT_NOTE) {
            let mut walk = NoteWalk::new(source, header.offset, header.file_size);
            while let Some((kind, record)) = walk.next() {
                left -= 1;
                if left == 0 {
                    notes.fault("there are more than a process can have");
                    return notes;
                }
                notes.take(&mut walk, kind, record);
            }
            if let Some(fault) = walk.fault {
                notes.fault(fault);
            }
        }
        notes
    }

    /// Whether every thread of the process is in them, as far as can be told.
    pub(super) fn are_whole(&self) -> bool {
        self.faults.is_empty() && self.more_threads == 0
    }

    fn fault(&mut self, what: &'static str) {
        if !self.faults.contains(&what) {
            self.faults.push(what);
        }
    }

    /// What the notes say of a thread.
    pub(super) fn thread(&self, lwp: Lwp) -> Option<&ThreadNotes> {
        self.by_lwp.get(&lwp).map(|index| &self.threads[*index])
    }

    fn take(&mut self, walk: &mut NoteWalk<'_>, kind: u32, record: FileExtent) {
        match kind {
            NT_PRSTATUS => match walk.read(record, 336).and_then(ThreadStatus::decode) {
                Some(_) if self.threads.len() == MAX_THREADS => self.more_threads += 1,
                Some(status) if !self.by_lwp.contains_key(&status.lwp) => {
                    self.by_lwp.insert(status.lwp, self.threads.len());
                    self.threads.push(ThreadNotes { status, floating: None, extended: None });
                }
                Some(_) => self.fault("a thread is in them twice"),
                None => self.fault("the record of a thread is too short"),
            },
            NT_PRPSINFO => {
                // The kernel begins with the thread that died; gdb, lldb and others with the process.
                if self.threads.is_empty() {
                    self.writer = CoreWriter::Debugger;
                }
                if self.process.is_none() {
                    self.process = walk.read(record, 136).and_then(ProcessInfo::decode);
                }
            }
            NT_SIGINFO if self.signal.is_none() => {
                self.signal = walk.read(record, 128).and_then(SignalInfo::decode);
            }
            NT_AUXV if self.auxv.is_none() => match whole(walk.source, record, MAX_AUXV) {
                Some(bytes) => self.auxv = Some(parse_auxv(&bytes)),
                None => self.fault("the auxiliary vector cannot be read"),
            },
            NT_FILE if self.files.is_none() => match whole(walk.source, record, MAX_RECORD) {
                Some(bytes) => {
                    let (files, torn) = decode_files(&bytes);
                    self.files = Some(files);
                    if torn {
                        self.fault("the list of mapped files contradicts itself, or is too long");
                    }
                }
                None => self.fault("the list of mapped files cannot be read"),
            },
            NT_FPREGSET | EXTENDED_STATE => {
                if let Some(thread) = self.threads.last_mut() {
                    let registers = if kind == NT_FPREGSET { &mut thread.floating } else { &mut thread.extended };
                    registers.get_or_insert(record);
                }
            }
            _ => {}
        }
    }
}

/// All bytes of a record, if there are not more than `most`.
pub(super) fn whole(source: &dyn ByteSource, record: FileExtent, most: u64) -> Option<Vec<u8>> {
    if record.len > most || record.offset.checked_add(record.len)? > source.size() {
        return None;
    }
    let mut bytes = vec![0; record.len as usize];
    source.read_whole(record.offset, &mut bytes).then_some(bytes)
}

/// A walk along the notes of one segment, through a small window on the file.
struct NoteWalk<'a> {
    source: &'a dyn ByteSource,
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
    fault: Option<&'static str>,
}

impl<'a> NoteWalk<'a> {
    fn new(source: &'a dyn ByteSource, offset: u64, len: u64) -> Self {
        let end = offset.saturating_add(len);
        let fault = (end > source.size()).then_some("the file ends before they do");
        Self { source, at: offset, end: end.min(source.size()), window: Vec::new(), window_at: 0, fault }
    }

    /// `len` bytes at `at`, which is at most a window.
    fn bytes(&mut self, at: u64, len: usize) -> Option<&[u8]> {
        let inside = |walk: &Self| {
            let skip = usize::try_from(at.checked_sub(walk.window_at)?).ok()?;
            (skip.checked_add(len)? <= walk.window.len()).then_some(skip)
        };
        if inside(self).is_none() {
            self.window.resize(WINDOW, 0);
            let got = self.source.read_at(at, &mut self.window);
            self.window.truncate(got);
            self.window_at = at;
        }
        let skip = inside(self)?;
        Some(&self.window[skip..skip + len])
    }

    /// The first bytes of a record, `most` at most.
    fn read(&mut self, record: FileExtent, most: u64) -> Option<&[u8]> {
        self.bytes(record.offset, record.len.min(most) as usize)
    }

    fn stop<T>(&mut self, fault: &'static str) -> Option<T> {
        self.fault = Some(fault);
        None
    }

    /// The next note's kind and record.
    fn next(&mut self) -> Option<(u32, FileExtent)> {
        if self.end.saturating_sub(self.at) < 12 {
            return None;
        }
        let at = self.at;
        let Some(head) = self.bytes(at, 12) else { return self.stop("they cannot be read to their end") };
        let (name, len, mut kind) = (u64::from(u32_at(head, 0)), u64::from(u32_at(head, 4)), u32_at(head, 8));
        if (name, len, kind) == (0, 0, 0) {
            return self.stop("they end in zeros");
        }
        let record = FileExtent { offset: at + 12 + name.next_multiple_of(4), len };
        self.at = record.offset + len.next_multiple_of(4);
        // The last one may lack its padding, but not its bytes.
        if record.offset + len > self.end {
            return self.stop("one of them is too long");
        }
        // Numbers mean what they mean here only under these names.
        let owner: &[u8] = if kind == EXTENDED_STATE { b"LINUX\0" } else { b"CORE\0" };
        if name != owner.len() as u64 || self.bytes(at + 12, owner.len()) != Some(owner) {
            kind = 0;
        }
        Some((kind, record))
    }
}

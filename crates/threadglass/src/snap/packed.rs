//! The file itself: a list of its parts, and the parts, packed.
//!
//! ```text
//!  0  8   89 'T' 'G' 'S' 0d 0a 1a 0a   (a copy as text, or one with seven bits, is noticed by this)
//!  8  4   format
//! 12  4   length of the list
//! 16  4   CRC-32 of bytes 0 to 16 and of the list
//! 20  n   the list, as JSON: who wrote it, and of each part its name, length, length unpacked, CRC-32
//!         the parts, one behind the other, each a zstd frame of JSON
//! ```
//!
//! Numbers are little-endian. Every byte is in one of the sums, and nothing follows the last part. In all formats the list
//! stands where it does here and has `written_by`, so that a file of a newer one can be refused by name.

use super::SnapFault;
use flate2::Crc;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// The format that is written, and the newest that is read.
pub const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"\x89TGS\r\n\x1a\n";
const HEAD: usize = 20;
/// A list has some lines for each part and each mapped file.
const MAX_LIST: u32 = 4 << 20;
const MAX_PARTS: usize = 64;
/// One part unpacked. What is made of it takes up to twenty times as much memory.
const MAX_PART: u64 = 128 << 20;
/// The window of a frame.
const MAX_WINDOW: u64 = 32 << 20;

/// Whether a file that begins with `head` is a snapshot, or was one.
pub fn is_snapshot(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// A part in the list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) name: String,
    packed: u64,
    unpacked: u64,
    crc: u32,
}

impl Entry {
    fn senseless(&self, why: &str) -> SnapFault {
        SnapFault::Senseless(format!("its part `{}` {why}", self.name))
    }
}

/// What the file says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct List<About> {
    written_by: String,
    pub(super) about: About,
    parts: Vec<Entry>,
}

/// What every format has.
#[derive(Deserialize)]
struct AnyList {
    written_by: String,
}

fn crc(pieces: &[&[u8]]) -> u32 {
    let mut crc = Crc::new();
    pieces.iter().for_each(|piece| crc.update(piece));
    crc.sum()
}

/// Parts that are being put together.
#[derive(Debug, Default)]
pub(super) struct Packer {
    parts: Vec<Entry>,
    bytes: Vec<u8>,
}

impl Packer {
    /// Adds a part. `false`, and no change, if it is larger than a reader takes.
    pub(super) fn add(&mut self, name: &str, content: &impl Serialize) -> serde_json::Result<bool> {
        Ok(self.add_text(name, &serde_json::to_vec(content)?))
    }

    fn add_text(&mut self, name: &str, text: &[u8]) -> bool {
        if text.len() as u64 > MAX_PART {
            return false;
        }
        let packed = ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest);
        self.parts.push(Entry {
            name: name.to_owned(),
            packed: packed.len() as u64,
            unpacked: text.len() as u64,
            crc: crc(&[&packed]),
        });
        self.bytes.extend(packed);
        true
    }

    /// The whole file.
    pub(super) fn finish(self, written_by: &str, about: &impl Serialize) -> serde_json::Result<Vec<u8>> {
        let list = serde_json::to_vec(&List { written_by: written_by.to_owned(), about, parts: self.parts })?;
        Ok([head(FORMAT, &list).as_slice(), &list, &self.bytes].concat())
    }
}

/// A file whose sums are right, whatever its texts say: for tests and fuzzing.
#[cfg(feature = "internals")]
pub fn of_texts(about: &str, parts: &[(&str, &[u8])]) -> Option<Vec<u8>> {
    let mut packer = Packer::default();
    if !parts.iter().all(|(name, text)| packer.add_text(name, text)) {
        return None;
    }
    packer.finish("a test", &serde_json::from_str::<serde_json::Value>(about).ok()?).ok()
}

fn head(format: u32, list: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&format.to_le_bytes());
    head[12..16].copy_from_slice(&(list.len() as u32).to_le_bytes());
    let sum = crc(&[&head[..16], list]);
    head[16..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// A file that has been opened: its bytes are read when they are asked for.
#[derive(Debug)]
pub(super) struct Unpacker<About> {
    file: Source,
    length: u64,
    pub(super) list: List<About>,
    /// Where the parts begin.
    start: u64,
}

/// Where the bytes of a file are.
pub(super) type Source = Box<dyn ReadAt + Send + Sync>;

/// Bytes at an offset: all of `buf`, or an error.
pub(super) trait ReadAt: std::fmt::Debug {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()>;
}

impl ReadAt for std::fs::File {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buf, offset)
    }
}

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let bytes = rest.get(..buf.len()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

impl<About: for<'de> Deserialize<'de>> Unpacker<About> {
    /// Reads the list of a file of `length` bytes.
    pub(super) fn open(file: Source, length: u64) -> Result<Self, SnapFault> {
        let mut head = [0; HEAD];
        let has = length.min(HEAD as u64) as usize;
        file.read_exact_at(&mut head[..has], 0)?;
        let begins = &head[..has.min(MAGIC.len())];
        if begins.is_empty() || !MAGIC.starts_with(begins) {
            return Err(SnapFault::NotASnapshot);
        }
        if has < HEAD {
            return Err(SnapFault::Cut { has: length, wanted: HEAD as u64 });
        }
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (format, size, sum) = (number(8), number(12), number(16));
        let damaged = || SnapFault::Damaged { what: "its list of contents".to_owned() };
        if size > MAX_LIST {
            return Err(damaged());
        }
        let start = HEAD as u64 + u64::from(size);
        if start > length {
            return Err(SnapFault::Cut { has: length, wanted: start });
        }
        let mut text = vec![0; size as usize];
        file.read_exact_at(&mut text, HEAD as u64)?;
        if crc(&[&head[..16], &text]) != sum {
            return Err(damaged());
        }
        if format > FORMAT {
            let by = serde_json::from_slice(&text)
                .map_or_else(|_| "a newer version".to_owned(), |it: AnyList| it.written_by);
            return Err(SnapFault::Newer { format, by });
        }
        if format == 0 {
            return Err(SnapFault::Senseless("there is no format 0".to_owned()));
        }
        let list: List<About> =
            serde_json::from_slice(&text).map_err(|error| SnapFault::Senseless(error.to_string()))?;
        if list.parts.len() > MAX_PARTS {
            return Err(SnapFault::Senseless(format!("it has {} parts", list.parts.len())));
        }
        let unpacker = Self { file, length, list, start };
        let wanted = unpacker.list.parts.iter().try_fold(start, |sum, part| sum.checked_add(part.packed));
        match wanted {
            None => Err(SnapFault::Senseless("its parts are longer than any file".to_owned())),
            Some(wanted) if wanted < length => {
                Err(SnapFault::Damaged { what: format!("what follows its {wanted} bytes") })
            }
            Some(_) => Ok(unpacker),
        }
    }

    pub(super) fn written_by(&self) -> &str {
        &self.list.written_by
    }

    /// How long the file would be if nothing were missing.
    pub(super) fn whole_length(&self) -> u64 {
        self.list.parts.iter().fold(self.start, |sum, part| sum.saturating_add(part.packed))
    }

    /// Compares every part with its sum.
    pub(super) fn check(&self) -> Result<(), SnapFault> {
        self.places().try_for_each(|(part, at)| self.packed(part, at).map(drop))
    }

    /// The parts, and where each begins.
    fn places(&self) -> impl Iterator<Item = (&Entry, u64)> {
        let mut next = self.start;
        self.list.parts.iter().map(move |part| {
            let at = next;
            next = next.saturating_add(part.packed);
            (part, at)
        })
    }

    /// What is in the part of this name. A part that is whole can be read where others are not.
    pub(super) fn part<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<T, SnapFault> {
        let found = self.places().find(|(part, _)| part.name == name);
        let (part, at) = found.ok_or_else(|| SnapFault::Senseless(format!("it has no part `{name}`")))?;
        let text = self.unpack(part, at)?;
        serde_json::from_slice(&text).map_err(|error| SnapFault::Senseless(format!("its part `{name}`: {error}")))
    }

    /// A part as it is in the file.
    fn packed(&self, part: &Entry, at: u64) -> Result<Vec<u8>, SnapFault> {
        let end = at.saturating_add(part.packed);
        if end > self.length {
            return Err(SnapFault::Cut { has: self.length, wanted: self.whole_length() });
        }
        if part.packed > MAX_PART {
            return Err(part.senseless("is too large"));
        }
        let mut packed = vec![0; part.packed as usize];
        self.file.read_exact_at(&mut packed, at)?;
        if crc(&[&packed]) != part.crc {
            return Err(SnapFault::Damaged { what: format!("its part `{}`", part.name) });
        }
        Ok(packed)
    }

    fn unpack(&self, part: &Entry, at: u64) -> Result<Vec<u8>, SnapFault> {
        if part.unpacked > MAX_PART {
            return Err(part.senseless("is too large"));
        }
        let packed = self.packed(part, at)?;
        let badly_packed = || part.senseless("is not packed as it should be");
        let (mut rest, mut text) = (&*packed, Vec::new());
        let frame = ruzstd::decoding::StreamingDecoder::new_with_max_window_size(&mut rest, MAX_WINDOW);
        let frame = frame.map_err(|_| badly_packed())?;
        // One byte more would show that it is longer than it says.
        frame.take(part.unpacked + 1).read_to_end(&mut text).map_err(|_| badly_packed())?;
        if text.len() as u64 != part.unpacked || !rest.is_empty() {
            return Err(part.senseless("has another length than it says"));
        }
        Ok(text)
    }
}

//! A snapshot that has been opened.

use super::counters::Counters;
use super::objects::MappedFile;
use super::packed::Unpacker;
use super::{Kept, Part, SnapError, SnapFault};
use crate::model::{Snapshot, SnapshotFile, TargetInfo, TsdSnapshot};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Names of the parts that answer no question of a user by themselves.
pub(super) const COUNTERS_BEFORE: &str = "counters before";
pub(super) const COUNTERS_AFTER: &str = "counters after";

/// What a snapshot says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) target: TargetInfo,
    pub(super) taken_at_ms: u64,
    pub(super) redacted: bool,
    /// Which process it was, where that can be told.
    pub(super) process: Option<Started>,
    /// The files that the process had mapped as code.
    pub(super) files: Vec<MappedFile>,
}

/// What no other process has: when it was started, and in which life of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Started {
    pub(super) ticks: u64,
    pub(super) boot: String,
}

/// A snapshot.
#[derive(Debug)]
pub struct Snap {
    path: PathBuf,
    parts: Unpacker<About>,
}

impl Snap {
    /// Opens the snapshot at `path`. What it has is read when it is asked for.
    pub fn open(path: &Path) -> Result<Self, SnapError> {
        let open = || -> Result<_, SnapFault> {
            let file = File::open(path)?;
            let about = file.metadata()?;
            if !about.is_file() {
                return Err(SnapFault::NotASnapshot);
            }
            Unpacker::open(Box::new(file), about.len())
        };
        Ok(Self { parts: open().map_err(|fault| fault.at(path))?, path: path.to_owned() })
    }

    /// A snapshot that is in memory, as [`take`](super::take) makes it; `name` is what it is called.
    pub fn of_bytes(bytes: Vec<u8>, name: &str) -> Result<Self, SnapError> {
        let (path, length) = (PathBuf::from(name), bytes.len() as u64);
        let parts = Unpacker::open(Box::new(bytes), length);
        Ok(Self { parts: parts.map_err(|fault| fault.at(&path))?, path })
    }

    /// Reads all of it, and compares it with the sums that were written: whether it has arrived as it was.
    pub fn check(&self) -> Result<(), SnapError> {
        self.parts.check().map_err(|fault| fault.at(&self.path))
    }

    /// What was looked at.
    pub fn target(&self) -> TargetInfo {
        TargetInfo { snapshot: Some(self.file()), ..self.about().target.clone() }
    }

    /// The file, as answers name it.
    pub fn file(&self) -> SnapshotFile {
        SnapshotFile {
            path: self.path.display().to_string(),
            taken_at_ms: self.about().taken_at_ms,
            written_by: self.parts.written_by().to_owned(),
            redacted: self.about().redacted,
        }
    }

    pub(super) fn about(&self) -> &About {
        &self.parts.list.about
    }

    /// The answer to a question, other than [`Part::Data`].
    pub fn answer(&self, part: Part) -> Result<Snapshot, SnapError> {
        let answer = self.part::<Kept<Snapshot>>(part.name())?;
        let mut snapshot = self.or_refused(answer)?;
        snapshot.target.snapshot = Some(self.file());
        Ok(snapshot)
    }

    /// Thread-specific data.
    pub fn data(&self) -> Result<TsdSnapshot, SnapError> {
        let answer = self.part::<Kept<TsdSnapshot>>(Part::Data.name())?;
        let mut data = self.or_refused(answer)?;
        data.target.snapshot = Some(self.file());
        Ok(data)
    }

    /// What tells of each thread whether it has run: before all the answers were taken, and after.
    pub(super) fn counters(&self) -> Result<[Vec<Counters>; 2], SnapError> {
        Ok([self.part(COUNTERS_BEFORE)?, self.part(COUNTERS_AFTER)?])
    }

    fn part<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<T, SnapError> {
        self.parts.part(name).map_err(|fault| fault.at(&self.path))
    }

    fn or_refused<T>(&self, answer: Kept<T>) -> Result<T, SnapError> {
        match answer {
            Kept::Answer(answer) => Ok(answer),
            Kept::Refused { why, remedy } => Err(SnapFault::Refused { why, remedy }.at(&self.path)),
        }
    }
}

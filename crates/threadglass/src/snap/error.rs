//! Why a file cannot be asked as a snapshot.

use super::packed::FORMAT;
use crate::model::Remedy;
use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a snapshot, or with what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct SnapError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: SnapFault,
}

/// What is wrong with a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapFault {
    /// The system refuses.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("is not a snapshot: it does not begin as one")]
    NotASnapshot,
    /// A version that this one does not know.
    #[error("is of format {format}, written by {by}: this version reads formats up to {FORMAT} (use a newer one)")]
    Newer {
        /// Its format.
        format: u32,
        /// What wrote it, as far as it can be read.
        by: String,
    },
    /// Bytes at its end are missing.
    #[error("is cut off: it has {has} bytes of {wanted} (copy it again)")]
    Cut {
        /// How long it is.
        has: u64,
        /// How long it was.
        wanted: u64,
    },
    /// A byte has changed.
    #[error("is damaged: {what} is not what was written (copy it again)")]
    Damaged {
        /// The part of it.
        what: String,
    },
    /// It says of itself what cannot be.
    #[error("makes no sense: {0}")]
    Senseless(String),
    /// The target did not answer this when the snapshot was taken.
    #[error("{why}")]
    Refused {
        /// What it said.
        why: String,
        /// What could have been done.
        remedy: Option<Remedy>,
    },
}

impl SnapFault {
    pub(super) fn at(self, path: &Path) -> SnapError {
        SnapError { path: path.to_owned(), fault: self }
    }
}

impl SnapError {
    /// What could be done, where that takes a command of the face.
    pub fn remedy(&self) -> Option<Remedy> {
        match self.fault {
            SnapFault::Refused { remedy, .. } => remedy,
            _ => None,
        }
    }
}

//! How a fact is known, and what could not be known.

use crate::Lwp;

/// How a fact is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Evidence {
    /// The object or the kernel says so.
    Recorded,
    /// Follows from recorded facts.
    Derived,
    /// The best explanation of what was seen.
    Inferred,
    /// Not known; a [`Gap`] says why.
    Unknown,
}

/// Something that could not be read or told, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Gap {
    /// What is missing.
    pub what: String,
    /// Why, and where possible how to get it.
    pub why: String,
    /// The threads concerned; empty when it concerns the whole target.
    pub lwps: Vec<Lwp>,
}

impl Gap {
    /// A gap that concerns the whole target.
    pub fn whole(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), lwps: Vec::new() }
    }

    /// Adds a gap of one thread to `gaps`, joined with an equal one of another thread.
    pub fn of_thread(gaps: &mut Vec<Self>, what: &str, why: &str, lwp: Lwp) {
        match gaps.iter_mut().find(|gap| gap.what == what && gap.why == why) {
            Some(gap) => gap.lwps.push(lwp),
            None => gaps.push(Self { what: what.to_owned(), why: why.to_owned(), lwps: vec![lwp] }),
        }
    }
}

//! How a fact is known, and what could not be known.

use super::Remedy;
use crate::Lwp;

/// How a fact is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
pub enum Evidence {
    /// The object or the kernel says so.
    Recorded,
    /// Follows from recorded facts.
    Derived,
    /// The best explanation of what was seen.
    Inferred,
    /// Not known; a [`Gap`] says why.
    #[default]
    Unknown,
}

/// Something that could not be read or told, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Gap {
    /// What is missing.
    pub what: String,
    /// Why.
    pub why: String,
    /// How to get it, where that takes a command of the face.
    pub remedy: Option<Remedy>,
    /// The threads concerned; empty when it concerns the whole target.
    pub lwps: Vec<Lwp>,
}

impl Gap {
    /// A gap that concerns the whole target.
    pub fn whole(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), remedy: None, lwps: Vec::new() }
    }

    /// The same, with what could be done about it.
    pub(crate) fn with(self, remedy: impl Into<Option<Remedy>>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }

    /// Adds a gap of one thread to `gaps`, joined with an equal one of another thread.
    pub fn of_thread(gaps: &mut Vec<Self>, what: &str, why: &str, lwp: Lwp) {
        Self::whole(what, why).add_of_thread(gaps, lwp);
    }

    /// [`Self::of_thread`], of a gap that may have a remedy.
    pub(crate) fn add_of_thread(self, gaps: &mut Vec<Self>, lwp: Lwp) {
        match gaps.iter_mut().find(|gap| gap.what == self.what && gap.why == self.why) {
            Some(gap) => gap.lwps.push(lwp),
            None => gaps.push(Self { lwps: vec![lwp], ..self }),
        }
    }
}

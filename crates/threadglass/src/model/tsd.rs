//! Thread-specific data of a whole target.

use super::words::Word;
use super::{Gap, TargetInfo};
use crate::{Lwp, PthreadId, RemoteAddr};

/// A key in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct KeyInfo {
    /// Its number.
    pub key: u32,
    /// Its destructor.
    pub destructor: Option<RemoteAddr>,
    /// Name of the function there.
    pub destructor_function: Option<String>,
}

/// One thread's value for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct TsdValue {
    /// Which key.
    pub key: u32,
    /// The pointer the thread stored.
    pub value: RemoteAddr,
}

/// The values of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct ThreadValues {
    /// Its `pthread_t`.
    pub id: PthreadId,
    /// Its LWP; a zombie has none, but keeps values that were not destroyed.
    pub lwp: Option<Lwp>,
    /// Its name.
    pub name: Option<String>,
    /// Its values; keys it never set are left out.
    pub values: Vec<TsdValue>,
}

/// The thread-specific data of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct TsdSnapshot {
    /// [`super::SCHEMA`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::words::known"))]
    pub schema: Word,
    /// Which process.
    pub target: TargetInfo,
    /// For how long it was stopped, in microseconds.
    pub pause_us: u64,
    /// Keys in use.
    pub keys: Vec<KeyInfo>,
    /// Values by thread; threads without any are left out.
    pub threads: Vec<ThreadValues>,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
}

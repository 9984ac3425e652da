//! Frames of a thread's stack.

use super::Evidence;
use crate::RemoteAddr;

/// One frame. Functions that the compiler has put into others have frames of their own, before that of
/// the function they are in, with the same `pc`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct Frame {
    /// The innermost frame's program counter; further out, the address the call returns to.
    pub pc: RemoteAddr,
    /// Name of the function, demangled; `None` where no table names one.
    pub function: Option<String>,
    /// Name of the object's file; of the program, the name that it was started by.
    pub module: Option<String>,
    /// Bytes from the function's start to `pc`; from the object's start where no function is known.
    pub offset: Option<u64>,
    /// Source file, where there is debug information.
    pub file: Option<String>,
    /// Line in it.
    pub line: Option<u32>,
    /// Whether this is a function put into the next frame's by the compiler.
    pub inlined: bool,
    /// How the frame is known: `recorded` the innermost, `derived` by unwind rules, `inferred` from a
    /// frame on whose frame pointer had to be concluded from the stack.
    pub evidence: Evidence,
}

/// Why a stack ends where it does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "lowercase"))]
pub enum StackEnd {
    /// The thread's start was reached: nothing is missing.
    Start,
    /// What follows cannot be told.
    Unknown {
        /// Why not.
        why: String,
    },
    /// It is deeper than is followed.
    Limit,
}

/// The function of the C library that a blocked thread's program called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct CallSite {
    /// Its exported name, such as `pthread_mutex_lock`.
    pub function: String,
    /// Where the call returns to.
    pub address: RemoteAddr,
    /// `derived` when the call instruction leads there; `inferred` when only the code around says so.
    pub evidence: Evidence,
}

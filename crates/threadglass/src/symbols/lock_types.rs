//! Which types are locks. The runtimes know that, and implement the trait.

use crate::model::{Family, SyncKind};

/// Knows locks by the names and sizes of their types.
pub trait LockTypes: Sync {
    /// The lock that a name for a type in C stands for.
    fn alias(&self, name: &str) -> Option<(SyncKind, Family)>;

    /// The lock that a structure of Rust is, by the last part of its name; `full` gives the whole of it.
    fn in_rust(&self, name: &str, full: &mut dyn FnMut() -> Option<String>) -> Option<(SyncKind, Family)>;

    /// Whether `function`, as symbols have its name, is a part of how locks are taken.
    fn is_function(&self, function: &str) -> bool;

    /// Sizes by which variables without a type are known.
    fn sizes(&self) -> Vec<(u64, SyncKind, Family)>;
}

//! Languages with threads, tasks or locks of their own.

/// The runtime of a language that a target has loaded, and what of it is not seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub struct LanguageRuntime {
    /// What it is: `CPython`, `Java (HotSpot)`.
    pub name: String,
    /// What only the runtime itself knows.
    pub unseen: String,
    /// The command that shows that; `None` where none is known.
    pub tool: Option<String>,
    /// What the command does to the process.
    pub effect: Option<String>,
    /// Whether some of its own waits are told here. Of the others nothing is.
    pub is_read: bool,
}

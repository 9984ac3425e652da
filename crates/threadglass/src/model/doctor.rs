//! What can be seen from here.

use super::Remedy;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema), serde(rename_all = "lowercase"))]
pub enum CheckVerdict {
    /// Works fully.
    Ok,
    /// Works in part.
    Limited,
    /// Does not work.
    No,
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Check {
    /// What was checked.
    pub subject: &'static str,
    /// How it came out.
    pub verdict: CheckVerdict,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    pub fix: Option<String>,
    /// The same, where a face has a command that is concerned.
    pub remedy: Option<Remedy>,
}

impl Check {
    pub(crate) fn ok(subject: &'static str, detail: impl Into<String>) -> Self {
        Self { subject, verdict: CheckVerdict::Ok, detail: detail.into(), fix: None, remedy: None }
    }

    pub(crate) fn bad(
        subject: &'static str,
        verdict: CheckVerdict,
        detail: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { subject, verdict, detail: detail.into(), fix: Some(fix.into()), remedy: None }
    }
}

/// All that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Doctor {
    /// [`super::SCHEMA`].
    pub schema: &'static str,
    /// This machine and user.
    pub host: Vec<Check>,
    /// The process, if one was named.
    pub target: Option<Vec<Check>>,
}

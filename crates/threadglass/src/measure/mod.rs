//! Counting and sampling over time.

#[cfg(feature = "agent")]
pub mod contend;
#[cfg(feature = "profile")]
pub mod profile;
pub mod stats;

pub use crate::table::TrackError;

//! Counting and sampling over time.

#[cfg(feature = "agent")]
pub mod contend;
#[cfg(feature = "profile")]
pub mod profile;
pub mod stats;

pub use crate::table::TrackError;
use std::collections::HashMap;
use std::hash::Hash;

/// The value of `key`; `None` where there would be more than `most` keys.
fn bounded<K: Eq + Hash, V: Default>(map: &mut HashMap<K, V>, key: K, most: usize) -> Option<&mut V> {
    (map.len() < most || map.contains_key(&key)).then(|| map.entry(key).or_default())
}

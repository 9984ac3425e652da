//! Labels that a program has given its goroutines (`pprof.Do`).

use crate::RemoteAddr;
use crate::memory::{Memory, u64_at};
use std::collections::BTreeMap;

/// Labels of one goroutine that are read, and bytes of each text.
const MAX_LABELS: u64 = 64;
const MAX_TEXT: u64 = 1024;
/// Of a map: entries of a bucket.
const BUCKET: usize = 8;

/// The labels at `address`. Since 1.24 they are a list, before that they were a map: one is never taken for the other, because where
/// the one has a pointer the other has a count.
pub(super) fn read(memory: &dyn Memory, address: u64) -> BTreeMap<String, String> {
    let found = list(memory, address).filter(|labels| !labels.is_empty());
    found.or_else(|| map(memory, address)).unwrap_or_default()
}

fn list(memory: &dyn Memory, address: u64) -> Option<BTreeMap<String, String>> {
    let header = memory.read_vec(RemoteAddr(address), 16).ok()?;
    let (start, count) = (u64_at(&header, 0)?, u64_at(&header, 8)?);
    if count > MAX_LABELS {
        return None;
    }
    let bytes = memory.read_vec(RemoteAddr(start), count as usize * 32).ok()?;
    bytes.chunks_exact(32).map(|pair| Some((text(memory, &pair[..16])?, text(memory, &pair[16..])?))).collect()
}

/// A map of texts with at most one bucket and those that overflow it: few labels have more.
fn map(memory: &dyn Memory, address: u64) -> Option<BTreeMap<String, String>> {
    let map = memory.read_u64(RemoteAddr(address)).ok()?;
    let header = memory.read_vec(RemoteAddr(map), 24).ok()?;
    let (count, bits) = (u64_at(&header, 0)?, *header.get(9)?);
    if count > MAX_LABELS || bits > 3 {
        return None;
    }
    let mut found = BTreeMap::new();
    let buckets = u64_at(&header, 16)?;
    let size = BUCKET + BUCKET * 32 + 8;
    for number in 0..1_u64 << bits {
        let mut bucket = buckets.checked_add(number * size as u64)?;
        for _ in 0..MAX_LABELS {
            let bytes = memory.read_vec(RemoteAddr(bucket), size).ok()?;
            for entry in (0..BUCKET).filter(|entry| bytes[*entry] > 4) {
                let (key, value) = (BUCKET + entry * 16, BUCKET + BUCKET * 16 + entry * 16);
                found.insert(text(memory, &bytes[key..key + 16])?, text(memory, &bytes[value..value + 16])?);
            }
            bucket = u64_at(&bytes, size - 8)?;
            if bucket == 0 {
                break;
            }
        }
    }
    (found.len() as u64 == count).then_some(found)
}

/// The text whose address and length are `header`.
fn text(memory: &dyn Memory, header: &[u8]) -> Option<String> {
    let length = u64_at(header, 8).filter(|length| *length <= MAX_TEXT)?;
    let bytes = memory.read_vec(RemoteAddr(u64_at(header, 0)?), length as usize).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

//! Thread-specific data: keys, destructors, and each thread's values.

use super::layout::{KeyLayout, Layout};
use crate::memory::{Memory, ReadError};
use crate::model::TsdValue;
use crate::runtimes::u64_at;
use crate::{PthreadId, RemoteAddr};

/// A key in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its number, as `pthread_key_create` gave it.
    pub number: u32,
    /// How often the slot was created and deleted; values of an older life do not count.
    pub sequence: u64,
    /// Called with the value when a thread ends; `None` for no destructor.
    pub destructor: Option<RemoteAddr>,
}

/// The keys in use, lowest number first.
pub fn keys(memory: &dyn Memory, layout: &KeyLayout) -> Result<Vec<Key>, ReadError> {
    let table = memory.read_vec(layout.table, (layout.count * layout.stride) as usize)?;
    Ok(decode_keys(layout, &table))
}

/// Decodes the key table; nothing when the layout is not [plausible](KeyLayout::is_plausible).
pub fn decode_keys(layout: &KeyLayout, table: &[u8]) -> Vec<Key> {
    if !layout.is_plausible() {
        return Vec::new();
    }
    (0..)
        .zip(table.chunks_exact(layout.stride as usize))
        .filter_map(|(number, entry)| {
            let sequence = word(entry, layout.seq)?;
            let destructor = word(entry, layout.destructor)?;
            // An even sequence number marks a free slot.
            (sequence % 2 == 1).then(|| Key {
                number,
                sequence,
                destructor: (destructor != 0).then_some(RemoteAddr(destructor)),
            })
        })
        .collect()
}

/// The values that thread `id` has for `keys`. A key it never set is not in the result.
pub fn values(memory: &dyn Memory, layout: &Layout, id: PthreadId, keys: &[Key]) -> Result<Vec<TsdValue>, ReadError> {
    let Some(key_layout) = layout.keys.filter(KeyLayout::is_plausible) else { return Ok(Vec::new()) };
    let blocks = key_layout.count.div_ceil(key_layout.per_block);
    let pointers = memory.read_vec(id.0.offset(layout.specific), blocks as usize * 8)?;

    let mut values = Vec::new();
    let mut rest = keys;
    while let Some(first) = rest.first() {
        let block = u64::from(first.number) / key_layout.per_block;
        let in_block = |key: &Key| u64::from(key.number) / key_layout.per_block == block;
        let (here, later) = rest.split_at(rest.iter().take_while(|key| in_block(key)).count());
        rest = later;
        // A block exists only once the thread has set one of its keys.
        let Some(base) = word(&pointers, block * 8).filter(|base| *base != 0) else { continue };
        values.extend(block_values(memory, &key_layout, RemoteAddr(base), here)?);
    }
    Ok(values)
}

fn block_values(
    memory: &dyn Memory,
    layout: &KeyLayout,
    block: RemoteAddr,
    keys: &[Key],
) -> Result<Vec<TsdValue>, ReadError> {
    let bytes = memory.read_vec(block, (layout.per_block * layout.data_stride) as usize)?;
    Ok(keys
        .iter()
        .filter_map(|key| {
            let at = u64::from(key.number) % layout.per_block * layout.data_stride;
            let entry = bytes.get(at as usize..(at + layout.data_stride) as usize)?;
            // A value of an earlier key with the same number has an older sequence.
            (word(entry, layout.data_seq)? == key.sequence)
                .then(|| Some(TsdValue { key: key.number, value: RemoteAddr(word(entry, layout.data)?) }))?
        })
        .collect())
}

fn word(bytes: &[u8], at: u64) -> Option<u64> {
    u64_at(bytes, usize::try_from(at).ok()?)
}

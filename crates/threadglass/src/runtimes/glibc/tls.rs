//! Thread-local storage: where a thread keeps its copy of a module's variables.

use super::layout::{Fields, LinkerPlace, rtld_place};
use crate::memory::{Memory, ReadError};
use crate::target::Symbols;
use crate::{PthreadId, RemoteAddr};

/// How libc keeps the TLS blocks of modules and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsLayout {
    /// Head of the list of modules with TLS.
    modules: LinkerPlace,
    /// Offsets in one node of that list: number of slots, next node, first slot.
    node_len: u64,
    node_next: u64,
    node_slots: u64,
    /// One slot: its size, and where its generation and link map are.
    slot_stride: u64,
    slot_gen: u64,
    slot_map: u64,
    /// Offsets in a link map.
    map_modid: u64,
    map_offset: u64,
    /// Offset of the pointer to the thread's vector, and its entries' size.
    vector: u64,
    vector_stride: u64,
}

/// Why there is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// No module has this number, or it has no TLS.
    #[error("no such module, or it has no thread-local storage")]
    NoModule,
    /// The thread has not touched the module's variables yet, so no memory was allocated.
    #[error("the thread has not allocated this module's storage yet")]
    Deferred,
    /// The target does not say how it keeps TLS.
    #[error("this program does not describe its thread-local storage")]
    Undescribed,
    /// Memory could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// x86-64: "no static TLS", and "must not use static TLS".
const NO_OFFSET: u64 = 0;
const FORCED_DYNAMIC: u64 = u64::MAX;
/// More modules than any program has: a list that is longer is not one.
const MAX_MODULES: u64 = 4096;

impl TlsLayout {
    pub(super) fn described(symbols: &dyn Symbols, fields: &Fields) -> Option<Self> {
        let layout = Self {
            modules: rtld_place(symbols, fields, "_dl_tls_dtv_slotinfo_list")?,
            node_len: fields.offset("dtv_slotinfo_list_len")?,
            node_next: fields.offset("dtv_slotinfo_list_next")?,
            node_slots: fields.offset("dtv_slotinfo_list_slotinfo")?,
            slot_stride: fields.size("sizeof_dtv_slotinfo").unwrap_or(16),
            slot_gen: fields.offset("dtv_slotinfo_gen")?,
            slot_map: fields.offset("dtv_slotinfo_map")?,
            map_modid: fields.offset("link_map_l_tls_modid")?,
            map_offset: fields.offset("link_map_l_tls_offset")?,
            vector: fields.offset("pthread_dtvp")?,
            vector_stride: fields.size("dtv_dtv")? / 8,
        };
        ((16..=256).contains(&layout.slot_stride) && (16..=256).contains(&layout.vector_stride)).then_some(layout)
    }

    /// The slot of module `modid`: generation and link map.
    fn slot(&self, memory: &dyn Memory, modid: u64) -> Result<(u64, RemoteAddr), TlsError> {
        let Some(head) = self.modules.resolve(memory)? else { return Err(TlsError::NoModule) };
        let mut node = memory.read_addr(head)?;
        let mut first = 0u64;
        for _ in 0..MAX_MODULES {
            if node.is_null() {
                return Err(TlsError::NoModule);
            }
            let len = memory.read_u64(node.offset(self.node_len))?;
            if modid < first.saturating_add(len) {
                let at = (modid - first).checked_mul(self.slot_stride).ok_or(TlsError::NoModule)?;
                let slot = node.offset(self.node_slots).offset(at);
                let map = memory.read_addr(slot.offset(self.slot_map))?;
                if map.is_null() {
                    return Err(TlsError::NoModule);
                }
                return Ok((memory.read_u64(slot.offset(self.slot_gen))?, map));
            }
            first = first.saturating_add(len);
            node = memory.read_addr(node.offset(self.node_next))?;
        }
        Err(TlsError::NoModule)
    }

    /// Where thread `id` keeps the TLS block of module `modid`.
    pub fn block(&self, memory: &dyn Memory, id: PthreadId, modid: u64) -> Result<RemoteAddr, TlsError> {
        if modid == 0 {
            return Err(TlsError::NoModule);
        }
        let (generation, map) = self.slot(memory, modid)?;
        let vector = memory.read_addr(id.0.offset(self.vector))?;
        // Entry 0 counts the generation of modules the vector was made for. A younger module, or an
        // entry with its low bit set, has no block of its own yet.
        if memory.read_u64(vector)? >= generation {
            let at = modid.checked_mul(self.vector_stride).ok_or(TlsError::NoModule)?;
            let block = memory.read_u64(vector.offset(at))?;
            if block & 1 == 0 {
                return Ok(RemoteAddr(block));
            }
        }
        // Modules loaded at start-up have theirs at a fixed distance below the thread pointer.
        match memory.read_u64(map.offset(self.map_offset))? {
            NO_OFFSET | FORCED_DYNAMIC => Err(TlsError::Deferred),
            offset => Ok(RemoteAddr(id.0.0.wrapping_sub(offset))),
        }
    }

    /// The modules whose block is at a fixed distance below every thread's pointer: by how much they are moved in
    /// memory, and that distance.
    pub fn fixed(&self, memory: &dyn Memory) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut unused = 0;
        for modid in 1..MAX_MODULES {
            let place = self.slot(memory, modid).ok().and_then(|(_, map)| {
                Some((memory.read_u64(map).ok()?, memory.read_u64(map.offset(self.map_offset)).ok()?))
            });
            // Numbers of modules that were unloaded are free for a time: the end is where many in a row are.
            unused = if place.is_none() { unused + 1 } else { 0 };
            if unused == 64 {
                break;
            }
            found.extend(place.filter(|(_, offset)| !matches!(*offset, NO_OFFSET | FORCED_DYNAMIC)));
        }
        found
    }

    /// Module number of the object whose link map is at `map`.
    pub fn module_of(&self, memory: &dyn Memory, map: RemoteAddr) -> Result<u64, TlsError> {
        Ok(memory.read_u64(map.offset(self.map_modid))?)
    }
}

//! Layouts of `struct pthread` in the glibc versions that exist, for programs without symbols.
//!
//! Measured in the debug information of 2.31, 2.35, 2.36, 2.39, 2.41, 2.42 and 2.43, and computed
//! from the sources of those between. Everything a reader needs stands still from 2.31 to 2.43
//! except the group from `joinid` to `nextevent`: 2.36 to 2.41 have it 8 bytes lower.

use super::layout::{Layout, SELF};
use crate::RemoteAddr;
use crate::memory::Memory;
use crate::model::Provenance;
use crate::target::Hint;

pub(super) const TID: u64 = 720;
const SPECIFIC_1STBLOCK: u64 = 784;

/// One family of versions.
pub(super) struct KnownVersion {
    /// `schedparam`; `start_routine` follows 8 bytes later, `joinid` stands 16 before.
    schedparam: u64,
}

/// 2.36 to 2.41, then 2.31 to 2.35 and 2.42 on.
pub(super) const KNOWN_VERSIONS: [KnownVersion; 2] =
    [KnownVersion { schedparam: 1584 }, KnownVersion { schedparam: 1592 }];

impl KnownVersion {
    /// Whether the thread of `hint` has its descriptor at `base` with this layout.
    pub(super) fn fits(&self, memory: &dyn Memory, base: RemoteAddr, hint: Hint) -> bool {
        let word = |at: u64| memory.read_u64(base.offset(at)).ok();
        // Both pointers of the control block to itself, the id, the robust list's fixed offset of
        // -32 (musl's differs), and the first block of thread-specific data, which is inline.
        word(0) == Some(base.0)
            && word(SELF) == Some(base.0)
            && word(TID).is_some_and(|tid| tid as i32 == hint.inner.0)
            && word(TID + 24) == Some(-32i64 as u64)
            && word(SPECIFIC_1STBLOCK + 512) == Some(base.offset(SPECIFIC_1STBLOCK).0)
            && self.has_start_routine(memory, base)
    }

    /// The start routine tells the families apart: where one has it, the other has priority and
    /// policy, which are small numbers. Main has neither, and then it does not matter.
    fn has_start_routine(&self, memory: &dyn Memory, base: RemoteAddr) -> bool {
        let small = |word: u64| word as u32 <= 99 && word >> 32 <= 7;
        let scheduling = memory.read_u64(base.offset(self.schedparam));
        let routine = memory.read_u64(base.offset(self.schedparam + 8));
        scheduling.is_ok_and(small) && routine.is_ok_and(|word| word == 0 || !small(word))
    }

    pub(super) fn layout(&self, version: Option<String>) -> Layout {
        Layout {
            provenance: Provenance::Structural,
            version,
            size: None,
            list: TID - 16,
            tid: TID,
            cancelhandling: TID + 56,
            specific: SPECIFIC_1STBLOCK + 512,
            report_events: None,
            cond: super::locks::CondLayout::Unknown,
            eventmask: None,
            start_routine: Some(self.schedparam + 8),
            priority: Some(self.schedparam),
            robust_head: Some(TID + 16),
            joinid: Some(self.schedparam - 16),
            stackblock: Some(1680),
            heads: Vec::new(),
            keys: None,
            tls: None,
            events: None,
        }
    }
}

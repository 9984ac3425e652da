//! Where glibc keeps what, in this target.

use super::events::EventLayout;
use super::locks::CondLayout;
use super::tls::TlsLayout;
use super::versions::{KNOWN_VERSIONS, TID};
use crate::memory::{Memory, ReadError, read_each};
use crate::model::Provenance;
use crate::runtimes::u32_at;
use crate::target::{Anchor, Hint, Symbols};
use crate::{InnerTid, RemoteAddr};
use std::collections::HashMap;
use std::ffi::CStr;

/// Why there is no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No glibc in this process.
    #[error("no glibc thread library in this process")]
    NoGlibc,
    /// glibc is there but its descriptors cannot be right.
    #[error("glibc's thread descriptors do not fit together: {0}")]
    Implausible(&'static str),
}

/// The table of thread-specific data keys and how a thread stores its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLayout {
    /// `__pthread_keys`.
    pub table: RemoteAddr,
    /// Number of keys there can be.
    pub count: u64,
    /// Bytes of one entry of the table.
    pub stride: u64,
    /// Offset of the sequence number (odd while the key is in use).
    pub seq: u64,
    /// Offset of the destructor.
    pub destructor: u64,
    /// Bytes of one value in a thread's second-level block.
    pub data_stride: u64,
    /// Offset of a value's sequence number.
    pub data_seq: u64,
    /// Offset of the value.
    pub data: u64,
    /// Values in one second-level block.
    pub per_block: u64,
}

/// Offsets inside `struct pthread`, and the global addresses that go with them.
///
/// The optional ones are not described by libc: they are known by their place next to a described
/// neighbour and stay `None` where the target's own threads contradict that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How it was learned.
    pub provenance: Provenance,
    /// glibc's version string.
    pub version: Option<String>,
    /// Size of `struct pthread`; `None` in programs without symbols.
    pub size: Option<u64>,
    /// List node.
    pub list: u64,
    /// Kernel thread id.
    pub tid: u64,
    /// Cancellation state and exit bits.
    pub cancelhandling: u64,
    /// Pointers to the blocks of thread-specific data.
    pub specific: u64,
    /// Whether events are reported for the thread.
    pub report_events: Option<u64>,
    /// Event mask.
    pub eventmask: Option<u64>,
    /// Start routine.
    pub start_routine: Option<u64>,
    /// Recorded priority.
    pub priority: Option<u64>,
    /// Robust-list head.
    pub robust_head: Option<u64>,
    /// The thread that joins this one; the thread itself when detached.
    pub joinid: Option<u64>,
    /// Stack block address; its size and the guard's size follow in the next two words.
    pub stackblock: Option<u64>,
    /// Heads of the thread lists. The nodes of a list lead to its head as well, so a program without symbols may have
    /// none of these.
    pub heads: Vec<LinkerPlace>,
    /// Thread-specific data.
    pub keys: Option<KeyLayout>,
    /// Thread-local storage.
    pub tls: Option<TlsLayout>,
    /// Thread events.
    pub events: Option<EventLayout>,
    /// How condition variables are laid out.
    pub cond: CondLayout,
}

/// Where something of the dynamic linker's lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkerPlace {
    /// At this address.
    At(RemoteAddr),
    /// At an offset behind a pointer. The pointer is read each time: early in a program's life it is
    /// not set yet.
    Behind {
        /// Where the pointer is.
        pointer: RemoteAddr,
        /// Distance from where it leads.
        offset: u64,
    },
}

impl LinkerPlace {
    /// The address now, or `None` while it cannot be told.
    pub fn resolve(&self, memory: &dyn Memory) -> Result<Option<RemoteAddr>, ReadError> {
        match *self {
            Self::At(addr) => Ok(Some(addr)),
            Self::Behind { pointer, offset } => {
                let base = memory.read_addr(pointer)?;
                Ok(if base.is_null() { None } else { base.checked_add(offset) })
            }
        }
    }
}

/// Offsets of `self` in the thread control block: part of the x86-64 ABI, the same since 2.3.
pub(super) const SELF: u64 = 16;

/// No version's `struct pthread` comes near this size.
const MAX_SIZE: u64 = 64 << 10;

impl Layout {
    /// Learns the layout from the target. `hints` help with what libc does not describe; for a
    /// program without symbols they are all there is.
    pub fn discover(memory: &dyn Memory, symbols: &dyn Symbols, hints: &[Hint]) -> Result<Self, LayoutError> {
        let described = Fields::read(memory, symbols);
        let mut layout = match described.size("sizeof_pthread") {
            Some(size) => Self::described(memory, symbols, &described, size)?,
            None => Self::structural(memory, symbols, hints)?,
        };
        layout.check_undescribed(memory, hints);
        layout.cond = CondLayout::discover(memory, symbols, layout.version.as_deref());
        Ok(layout)
    }

    fn described(memory: &dyn Memory, symbols: &dyn Symbols, fields: &Fields, size: u64) -> Result<Self, LayoutError> {
        let required = |name| fields.offset(name).ok_or(LayoutError::Implausible("a required descriptor is missing"));
        if !(1..=MAX_SIZE).contains(&size) {
            return Err(LayoutError::Implausible("size of struct pthread"));
        }
        let tid = required("pthread_tid")?;
        let priority = fields.offset("pthread_schedparam_sched_priority");
        let layout = Self {
            provenance: Provenance::Described,
            version: version(memory, symbols),
            size: Some(size),
            list: required("pthread_list")?,
            tid,
            cancelhandling: required("pthread_cancelhandling")?,
            specific: required("pthread_specific")?,
            report_events: fields.offset("pthread_report_events"),
            eventmask: fields.offset("pthread_eventbuf_eventmask"),
            start_routine: fields.offset("pthread_start_routine"),
            priority,
            // tid, an unused int and the list's back pointer stand before the head, in all
            // versions from 2.31 to 2.43.
            robust_head: tid.checked_add(16),
            // joinid, result, schedparam follow one another.
            joinid: priority.and_then(|at| at.checked_sub(16)),
            // The unwinder's 32 bytes (16-aligned) stand between nextevent and the stack block.
            stackblock: fields.offset("pthread_nextevent").map(|at| (at + 8).next_multiple_of(16) + 32),
            heads: heads(symbols, fields),
            keys: keys(symbols, fields),
            tls: TlsLayout::described(symbols, fields),
            events: EventLayout::described(symbols, fields),
            cond: CondLayout::Unknown,
        };
        if [layout.list, layout.tid, layout.cancelhandling, layout.specific].into_iter().any(|at| at + 8 > size) {
            return Err(LayoutError::Implausible("a field lies outside struct pthread"));
        }
        Ok(layout)
    }

    /// No symbols: find the descriptor around a robust-list head by its two pointers to itself, the
    /// thread's id and its place in a list, then take the rest from the known versions.
    fn structural(memory: &dyn Memory, symbols: &dyn Symbols, hints: &[Hint]) -> Result<Self, LayoutError> {
        // Main has no start routine and so fits more than one family: other threads decide first.
        for hint in hints.iter().rev().take(64) {
            let Some(base) = hint.anchor.base(Some(TID + 16)) else { continue };
            if let Some(known) = KNOWN_VERSIONS.iter().find(|known| known.fits(memory, base, *hint)) {
                return Ok(known.layout(version(memory, symbols)));
            }
        }
        Err(LayoutError::NoGlibc)
    }

    /// Drops, or corrects, offsets that libc does not describe where living threads contradict them.
    fn check_undescribed(&mut self, memory: &dyn Memory, hints: &[Hint]) {
        let heads = hints.iter().filter_map(|hint| match hint.anchor {
            Anchor::RobustHead(head) => Some((hint.inner, head)),
            Anchor::Descriptor(_) => None,
        });
        let sample: Vec<_> = heads.take(64).collect();
        if let Some(offset) = self.robust_head {
            let agrees = |(inner, head): &(InnerTid, RemoteAddr)| {
                head.checked_sub(offset).is_some_and(|base| self.is_thread(memory, base, *inner))
            };
            if !sample.is_empty() && !sample.iter().any(agrees) {
                self.robust_head = self.calibrate_robust(memory, &sample);
            }
        }
    }

    /// The heads of the thread lists that can be told now.
    pub fn heads_now(&self, memory: &dyn Memory) -> Result<Vec<RemoteAddr>, ReadError> {
        self.heads.iter().filter_map(|place| place.resolve(memory).transpose()).collect()
    }

    /// Whether everything was found that a program with symbols describes.
    pub fn is_complete(&self) -> bool {
        let offsets = [self.report_events, self.eventmask, self.start_routine, self.priority, self.stackblock];
        let events = self.events.is_some_and(|it| it.create_function.is_some() && it.death_function.is_some());
        self.size.is_some()
            && offsets.iter().all(Option::is_some)
            && self.heads.len() == 2
            && self.keys.is_some()
            && self.tls.is_some()
            && events
    }

    /// Finds where the robust head lies by searching around each known head for its thread's start.
    fn calibrate_robust(&self, memory: &dyn Memory, heads: &[(InnerTid, RemoteAddr)]) -> Option<u64> {
        let mut votes: HashMap<u64, usize> = HashMap::new();
        for (inner, head) in heads {
            let furthest = self.size.unwrap_or(4096);
            // Descriptors are aligned to 64 bytes, their members to 8.
            let start = head.0 & !7;
            let found = (0..furthest)
                .step_by(8)
                .filter_map(|back| start.checked_sub(back).map(|base| (back, RemoteAddr(base))))
                .filter(|(_, base)| base.0 % 64 == 0)
                .find(|(_, base)| self.is_thread(memory, *base, *inner));
            if let Some((back, _)) = found {
                *votes.entry(back).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, count)| *count).map(|(offset, _)| offset)
    }

    /// Whether `base` is the descriptor of thread `inner`: it points to itself and holds that id.
    pub fn is_thread(&self, memory: &dyn Memory, base: RemoteAddr, inner: InnerTid) -> bool {
        memory.read_addr(base.offset(SELF)) == Ok(base)
            && memory.read_u32(base.offset(self.tid)).is_ok_and(|tid| tid as i32 == inner.0)
    }
}

fn version(memory: &dyn Memory, symbols: &dyn Symbols) -> Option<String> {
    let addr = symbols.address_of("__nptl_version").or_else(|| symbols.address_of("nptl_version"))?;
    let text = memory.read_up_to(addr, 16).ok()?;
    let text = CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?;
    let plausible = text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(|b| b.is_ascii_graphic());
    plausible.then(|| text.to_owned())
}

/// Where members of the dynamic linker's global structure are: from 2.34 on libc points to it, in
/// 2.33 and before it is a symbol, and a static program has each member as a symbol of its own.
pub(super) fn rtld_place(symbols: &dyn Symbols, fields: &Fields, member: &str) -> Option<LinkerPlace> {
    let offset = fields.offset(&format!("rtld_global_{member}"));
    let pointer = symbols.address_of("__nptl_rtld_global");
    match (offset, pointer) {
        (Some(offset), Some(pointer)) => Some(LinkerPlace::Behind { pointer, offset }),
        (Some(offset), None) => symbols.address_of("_rtld_global")?.checked_add(offset).map(LinkerPlace::At),
        (None, _) => symbols.address_of(member).map(LinkerPlace::At),
    }
}

fn heads(symbols: &dyn Symbols, fields: &Fields) -> Vec<LinkerPlace> {
    let modern = ["_dl_stack_user", "_dl_stack_used"].map(|member| rtld_place(symbols, fields, member));
    if modern.iter().any(Option::is_some) {
        return modern.into_iter().flatten().collect();
    }
    // libpthread up to 2.32.
    let old = ["__stack_user", "stack_used"].into_iter().filter_map(|name| symbols.address_of(name));
    old.map(LinkerPlace::At).collect()
}

fn keys(symbols: &dyn Symbols, fields: &Fields) -> Option<KeyLayout> {
    let layout = KeyLayout {
        table: symbols.address_of("__pthread_keys")?,
        count: fields.elements("__pthread_keys")?,
        stride: fields.size("sizeof_pthread_key_struct")?,
        seq: fields.offset("pthread_key_struct_seq")?,
        destructor: fields.offset("pthread_key_struct_destr")?,
        data_stride: fields.size("sizeof_pthread_key_data")?,
        data_seq: fields.offset("pthread_key_data_seq")?,
        data: fields.offset("pthread_key_data_data")?,
        per_block: fields.elements("pthread_key_data_level2_data")?,
    };
    layout.is_plausible().then_some(layout)
}

impl KeyLayout {
    /// Whether the numbers can be true: a target may claim anything, and these size our reads.
    pub fn is_plausible(&self) -> bool {
        (1..=65_536).contains(&self.count)
            && (16..=256).contains(&self.stride)
            && (16..=256).contains(&self.data_stride)
            && (1..=4096).contains(&self.per_block)
            && self.seq + 8 <= self.stride
            && self.destructor + 8 <= self.stride
            && self.data_seq + 8 <= self.data_stride
            && self.data + 8 <= self.data_stride
    }
}

/// The `_thread_db_*` descriptors, without that prefix: three words each (bits, elements, offset), or one (a size).
pub(super) struct Fields(HashMap<&'static str, [u32; 3]>);

impl Fields {
    fn read(memory: &dyn Memory, symbols: &dyn Symbols) -> Self {
        let names: Vec<_> = crate::target::SYMBOLS
            .iter()
            .filter_map(|name| Some((name.strip_prefix("_thread_db_")?, symbols.address_of(name)?)))
            .collect();
        // Sizes are one word, and the last one may end its mapping.
        let size = |name: &str| if name.starts_with("sizeof_") { 4 } else { 12 };
        let read = read_each(memory, names.iter().map(|(name, addr)| (*addr, size(name))));
        let whole = names.iter().zip(read).filter(|((name, _), bytes)| bytes.len() == size(name));
        Self(whole.map(|((name, _), bytes)| (*name, [0, 4, 8].map(|at| u32_at(&bytes, at).unwrap_or(0)))).collect())
    }

    /// The first word: bytes, or bits of a member.
    pub(super) fn size(&self, name: &str) -> Option<u64> {
        self.0.get(name).map(|[size, _, _]| u64::from(*size))
    }

    fn elements(&self, name: &str) -> Option<u64> {
        self.0.get(name).map(|[_, elements, _]| u64::from(*elements))
    }

    pub(super) fn offset(&self, name: &str) -> Option<u64> {
        self.0.get(name).map(|[_, _, offset]| u64::from(*offset)).filter(|offset| *offset < MAX_SIZE)
    }
}

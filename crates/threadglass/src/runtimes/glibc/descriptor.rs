//! One thread's descriptor (`struct pthread`), decoded.

use super::layout::{Layout, SELF};
use crate::memory::{Memory, ReadError, Slot, read_arrays};
use crate::model::Policy;
use crate::runtimes::{ThreadRecord, u32_at, u64_at};
use crate::{PthreadId, RemoteAddr};

/// The bits of `cancelhandling` that tell of a thread's end. They have kept their places in all
/// versions from 2.31 to 2.43.
const EXITING: u32 = 0x10;
const TERMINATED: u32 = 0x20;

/// `ATTR_FLAG_SCHED_SET | ATTR_FLAG_POLICY_SET`.
const SCHEDULING: u32 = 0x60;

/// What is read of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The thread's `pthread_t`, which is the descriptor's address.
    pub id: PthreadId,
    /// Kernel thread id as the target sees it; 0 once the thread has ended, -1 once joined.
    pub tid: i32,
    /// Exit and cancellation bits.
    pub cancel: u32,
    /// Next list node.
    pub next: RemoteAddr,
    /// Previous list node.
    pub prev: RemoteAddr,
    /// Where the thread began; null for the main thread.
    pub start_routine: Option<RemoteAddr>,
    /// The raw word that says who joins it: see [`Descriptor::is_detached`].
    join: Option<u64>,
    /// Lowest address of the stack block, its size, and the guard at its low end.
    stack: Option<(RemoteAddr, u64, u64)>,
    /// Of the main thread, which has no stack block: where its stack began.
    pub stack_end: Option<RemoteAddr>,
    /// Policy and priority, once the thread or another has set them or asked for them through libc.
    pub scheduling: Option<(Policy, i32)>,
    /// Whether events are reported.
    pub report_events: Option<bool>,
    /// Event mask.
    pub events: Option<[u32; 2]>,
}

impl Descriptor {
    /// Whether the thread is detached; `None` when the descriptor does not tell.
    ///
    /// Up to 2.42 the word is a pointer (to the joiner, or to the thread itself when detached);
    /// from 2.43 on it is a state: 0 exited, 1 exiting, 2 joinable, 3 detached. No pointer is so small.
    pub fn is_detached(&self) -> Option<bool> {
        match self.join? {
            0 | 2 => Some(false),
            1 => None,
            3 => Some(true),
            pointer => Some(pointer == self.id.0.0),
        }
    }

    /// Priority as `pthread_getschedparam` reports it, as far as libc has recorded it.
    pub fn recorded_priority(&self) -> Option<i32> {
        self.scheduling.map(|(policy, priority)| if policy.is_realtime() { priority } else { 0 })
    }

    /// What is recorded of the thread, in words that all C libraries share.
    pub(crate) fn record(&self, layout: &Layout) -> ThreadRecord {
        ThreadRecord {
            id: self.id,
            tid: self.tid,
            start: self.start_routine.filter(|start| !start.is_null()),
            detached: self.is_detached(),
            is_exiting: self.is_exiting(),
            stack: self.stack(),
            stack_end: self.stack_end,
            scheduling: self.scheduling,
            size: layout.size,
            flags: Some(self.cancel),
            specific: Some(self.id.0.offset(layout.specific)),
            report_events: self.report_events,
            events: self.events,
        }
    }

    /// Whether the thread has begun to exit.
    pub fn is_exiting(&self) -> bool {
        self.cancel & EXITING != 0
    }

    /// Whether its thread has gone for good (joined, or detached and ended). The memory may keep looking
    /// like a thread for long: libc holds it ready for the next one.
    pub fn is_given_back(&self) -> bool {
        self.tid <= 0 && self.cancel & TERMINATED != 0
    }

    /// Whether it stands for a thread: a living one, or one that waits to be joined. Neither one that
    /// is only being made (no id yet) nor one that was joined.
    pub fn is_in_use(&self) -> bool {
        self.tid > 0 || self.is_unjoined_zombie()
    }

    /// Whether it has exited and waits to be joined: off the kernel, still on the list.
    pub fn is_unjoined_zombie(&self) -> bool {
        // 2.43 clears the id itself a moment before the thread leaves the kernel: state 1 then.
        self.tid == 0 && self.cancel & (EXITING | TERMINATED) == EXITING && self.join != Some(1)
    }

    /// Highest address and size of the stack as `pthread_getattr_np` reports them, and the guard's
    /// size. `None` for the main thread, and where the numbers cannot be this thread's stack: the
    /// descriptor lies inside its own stack block.
    pub fn stack(&self) -> Option<(RemoteAddr, u64, u64)> {
        let (low, size, guard) = self.stack?;
        let high = low.checked_add(size)?;
        let inside = low < self.id.0 && self.id.0 < high;
        (inside && guard < size).then(|| (high, size - guard, guard))
    }
}

/// Reads and decodes descriptors of one layout.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorReader<'a> {
    layout: &'a Layout,
    /// Bytes from the descriptor's start that hold everything of use.
    span: usize,
}

/// Descriptors read by one system call: bounds the buffer (about 900 KiB).
const BATCH: usize = 512;

impl<'a> DescriptorReader<'a> {
    /// A reader for `layout`.
    pub fn new(layout: &'a Layout) -> Self {
        let ends = [
            Some(layout.list + 16),
            Some(layout.tid + 4),
            Some(layout.cancelhandling + 8),
            layout.priority.map(|at| at + 8),
            layout.start_routine.map(|at| at + 8),
            layout.joinid.map(|at| at + 8),
            layout.stackblock.map(|at| at + 24),
            layout.report_events.map(|at| at + 1),
            layout.eventmask.map(|at| at + 8),
        ];
        let span = ends.into_iter().flatten().max().unwrap_or(0).max(SELF + 8) as usize;
        Self { layout, span }
    }

    /// The layout it reads.
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// How many bytes [`Self::decode`] needs.
    pub fn span(&self) -> usize {
        self.span
    }

    /// Decodes `bytes` as the descriptor at `base`; `None` when it does not point to itself (which
    /// every descriptor in use does) or is too short.
    pub fn decode(&self, base: RemoteAddr, bytes: &[u8]) -> Option<Descriptor> {
        let u32_at = |at: u64| u32_at(bytes, usize::try_from(at).ok()?);
        let u64_at = |at: u64| u64_at(bytes, usize::try_from(at).ok()?);
        let layout = self.layout;
        if u64_at(SELF)? != base.0 {
            return None;
        }
        let block = layout.stackblock.and_then(|at| Some((RemoteAddr(u64_at(at)?), u64_at(at + 8)?, u64_at(at + 16)?)));
        // libc keeps the end of main's stack where the size of a block would be.
        let stack_end = block.filter(|(low, end, _)| low.is_null() && *end != 0).map(|(_, end, _)| RemoteAddr(end));
        let stack = block.filter(|(low, _, _)| !low.is_null());
        // The word behind the cancellation bits says what of the scheduling is recorded.
        let recorded = u32_at(layout.cancelhandling + 4).is_some_and(|flags| flags & SCHEDULING == SCHEDULING);
        let scheduling = layout
            .priority
            .filter(|_| recorded)
            .and_then(|at| Some((Policy::from_number(u64::from(u32_at(at + 4)?)), u32_at(at)? as i32)));
        Some(Descriptor {
            id: PthreadId(base),
            tid: u32_at(layout.tid)? as i32,
            cancel: u32_at(layout.cancelhandling)?,
            next: RemoteAddr(u64_at(layout.list)?),
            prev: RemoteAddr(u64_at(layout.list + 8)?),
            start_routine: layout.start_routine.and_then(u64_at).map(RemoteAddr),
            join: layout.joinid.and_then(u64_at),
            stack,
            stack_end,
            scheduling,
            report_events: layout.report_events.and_then(|at| bytes.get(at as usize)).map(|byte| *byte != 0),
            events: layout.eventmask.and_then(|at| Some([u32_at(at)?, u32_at(at + 4)?])),
        })
    }

    /// Reads one descriptor; `None` when there is something else at `base`.
    pub fn read(&self, memory: &dyn Memory, base: RemoteAddr) -> Result<Option<Descriptor>, ReadError> {
        Ok(self.decode(base, &memory.read_vec(base, self.span)?))
    }

    /// Reads many descriptors in few calls.
    pub fn read_all(&self, memory: &dyn Memory, bases: &[RemoteAddr]) -> Vec<Option<Descriptor>> {
        let mut bytes = vec![0; self.span * bases.len().min(BATCH)];
        let mut out = Vec::with_capacity(bases.len());
        for part in bases.chunks(BATCH) {
            let mut slots: Vec<_> =
                part.iter().zip(bytes.chunks_exact_mut(self.span)).map(|(base, buf)| Slot::new(*base, buf)).collect();
            memory.read_many(&mut slots);
            out.extend(slots.iter().map(|slot| slot.is_whole().then(|| self.decode(slot.addr, slot.buf)).flatten()));
        }
        out
    }

    /// Reads only the ids of many descriptors again, to see whether they changed.
    pub fn read_tids(&self, memory: &dyn Memory, bases: &[RemoteAddr]) -> Vec<Option<i32>> {
        let places: Vec<_> = bases.iter().map(|base| base.offset(self.layout.tid)).collect();
        read_arrays(memory, &places).into_iter().map(|tid| tid.map(i32::from_le_bytes)).collect()
    }
}

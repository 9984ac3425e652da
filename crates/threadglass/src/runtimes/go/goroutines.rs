//! The list of all goroutines, as Go's runtime keeps it for readers without locks. Goroutines are never freed: one that
//! has ended stays in the list, and is used again.

use super::offsets::Layout;
use crate::RemoteAddr;
use crate::memory::{Memory, ReadError, u32_at};
use crate::model::Stack;
use crate::runtimes::{IN_SYSTEM_CALL, records};

/// Goroutines that are read. More than this no machine has memory for.
const MAX: u64 = 8 << 20;

/// The largest stack that Go lets a goroutine have is half of this.
const LARGEST_STACK: u64 = 1 << 31;

/// What a goroutine does, as its runtime notes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It is being made, has ended, or waits to be used.
    None,
    Runnable,
    Running,
    Syscall,
    Waiting,
    /// Its stack is being moved to a larger one.
    CopiesStack,
    Preempted,
    /// The garbage collector found that nobody can end its wait.
    Leaked,
    Unknown,
}

impl Status {
    fn of(number: u32) -> Self {
        // One bit says that the garbage collector scans it.
        match number & !0x1000 {
            0 | 6 | 11 => Self::None,
            1 => Self::Runnable,
            2 => Self::Running,
            3 => Self::Syscall,
            4 => Self::Waiting,
            8 => Self::CopiesStack,
            9 => Self::Preempted,
            10 => Self::Leaked,
            _ => Self::Unknown,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::None => "dead",
            Self::Runnable => "runnable",
            Self::Running => "running",
            Self::Syscall => IN_SYSTEM_CALL,
            Self::Waiting => "waiting",
            Self::CopiesStack => "copystack",
            Self::Preempted => "preempted",
            Self::Leaked => "leaked",
            Self::Unknown => "unknown",
        }
    }

    /// Whether it waits for something.
    pub(super) fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting | Self::Leaked)
    }

    /// Whether its stack stands still.
    pub(super) fn is_at_rest(self) -> bool {
        matches!(self, Self::Runnable | Self::Waiting | Self::Preempted | Self::Syscall | Self::Leaked)
    }
}

/// A goroutine as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Goroutine {
    pub(super) address: u64,
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) m: u64,
    pub(super) sp: u64,
    pub(super) pc: u64,
    pub(super) fp: u64,
    pub(super) status: Status,
    pub(super) id: u64,
    pub(super) wait_since: u64,
    pub(super) wait_reason: u8,
    pub(super) locked_m: u64,
    pub(super) parent: u64,
    pub(super) made_at: u64,
    pub(super) start: u64,
    pub(super) waiting: u64,
    pub(super) labels: u64,
    pub(super) deferred: u64,
}

impl Goroutine {
    fn decode(address: u64, bytes: &[u8], layout: &Layout) -> Self {
        let g = &layout.g;
        let word = |at: usize| Layout::word(bytes, at);
        let status = Status::of(u32_at(bytes, g.status).unwrap_or(u32::MAX));
        // Of one in a system call not all releases save the frame pointer.
        let (sp, pc, fp) = match status {
            Status::Syscall => (word(g.syscall_sp), word(g.syscall_pc), 0),
            _ => (word(g.sched), word(g.sched + 8), word(g.fp)),
        };
        Self {
            address,
            low: word(0),
            high: word(8),
            m: word(g.m),
            sp,
            pc,
            fp,
            status,
            id: word(g.id),
            wait_since: word(g.wait_since),
            wait_reason: bytes.get(g.wait_reason).copied().unwrap_or(0),
            locked_m: word(g.locked_m),
            parent: g.parent.map_or(0, word),
            made_at: word(g.made_at),
            start: word(g.start),
            waiting: word(g.waiting),
            labels: word(g.labels),
            deferred: word(g.deferred),
        }
    }

    /// Whether it makes sense: its stack is one, and it is there while it is at rest.
    pub(super) fn is_plausible(&self) -> bool {
        let has_stack = self.low < self.high && self.high - self.low <= LARGEST_STACK && self.high.is_multiple_of(8);
        let is_inside = self.sp >= self.low && self.sp < self.high && self.sp.is_multiple_of(8);
        self.status != Status::Unknown && self.id != 0 && has_stack && (is_inside || !self.status.is_at_rest())
    }

    /// Where its stack is.
    pub(super) fn stack(&self) -> Option<Stack> {
        let size = self.high.checked_sub(self.low).filter(|size| (1..=LARGEST_STACK).contains(size))?;
        Some(Stack { base: RemoteAddr(self.high), size, guard: 0 })
    }

    /// Whether it stands where it stood when it was read as `before`.
    pub(super) fn is_same(&self, before: &Self) -> bool {
        let place = |it: &Self| (it.status, it.id, it.sp, it.pc, it.low, it.waiting, it.wait_reason);
        place(self) == place(before)
    }
}

/// The addresses of all goroutines that ever were.
pub(super) fn addresses(memory: &dyn Memory, list: RemoteAddr, length: RemoteAddr) -> Result<Vec<u64>, ReadError> {
    // The list grows before its length does, and a list that is left behind stays as it was.
    let count = memory.read_u64(length)?.min(MAX);
    let start = memory.read_addr(list)?;
    let bytes = memory.read_vec(start, count as usize * 8)?;
    Ok(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// What is at each of `addresses`, which are sorted; those that cannot be read are left out.
pub(super) fn read(memory: &dyn Memory, layout: &Layout, addresses: &[u64]) -> Vec<Goroutine> {
    read_as(memory, layout, addresses, |goroutine| goroutine)
}

/// The same, made into something by `make` at once: a list of all is large.
pub(super) fn read_as<T>(
    memory: &dyn Memory,
    layout: &Layout,
    addresses: &[u64],
    make: impl Fn(Goroutine) -> T,
) -> Vec<T> {
    let mut found = Vec::with_capacity(addresses.len());
    records::read(
        memory,
        addresses,
        |_| layout.g.size,
        |index, bytes| {
            let goroutine = Goroutine::decode(addresses[index], bytes, layout);
            // Where goroutines came and went, most of the list are those that have ended.
            if goroutine.status != Status::None {
                found.push(make(goroutine));
            }
        },
    );
    found
}

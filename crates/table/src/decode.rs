//! Reading: bytes of the program in, numbers out. The bytes may be anything.

use crate::counts::{
    BarrierCounts, CondCounts, Counts, ExtraView, LockCounts, Record, RwlockCounts, SemaCounts, SideCounts,
};
use crate::{CONTROLLERS, Key, Kind, UNIT, size};

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderView {
    /// One of [`crate::state`].
    pub state: u32,
    /// One of [`crate::mode`].
    pub mode: u32,
    /// One of [`crate::clock`].
    pub clock: u32,
    /// Whether plain mutexes are taken without a call.
    pub inline: bool,
    /// The process that counts.
    pub pid: u32,
    /// Ticks and nanoseconds at the start.
    pub start: (u64, u64),
    /// Ticks and nanoseconds at a later moment; `None` if there was none or it was being written.
    pub last: Option<(u64, u64)>,
    /// Address of the index, and its slots.
    pub index: (u64, u64),
    /// Address of the entries, room for units, units taken.
    pub entries: (u64, u64, u64),
    /// Address of the extras, room for them, extras taken.
    pub extras: (u64, u64, u64),
    /// Uses of objects that found no room.
    pub drops: u64,
    /// Waits on objects that found no extra.
    pub extra_drops: u64,
    /// Threads created.
    pub threads_created: u64,
    /// Address of the byte that says whether calls are tracked.
    pub is_on: u64,
    /// The mode that it has when it is on.
    pub wanted: u32,
    /// Processes for which it was switched on.
    pub controllers: [u32; CONTROLLERS],
    /// When it will look for them; 0 if it is on for good.
    pub lease: u64,
    /// Address of the area of [`crate::words`], if it is in use.
    pub words: Option<u64>,
    /// Address of the stacks, room for them, stacks taken so far.
    pub stacks: (u64, u64, u64),
}

/// Why bytes are not a header that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeader {
    /// They are something else.
    Foreign,
    /// Of another version of the agent.
    Version(u32),
    /// They contradict themselves.
    Damaged,
}

/// Bytes of a header.
pub const HEADER_SIZE: usize = size_of::<crate::Header>();
/// Bytes of a stack.
pub const STACK_SIZE: usize = size_of::<crate::WaitStack>();
/// Bytes of an extra.
pub const EXTRA_SIZE: usize = size_of::<crate::Extra>();

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

macro_rules! get32 {
    ($bytes:expr, $type:ty, $field:ident) => {
        u32_at($bytes, core::mem::offset_of!($type, $field))
    };
}
macro_rules! get64 {
    ($bytes:expr, $type:ty, $field:ident) => {
        u64_at($bytes, core::mem::offset_of!($type, $field))
    };
}

/// Reads a header.
pub fn header(bytes: &[u8; HEADER_SIZE]) -> Result<HeaderView, NotHeader> {
    use crate::Header as H;
    if bytes[..8] != crate::MAGIC {
        return Err(NotHeader::Foreign);
    }
    let version = get32!(bytes, H, version);
    if version != crate::VERSION {
        return Err(NotHeader::Version(version));
    }
    let sizes = (get32!(bytes, H, header_size), get32!(bytes, H, entry_size), get32!(bytes, H, extra_size));
    let slots = get64!(bytes, H, index_slots);
    let is_sound = sizes == (HEADER_SIZE as u32, UNIT as u32, EXTRA_SIZE as u32)
        && (slots == 0 || slots.is_power_of_two() && (1024..=size::slots(size::MOST) as u64).contains(&slots));
    if !is_sound {
        return Err(NotHeader::Damaged);
    }
    let last = (get64!(bytes, H, last_ticks), get64!(bytes, H, last_ns));
    let is_whole = get32!(bytes, H, clock_seq).is_multiple_of(2) && last.0 != 0;
    let units = get64!(bytes, H, units).min(size::units(size::MOST) as u64);
    let extra_room = get64!(bytes, H, extra_room).min(size::EXTRAS as u64);
    Ok(HeaderView {
        state: get32!(bytes, H, state),
        mode: get32!(bytes, H, mode),
        clock: get32!(bytes, H, clock),
        inline: get32!(bytes, H, inline) != 0,
        pid: get32!(bytes, H, pid),
        start: (get64!(bytes, H, start_ticks), get64!(bytes, H, start_ns)),
        last: is_whole.then_some(last),
        index: (get64!(bytes, H, index), slots),
        entries: (get64!(bytes, H, entries), units, get64!(bytes, H, next_unit).min(units)),
        extras: (get64!(bytes, H, extras), extra_room, get64!(bytes, H, next_extra).min(extra_room)),
        drops: get64!(bytes, H, drops),
        extra_drops: get64!(bytes, H, extra_drops),
        threads_created: get64!(bytes, H, threads_created),
        is_on: get64!(bytes, H, is_on),
        wanted: get32!(bytes, H, wanted),
        controllers: core::array::from_fn(|n| u32_at(bytes, core::mem::offset_of!(H, controllers) + 4 * n)),
        lease: get64!(bytes, H, lease),
        stacks: (
            get64!(bytes, H, stacks),
            get64!(bytes, H, stack_room).min(size::STACKS as u64),
            get64!(bytes, H, next_stack),
        ),
        words: (get64!(bytes, H, word_rows) != 0).then(|| get64!(bytes, H, words)),
    })
}

/// Reads an entry of one or two units. `None` when it stands for nothing, or if it was read while it came to stand
/// for something else: `key_after` is its key, read again behind the rest.
pub fn entry(bytes: &[u8; 2 * UNIT], key_after: u64) -> Option<Record> {
    use crate::{CondBody as C, Entry, MutexBody as M, RwlockBody as R, RwlockMore as R2, SemaBody as S};
    let key = Key(u64_at(bytes, 0));
    let kind = key.kind()?;
    if key.0 != key_after {
        return None;
    }
    let body = &bytes[core::mem::offset_of!(Entry, body)..UNIT];
    let more = &bytes[UNIT..];
    let counts = match kind {
        Kind::Mutex | Kind::Spin => {
            let (lock, try_) = (get64!(body, M, lock), get32!(body, M, try_));
            Counts::Lock(LockCounts {
                lock,
                ended: lock.saturating_sub(u64::from(get64!(body, M, held_since) != 0)),
                hold_time: get64!(body, M, hold_time),
                holds: get32!(body, M, holds),
                sleep: get32!(body, M, sleep),
                sleep_time: get64!(body, M, sleep_time),
                try_,
                // A call is counted before its failure; the copy may have been taken in between.
                try_fail: get32!(body, M, try_fail).min(try_),
            })
        }
        Kind::Cond => Counts::Cond(CondCounts {
            wait: get32!(body, C, wait),
            timedwait: get32!(body, C, timedwait),
            wait_time: get64!(body, C, wait_time),
            timedwait_time: get64!(body, C, timedwait_time),
            timeout: get32!(body, C, timeout).min(get32!(body, C, timedwait)),
            signal: get32!(body, C, signal),
            broadcast: get32!(body, C, broadcast),
        }),
        Kind::Rwlock => Counts::Rwlock(RwlockCounts {
            read: SideCounts {
                lock: get32!(body, R, rdlock),
                sleep: get32!(more, R2, rd_sleep),
                sleep_time: get64!(more, R2, rd_sleep_time),
                try_: get32!(body, R, rd_try),
                try_fail: get32!(body, R, rd_try_fail).min(get32!(body, R, rd_try)),
            },
            write: SideCounts {
                lock: get32!(body, R, wrlock),
                sleep: get32!(more, R2, wr_sleep),
                sleep_time: get64!(more, R2, wr_sleep_time),
                try_: get32!(body, R, wr_try),
                try_fail: get32!(body, R, wr_try_fail).min(get32!(body, R, wr_try)),
            },
            ended: u64::from(get32!(body, R, acquired)).saturating_sub(u64::from(get64!(body, R, held_since) != 0)),
            hold_time: get64!(body, R, hold_time),
            holds: get32!(body, R, holds),
        }),
        Kind::Sema => Counts::Sema(SemaCounts {
            wait: get32!(body, S, wait),
            sleep: get32!(body, S, sleep),
            sleep_time: get64!(body, S, sleep_time),
            try_: get32!(body, S, try_),
            try_fail: get32!(body, S, try_fail).min(get32!(body, S, try_)),
            post: get32!(body, S, post),
            max: get32!(body, S, max),
            min: !get32!(body, S, not_min),
        }),
        Kind::Barrier => Counts::Barrier(BarrierCounts {
            wait: get32!(body, S, wait),
            sleep: get32!(body, S, sleep),
            sleep_time: get64!(body, S, sleep_time),
        }),
    };
    let (extra, last) = (get32!(bytes, Entry, extra), get32!(bytes, Entry, last) & !crate::HAS_WORD);
    Some(Record { key, kind, extra, last, counts })
}

/// Reads an extra, if it belongs to `key`.
pub fn extra(bytes: &[u8; EXTRA_SIZE], key: Key) -> Option<ExtraView> {
    use crate::{Extra, Site};
    if get64!(bytes, Extra, owner) != key.0 {
        return None;
    }
    let histogram = core::array::from_fn(|n| u32_at(bytes, core::mem::offset_of!(Extra, histogram) + 4 * n));
    let sites = core::array::from_fn(|n| {
        let site = &bytes[core::mem::offset_of!(Extra, sites) + n * size_of::<Site>()..];
        (get64!(site, Site, waiter), get64!(site, Site, holder), get64!(site, Site, time))
    });
    Some(ExtraView { histogram, sites })
}

/// The stack of a thread that has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackView<'a> {
    /// The lock.
    pub key: Key,
    /// Time waited for it since its last stack.
    pub time: u64,
    /// Return address of the call.
    pub site: u64,
    /// The stack pointer behind the call.
    pub sp: u64,
    /// The caller's frame pointer.
    pub frame_pointer: u64,
    /// The stack from there on.
    pub bytes: &'a [u8],
}

/// Reads stack number `number`; `None` when another has taken its place, or is about to.
pub fn stack(bytes: &[u8; STACK_SIZE], number: u64, seq_after: u64) -> Option<StackView<'_>> {
    use crate::WaitStack as W;
    let seq = get64!(bytes, W, seq);
    if seq != number.wrapping_mul(2).wrapping_add(2) || seq != seq_after {
        return None;
    }
    let count = get64!(bytes, W, count).min(crate::STACK_WORDS as u64) as usize;
    let at = core::mem::offset_of!(W, words);
    Some(StackView {
        key: Key(get64!(bytes, W, key)),
        time: get64!(bytes, W, time),
        site: get64!(bytes, W, site),
        sp: get64!(bytes, W, sp),
        frame_pointer: get64!(bytes, W, frame_pointer),
        bytes: &bytes[at..at + 8 * count],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn a_stack_is_the_one_that_was_asked_for_and_whole() {
        use crate::WaitStack as W;
        let mut bytes = [0xff; STACK_SIZE];
        let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(offset_of!(W, seq), 16);
        put(offset_of!(W, count), 2);
        put(offset_of!(W, words), 5);
        let found = stack(&bytes, 7, 16).unwrap();
        assert_eq!((found.bytes.len(), found.bytes[0]), (16, 5));
        assert_eq!(stack(&bytes, 8, 16), None, "another");
        assert_eq!(stack(&bytes, 7, 17), None, "one that is being replaced");
        // A count that cannot be.
        bytes[offset_of!(W, count)..][..8].fill(0xff);
        assert_eq!(stack(&bytes, 7, 16).unwrap().bytes.len(), 8 * crate::STACK_WORDS);
    }
}

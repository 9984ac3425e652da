//! The structures, as they lie in memory.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Where everything is, and what holds for all of it.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Header {
    /// [`crate::MAGIC`].
    pub magic: [u8; 8],
    /// [`crate::VERSION`].
    pub version: u32,
    /// Bytes of this structure.
    pub header_size: u32,
    /// Bytes of an [`Entry`].
    pub entry_size: u32,
    /// Bytes of an [`Extra`].
    pub extra_size: u32,
    /// One of [`crate::state`].
    pub state: AtomicU32,
    /// One of [`crate::mode`].
    pub mode: AtomicU32,
    /// One of [`crate::clock`].
    pub clock: AtomicU32,
    /// 1 when plain mutexes are taken without a call into libc.
    pub inline: AtomicU32,
    /// The process that counts; a child that was forked without the C library's knowledge shows its parent here.
    pub pid: AtomicU32,
    /// Odd while the second pair of times is being written.
    pub clock_seq: AtomicU32,
    /// A moment at the start, in ticks.
    pub start_ticks: AtomicU64,
    /// The same in nanoseconds of `CLOCK_MONOTONIC`.
    pub start_ns: AtomicU64,
    /// A later moment, in ticks; 0 before there was one.
    pub last_ticks: AtomicU64,
    /// The same in nanoseconds.
    pub last_ns: AtomicU64,
    /// When tracking was last switched on, in ticks. A hold that began before is not counted.
    pub enabled_at: AtomicU64,
    /// Address of the index.
    pub index: AtomicU64,
    /// Slots in it: a power of two.
    pub index_slots: AtomicU64,
    /// Address of the entries.
    pub entries: AtomicU64,
    /// Units there is room for.
    pub units: AtomicU64,
    /// First unit that is not taken; may be beyond `units`. Unit 0 is never used.
    pub next_unit: AtomicU64,
    /// Address of the extras.
    pub extras: AtomicU64,
    /// How many there is room for.
    pub extra_room: AtomicU64,
    /// First one not taken; may be beyond. Number 0 is never used.
    pub next_extra: AtomicU64,
    /// Objects that found no room, each time they were used.
    pub drops: AtomicU64,
    /// Waits on objects that found no extra.
    pub extra_drops: AtomicU64,
    /// Threads that were created.
    pub threads_created: AtomicU64,
    /// Address of a byte: 1 while calls are tracked, otherwise 0.
    pub is_on: AtomicU64,
    /// The [`crate::mode`] that it has when it is on.
    pub wanted: AtomicU32,
    /// Processes for which it was switched on from outside, or 0.
    pub controllers: [AtomicU32; CONTROLLERS],
    /// When to look whether one of them is still there, in ticks; 0 if it is on for good.
    pub lease: AtomicU64,
    /// Address of the area of [`crate::words`].
    pub words: AtomicU64,
    /// Rows in use there.
    pub word_rows: AtomicU64,
    /// Address of the stacks of waits.
    pub stacks: AtomicU64,
    /// How many there is room for.
    pub stack_room: AtomicU64,
    /// Stacks that were taken so far: number `n` is in place `n` modulo the room, until another is.
    pub next_stack: AtomicU64,
}

/// How many can have an agent switched on.
pub const CONTROLLERS: usize = 7;
/// Ticks between two looks at them: about a second.
pub const LEASE: u64 = 1 << 31;

/// A bit of [`Entry::last`] that no id of a thread has.
pub const HAS_WORD: u32 = 1 << 31;

/// One object: what it is, and its statistics, which differ by kind.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Entry {
    /// A [`crate::Key`]. Written last when an entry is made, first when it ends.
    pub key: AtomicU64,
    /// Number of its [`Extra`], or 0.
    pub extra: AtomicU32,
    /// Of locks: id of the thread that acquired it last, as the program sees it; with [`HAS_WORD`] if a word may know
    /// better.
    pub last: AtomicU32,
    /// One of the `..Body` structures.
    pub body: [AtomicU64; 6],
}

macro_rules! body {
    ($name:ident, $size:expr, $about:literal, $($field:ident: $type:ty, $text:literal;)*) => {
        #[doc = $about]
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name { $(#[doc = $text] pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() <= $size && align_of::<$name>() <= 8);
    };
}

body!(MutexBody, 48, "Of a mutex. What is written by its holder alone needs no atomic addition.",
    lock: AtomicU64, "First-level acquisitions, but for what [`crate::words`] has more. By the holder.";
    held_since: AtomicU64, "When the hold in progress began, if it is timed. By the holder.";
    hold_time: AtomicU64, "Sum of the timed holds. By the holder.";
    sleep_time: AtomicU64, "Sum of the waits.";
    holds: AtomicU32, "Holds that were timed. By the holder.";
    sleep: AtomicU32, "Calls that found it taken and waited.";
    try_: AtomicU32, "Calls of trylock.";
    try_fail: AtomicU32, "Those that failed.";
);
body!(CondBody, 48, "Of a condition variable.",
    wait: AtomicU32, "Untimed waits, counted as they begin.";
    timedwait: AtomicU32, "Timed ones.";
    wait_time: AtomicU64, "Sum of the untimed waits that have ended, with taking the mutex again.";
    timedwait_time: AtomicU64, "Sum of the timed ones.";
    timeout: AtomicU32, "Timed waits that ended by timeout.";
    signal: AtomicU32, "Calls of signal.";
    broadcast: AtomicU32, "Calls of broadcast.";
);
body!(RwlockBody, 48, "Of a rwlock.",
    rdlock: AtomicU32, "Read locks, other than by a try.";
    wrlock: AtomicU32, "Write locks, other than by a try.";
    rd_try: AtomicU32, "Calls of tryrdlock.";
    rd_try_fail: AtomicU32, "Those that failed.";
    wr_try: AtomicU32, "Calls of trywrlock.";
    wr_try_fail: AtomicU32, "Those that failed.";
    held_since: AtomicU64, "When the write hold in progress began, if it is timed. By the holder.";
    hold_time: AtomicU64, "Sum of the timed write holds. By the holder.";
    holds: AtomicU32, "Write holds that were timed. By the holder.";
    acquired: AtomicU32, "Write acquisitions of every sort. By the holder.";
);
body!(RwlockMore, 64, "The second unit of a rwlock.",
    key: AtomicU64, "[`crate::Key::CONTINUED`].";
    rd_sleep_time: AtomicU64, "Sum of the waits to read.";
    wr_sleep_time: AtomicU64, "Sum of the waits to write.";
    rd_sleep: AtomicU32, "Calls that waited to read.";
    wr_sleep: AtomicU32, "Calls that waited to write.";
);
body!(SemaBody, 48, "Of a semaphore; of a barrier the first three.",
    wait: AtomicU32, "Calls of wait, timed or not.";
    sleep: AtomicU32, "Those that found the count 0 as they began.";
    sleep_time: AtomicU64, "Sum of their times.";
    try_: AtomicU32, "Calls of trywait.";
    try_fail: AtomicU32, "Those that failed.";
    post: AtomicU32, "Calls of post.";
    max: AtomicU32, "Largest count seen after a post, or as the entry was made.";
    not_min: AtomicU32, "All bits of the smallest count seen after a wait, or as the entry was made, inverted: it grows.";
);
body!(SpinBody, 48, "Of a spinlock: as of a mutex.",
    lock: AtomicU64, "Acquisitions. By the holder.";
    held_since: AtomicU64, "When the hold in progress began, if it is timed. By the holder.";
    hold_time: AtomicU64, "Sum of the timed holds. By the holder.";
    sleep_time: AtomicU64, "Sum of the times spent spinning.";
    holds: AtomicU32, "Holds that were timed. By the holder.";
    sleep: AtomicU32, "Calls that found it taken and spun.";
    try_: AtomicU32, "Calls of trylock.";
    try_fail: AtomicU32, "Those that failed.";
);

/// Buckets of a histogram of waits.
pub const HISTOGRAM: usize = 32;
/// Pairs of call sites kept of one object.
pub const SITES: usize = 5;

/// Which bucket a wait of so many ticks (or nanoseconds) belongs to: bucket `n` has those of `2^(n+6)` up to twice
/// that, the first all shorter ones, the last all longer ones.
pub const fn bucket(time: u64) -> usize {
    let log = (time | 1).ilog2() as usize;
    let at = log.saturating_sub(6);
    if at < HISTOGRAM { at } else { HISTOGRAM - 1 }
}

/// Where a thread called from that waited, and where the holder had called from that made it wait.
#[repr(C)]
#[derive(Debug)]
pub struct Site {
    /// Return address of the call that waited; 0 for a place that is free.
    pub waiter: AtomicU64,
    /// Return address of the call that acquired the lock, or 0 if that is not known.
    pub holder: AtomicU64,
    /// Sum of the waits.
    pub time: AtomicU64,
}

/// More on an object that threads have waited for.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Extra {
    /// The key of the entry it belongs to, with its generation.
    pub owner: AtomicU64,
    /// Return address of the last call that acquired it.
    pub holder: AtomicU64,
    /// Waits by duration; see [`bucket`].
    pub histogram: [AtomicU32; HISTOGRAM],
    /// Who waited where, for the first pairs seen.
    pub sites: [Site; SITES],
    /// Time waited since a stack was taken.
    pub unseen: AtomicU64,
    /// Stacks that were taken.
    pub seen: AtomicU32,
}

/// Words of a stack that are copied: the frames of some functions around a lock.
pub const STACK_WORDS: usize = 121;

/// A thread has waited for so long, in ticks or nanoseconds, since its lock's last stack was taken: then the next is.
pub const STACK_EVERY: u64 = 1 << 21;

/// The stack of a thread that has waited.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct WaitStack {
    /// Twice the number of the stack, and 2; one less while it is being written.
    pub seq: AtomicU64,
    /// Key of the entry.
    pub key: AtomicU64,
    /// Time waited for this lock since its last stack.
    pub time: AtomicU64,
    /// Return address of the call.
    pub site: AtomicU64,
    /// The stack pointer behind the call.
    pub sp: AtomicU64,
    /// The caller's frame pointer, or whatever it keeps in that register.
    pub frame_pointer: AtomicU64,
    /// Words that were copied.
    pub count: AtomicU64,
    /// The stack from `sp` on.
    pub words: [AtomicU64; STACK_WORDS],
}

const _: () = assert!(size_of::<WaitStack>() == 1024);

const _: () = assert!(size_of::<Entry>() == crate::UNIT && size_of::<Extra>() <= 320);
const _: () = assert!(size_of::<Header>() <= 320);

macro_rules! view {
    ($($name:ident -> $type:ident),*) => {
        impl Entry {
            $(
                /// The statistics of an entry of that kind.
                #[inline(always)]
                pub fn $name(&self) -> &$type {
                    // SAFETY: the body is at least as large and as aligned, and every field is an atomic, of which
                    // any bytes are a value.
                    unsafe { &*core::ptr::from_ref(&self.body).cast() }
                }
            )*
        }
    };
}
view!(mutex -> MutexBody, cond -> CondBody, rwlock -> RwlockBody, sema -> SemaBody, spin -> SpinBody);

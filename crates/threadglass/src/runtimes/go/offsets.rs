//! Where Go's runtime keeps things, by release. Measured in the debug information of programs of each release.

use crate::memory::u64_at;

/// Of a goroutine (`runtime.g`). Its stack's two ends come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct G {
    pub(super) size: usize,
    pub(super) m: usize,
    /// Its stack pointer and program counter while it does not run.
    pub(super) sched: usize,
    /// The frame pointer that is saved with them.
    pub(super) fp: usize,
    pub(super) syscall_sp: usize,
    pub(super) syscall_pc: usize,
    pub(super) status: usize,
    pub(super) id: usize,
    pub(super) wait_since: usize,
    pub(super) wait_reason: usize,
    pub(super) locked_m: usize,
    pub(super) parent: Option<usize>,
    pub(super) made_at: usize,
    pub(super) start: usize,
    pub(super) waiting: usize,
    pub(super) labels: usize,
    /// The calls that it has put off, the last one first.
    pub(super) deferred: usize,
}

/// Of a thread that runs goroutines (`runtime.m`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct M {
    /// The number that the kernel has for it.
    pub(super) id: usize,
}

/// Of a goroutine in a queue (`runtime.sudog`). The goroutine comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sudog {
    pub(super) size: usize,
    pub(super) next: usize,
    pub(super) prev: usize,
    pub(super) elem: usize,
    /// Whether that, and the channel, are there twice: for the garbage collector to follow, or not to.
    pub(super) is_twice: bool,
    pub(super) wait_link: usize,
    pub(super) channel: usize,
}

/// Of a channel (`runtime.hchan`). The number of values in it comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Channel {
    pub(super) capacity: usize,
    pub(super) closed: usize,
    pub(super) receivers: usize,
    pub(super) senders: usize,
}

/// Of a call that was put off (`runtime._defer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deferred {
    /// The stack pointer of the function that put it off.
    pub(super) sp: usize,
    pub(super) function: usize,
    pub(super) next: usize,
    /// Whether functions that keep such calls in their own frame say how many, and where each is.
    pub(super) are_counted: bool,
}

/// All of one release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The number behind `go1.`.
    pub(super) release: u32,
    pub(super) g: G,
    pub(super) m: M,
    pub(super) sudog: Sudog,
    pub(super) channel: Channel,
    pub(super) deferred: Deferred,
    /// Of what is polled (`runtime.pollDesc`): the goroutine that waits for output. The one that waits for input comes before it.
    pub(super) poll_writer: usize,
}

impl Layout {
    /// That of `go1.RELEASE`, if it is known.
    pub(super) fn of(release: u32) -> Option<&'static Self> {
        KNOWN.iter().find(|layout| layout.release == release)
    }

    /// The 64-bit number at `at` of a structure's `bytes`.
    pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
        u64_at(bytes, at).unwrap_or(0)
    }
}

/// Those that were measured.
#[rustfmt::skip]
pub(super) static KNOWN: [Layout; 8] = [
    Layout {
        release: 19,
        g: G {
            size: 392,
            m: 48,
            sched: 56,
            fp: 104,
            syscall_sp: 112,
            syscall_pc: 120,
            status: 144,
            id: 152,
            wait_since: 168,
            wait_reason: 176,
            locked_m: 232,
            parent: None,
            made_at: 296,
            start: 312,
            waiting: 328,
            labels: 360,
            deferred: 40,
        },
        m: M { id: 72 },
        sudog: Sudog { size: 88, next: 8, prev: 16, elem: 24, is_twice: false, wait_link: 64, channel: 80 },
        channel: Channel { capacity: 8, closed: 28, receivers: 56, senders: 72 },
        deferred: Deferred { sp: 8, function: 24, next: 40, are_counted: true },
        poll_writer: 32,
    },
    Layout {
        release: 21,
        g: G {
            size: 408,
            m: 48,
            sched: 56,
            fp: 104,
            syscall_sp: 112,
            syscall_pc: 120,
            status: 144,
            id: 152,
            wait_since: 168,
            wait_reason: 176,
            locked_m: 208,
            parent: Some(272),
            made_at: 280,
            start: 296,
            waiting: 312,
            labels: 344,
            deferred: 40,
        },
        m: M { id: 72 },
        sudog: Sudog { size: 88, next: 8, prev: 16, elem: 24, is_twice: false, wait_link: 64, channel: 80 },
        channel: Channel { capacity: 8, closed: 28, receivers: 56, senders: 72 },
        deferred: Deferred { sp: 8, function: 24, next: 40, are_counted: true },
        poll_writer: 40,
    },
    Layout {
        release: 22,
        g: G {
            size: 424,
            m: 48,
            sched: 56,
            fp: 104,
            syscall_sp: 112,
            syscall_pc: 120,
            status: 144,
            id: 152,
            wait_since: 168,
            wait_reason: 176,
            locked_m: 208,
            parent: Some(272),
            made_at: 280,
            start: 296,
            waiting: 312,
            labels: 344,
            deferred: 40,
        },
        m: M { id: 72 },
        sudog: Sudog { size: 88, next: 8, prev: 16, elem: 24, is_twice: false, wait_link: 64, channel: 80 },
        channel: Channel { capacity: 8, closed: 28, receivers: 56, senders: 72 },
        deferred: Deferred { sp: 8, function: 24, next: 32, are_counted: false },
        poll_writer: 40,
    },
    Layout {
        release: 23,
        g: G {
            size: 432,
            m: 48,
            sched: 56,
            fp: 104,
            syscall_sp: 112,
            syscall_pc: 120,
            status: 152,
            id: 160,
            wait_since: 176,
            wait_reason: 184,
            locked_m: 216,
            parent: Some(280),
            made_at: 288,
            start: 304,
            waiting: 320,
            labels: 352,
            deferred: 40,
        },
        m: M { id: 72 },
        sudog: Sudog { size: 88, next: 8, prev: 16, elem: 24, is_twice: false, wait_link: 64, channel: 80 },
        channel: Channel { capacity: 8, closed: 28, receivers: 64, senders: 80 },
        deferred: Deferred { sp: 8, function: 24, next: 32, are_counted: false },
        poll_writer: 40,
    },
    Layout {
        release: 24,
        g: G {
            size: 440,
            m: 48,
            sched: 56,
            fp: 104,
            syscall_sp: 112,
            syscall_pc: 120,
            status: 152,
            id: 160,
            wait_since: 176,
            wait_reason: 184,
            locked_m: 216,
            parent: Some(280),
            made_at: 288,
            start: 304,
            waiting: 320,
            labels: 352,
            deferred: 40,
        },
        m: M { id: 72 },
        sudog: Sudog { size: 88, next: 8, prev: 16, elem: 24, is_twice: false, wait_link: 64, channel: 80 },
        channel: Channel { capacity: 8, closed: 28, receivers: 64, senders: 80 },
        deferred: Deferred { sp: 8, function: 24, next: 32, are_counted: false },
        poll_writer: 40,
    },
    Layout {
        release: 25,
        g: G {
            size: 440,
            m: 48,
            sched: 56,
            fp: 96,
            syscall_sp: 104,
            syscall_pc: 112,
            status: 144,
            id: 152,
            wait_since: 168,
            wait_reason: 176,
            locked_m: 208,
            parent: Some(272),
            made_at: 280,
            start: 296,
            waiting: 312,
            labels: 344,
            deferred: 40,
        },
        m: M { id: 64 },
        sudog: Sudog { size: 88, next: 8, prev: 16, elem: 24, is_twice: false, wait_link: 64, channel: 80 },
        channel: Channel { capacity: 8, closed: 28, receivers: 64, senders: 80 },
        deferred: Deferred { sp: 8, function: 24, next: 32, are_counted: false },
        poll_writer: 40,
    },
    Layout {
        release: 26,
        g: G {
            size: 456,
            m: 48,
            sched: 56,
            fp: 96,
            syscall_sp: 104,
            syscall_pc: 112,
            status: 144,
            id: 152,
            wait_since: 168,
            wait_reason: 176,
            locked_m: 208,
            parent: Some(280),
            made_at: 288,
            start: 304,
            waiting: 320,
            labels: 352,
            deferred: 40,
        },
        m: M { id: 64 },
        sudog: Sudog { size: 104, next: 8, prev: 16, elem: 24, is_twice: true, wait_link: 72, channel: 88 },
        channel: Channel { capacity: 8, closed: 28, receivers: 64, senders: 80 },
        deferred: Deferred { sp: 8, function: 24, next: 32, are_counted: false },
        poll_writer: 40,
    },
    Layout {
        release: 27,
        g: G {
            size: 456,
            m: 48,
            sched: 56,
            fp: 96,
            syscall_sp: 104,
            syscall_pc: 112,
            status: 144,
            id: 152,
            wait_since: 168,
            wait_reason: 176,
            locked_m: 208,
            parent: Some(280),
            made_at: 288,
            start: 304,
            waiting: 320,
            labels: 352,
            deferred: 40,
        },
        m: M { id: 64 },
        sudog: Sudog { size: 104, next: 8, prev: 16, elem: 24, is_twice: true, wait_link: 72, channel: 88 },
        channel: Channel { capacity: 8, closed: 28, receivers: 64, senders: 80 },
        deferred: Deferred { sp: 8, function: 24, next: 32, are_counted: false },
        poll_writer: 40,
    },
];

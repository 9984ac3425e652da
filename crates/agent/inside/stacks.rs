//! Where threads were that have waited: a copy of the stack around the call, now and then.
//!
//! A return address alone tells no more than the name of a wrapper, if the program has one for its locks. Whoever reads a
//! copy undoes its frames by the program's tables, which would take too long here. A stack is taken of a lock's first wait,
//! and then each time that threads have waited for it for a millisecond or so in all: what it costs is a small part of what
//! was waited, and who waits long is seen often.

use crate::memory::HEADER;
use crate::sys;
use core::arch::asm;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use table::{Entry, Extra, STACK_EVERY, STACK_WORDS, WaitStack};

static STACKS: AtomicPtr<WaitStack> = AtomicPtr::new(ptr::null_mut());

/// Tells where they are. Before any call is tracked.
pub fn begin(start: usize) {
    STACKS.store(ptr::with_exposed_provenance_mut(start), Relaxed);
    HEADER.stacks.store(start as u64, Relaxed);
    HEADER.stack_room.store(table::size::STACKS as u64, Relaxed);
}

/// Where a call came from: the stack pointer behind it, and the caller's frame pointer.
#[derive(Clone, Copy)]
pub struct Caller {
    pub sp: usize,
    pub frame_pointer: usize,
}

/// Where the call came from that returns to `site`, and in which this is: all of our own functions have frame pointers, and
/// the first of them returns there.
#[inline(never)]
pub fn caller(site: usize) -> Option<Caller> {
    const FRAMES: usize = 8;
    const FARTHEST: usize = 4096;
    let mut frame: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags)) };
    for _ in 0..FRAMES {
        let at: *const [usize; 2] = ptr::with_exposed_provenance(frame);
        // SAFETY: a frame of ours on this thread's stack, which holds the frame before it and a return address.
        let [before, back] = unsafe { at.read() };
        if back == site {
            return Some(Caller { sp: frame + 16, frame_pointer: before });
        }
        if !before.is_multiple_of(8) || before.wrapping_sub(frame).wrapping_sub(1) >= FARTHEST {
            return None;
        }
        frame = before;
    }
    None
}

/// Takes the stack of a thread that has waited for `time`, if its turn has come.
#[inline(always)]
pub fn note(entry: &Entry, extra: &Extra, time: u64, site: usize, from: impl FnOnce() -> Option<Caller>) {
    let unseen = extra.unseen.fetch_add(time, Relaxed).wrapping_add(time);
    if (unseen >= STACK_EVERY || extra.seen.load(Relaxed) == 0)
        && let Some(from) = from()
    {
        extra.seen.fetch_add(1, Relaxed);
        // What others have added meanwhile stays for the next.
        extra.unseen.fetch_sub(unseen, Relaxed);
        take(entry.key.load(Relaxed), unseen, site, from);
    }
}

#[cold]
#[inline(never)]
fn take(key: u64, time: u64, site: usize, from: Caller) {
    let stacks = STACKS.load(Relaxed);
    if stacks.is_null() {
        return;
    }
    let number = HEADER.next_stack.fetch_add(1, Relaxed);
    // SAFETY: inside the area, which is never unmapped.
    let stack = unsafe { &*stacks.add(number as usize % table::size::STACKS) };
    let before = stack.seq.load(Relaxed);
    // Whoever is so slow that all places were taken since keeps this one.
    let being_written = number.wrapping_mul(2).wrapping_add(1);
    if !before.is_multiple_of(2) || stack.seq.compare_exchange(before, being_written, AcqRel, Relaxed).is_err() {
        return;
    }
    let count = readable_words(from.sp);
    let at: *const AtomicU64 = ptr::with_exposed_provenance(from.sp);
    for (number, word) in stack.words.iter().enumerate().take(count) {
        // SAFETY: on this thread's stack, in memory that is there. What is not ours there may be anything, or be changing:
        // it is read as such.
        word.store(unsafe { at.add(number).read_volatile() }.into_inner(), Relaxed);
    }
    let numbers = [
        (&stack.key, key),
        (&stack.time, time),
        (&stack.site, site as u64),
        (&stack.sp, from.sp as u64),
        (&stack.frame_pointer, from.frame_pointer as u64),
        (&stack.count, count as u64),
    ];
    numbers.into_iter().for_each(|(place, value)| place.store(value, Relaxed));
    stack.seq.store(being_written.wrapping_add(1), Release);
}

/// How many words can be read from `sp` on. A stack of the program's own making may end within them.
fn readable_words(sp: usize) -> usize {
    const PAGE: usize = 4096;
    let page = sp.next_multiple_of(PAGE);
    let here = (page - sp) / 8;
    if here >= STACK_WORDS || sys::is_writable(page) { STACK_WORDS } else { here }
}

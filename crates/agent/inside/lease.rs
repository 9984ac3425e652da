//! An agent that was loaded `off` and then switched on from outside goes off by itself when nobody is there any more who
//! wanted it on, in whatever way they ended. It looks where it reads the clock anyway, about once a second.

use crate::clock;
use crate::memory::HEADER;
use crate::{functions, sys};
use core::sync::atomic::Ordering::*;
use table::{LEASE, mode};

/// Looks, if it is time.
#[inline(always)]
pub fn check(now: u64) {
    let lease = HEADER.lease.load(Relaxed);
    if lease != 0 && clock::since(lease, now) != 0 {
        look(lease, now);
    }
}

#[cold]
#[inline(never)]
fn look(lease: u64, now: u64) {
    // One thread looks, for all.
    if HEADER.lease.compare_exchange(lease, now.wrapping_add(LEASE), AcqRel, Relaxed).is_err() {
        return;
    }
    let mut is_wanted = false;
    for controller in &HEADER.controllers {
        let pid = controller.load(Acquire);
        if pid == 0 {
            continue;
        }
        if sys::is_process(pid) {
            is_wanted = true;
        } else {
            let _ = controller.compare_exchange(pid, 0, AcqRel, Relaxed);
        }
    }
    if !is_wanted {
        HEADER.mode.store(mode::OFF, Release);
        functions::switch_off();
    }
}

/// A forked child has no controllers of its own: it goes off at the first look.
pub fn in_child() {
    for controller in &HEADER.controllers {
        controller.store(0, Relaxed);
    }
    if HEADER.lease.load(Relaxed) != 0 {
        HEADER.lease.store(1, Relaxed);
    }
}

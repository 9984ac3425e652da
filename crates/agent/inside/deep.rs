//! Objects that look for functions among their own first (`RTLD_DEEPBIND`), in a program that was started with us: what
//! was there before such a load is known, and what has come since is patched.
//!
//! Only that: the slots of others lead to us already, or to somebody who stands before us. Such a load may bring in what
//! another thread loads in the usual way at the same moment; `scope.rs` is careful about slots that lead nowhere yet.

use crate::objects::{self, Info};
use crate::scope::Scope;
use crate::{functions, got, pending, sys};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering::*};

/// Room for so many objects. A program that has more is not looked at.
const ROOM: usize = 1 << 14;

/// The dynamic sections of the objects that were there, in the order of the loader's list. Under the lock of `got.rs`.
static KNOWN: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The calling thread is about to load such an object. `false` if that cannot be followed.
pub fn begin() -> bool {
    // An object may do so as it is set up itself, before us.
    if functions::REALS[0].load(Relaxed) == 0 && functions::find_all() != 0 {
        return false;
    }
    let mut is_done = false;
    got::locked(|| {
        // What comes while others load is patched by whoever is back first.
        is_done = pending::is_any() || remember();
        if is_done {
            pending::enter();
        }
    });
    is_done
}

/// Patches what has come. The calling thread is back.
pub fn look() {
    got::locked(|| {
        let mut scope = Scope::new();
        got::patch_some(is_new(), |number| scope.finds(number, is_new()));
        pending::leave();
    });
}

fn remember() -> bool {
    if KNOWN.load(Relaxed) == 0 {
        let Some(start) = sys::map(ROOM * size_of::<usize>()) else { return false };
        KNOWN.store(start, Relaxed);
    }
    let mut count = 0;
    objects::for_each(|info| {
        if count < ROOM {
            // SAFETY: inside the memory, under the lock.
            unsafe { at(count).write(info.dynamic()) };
        }
        count += 1;
    });
    COUNT.store(count.min(ROOM), Relaxed);
    count <= ROOM
}

/// Tells of one object after the other, in the order of the loader's list, whether it has come since.
fn is_new() -> impl FnMut(&Info) -> bool {
    let mut next = 0;
    move |info| {
        let wanted = info.dynamic();
        // New ones come behind all others, so what is left to compare with becomes less and less.
        // SAFETY: written by `remember`, under the lock.
        let found = (next..COUNT.load(Relaxed)).find(|number| unsafe { at(*number).read() } == wanted);
        next = found.map_or(next, |found| found + 1);
        found.is_none()
    }
}

fn at(number: usize) -> *mut usize {
    ptr::with_exposed_provenance_mut::<usize>(KNOWN.load(Relaxed)).wrapping_add(number)
}

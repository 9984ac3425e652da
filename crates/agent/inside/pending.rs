//! Threads that have gone to the loader, and for whose return nobody waits: while there are any, whoever asks for a
//! function patches first what has come.

use crate::sys;
use core::sync::atomic::{AtomicU32, Ordering::*};

const ROOM: usize = 31;
/// Set for ever once there were more threads than there is room for.
const CROWD: u32 = 1 << ROOM;

static THREADS: [AtomicU32; ROOM] = [const { AtomicU32::new(0) }; ROOM];

/// Which places are taken: a bit each. Every `dlsym` looks here.
pub static PLACES: AtomicU32 = AtomicU32::new(0);

pub fn is_any() -> bool {
    PLACES.load(Acquire) != 0
}

/// The calling thread goes to the loader.
pub fn enter() {
    let tid = sys::gettid();
    if taken().any(|(_, other)| other == tid) {
        return;
    }
    let free = THREADS.iter().position(|place| place.compare_exchange(0, tid, AcqRel, Relaxed).is_ok());
    PLACES.fetch_or(free.map_or(CROWD, |place| 1 << place), AcqRel);
}

/// The calling thread is back: it asks for something else. Threads that have ended are forgotten, too.
pub fn leave() {
    let tid = sys::gettid();
    for (place, other) in taken() {
        if other == tid || !sys::is_thread(other) {
            PLACES.fetch_and(!(1 << place), AcqRel);
            let _ = THREADS[place].compare_exchange(other, 0, AcqRel, Relaxed);
        }
    }
}

/// Nobody is waited for any more.
pub fn clear() {
    PLACES.store(0, Release);
    THREADS.iter().for_each(|place| place.store(0, Release));
}

fn taken() -> impl Iterator<Item = (usize, u32)> {
    let all = THREADS.iter().map(|place| place.load(Acquire)).enumerate();
    all.filter(|(_, tid)| *tid != 0)
}

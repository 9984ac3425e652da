//! Five philosophers at a round table, each with one fork in the hand: locks of Rust, which record no holder.

use std::io;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

static FORKS: [Mutex<u32>; 5] = [const { Mutex::new(0) }; 5];
static ALL_HAVE_ONE: Barrier = Barrier::new(5);
const NAMES: [&str; 5] = ["aristotle", "hypatia", "kant", "mill", "plato"];

/// Takes the fork at the left, then the one at the right, which the neighbour has.
#[inline(never)]
fn dine(seat: usize) {
    let mut left = FORKS[seat].lock().unwrap_or_else(PoisonError::into_inner);
    ALL_HAVE_ONE.wait();
    let mut right = FORKS[(seat + 1) % FORKS.len()].lock().unwrap_or_else(PoisonError::into_inner);
    *left += 1;
    *right += 1;
}

/// Makes five threads wait for each other in a circle.
pub fn philosophers(parent: u32) -> io::Result<()> {
    crate::posix::end_with_parent(parent);
    for (seat, name) in NAMES.into_iter().enumerate() {
        thread::Builder::new().name(name.to_owned()).spawn(move || dine(seat))?;
    }
    crate::stay()
}

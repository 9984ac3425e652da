//! Decoders of memory as fuzz targets call them: what can be checked from outside comes out.

pub use super::parking_lot::parked_at;

use super::{Owner, cpython, go, hotspot, musl, tokio};
use crate::RemoteAddr;
use crate::memory::Memory;
use std::collections::BTreeSet;
use std::ops::Range;

/// The descriptors of musl's ring of threads from `start` on, with each thread's id at `tid`; and whether all were seen.
pub fn musl_threads(memory: &dyn Memory, tid: u64, start: RemoteAddr) -> (Vec<RemoteAddr>, bool) {
    let layout = musl::Layout { tid };
    let mut ring = musl::ThreadRing::walk(memory, &layout, start);
    ring.confirm(memory, &layout);
    (ring.threads.iter().map(|thread| thread.id.0).collect(), ring.is_whole)
}

/// The member `name` of the class `class`, in the table of HotSpot that the variable at `pointer` leads to.
pub fn java_member(memory: &dyn Memory, pointer: RemoteAddr, class: &str, name: &str) -> Option<u64> {
    hotspot::member(memory, pointer, class, name)
}

/// The thread that has the lock of a Python interpreter at `address`, of those that `is_thread` accepts.
pub fn gil_owner(
    memory: &dyn Memory,
    address: RemoteAddr,
    is_thread: &dyn Fn(RemoteAddr) -> bool,
) -> Option<RemoteAddr> {
    match cpython::gil(memory, address, is_thread)?.owner {
        Owner::Thread(id) => Some(id),
        _ => None,
    }
}

/// Goroutines with the program counters of their stacks, of a Go program without a version: `table` is its table of functions,
/// `module` what leads to the table's parts, and `symbols` names variables of its runtime.
pub fn goroutines(
    memory: &dyn Memory,
    table: RemoteAddr,
    module: RemoteAddr,
    symbols: &[(&str, RemoteAddr)],
    release: Option<u32>,
) -> Option<Vec<(u64, Option<Vec<u64>>)>> {
    go::read_of_bytes(memory, table, module, symbols, release)
}

/// Tasks of tokio: the id of each with where it is, and whether all lists were followed to their ends. Tables of functions are in
/// `constants`, their functions in `code`, everything else in `data`; `pointers` may lead to schedulers.
pub fn tokio_tasks(
    memory: &dyn Memory,
    constants: (RemoteAddr, &[u8]),
    code: Range<u64>,
    data: Range<u64>,
    pointers: &BTreeSet<u64>,
) -> (Vec<(u64, RemoteAddr)>, bool) {
    tokio::read_of_bytes(memory, constants, code, data, pointers)
}

//! Which function of the C library a blocked thread's program called.
//!
//! A libc without debug symbols names few of its functions: a thread that waits for a robust mutex
//! stands in a function nobody can name. But the call that led into libc is in the program's own code,
//! and says by its target (directly, by the procedure linkage table, or by the global offset table)
//! which exported function was called.

use super::call::{Call, call_before, through_stubs};
use super::space::{Rows, Space};
use super::walk::Place;
use crate::RemoteAddr;
use crate::model::{CallSite, Evidence};

/// Functions that only pass a call on are short.
const SHORT: usize = 192;

/// The call by which the innermost frames, as far as they are in libc, were reached.
pub(super) fn call_site(space: &Space<'_>, rows: &mut Rows, places: &[Place]) -> Option<CallSite> {
    let in_libc = |place: &Place| space.object_at(place.lookup().0).is_some_and(|object| object.libc);
    let caller = places.iter().position(|place| !in_libc(place))?;
    let inner = &places[caller.checked_sub(1)?];
    let back = places[caller].pc;
    if places[caller].exact || inner.signal {
        return None;
    }
    let site = |function, evidence| Some(CallSite { function, address: back, evidence });
    // Conclusions from a frame that was itself inferred are not better than that.
    let best = places[caller].evidence.max(Evidence::Derived);
    if let Some(Call::To(target)) = call_before(space, back.0) {
        if space.object_at(target).is_some_and(|object| object.libc) {
            return site(space.exported(target)?, best);
        }
        if let Some(function) = passed_on(space, rows, target) {
            return site(function, Evidence::Inferred);
        }
    }
    // A call by way of a pointer: the function that stands next in libc, if it is one that is exported.
    let row = rows.at(space, inner.lookup().0)?;
    let (function, start) = space.exported_around(inner.lookup().0)?;
    (start == RemoteAddr(row.function.0)).then_some(())?;
    site(function, Evidence::Inferred)
}

/// The one exported function of libc to which the short function at `start` jumps (libstdc++ has such:
/// `std::condition_variable::wait` only passes its arguments on). `None` when it is not exactly one.
fn passed_on(space: &Space<'_>, rows: &mut Rows, start: u64) -> Option<String> {
    let row = rows.at(space, start).filter(|row| row.function.0 == start)?;
    let length = usize::try_from(row.function.1.checked_sub(start)?).ok().filter(|length| *length <= SHORT)?;
    let mut code = vec![0; length];
    space.memory.read_exact(RemoteAddr(start), &mut code).ok()?;
    let mut found: Option<String> = None;
    for (at, window) in code.windows(5).enumerate().filter(|(_, window)| window[0] == 0xe9) {
        let relative = i32::from_le_bytes([window[1], window[2], window[3], window[4]]);
        let target = start.wrapping_add(at as u64 + 5).wrapping_add_signed(i64::from(relative));
        if !space.is_code(target) {
            continue;
        }
        let target = through_stubs(space, target);
        if !space.object_at(target).is_some_and(|object| object.libc) {
            continue;
        }
        let name = space.exported(target)?;
        if found.as_ref().is_some_and(|other| *other != name) {
            return None;
        }
        found = Some(name);
    }
    found
}

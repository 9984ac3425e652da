//! Which function of the C library a blocked thread's program called.
//!
//! A libc without debug symbols names few of its functions: a thread that waits for a robust mutex
//! stands in a function nobody can name. But the call that led into libc is in the program's own code,
//! and says by its target (directly, by the procedure linkage table, or by the global offset table)
//! which exported function was called.

use super::call::{Call, through_stubs};
use super::space::{Known, Space};
use super::walk::Place;
use crate::RemoteAddr;
use crate::arch::code::jumps;
use crate::model::{CallSite, Evidence};

/// Functions that only pass a call on are short.
const SHORT: usize = 192;

/// The call by which the innermost frames, as far as they are in libc, were reached.
pub(crate) fn call_site(space: &Space<'_>, known: &mut Known, places: &[Place]) -> Option<CallSite> {
    let caller = places.iter().position(|place| !space.is_libc(place.lookup().0))?;
    let (inner, caller) = (&places[caller.checked_sub(1)?], &places[caller]);
    if caller.exact || inner.signal {
        return None;
    }
    let back = caller.pc;
    if !known.sites.contains_key(&back.0) {
        let found = called_at(space, known, back.0);
        known.sites.insert(back.0, found);
    }
    let (function, evidence) = match known.sites.get(&back.0)? {
        Some(found) => found.clone(),
        None => (standing_in(space, known, inner)?, Evidence::Derived),
    };
    // A conclusion from a frame that was itself inferred is not better than that.
    let frame = if caller.firm { Evidence::Derived } else { caller.evidence };
    Some(CallSite { function, address: back, evidence: evidence.max(frame) })
}

/// What the call that returns to `back` calls in libc.
fn called_at(space: &Space<'_>, known: &mut Known, back: u64) -> Option<(String, Evidence)> {
    let Some(Call::To(target)) = known.call(space, back) else { return None };
    if space.is_libc(target) {
        return Some((space.exported(target)?, Evidence::Derived));
    }
    Some((passed_on(space, known, target)?, Evidence::Inferred))
}

/// After a call by way of a pointer, or a jump: the function of libc that was reached, if it is one that is
/// exported. The frame is that function's own, so there is no doubt that it is being executed.
fn standing_in(space: &Space<'_>, known: &mut Known, inner: &Place) -> Option<String> {
    let row = known.row(space, inner.lookup().0)?;
    let (function, start) = space.exported_around(inner.lookup().0)?;
    (start.0 == row.function.0).then_some(function)
}

/// The one exported function of libc to which the short function at `start` jumps (libstdc++ has such:
/// `std::condition_variable::wait` only passes its arguments on). `None` when it is not exactly one.
fn passed_on(space: &Space<'_>, known: &mut Known, start: u64) -> Option<String> {
    let row = known.row(space, start).filter(|row| row.function.0 == start)?;
    let length = usize::try_from(row.function.1.checked_sub(start)?).ok().filter(|length| *length <= SHORT)?;
    let code = space.memory.read_vec(RemoteAddr(start), length).ok()?;
    let mut names = Vec::new();
    for target in jumps(&code, start).filter(|target| space.is_code(*target)) {
        let target = through_stubs(space, target);
        if space.is_libc(target) {
            names.push(space.exported(target)?);
        }
    }
    names.dedup();
    <[String; 1]>::try_from(names).ok().map(|[name]| name)
}

//! One object that the user names by its address.

use super::assemble::collect;
use super::look::idle;
use super::reread::held_at;
use super::{NoPlace, around, check_place};
use crate::RemoteAddr;
use crate::look::{Look, Names, Scope};
use crate::model::{Evidence, Gap, Remedy, Snapshot, SyncKind, SyncState};
use crate::runtimes::{self, Class};
use crate::target::{Target, TargetError};

/// The object at `address`, whatever its state. Its kind is taken from what is known of it (waiters, a
/// variable's type), or is `kind`, if the user knows better.
pub fn look_at(target: &dyn Target, address: RemoteAddr, kind: Option<SyncKind>) -> Result<Snapshot, TargetError> {
    if let Some(denial) = target.denial() {
        return Err(no_object(address, denial.to_string()));
    }
    let _look = target.limits().begin();
    check_place(target, address).map_err(|why| {
        let remedy = matches!(why, NoPlace::Unmapped).then_some(Remedy::ListAddresses);
        TargetError::NoObject { address, why: why.to_string(), remedy }
    })?;
    let look = Look::new(target);
    let mut snapshot = look.take(Scope::All, Names::Findings)?;
    let known =
        snapshot.objects.iter().any(|object| object.address == address && kind.is_none_or(|kind| object.kind == kind));
    if !known {
        if let Some(object) = around(&snapshot.objects, address) {
            let why =
                format!("the address is inside the {} at {} (give that address)", object.kind.word(), object.address);
            return Err(no_object(address, why));
        }
        let class = by_user_or_content(target, address, kind, &snapshot);
        snapshot = collect(&look, Scope::Waited, Names::Findings, &[class])?;
        if class.evidence == Evidence::Unknown {
            let why = "no thread waits for it, and no symbol or debug information tells its type";
            snapshot.gaps.push(Gap::whole(format!("kind of {address}"), why).with(Remedy::NameKind));
        }
    }
    snapshot.objects.retain(|object| object.address == address);
    if let Some(kind) = kind
        && snapshot.objects.iter().all(|object| object.state == SyncState::Unknown)
        && runtimes::usual(kind, &snapshot.target.libc).is_some()
    {
        return Err(no_object(address, format!("there is no {} there: the bytes make no sense as one", kind.word())));
    }
    Ok(snapshot)
}

fn no_object(address: RemoteAddr, why: impl Into<String>) -> TargetError {
    TargetError::NoObject { address, why: why.into(), remedy: None }
}

/// What an address is that nothing is known of: what the user says, or a lock that is held, which shows by itself.
fn by_user_or_content(target: &dyn Target, address: RemoteAddr, kind: Option<SyncKind>, snapshot: &Snapshot) -> Class {
    if let Some(kind) = kind {
        return idle(
            kind,
            runtimes::usual(kind, &snapshot.target.libc).unwrap_or_default(),
            address,
            Evidence::Inferred,
        );
    }
    let is_thread = |tid| snapshot.threads.iter().any(|thread| thread.inner_lwp == Some(tid));
    let held = held_at(target, address, &is_thread);
    held.unwrap_or_else(|| Class::word(address, Evidence::Unknown))
}

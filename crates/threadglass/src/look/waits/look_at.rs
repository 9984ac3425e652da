//! One object that the user names by its address.

use super::assemble::collect;
use crate::RemoteAddr;
use crate::look::{Look, Names, Scope};
use crate::model::{Evidence, Family, Gap, Remedy, Snapshot, SyncKind, SyncState};
use crate::proc::map_at;
use crate::runtimes::{self, Class};
use crate::target::{Target, TargetError};

/// The object at `address`, whatever its state. Its kind is taken from what is known of it (waiters, a
/// variable's type), or is `kind`, if the user knows better.
pub fn look_at(target: &dyn Target, address: RemoteAddr, kind: Option<SyncKind>) -> Result<Snapshot, TargetError> {
    if let Some(denial) = target.denial() {
        return Err(no_object(address, denial.to_string()));
    }
    let _look = target.limits().begin();
    check_place(target, address)?;
    let look = Look::new(target);
    let mut snapshot = look.take(Scope::All, Names::Findings)?;
    let known =
        snapshot.objects.iter().any(|object| object.address == address && kind.is_none_or(|kind| object.kind == kind));
    if !known {
        let around = snapshot.objects.iter().find(|object| {
            object.size.is_some_and(|size| object.address < address && address.0 - object.address.0 < size)
        });
        if let Some(object) = around {
            let why = format!(
                "it is in the middle of the {} at {} (name it by that address)",
                object.kind.word(),
                object.address
            );
            return Err(no_object(address, why));
        }
        let class = by_user_or_content(target, address, kind, &snapshot)?;
        snapshot = collect(&look, Scope::Waited, Names::Findings, &[class])?;
        if class.evidence == Evidence::Unknown {
            let why = "no thread waits for it, and no symbol or debug information names its type";
            snapshot.gaps.push(Gap::whole(format!("kind of {address}"), why).with(Remedy::NameKind));
        }
    }
    snapshot.objects.retain(|object| object.address == address);
    if let Some(kind) = kind
        && snapshot.objects.iter().all(|object| object.state == SyncState::Unknown)
        && runtimes::usual(kind) != Family::Other
    {
        return Err(no_object(address, format!("what lies there cannot be a {}", kind.word())));
    }
    Ok(snapshot)
}

fn no_object(address: RemoteAddr, why: impl Into<String>) -> TargetError {
    TargetError::NoObject { address, why: why.into(), remedy: None }
}

fn check_place(target: &dyn Target, address: RemoteAddr) -> Result<(), TargetError> {
    let Some(map) = map_at(target.maps(), address) else {
        let (why, remedy) = ("nothing is mapped there".to_owned(), Some(Remedy::ListAddresses));
        return Err(TargetError::NoObject { address, why, remedy });
    };
    if map.exec {
        return Err(no_object(address, "that is code (an object lies in memory that can be written)"));
    }
    if !map.write {
        return Err(no_object(address, "that memory cannot be written, so no object of the kind can be there"));
    }
    if !address.0.is_multiple_of(4) {
        return Err(no_object(address, "it is not aligned, as all such objects are (to 4 bytes at least)"));
    }
    match target.read_u32(address) {
        Ok(_) => Ok(()),
        Err(error) => Err(no_object(address, error.to_string())),
    }
}

/// What an address is that nothing is known of: what the user says, or a held mutex, which shows by itself.
fn by_user_or_content(
    target: &dyn Target,
    address: RemoteAddr,
    kind: Option<SyncKind>,
    snapshot: &Snapshot,
) -> Result<Class, TargetError> {
    if let Some(kind) = kind {
        let (family, evidence) = (runtimes::usual(kind), Evidence::Inferred);
        return Ok(Class { kind, family, address, side: None, evidence });
    }
    let mut bytes = [0; 40];
    let is_thread = |tid| snapshot.threads.iter().any(|thread| thread.inner_lwp == Some(tid));
    let held = target.read_exact(address, &mut bytes).ok();
    let held = held.and_then(|()| runtimes::held_by_content(address, &bytes, &is_thread));
    Ok(held.unwrap_or_else(|| Class::word(address, Evidence::Unknown)))
}

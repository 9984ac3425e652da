//! The object that a user names by its address.

use crate::look::{Names, Scope, look, look_at};
use crate::model::{
    Detail, Evidence, Family, Holder, HolderStatus, Remedy, Side, Snapshot, SyncKind, SyncObject, SyncState, Waiter,
};
use crate::runtimes;
use crate::runtimes::glibc::locks::{CondLayout, decode, size_of};
use crate::target::{Target, TargetError};
use crate::{Lwp, RemoteAddr};
use std::hash::{DefaultHasher, Hash, Hasher};

/// An object with its bytes.
#[derive(Clone, Debug)]
pub struct Found {
    /// The look that found it.
    pub snapshot: Snapshot,
    /// The object.
    pub object: SyncObject,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Found {
    /// A code for this picture, which also depends on `about`: an object in other hands or with other waiters has
    /// another one, and so has one whose waiters have moved in between.
    pub fn code(&self, target: &dyn Target, about: impl Hash) -> u32 {
        let Self { object, bytes, .. } = self;
        let mut hash = DefaultHasher::new();
        about.hash(&mut hash);
        (object.address, object.kind, bytes).hash(&mut hash);
        for holder in &object.holders {
            (holder.lwp, holder.side, holder.pid).hash(&mut hash);
        }
        let mut waiters: Vec<_> = object.waiters.iter().map(|waiter| (waiter.lwp, waiter.side)).collect();
        waiters.sort_unstable();
        let lwps: Vec<Lwp> = waiters.iter().map(|(lwp, _)| *lwp).collect();
        // Who has gone to sleep once more has given up the CPU once more.
        let facts = target.facts(&lwps);
        let slept: Vec<_> = facts.iter().map(|facts| facts.as_ref().and_then(|facts| facts.switches)).collect();
        (waiters, slept).hash(&mut hash);
        hash.finish() as u32
    }
}

/// Why there is no such object.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The process cannot be looked at.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Nothing is there.
    #[error("nothing is mapped at {0}")]
    Unmapped(RemoteAddr),
    /// The program itself could not change it.
    #[error("the memory at {0} cannot be written by the program itself: there is no lock there")]
    NotWritable(RemoteAddr),
    /// No object begins there.
    #[error("{0} is not aligned to {1} bytes: no {kind} begins there", kind = .2.word())]
    Unaligned(RemoteAddr, u64, SyncKind),
    /// It lies in the middle of an object.
    #[error("{0} lies inside the {kind} at {2}: give the address at which it begins", kind = .1.word())]
    Inside(RemoteAddr, SyncKind, RemoteAddr),
    /// The user and the evidence disagree.
    #[error("what is at {0} is a {is}, as its waiters show, not a {said}", is = .1.word(), said = .2.word())]
    OtherKind(RemoteAddr, SyncKind, SyncKind),
    /// Nothing says that an object is there.
    #[error("no known lock at {0}: no thread waits for it and nothing names it")]
    Unknown(RemoteAddr),
    /// What it is was only guessed.
    #[error("that there is a {kind} at {0} is only inferred", kind = .1.word())]
    Inferred(RemoteAddr, SyncKind),
    /// The bytes cannot be such an object.
    #[error("what is at {0} cannot be a {kind}: its bytes make no sense as one", kind = .1.word())]
    Implausible(RemoteAddr, SyncKind),
}

impl FindError {
    /// What could be done, where that takes a command of the face.
    pub fn remedy(&self) -> Option<Remedy> {
        match *self {
            Self::Target(ref error) => error.remedy(),
            Self::Unmapped(_) => Some(Remedy::ListObjects),
            Self::Unknown(_) => Some(Remedy::ListOrNameKind),
            Self::Inferred(_, of) => Some(Remedy::ConfirmKind { of }),
            _ => None,
        }
    }
}

/// Finds the object at `address` of `target`: one that threads wait for or hold, or that is named by
/// something; or, if the user says of which `kind` it is, whatever can be one.
pub fn find(target: &dyn Target, address: RemoteAddr, kind: Option<SyncKind>) -> Result<Found, FindError> {
    let map = target.maps().iter().find(|map| map.contains(address)).ok_or(FindError::Unmapped(address))?;
    if !map.write {
        return Err(FindError::NotWritable(address));
    }
    let mut snapshot = look(target, Scope::Held, Names::Findings)?;
    if let Some(around) = snapshot.objects.iter().find(|object| is_inside(address, object)) {
        return Err(FindError::Inside(address, around.kind, around.address));
    }
    if !snapshot.objects.iter().any(|object| object.address == address) {
        let looked_at = look_at(target, address, kind)?;
        snapshot.objects.extend(looked_at.objects.into_iter().filter(|object| object.address == address));
    }
    let known = snapshot.objects.iter().find(|object| object.address == address).cloned();
    let object = match (known, kind) {
        (None, None) => return Err(FindError::Unknown(address)),
        (Some(object), None) if object.evidence == Evidence::Unknown => return Err(FindError::Unknown(address)),
        (Some(object), None) if object.evidence >= Evidence::Inferred && object.kind != SyncKind::Futex => {
            return Err(FindError::Inferred(address, object.kind));
        }
        (Some(object), None) => object,
        (Some(object), Some(kind)) if object.kind == kind => object,
        // A bare word is what is left when nothing tells what it belongs to.
        (Some(object), Some(kind)) if object.evidence < Evidence::Inferred && object.kind != SyncKind::Futex => {
            return Err(FindError::OtherKind(address, object.kind, kind));
        }
        (_, Some(kind)) => assume(target, &snapshot, address, kind)?,
    };
    let align = runtimes::of(object.family).alignment(object.family);
    if !address.0.is_multiple_of(align) {
        return Err(FindError::Unaligned(address, align, object.kind));
    }
    let size = object.size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size <= 64).unwrap_or(4);
    let mut bytes = vec![0; size];
    target.read_exact(address, &mut bytes).map_err(|_| FindError::Unmapped(address))?;
    Ok(Found { snapshot, object, bytes })
}

fn is_inside(address: RemoteAddr, object: &SyncObject) -> bool {
    let size = object.size.unwrap_or(1);
    object.kind != SyncKind::Futex && address.0.checked_sub(object.address.0).is_some_and(|at| at > 0 && at < size)
}

/// What the bytes at `address` are, given that they are a `kind` of libc's.
fn assume(
    target: &dyn Target,
    snapshot: &Snapshot,
    address: RemoteAddr,
    kind: SyncKind,
) -> Result<SyncObject, FindError> {
    let implausible = || FindError::Implausible(address, kind);
    if !address.0.is_multiple_of(8) {
        return Err(FindError::Unaligned(address, 8, kind));
    }
    let mut bytes = vec![0; size_of(kind).ok_or_else(implausible)?];
    target.read_exact(address, &mut bytes).map_err(|_| FindError::Unmapped(address))?;
    let decoded = decode(kind, &bytes, CondLayout::Unknown).ok_or_else(implausible)?;
    if !decoded.is_plausible {
        return Err(implausible());
    }
    let holder = decoded.owner.map(|inner| {
        let lwp = target.lwp_of_inner(inner).filter(|lwp| target.has_thread(*lwp));
        let thread = snapshot.threads.iter().find(|thread| lwp.is_some() && thread.lwp == lwp);
        Holder {
            lwp: lwp.or(Some(Lwp(inner.0))),
            thread: thread.and_then(|thread| thread.id),
            recorded: Some(inner),
            pid: None,
            side: (decoded.state == SyncState::WriteLocked).then_some(Side::Write),
            status: if lwp.is_some() { HolderStatus::Alive } else { HolderStatus::Unknown },
            evidence: Evidence::Recorded,
            why: None,
        }
    });
    let end = address.offset(bytes.len() as u64);
    let words = snapshot.objects.iter().filter(|other| other.address >= address && other.address < end);
    let waiters: Vec<Waiter> = words.flat_map(|object| object.waiters.iter().cloned()).collect();
    let detail: Detail = decoded.detail;
    Ok(SyncObject {
        address,
        kind,
        family: Family::Pthread,
        evidence: Evidence::Inferred,
        name: None,
        stats: None,
        size: Some(decoded.size),
        shared: decoded.shared,
        state: decoded.state,
        detail,
        holders: holder.into_iter().collect(),
        waiters,
    })
}

//! The object that a user names by its address.

use crate::look::waits::{NoPlace, around, check_place, reread};
use crate::look::{Names, Scope, look, look_at};
use crate::model::{Evidence, Remedy, Snapshot, SyncKind, SyncObject};
use crate::target::{Target, TargetError};
use crate::{Lwp, RemoteAddr, runtimes};
use std::hash::{DefaultHasher, Hash, Hasher};

/// An object with its bytes.
#[derive(Clone, Debug)]
pub struct FoundLock {
    /// The look that found it.
    pub snapshot: Snapshot,
    /// The object.
    pub object: SyncObject,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl FoundLock {
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
    #[error("the program cannot write to the memory at {0}: there is no lock there")]
    NotWritable(RemoteAddr),
    /// No object begins there.
    #[error("{0} is not aligned to {1} bytes, as every {kind} is", kind = .2.word())]
    Unaligned(RemoteAddr, u64, SyncKind),
    /// It lies in the middle of an object.
    #[error("{0} is inside the {kind} at {2}: give that address", kind = .1.word())]
    Inside(RemoteAddr, SyncKind, RemoteAddr),
    /// The user and the evidence disagree.
    #[error("there is a {is} at {0}, as its waiters show, not a {said}", is = .1.word(), said = .2.word())]
    OtherKind(RemoteAddr, SyncKind, SyncKind),
    /// Nothing says that an object is there.
    #[error("no known lock at {0}: no thread waits for it and nothing names it")]
    Unknown(RemoteAddr),
    /// What it is was only guessed.
    #[error("the {kind} at {0} is only inferred", kind = .1.word())]
    Inferred(RemoteAddr, SyncKind),
    /// The bytes cannot be such an object.
    #[error("there is no {kind} at {0}: the bytes there make no sense as one", kind = .1.word())]
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
pub fn find(target: &dyn Target, address: RemoteAddr, kind: Option<SyncKind>) -> Result<FoundLock, FindError> {
    if let Some(denial) = target.denial() {
        return Err(TargetError::NoLocks { pid: target.pid(), why: denial.to_string() }.into());
    }
    match check_place(target, address) {
        Err(NoPlace::Unmapped | NoPlace::Unread(_)) => return Err(FindError::Unmapped(address)),
        Err(NoPlace::Code | NoPlace::NotWritable) => return Err(FindError::NotWritable(address)),
        // How it must be aligned depends on what it is.
        Err(NoPlace::Unaligned) | Ok(()) => {}
    }
    let mut snapshot = look(target, Scope::Held, Names::Findings)?;
    if let Some(around) = around(&snapshot.objects, address) {
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
    let bytes = target.read_vec(address, size).map_err(|_| FindError::Unmapped(address))?;
    Ok(FoundLock { snapshot, object, bytes })
}

/// What the bytes at `address` are, given that they are a `kind` of libc's.
fn assume(
    target: &dyn Target,
    snapshot: &Snapshot,
    address: RemoteAddr,
    kind: SyncKind,
) -> Result<SyncObject, FindError> {
    let implausible = || FindError::Implausible(address, kind);
    let family = runtimes::usual(kind, &snapshot.target.libc).ok_or_else(implausible)?;
    let align = runtimes::of(family).alignment(family);
    if !address.0.is_multiple_of(align) {
        return Err(FindError::Unaligned(address, align, kind));
    }
    let bare = SyncObject::bare(address, kind, family, Evidence::Inferred);
    let read = reread(target, None, &snapshot.threads, &bare).ok_or(FindError::Unmapped(address))?;
    if !read.is_plausible {
        return Err(implausible());
    }
    let end = address.offset(read.object.size.ok_or_else(implausible)?);
    let words = snapshot.objects.iter().filter(|other| other.address >= address && other.address < end);
    let waiters = words.flat_map(|object| object.waiters.iter().cloned()).collect();
    Ok(SyncObject { waiters, ..read.object })
}

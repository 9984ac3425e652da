//! Where objects can be: of an address that somebody names.

use crate::RemoteAddr;
use crate::memory::ReadError;
use crate::model::{SyncKind, SyncObject};
use crate::proc::map_at;
use crate::target::Target;

/// Why no object can begin at an address.
#[derive(Debug, thiserror::Error)]
pub enum NoPlace {
    /// Nothing is there.
    #[error("nothing is mapped there")]
    Unmapped,
    /// It is code that the program could not change.
    #[error("that is code (a lock is in writable memory)")]
    Code,
    /// It is data that the program could not change.
    #[error("that memory is read-only, so there is no lock")]
    NotWritable,
    /// Only a lock of one byte could be there, which says nothing of itself.
    #[error("the address is not aligned to 4 bytes, as every lock is")]
    Unaligned,
    /// It cannot be read.
    #[error(transparent)]
    Unread(#[from] ReadError),
}

/// Whether an object can begin at `address`: in memory that can be written and read, and aligned.
pub fn check_place(target: &dyn Target, address: RemoteAddr) -> Result<(), NoPlace> {
    match map_at(target.maps(), address) {
        None => return Err(NoPlace::Unmapped),
        Some(map) if !map.write => return Err(if map.exec { NoPlace::Code } else { NoPlace::NotWritable }),
        Some(_) if !address.0.is_multiple_of(4) => return Err(NoPlace::Unaligned),
        Some(_) => {}
    }
    target.read_u32(address)?;
    Ok(())
}

/// The one of `objects` in the middle of which `address` lies: inside of one object begins no other.
pub fn around<'o>(objects: impl IntoIterator<Item = &'o SyncObject>, address: RemoteAddr) -> Option<&'o SyncObject> {
    objects.into_iter().find(|object| {
        let at = address.0.checked_sub(object.address.0);
        object.kind != SyncKind::Futex && at.zip(object.size).is_some_and(|(at, size)| at > 0 && at < size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Evidence, Family};

    #[test]
    fn an_object_reaches_as_far_as_its_size() {
        let object = |kind, address, size| SyncObject {
            size,
            ..SyncObject::bare(RemoteAddr(address), kind, Family::Pthread, Evidence::Derived)
        };
        let objects = [
            object(SyncKind::Mutex, 0x1000, Some(40)),
            object(SyncKind::Futex, 0x2000, Some(4)),
            object(SyncKind::Mutex, 0x3000, None),
        ];
        let at = |address| around(&objects, RemoteAddr(address)).map(|object| object.address.0);
        assert_eq!((at(0xfff), at(0x1000), at(0x1028)), (None, None, None));
        assert_eq!((at(0x1001), at(0x1027)), (Some(0x1000), Some(0x1000)));
        assert_eq!((at(0x2001), at(0x3001)), (None, None), "a bare word, an unknown size");
    }
}

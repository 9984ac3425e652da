//! What each kind of object takes to be set. Measured on glibc 2.36; the layouts and the order in which libc itself
//! goes are the same from 2.31 to 2.43.

pub(super) mod mutex;
pub(super) mod rwlock;
pub(super) mod semaphore;

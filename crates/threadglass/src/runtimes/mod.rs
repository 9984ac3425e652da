//! What a thread, a lock and a wait are, one folder for each system that makes them.

pub mod glibc;

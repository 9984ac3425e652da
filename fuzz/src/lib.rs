//! Targets made of bytes, assembled from fuzz input: right in the main, wrong wherever the input
//! says so. Random bytes alone would fail at the first check and never reach the code behind it.

#[path = "../../crates/threadglass/tests/support/core_file.rs"]
pub mod core_file;
pub mod glibc;
pub mod object;
pub mod unwind;

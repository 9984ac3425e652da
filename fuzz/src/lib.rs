//! Targets made of bytes, assembled from fuzz input: right in the main, wrong wherever the input
//! says so. Random bytes alone would fail at the first check and never reach the code behind it.

pub mod glibc;
pub mod object;

//! Decoders for the files of `/proc`.
//!
//! They take bytes and give values: no file is opened here, so that property tests and fuzz targets
//! need no process. The `procfs` crate is the oracle in the tests; these are written by hand
//! because reading three files for each of 10,000 threads is the hot path of this library and a
//! general parser allocates for every field.

mod auxv;
mod job;
#[cfg(feature = "profile")]
mod kallsyms;
mod limits;
mod maps;
pub(crate) mod seccomp;
mod stat;
mod status;
mod syscall;

pub use auxv::{AuxVector, parse_auxv};
pub use job::Job;
pub(crate) use job::parse_job;
#[cfg(feature = "profile")]
pub(crate) use kallsyms::{KernelFunction, kernel_functions};
pub(crate) use limits::parse_file_limit;
pub use limits::{StackLimit, parse_stack_limit};
pub use maps::{MapEntry, map_at, parse_maps};
pub(crate) use stat::parse_schedstat;
pub use stat::{KernelState, SchedCounters, Stat, parse_stat};
pub use status::{Status, parse_status};
pub use syscall::{SyscallFile, parse_syscall};

/// Parses an unsigned decimal that fills `bytes` wholly.
fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |sum, byte| match byte {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// Parses a signed decimal that fills `bytes` wholly.
fn signed(bytes: &[u8]) -> Option<i64> {
    match bytes.strip_prefix(b"-") {
        Some(digits) => decimal(digits).and_then(|n| 0i64.checked_sub_unsigned(n)),
        None => decimal(bytes).and_then(|n| i64::try_from(n).ok()),
    }
}

/// Parses hexadecimal digits (no prefix) that fill `bytes` wholly.
fn hex(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 16 {
        return None;
    }
    bytes.iter().try_fold(0u64, |sum, byte| Some(sum << 4 | u64::from((*byte as char).to_digit(16)?)))
}

/// Parses `0x`-prefixed hexadecimal.
fn hex0x(bytes: &[u8]) -> Option<u64> {
    hex(bytes.strip_prefix(b"0x")?)
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

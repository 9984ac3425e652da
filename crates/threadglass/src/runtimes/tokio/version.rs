//! The version of tokio, and executors that are not read: by the places in the source that their panics tell. Those are in
//! every program that was not built with other names for them, stripped or not.

use crate::RemoteAddr;
use crate::proc::MapEntry;
use crate::symbols::{MappedObject, Objects};
use crate::target::Target;
use memchr::memmem;

/// What is read of one object.
const MAX_READ: usize = 64 << 20;
const PIECE: usize = 4 << 20;
/// The longest version.
const MAX_VERSION: usize = 24;
/// What every program of Rust asks of the library that unwinds, if it is linked with that.
const OF_RUST: &str = "_Unwind_GetDataRelBase";

/// Executors that are not read: the crate, and what people call it.
const OTHERS: [(&str, &str); 4] = [
    ("async-executor", "async-executor (smol, async-std)"),
    ("futures-executor", "futures-executor"),
    ("async-std", "async-std"),
    ("pollster", "pollster"),
];

/// How paths in executors that are not read begin, and the crate.
const PATHS: [(&str, &str); 5] = [
    ("futures_executor::", "futures-executor"),
    ("async_executor::", "async-executor"),
    ("async_io::", "async-executor"),
    ("async_std::", "async-std"),
    ("pollster::", "pollster"),
];

/// The executor that a function is of, if it is one that is not read.
pub(crate) fn executor_of(function: &str) -> Option<&'static str> {
    let path = function.trim_start_matches('<');
    PATHS.iter().find(|(start, _)| path.starts_with(start)).map(|(_, name)| *name)
}

/// The version of the crate `name` in `object`.
pub(super) fn of_crate(target: &dyn Target, object: &MappedObject<'_>, name: &str) -> Option<String> {
    versions(target, object, &[name]).pop().flatten()
}

/// Executors in the program that are not read: `futures-executor 0.3.31`.
pub(crate) fn other_executors(objects: &Objects<'_>) -> Vec<String> {
    let target = objects.target;
    let is_rust = |object: &&MappedObject<'_>| target.is_program(object.module) && object.uses(OF_RUST);
    let Some(object) = objects.all().iter().find(is_rust) else { return Vec::new() };
    let names = OTHERS.map(|(name, _)| name);
    let versions = versions(target, object, &names);
    OTHERS.iter().zip(versions).filter_map(|((_, shown), version)| Some(format!("{shown} {}", version?))).collect()
}

/// The versions of the crates `names` in the read-only data of `object`.
fn versions(target: &dyn Target, object: &MappedObject<'_>, names: &[&str]) -> Vec<Option<String>> {
    let needles: Vec<String> = names.iter().map(|name| format!("/{name}-")).collect();
    let mut found: Vec<Option<String>> = vec![None; names.len()];
    let is_constant =
        |map: &&MapEntry| map.read && !map.write && !map.exec && map.is_file() && object.module.contains(map.start);
    let mut left = MAX_READ;
    for map in target.maps().iter().filter(is_constant) {
        let mut at = map.start.0;
        while at < map.end.0 && left > 0 && found.iter().any(Option::is_none) && !target.limits().is_over() {
            let size = usize::try_from(map.end.0 - at).unwrap_or(PIECE).min(PIECE).min(left);
            left -= size;
            let Ok(bytes) = target.read_up_to(RemoteAddr(at), size) else { break };
            for (needle, found) in needles.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
                *found = memmem::find_iter(&bytes, needle).find_map(|start| version_in(&bytes[start + needle.len()..]));
            }
            at += size as u64;
        }
    }
    found
}

/// The version that `bytes` begin with: `1.47.1/src/..`.
pub(super) fn version_in(bytes: &[u8]) -> Option<String> {
    let length = bytes.iter().take(MAX_VERSION).position(|byte| *byte == b'/')?;
    let version = std::str::from_utf8(&bytes[..length]).ok()?;
    let is_version = version.split('.').count() >= 3
        && version.starts_with(|first: char| first.is_ascii_digit())
        && version.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-+".contains(letter));
    (is_version && bytes[length..].starts_with(b"/src/")).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_stands_before_the_sources() {
        assert_eq!(version_in(b"1.47.1/src/runtime/mod.rs").as_deref(), Some("1.47.1"));
        assert_eq!(version_in(b"0.3.0-alpha.1/src/lib.rs").as_deref(), Some("0.3.0-alpha.1"));
        assert_eq!(version_in(b"macros-2.4.0/src/lib.rs"), None);
        assert_eq!(version_in(b"1.47.1/tests/"), None);
        assert_eq!(version_in(b"1.47"), None);
    }
}

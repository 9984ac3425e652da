//! How much memory the control groups of a process leave it: one that has none to spare is killed for using more.

use crate::Pid;
use crate::sys::cgroup::Group;
use std::path::{Path, PathBuf};

/// What the agent may come to: half a megabyte to load it (measured), and the first pages of its table.
pub(super) const NEEDED: u64 = 4 << 20;

/// What is left in the tightest group, and which that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpareMemory {
    pub(super) bytes: u64,
    pub(super) limit: u64,
    pub(super) group: PathBuf,
}

/// One of the two kinds of hierarchies.
struct Hierarchy {
    limit: &'static str,
    usage: &'static str,
    /// Pages of files in `memory.stat`: given up before anybody is killed.
    cache: [&'static str; 2],
}

const V1: Hierarchy = Hierarchy {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};
const V2: Hierarchy =
    Hierarchy { limit: "memory.max", usage: "memory.current", cache: ["inactive_file", "active_file"] };

/// What the groups of `pid` leave it; `None` where nothing limits it, as far as can be seen from here.
pub(super) fn spare(pid: Pid) -> Option<SpareMemory> {
    let groups = Group::of(pid, pid.leader(), "memory");
    let all = groups.iter().flat_map(|group| {
        let hierarchy = if group.is_v2 { &V2 } else { &V1 };
        group.ancestors().filter_map(|dir| left_in(hierarchy, dir))
    });
    all.min_by_key(|spare| spare.bytes)
}

fn left_in(hierarchy: &Hierarchy, group: &Path) -> Option<SpareMemory> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    // `max` is no number; the other kind has one that is larger than any memory.
    let limit = number(hierarchy.limit).filter(|limit| *limit < 1 << 62)?;
    let usage = number(hierarchy.usage)?;
    let stat = read("memory.stat").unwrap_or_default();
    let cache: u64 = stat
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| hierarchy.cache.contains(name))
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .fold(0, u64::saturating_add);
    let bytes = limit.saturating_sub(usage.saturating_sub(cache.min(usage)));
    Some(SpareMemory { bytes, limit, group: group.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_counts_files_as_free() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path();
        let put = |name: &str, text: &str| std::fs::write(group.join(name), text).unwrap();
        put("memory.max", "1000000\n");
        put("memory.current", "990000\n");
        put("memory.stat", "anon 1\ninactive_file 30000\nactive_file 5000\nfile 77\n");
        assert_eq!(left_in(&V2, group).unwrap().bytes, 45_000);
        put("memory.max", "max\n");
        assert_eq!(left_in(&V2, group), None);
        put("memory.limit_in_bytes", "9223372036854771712\n");
        put("memory.usage_in_bytes", "5\n");
        assert_eq!(left_in(&V1, group), None);
    }
}

//! How much memory the control groups of a process leave it: one that has none to spare is killed for using more.

use crate::Pid;
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
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let dirs = directories(&groups, &mounts);
    let all = dirs.iter().flat_map(|(hierarchy, mount, dir)| {
        dir.ancestors().take_while(move |dir| dir.starts_with(mount)).filter_map(|dir| left_in(hierarchy, dir))
    });
    all.min_by_key(|spare| spare.bytes)
}

/// The group of each hierarchy that knows of memory, and where that is mounted.
fn directories(groups: &str, mounts: &str) -> Vec<(&'static Hierarchy, PathBuf, PathBuf)> {
    let found = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, Path::new(parts.next()?));
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|name| name == "memory") {
            return None;
        }
        let (root, mount) = mounts.lines().find_map(|line| mounted(line, is_v2))?;
        // What is outside of what is mounted here cannot be looked at.
        let below = path.strip_prefix(&root).ok()?;
        Some((if is_v2 { &V2 } else { &V1 }, mount.clone(), mount.join(below)))
    });
    found.collect()
}

/// Which part of the hierarchy is mounted where, if this line of `mountinfo` is about it.
fn mounted(line: &str, is_v2: bool) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, mount) = (fields.next()?, fields.next()?);
    let mut kind = after.split(' ');
    let name = kind.next()?;
    let is_it = match is_v2 {
        true => name == "cgroup2",
        false => name == "cgroup" && kind.nth(1)?.split(',').any(|option| option == "memory"),
    };
    is_it.then(|| (root.into(), mount.into()))
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
    fn both_kinds_of_hierarchies_are_found() {
        let mounts = "\
            30 24 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
            31 24 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
            32 24 0:28 /box /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
        let found = |groups: &str| -> Vec<(bool, String)> {
            let dirs = directories(groups, mounts).into_iter();
            dirs.map(|(kind, _, dir)| (kind.limit == V2.limit, dir.display().to_string())).collect()
        };
        assert_eq!(found("4:memory:/a/b\n3:cpu,cpuacct:/c\n"), [(false, "/sys/fs/cgroup/memory/a/b".to_owned())]);
        assert_eq!(found("0::/box/a\n"), [(true, "/sys/fs/cgroup/unified/a".to_owned())]);
        assert_eq!(found("0::/other\n"), []);
        assert_eq!(found("nonsense\n"), []);
    }

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

//! The control groups of a process, of both versions, and whether one of them is frozen: then nothing in it can run.

use crate::{Lwp, Pid};
use std::path::{Path, PathBuf};

/// A group, as far as it can be looked at from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Of version 2, which has one hierarchy for all controllers.
    pub(crate) is_v2: bool,
    /// Where its hierarchy is mounted.
    mount: PathBuf,
    /// Its own directory.
    dir: PathBuf,
}

impl Group {
    /// The groups of a thread that know of a controller: one of each version at most.
    pub(crate) fn of(pid: Pid, lwp: Lwp, controller: &str) -> Vec<Self> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self::parse(&read(&format!("/proc/{pid}/task/{lwp}/cgroup")), &read("/proc/self/mountinfo"), controller)
    }

    fn parse(groups: &str, mounts: &str, controller: &str) -> Vec<Self> {
        let found = groups.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, Path::new(parts.next()?));
            let is_v2 = controllers.is_empty();
            if !is_v2 && !controllers.split(',').any(|name| name == controller) {
                return None;
            }
            let (root, mount) = mounts.lines().find_map(|line| mounted(line, (!is_v2).then_some(controller)))?;
            // What is outside of what is mounted here cannot be looked at.
            let below = path.strip_prefix(&root).ok()?;
            Some(Self { is_v2, dir: mount.join(below), mount })
        });
        found.collect()
    }

    /// Its directory and those of the groups that it is in.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = &Path> {
        self.dir.ancestors().take_while(|dir| dir.starts_with(&self.mount))
    }

    /// Whether it is frozen, or a group that it is in.
    fn is_frozen(&self) -> bool {
        let read = |name: &str| std::fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        match self.is_v2 {
            true => read("cgroup.events").lines().any(|line| line == "frozen 1"),
            // FROZEN, or FREEZING
            false => read("freezer.state").starts_with("FR"),
        }
    }

    /// The group that somebody has frozen, of those that it is in, and what thaws it.
    fn thaw(&self) -> String {
        let (own, is_on, thaw) = match self.is_v2 {
            true => ("cgroup.freeze", "1", "echo 0 > "),
            false => ("freezer.self_freezing", "1", "echo THAWED > "),
        };
        let is_it = |dir: &&Path| std::fs::read_to_string(dir.join(own)).is_ok_and(|text| text.trim() == is_on);
        let dir = self.ancestors().find(is_it).unwrap_or(&self.dir);
        let file = if self.is_v2 { own } else { "freezer.state" };
        format!("{thaw}{}", dir.join(file).display())
    }
}

/// For how long the CPU quota of its groups has kept a process from running so far, in microseconds.
pub(crate) fn throttled_us(pid: Pid) -> Option<u64> {
    let of_dir = |dir: &Path| {
        let text = std::fs::read_to_string(dir.join("cpu.stat")).ok()?;
        text.lines().find_map(|line| match line.split_once(' ')? {
            ("throttled_usec", us) => us.trim().parse::<u64>().ok(),
            ("throttled_time", ns) => ns.trim().parse::<u64>().ok().map(|ns| ns / 1000),
            _ => None,
        })
    };
    let groups = Group::of(pid, pid.leader(), "cpu");
    // The quota of any group that it is in may be the one that counts.
    groups.iter().flat_map(Group::ancestors).filter_map(of_dir).max()
}

/// What thaws the group of a thread, if that is frozen.
pub(crate) fn frozen(pid: Pid, lwp: Lwp) -> Option<String> {
    Group::of(pid, lwp, "freezer").iter().find(|group| group.is_frozen()).map(Group::thaw)
}

/// Which part of a hierarchy is mounted where, if this line of `mountinfo` is about it: that of a controller, or that of
/// version 2.
fn mounted(line: &str, controller: Option<&str>) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, mount) = (fields.next()?, fields.next()?);
    let mut kind = after.split(' ');
    let name = kind.next()?;
    let is_it = match controller {
        None => name == "cgroup2",
        Some(controller) => name == "cgroup" && kind.nth(1)?.split(',').any(|option| option == controller),
    };
    is_it.then(|| (root.into(), mount.into()))
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
            let all = Group::parse(groups, mounts, "memory").into_iter();
            all.map(|group| (group.is_v2, group.dir.display().to_string())).collect()
        };
        assert_eq!(found("4:memory:/a/b\n3:cpu,cpuacct:/c\n"), [(false, "/sys/fs/cgroup/memory/a/b".to_owned())]);
        assert_eq!(found("0::/box/a\n"), [(true, "/sys/fs/cgroup/unified/a".to_owned())]);
        assert_eq!(found("0::/other\n"), []);
        assert_eq!(found("nonsense\n"), []);
    }

    #[test]
    fn what_thaws_it_is_the_group_that_was_frozen() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let group = |is_v2| Group { is_v2, mount: dir.path().to_owned(), dir: dir.path().join("a/b") };
        put("a/cgroup.freeze", "1\n");
        put("a/b/cgroup.freeze", "0\n");
        put("a/b/cgroup.events", "populated 1\nfrozen 1\n");
        assert!(group(true).is_frozen());
        assert_eq!(group(true).thaw(), format!("echo 0 > {}", dir.path().join("a/cgroup.freeze").display()));
        put("a/b/cgroup.events", "populated 1\nfrozen 0\n");
        assert!(!group(true).is_frozen());
        put("a/b/freezer.state", "FROZEN\n");
        put("a/b/freezer.self_freezing", "1\n");
        assert!(group(false).is_frozen());
        let file = dir.path().join("a/b/freezer.state");
        assert_eq!(group(false).thaw(), format!("echo THAWED > {}", file.display()));
        put("a/b/freezer.state", "THAWED\n");
        assert!(!group(false).is_frozen());
    }
}

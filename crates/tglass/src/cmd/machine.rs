//! `tglass why` without a target: the whole machine.

use crate::cli::{AmongArgs, FailOn};
use crate::render;
use anyhow::{Result, bail};
use nix::unistd::User;
use std::os::unix::fs::MetadataExt;
use threadglass::Pid;
use threadglass::look::{self, MachineOptions};
use threadglass::model::{Certainty, Machine, VerdictKind};

/// Why nothing is seen where processes were chosen.
pub const NO_MATCH: &str = "no process matches (check --user, --cgroup or --container)";

/// Looks at those processes that `among` chooses; `all` lists also those with nothing to tell.
pub fn look(among: &AmongArgs, all: bool) -> Result<Machine> {
    let machine = look_for_any(among, all)?;
    if machine.processes == 0 && is_choice(among) {
        bail!(NO_MATCH);
    }
    Ok(machine)
}

/// Whether `among` chooses at all.
pub fn is_choice(among: &AmongArgs) -> bool {
    among.user.is_some() || among.cgroup.is_some() || among.container.is_some()
}

/// What cannot be chosen.
pub fn check(among: &AmongArgs) -> Result<()> {
    among.user.as_deref().map(uid_of).transpose().map(drop)
}

/// The same where there may be no such process yet.
pub fn look_for_any(among: &AmongArgs, all: bool) -> Result<Machine> {
    let user = among.user.as_deref().map(uid_of).transpose()?;
    let wanted = |pid: Pid| {
        user.is_none_or(|user| std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|it| it.uid() == user))
            && among.cgroup.iter().all(|group| is_in_group(pid, |path| is_below(path, group)))
            && among.container.iter().all(|id| is_in_group(pid, |path| path.contains(id.as_str())))
    };
    Ok(look::machine(&MachineOptions { wanted: Some(&wanted), all }))
}

/// Whether a hang is among what was found, that `fail_on` asks for.
pub fn status(machine: &Machine, fail_on: FailOn) -> u8 {
    let hangs = |certainty| {
        let is_hang = |kind| matches!(kind, VerdictKind::Deadlock | VerdictKind::NobodyLeft);
        let mut verdicts = machine.processes_to_see.iter().map(|process| &process.verdict);
        verdicts.any(|verdict| is_hang(verdict.kind) && verdict.certainty == certainty)
    };
    match fail_on {
        FailOn::Certain | FailOn::Likely if hangs(Certainty::Certain) => 1,
        FailOn::Likely if hangs(Certainty::Likely) => 3,
        _ => 0,
    }
}

fn uid_of(user: &str) -> Result<u32> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    match User::from_name(user)? {
        Some(found) => Ok(found.uid.as_raw()),
        None => bail!("there is no user `{}` (see `getent passwd`)", render::safe(user)),
    }
}

/// Whether a control group is `group` or one in it.
fn is_below(path: &str, group: &str) -> bool {
    let rest = path.strip_prefix(group.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the path of one of the process's control groups is as wanted.
fn is_in_group(pid: Pid, is_wanted: impl Fn(&str) -> bool) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(is_wanted)
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn a_group_is_no_other_that_begins_alike() {
        for (path, group) in [("/a/b", "/a"), ("/a", "/a"), ("/a/b", "/a/"), ("/a", "/"), ("/", "/")] {
            assert!(is_below(path, group), "{path} {group}");
        }
        assert!(!is_below("/ab", "/a") && !is_below("/a", "/a/b"));
    }
}

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

/// Which of all processes are meant.
pub struct Among {
    user: Option<u32>,
    cgroup: Option<String>,
    container: Option<String>,
}

impl Among {
    pub fn new(among: &AmongArgs) -> Result<Self> {
        let user = among.user.as_deref().map(uid_of).transpose()?;
        let cgroup = among.cgroup.as_deref().map(|path| path.trim_end_matches('/').to_owned());
        Ok(Self { user, cgroup, container: among.container.clone() })
    }

    /// Whether only some are meant.
    pub fn is_narrow(&self) -> bool {
        self.user.is_some() || self.cgroup.is_some() || self.container.is_some()
    }

    pub fn has(&self, pid: Pid) -> bool {
        self.user.is_none_or(|user| std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|it| it.uid() == user))
            && self.cgroup.iter().all(|group| is_in_group(pid, |path| is_at_or_below(path, group)))
            && self.container.iter().all(|id| is_in_group(pid, |path| path.contains(id.as_str())))
    }
}

/// Looks at those processes that `among` chooses; `all` lists also those with nothing to tell.
pub fn look(among: &AmongArgs, all: bool) -> Result<Machine> {
    let among = Among::new(among)?;
    let machine = look_for_any(&among, all);
    if machine.processes == 0 && among.is_narrow() {
        bail!(NO_MATCH);
    }
    Ok(machine)
}

/// The same where there may be no such process yet.
pub fn look_for_any(among: &Among, all: bool) -> Machine {
    look::machine(&MachineOptions { wanted: Some(&|pid| among.has(pid)), all })
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

/// Whether a control group is `group` or below it.
fn is_at_or_below(path: &str, group: &str) -> bool {
    path.strip_prefix(group.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
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

/// Whether the path of one of the process's control groups is as wanted.
fn is_in_group(pid: Pid, is_wanted: impl Fn(&str) -> bool) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(is_wanted)
}

#[cfg(test)]
mod tests {
    use super::is_at_or_below;

    #[test]
    fn a_group_is_not_another_one_that_begins_alike() {
        for (path, group, is_in) in
            [("/a", "/a", true), ("/a/b", "/a", true), ("/ab", "/a", false), ("/", "", true), ("/b/a", "/a", false)]
        {
            assert_eq!(is_at_or_below(path, group), is_in, "{path} {group}");
        }
    }
}

//! Processes whose end another one waits for: its children, those that it traces, and those that it has a descriptor of.

use super::partners::{FoundPartners, Relation, of};
use crate::host::{self, Holders};
use crate::model::{OutsideKind, Syscall};
use crate::target::Target;
use crate::{Lwp, Pid};

/// Which processes a call waits for, in the numbers of the process that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Any,
    Process(i32),
    Group(i32),
    /// The group of the process that waits.
    OwnGroup,
    /// The process behind a descriptor.
    Descriptor(i32),
    /// The one that was started last: until it executes or ends it uses the memory of its parent.
    Last,
}

/// Who has to end, or to be stopped, for the call of thread `lwp` of `target` to return.
pub(super) fn awaited_by(target: &dyn Target, lwp: Lwp, call: &Syscall) -> Option<FoundPartners> {
    let wanted = wanted(call);
    match wanted {
        Wanted::Descriptor(number) => return behind_descriptor(target, number),
        Wanted::Last => {
            let child = host::last_child(target.pid(), lwp)?;
            return Some(those(target, vec![child], false, Relation::Child));
        }
        _ => {}
    }
    let numbers = Numbers::of(target.pid());
    let is_wanted = |pid: &Pid| match wanted {
        Wanted::Process(number) => numbers.of_process(*pid) == Some(number),
        Wanted::Group(number) => numbers.of_group(*pid) == Some(number),
        Wanted::OwnGroup => numbers.of_group(*pid) == numbers.of_group(target.pid()),
        Wanted::Any | Wanted::Descriptor(_) | Wanted::Last => true,
    };
    let found = |all: Vec<Pid>| all.into_iter().filter(is_wanted).collect::<Vec<Pid>>();
    let children = found(host::children(target.pid()));
    let is_recorded = matches!(wanted, Wanted::Process(_));
    if !children.is_empty() {
        return Some(those(target, children, is_recorded, Relation::Child));
    }
    // Who waits and has no such child waits for what it traces.
    let traced = found(host::traced_by(&target.lwps().ok()?));
    (!traced.is_empty()).then(|| those(target, traced, true, Relation::Traced))
}

/// The children of a process with one thread that learns of their end by a signal.
pub(super) fn that_signal(target: &dyn Target) -> Option<FoundPartners> {
    let is_told = target.handled_signals()?.iter().any(|signal| signal == libc::SIGCHLD as u32);
    let is_alone = target.lwps().is_ok_and(|lwps| lwps.len() == 1);
    let children = if is_told && is_alone { host::children(target.pid()) } else { Vec::new() };
    (!children.is_empty()).then(|| those(target, children, false, Relation::Signals))
}

/// Whether a descriptor with this link stands for a process.
pub(super) fn is_process(link: &str) -> bool {
    link == "anon_inode:[pidfd]" || link.starts_with("pidfd:")
}

/// The process that a descriptor stands for.
pub(super) fn behind_descriptor(target: &dyn Target, number: i32) -> Option<FoundPartners> {
    let info = target.descriptor_info(number)?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())?;
    // No number: the process has ended, or cannot be seen from here.
    (pid > 0).then(|| those(target, vec![Pid(pid)], true, Relation::Watched))
}

fn those(target: &dyn Target, pids: Vec<Pid>, is_recorded: bool, relation: Relation) -> FoundPartners {
    let places = pids.into_iter().map(|pid| (pid, None)).collect();
    let holders = Holders { places, is_recorded, is_whole: true };
    FoundPartners { relation, ..of(target, OutsideKind::Child, holders) }
}

fn wanted(call: &Syscall) -> Wanted {
    // The first argument of `waitid`.
    const P_PID: u64 = 1;
    const P_PGID: u64 = 2;
    const P_PIDFD: u64 = 3;
    let group = |number: i32| if number == 0 { Wanted::OwnGroup } else { Wanted::Group(number) };
    match (&*call.name, call.args[0], call.args[1] as i32) {
        ("wait4", number, _) => match number as i32 {
            -1 => Wanted::Any,
            number @ 1.. => Wanted::Process(number),
            number => group(number.wrapping_neg()),
        },
        ("waitid", P_PID, number) => Wanted::Process(number),
        ("waitid", P_PGID, number) => group(number),
        ("waitid", P_PIDFD, number) => Wanted::Descriptor(number),
        ("waitid", ..) => Wanted::Any,
        _ => Wanted::Last,
    }
}

/// The numbers of processes in the namespace of one that waits for them.
struct Numbers {
    /// How many numbers that one has: one for each namespace that it is seen from.
    depth: usize,
}

impl Numbers {
    fn of(pid: Pid) -> Self {
        Self { depth: listed(pid, "NSpid:").map_or(1, |numbers| numbers.len()) }
    }

    fn of_process(&self, pid: Pid) -> Option<i32> {
        self.at(pid, "NSpid:")
    }

    fn of_group(&self, pid: Pid) -> Option<i32> {
        self.at(pid, "NSpgid:")
    }

    fn at(&self, pid: Pid, field: &str) -> Option<i32> {
        listed(pid, field)?.get(self.depth.checked_sub(1)?).copied()
    }
}

/// The numbers in a line of `/proc/PID/status`, from our namespace down to the process's own.
fn listed(pid: Pid, field: &str) -> Option<Vec<i32>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix(field))?;
    numbers.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_children_a_call_waits_for() {
        let call = |name: &'static str, args: [u64; 2]| {
            let args = [args[0], args[1], 0, 0, 0, 0];
            wanted(&Syscall { number: 0, name: name.into(), args, descriptors: Vec::new() })
        };
        assert_eq!(call("wait4", [u64::MAX, 0]), Wanted::Any);
        assert_eq!(call("wait4", [7, 0]), Wanted::Process(7));
        assert_eq!(call("wait4", [-7i64 as u64, 0]), Wanted::Group(7));
        assert_eq!(call("wait4", [0, 0]), Wanted::OwnGroup);
        assert_eq!(call("waitid", [0, 5]), Wanted::Any);
        assert_eq!(call("waitid", [1, 5]), Wanted::Process(5));
        assert_eq!(call("waitid", [2, 5]), Wanted::Group(5));
        assert_eq!(call("waitid", [3, 5]), Wanted::Descriptor(5));
        assert_eq!(call("vfork", [7, 0]), Wanted::Last);
    }
}

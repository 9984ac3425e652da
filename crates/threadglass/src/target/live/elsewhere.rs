//! Threads of other processes, which locks in shared memory or copied by a fork may name.

use super::Live;
use crate::proc::KernelState;
use crate::sys::file::numbers_in;
use crate::sys::task::status_of;
use crate::target::Elsewhere;
use crate::{InnerTid, Lwp, Pid};

/// Processes that are asked for an id of a pid namespace.
const MAX_PROCESSES: usize = 8192;

impl Live {
    /// Where the thread lives that the target would know as `inner`.
    pub(super) fn find_elsewhere(&self, inner: InnerTid) -> Elsewhere {
        let parent = self.leader_now().map(|leader| leader.parent).filter(|pid| pid.0 > 0);
        let lwp = Lwp(inner.0);
        let found = match self.leader_status().namespaces > 1 {
            // Each LWP has a directory among the processes.
            false => status_of(Pid(lwp.0), lwp).and_then(|status| status.tgid).map(|pid| (pid, lwp)),
            true => self.search_namespace(inner, parent),
        };
        match found {
            None => Elsewhere::Nowhere,
            // What is left of it until its parent has asked how it ended.
            Some((pid, lwp)) if has_ended(pid, lwp) => Elsewhere::Nowhere,
            Some((pid, lwp)) if Some(pid) == parent && self.is_copy_of(pid) => Elsewhere::Parent(pid, lwp),
            Some((pid, lwp)) => Elsewhere::Process(pid, lwp),
        }
    }

    /// Whether this process was forked from `pid` and runs the same program since: its auxiliary vector, in
    /// which the kernel puts random numbers and addresses at each exec, is the same.
    fn is_copy_of(&self, pid: Pid) -> bool {
        let theirs = std::fs::read(format!("/proc/{pid}/auxv")).unwrap_or_default();
        !theirs.is_empty() && self.read_stream("auxv").is_ok_and(|ours| ours == theirs)
    }

    /// Ids of a namespace are not what `/proc` goes by: its processes are asked one after the other, the
    /// parent first.
    fn search_namespace(&self, inner: InnerTid, parent: Option<Pid>) -> Option<(Pid, Lwp)> {
        let ours = namespace(self.pid)?;
        let others = numbers_in("/proc").into_iter().map(Pid).filter(|pid| *pid != self.pid && Some(*pid) != parent);
        parent
            .into_iter()
            .chain(others.take(MAX_PROCESSES))
            .filter(|pid| namespace(*pid).as_ref() == Some(&ours))
            .find_map(|pid| thread_with(pid, inner).map(|lwp| (pid, lwp)))
    }
}

fn namespace(pid: Pid) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

fn thread_with(pid: Pid, inner: InnerTid) -> Option<Lwp> {
    let mut lwps = numbers_in(&format!("/proc/{pid}/task")).into_iter().map(Lwp);
    lwps.find(|lwp| status_of(pid, *lwp).is_some_and(|status| status.inner_tid == Some(inner)))
}

fn has_ended(pid: Pid, lwp: Lwp) -> bool {
    status_of(pid, lwp).and_then(|status| status.state).is_some_and(KernelState::has_ended)
}

//! Why a process may not be looked into, and the exact way out.

use crate::proc::parse_status;
use crate::target::Live;
use nix::errno::Errno;

/// Why the memory of a process is closed to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// It belongs to another user.
    #[error(
        "the process belongs to user {uid}, and you are user {own}: run as that user, as root, or with CAP_SYS_PTRACE"
    )]
    OtherUser {
        /// That user.
        uid: u32,
        /// Ours.
        own: u32,
    },
    /// Yama forbids it.
    #[error("kernel.yama.ptrace_scope is {scope}: {}", if *scope == 3 { UNTIL_BOOT } else { LOWER_SCOPE })]
    Yama {
        /// `kernel.yama.ptrace_scope`.
        scope: u32,
    },
    /// The process is ours but protected: it changed credentials, or has capabilities we lack.
    #[error("{}", if *as_root { PROTECTED_FROM_ROOT } else { PROTECTED })]
    Protected {
        /// Whether we are root already.
        as_root: bool,
    },
    /// Something else.
    #[error("the kernel refuses to open its memory: {}", .0.desc())]
    Other(Errno),
}

const UNTIL_BOOT: &str = "no process can be looked into until the next boot";
const LOWER_SCOPE: &str = "run as root, or `sudo sysctl kernel.yama.ptrace_scope=0`";
const PROTECTED: &str = "the process is protected (it changed its user, has more capabilities, or is in another user \
                         namespace): run as root";
const PROTECTED_FROM_ROOT: &str = "not even root may look into this process from here (a container without \
                                   CAP_SYS_PTRACE, or a security module): run on the host, or start the container \
                                   with --cap-add=SYS_PTRACE";

/// `kernel.yama.ptrace_scope`, `None` where the kernel has no Yama.
pub fn yama_scope() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// Whether we hold a capability (by its number in capabilities(7)) in our effective set.
pub fn has_capability(number: u32) -> bool {
    let status = std::fs::read("/proc/self/status").ok().and_then(|text| parse_status(&text));
    status.and_then(|status| status.capabilities).is_some_and(|set| set >> number & 1 == 1)
}

/// CAP_SYS_PTRACE.
pub const CAP_SYS_PTRACE: u32 = 19;
/// CAP_PERFMON.
pub const CAP_PERFMON: u32 = 38;
/// CAP_CHECKPOINT_RESTORE.
pub const CAP_CHECKPOINT_RESTORE: u32 = 40;
/// CAP_SYS_ADMIN.
pub const CAP_SYS_ADMIN: u32 = 21;

impl Denial {
    /// Finds the reason for `errno` when opening `live`'s memory.
    pub(crate) fn explain(live: &Live, errno: Errno) -> Self {
        let own = nix::unistd::Uid::effective().as_raw();
        match live.leader_status().uid() {
            _ if !matches!(errno, Errno::EACCES | Errno::EPERM) => Self::Other(errno),
            Some(uid) if uid != own => Self::OtherUser { uid, own },
            _ => match yama_scope() {
                Some(scope) if scope > 0 => Self::Yama { scope },
                _ => Self::Protected { as_root: own == 0 },
            },
        }
    }
}

//! `/proc/PID/task/TID/status`.

use super::{KernelState, decimal, hex, words};
use crate::model::SignalSet;
use crate::{InnerTid, Pid};

/// What is used of a `status` file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// What it does; `None` where the file does not say.
    pub state: Option<KernelState>,
    /// Thread group id (the pid of the process).
    pub tgid: Option<Pid>,
    /// User ids: real, effective, saved, and for files.
    pub users: Option<[u32; 4]>,
    /// Group ids, in the same order.
    pub groups: Option<[u32; 4]>,
    /// Effective capabilities, one bit for each.
    pub capabilities: Option<u64>,
    /// Who traces it, 0 for nobody.
    pub tracer: i32,
    /// The id in its own pid namespace, and how many namespaces deep that is.
    pub inner_tid: Option<InnerTid>,
    /// Number of nested pid namespaces seen from ours, 1 when the task lives in ours.
    pub namespaces: usize,
    /// Blocked signals.
    pub blocked: SignalSet,
    /// Signals pending for this thread alone.
    pub pending: SignalSet,
    /// Signals pending for the process as a whole.
    pub shared_pending: SignalSet,
    /// Signals for which its process has a handler.
    pub caught: SignalSet,
    /// Times it gave up the CPU.
    pub voluntary_switches: u64,
    /// Times the CPU was taken from it.
    pub involuntary_switches: u64,
    /// Seccomp mode: 0 none, 1 strict, 2 filter.
    pub seccomp: u32,
    /// How many seccomp filters it has; 0 where the kernel does not say.
    pub seccomp_filters: u32,
    /// Bytes of memory that its process has locked.
    pub locked: u64,
    /// Whether the processor keeps its return addresses a second time.
    pub has_shadow_stack: bool,
}

impl Status {
    /// Real user id.
    pub fn uid(&self) -> Option<u32> {
        self.users.map(|[real, ..]| real)
    }

    /// Effective user id.
    pub fn euid(&self) -> Option<u32> {
        self.users.map(|[_, effective, ..]| effective)
    }
}

/// Decodes a `status` file; `None` when the lines every kernel since 2.6 writes are missing.
pub fn parse_status(bytes: &[u8]) -> Option<Status> {
    let mut status = Status { namespaces: 1, ..Status::default() };
    let mut saw_mask = false;
    for line in lines(bytes) {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (key, rest) = (&line[..colon], &line[colon + 1..]);
        let first = || words(rest).next();
        let number = || first().and_then(decimal);
        let id = |n: u64| i32::try_from(n).ok();
        match key {
            b"State" => status.state = Some(KernelState::from_letter(*first()?.first()?)),
            b"Tgid" => status.tgid = number().and_then(id).map(Pid),
            b"TracerPid" => status.tracer = number().and_then(id)?,
            b"Uid" => status.users = four(rest),
            b"Gid" => status.groups = four(rest),
            b"CapEff" => status.capabilities = first().and_then(hex),
            b"NSpid" => {
                status.namespaces = words(rest).count().max(1);
                status.inner_tid = words(rest).last().and_then(decimal).and_then(id).map(InnerTid);
            }
            b"VmLck" => status.locked = number()?.saturating_mul(1024),
            b"SigBlk" => {
                status.blocked = SignalSet(first().and_then(hex)?);
                saw_mask = true;
            }
            b"SigCgt" => status.caught = SignalSet(first().and_then(hex)?),
            b"SigPnd" => status.pending = SignalSet(first().and_then(hex)?),
            b"ShdPnd" => status.shared_pending = SignalSet(first().and_then(hex)?),
            b"Seccomp" => status.seccomp = number()? as u32,
            b"Seccomp_filters" => status.seccomp_filters = number()? as u32,
            b"x86_Thread_features" => status.has_shadow_stack = words(rest).any(|word| word == b"shstk"),
            b"voluntary_ctxt_switches" => status.voluntary_switches = number()?,
            b"nonvoluntary_ctxt_switches" => status.involuntary_switches = number()?,
            _ => {}
        }
    }
    saw_mask.then_some(status)
}

/// Four numbers.
fn four(line: &[u8]) -> Option<[u32; 4]> {
    let mut ids = words(line).map(|word| u32::try_from(decimal(word)?).ok());
    let mut next = || ids.next().flatten();
    Some([next()?, next()?, next()?, next()?])
}

/// The lines of `bytes`. Ten thousand of these files are read in one look, of which most lines are
/// skipped: hence memchr.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]).map(move |end| {
        let line = &bytes[start..end];
        start = end + 1;
        line
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"Name:\tx:y\nState:\tS (sleeping)\nTgid:\t20\nPid:\t21\nTracerPid:\t0\nUid:\t1\t2\t3\t4\n\
        Gid:\t5\t6\t7\t8\nNSpid:\t21\t7\nVmSize:\t 10 kB\nVmLck:\t 8 kB\nSigPnd:\t0000000000000200\nShdPnd:\t0000000000000000\n\
        SigBlk:\t0000000000000a00\nSigCgt:\t0000000000004000\nCapEff:\t000001ffffffffff\nSeccomp:\t2\nSeccomp_filters:\t3\nvoluntary_ctxt_switches:\t5\n\
        nonvoluntary_ctxt_switches:\t6\nx86_Thread_features:\twrss shstk \nx86_Thread_features_locked:\t\n";

    #[test]
    fn reads_masks_namespaces_and_counters() {
        let status = parse_status(FILE).unwrap();
        assert_eq!(status.tgid, Some(Pid(20)));
        assert_eq!((status.uid(), status.euid()), (Some(1), Some(2)));
        assert_eq!((status.users, status.groups), (Some([1, 2, 3, 4]), Some([5, 6, 7, 8])));
        assert_eq!(status.capabilities, Some(0x1ff_ffff_ffff));
        assert_eq!((status.inner_tid, status.namespaces), (Some(InnerTid(7)), 2));
        assert_eq!((status.blocked, status.pending), (SignalSet(0xa00), SignalSet(0x200)));
        assert_eq!(status.caught, SignalSet(0x4000));
        assert_eq!((status.voluntary_switches, status.involuntary_switches), (5, 6));
        assert_eq!((status.seccomp, status.seccomp_filters), (2, 3));
        assert_eq!((status.state, status.locked, status.has_shadow_stack), (Some(KernelState::Sleeping), 8192, true));
    }

    #[test]
    fn agrees_with_the_procfs_crate_on_this_process() {
        let bytes = std::fs::read("/proc/thread-self/status").unwrap();
        let ours = parse_status(&bytes).unwrap();
        let theirs: procfs::process::Status = procfs::FromRead::from_read(bytes.as_slice()).unwrap();
        assert_eq!(ours.tgid, Some(Pid(theirs.tgid)));
        assert_eq!(ours.blocked, SignalSet(theirs.sigblk));
        assert_eq!(ours.pending, SignalSet(theirs.sigpnd));
        assert_eq!(ours.tracer, theirs.tracerpid);
        assert_eq!(ours.users, Some([theirs.ruid, theirs.euid, theirs.suid, theirs.fuid]));
        assert_eq!(ours.groups, Some([theirs.rgid, theirs.egid, theirs.sgid, theirs.fgid]));
        assert_eq!(ours.capabilities, Some(theirs.capeff));
    }

    #[test]
    fn cut_anywhere_it_never_panics() {
        for cut in 0..FILE.len() {
            let _ = parse_status(&FILE[..cut]);
        }
        assert_eq!(parse_status(b""), None);
    }
}

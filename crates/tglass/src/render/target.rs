//! The first two lines of every screen: who is looked at, and how.

use super::{BOLD, DIM, paint, safe};
use threadglass::Pid;
use threadglass::model::{CoreInfo, CoreWriter, Libc, TargetInfo};

/// Who it is.
pub fn name(target: &TargetInfo) -> String {
    let process = format!("{} (pid {})", safe(&target.name), target.pid);
    let of = if target.snapshot.is_some() { "snapshot of " } else { "" };
    match &target.core {
        None => paint(BOLD, &format!("{of}{process}")),
        Some(core) => {
            let end = end(core, target.pid).map(|end| format!(", {end}")).unwrap_or_default();
            paint(BOLD, &format!("{of}core of {process}{end}"))
        }
    }
}

/// What ended the process, or stopped it.
fn end(core: &CoreInfo, pid: Pid) -> Option<String> {
    let signal = core.signal.as_ref()?;
    Some(match (core.writer, core.fault_address, core.sender) {
        (CoreWriter::Debugger, ..) => format!("stopped by {signal}"),
        (CoreWriter::Kernel, Some(addr), _) => format!("killed by {signal} at address {addr}"),
        (CoreWriter::Kernel, None, Some(sender)) if sender != pid.0 => format!("killed by {signal} from pid {sender}"),
        (CoreWriter::Kernel, None, _) => format!("killed by {signal}"),
    })
}

/// How it was looked at: the pause it was given, or the file it was read from.
/// The pause is that of all threads together, and the longest of one, in microseconds.
pub fn how(target: &TargetInfo, (pause_us, longest_us): (u64, u64), took: Option<String>) -> String {
    let libc = libc(target);
    if let Some(file) = &target.snapshot {
        return paint(DIM, &format!("{libc}; {}", super::snapshot::file(file)));
    }
    let took = took.map(|took| format!(", {took}")).unwrap_or_default();
    paint(
        DIM,
        &match &target.core {
            None if pause_us > 0 => format!(
                "{libc}; threads that ran were stopped ({pause_us} us pause in all, {longest_us} us at most for one{took})"
            ),
            None => format!("{libc}; read without stopping it ({pause_us} us pause{took})"),
            Some(core) => {
                let writer = match core.writer {
                    CoreWriter::Kernel => "the kernel",
                    CoreWriter::Debugger => "a debugger",
                };
                format!("{libc}; {}, written by {writer}{took}", safe(&core.path))
            }
        },
    )
}

/// The C library in words.
fn libc(target: &TargetInfo) -> String {
    match &target.libc {
        Libc::Glibc { version: Some(version), .. } => format!("glibc {}", safe(version)),
        Libc::Glibc { version: None, .. } => "glibc without symbols".to_owned(),
        Libc::Musl => "musl".to_owned(),
        Libc::Other { name: Some(name) } => safe(name),
        Libc::Other { name: None } => "no glibc".to_owned(),
        Libc::Unread => "memory not readable".to_owned(),
    }
}

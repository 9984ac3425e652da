//! What libc does in threads for the program: it looks up names, and has threads of its own for timers and requests.

use crate::host::Host;
use crate::look::own_frames;
use crate::model::{FindingKind, Frame, OutsideKind, OutsideWait, Snapshot, Thread, ThreadType};
use crate::target::Library;

/// Functions that ask name servers.
const LOOKUPS: [&str; 14] = [
    "getaddrinfo",
    "getnameinfo",
    "gethostbyname",
    "gethostbyname2",
    "gethostbyname_r",
    "gethostbyname2_r",
    "gethostbyaddr",
    "gethostbyaddr_r",
    "res_query",
    "res_search",
    "res_send",
    "res_nquery",
    "res_nsearch",
    "res_nsend",
];

/// Says of threads that wait for the answer of a name server that they do. Without `host`, which one is not known.
pub(super) fn add_lookups(snapshot: &mut Snapshot, host: Option<&Host>) {
    let pid = snapshot.target.pid;
    for thread in &mut snapshot.threads {
        let Some(function) = lookup(thread) else { continue };
        let file = thread.syscall.as_ref().and_then(|call| call.descriptors.first()?.file.as_deref());
        let socket = host.zip(file).and_then(|(host, file)| host.socket(pid, file));
        // Each lookup has a socket of its own; the server is the same.
        let server = socket.as_ref().and_then(|socket| socket.what.rsplit_once(" to ")).map(|(_, server)| server);
        let text = match server {
            Some(server) => format!("{function} waits for the answer of name server {server}"),
            None => format!("{function} waits for the answer of a name server"),
        };
        let behind = |kind: FindingKind| matches!(kind, FindingKind::LongChain);
        for finding in snapshot.findings.iter_mut().filter(|finding| behind(finding.kind)) {
            if finding.threads.last().copied() == thread.lwp {
                finding.text += &format!("; {text}");
            }
        }
        thread.waits_outside = Some(Box::new(OutsideWait::new(OutsideKind::Socket, text)));
    }
}

/// The function by which a thread asks a name server that has not answered yet: libc polls one socket then.
fn lookup(thread: &Thread) -> Option<&'static str> {
    let call = thread.syscall.as_ref().filter(|call| matches!(&*call.name, "poll" | "ppoll"))?;
    let is_one = call.args[1] == 1;
    // The program's own frames come after all of those of the lookup.
    let inside = thread.frames.iter().take_while(|frame| is_libc(frame));
    let names = inside.filter_map(|frame| known(frame.function.as_deref()?));
    names.last().filter(|_| is_one)
}

fn is_libc(frame: &Frame) -> bool {
    frame.module.as_deref().is_some_and(|module| Library::of(module).is_libc() || module.starts_with("libnss_"))
}

fn known(function: &str) -> Option<&'static str> {
    let name = function.trim_start_matches('_');
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    LOOKUPS.into_iter().find(|lookup| *lookup == name)
}

/// What a thread is for that libc has made for itself.
pub(super) fn helper(thread: &Thread) -> Option<&'static str> {
    const TIMERS: &str = "libc's thread for timers (timer_create)";
    const REQUESTS: &str = "a thread of libc for requests (aio_read, aio_write)";
    const NAMES: &str = "a thread of libc for requests (getaddrinfo_a)";
    if thread.kind != Some(ThreadType::System) || own_frames(&thread.frames).next().is_some() {
        return None;
    }
    let start = thread.start_function.as_deref()?;
    let waits_for_signal = thread.syscall.as_ref().is_some_and(|call| call.name == "rt_sigtimedwait");
    match start.split('+').next()? {
        "timer_helper_thread" => Some(TIMERS),
        "handle_fildes_io" => Some(REQUESTS),
        "handle_requests" => Some(NAMES),
        // No names: what such a thread does tells what it is for.
        module if Library::of(module).is_libc() && waits_for_signal => Some(TIMERS),
        module if Library::of(module).is_libc() => Some("a thread of libc for requests (aio_read, getaddrinfo_a)"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_lookups() {
        assert_eq!(known("__GI_getaddrinfo"), Some("getaddrinfo"));
        assert_eq!(known("__res_nsend"), Some("res_nsend"));
        assert_eq!(known("getaddrinfo_a"), None);
    }
}

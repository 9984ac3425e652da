//! Synchronization objects in words.

use super::safe;
use threadglass::model::{
    Detail, Evidence, Family, Holder, HolderStatus, MutexProtocol, MutexType, Preference, Side, SyncKind, SyncObject,
    SyncState, Thread, WaitsFor,
};

/// `name (lwp 4144)`.
pub fn thread_name(thread: &Thread) -> String {
    let lwp = thread.lwp.map_or_else(String::new, |lwp| format!(" (lwp {lwp})"));
    match &thread.name {
        Some(name) => format!("{}{lwp}", safe(name)),
        None => format!("thread{lwp}"),
    }
}

/// `mutex Session::lock_ at 0x5634b566fa20`.
pub fn label(object: &SyncObject) -> String {
    if object.kind == SyncKind::Join {
        let thread = object.holders.first().and_then(|holder| holder.lwp).map(|lwp| format!("thread {lwp}"));
        return format!("the end of {}", object.name.as_deref().map(safe).or(thread).as_deref().unwrap_or("a thread"));
    }
    match &object.name {
        // A name that says itself what it is.
        Some(name) if name.starts_with("the ") => format!("{} at {}", safe(name), object.address),
        _ if object.is_known_by_noun() => what(object),
        Some(name) => format!("{} {} at {}", what(object), safe(name), object.address),
        None => format!("{} at {}", what(object), object.address),
    }
}

/// The kind, with whose it is where that is not plain.
pub fn what(object: &SyncObject) -> String {
    if let Some(noun) = object.noun() {
        return noun.to_owned();
    }
    match whose(object.family) {
        Some(whose) => format!("{whose} {}", object.kind.word()),
        None => object.kind.word().to_owned(),
    }
}

/// Whose a lock is, where that is not plain.
pub fn whose(family: Family) -> Option<&'static str> {
    Some(match family {
        Family::Pthread | Family::Musl | Family::Other => return None,
        Family::Libc | Family::MuslInside => "libc",
        Family::RustStd => "Rust",
        Family::ParkingLot => "parking_lot",
        Family::Cxx => "C++",
        Family::Glib => "GLib",
        Family::Gomp => "OpenMP",
        Family::Qt => "Qt",
        Family::Absl => "absl",
        Family::Tbb => "TBB",
        Family::Python | Family::Gil => "Python",
        Family::Java => "Java",
        Family::JavaScript => "JavaScript",
        Family::Go => "Go",
        Family::Tokio => "tokio",
        Family::Runtime => "runtime",
    })
}

/// `at least 14m02s for mutex ..`, `to write ..`. The time is that since the thread last ran: a debugger may have woken it.
pub fn waits_for(waits: &WaitsFor, object: Option<&SyncObject>) -> String {
    let since = waits.since_ms.map_or_else(String::new, |ms| format!("at least {} ", duration(ms)));
    let side = match waits.side {
        Some(Side::Read) => "to read ",
        Some(Side::Write) => "to write ",
        None => "for ",
    };
    let object = object.map_or_else(|| format!("{} at {}", waits.kind.word(), waits.address), label);
    if let Some(how) = waits.how {
        return format!("{since}{how}: {object}");
    }
    let timed = if waits.timed { " (with a time limit)" } else { "" };
    let inferred = if waits.evidence == Evidence::Inferred { " (inferred)" } else { "" };
    format!("{since}{side}{object}{timed}{inferred}")
}

/// A holder: `alpha (lwp 12)`, and what it is if it is not alive.
pub fn holder(holder: &Holder, name: Option<String>) -> String {
    let who = name.unwrap_or_else(|| match (holder.lwp, holder.thread) {
        (Some(lwp), _) => format!("lwp {lwp}"),
        (None, Some(thread)) => format!("thread {thread}"),
        (None, None) => "somebody".to_owned(),
    });
    let status = match (holder.status, holder.pid) {
        (HolderStatus::Alive, _) => String::new(),
        (HolderStatus::Gone, _) => ", which no longer exists".to_owned(),
        (HolderStatus::ForkParent, Some(pid)) => format!(" of the parent process {pid}, from before the fork"),
        (HolderStatus::ForkParent, None) => " of the parent process, from before the fork".to_owned(),
        (HolderStatus::OtherProcess, Some(pid)) => format!(" of process {pid}"),
        (HolderStatus::OtherProcess, None) => " of another process".to_owned(),
        (HolderStatus::Unknown, _) => ", about which nothing is known".to_owned(),
    };
    let side = match holder.side {
        Some(Side::Read) => " (reads)",
        _ => "",
    };
    let inferred = match (&holder.why, holder.evidence) {
        (Some(why), Evidence::Inferred) => format!(" (inferred: {})", safe(why)),
        (None, Evidence::Inferred) => " (inferred)".to_owned(),
        _ => String::new(),
    };
    format!("{who}{status}{side}{inferred}")
}

/// The state with what belongs to it: `locked, recursive x3`, `read-locked by 2, a writer queued`.
pub fn state(object: &SyncObject) -> String {
    let mut parts = vec![object.state.word().to_owned()];
    match &object.detail {
        Detail::Mutex { kind, robust, protocol, recursion, ceiling } => {
            match kind {
                MutexType::Normal => {}
                MutexType::Recursive if *recursion > 0 => parts.push(format!("recursive x{}", recursion + 1)),
                MutexType::Recursive => parts.push("recursive".to_owned()),
                MutexType::Errorcheck => parts.push("errorcheck".to_owned()),
                MutexType::Adaptive => parts.push("adaptive".to_owned()),
            }
            if *robust {
                parts.push("robust".to_owned());
            }
            match (protocol, ceiling) {
                (MutexProtocol::Inherit, _) => parts.push("PI".to_owned()),
                (MutexProtocol::Protect, Some(ceiling)) => parts.push(format!("ceiling {ceiling}")),
                _ => {}
            }
        }
        Detail::Rwlock { preference, readers, writer_queued } => {
            if object.state == SyncState::ReadLocked {
                parts[0] = format!("read-locked by {readers}");
            }
            if *writer_queued {
                parts.push("writer queued".to_owned());
            }
            if object.family == Family::Pthread && *preference != Preference::Reader {
                parts.push("prefers writers".to_owned());
            }
        }
        Detail::Semaphore { count } => parts[0] = format!("count {count}"),
        Detail::Barrier { needed, arrived } => parts[0] = format!("{arrived} of {needed} arrived"),
        Detail::Channel { queued, capacity, closed } => {
            parts[0] = match capacity {
                0 => "unbuffered".to_owned(),
                _ => format!("{queued} of {capacity} queued"),
            };
            if *closed {
                parts.push("closed".to_owned());
            }
        }
        Detail::WaitGroup { left } => parts[0] = format!("{left} not done"),
        Detail::Cond { inside, .. } if *inside > 0 => parts[0] = format!("{inside} inside"),
        Detail::Futex { value } if object.state == SyncState::Unknown => parts[0] = format!("value {value:#x}"),
        Detail::Cond { .. } | Detail::Futex { .. } | Detail::None {} => {}
    }
    if object.shared == Some(true) {
        parts.push("process-shared".to_owned());
    }
    parts.join(", ")
}

/// A time as people say it.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms}ms"),
        1..60 => format!("{seconds}.{}s", ms % 1000 / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn durations() {
        let words = [(5, "5ms"), (1_950, "1.9s"), (842_000, "14m02s"), (7_380_000, "2h03m"), (180_000_000, "2d02h")];
        for (ms, word) in words {
            assert_eq!(super::duration(ms), word);
        }
    }
}

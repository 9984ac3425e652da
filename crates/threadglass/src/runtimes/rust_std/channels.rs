//! Waits that Rust's library, and crates like it, make of others: channels, and what is done by parking.

use crate::runtimes::WaitWords::{self, Named, Part};

/// Functions that a thread is in while it waits, below those that tell what for.
const PARTS: [&str; 12] = [
    "std::sys::",
    "std::thread::functions::park",
    "std::thread::park",
    "std::thread::thread::Thread>::park",
    "std::thread::Thread::park",
    "std::thread::local::LocalKey<",
    "std::sync::mpmc::context::",
    "std::sync::mpsc::blocking::",
    "std::sync::nonpoison::condvar::",
    "std::sync::poison::condvar::",
    "std::sync::condvar::",
    "crossbeam_channel::context::",
];

pub(super) fn waits_in(name: &str) -> Option<WaitWords> {
    // Starts threads, and what a thread begins with is no part of its wait.
    if name.starts_with("std::sys::backtrace::") || name.starts_with("std::sys::thread::") {
        return None;
    }
    let channel = |of: &str, receives: &'static str, sends: &'static str| {
        let method = name.strip_prefix(of)?;
        let is = |verb: &str| method.contains(&format!("::{verb}"));
        match (is("recv") || method.contains("Iter<"), is("send")) {
            (true, false) => Some(Named(receives)),
            (false, true) => Some(Named(sends)),
            _ => None,
        }
    };
    if PARTS.iter().any(|part| name.starts_with(part)) {
        return Some(Part);
    }
    let std = ("to receive from a channel (std::sync::mpsc)", "to send to a channel that is full (std::sync::mpsc)");
    let crossbeam = ("to receive from a channel (crossbeam)", "to send to a channel that is full (crossbeam)");
    let flume = ("to receive from a channel (flume)", "to send to a channel that is full (flume)");
    channel("std::sync::mpsc::", std.0, std.1)
        .or_else(|| channel("std::sync::mpmc::", std.0, std.1))
        .or_else(|| channel("crossbeam_channel::", crossbeam.0, crossbeam.1))
        .or_else(|| channel("flume::", flume.0, flume.1))
        .or_else(|| other(name))
}

/// Conditions, channels and parking.
pub(super) fn awaits_work(name: &str) -> bool {
    let is_cond = name.starts_with("std::sys") && name.contains("ondvar>::wait")
        || name.starts_with("std::sync::") && name.contains("condvar::Condvar::wait");
    let receives = matches!(waits_in(name), Some(Named(words)) if !words.starts_with("to send"));
    is_cond || receives || name.starts_with("std::thread::park") || name == "std::thread::functions::park"
}

fn other(name: &str) -> Option<WaitWords> {
    let of = |beginning: &str, part: &str| name.starts_with(beginning) && name.contains(part);
    Some(match name {
        _ if of("crossbeam_channel::select", "") => Named("for one of several channels (crossbeam)"),
        _ if of("crossbeam_utils::sync::parker", "") => Part,
        _ if of("crossbeam_utils::sync::wait_group", "wait") => Named("for a WaitGroup (crossbeam)"),
        _ if of("std::sync::barrier::Barrier", "wait") => Named("at a Barrier (std::sync)"),
        _ if of("rayon_core::sleep", "") => Named("for work (rayon)"),
        _ if of("rayon_core::latch", "wait") => Named("for the end of a task (rayon)"),
        _ if of("futures_executor::", "") || of("tokio::runtime::", "block_on") => Named("for a future"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::runtimes::waits_in;

    #[test]
    fn channels_by_the_functions_on_stacks() {
        let receives = Some("to receive from a channel (std::sync::mpsc)");
        // Not optimised, and optimised.
        let park = ["std::sys::pal::unix::futex::futex_wait", "<std::thread::thread::Thread>::park"];
        let deep = ["std::sync::mpmc::context::Context::wait_until", "std::thread::local::LocalKey<T>::try_with"];
        let of = |rest: &[&'static str]| waits_in(park.iter().chain(rest).copied());
        let recv = "std::sync::mpmc::list::Channel<T>::recv";
        assert_eq!(of(&[deep[0], deep[1], recv, "std::sync::mpsc::Receiver<T>::recv", "work"]), receives);
        assert_eq!(of(&["std::sync::mpmc::list::Channel<T>::recv::{{closure}}"]), receives);
        assert_eq!(of(&[deep[0], "<std::sync::mpsc::IntoIter<T> as core::iter::Iterator>::next"]), receives);
        let sends = of(&["std::sync::mpmc::array::Channel<T>::send", "std::sync::mpsc::SyncSender<T>::send"]);
        assert_eq!(sends, Some("to send to a channel that is full (std::sync::mpsc)"));
        let crossbeam =
            of(&["crossbeam_channel::context::Context::with", "crossbeam_channel::channel::Receiver<T>::recv"]);
        assert_eq!(crossbeam, Some("to receive from a channel (crossbeam)"));
        let wait = ["std::sync::poison::condvar::Condvar::wait", "<std::sync::barrier::Barrier>::wait", "work"];
        assert_eq!(waits_in(wait), Some("at a Barrier (std::sync)"));
        // Without optimisation.
        let crossbeam = of(&[
            "std::thread::functions::park",
            "crossbeam_channel::context::Context::wait_until",
            "crossbeam_channel::flavors::list::Channel<T>::recv::{{closure}}",
            "std::thread::local::LocalKey<T>::try_with",
            "crossbeam_channel::channel::Receiver<T>::recv",
            "work",
        ]);
        assert_eq!(crossbeam, Some("to receive from a channel (crossbeam)"));
        // What is around the function that waits is no wait.
        assert_eq!(of(&["std::thread::functions::park", "std::sync::once::Once::call_once_force::{{closure}}"]), None);
        assert_eq!(of(&["work", recv]), None);
        assert_eq!(of(&["std::sys::backtrace::__rust_begin_short_backtrace", recv]), None);
    }
}

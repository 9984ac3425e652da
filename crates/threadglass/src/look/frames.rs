//! Which frames are the program's own, and which are those of the libraries it stands on.

use crate::model::Frame;
use crate::table::FILE_NAME;
use crate::target::Library;

/// How names of functions begin that belong to a library wherever they are compiled into, and its name.
const PARTS: [(&str, &str); 14] = [
    ("std::", "std"),
    ("core::", "std"),
    ("alloc::", "std"),
    ("__rust_", "std"),
    ("_rust_", "std"),
    ("rust_begin_", "std"),
    ("parking_lot::", "parking_lot"),
    ("parking_lot_core::", "parking_lot"),
    ("lock_api::", "parking_lot"),
    ("crossbeam", "crossbeam"),
    ("__gthread_", "std"),
    ("__gnu_cxx::", "std"),
    ("void std::", "std"),
    ("bool std::", "std"),
];
/// Functions that start programs and threads, and those that wait for them, in programs that contain their libc.
const STARTS: [&str; 8] =
    ["_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3", "__clone", "__clone3"];
/// Object files of C++ and the compiler.
const OBJECTS: [(&str, &str); 5] = [
    ("libstdc++.so", "std"),
    ("libc++.so", "std"),
    ("libgcc_s.so", "std"),
    ("libgomp.so", "libgomp"),
    ("linux-vdso", "the kernel's page"),
];

/// The name of the frame between a signal handler and what it interrupted: that is for people to see.
const SIGNAL: &str = "<signal handler called>";

/// The library that `frame` belongs to, if it is none of the program's own: `libc`, `std`, `parking_lot`, the `agent` ..
pub fn library_of(frame: &Frame) -> Option<&'static str> {
    if frame.function.as_deref() == Some(SIGNAL) {
        return None;
    }
    if let Some(module) = &frame.module {
        if Library::of(module).is_libc() {
            return Some("libc");
        }
        if module.contains(FILE_NAME) {
            return Some("agent");
        }
        if let Some((_, name)) = OBJECTS.iter().find(|(object, _)| module.starts_with(object)) {
            return Some(name);
        }
    }
    let function = frame.function.as_deref()?;
    if STARTS.contains(&function) {
        return Some("libc");
    }
    // `<std::sync::Mutex<T> as ..>::lock`, `<alloc::boxed::Box<F> as core::ops::FnOnce<A>>::call_once`
    let function = function.trim_start_matches(['<', '&']);
    PARTS.iter().find(|(part, _)| function.starts_with(part)).map(|(_, name)| *name)
}

/// The frames that are the program's own, the innermost first.
pub(crate) fn own(frames: &[Frame]) -> impl Iterator<Item = &Frame> {
    frames.iter().filter(|frame| library_of(frame).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_rest() {
        let frame = |function: &str, module: &str| Frame {
            function: Some(function.to_owned()),
            module: Some(module.to_owned()),
            ..Frame::default()
        };
        for (function, module, library) in [
            ("pthread_mutex_lock", "libc.so.6", Some("libc")),
            ("std::sync::mpmc::list::Channel<T>::recv", "server", Some("std")),
            ("<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once", "server", Some("std")),
            ("std::condition_variable::wait(std::unique_lock<std::mutex>&)", "libstdc++.so.6", Some("std")),
            ("parking_lot::raw_mutex::RawMutex::lock_slow", "server", Some("parking_lot")),
            ("start_thread", "static", Some("libc")),
            ("threadglass_agent::mutex::wait", "memfd:threadglass-agent (deleted)", Some("agent")),
            ("server::pool::worker", "server", None),
            ("main", "server", None),
            ("stdlib_work", "server", None),
            ("SSL_read", "libcurl.so.4", None),
        ] {
            assert_eq!(library_of(&frame(function, module)), library, "{function}");
        }
        assert_eq!(library_of(&Frame::default()), None);
    }
}

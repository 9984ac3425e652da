//! Which frames are the program's own, and which are those of the libraries it stands on.

use crate::model::Frame;
use crate::symbols::library_by_name;
use crate::table::FILE_NAME;
use crate::target::Library;

/// Functions that start programs and threads, and those that wait for them, in programs that contain their libc.
const STARTS: [&str; 8] =
    ["_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3", "__clone", "__clone3"];
/// How files of other libraries are called.
const OBJECTS: [(&str, &str); 9] = [
    ("libgcc_s.so", "std"),
    ("libglib-2.0.so", "GLib"),
    ("libgthread-2.0.so", "GLib"),
    ("libQt5Core.so", "Qt"),
    ("libQt6Core.so", "Qt"),
    ("libgomp.so", "libgomp"),
    ("libtbb.so", "TBB"),
    ("libabsl_", "Abseil"),
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
        match Library::of(module) {
            Library::Cxx => return Some("std"),
            library if library.is_runtime() => return Some("libc"),
            _ => {}
        }
        if module.contains(FILE_NAME) {
            return Some("agent");
        }
        if let Some((_, name)) = OBJECTS.iter().find(|(object, _)| module.starts_with(object)) {
            return Some(name);
        }
    }
    // Of an inlined function there is only the plain name.
    if frame.file.as_deref().is_some_and(is_of_std) {
        return Some("std");
    }
    if frame.file.as_deref().is_some_and(is_of_musl) {
        return Some("libc");
    }
    let function = frame.function.as_deref()?;
    if STARTS.contains(&function) {
        return Some("libc");
    }
    library_by_name(function)
}

/// Whether a source file is one of the standard library of C++ or Rust.
fn is_of_std(file: &str) -> bool {
    file.contains("/include/c++/") || file.starts_with("/rustc/") && file.contains("/library/")
}

/// Whether a source file is one of musl, in a program that contains that: in the directory of a release, or as the programs of
/// Rust have it.
fn is_of_musl(file: &str) -> bool {
    let mut parts = file.split('/');
    let is_musl = |part: &str| part == "src_musl" || part.starts_with("musl-1.");
    parts.any(is_musl) && parts.next().is_some_and(|part| matches!(part, "src" | "arch" | "crt" | "ldso"))
}

/// The frames that are the program's own, the innermost first.
pub(crate) fn own_frames(frames: &[Frame]) -> impl Iterator<Item = &Frame> {
    frames.iter().filter(|frame| library_of(frame).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_std() {
        let frame = |file: &str| Frame {
            function: Some("operator()".to_owned()),
            file: Some(file.to_owned()),
            ..Frame::default()
        };
        assert_eq!(library_of(&frame("/usr/include/c++/12/bits/std_thread.h")), Some("std"));
        assert_eq!(library_of(&frame("/rustc/0123abcd/library/core/src/ops/function.rs")), Some("std"));
        assert_eq!(library_of(&frame("/home/me/rustc/library/mine.rs")), None);
        assert_eq!(library_of(&frame("/src/include/pool.h")), None);
        assert_eq!(library_of(&frame("/build/obj/../src_musl/src/misc/syscall.c")), Some("libc"));
        assert_eq!(library_of(&frame("/usr/src/musl-1.2.5/src/thread/pthread_join.c")), Some("libc"));
        assert_eq!(library_of(&frame("/home/me/musl-tools/src/work.c")), None);
        assert_eq!(library_of(&frame("/home/me/musl-1.0-port/work.c")), None);
    }

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
            ("void std::call_once<void (&)()>(std::once_flag&, void (&)())", "server", Some("std")),
            ("start_thread", "static", Some("libc")),
            ("_dl_open", "ld-linux-x86-64.so.2", Some("libc")),
            ("std::thread::join()", "libstdc++-a9383cce.so.6", Some("std")),
            ("g_mutex_lock", "static", Some("GLib")),
            ("g_main_context_iteration", "libglib-2.0.so.0", Some("GLib")),
            ("QMutexLocker::QMutexLocker(QBasicMutex*)", "server", Some("Qt")),
            ("QThreadPrivate::start(void*)", "libQt6Core.so.6", Some("Qt")),
            ("absl::lts_20230802::Mutex::Lock()", "server", Some("absl")),
            ("GOMP_parallel", "libgomp.so.1", Some("libgomp")),
            ("main._omp_fn.0", "server", None),
            ("g_my_list_add", "server", None),
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

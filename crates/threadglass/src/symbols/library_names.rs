//! Which library a function or a type belongs to, by its name: libraries are compiled into programs, too.

/// How names begin, and whose they are.
const BEGINNINGS: [(&str, &str); 28] = [
    ("std::", "std"),
    ("core::", "std"),
    ("alloc::", "std"),
    ("__rust_", "std"),
    ("_rust_", "std"),
    ("rust_begin_", "std"),
    ("__gthread_", "std"),
    ("__gnu_cxx::", "std"),
    ("parking_lot::", "parking_lot"),
    ("parking_lot_core::", "parking_lot"),
    ("lock_api::", "parking_lot"),
    ("crossbeam", "crossbeam"),
    ("absl::", "absl"),
    ("tbb::", "TBB"),
    ("boost::", "boost"),
    ("folly::", "folly"),
    ("g_mutex_", "GLib"),
    ("g_rec_mutex_", "GLib"),
    ("g_rw_lock_", "GLib"),
    ("g_cond_", "GLib"),
    ("QMutex", "Qt"),
    ("QBasicMutex::", "Qt"),
    ("QSemaphore", "Qt"),
    ("QReadWriteLock", "Qt"),
    ("QWaitCondition::", "Qt"),
    ("QThread", "Qt"),
    ("GOMP_", "libgomp"),
    ("gomp_", "libgomp"),
];

/// The library that has something called `name`, with the path to it; `None` if that seems to be the program.
pub(crate) fn library_by_name(name: &str) -> Option<&'static str> {
    // `<std::sync::Mutex<T> as ..>::lock`, `<alloc::boxed::Box<F> as core::ops::FnOnce<A>>::call_once`
    let name = name.trim_start_matches(['<', '&']);
    // Names of templates of functions tell what these return.
    let name = ["void ", "bool "].iter().find_map(|returned| name.strip_prefix(returned)).unwrap_or(name);
    BEGINNINGS.iter().find(|(beginning, _)| name.starts_with(beginning)).map(|(_, library)| *library)
}

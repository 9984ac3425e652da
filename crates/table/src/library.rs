//! Which runtime a mapped file belongs to. This is the one place that knows their names.

/// What a mapped file is, by its name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// glibc itself: `libc.so.6`, and `libc-2.31.so` up to 2.33.
    Libc,
    /// `libc.so`: musl's, or that of a glibc in the directory where it is built.
    PlainLibc,
    /// glibc's threads, a library of their own up to 2.33.
    Threads,
    /// Other parts of glibc that were libraries of their own up to 2.33, and in which threads wait.
    LibcPart,
    /// glibc's dynamic loader.
    Loader,
    /// musl, which is one file: library and loader.
    Musl,
    /// The C++ library, GNU's or LLVM's.
    Cxx,
    /// The program, or any other library.
    Other,
}

impl Library {
    /// What the file `name`, without its directory, is.
    pub fn of(name: &str) -> Self {
        let Some((stem, rest)) = name.split_once(".so") else { return Self::Other };
        if stem.starts_with("ld-musl-") || stem.starts_with("libc.musl-") {
            return Self::Musl;
        }
        if stem.starts_with("ld-linux") {
            return Self::Loader;
        }
        // Up to 2.33 the files were called by the version, and what is `.so.6` was a link to them.
        match stem.split_once("-2.").map_or(stem, |(stem, _)| stem) {
            "libc" if stem == "libc" && !rest.starts_with('.') => Self::PlainLibc,
            "libc" => Self::Libc,
            "libpthread" => Self::Threads,
            "librt" | "libdl" | "libanl" => Self::LibcPart,
            "ld" => Self::Loader,
            "libstdc++" | "libc++" | "libc++abi" => Self::Cxx,
            // Wheels of Python bring their own, with a sum in its name.
            stem if stem.starts_with("libstdc++-") => Self::Cxx,
            _ => Self::Other,
        }
    }

    /// Whether it is the C library, or a part of it other than the loader.
    pub fn is_libc(self) -> bool {
        matches!(self, Self::Libc | Self::PlainLibc | Self::Threads | Self::LibcPart | Self::Musl)
    }

    /// Whether it is the C library, its loader or C++'s library: what programs run on.
    pub fn is_runtime(self) -> bool {
        self.is_libc() || matches!(self, Self::Loader | Self::Cxx)
    }
}

/// A language whose runtime has threads, tasks or locks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// CPython.
    Python,
    /// HotSpot.
    Java,
    /// Node.js.
    Node,
    /// Go.
    Go,
    /// .NET.
    DotNet,
    /// Ruby.
    Ruby,
    /// Erlang and Elixir.
    Erlang,
    /// Guile.
    Guile,
}

impl Language {
    /// Whose runtime the library `name`, without its directory, is. Programs may contain one under any name.
    pub fn of(name: &str) -> Option<Self> {
        let (stem, _) = name.split_once(".so")?;
        let files = [
            ("libpython", Self::Python),
            ("libjvm", Self::Java),
            ("libnode", Self::Node),
            ("libcoreclr", Self::DotNet),
            ("libruby", Self::Ruby),
            ("libguile-", Self::Guile),
        ];
        files.iter().find(|(file, _)| stem.starts_with(file)).map(|(_, language)| *language)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_runtimes_and_of_others_that_look_alike() {
        let all: [(Library, &[&str]); 8] = [
            (Library::Libc, &["libc.so.6", "libc-2.31.so", "libc.so.6 (deleted)", "libc-2.31.so (deleted)"]),
            (Library::PlainLibc, &["libc.so", "libc.so (deleted)"]),
            (Library::Threads, &["libpthread.so.0", "libpthread-2.31.so"]),
            (Library::LibcPart, &["librt-2.31.so", "librt.so.1", "libdl.so.2", "libanl-2.31.so"]),
            (Library::Loader, &["ld-linux-x86-64.so.2", "ld-2.31.so", "ld.so", "ld.so.1"]),
            (Library::Musl, &["ld-musl-x86_64.so.1", "libc.musl-x86_64.so.1"]),
            (Library::Cxx, &["libc++.so.1", "libc++abi.so.1", "libstdc++.so.6.0.30", "libstdc++-a9383cce.so.6"]),
            (
                Library::Other,
                &[
                    "libcrypto.so.3",
                    "libcurl.so.4",
                    "libcap.so.2",
                    "libc-client.so.2007e.0",
                    "libc_malloc_debug.so.0",
                    "libpthread_workqueue.so.0",
                    "ld-2",
                    "libc",
                    "libc-2",
                    "",
                ],
            ),
        ];
        for (library, names) in all {
            for name in names {
                assert_eq!(Library::of(name), library, "{name}");
            }
        }
    }

    #[test]
    fn names_of_languages() {
        for (name, language) in [
            ("libpython3.11.so.1.0", Some(Language::Python)),
            ("libjvm.so", Some(Language::Java)),
            ("libnode.so.115", Some(Language::Node)),
            ("libruby-3.1.so.3.1", Some(Language::Ruby)),
            ("libguile-3.0.so.1", Some(Language::Guile)),
            ("libguilereadline-v-30.so", None),
            ("libjvm", None),
            ("libc.so.6", None),
        ] {
            assert_eq!(Language::of(name), language, "{name}");
        }
    }

    #[test]
    fn the_c_library_is_not_its_loader_and_not_cpp() {
        let is_libc = |name| Library::of(name).is_libc();
        assert!(is_libc("libc.so.6") && is_libc("libpthread-2.31.so") && is_libc("ld-musl-x86_64.so.1"));
        assert!(!is_libc("ld-linux-x86-64.so.2") && !is_libc("libc++.so.1") && !is_libc("libcrypto.so.3"));
        let is_runtime = |name| Library::of(name).is_runtime();
        assert!(is_runtime("libc.so.6") && is_runtime("ld-2.31.so") && is_runtime("libc++.so.1"));
        assert!(!is_runtime("libcrypto.so.3") && !is_runtime("server"));
    }
}

//! Other versions of glibc, unpacked below one directory.
//!
//! `TG_GLIBC_ROOTS` names a directory with one root each (libc6 and libgcc-s1 of a distribution, as
//! `2.31/`, `2.36/` ..; `scripts/glibc-roots` makes one). One of them with headers and start files
//! (libc6-dev) serves to build for all: the oldest, because its programs run on every newer one.

use crate::{Build, Extent, Fixture, can_unshare, is_root, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// Whether a program can be started inside another root; counts a skip when not.
pub fn can_start_inside<'a>(what: impl Into<Extent<'a>>) -> bool {
    let what = what.into();
    is_root(what, "to start a program inside another root") && can_unshare(what, &["--mount"])
}

/// The versions there are.
#[derive(Debug)]
pub struct GlibcRoots {
    roots: Vec<PathBuf>,
    oldest: PathBuf,
}

impl GlibcRoots {
    /// Those of the environment; `None` (and a skip) where there are none.
    pub fn find(test: &str) -> Option<Self> {
        let Some(dir) = std::env::var_os("TG_GLIBC_ROOTS") else {
            let why = std::env::var("TG_NO_GLIBC_ROOTS").unwrap_or_else(|_| {
                "TG_GLIBC_ROOTS does not name a directory of unpacked glibc versions (make test does)".to_owned()
            });
            skip(test, &why);
            return None;
        };
        let mut roots: Vec<_> = std::fs::read_dir(dir)
            .expect("TG_GLIBC_ROOTS names a directory")
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.join(LIBRARIES).join("libc.so.6").exists())
            .collect();
        roots.sort();
        assert!(roots.len() > 1, "a matrix needs more than one version");
        let Some(oldest) = roots.iter().find(|root| root.join("usr/include/pthread.h").exists()).cloned() else {
            skip(test, "none of TG_GLIBC_ROOTS has headers to build with (libc6-dev)");
            return None;
        };
        Some(Self { roots, oldest })
    }

    /// Each version and its root.
    pub fn iter(&self) -> impl Iterator<Item = (String, &Path)> {
        let version = |root: &PathBuf| root.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.roots.iter().map(move |root| (version(root), root.as_path()))
    }

    fn old_flags(&self) -> Vec<String> {
        let old = self.oldest.display();
        let dev = format!("{old}/usr/{LIBRARIES}");
        vec![format!("--sysroot={old}"), format!("-B{dev}/"), format!("-L{dev}"), format!("-L{old}/{LIBRARIES}")]
    }

    /// Builds a fixture against the oldest libc, to be run by `root`'s dynamic linker.
    pub fn build(&self, file: &str, root: &Path) -> PathBuf {
        self.build_with(file, root, &[])
    }

    /// The same, with more compiler flags.
    pub fn build_with(&self, file: &str, root: &Path, more: &[&str]) -> PathBuf {
        let run = root.join(LIBRARIES);
        let run = run.display();
        let mut flags = self.old_flags();
        flags.extend([
            format!("-Wl,--dynamic-linker={run}/ld-linux-x86-64.so.2"),
            // The old kind of path, which also holds for what libc itself loads (libgcc_s).
            "-Wl,--disable-new-dtags".to_owned(),
            format!("-Wl,-rpath,{run}:{run}/../../usr/{LIBRARIES}"),
        ]);
        Build::new(file).flags(&flags).flags(more).path()
    }

    /// Starts a fixture *inside* `root`, as a container would; only root may.
    pub fn start_inside(&self, file: &str, root: &Path) -> Fixture {
        let built = Build::new(file).flags(&self.old_flags()).path();
        let name = built.file_name().unwrap_or_default();
        std::fs::copy(&built, root.join(name)).expect("the root can be written to");
        // pthread_getattr_np reads /proc, so the root gets one, in a mount namespace that ends with it.
        const START: &str = r#"mkdir -p "$0/proc" && mount -t proc proc "$0/proc" && exec chroot "$0" "$1""#;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", START]).arg(root).arg(Path::new("/").join(name));
        Fixture::command(command)
    }

    /// Builds a fixture with the oldest libc linked in, and that libc's version.
    pub fn build_static(&self, file: &str) -> (String, PathBuf) {
        // The compiler's own run-time support expects a newer libc: take the one of that time.
        let gcc = self.oldest.join("usr/lib/gcc/x86_64-linux-gnu/10");
        let mut flags = vec!["-static".to_owned(), format!("-B{}/", gcc.display()), format!("-L{}", gcc.display())];
        flags.extend(self.old_flags());
        let version = self.oldest.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (version, Build::new(file).flags(&flags).path())
    }
}

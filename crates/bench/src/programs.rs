//! The C programs of the benchmark, built when it starts.

use anyhow::{Context as _, Result};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Where the built programs are; they are removed with this.
pub struct Programs {
    dir: TempDir,
}

/// The one that is built for gprof.
const FOR_GPROF: &str = "split_run_pg";

/// The one that is built with a race detector, where the compiler has it.
const FOR_TSAN: &str = "lock_pairs_tsan";

/// Name and source.
const SOURCES: &[(&str, &str)] = &[
    ("busy", include_str!("../programs/busy.c")),
    ("crowd", include_str!("../programs/crowd.c")),
    ("deadlocked", include_str!("../programs/deadlocked.c")),
    ("forward.so", include_str!("../programs/forward.c")),
    ("lock_pairs", include_str!("../programs/lock_pairs.c")),
    (FOR_TSAN, include_str!("../programs/lock_pairs.c")),
    ("many_threads", include_str!("../programs/many_threads.c")),
    ("read_floor", include_str!("../programs/read_floor.c")),
    ("server_200", include_str!("../programs/server_200.c")),
    ("split_run", include_str!("../programs/split_run.c")),
    (FOR_GPROF, include_str!("../programs/split_run.c")),
    ("split_work", include_str!("../programs/split_work.c")),
    ("take_turns", include_str!("../programs/take_turns.c")),
    ("walk_threads", include_str!("../programs/walk_threads.c")),
];

/// What several of them include.
const HEADER: (&str, &str) = ("split.h", include_str!("../programs/split.h"));

impl Programs {
    /// Builds them all.
    pub fn build() -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a directory for the programs")?;
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        std::fs::write(dir.path().join(HEADER.0), HEADER.1)?;
        for (name, source) in SOURCES {
            let file = dir.path().join(format!("{name}.c"));
            std::fs::write(&file, source)?;
            let status = Command::new(&compiler)
                // -rdynamic: a library opened at run time finds the client's routines.
                .args(["-O2", "-Wall", "-pthread", "-rdynamic", "-o"])
                .arg(dir.path().join(name))
                .args((*name == FOR_GPROF).then_some("-pg"))
                .args((*name == FOR_TSAN).then_some("-fsanitize=thread"))
                .args(name.ends_with(".so").then_some(["-shared", "-fPIC"]).into_iter().flatten())
                .arg(&file)
                .arg("-ldl")
                .status()
                .with_context(|| format!("cannot run the C compiler {}", compiler.display()))?;
            anyhow::ensure!(status.success() || *name == FOR_TSAN, "{name}.c does not compile");
        }
        Ok(Self { dir })
    }

    /// Path of a built program.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

//! Tests that cannot run here: said, and counted.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Says that a test (or a part of it) did not run, and which privilege or tool it lacked. The lines
/// are collected in the file that `TG_SKIP_LOG` names, so that a run can end with their count.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIP {test}: {reason}");
    // Past the capture of the test harness, which hides the output of tests that pass.
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(log) = std::env::var_os("TG_SKIP_LOG") {
        let file = OpenOptions::new().create(true).append(true).open(log);
        // One write a line: several test programs append at the same time.
        let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    }
}

/// Whether a program is installed; says so and counts a skip when it is not.
pub fn have(test: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if !found {
        skip(test, &format!("{program} is not installed"));
    }
    found
}

/// Path of a shared library of the distribution; says so and counts a skip when it is not installed.
pub fn library(test: &str, name: &str) -> Option<PathBuf> {
    let path = Path::new("/usr/lib/x86_64-linux-gnu").join(name);
    let found = path.is_file().then_some(path);
    if found.is_none() {
        skip(test, &format!("{name} is not installed"));
    }
    found
}

/// Whether we are root.
pub fn root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

/// Whether we are root; counts a skip when not.
pub fn is_root(test: &str, why: &str) -> bool {
    if !root() {
        skip(test, &format!("needs root {why}"));
    }
    root()
}

/// Whether programs can be linked statically here; counts a skip when not.
pub fn has_static_libc(test: &str) -> bool {
    let answer = Command::new("cc").arg("-print-file-name=libc.a").output();
    // The compiler repeats the bare name when it has no such file.
    let found = answer.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_absolute());
    if !found {
        skip(test, "no static libc (libc.a) is installed");
    }
    found
}

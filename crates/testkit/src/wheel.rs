//! Python packages from their index: extensions that others have built.

use crate::build::output_dir;
use crate::{Extent, skip};
use std::path::PathBuf;
use std::process::Command;

/// A directory with the package `name` of this version and what it needs, which is kept. `None` (and a skip) where it cannot be had.
pub fn wheel<'a>(name: &str, version: &str, what: impl Into<Extent<'a>>) -> Option<PathBuf> {
    let dir = output_dir().join(format!("{name}-{version}"));
    if dir.is_dir() {
        return Some(dir);
    }
    std::fs::create_dir_all(output_dir()).expect("a directory for programs");
    let partial = output_dir().join(format!("{name}-partial-{}", std::process::id()));
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--target"]);
    let done = pip.arg(&partial).arg(format!("{name}=={version}")).output();
    match done {
        Ok(done) if done.status.success() => {}
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            skip(what, &format!("{name} {version} cannot be had: {}", said.lines().last().unwrap_or_default()));
            return None;
        }
        Err(error) => {
            skip(what, &format!("no python3: {error}"));
            return None;
        }
    }
    // Another test may have been faster.
    if std::fs::rename(&partial, &dir).is_err() {
        let _ = std::fs::remove_dir_all(&partial);
    }
    Some(dir)
}

//! Fixtures in Go.
//!
//! `TG_GOS` names compilers to try (`.../bin/go`), separated by colons; else it is the one that `PATH` finds.

use crate::have;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// A compiler of Go.
#[derive(Clone, Debug)]
pub struct Go(PathBuf);

impl Go {
    /// The compilers to try; none (and a skip) where there is none.
    pub fn all(test: &str) -> Vec<Self> {
        if let Ok(list) = std::env::var("TG_GOS") {
            return list.split(':').map(|path| Self(path.into())).collect();
        }
        if have(test, "go") { vec![Self(PathBuf::from("go"))] } else { Vec::new() }
    }

    /// The number behind `go1.`.
    pub fn release(&self) -> u32 {
        let version = self.version();
        let rest = version.strip_prefix("go1.").unwrap_or_default();
        rest.split('.')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("which Go is {version}?"))
    }

    fn version(&self) -> String {
        let version = Command::new(&self.0).args(["env", "GOVERSION"]).output().expect("go runs");
        String::from_utf8_lossy(&version.stdout).trim().to_owned()
    }

    /// The fixture `name` (`fixtures/NAME.go`), built with `flags`. Flags that begin with a capital letter are variables of the
    /// environment: `CGO_ENABLED=0`. What was compiled once is kept for all tests of a program.
    pub fn build(&self, name: &str, flags: &[&str]) -> PathBuf {
        static DIR: OnceLock<TempDir> = OnceLock::new();
        let dir = DIR.get_or_init(|| tempfile::tempdir().expect("a temporary directory"));
        let version = self.version();
        let mut hash = DefaultHasher::new();
        (flags, &version).hash(&mut hash);
        let program = dir.path().join(format!("{name}-{version}-{:x}", hash.finish()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(format!("{name}.go"));
        let (variables, flags): (Vec<&str>, Vec<&str>) =
            flags.iter().partition(|flag| flag.starts_with(|first: char| first.is_ascii_uppercase()));
        let status = Command::new(&self.0)
            .env("GO111MODULE", "off")
            .env("GOTOOLCHAIN", "local")
            .envs(variables.iter().filter_map(|variable| variable.split_once('=')))
            .arg("build")
            .args(flags)
            .arg("-o")
            .arg(&program)
            .arg(source)
            .stdin(Stdio::null())
            .status();
        assert!(status.expect("go runs").success(), "{name} does not compile with {version}");
        program
    }
}

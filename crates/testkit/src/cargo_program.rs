//! Fixtures that are programs of cargo, with crates of a registry in several versions.

use crate::build::output_dir;
use crate::{Extent, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// The program of `fixtures/tokio`, with one version of tokio.
#[derive(Clone, Debug)]
pub struct TokioProgram<'p> {
    /// The version: `1.47.1`.
    pub version: &'p str,
    /// Whether it is optimised.
    pub optimised: bool,
    /// `debug` of the profile: `1`, `2`, `line-tables-only`.
    pub debug: &'p str,
    /// What is left of that.
    pub keeps: Keeps,
    /// Whether it is optimised as a whole.
    pub lto: bool,
}

/// What a program keeps of what tells about it: no program is built twice for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Everything.
    All,
    /// Symbols, but no debug information: as with `debug = 0`.
    Symbols,
    /// Neither: as with `strip = true`.
    Nothing,
}

impl TokioProgram<'_> {
    /// Builds it, in a directory that is kept. `None` (and a skip) where the crates cannot be had.
    pub fn build<'a>(&self, what: impl Into<Extent<'a>>) -> Option<PathBuf> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _one = ONE_AT_A_TIME.lock();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tokio");
        let dir = output_dir().join(format!("tokio-{}", self.version));
        std::fs::create_dir_all(dir.join("src")).expect("a directory for the program");
        let manifest = std::fs::read_to_string(source.join("Cargo.toml")).expect("the manifest");
        let any = "tokio = { version = \"1\"";
        assert!(manifest.contains(any), "the manifest names any version of tokio");
        let manifest = manifest.replace(any, &format!("tokio = {{ version = \"={}\"", self.version));
        write_changed(&dir.join("Cargo.toml"), manifest.as_bytes());
        for file in std::fs::read_dir(source.join("src")).expect("the sources").flatten() {
            let text = std::fs::read(file.path()).expect("a source");
            write_changed(&dir.join("src").join(file.file_name()), &text);
        }
        let fetched = self.cargo(&dir, "fetch").output().expect("cargo");
        if !fetched.status.success() {
            let said = String::from_utf8_lossy(&fetched.stderr).into_owned();
            skip(what, &format!("tokio {} cannot be had: {}", self.version, said.lines().last().unwrap_or_default()));
            return None;
        }
        let mut build = self.cargo(&dir, "build");
        if self.optimised {
            build.arg("--release");
        }
        let built = build.output().expect("cargo");
        assert!(built.status.success(), "{self:?} does not build:\n{}", String::from_utf8_lossy(&built.stderr));
        // The next one is built in the same place.
        let profile = if self.optimised { "release" } else { "debug" };
        let lto = if self.lto { "-lto" } else { "" };
        let program = dir.join(format!("{profile}-{}{lto}", self.debug));
        let built = self.target(&dir).join(profile).join("tokio-scenes");
        if !same(&built, &program) {
            let partial = dir.join(format!("partial-{}", std::process::id()));
            std::fs::copy(built, &partial).expect("a copy of the program");
            std::fs::rename(partial, &program).expect("its name");
        }
        let (option, name) = match self.keeps {
            Keeps::All => return Some(program),
            Keeps::Symbols => ("--strip-debug", "symbols"),
            Keeps::Nothing => ("--strip-all", "stripped"),
        };
        let (stripped, partial) = (program.with_extension(name), dir.join(format!("part-{}", std::process::id())));
        let done = Command::new("strip").arg(option).arg("-o").arg(&partial).arg(&program).status();
        if !done.is_ok_and(|status| status.success()) {
            skip(what, "no strip (Debian: binutils)");
            return None;
        }
        std::fs::rename(partial, &stripped).expect("its name");
        Some(stripped)
    }

    fn target(&self, dir: &Path) -> PathBuf {
        dir.join(format!("target-{}", self.debug))
    }

    fn cargo(&self, dir: &Path, verb: &str) -> Command {
        let mut command = Command::new("cargo");
        command.arg(verb).current_dir(dir).env("CARGO_TARGET_DIR", self.target(dir)).env_remove("RUSTFLAGS");
        for profile in ["DEV", "RELEASE"] {
            command.env(format!("CARGO_PROFILE_{profile}_DEBUG"), self.debug);
            command.env(format!("CARGO_PROFILE_{profile}_LTO"), if self.lto { "fat" } else { "false" });
            command.env(format!("CARGO_PROFILE_{profile}_STRIP"), "none");
        }
        command
    }
}

/// Writes a file whose content is another one now: cargo builds again what is newer.
fn write_changed(path: &Path, content: &[u8]) {
    if std::fs::read(path).ok().as_deref() != Some(content) {
        std::fs::write(path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
}

fn same(one: &Path, other: &Path) -> bool {
    let read = |path: &Path| std::fs::read(path).ok();
    read(other).is_some() && read(one) == read(other)
}

//! Compiling fixtures, once for each content and set of flags.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A way of building that matters to who looks from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Optimised, position independent, dynamic, with symbols.
    Default,
    /// At a fixed address.
    NoPie,
    /// Without its symbol table.
    Stripped,
    /// With libc linked in.
    Static,
    /// With libc linked in and no symbols at all.
    StaticStripped,
    /// A shared library.
    Library,
}

impl Variant {
    /// The kinds of program.
    pub const PROGRAMS: [Self; 5] = [Self::Default, Self::NoPie, Self::Stripped, Self::Static, Self::StaticStripped];

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Default => &["-fPIE", "-pie"],
            Self::NoPie => &["-fno-pie", "-no-pie"],
            Self::Stripped => &["-fPIE", "-pie", "-s"],
            Self::Static => &["-static"],
            Self::StaticStripped => &["-static", "-s"],
            Self::Library => &["-fPIC", "-shared"],
        }
    }

    fn rust_flags(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::NoPie => &["-Crelocation-model=static"],
            Self::Stripped => &["-Cstrip=symbols"],
            Self::Static => &["-Ctarget-feature=+crt-static"],
            Self::StaticStripped => &["-Ctarget-feature=+crt-static", "-Cstrip=symbols"],
            Self::Library => &["--crate-type=cdylib"],
        }
    }

    /// Whether libc is linked in.
    pub fn is_static(self) -> bool {
        matches!(self, Self::Static | Self::StaticStripped)
    }

    /// Whether its own functions can be named.
    pub fn has_symbols(self) -> bool {
        !matches!(self, Self::Stripped | Self::StaticStripped)
    }
}

/// A fixture to build.
#[derive(Debug)]
pub struct Build {
    file: String,
    /// Whether its C library is musl.
    musl: bool,
    flags: Vec<String>,
}

impl Build {
    /// The program `fixtures/FILE`, in its usual form; the ending (`.c`, `.cc`, `.rs`) names the language.
    pub fn new(file: &str) -> Self {
        Self { file: file.to_owned(), musl: false, flags: Vec::new() }
    }

    /// Builds it in another form.
    pub fn variant(self, variant: Variant) -> Self {
        let flags = if self.file.ends_with(".rs") { variant.rust_flags() } else { variant.flags() };
        self.flags(flags)
    }

    /// Builds a program in C with musl in place of the system's C library.
    pub fn musl(self) -> Self {
        Self { musl: true, ..self }
    }

    /// Lets a program of Rust use a crate that the test program which calls this is built with.
    pub fn with_crate(self, name: &str) -> Self {
        let exe = std::env::current_exe().expect("the test program");
        let deps = exe.parent().expect("its directory");
        let prefix = format!("lib{name}-");
        let is_crate = |path: &PathBuf| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file.starts_with(&prefix) && file.ends_with(".rlib")
        };
        let files = std::fs::read_dir(deps).expect("what is built beside it").flatten().map(|entry| entry.path());
        let newest = files.filter(is_crate).max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
        let library = format!("{name}={}", newest.expect("the crate is built").display());
        self.flags(&["--extern", &library, "-L", &format!("dependency={}", deps.display())])
    }

    /// Adds compiler flags.
    pub fn flags<S: AsRef<str>>(mut self, flags: &[S]) -> Self {
        self.flags.extend(flags.iter().map(|flag| flag.as_ref().to_owned()));
        self
    }

    /// Builds it unless that has been done, and gives the file's path.
    ///
    /// Tests run side by side, in several processes: the name tells the content, and a finished file
    /// appears under it in one step.
    pub fn path(&self) -> PathBuf {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        let source = sources.join(&self.file);
        let text = read(&source);
        let mut hash = DefaultHasher::new();
        (&text, headers(&sources), &self.flags, self.musl).hash(&mut hash);
        let stem = source.file_stem().unwrap_or_default().to_string_lossy();
        let dir = output_dir();
        let path = dir.join(format!("{stem}-{:016x}", hash.finish()));
        if path.exists() {
            return path;
        }
        std::fs::create_dir_all(&dir).expect("a directory for built fixtures");
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // No dots but the last: rustc names its own files after what is before it.
        let partial =
            dir.join(format!("{stem}-{}-{}.partial", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let (compiler, usual, libraries): (_, &[&str], &[&str]) = match self.file.rsplit('.').next() {
            Some("rs") => ("rustc", &["-Copt-level=2", "-g", "-Dwarnings", "--edition=2024"], &[]),
            Some("cc") => ("c++", &["-std=c++20", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"], &["-ldl"]),
            _ => (
                if self.musl { "musl-gcc" } else { "cc" },
                &["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"],
                &["-ldl"],
            ),
        };
        let output = Command::new(compiler)
            .args(usual)
            .args(&self.flags)
            .arg("-o")
            .args([&partial, &source])
            // Behind the source, where the linker looks for what it lacks.
            .args(libraries)
            .output()
            .unwrap_or_else(|error| panic!("cannot run {compiler}: {error}"));
        assert!(output.status.success(), "{} does not build:\n{}", self.file, String::from_utf8_lossy(&output.stderr));
        // Whoever is first wins: a program that runs already keeps its name.
        match std::fs::hard_link(&partial, &path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => panic!("no name for the built fixture: {error}"),
            _ => std::fs::remove_file(&partial).expect("the other name of the built fixture goes"),
        }
        path
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// The text of all headers: they are few, and a change in one may concern any fixture.
fn headers(dir: &Path) -> String {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("cannot list {}: {error}", dir.display()));
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "h"));
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

/// `fixtures` beside the test program's `deps` directory.
pub(crate) fn output_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own program");
    exe.ancestors().nth(2).map_or_else(std::env::temp_dir, Path::to_owned).join("fixtures")
}

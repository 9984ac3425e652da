//! Building the library and the C programs that use it.
#![allow(dead_code, reason = "each test program uses its own part of this file")]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use testkit::Answer;

/// The checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout")
}

/// The directory of the headers.
pub fn include() -> PathBuf {
    root().join("include")
}

/// `target/PROFILE`, where the test program itself was built.
fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own program");
    exe.ancestors().nth(2).expect("target/PROFILE/deps/TEST").to_owned()
}

/// A directory for what tests build, kept between runs.
fn output_dir() -> PathBuf {
    let dir = profile_dir().join("c_tests");
    std::fs::create_dir_all(&dir).expect("a directory for built programs");
    dir
}

/// The directory of `libc_db.so`, which is built first if that is necessary.
pub fn library_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = profile_dir();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "libc_db", "--target-dir"]).arg(dir.parent().expect("target"));
        if dir.ends_with("release") {
            cargo.arg("--release");
        }
        let answer = Answer::of_long(cargo);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        assert!(dir.join("libc_db.so").exists(), "cargo built no libc_db.so in {}", dir.display());
        dir
    })
}

/// `libc_db.so` itself.
pub fn library() -> PathBuf {
    library_dir().join("libc_db.so")
}

/// A directory in which the library has the name that debuggers ask for.
pub fn as_libthread_db() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = output_dir().join("libthread_db");
        std::fs::create_dir_all(&dir).expect("a directory of our own");
        let partial = unique(&dir.join("libthread_db.so.1"));
        std::os::unix::fs::symlink(library(), &partial).expect("a new link");
        std::fs::rename(&partial, dir.join("libthread_db.so.1")).expect("the link gets its name");
        dir
    })
}

fn unique(path: &Path) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    path.with_extension(format!("{}.{number}", std::process::id()))
}

/// A C or C++ program of `tests/c`, to be compiled.
#[derive(Clone, Debug)]
pub struct Source {
    path: PathBuf,
    flags: Vec<String>,
    libraries: Vec<String>,
}

impl Source {
    /// `tests/c/FILE`.
    pub fn new(file: &str) -> Self {
        Self::at(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(file))
    }

    /// Any source file.
    pub fn at(path: PathBuf) -> Self {
        Self { path, flags: Vec::new(), libraries: Vec::new() }
    }

    /// Adds compiler flags, which come before the source.
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// Adds files to link with, and their directory to the search path of the program.
    pub fn link(mut self, library: &Path) -> Self {
        let dir = library.parent().expect("a file in a directory");
        self.libraries.extend([library.display().to_string(), format!("-Wl,-rpath,{}", dir.display())]);
        self
    }

    /// Links it with our library, as `cc file.c -lc_db` does.
    pub fn with_libc_db(self) -> Self {
        let mut source = self.flags(&["-I", &include().display().to_string()]);
        let dir = library_dir().display().to_string();
        // As the older kind of path, which comes before that of the environment, where cargo may have left another.
        let path = format!("-Wl,--disable-new-dtags,-rpath,{dir}");
        source.libraries.extend([format!("-L{dir}"), "-lc_db".to_owned(), path]);
        source
    }

    /// Runs the compiler, with `-o` and the path of the result.
    fn compile(&self, output: &Path) -> Answer {
        let is_cxx = self.path.extension().is_some_and(|ending| ending == "cc");
        let mut compiler = Command::new(if is_cxx { "c++" } else { "cc" });
        compiler.arg(if is_cxx { "-std=c++17" } else { "-std=gnu11" });
        compiler.args(["-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(&self.flags);
        compiler.arg("-o").arg(output).arg(&self.path).args(&self.libraries).arg("-ldl");
        Answer::of(compiler)
    }

    /// Builds it unless that has been done with these sources; gives the path of the result.
    pub fn build(&self) -> PathBuf {
        let mut hash = DefaultHasher::new();
        (&self.flags, &self.libraries, std::fs::read(&self.path).expect("a source file")).hash(&mut hash);
        for dir in [self.path.parent().expect("a directory"), &include()] {
            for header in headers(dir) {
                std::fs::read(header).expect("a header").hash(&mut hash);
            }
        }
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let path = output_dir().join(format!("{stem}-{:016x}", hash.finish()));
        if !path.exists() {
            let partial = unique(&path);
            let answer = self.compile(&partial);
            assert_eq!(answer.code, Some(0), "{} does not compile:\n{}", self.path.display(), answer.stderr);
            // Not over one that another test has made and started meanwhile: its file would be gone.
            if let Err(error) = std::fs::hard_link(&partial, &path) {
                assert!(path.exists(), "the built program gets no name: {error}");
            }
            let _ = std::fs::remove_file(&partial);
        }
        path
    }

    /// Checks that it compiles without a warning; nothing is linked or kept.
    pub fn check(&self) {
        let answer = self.clone().flags(&["-c"]).compile(Path::new("/dev/null"));
        assert_eq!(answer.code, Some(0), "{} does not compile:\n{}", self.path.display(), answer.stderr);
    }
}

fn headers(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory of sources");
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "h"));
    paths.sort();
    paths
}

/// Runs a program that checks things by itself: it must succeed, and what it says is shown if not.
pub fn run(program: &Path, args: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(args);
    let answer = Answer::of_long(command);
    assert_eq!(
        answer.code,
        Some(0),
        "{} {args:?} failed (no status: killed by a signal)\n{}\n{}",
        program.display(),
        answer.text(),
        answer.stderr
    );
    answer.text()
}

/// The libraries with thread-local variables that `debugged.c` uses: the one it is linked with, and the
/// one it loads.
pub fn tls_libraries() -> (PathBuf, PathBuf) {
    let flags = ["-fPIC", "-shared", "-ftls-model=global-dynamic"];
    let linked = Source::new("tls_library.c").flags(&flags).build();
    let loaded = Source::new("tls_library.c").flags(&flags).flags(&["-DNAME=loaded"]).build();
    (linked, loaded)
}

//! Building the library and the C programs that use it.
#![allow(dead_code, reason = "each test program uses its own part of this file")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use testkit::{Answer, Build, Extent, Variant, skip};

/// The checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout")
}

/// The directory of `libprofil.so`, which is built first if that is necessary.
pub fn library_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let exe = std::env::current_exe().expect("a test knows its own program");
        let ours = exe.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
        // In a place of its own: built alone it is another library than that which the tests around it are
        // linked with, under the same name.
        let target = ours.parent().expect("target").join("profil_alone");
        let dir = target.join(ours.file_name().expect("a profile"));
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "libprofil", "--target-dir"]).arg(&target);
        if dir.ends_with("release") {
            cargo.arg("--release");
        }
        let answer = Answer::of_long(cargo);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        assert!(dir.join("libprofil.so").exists(), "cargo built no libprofil.so in {}", dir.display());
        dir
    })
}

/// Flags that link with the library, wherever they stand.
pub fn link_flags() -> Vec<String> {
    let dir = library_dir().display();
    vec![
        format!("-L{dir}"),
        "-Wl,--no-as-needed".to_owned(),
        "-lprofil".to_owned(),
        // As the older kind of path, which comes before that of the environment: cargo's leads to a library of its own.
        format!("-Wl,--disable-new-dtags,-rpath,{dir}"),
        // The fixture's name tells its content: that of the header counts too.
        format!("-DHEADER={}", header_hash()),
    ]
}

fn header_hash() -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hash = DefaultHasher::new();
    std::fs::read(root().join("include/profil.h")).expect("the header").hash(&mut hash);
    hash.finish() >> 1
}

/// A fixture, linked with the library.
pub fn fixture(file: &str, variant: Variant) -> PathBuf {
    Build::new(file).variant(variant).flags(&link_flags()).path()
}

/// Runs one case at 1000 ticks a second, and expects it to agree with itself.
pub fn case(mut command: Command, name: &str) -> String {
    command.arg(name).env("PROFIL_HZ", "1000");
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{name}: {}{}", answer.text(), answer.stderr);
    answer.text()
}

/// Whether this machine allows perf events; if not, the test is skipped.
pub fn have_perf<'a>(what: impl Into<Extent<'a>>) -> bool {
    let opened = perf::Sampler::of_threads(&[0], perf::Options::new(100));
    match opened {
        Ok(_) => true,
        Err(error) => {
            skip(what, &error.to_string());
            false
        }
    }
}

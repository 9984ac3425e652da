//! What `make install` puts where, used as a C programmer and a gdb user would.

mod common;

use common::{library_dir, root, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Answer, Fixture, have, threads};

/// Installs below a directory of its own; the tool is needed for its man pages.
fn install(prefix: &Path) {
    // In a place of their own: what is built here must not replace what other tests are linked with.
    let target = library_dir().parent().expect("target").join("to_install");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "-p", "tglass", "-p", "libprofil", "-p", "libc_db", "--target-dir"]).arg(&target);
    let built = Answer::of_long(cargo);
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    let mut script = Command::new(root().join("scripts/install"));
    script.arg(prefix).env("TG_BUILD_DIR", target.join("debug"));
    let answer = Answer::of_long(script);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
}

/// Compiles a program with nothing but what pkg-config says, and where the library is at run time, if that is given.
fn compile(prefix: &Path, source: &Path, rpath: Option<&str>) -> PathBuf {
    let mut config = Command::new("pkg-config");
    config.args(["--cflags", "--libs", "libc_db"]).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let flags = Answer::of(config);
    assert_eq!(flags.code, Some(0), "{}", flags.stderr);
    let program = prefix.join(source.file_stem().expect("a source file"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
    cc.args(flags.text().split_whitespace()).args(rpath);
    let answer = Answer::of(cc);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    program
}

#[test]
fn programs_and_gdb_use_the_installed_files() {
    let test = "programs_and_gdb_use_the_installed_files";
    if !have(test, "pkg-config") || !have(test, "gdb") {
        return;
    }
    let dir = testkit::Public::new();
    let prefix = dir.path();
    install(prefix);

    let fixture = Fixture::new("threads_truth.c").settled();
    let pid = fixture.pid().to_string();
    // The ways that docs/c-library.md names, for a prefix that neither pkg-config nor the loader knows.
    let source = root().join("docs/examples/list_threads.c");
    let told = threads(fixture.truth()).len();
    let lib = prefix.join("lib");
    let example = compile(prefix, &source, Some(&format!("-Wl,-rpath,{}", lib.display())));
    assert_eq!(run(&example, &[&pid]).lines().count(), told);
    let example = compile(prefix, &source, None);
    let mut by_variable = Command::new(&example);
    by_variable.arg(&pid).env("LD_LIBRARY_PATH", &lib);
    assert_eq!(Answer::of(by_variable).text().lines().count(), told);
    let page = std::fs::read_to_string(root().join("docs/c-library.md")).expect("the page");
    for word in
        ["-Wl,-rpath,PREFIX/lib", "LD_LIBRARY_PATH=PREFIX/lib", "PKG_CONFIG_PATH=PREFIX/lib/pkgconfig", "ldconfig"]
    {
        assert!(page.contains(word), "the page does not say {word}");
    }

    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-ix"]).arg(prefix.join("lib/threadglass/gdbinit"));
    gdb.args(["-p", &pid, "-ex", "info auto-load libthread-db", "-ex", "info threads", "-ex", "info deadlock"]);
    // The commands find the tool that was installed with them.
    gdb.env_remove("TGLASS");
    let answer = Answer::of(gdb);
    let text = answer.text();
    if answer.stderr.contains("not supported in this copy of GDB") {
        testkit::skip(testkit::part("gdb's commands"), "this gdb has no Python");
    } else {
        assert!(text.contains("No deadlock"), "{text}{}", answer.stderr);
    }
    assert!(text.contains(&prefix.join("lib").display().to_string()), "gdb uses another library:\n{text}");
    assert!(!text.contains("warning"), "{text}");
}

#[test]
fn every_function_has_a_page() {
    let dir = testkit::Public::new();
    install(dir.path());
    let header = std::fs::read_to_string(dir.path().join("include/threadglass/thread_db.h")).expect("the header");
    let mut pages = 0;
    for line in header.lines().filter_map(|line| line.strip_prefix("extern ")) {
        let Some(name) = line.split_once('(').and_then(|(before, _)| before.rsplit([' ', '*']).next()) else {
            continue;
        };
        assert!(dir.path().join(format!("share/man/man3/{name}.3")).exists(), "{name} has no man page");
        pages += 1;
    }
    assert_eq!(pages, 54);
    for page in ["tglass", "tglass-why", "tglass-locks", "tglass-threads", "tglass-set", "tglass-demo"] {
        let text = std::fs::read_to_string(dir.path().join(format!("share/man/man1/{page}.1"))).expect(page);
        assert!(text.contains(".SH NAME"), "{page}");
    }

    // All of it goes away again, and nothing that was there besides.
    std::fs::write(dir.path().join("bin/other"), "").expect("a file");
    let mut script = Command::new(root().join("scripts/uninstall"));
    script.arg(dir.path());
    let answer = Answer::of(script);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let mut find = Command::new("find");
    find.arg(dir.path()).args(["(", "-type", "f", "-o", "-type", "l", ")"]);
    let left = Answer::of(find).text();
    assert_eq!(left.trim(), dir.path().join("bin/other").display().to_string(), "files are left");
}

/// Who installs waits for no benchmark, and needs nothing that only tests need.
#[test]
fn only_what_is_installed_is_built_for_it() {
    let test = "only_what_is_installed_is_built_for_it";
    if !have(test, "make") {
        return;
    }
    let mut make = Command::new("make");
    make.args(["--no-print-directory", "-n", "install", "PREFIX=/nowhere"]).current_dir(root());
    let answer = Answer::of_long(make);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let text = answer.text();
    let build: Vec<&str> = text.lines().filter(|line| line.contains("cargo") && line.contains("build")).collect();
    let [build] = build[..] else { panic!("one build: {text}") };
    let words: Vec<&str> = build.split_whitespace().collect();
    let packages: Vec<&str> = words.windows(2).filter(|pair| pair[0] == "-p").map(|pair| pair[1]).collect();
    assert_eq!(packages, ["tglass", "libc_db", "libprofil"], "{build}");
    assert!(!words.contains(&"--workspace"), "{build}");
}

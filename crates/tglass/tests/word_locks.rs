//! Locks of libraries, and of programs themselves, that are one word and record no holder.

use std::path::PathBuf;
use std::process::Command;
use testkit::{Build, Dumpable, Fixture, Tool, Variant, lock_faults, skip};

/// The file of a library as the linker takes it; `None` (and a skip) if it is not installed.
fn library(test: &str, name: &str, package: &str) -> Option<PathBuf> {
    let path = PathBuf::from("/usr/lib/x86_64-linux-gnu").join(name);
    if !path.exists() {
        skip(test, &format!("{name} is not installed (package {package})"));
        return None;
    }
    Some(path)
}

/// Checks a build of the fixture: running, and as a core.
fn check(test: &str, flags: &[&str], variant: Variant) {
    check_modes(test, flags, variant, &["circle", "branches", "locks"]);
}

fn check_modes(test: &str, flags: &[&str], variant: Variant, modes: &[&str]) {
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    let program = Build::new("word_locks.cc").flags(flags).variant(variant).path();
    for mode in modes {
        let fixture = Fixture::start(&program, &[mode]).settled();
        let faults = lock_faults(&tool, &fixture.pid().to_string(), fixture.truth(), false);
        assert!(faults.is_empty(), "{test} {variant:?} {mode}: {faults:#?}");
    }
    let dumped = Dumpable::start(&program, &["circle"]);
    let truth = dumped.fixture.truth().clone();
    let Some(core) = dumped.gcore(testkit::part("the core")) else { return };
    let faults = lock_faults(&tool, &core.name(), &truth, false);
    assert!(faults.is_empty(), "{test} {variant:?} core: {faults:#?}");
}

fn check_with(test: &str, define: &str, file: &str, package: &str) {
    let Some(library) = library(test, file, package) else { return };
    for variant in [Variant::Default, Variant::Stripped] {
        check(test, &[define, "-Wl,--no-as-needed", &library.to_string_lossy()], variant);
    }
}

/// Checks that a thread that waits for what nobody is left to do is told of as such.
fn check_awaits(test: &str, define: &str, file: &str, package: &str) {
    let Some(library) = library(test, file, package) else { return };
    let flags = [define, "-Wl,--no-as-needed", &library.to_string_lossy()];
    let program = Build::new("word_locks.cc").flags(&flags).path();
    let fixture = Fixture::start(&program, &["awaits"]).settled();
    let answer = Tool::new(env!("CARGO_BIN_EXE_tglass")).run(&["why", &fixture.pid().to_string(), "--json"]);
    let verdict = &answer.json()["verdict"];
    assert_eq!(verdict["kind"], "nobody_left", "{verdict:#}");
    assert_eq!(verdict["certainty"], "certain", "{verdict:#}");
    let (text, words) = (verdict["text"].as_str().unwrap(), fixture.truth()["words"].as_str().unwrap());
    assert!(text.contains(words), "{text}");
}

#[test]
fn glib() {
    check_with("glib", "-DGLIB", "libglib-2.0.so.0", "libglib2.0-0");
}

/// A rwlock of POSIX behind a pointer, in functions of a library that nobody may have called before.
#[test]
fn glib_rwlock() {
    let Some(library) = library("glib_rwlock", "libglib-2.0.so.0", "libglib2.0-0") else { return };
    for (variant, binding) in [(Variant::Default, "-Wl,-z,lazy"), (Variant::Stripped, "-Wl,-z,now")] {
        let flags = ["-DGLIB_RW", binding, "-Wl,--no-as-needed", &library.to_string_lossy()];
        check_modes("glib_rwlock", &flags, variant, &["circle", "branches"]);
    }
}

#[test]
fn qt() {
    check_with("qt", "-DQT", "libQt5Core.so.5", "libqt5core5a");
}

/// The wait condition and the rwlock of Qt are built on condition variables of POSIX.
#[test]
fn qt_rwlock() {
    for (file, package) in [("libQt5Core.so.5", "libqt5core5a"), ("libQt6Core.so.6", "libqt6core6")] {
        let Some(library) = library("qt_rwlock", file, package) else { continue };
        for (variant, side) in [(Variant::Default, "-DQT_READS"), (Variant::Stripped, "-DQT_WRITES")] {
            check("qt_rwlock", &["-DQT_RW", side, "-Wl,--no-as-needed", &library.to_string_lossy()], variant);
        }
    }
}

/// One that records who has it: a circle is certain.
#[test]
fn qt_recursive() {
    let Some(library) = library("qt_recursive", "libQt5Core.so.5", "libqt5core5a") else { return };
    let flags = ["-DQT_RECURSIVE", "-Wl,--no-as-needed", &library.to_string_lossy()];
    for variant in [Variant::Default, Variant::Stripped] {
        check("qt_recursive", &flags, variant);
        let fixture = Fixture::start(&Build::new("word_locks.cc").flags(&flags).variant(variant).path(), &["circle"]);
        let fixture = fixture.settled();
        let answer = Tool::new(env!("CARGO_BIN_EXE_tglass")).run(&["why", &fixture.pid().to_string(), "--json"]);
        assert_eq!(answer.json()["verdict"]["certainty"], "certain", "{:#}", answer.json()["verdict"]);
    }
}

#[test]
fn absl() {
    check_with("absl", "-DABSL", "libabsl_synchronization.so", "libabsl-dev");
    check_awaits("absl", "-DABSL", "libabsl_synchronization.so", "libabsl-dev");
}

/// Abseil as a part of the program: its functions are not exported.
#[test]
fn absl_linked_in() {
    let asked = Command::new("pkg-config").args(["--static", "--libs-only-l", "absl_synchronization"]).output();
    let libraries = asked.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default();
    let archives = libraries.split_whitespace().filter_map(|it| it.strip_prefix("-labsl_"));
    let archives: Vec<String> = archives.map(|name| format!("-l:libabsl_{name}.a")).collect();
    if archives.is_empty() {
        return skip("absl_linked_in", "pkg-config does not know Abseil (packages pkg-config, libabsl-dev)");
    }
    let whole = archives.iter().map(String::as_str);
    let flags: Vec<&str> =
        ["-DABSL", "-Wl,--whole-archive"].into_iter().chain(whole).chain(["-Wl,--no-whole-archive"]).collect();
    check("absl_linked_in", &flags, Variant::Default);
}

#[test]
fn openmp() {
    for variant in [Variant::Default, Variant::Stripped] {
        check("openmp", &["-DGOMP", "-fopenmp"], variant);
    }
}

/// Critical sections with names; one without a name shares its lock with all others, so it is in the circle only.
#[test]
fn critical_sections() {
    for variant in [Variant::Default, Variant::Stripped] {
        check("critical_sections", &["-DCRITICAL", "-fopenmp"], variant);
        check_modes("critical_sections", &["-DUNNAMED", "-fopenmp"], variant, &["circle"]);
    }
}

#[test]
fn tbb() {
    check_with("tbb", "-DTBB", "libtbb.so", "libtbb-dev");
    check_awaits("tbb", "-DTBB", "libtbb.so", "libtbb-dev");
}

/// A lock that the program has made itself: the word is the lock, if the thread goes on to take it.
#[test]
fn of_the_program() {
    for variant in [Variant::Default, Variant::Stripped, Variant::NoPie] {
        check("of_the_program", &["-DOWN"], variant);
    }
    check("of_the_program", &["-DOWN", "-O0"], Variant::Default);
}

//! Programs that are busy with the locks of one library each, looked at again and again: nothing in them ever hangs.

use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Build, Fixture, RUST_ON_MUSL, Variant, has_rust_on_musl, skip};
use threadglass::model::{Certainty, VerdictKind};
use threadglass::target::Live;
use threadglass::{Pid, look};

// Has the crate built beside this program.
use parking_lot as _;

/// Looks at each family; `make soak` takes a thousand.
fn looks() -> usize {
    std::env::var("TG_FAMILY_LOOKS").ok().and_then(|number| number.parse().ok()).unwrap_or(20)
}

/// Whether this family is to be looked at: `TG_FAMILIES` names some, separated by commas.
fn is_asked_for(family: &str) -> bool {
    std::env::var("TG_FAMILIES").map_or(true, |list| list.split(',').any(|name| name == family))
}

/// Families of `word_locks.cc`, with the library each needs.
const FAMILIES: [(&str, Option<&str>); 14] = [
    ("PTHREAD", None),
    ("SEMAPHORE", None),
    ("LIBC", None),
    ("OWN", None),
    ("GOMP", None),
    ("CRITICAL", None),
    ("UNNAMED", None),
    ("GLIB", Some("libglib-2.0.so.0")),
    ("GLIB_RW", Some("libglib-2.0.so.0")),
    ("QT", Some("libQt5Core.so.5")),
    ("QT_RW", Some("libQt5Core.so.5")),
    ("QT_RECURSIVE", Some("libQt5Core.so.5")),
    ("ABSL", Some("libabsl_synchronization.so")),
    ("TBB", Some("libtbb.so")),
];

/// Single looks at a busy program: none is certain of a hang, and one in a thousand may take one to be likely.
fn look_at(family: &str, program: &Path) {
    if !is_asked_for(family) {
        return;
    }
    let mut fixture = Fixture::start(program, &["busy"]);
    let live = Live::open(Pid(fixture.pid())).unwrap();
    let (mut likely, mut waiters, mut rounds) = (Vec::new(), 0, 0);
    let looks = looks();
    let mut look = 0;
    // Looks that see nothing prove nothing: where the program gets no CPU there are more of them.
    while look < looks || look < 10 * looks && waiters <= looks / 10 {
        let snapshot = look::explain_for(&live, Duration::ZERO).unwrap();
        let verdict = snapshot.verdict.as_ref().expect("an answer");
        let is_alarm = matches!(verdict.kind, VerdictKind::Deadlock | VerdictKind::NobodyLeft);
        assert!(!is_alarm || verdict.certainty != Certainty::Certain, "{family}, look {look}: {verdict:?}");
        if is_alarm && verdict.certainty == Certainty::Likely {
            likely.push(verdict.text.clone());
        }
        waiters += snapshot.objects.iter().map(|object| object.waiters.len()).sum::<usize>();
        if look % 100 == 0 {
            fixture.goes_on(&mut rounds);
            eprintln!("{family}: look {look}, {waiters} waiters, {} likely", likely.len());
        }
        look += 1;
    }
    eprintln!("{family}: {looks} single looks, {waiters} waiters, {} likely", likely.len());
    assert!(
        likely.len() <= looks / 1000,
        "{family}: {} of {looks} looks gave a false alarm: {likely:#?}",
        likely.len()
    );
    // Looks at a program that never waits prove nothing.
    assert!(waiters > looks / 10, "{family}: {waiters} waiters in {looks} looks");
}

#[test]
fn of_c_and_cxx() {
    for (family, library) in FAMILIES.into_iter().filter(|(family, _)| is_asked_for(family)) {
        let path = library.map(|name| PathBuf::from("/usr/lib/x86_64-linux-gnu").join(name));
        if let Some(path) = path.as_ref().filter(|path| !path.exists()) {
            skip(testkit::part(family), &format!("{} is not installed", path.display()));
            continue;
        }
        let define = format!("-D{family}");
        let mut flags = vec![define, "-Wl,--no-as-needed".to_owned()];
        flags.extend(path.map(|path| path.to_string_lossy().into_owned()));
        flags.extend(matches!(family, "GOMP" | "CRITICAL" | "UNNAMED").then(|| "-fopenmp".to_owned()));
        look_at(family, &Build::new("word_locks.cc").flags(&flags).variant(Variant::Default).path());
    }
}

#[test]
fn of_rust() {
    look_at("Rust", &Build::new("busy_rust.rs").path());
}

#[test]
fn of_rust_on_musl() {
    if has_rust_on_musl("of_rust_on_musl") {
        look_at("Rust on musl", &Build::new("busy_rust.rs").flags(&["--target", RUST_ON_MUSL]).path());
    }
}

#[test]
fn of_parking_lot() {
    look_at("parking_lot", &Build::new("busy_rust.rs").flags(&["--cfg", "lot"]).with_crate("parking_lot").path());
}

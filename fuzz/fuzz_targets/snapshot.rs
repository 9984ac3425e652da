//! A snapshot that somebody else made: the file may be anything, and so may be the texts in a file whose sums are right. Whatever
//! it is asked, it answers or refuses.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::snap::{Part, Snap, compare, of_texts};

const ABOUT: &str = r#"{"target":{"pid":1,"name":"x","exe":null,"uid":0,"in_pid_namespace":false,"libc":{"kind":"musl"},
"shared_pending":null,"tracer":null,"core":null,"snapshot":null},"taken_at_ms":1,"redacted":false,"process":null,"files":[]}"#;

fn ask(bytes: Vec<u8>) {
    let Ok(snap) = Snap::of_bytes(bytes, "fuzzed") else { return };
    let _ = (snap.check(), snap.target(), snap.data());
    for part in Part::ALL {
        let _ = snap.answer(part);
    }
    let _ = compare(&snap, &snap);
}

fuzz_target!(|bytes: &[u8]| {
    let Some((form, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let made = match form {
        0 => Some(rest.to_vec()),
        1 => of_texts(&text, &[("why", b"{}")]),
        2 => of_texts(ABOUT, &[("counters before", rest), ("counters after", rest), ("stacks", rest)]),
        form => of_texts(ABOUT, &[(Part::ALL[usize::from(*form) % Part::ALL.len()].name(), rest)]),
    };
    made.into_iter().for_each(ask);
});

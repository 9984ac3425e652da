//! Snapshot files, byte by byte: whatever has happened to one is said, and nothing is made up.

use std::sync::OnceLock;
use testkit::{Build, Fixture, Variant};
use threadglass::Pid;
use threadglass::snap::{FORMAT, Part, Snap, SnapFault, TakeOptions, of_texts, take};
use threadglass::target::Live;

/// A snapshot of a program with a deadlock.
fn snapshot() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let fixture =
            Fixture::start(&Build::new("deadlocks.c").variant(Variant::Default).path(), &["writers"]).settled();
        let live = Live::open(Pid(fixture.pid())).expect("a process");
        take(&live, TakeOptions::default()).expect("a snapshot").bytes
    })
}

fn open(bytes: &[u8]) -> Result<Snap, SnapFault> {
    Snap::of_bytes(bytes.to_vec(), "test").map_err(|error| error.fault)
}

/// What is wrong with a file as a whole.
fn fault(bytes: &[u8]) -> Option<SnapFault> {
    match open(bytes) {
        Ok(snap) => snap.check().err().map(|error| error.fault),
        Err(fault) => Some(fault),
    }
}

/// CRC-32, as in zip files and zlib.
fn crc(bytes: impl IntoIterator<Item = u8>) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !sum
}

/// The file with the right sum for its head and its list of contents.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    let list = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let sum = crc(bytes[..16].iter().chain(&bytes[20..20 + list]).copied());
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn a_whole_file_answers() {
    let snap = open(snapshot()).expect("a snapshot");
    snap.check().expect("nothing has happened to it");
    for part in Part::ALL.into_iter().filter(|part| *part != Part::Data) {
        let answer = snap.answer(part).unwrap_or_else(|error| panic!("{}: {error}", part.name()));
        assert_eq!(answer.pause_us, 0);
        assert!(!answer.threads.is_empty(), "{part:?}");
        assert_eq!(answer.target.snapshot.as_ref().map(|file| file.path.as_str()), Some("test"));
    }
    assert!(snap.answer(Part::Why).expect("why").findings[0].is_certain_hang());
    assert!(snap.data().is_ok());
    assert_eq!(summed(snapshot().to_vec()), snapshot(), "the sum is computed here as there");
}

#[test]
fn a_file_that_was_cut_says_so_at_every_length() {
    let whole = snapshot();
    for length in 0..whole.len() {
        match fault(&whole[..length]) {
            Some(SnapFault::Cut { has, wanted }) => assert!(has == length as u64 && wanted > has, "{length}: {wanted}"),
            Some(SnapFault::NotASnapshot) if length == 0 => {}
            other => panic!("cut at {length}: {other:?}"),
        }
    }
    assert!(matches!(fault(&[whole, b"\n"].concat()), Some(SnapFault::Damaged { .. })));
    // What has arrived can be asked.
    let last = &whole[..whole.len() - 1];
    assert!(open(last).expect("its list is whole").answer(Part::Why).is_ok());
}

#[test]
fn a_byte_that_has_changed_is_noticed_wherever_it_is() {
    let mut bytes = snapshot().to_vec();
    for at in 0..bytes.len() {
        let bit = 1 << (at % 8);
        bytes[at] ^= bit;
        let found = fault(&bytes);
        assert!(found.is_some(), "byte {at} has changed, and nothing is wrong");
        // Which bytes are asked for decides what else is said; none of it is an answer of another process.
        let is_told =
            matches!(found, Some(SnapFault::Damaged { .. } | SnapFault::NotASnapshot | SnapFault::Cut { .. }));
        assert!(is_told, "byte {at}: {found:?}");
        bytes[at] ^= bit;
    }
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let mut bytes = snapshot().to_vec();
    bytes[8..12].copy_from_slice(&(FORMAT + 1).to_le_bytes());
    match fault(&summed(bytes.clone())) {
        Some(SnapFault::Newer { format, by }) => {
            assert_eq!(format, FORMAT + 1);
            assert_eq!(by, concat!("threadglass ", env!("CARGO_PKG_VERSION")));
        }
        other => panic!("{other:?}"),
    }
    bytes[8..12].copy_from_slice(&0u32.to_le_bytes());
    assert!(matches!(fault(&summed(bytes)), Some(SnapFault::Senseless(_))));
}

const ABOUT: &str = r#"{"target":{"pid":1,"name":"x","exe":null,"uid":0,"in_pid_namespace":false,"libc":{"kind":"musl"},
"shared_pending":null,"tracer":null,"core":null,"snapshot":null},"taken_at_ms":1,"redacted":false,"process":null,"files":[]}"#;

/// A file whose sums are right, and whose texts are not those of a snapshot.
#[test]
fn a_file_that_makes_no_sense_is_refused() {
    let made = |text: &str| open(&of_texts(ABOUT, &[("why", text.as_bytes())]).expect("a file")).expect("a list");
    for text in ["", "{}", "[]", "null", "{\"answer\":{}}", "{\"refused\":{}}", "{\"answer\":", "\u{0}"] {
        let answer = made(text).answer(Part::Why).map_err(|error| error.fault);
        assert!(matches!(answer, Err(SnapFault::Senseless(_))), "{text}: {answer:?}");
    }
    let deep = "[".repeat(100_000);
    assert!(matches!(made(&deep).answer(Part::Why).map_err(|error| error.fault), Err(SnapFault::Senseless(_))));
    let refused = made(r#"{"refused":{"why":"it is so","remedy":null}}"#).answer(Part::Why);
    assert!(matches!(refused.map_err(|error| error.fault), Err(SnapFault::Refused { why, .. }) if why == "it is so"));
    let none = made("{}").answer(Part::Locks).map_err(|error| error.fault);
    assert!(matches!(none, Err(SnapFault::Senseless(_))), "{none:?}");
    for about in ["{}", "null", "[]"] {
        assert!(matches!(open(&of_texts(about, &[]).expect("a file")), Err(SnapFault::Senseless(_))), "{about}");
    }
    // A part that claims to be longer than any file, and one that is short and claims to become very long.
    for (member, claim) in [("packed", u64::MAX), ("packed", 1 << 40), ("unpacked", u64::MAX), ("unpacked", 1 << 40)] {
        let file = of_texts(ABOUT, &[("why", b"{}")]).expect("a file");
        let list = u32::from_le_bytes(file[12..16].try_into().unwrap()) as usize;
        let text = String::from_utf8(file[20..20 + list].to_vec()).unwrap();
        let at = text.find(&format!("\"{member}\":")).expect("the member") + member.len() + 3;
        let end = at + text[at..].find(|c: char| !c.is_ascii_digit()).expect("its end");
        let text = format!("{}{claim}{}", &text[..at], &text[end..]);
        let length = (text.len() as u32).to_le_bytes();
        let claims = [&file[..12], &length, &[0; 4], text.as_bytes(), &file[20 + list..]].concat();
        let answer = open(&summed(claims)).and_then(|snap| snap.answer(Part::Why).map_err(|error| error.fault));
        assert!(matches!(answer, Err(SnapFault::Senseless(_) | SnapFault::Cut { .. })), "{member} {claim}: {answer:?}");
    }
}

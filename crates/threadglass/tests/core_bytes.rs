//! Core files that are damaged or lie: a partial answer or an error, never a panic, in bounded time.

#[path = "support/core_file.rs"]
mod core_file;

use core_file::{FIRST, assemble, core, descriptor, header, note, process, thread};
use proptest::prelude::*;
use std::time::{Duration, Instant};
use threadglass::look::{self, Names, Scope};
use threadglass::memory::Memory;
use threadglass::model::{Snapshot, ThreadState};
use threadglass::target::{Core, KernelFacts, Target};
use threadglass::{Lwp, RemoteAddr};

/// Looks at everything; `None` when it is refused.
fn look(bytes: Vec<u8>) -> Option<Snapshot> {
    let core = Core::from_bytes(bytes).ok()?;
    let _ = look::thread_data(&core);
    let _ = (core.maps(), core.modules(), core.extended_registers(Lwp(1000)));
    look::look(&core, Scope::Threads, Names::None).ok()
}

fn gaps(snapshot: &Snapshot) -> String {
    snapshot.gaps.iter().map(|gap| format!("{}: {}\n", gap.what, gap.why)).collect()
}

#[test]
fn a_whole_one() {
    let snapshot = look(core(2)).unwrap();
    assert_eq!(snapshot.threads.len(), 2);
    for (index, thread) in snapshot.threads.iter().enumerate() {
        assert_eq!(thread.lwp, Some(Lwp(1000 + index as i32)));
        assert_eq!(thread.id.map(|id| id.0), Some(RemoteAddr(FIRST + 0x2000 * index as u64)));
        assert_eq!((thread.state, thread.pc), (ThreadState::Sleep, Some(RemoteAddr(0x40_1000))));
        assert_eq!(thread.start, Some(RemoteAddr(0x40_1000)));
    }
    assert_eq!(snapshot.target.core.unwrap().signal.as_deref(), Some("SIGABRT"));
    assert_eq!(snapshot.target.name, "prog");
}

#[test]
fn cut_at_every_byte() {
    let whole = core(2);
    let mut found = 0;
    for len in 0..whole.len() {
        if let Some(snapshot) = look(whole[..len].to_vec()) {
            assert!(gaps(&snapshot).contains("cut short") || gaps(&snapshot).contains("damaged"), "{len}");
            found += 1;
        }
    }
    assert!(found > 8192, "with the first thread there is an answer: {found}");
}

#[test]
fn segments_that_overlap_and_reach_the_end_of_memory() {
    let notes = [thread(1000, FIRST), process(1000)].concat();
    let bytes = assemble(
        &notes,
        &[
            (FIRST, descriptor(FIRST, 1000), 0x1000),
            (FIRST + 0x800, vec![0xff; 0x1000], 0x1000),
            (u64::MAX - 8, vec![1; 8], u64::MAX),
            (0, vec![1; 8], u64::MAX),
        ],
    );
    let snapshot = look(bytes).unwrap();
    assert!(gaps(&snapshot).contains("overlap"), "{}", gaps(&snapshot));
}

#[test]
fn the_rest_of_a_segment_is_absent_and_not_zero() {
    let notes = [thread(1000, FIRST), process(1000)].concat();
    let core = Core::from_bytes(assemble(&notes, &[(0x5000, vec![7; 16], 0x1000)])).unwrap();
    let mut buf = [0; 32];
    assert_eq!(core.read_at(RemoteAddr(0x5008), &mut buf), Ok(8));
    assert!(core.read_at(RemoteAddr(0x5010), &mut buf).is_err());
}

/// Time and memory follow what is in the file, not what it claims.
#[test]
fn a_million_of_everything_claimed() {
    let started = Instant::now();
    // Segments.
    let mut many = core(1);
    many[56..58].copy_from_slice(&0xffffu16.to_le_bytes());
    let at = many.len() as u64;
    many[40..48].copy_from_slice(&at.to_le_bytes());
    let mut section = vec![0; 64];
    section[44..48].copy_from_slice(&u32::MAX.to_le_bytes());
    many.extend(section);
    assert!(look(many).is_some_and(|snapshot| gaps(&snapshot).contains("program headers are missing")));
    // Threads, all in one note segment of a size that is a lie.
    let mut long = core(1);
    long[64 + 32..64 + 40].copy_from_slice(&u64::MAX.to_le_bytes());
    let _ = look(long);
    // A thread that is there a hundred thousand times.
    let again: Vec<u8> = (0..100_000).flat_map(|_| thread(1000, FIRST)).collect();
    let snapshot = look(assemble(&again, &[])).unwrap();
    assert_eq!(snapshot.threads.len(), 1);
    // A hundred thousand threads without any memory.
    let threads: Vec<u8> = (1..=100_000).flat_map(|lwp| thread(lwp, FIRST)).collect();
    assert_eq!(look(assemble(&threads, &[])).unwrap().threads.len(), 100_000);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn notes_that_lie_about_their_sizes() {
    for (at, value) in [(0, u32::MAX), (4, u32::MAX), (0, 0x7fff_fff0), (4, 0x7fff_fff0), (0, 0), (4, 0)] {
        let mut lying = note(1, b"CORE\0", &[1; 336]);
        lying[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let notes = [thread(1000, FIRST), process(1000), lying, thread(1001, FIRST)].concat();
        let snapshot = look(assemble(&notes, &[])).unwrap();
        assert!(snapshot.threads.iter().any(|thread| thread.lwp == Some(Lwp(1000))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_anywhere(damages in prop::collection::vec((0usize..12_000, any::<u8>()), 1..16)) {
        let mut bytes = core(2);
        for (at, value) in damages {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        let _ = look(bytes);
    }

    #[test]
    fn any_headers(headers in prop::collection::vec((0u32..6, any::<u32>(), any::<[u64; 4]>(), any::<[u8; 4]>()), 0..20)) {
        let mut bytes = core(1);
        let at = bytes.len() as u64;
        let count = headers.len() as u16;
        for (kind, flags, words, small) in headers {
            // Half of the numbers near the file's own, so that some segments have bytes.
            let pick = |i: usize| if small[i] % 2 == 0 { words[i] } else { u64::from(small[i]) * 64 };
            bytes.extend(header(kind, flags, pick(0), pick(1), pick(2), pick(3)));
        }
        bytes[32..40].copy_from_slice(&at.to_le_bytes());
        bytes[56..58].copy_from_slice(&count.to_le_bytes());
        let _ = look(bytes);
    }
}

#[test]
fn of_very_many_threads_the_first_are_kept_and_the_others_counted() {
    let core = |count: u32| {
        let notes: Vec<u8> = (1000..1000 + count).flat_map(|lwp| core_file::thread(lwp, 0x1000)).collect();
        Core::from_bytes(core_file::assemble(&notes, &[])).unwrap()
    };
    let told = |core: &Core| core.losses().iter().find(|gap| gap.why.contains("are kept")).map(|gap| gap.what.clone());
    let whole = core(10_000);
    assert_eq!((whole.thread_count(), told(&whole)), (Some(10_000), None));
    let cut = core((1 << 17) + 10);
    assert_eq!((cut.thread_count(), told(&cut)), (Some(1 << 17), Some("10 threads".to_owned())));
}

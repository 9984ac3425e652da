extern crate std;
use super::*;
use std::vec::Vec;

struct Small {
    slots: Vec<AtomicU32>,
    keys: Vec<AtomicU64>,
    next: AtomicU32,
}

impl Small {
    fn new(slots: usize, units: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            keys: (0..units).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicU32::new(1),
        }
    }
}

impl Store for Small {
    fn slots(&self) -> u64 {
        self.slots.len() as u64
    }
    fn slot(&self, at: u64) -> &AtomicU32 {
        &self.slots[at as usize]
    }
    fn key(&self, entry: u32) -> &AtomicU64 {
        &self.keys[entry as usize]
    }
    fn take(&self, units: u32) -> Option<u32> {
        let first = self.next.fetch_add(units, Ordering::Relaxed);
        (((first + units) as usize) <= self.keys.len()).then_some(first)
    }
    fn clear(&self, entry: u32, wide: bool) {
        if wide {
            self.keys[entry as usize + 1].store(Key::CONTINUED.0, Ordering::Relaxed);
        }
    }
}

#[test]
fn an_address_has_one_entry_until_it_ends() {
    let store = Small::new(1024, 64);
    let FoundEntry::New(entry) = find_or_insert(&store, 0x1000, Kind::Mutex) else { panic!("there is room") };
    assert_eq!(find_or_insert(&store, 0x1000, Kind::Mutex), FoundEntry::Old(entry));
    assert_eq!(find(&store, 0x1000), Some(entry));
    end(&store, 0x1000);
    assert_eq!(Key(store.key(entry).load(Ordering::Relaxed)).kind(), None);
    assert_eq!(find_or_insert(&store, 0x1000, Kind::Mutex), FoundEntry::New(entry));
    assert_eq!(Key(store.key(entry).load(Ordering::Relaxed)).generation(), 1);
    // Of another kind, without an end that was told.
    assert_eq!(find_or_insert(&store, 0x1000, Kind::Sema), FoundEntry::New(entry));
    // A rwlock needs two units, so it is elsewhere.
    let FoundEntry::New(wide) = find_or_insert(&store, 0x1000, Kind::Rwlock) else { panic!("there is room") };
    assert_ne!(wide, entry);
    assert_eq!(Key(store.key(wide + 1).load(Ordering::Relaxed)), Key::CONTINUED);
    assert_eq!(store.key(entry).load(Ordering::Relaxed), 0);
    assert_eq!(find(&store, 0x1000), Some(wide));
    // And what comes after it may stay there.
    assert_eq!(find_or_insert(&store, 0x1000, Kind::Cond), FoundEntry::New(wide));
    assert_eq!(find(&store, 0x2000), None);
}

#[test]
fn a_full_table_says_so_and_keeps_what_it_has() {
    let store = Small::new(1024, 9);
    let addresses: Vec<u64> = (1..=20).map(|n| n * 0x40).collect();
    let found: Vec<FoundEntry> =
        addresses.iter().map(|address| find_or_insert(&store, *address, Kind::Mutex)).collect();
    assert_eq!(found.iter().filter(|found| matches!(found, FoundEntry::New(_))).count(), 8);
    assert!(found[8..].iter().all(|found| *found == FoundEntry::Full));
    for (address, found) in addresses.iter().zip(&found[..8]) {
        let FoundEntry::New(entry) = found else { panic!("there was room") };
        assert_eq!(find_or_insert(&store, *address, Kind::Mutex), FoundEntry::Old(*entry));
    }
}

#[test]
fn a_million_objects_find_room() {
    for spacing in [4, 24, 40, 64, 128, 1056] {
        let store = Small::new(1 << 22, 1 << 20);
        let many = 1_000_000;
        let full = (1..many as u64)
            .filter(|n| find_or_insert(&store, 0x7f12_3450_0000 + n * spacing, Kind::Mutex) == FoundEntry::Full)
            .count();
        // Spinlocks side by side crowd the slots of their region; nothing else may.
        assert!(full == 0 || spacing < 32, "{full} of {many} at a distance of {spacing}");
        std::println!("{spacing}: {full} without room");
    }
}

#[test]
fn threads_that_meet_make_one_entry() {
    for round in 0..200_u64 {
        let store = Small::new(1024, 4096);
        let made: usize = std::thread::scope(|scope| {
            let store = &store;
            let work = move || {
                (1..=32)
                    .filter(|n| matches!(find_or_insert(store, (round + n) * 40, Kind::Cond), FoundEntry::New(_)))
                    .count()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(made, 32);
    }
}

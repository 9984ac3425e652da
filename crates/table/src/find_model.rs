//! Every order in which two or three threads can meet in the index. `RUSTFLAGS="--cfg loom" cargo test -p
//! threadglass-table --release`.

extern crate std;
use super::*;
use loom::sync::Arc;
use loom::thread;
use std::vec::Vec;

const SLOTS: u64 = 1024;
const UNITS: usize = 8;
const ADDRESS: u64 = 0x1000;

struct Small {
    /// Only those that the addresses of the model can meet: loom cannot have many.
    slots: Vec<AtomicU32>,
    keys: Vec<AtomicU64>,
    counts: Vec<AtomicU64>,
    next: AtomicU32,
}

impl Small {
    fn new() -> Arc<Self> {
        let atomics = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self {
            slots: (0..4).map(|_| AtomicU32::new(0)).collect(),
            keys: atomics(UNITS),
            counts: atomics(UNITS),
            next: AtomicU32::new(1),
        })
    }

    fn count(&self, address: u64) -> bool {
        let (entry, new) = match find_or_insert(self, address, Kind::Mutex) {
            FoundEntry::Old(entry) => (entry, false),
            FoundEntry::New(entry) => (entry, true),
            FoundEntry::Full => panic!("there is room"),
        };
        // Whoever has found an entry finds what it stands for, too.
        assert_eq!(Key(self.keys[entry as usize].load(Ordering::Relaxed)).address(), address);
        self.counts[entry as usize].fetch_add(1, Ordering::Relaxed);
        new
    }
}

impl Store for Small {
    fn slots(&self) -> u64 {
        SLOTS
    }
    fn slot(&self, at: u64) -> &AtomicU32 {
        &self.slots[(at - first(ADDRESS, SLOTS)) as usize]
    }
    fn key(&self, entry: u32) -> &AtomicU64 {
        &self.keys[entry as usize]
    }
    fn take(&self, units: u32) -> Option<u32> {
        let taken = self.next.fetch_add(units, Ordering::Relaxed);
        ((taken as usize) < UNITS).then_some(taken)
    }
    fn clear(&self, entry: u32, _: bool) {
        self.counts[entry as usize].store(0, Ordering::Relaxed);
    }
}

#[test]
fn two_that_enter_the_same_address_share_one_entry() {
    loom::model(|| {
        let store = Small::new();
        let other = store.clone();
        let thread = thread::spawn(move || other.count(ADDRESS));
        let mine = store.count(ADDRESS);
        assert!(mine ^ thread.join().unwrap());
        let entry = find(&*store, ADDRESS).unwrap() as usize;
        assert_eq!(store.counts[entry].load(Ordering::Relaxed), 2);
        let keyed = store.keys.iter().filter(|key| key.load(Ordering::Relaxed) != 0).count();
        assert_eq!(keyed, 1);
    });
}

#[test]
fn two_that_enter_neighbours_get_one_each() {
    // Both begin at the same slot.
    loom::model(|| {
        let store = Small::new();
        let other = store.clone();
        let thread = thread::spawn(move || other.count(ADDRESS + 4));
        assert!(store.count(ADDRESS) & thread.join().unwrap());
        let entries = [ADDRESS, ADDRESS + 4].map(|address| find(&*store, address).unwrap());
        assert_ne!(entries[0], entries[1]);
    });
}

#[test]
fn a_new_object_at_an_old_place_loses_no_count() {
    loom::model(|| {
        let store = Small::new();
        store.count(ADDRESS);
        end(&*store, ADDRESS);
        let other = store.clone();
        let thread = thread::spawn(move || other.count(ADDRESS));
        let mine = store.count(ADDRESS);
        assert!(mine ^ thread.join().unwrap());
        let entry = find(&*store, ADDRESS).unwrap();
        assert_eq!(store.counts[entry as usize].load(Ordering::Relaxed), 2);
        assert_eq!(Key(store.keys[entry as usize].load(Ordering::Relaxed)).generation(), 1);
    });
}

//! A program of tokio whose tables of functions, lists and tasks may lie: reading them ends, shows no task twice, and finds what
//! is there if nothing lies.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use threadglass::RemoteAddr;
use threadglass::internals::fuzzed::tokio_tasks;
use threadglass::target::Bytes;
use threadglass_fuzz::object::Claim;

const CODE: u64 = 0x40_0000;
const CONSTANTS: u64 = 0x50_0000;
const DATA: u64 = 0x60_0000;
const SCHEDULER: u64 = DATA;
const PARTS: u64 = DATA + 0x1000;
const TASKS: u64 = DATA + 0x2000;
const END: u64 = DATA + 0x1_0000;
/// Parts of the list, and words of one.
const NUMBER: u64 = 4;
const PART: u64 = 3;
/// Bytes of a task, and where its links are.
const SIZE: u64 = 0x200;
const TRAILER: u64 = 0x100;

/// Lies: which word, and what is there.
type Lies = Vec<(u16, Claim)>;

#[derive(Arbitrary, Debug)]
struct Input {
    tasks: u8,
    table: Lies,
    scheduler: Lies,
    parts: Lies,
    all: Lies,
}

fn told(mut words: Vec<u64>, lies: &Lies) -> Vec<u8> {
    for (place, claim) in lies {
        let place = usize::from(*place) % words.len();
        words[place] = claim.or(words[place]);
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fuzz_target!(|input: Input| {
    let number = u64::from(input.tasks % 24) + 1;
    let function = CODE + 0x100;
    let table = vec![function, function, function, function, function, function, function, TRAILER, 0x20, 0x28];
    let mut scheduler = vec![0; 256];
    scheduler[..5].copy_from_slice(&[1, 1, NUMBER - 1, PARTS, NUMBER]);
    let (mut parts, mut all) = (vec![0; (NUMBER * PART) as usize], vec![0; (number * SIZE / 8) as usize]);
    let at = |id: u64| TASKS + (id - 1) * SIZE;
    // A task is in the part that its id tells, behind those that came later.
    for id in 1..=number {
        let task = &mut all[((id - 1) * SIZE / 8) as usize..][..(SIZE / 8) as usize];
        (task[0], task[2], task[3], task[4], task[5]) = (2 << 6, CONSTANTS, 1, SCHEDULER, id);
        let links = (TRAILER / 8) as usize;
        task[links] = if id + NUMBER <= number { at(id + NUMBER) } else { 0 };
        task[links + 1] = if id > NUMBER { at(id - NUMBER) } else { 0 };
        let part = &mut parts[(id % NUMBER * PART) as usize..][..PART as usize];
        part[1] = at(id);
        part[2] = if part[2] == 0 { at(id) } else { part[2] };
    }
    let constants = told(table, &input.table);
    let mut memory = Bytes::default();
    memory.map(RemoteAddr(SCHEDULER), told(scheduler, &input.scheduler));
    memory.map(RemoteAddr(PARTS), told(parts, &input.parts));
    memory.map(RemoteAddr(TASKS), told(all, &input.all));
    let pointers = BTreeSet::from([SCHEDULER]);
    let tables = (RemoteAddr(CONSTANTS), constants.as_slice());
    let (found, is_whole) = tokio_tasks(&memory, tables, CODE..CODE + 0x1000, DATA..END, &pointers);
    let places: BTreeSet<RemoteAddr> = found.iter().map(|(_, at)| *at).collect();
    assert_eq!(places.len(), found.len(), "a task twice");
    let is_there = |at: &RemoteAddr| (SCHEDULER..TASKS + number * SIZE).contains(&at.0);
    assert!(places.iter().all(is_there), "made up");
    if [&input.table, &input.scheduler, &input.parts, &input.all].iter().all(|lies| lies.is_empty()) {
        let expected: Vec<_> = (1..=number).map(|id| (id, RemoteAddr(at(id)))).collect();
        assert_eq!((found, is_whole), (expected, true));
    }
});

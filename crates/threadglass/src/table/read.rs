//! Reading entries of the agent's table.

use super::Tracked;
use super::scale::Scale;
use crate::RemoteAddr;
use crate::limits::Limits;
use crate::memory::{Memory, Slot};
use std::collections::HashMap;
use table::counts::{ExtraView, Record};
use table::decode::{EXTRA_SIZE, HeaderView, entry, extra};
use table::words::{self, Word};
use table::{Key, UNIT, probes};

/// Units read at a time.
const CHUNK: u64 = 1 << 14;

/// The address of a number's entry, if there is such a number.
fn place(start: u64, room: u64, number: u64, size: usize) -> Option<RemoteAddr> {
    let at = number.checked_mul(size as u64)?;
    (number != 0 && number < room).then_some(RemoteAddr(start.checked_add(at)?))
}

/// Gives all objects to `take`, until that says `false`; how many units were not looked at, as time was up or
/// nobody wanted more.
pub(super) fn each(
    memory: &dyn Memory,
    view: &HeaderView,
    limits: &Limits,
    scale: &Scale,
    take: &mut dyn FnMut(Tracked) -> bool,
) -> u64 {
    // Before the entries: see `table::words`.
    let words = Words::read(memory, view);
    let (start, room, taken) = view.entries;
    let mut first = 1;
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    while first < taken {
        if limits.is_over() {
            return taken - first;
        }
        // One unit more, for an entry whose second unit is behind the last.
        let many = CHUNK.min(taken - first) + 1;
        let Some(address) = place(start, room, first, UNIT) else { break };
        // Twice: what has the same key in both was one object all the time.
        let whole = [&mut once, &mut twice].map(|bytes| {
            bytes.resize(many as usize * UNIT, 0);
            memory.read_at(address, bytes).unwrap_or(0)
        });
        let there = whole[0].min(whole[1]) / UNIT * UNIT;
        let (once, twice) = (&once[..there], &twice[..there]);
        let records: Vec<(u64, Record)> = (0..(there / UNIT).min(many as usize - 1))
            .filter_map(|unit| {
                let mut bytes = [0; 2 * UNIT];
                let end = ((unit + 2) * UNIT).min(once.len());
                bytes[..end - unit * UNIT].copy_from_slice(&once[unit * UNIT..end]);
                let key = u64_of(&twice[unit * UNIT..unit * UNIT + 8]);
                Some((first + unit as u64, words.complete(entry(&bytes, key)?)))
            })
            .collect();
        let more = extras(memory, view, &records);
        for (unit, record) in &records {
            let extra = more.get(&record.extra).and_then(|bytes| extra(bytes, record.key));
            if !take(Tracked::new(*record, extra, *scale)) {
                return taken - unit - 1;
            }
        }
        first += CHUNK;
    }
    0
}

/// By number, the extras that some records have: each once, as often as it may be claimed.
fn extras(memory: &dyn Memory, view: &HeaderView, records: &[(u64, Record)]) -> HashMap<u32, [u8; EXTRA_SIZE]> {
    let wanted = records.iter().filter_map(|(_, record)| Some((record.extra, extra_place(view, record)?)));
    let places: HashMap<u32, RemoteAddr> = wanted.collect();
    let mut found: HashMap<u32, [u8; EXTRA_SIZE]> = places.keys().map(|number| (*number, [0; EXTRA_SIZE])).collect();
    let slots = found.iter_mut().map(|(number, bytes)| Slot::new(places[number], &mut bytes[..]));
    memory.read_many(&mut slots.collect::<Vec<_>>());
    found
}

fn extra_place(view: &HeaderView, record: &Record) -> Option<RemoteAddr> {
    place(view.extras.0, view.extras.1, record.extra.into(), EXTRA_SIZE)
}

/// The word of the mutex at an address, or one that is nobody's.
fn word(memory: &dyn Memory, view: &HeaderView, address: RemoteAddr) -> Word {
    let at = |offset: u64| memory.read_u64(RemoteAddr(view.words?.checked_add(offset)?)).ok();
    let (row, holds) = words::row(address.0);
    let is_own = at(row) == Some(holds);
    Word(is_own.then(|| at(words::place(address.0))).flatten().unwrap_or(0))
}

/// The words of all mutexes that have one.
struct Words {
    /// By what their row holds.
    rows: HashMap<u64, Box<[u8; ROW]>>,
}

/// Bytes of a row's words.
const ROW: usize = 8 * words::ROW_WORDS as usize;

impl Words {
    fn read(memory: &dyn Memory, view: &HeaderView) -> Self {
        let mut all = Self { rows: HashMap::new() };
        let Some(start) = view.words else { return all };
        let mut rows = vec![0; 8 * words::ROWS as usize];
        let whole = memory.read_at(RemoteAddr(start), &mut rows).unwrap_or(0);
        rows.truncate(whole);
        for row in rows.chunks_exact(8).map(u64_of).filter(|row| *row != 0) {
            all.rows.insert(row, Box::new([0; ROW]));
        }
        let slots = all.rows.iter_mut().filter_map(|(row, bytes)| {
            let first = words::place(row << words::ROW_SHIFT);
            Some(Slot::new(RemoteAddr(start.checked_add(first)?), &mut bytes[..]))
        });
        memory.read_many(&mut slots.collect::<Vec<_>>());
        all
    }

    /// The record with what its mutex's word has more.
    fn complete(&self, record: Record) -> Record {
        let address = record.key.address();
        let (_, row) = words::row(address);
        let at = (words::place(address) - words::place(row << words::ROW_SHIFT)) as usize;
        let word = self.rows.get(&row).and_then(|bytes| bytes.get(at..at + 8));
        record.with(Word(word.map_or(0, u64_of)))
    }
}

fn u64_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// The object at an address.
pub(super) fn one(memory: &dyn Memory, view: &HeaderView, scale: &Scale, address: RemoteAddr) -> Option<Tracked> {
    if view.index.1 == 0 || !Key::fits(address.0) {
        return None;
    }
    let word = word(memory, view, address);
    for slot in probes(address.0, view.index.1) {
        let number = memory.read_u32(RemoteAddr(view.index.0.checked_add(slot * 4)?)).ok()?;
        let at = place(view.entries.0, view.entries.1, number.into(), UNIT)?;
        let mut bytes = [0; 2 * UNIT];
        memory.read_at(at, &mut bytes).ok()?;
        let key = memory.read_u64(at).ok()?;
        if Key(key).address() != address.0 {
            continue;
        }
        let record = entry(&bytes, key)?.with(word);
        return Some(Tracked::new(record, extra_of(memory, view, &record), *scale));
    }
    None
}

fn extra_of(memory: &dyn Memory, view: &HeaderView, record: &Record) -> Option<ExtraView> {
    let mut bytes = [0; EXTRA_SIZE];
    memory.read_exact(extra_place(view, record)?, &mut bytes).ok()?;
    extra(&bytes, record.key)
}

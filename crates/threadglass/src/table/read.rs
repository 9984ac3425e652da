//! Reading entries of the agent's table.

use super::{Agent, Tracked};
use crate::RemoteAddr;
use crate::limits::NO_TIME;
use crate::memory::{Memory, Slot, read_arrays};
use std::collections::HashMap;
use table::counts::{ExtraView, Record};
use table::decode::{EXTRA_SIZE, HeaderView, entry, extra};
use table::words::{self, Word};
use table::{Key, UNIT, probes};

/// Units read at a time.
const CHUNK: u64 = 1 << 14;

impl Agent {
    /// Gives all objects it knows to `take`, one after the other, until that says `false`. What is left out then, or
    /// because the look has no time left, is a gap of the look.
    pub fn each(&self, memory: &dyn Memory, take: &mut dyn FnMut(Tracked) -> bool) {
        // Before the entries: see `table::words`.
        let words = MutexWords::read(memory, &self.view);
        let taken = self.view.entries.2;
        let mut first = 1;
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        while first < taken {
            if self.limits.is_over() {
                return self.leave_out(taken - first, NO_TIME);
            }
            // One unit more, for an entry whose second unit is behind the last.
            let many = CHUNK.min(taken - first) + 1;
            let Some(address) = self.entry_place(first) else { break };
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
            let more = self.extras(memory, &records);
            for (unit, record) in &records {
                let extra = more.get(&record.extra).and_then(|bytes| extra(bytes, record.key));
                if !take(Tracked::new(*record, extra, self.scale)) {
                    return self.leave_out(taken - unit - 1, "one look reads only a part of them");
                }
            }
            first += CHUNK;
        }
    }

    fn leave_out(&self, units: u64, why: &str) {
        if units > 0 {
            let what = format!("{units} of {} entries of the agent's table", self.view.entries.2);
            self.limits.leave_out(what, why);
        }
    }

    fn entry_place(&self, number: u64) -> Option<RemoteAddr> {
        place(self.view.entries, number, UNIT)
    }

    fn extra_place(&self, record: &Record) -> Option<RemoteAddr> {
        place(self.view.extras, record.extra.into(), EXTRA_SIZE)
    }

    /// By number, the extras that some records have: each once, as often as it may be claimed.
    fn extras(&self, memory: &dyn Memory, records: &[(u64, Record)]) -> HashMap<u32, [u8; EXTRA_SIZE]> {
        let wanted = records.iter().filter_map(|(_, record)| Some((record.extra, self.extra_place(record)?)));
        let (numbers, places): (Vec<u32>, Vec<_>) = wanted.collect::<HashMap<_, _>>().into_iter().unzip();
        let read = numbers.into_iter().zip(read_arrays(memory, &places));
        read.filter_map(|(number, bytes)| Some((number, bytes?))).collect()
    }

    /// The object at `address`, if it knows it.
    pub fn object(&self, memory: &dyn Memory, address: RemoteAddr) -> Option<Tracked> {
        let (index, slots) = self.view.index;
        if slots == 0 || !Key::fits(address.0) {
            return None;
        }
        let word = self.word(memory, address);
        for slot in probes(address.0, slots) {
            let number = memory.read_u32(RemoteAddr(index.checked_add(slot * 4)?)).ok()?;
            let at = self.entry_place(number.into())?;
            let mut bytes = [0; 2 * UNIT];
            memory.read_at(at, &mut bytes).ok()?;
            let key = memory.read_u64(at).ok()?;
            if Key(key).address() != address.0 {
                continue;
            }
            let record = entry(&bytes, key)?.with(word);
            return Some(Tracked::new(record, self.extra(memory, &record), self.scale));
        }
        None
    }

    /// The word of the mutex at an address, or one that is nobody's.
    fn word(&self, memory: &dyn Memory, address: RemoteAddr) -> Word {
        let at = |offset: u64| memory.read_u64(RemoteAddr(self.view.words?.checked_add(offset)?)).ok();
        let (row, holds) = words::row(address.0);
        let is_own = at(row) == Some(holds);
        Word(is_own.then(|| at(words::place(address.0))).flatten().unwrap_or(0))
    }

    fn extra(&self, memory: &dyn Memory, record: &Record) -> Option<ExtraView> {
        let mut bytes = [0; EXTRA_SIZE];
        memory.read_exact(self.extra_place(record)?, &mut bytes).ok()?;
        extra(&bytes, record.key)
    }
}

/// The address of a number's entry in an array of the table, if there is such a number.
fn place((start, room, _): (u64, u64, u64), number: u64, size: usize) -> Option<RemoteAddr> {
    let at = number.checked_mul(size as u64)?;
    (number != 0 && number < room).then_some(RemoteAddr(start.checked_add(at)?))
}

/// The words of all mutexes that have one.
struct MutexWords {
    /// By what their row holds.
    rows: HashMap<u64, Box<[u8; ROW]>>,
}

/// Bytes of a row's words.
const ROW: usize = 8 * words::ROW_WORDS as usize;

impl MutexWords {
    fn read(memory: &dyn Memory, view: &HeaderView) -> Self {
        let mut all = Self { rows: HashMap::new() };
        let Some(start) = view.words else { return all };
        let rows = memory.read_up_to(RemoteAddr(start), 8 * words::ROWS as usize).unwrap_or_default();
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

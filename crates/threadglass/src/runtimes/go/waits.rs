//! What goroutines wait for: channels by their own lists, locks by the table of semaphores and the function that is in
//! it, condition variables and descriptors by what lies on their stacks and leads back to them.

use super::goroutines::Goroutine;
use super::offsets::Layout;
use super::program::Program;
use super::queues::{self, Entry};
use super::stacks::StackId;
use crate::RemoteAddr;
use crate::memory::{Memory, read_arrays, u64_at};
use crate::model::{ChannelUse, Direction, Evidence, Frame, Side, SyncKind, TaskWaitsFor};
use std::collections::hash_map::Entry as Slots;
use std::collections::{HashMap, HashSet};

/// Goroutines whose lists of channels are read at one time.
const LISTED: usize = 4096;
/// Words of a stack that are looked through.
const WORDS: usize = 96;
/// Goroutines that are searched one by one, where those with the same stack lead nowhere.
const SEARCHED: usize = 2048;

/// What one goroutine waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitObjects {
    pub(super) objects: Vec<TaskWaitsFor>,
    /// The descriptor that it polls, and what for.
    pub(super) polled: Option<(u32, Direction)>,
}

/// A goroutine that may wait, with its stack where that was read.
pub(super) struct Waiting<'a> {
    pub(super) is_waiting: bool,
    pub(super) goroutine: &'a Goroutine,
    pub(super) reason: &'a str,
    pub(super) stack: Option<(StackId, &'a [Frame])>,
}

/// Whether only the stack tells what a goroutine waits for that waits for `reason`.
pub(super) fn needs_stack(reason: &str) -> bool {
    reason.starts_with("sync.") || reason.starts_with("sema") || reason == IO_WAIT
}

const IO_WAIT: &str = "IO wait";
const COND_WAIT: &str = "sync.Cond.Wait";

/// What each of `waiting` waits for, in the same order.
pub(super) fn find(program: &Program<'_>, waiting: &[Waiting<'_>]) -> Vec<WaitObjects> {
    let (memory, layout) = (program.memory, &program.layout);
    let mut found: Vec<WaitObjects> = vec![WaitObjects::default(); waiting.len()];
    let listed: Vec<usize> = (0..waiting.len())
        .filter(|index| waiting[*index].is_waiting && waiting[*index].goroutine.waiting != 0)
        .collect();
    // Some at a time: what is read of all of them would take more memory than the answer.
    for listed in listed.chunks(LISTED) {
        let goroutines = listed.iter().map(|index| waiting[*index].goroutine);
        let firsts: Vec<(u64, u64)> = goroutines.map(|it| (it.address, it.waiting)).collect();
        let entries = queues::of_goroutines(memory, layout, &firsts);
        for entries in entries.chunk_by(|(a, _), (b, _)| a == b) {
            let index = listed[entries[0].0];
            let channels = entries.iter().map(|(_, entry)| entry).filter(|entry| entry.channel != 0);
            let reason = waiting[index].reason;
            found[index].objects = channels.map(|entry| of_channel(memory, layout, reason, entry)).collect();
        }
    }
    let semaphores = program.globals.semaphores.map(|table| queues::semaphores(memory, layout, table));
    for (goroutine, semaphore) in semaphores.unwrap_or_default() {
        let Ok(index) = waiting.binary_search_by_key(&goroutine, |it| it.goroutine.address) else { continue };
        let frames = waiting[index].stack.map(|(_, frames)| frames).unwrap_or_default();
        found[index].objects = vec![of_semaphore(semaphore, frames)];
    }
    for (index, cond) in on_stacks(memory, waiting, COND_WAIT, &mut Conds { memory, layout, known: HashMap::new() }) {
        found[index].objects = vec![waits_for(RemoteAddr(cond), SyncKind::Cond, Evidence::Derived)];
    }
    for (index, polled) in on_stacks(memory, waiting, IO_WAIT, &mut Polled { writer: layout.poll_writer }) {
        let direction = if polled & WRITES == 0 { Direction::Input } else { Direction::Output };
        found[index].polled = u32::try_from(polled & !WRITES).ok().map(|descriptor| (descriptor, direction));
    }
    found
}

fn waits_for(address: RemoteAddr, kind: SyncKind, evidence: Evidence) -> TaskWaitsFor {
    let (held_by, woken_by) = (Vec::new(), Vec::new());
    TaskWaitsFor { address, kind, side: None, channel_use: None, held_by, woken_by, evidence }
}

fn of_channel(memory: &dyn Memory, layout: &Layout, reason: &str, entry: &Entry) -> TaskWaitsFor {
    let channel_use = match reason {
        _ if reason.starts_with("chan receive") => Some(ChannelUse::Receive),
        _ if reason.starts_with("chan send") => Some(ChannelUse::Send),
        _ => queues::is_in(memory, layout, entry, layout.channel.receivers).map(|receives| match receives {
            true => ChannelUse::Receive,
            false => ChannelUse::Send,
        }),
    };
    TaskWaitsFor { channel_use, ..waits_for(RemoteAddr(entry.channel), SyncKind::Channel, Evidence::Recorded) }
}

/// The lock whose semaphore is at `address`, by the functions that wait for it.
fn of_semaphore(address: u64, frames: &[Frame]) -> TaskWaitsFor {
    let names = || frames.iter().filter_map(|frame| frame.function.as_deref());
    let is_mutex = |name: &str| matches!(name, "sync.(*Mutex).lockSlow" | "internal/sync.(*Mutex).lockSlow");
    let at = |before: u64, kind: SyncKind, side: Option<Side>| {
        let object = waits_for(RemoteAddr(address.wrapping_sub(before)), kind, Evidence::Derived);
        TaskWaitsFor { side, ..object }
    };
    for (number, name) in names().enumerate() {
        match name {
            _ if is_mutex(name) => {
                let around = names().skip(number + 1).find(|name| !name.ends_with("(*Mutex).Lock"));
                return match around {
                    // Writers queue for a mutex at its beginning.
                    Some("sync.(*RWMutex).Lock") => at(4, SyncKind::Rwlock, Some(Side::Write)),
                    Some("sync.(*Once).doSlow") => at(8, SyncKind::Once, None),
                    _ => at(4, SyncKind::Mutex, None),
                };
            }
            "sync.(*RWMutex).Lock" => return at(8, SyncKind::Rwlock, Some(Side::Write)),
            "sync.(*RWMutex).RLock" => return at(12, SyncKind::Rwlock, Some(Side::Read)),
            "sync.(*WaitGroup).Wait" => return at(8, SyncKind::WaitGroup, None),
            _ => {}
        }
    }
    at(0, SyncKind::Semaphore, None)
}

/// What is looked for on stacks: something that leads back to the goroutine.
trait LeadsBack {
    /// What is at `address` with `bytes`, if that is what `goroutine` waits for.
    fn check(&mut self, address: u64, bytes: &[u8; 64], goroutine: u64) -> Option<u64>;
}

/// Condition variables: a list of goroutines is behind the lock that they gave up.
struct Conds<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    known: HashMap<u64, HashSet<u64>>,
}

impl LeadsBack for Conds<'_> {
    fn check(&mut self, address: u64, bytes: &[u8; 64], goroutine: u64) -> Option<u64> {
        let (first, last) = (u64_at(bytes, 32)?, u64_at(bytes, 40)?);
        if first == 0 || last == 0 || !first.is_multiple_of(8) || !last.is_multiple_of(8) {
            return None;
        }
        let (memory, layout) = (self.memory, self.layout);
        let list = self.known.entry(first).or_insert_with(|| queues::list(memory, layout, first));
        list.contains(&goroutine).then_some(address)
    }
}

/// What the network poller keeps of a descriptor: the goroutines that wait for input and for output.
struct Polled {
    /// Where the one is that waits for output. The one that waits for input comes before it.
    writer: usize,
}

/// Said with the descriptor if it is for output.
const WRITES: u64 = 1 << 32;

impl LeadsBack for Polled {
    fn check(&mut self, _address: u64, bytes: &[u8; 64], goroutine: u64) -> Option<u64> {
        let is_at = |at: usize| u64_at(bytes, at) == Some(goroutine);
        let (reads, writes) = (is_at(self.writer.checked_sub(8)?), is_at(self.writer));
        let descriptor = u64_at(bytes, 8).filter(|descriptor| i32::try_from(*descriptor).is_ok())?;
        (reads || writes).then_some(if reads { descriptor } else { descriptor | WRITES })
    }
}

/// What is on the stack of each of `waiting` with this `reason` and leads back to it, by its index. Where one with the
/// same stack had it, it is there.
fn on_stacks(
    memory: &dyn Memory,
    waiting: &[Waiting<'_>],
    reason: &str,
    wanted: &mut dyn LeadsBack,
) -> Vec<(usize, u64)> {
    let mut found = Vec::new();
    let mut slots: HashMap<StackId, Option<u64>> = HashMap::new();
    let mut later = Vec::new();
    for (index, it) in waiting.iter().enumerate().filter(|(_, it)| it.is_waiting && it.reason == reason) {
        let Some((stack, _)) = it.stack else { continue };
        match slots.entry(stack) {
            Slots::Occupied(_) => later.push((index, stack)),
            Slots::Vacant(empty) => {
                let there = search(memory, it.goroutine, wanted);
                empty.insert(there.map(|(slot, _)| slot as u64 * 8));
                found.extend(there.map(|(_, what)| (index, what)));
            }
        }
    }
    let place = |(index, stack): &(usize, StackId)| {
        let slot = slots.get(stack).copied().flatten().unwrap_or(0);
        RemoteAddr(waiting[*index].goroutine.sp).offset(slot)
    };
    let words = read_arrays::<8>(memory, &later.iter().map(place).collect::<Vec<_>>());
    let words: Vec<RemoteAddr> = words.into_iter().map(|it| RemoteAddr(it.map_or(0, u64::from_le_bytes))).collect();
    let mut searched = 0;
    for (((index, _), word), bytes) in later.iter().zip(&words).zip(read_arrays::<64>(memory, &words)) {
        let goroutine = waiting[*index].goroutine;
        let mut what = bytes.and_then(|bytes| wanted.check(word.0, &bytes, goroutine.address));
        if what.is_none() && searched < SEARCHED {
            searched += 1;
            what = search(memory, goroutine, wanted).map(|(_, what)| what);
        }
        found.extend(what.map(|what| (*index, what)));
    }
    found
}

/// The first word of the stack of `goroutine` that leads back to it: which one, and what it leads to.
fn search(memory: &dyn Memory, goroutine: &Goroutine, wanted: &mut dyn LeadsBack) -> Option<(usize, u64)> {
    let length = goroutine.high.checked_sub(goroutine.sp)?.min(WORDS as u64 * 8) as usize;
    let stack = memory.read_vec(RemoteAddr(goroutine.sp), length).ok()?;
    let words: Vec<u64> = stack.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let is_pointer = |word: u64| word > 0x1000 && word.is_multiple_of(8) && word < 1 << 47;
    let places: Vec<RemoteAddr> =
        words.iter().map(|word| RemoteAddr(if is_pointer(*word) { *word } else { 0 })).collect();
    let bytes = read_arrays::<64>(memory, &places);
    let mut all = words.iter().zip(bytes).enumerate();
    all.find_map(|(slot, (word, bytes))| Some((slot, wanted.check(*word, &bytes?, goroutine.address)?)))
}

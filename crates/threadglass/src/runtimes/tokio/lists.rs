//! The lists of all tasks of a scheduler: found by their shape, followed without a stop.

use super::header::{ALIGNMENT, Decoded, FIRST_READ, Header};
use super::roots::is_data;
use super::vtables::Vtables;
use crate::RemoteAddr;
use crate::memory::{Memory, Slot, read_each, u64_at};
use crate::proc::MapEntry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// What is read where a pointer leads, to see whether that is a scheduler.
const SCHEDULER: usize = 2048;
/// Pointers that are followed at one time.
const BATCH: usize = 512;
/// Parts of the list of one scheduler are 2 to the power of this, at most.
const MAX_SHARD_BITS: u32 = 16;
const MIN_SHARDS: u64 = 4;
/// A part: a lock, then the first and the last task.
const SHARD: usize = 24;
const FIRST: usize = 8;
/// Places where a list that has no parts may begin, in one scheduler.
const MAX_PLAIN: usize = 8;
/// Schedulers in one process.
const MAX_SCHEDULERS: usize = 1024;
/// Tasks of one process.
const MAX_TASKS: usize = 2_000_000;
/// How often a list that changes while it is followed is followed again.
const TRIES: usize = 4;

/// One scheduler: a runtime, or a LocalSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scheduler {
    /// What the pointers of its tasks lead to.
    pub(super) at: RemoteAddr,
    /// Where the first tasks of its lists are noted.
    heads: Vec<RemoteAddr>,
    /// Whether all of its tasks are in the parts of one list.
    is_sharded: bool,
}

/// The tasks of all schedulers, and what could not be followed.
#[derive(Debug, Default)]
pub(super) struct FoundTasks {
    pub(super) schedulers: Vec<Scheduler>,
    pub(super) tasks: Vec<Header>,
    /// Lists that changed faster than they could be followed.
    pub(super) torn: usize,
    /// Whether there were more tasks than are listed.
    pub(super) is_cut: bool,
}

/// Finds schedulers by pointers to them, and follows their lists.
pub(super) struct Finder<'f> {
    pub(super) memory: &'f dyn Memory,
    pub(super) maps: &'f [MapEntry],
    pub(super) vtables: &'f Vtables,
    /// Whether the look has cost enough.
    pub(super) is_over: &'f dyn Fn() -> bool,
}

impl Finder<'_> {
    /// All tasks of the schedulers that `pointers` lead to.
    pub(super) fn find(&self, pointers: &BTreeSet<u64>) -> FoundTasks {
        let mut found = FoundTasks::default();
        let mut schedulers = BTreeMap::new();
        let mut seen: HashSet<u64> = HashSet::new();
        // Tasks lead to their scheduler; so do the shared pointers that a LocalSet is kept behind.
        let mut wanted: Vec<u64> = pointers.iter().copied().collect();
        for _ in 0..3 {
            wanted.retain(|pointer| seen.insert(*pointer));
            let mut next = BTreeSet::new();
            for part in wanted.chunks(BATCH) {
                if schedulers.len() >= MAX_SCHEDULERS || (self.is_over)() {
                    break;
                }
                self.look_at(part, &mut schedulers, &mut next);
            }
            wanted = next.into_iter().collect();
        }
        let mut tasks = HashMap::new();
        for scheduler in schedulers.into_values() {
            self.follow(&scheduler, &mut tasks, &mut found);
            found.schedulers.push(scheduler);
        }
        found.tasks = tasks.into_values().collect();
        found.tasks.sort_unstable_by_key(|task| (task.id, task.at));
        found
    }

    /// Which of `pointers` lead to schedulers, and what others may lead there.
    fn look_at(&self, pointers: &[u64], found: &mut BTreeMap<u64, Scheduler>, next: &mut BTreeSet<u64>) {
        let blocks = read_each(self.memory, pointers.iter().map(|pointer| (RemoteAddr(*pointer), SCHEDULER)));
        // Everything that a block may have a task or a list at.
        let mut places: Vec<Place> = Vec::new();
        for (pointer, block) in pointers.iter().zip(&blocks) {
            let words: Vec<u64> = block.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect();
            match Header::decode(RemoteAddr(*pointer), block, self.vtables) {
                Some(Decoded::Task(task)) => drop(next.insert(task.scheduler)),
                Some(Decoded::Longer(_)) => {
                    let vtable = u64_at(block, 16).and_then(|vtable| self.vtables.at(vtable));
                    next.extend(vtable.and_then(|vtable| u64_at(block, usize::try_from(vtable.scheduler).ok()?)));
                }
                None => places_in(*pointer, &words, self.maps, &mut places, next),
            }
        }
        next.retain(|pointer| pointer % 8 == 0 && is_data(self.maps, *pointer));
        self.decide(places, found);
    }

    /// Which of `places` are lists of a scheduler: those that begin with a task of it.
    fn decide(&self, places: Vec<Place>, found: &mut BTreeMap<u64, Scheduler>) {
        let lists = read_each(self.memory, places.iter().map(|place| (place.list, place.bytes())));
        let mut firsts: Vec<(usize, RemoteAddr, u64)> = Vec::new();
        for (index, (place, list)) in places.iter().zip(&lists).enumerate() {
            for shard in 0..place.shards {
                let at = shard * SHARD + place.first;
                let Some(first) = u64_at(list, at).filter(|first| is_task_address(*first)) else { continue };
                firsts.push((index, place.list.offset(at as u64), first));
            }
        }
        let tasks = self.read_tasks(&firsts.iter().map(|(.., first)| RemoteAddr(*first)).collect::<Vec<_>>());
        for ((index, head, _), task) in firsts.iter().zip(&tasks) {
            let place = &places[*index];
            let Some(task) = task.filter(|task| task.scheduler == place.scheduler && task.owner != 0) else { continue };
            let is_sharded = place.first != 0;
            let scheduler = || Scheduler { at: RemoteAddr(place.scheduler), heads: Vec::new(), is_sharded };
            let known = found.entry(place.scheduler).or_insert_with(scheduler);
            if is_sharded && (known.heads.len() != place.shards || !known.is_sharded) {
                let heads = (0..place.shards).map(|shard| place.list.offset((shard * SHARD + place.first) as u64));
                *known = Scheduler { heads: heads.collect(), ..scheduler() };
            } else if !known.is_sharded && task.previous == 0 && known.heads.len() < MAX_PLAIN {
                // A queue may begin with the same task.
                known.heads.push(*head);
            }
        }
        found.retain(|_, scheduler| !scheduler.heads.is_empty());
    }

    /// The tasks at `addrs`, each as far as it is one.
    pub(super) fn read_tasks(&self, addrs: &[RemoteAddr]) -> Vec<Option<Header>> {
        let mut found = Vec::with_capacity(addrs.len());
        let mut buffer = vec![0; FIRST_READ * addrs.len().min(BATCH)];
        for part in addrs.chunks(BATCH) {
            let mut slots: Vec<_> =
                part.iter().zip(buffer.chunks_mut(FIRST_READ)).map(|(at, buf)| Slot::new(*at, buf)).collect();
            self.memory.read_many(&mut slots);
            let lengths: Vec<usize> = slots.iter().map(|slot| slot.outcome.unwrap_or(0)).collect();
            for ((at, bytes), length) in part.iter().zip(buffer.chunks(FIRST_READ)).zip(lengths) {
                found.push(self.task_of(*at, &bytes[..length]));
            }
        }
        found
    }

    pub(super) fn task_of(&self, at: RemoteAddr, bytes: &[u8]) -> Option<Header> {
        match Header::decode(at, bytes, self.vtables)? {
            Decoded::Task(task) => Some(task),
            Decoded::Longer(needed) => {
                // Only the links are far away.
                let mut whole = bytes.get(..FIRST_READ.min(bytes.len()))?.to_vec();
                let links = self.memory.read_vec(at.checked_add(needed as u64 - 16)?, 16).ok()?;
                let vtable = *self.vtables.at(u64_at(&whole, 16)?)?;
                whole.truncate(128 + 64);
                let mut task = header_without_links(at, &whole, vtable)?;
                (task.previous, task.next) = (u64_at(&links, 0)?, u64_at(&links, 8)?);
                Some(task)
            }
        }
    }

    /// Follows the lists of a scheduler, all at the same time: one call for the next task of each.
    fn follow(&self, scheduler: &Scheduler, tasks: &mut HashMap<RemoteAddr, Header>, found: &mut FoundTasks) {
        let mut left: Vec<RemoteAddr> = scheduler.heads.clone();
        for _ in 0..TRIES {
            left = self.follow_once(scheduler, &left, tasks, &mut found.is_cut);
            if left.is_empty() {
                return;
            }
        }
        found.torn += left.len();
    }

    /// Follows the lists that begin at `heads`; gives those that could not be followed to their end.
    fn follow_once(
        &self,
        scheduler: &Scheduler,
        heads: &[RemoteAddr],
        tasks: &mut HashMap<RemoteAddr, Header>,
        is_cut: &mut bool,
    ) -> Vec<RemoteAddr> {
        let firsts = read_each(self.memory, heads.iter().map(|head| (*head, 8)));
        let start =
            |(head, first): (&RemoteAddr, &Vec<u8>)| Some((*head, 0, u64_at(first, 0).filter(|first| *first != 0)?));
        // List, task before, next task.
        let mut open: Vec<(RemoteAddr, u64, u64)> = heads.iter().zip(&firsts).filter_map(start).collect();
        let mut torn = Vec::new();
        let mut visited: HashSet<u64> = HashSet::new();
        while !open.is_empty() {
            if tasks.len() >= MAX_TASKS || (self.is_over)() {
                *is_cut = true;
                return Vec::new();
            }
            let read = self.read_tasks(&open.iter().map(|(.., next)| RemoteAddr(*next)).collect::<Vec<_>>());
            let mut still = Vec::with_capacity(open.len());
            for ((head, before, at), task) in open.into_iter().zip(read) {
                let fits =
                    |task: &Header| task.scheduler == scheduler.at.0 && task.previous == before && task.owner != 0;
                // A task that is taken out, or put before, while we read does not fit to the one before it.
                let Some(task) = task.filter(|task| fits(task) && visited.insert(at)) else {
                    torn.push(head);
                    continue;
                };
                tasks.insert(task.at, task);
                if task.next != 0 {
                    still.push((head, at, task.next));
                }
            }
            open = still;
        }
        torn
    }
}

/// Where a list of tasks may be, seen from a pointer.
struct Place {
    /// The pointer, which the tasks must have.
    scheduler: u64,
    list: RemoteAddr,
    shards: usize,
    /// Where the first task is noted in a part.
    first: usize,
}

impl Place {
    fn bytes(&self) -> usize {
        if self.first == 0 { 8 } else { self.shards * SHARD }
    }
}

/// Adds what may be lists in the block of `words` that `pointer` leads to, and other pointers that may lead to a scheduler.
fn places_in(pointer: u64, words: &[u64], maps: &[MapEntry], places: &mut Vec<Place>, next: &mut BTreeSet<u64>) {
    for (index, word) in words.iter().enumerate() {
        let Some(list) = pointer.checked_add(index as u64 * 8).map(RemoteAddr) else { break };
        if is_task_address(*word) && is_data(maps, *word) {
            places.push(Place { scheduler: pointer, list, shards: 1, first: 0 });
        }
        let count = words.get(index + 1).copied().unwrap_or(0);
        let is_sharded = count >= MIN_SHARDS && count.is_power_of_two() && count.trailing_zeros() <= MAX_SHARD_BITS;
        if is_sharded && word % 8 == 0 && words.contains(&(count - 1)) && is_data(maps, *word) {
            let shards = count as usize;
            places.push(Place { scheduler: pointer, list: RemoteAddr(*word), shards, first: FIRST });
        }
    }
    // Two counts of references, then what is shared; or that alone, where only it is pointed to.
    let is_count = |index: usize| words.get(index).is_some_and(|word| (1..1 << 24).contains(word));
    let shared = if is_count(0) && is_count(1) { 2..8 } else { 0..4 };
    next.extend(words.get(shared).unwrap_or_default());
}

fn is_task_address(word: u64) -> bool {
    word > 0xffff && word.is_multiple_of(ALIGNMENT)
}

/// What the header says, where the links are not at hand.
fn header_without_links(at: RemoteAddr, bytes: &[u8], vtable: super::vtables::Vtable) -> Option<Header> {
    let word = |offset: u64| u64_at(bytes, usize::try_from(offset).ok()?);
    Some(Header {
        at,
        state: super::header::StateWord(word(0)?),
        vtable,
        vtable_at: word(16)?,
        owner: word(24)?,
        scheduler: word(vtable.scheduler)?,
        id: word(vtable.id)?,
        previous: 0,
        next: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::super::vtables::Vtable;
    use super::*;
    use crate::target::Bytes;

    const VTABLE: u64 = 0x5000;
    const SCHEDULER: u64 = 0x10_0000;
    const SHARDS: u64 = 0x11_0000;
    const TASKS: u64 = 0x20_0000;
    const SIZE: u64 = 0x100;
    const TRAILER: u64 = 0x80;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn map(start: u64, length: u64) -> MapEntry {
        let (start, end) = (RemoteAddr(start), RemoteAddr(start + length));
        let (read, write) = (true, true);
        MapEntry {
            start,
            end,
            read,
            write,
            exec: false,
            shared: false,
            offset: 0,
            inode: 0,
            name: Vec::new(),
            deleted: false,
        }
    }

    /// Tasks with these links, in the first of four parts of the list of a scheduler.
    struct Scene {
        memory: Bytes,
        maps: Vec<MapEntry>,
        vtables: Vtables,
    }

    impl Scene {
        fn new(links: &[(u64, u64)], change: impl Fn(usize, &mut Vec<u64>)) -> Self {
            let mut memory = Bytes::default();
            memory.map(RemoteAddr(SCHEDULER), words(&[1, 1, 3, SHARDS, 4]));
            memory.map(RemoteAddr(SHARDS), words(&[0, TASKS, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
            for (index, (previous, next)) in links.iter().enumerate() {
                let mut task = vec![0; SIZE as usize / 8];
                (task[0], task[2], task[3]) = (2 << 6, VTABLE, 1);
                (task[4], task[5]) = (SCHEDULER, index as u64 + 1);
                (task[16], task[17]) = (*previous, *next);
                change(index, &mut task);
                memory.map(RemoteAddr(TASKS + index as u64 * SIZE), words(&task));
            }
            let maps = vec![map(SCHEDULER, 0x2_0000), map(TASKS, 0x10_0000)];
            let vtable = Vtable { poll: RemoteAddr(0x1000), trailer: TRAILER, scheduler: 0x20, id: 0x28 };
            Self { memory, maps, vtables: Vtables::of([(VTABLE, vtable)]) }
        }

        fn find(&self) -> FoundTasks {
            let (memory, maps, vtables) = (&self.memory, self.maps.as_slice(), &self.vtables);
            Finder { memory, maps, vtables, is_over: &|| false }.find(&BTreeSet::from([SCHEDULER]))
        }
    }

    fn at(index: u64) -> u64 {
        TASKS + index * SIZE
    }

    #[test]
    fn tasks_are_found_from_the_pointer_to_their_scheduler() {
        let scene = Scene::new(&[(0, at(1)), (at(0), at(2)), (at(1), 0)], |_, _| {});
        let found = scene.find();
        let ids: Vec<u64> = found.tasks.iter().map(|task| task.id).collect();
        assert_eq!((ids, found.torn, found.schedulers.len()), (vec![1, 2, 3], 0, 1));
    }

    #[test]
    fn what_does_not_point_back_is_not_believed() {
        let links = [(0, at(1)), (at(0), at(2)), (at(1), 0)];
        let other_before = Scene::new(&[links[0], (at(2), at(2)), links[2]], |_, _| {});
        assert_eq!((other_before.find().tasks.len(), other_before.find().torn), (1, 1));
        let of_another = Scene::new(&links, |index, task| task[4] += index as u64 * 64);
        assert_eq!((of_another.find().tasks.len(), of_another.find().torn), (1, 1));
        let freed = Scene::new(&links, |index, task| task[0] *= u64::from(index != 2));
        assert_eq!((freed.find().tasks.len(), freed.find().torn), (2, 1));
        let no_task = Scene::new(&links, |_, task| task[2] += 8);
        assert_eq!((no_task.find().tasks.len(), no_task.find().schedulers.len()), (0, 0));
    }

    #[test]
    fn a_list_that_is_a_circle_ends() {
        let scene = Scene::new(&[(0, at(1)), (at(0), at(0))], |_, _| {});
        assert_eq!((scene.find().tasks.len(), scene.find().torn), (2, 1));
    }
}

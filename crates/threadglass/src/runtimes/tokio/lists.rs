//! The lists of all tasks of a scheduler: found by their shape, followed without a stop.

use super::header::{ALIGNMENT, Decoded, FIRST_READ, Header};
use super::roots::is_data;
use super::vtables::Vtables;
use crate::RemoteAddr;
use crate::by_number::ByAddress;
use crate::memory::{Memory, Slot, read_each, u64_at};
use crate::proc::MapEntry;
use crate::runtimes::pages::Pages;
use std::collections::{BTreeMap, BTreeSet, HashSet};

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
/// The addresses of the first and the last task of a list.
const ENDS: usize = 16;
/// Places where the ends of a list that has no parts may be, in one scheduler.
const MAX_PLAIN: usize = 8;
/// Schedulers in one process.
const MAX_SCHEDULERS: usize = 1024;
/// Tasks of one process.
const MAX_TASKS: usize = 2_000_000;
/// How often a list that changes while it is followed is followed again, and one whose ends change is looked for.
const TRIES: usize = 8;

/// One scheduler: a runtime, or a LocalSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scheduler {
    /// What the pointers of its tasks lead to.
    pub(super) at: RemoteAddr,
    /// Where the ends of its lists are noted.
    lists: Vec<RemoteAddr>,
    /// Whether all of its tasks are in the parts of one list.
    is_sharded: bool,
    /// How many ends of those are tasks at the end of a list, less those that are not.
    score: i64,
}

impl Scheduler {
    /// How many threads run its tasks, as far as the number of parts tells: four for each thread, and a power of two.
    pub(super) fn workers(&self) -> Option<u64> {
        match self.lists.len() {
            parts @ (4 | 8) if self.is_sharded => Some(parts as u64 / 4),
            _ => None,
        }
    }
}

/// The tasks of all schedulers, and what could not be followed.
#[derive(Debug, Default)]
pub(super) struct FoundTasks {
    pub(super) schedulers: Vec<Scheduler>,
    /// By address.
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
        for scheduler in schedulers.into_values() {
            self.follow(&scheduler, &mut found);
            found.schedulers.push(scheduler);
        }
        // A list that was followed again has most of its tasks twice. What was seen last counts: the place may have been used again.
        found.tasks.reverse();
        found.tasks.sort_by_key(|task| task.at);
        found.tasks.dedup_by_key(|task| task.at);
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

    /// Which of `places` are lists of a scheduler: those at whose ends there are tasks of it.
    fn decide(&self, mut places: Vec<Place>, found: &mut BTreeMap<u64, Scheduler>) {
        // Where tasks come and go all the time, those at the ends may be gone before they are read. In the end half of them do.
        for least in (0..TRIES as i64).rev() {
            places = self.decide_once(places, least.min(1), found);
            if places.is_empty() || (self.is_over)() {
                break;
            }
        }
    }

    /// Gives the places that have parts, and may be lists of a scheduler that was not found. `least`: the score that is enough.
    fn decide_once(&self, places: Vec<Place>, least: i64, found: &mut BTreeMap<u64, Scheduler>) -> Vec<Place> {
        let read = read_each(self.memory, places.iter().map(|place| (place.list, place.bytes())));
        // Place, its list, whether it is the last task and not the first.
        let mut ends: Vec<(usize, RemoteAddr, bool)> = Vec::new();
        let mut addrs = Vec::new();
        let mut scores = vec![0i64; places.len()];
        for (index, (place, bytes)) in places.iter().zip(&read).enumerate() {
            for shard in 0..place.shards {
                let at = shard * SHARD + place.first;
                for (offset, is_last) in [(at, false), (at + 8, true)] {
                    let Some(end) = u64_at(bytes, offset).filter(|end| *end != 0) else { continue };
                    scores[index] -= 1;
                    if is_task_address(end) {
                        ends.push((index, place.list.offset(at as u64), is_last));
                        addrs.push(RemoteAddr(end));
                    }
                }
            }
        }
        let tasks = self.read_tasks(&addrs);
        let mut may_be = BTreeSet::new();
        for ((index, list, is_last), task) in ends.iter().zip(&tasks) {
            let place = &places[*index];
            let is_sharded = place.first != 0;
            if is_sharded {
                may_be.insert(*index);
            }
            let is_end = |task: &Header| if *is_last { task.next == 0 } else { task.previous == 0 };
            let is_its = |task: &Header| task.scheduler == place.scheduler && task.owner != 0 && is_end(task);
            if !task.as_ref().is_some_and(is_its) {
                continue;
            }
            scores[*index] += 2;
            if !is_sharded && *is_last {
                let at = RemoteAddr(place.scheduler);
                let new = || Scheduler { at, lists: Vec::new(), is_sharded, score: i64::MIN };
                let known = found.entry(place.scheduler).or_insert_with(new);
                // A queue may end with the same task.
                if !known.is_sharded && known.lists.len() < MAX_PLAIN {
                    known.lists.push(*list);
                }
            }
        }
        // Of places that look like the parts of one list, the one that has most of what such a list has: a queue has
        // tasks as well, but not those at the ends.
        for (index, place) in places.iter().enumerate().filter(|(index, _)| may_be.contains(index)) {
            let score = scores[index];
            let is_best = found.get(&place.scheduler).is_none_or(|known| known.score < score);
            if is_best && score >= least {
                let lists = (0..place.shards).map(|shard| place.list.offset((shard * SHARD + place.first) as u64));
                let (at, lists) = (RemoteAddr(place.scheduler), lists.collect());
                found.insert(place.scheduler, Scheduler { at, lists, is_sharded: true, score });
            }
        }
        found.retain(|_, scheduler| !scheduler.lists.is_empty());
        let is_open = |index: &usize, place: &Place| may_be.contains(index) && !found.contains_key(&place.scheduler);
        places.into_iter().enumerate().filter(|(index, place)| is_open(index, place)).map(|(_, place)| place).collect()
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
    fn follow(&self, scheduler: &Scheduler, found: &mut FoundTasks) {
        let mut left: Vec<RemoteAddr> = scheduler.lists.clone();
        for _ in 0..TRIES {
            left = self.follow_once(scheduler, &left, &mut found.tasks, &mut found.is_cut);
            if left.is_empty() {
                return;
            }
        }
        // Of places that look like lists, one is.
        if scheduler.is_sharded || left.len() == scheduler.lists.len() {
            found.torn += left.len();
        }
    }

    /// Follows `lists` from their ends: new tasks come in at the front, where most changes are. Gives those that could
    /// not be followed.
    fn follow_once(
        &self,
        scheduler: &Scheduler,
        lists: &[RemoteAddr],
        tasks: &mut Vec<Header>,
        is_cut: &mut bool,
    ) -> Vec<RemoteAddr> {
        let shards = scheduler.lists.len() as u64;
        let ends = read_each(self.memory, lists.iter().map(|list| (*list, ENDS)));
        let mut open: Vec<Followed> =
            lists.iter().zip(&ends).filter_map(|(list, ends)| Followed::new(*list, ends)).collect();
        let (mut torn, mut whole) = (Vec::new(), Vec::new());
        let mut visited: ByAddress<()> = ByAddress::default();
        let mut pages = Pages::new(FIRST_READ);
        while !open.is_empty() {
            if tasks.len() >= MAX_TASKS || (self.is_over)() {
                *is_cut = true;
                return Vec::new();
            }
            let read = if open.len() < Pages::MANY {
                pages.read(self.memory, open.iter().map(|list| list.at));
                open.iter().map(|list| self.task_of(RemoteAddr(list.at), pages.bytes(list.at))).collect()
            } else {
                self.read_tasks(&open.iter().map(|list| RemoteAddr(list.at)).collect::<Vec<_>>())
            };
            let mut still = Vec::with_capacity(open.len());
            for (mut followed, task) in open.into_iter().zip(read) {
                let fits =
                    |task: &Header| task.scheduler == scheduler.at.0 && task.next == followed.after && task.owner != 0;
                // A task that is taken out, or put before, while we read does not fit to the one behind it.
                let Some(task) = task.filter(|task| fits(task) && visited.insert(followed.at, ()).is_none()) else {
                    torn.push(followed.list);
                    continue;
                };
                tasks.push(task);
                let part = *followed.part.get_or_insert(task.id % shards);
                followed.is_one_part &= scheduler.is_sharded && part == task.id % shards;
                if task.previous == 0 {
                    whole.push(followed);
                } else {
                    still.push(Followed { after: followed.at, at: task.previous, ..followed });
                }
            }
            open = still;
        }
        // A task whose place was used again for one of another list leads on through that. Tasks are in the parts of a
        // list by their ids; otherwise the way must end where the list begins.
        let firsts = read_each(self.memory, whole.iter().map(|followed| (followed.list, 8)));
        let astray = whole.iter().zip(&firsts).filter(|(followed, first)| {
            let is_sure = followed.is_one_part && shards >= MIN_SHARDS;
            !is_sure && u64_at(first, 0) != Some(followed.at)
        });
        torn.extend(astray.map(|(followed, _)| followed.list));
        torn
    }
}

/// A list that is being followed from its last task to its first.
struct Followed {
    /// Where its ends are noted.
    list: RemoteAddr,
    /// The task that comes next, and the one behind that.
    at: u64,
    after: u64,
    /// Which part of a list with parts its tasks belong in, by their ids, and whether all do.
    part: Option<u64>,
    is_one_part: bool,
}

impl Followed {
    /// A list with these ends; `None` of one that is empty.
    fn new(list: RemoteAddr, ends: &[u8]) -> Option<Self> {
        let at = u64_at(ends, 8).filter(|last| *last != 0)?;
        Some(Self { list, at, after: 0, part: None, is_one_part: true })
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
        if self.first == 0 { ENDS } else { self.shards * SHARD }
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
            let last = at(links.len() as u64 - 1);
            memory.map(RemoteAddr(SHARDS), words(&[0, TASKS, last, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
            let mut tasks = Vec::new();
            for (index, (previous, next)) in links.iter().enumerate() {
                let mut task = vec![0; SIZE as usize / 8];
                (task[0], task[2], task[3]) = (2 << 6, VTABLE, 1);
                (task[4], task[5]) = (SCHEDULER, index as u64 + 1);
                (task[16], task[17]) = (*previous, *next);
                change(index, &mut task);
                tasks.extend(words(&task));
            }
            memory.map(RemoteAddr(TASKS), tasks);
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
        let other_behind = Scene::new(&[links[0], (at(0), at(0)), links[2]], |_, _| {});
        assert_eq!((other_behind.find().tasks.len(), other_behind.find().torn), (1, 1));
        let of_another = Scene::new(&links, |index, task| task[4] += (2 - index as u64) * 64);
        assert_eq!((of_another.find().tasks.len(), of_another.find().torn), (1, 1));
        let freed = Scene::new(&links, |index, task| task[0] *= u64::from(index != 0));
        assert_eq!((freed.find().tasks.len(), freed.find().torn), (2, 1));
        let no_task = Scene::new(&links, |_, task| task[2] += 8);
        assert_eq!((no_task.find().tasks.len(), no_task.find().schedulers.len()), (0, 0));
    }

    #[test]
    fn a_list_that_ends_in_another_one_is_followed_again() {
        let links = [(0, at(1)), (at(0), at(2)), (at(1), 0)];
        let mut scene = Scene::new(&links, |_, _| {});
        scene.memory.map(RemoteAddr(SHARDS), words(&[0, at(1), at(2), 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(scene.find().torn, 1);
        // Ids that tell in which part of the list a task belongs.
        let mut scene = Scene::new(&links, |index, task| task[5] = index as u64 * 4 + 4);
        scene.memory.map(RemoteAddr(SHARDS), words(&[0, at(1), at(2), 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!((scene.find().torn, scene.find().tasks.len()), (0, 3));
    }

    #[test]
    fn a_list_that_is_a_circle_ends() {
        let scene = Scene::new(&[(at(1), at(1)), (at(0), 0)], |_, _| {});
        assert_eq!((scene.find().tasks.len(), scene.find().torn), (2, 1));
    }

    proptest::proptest! {
        /// Whatever links, parts and ids claim: following ends, and no task comes out twice.
        #[test]
        fn lists_that_lie_end(
            links in proptest::collection::vec((0u64..10, 0u64..10, 0u64..10, 0u64..4), 1..9),
            ends in proptest::array::uniform8(0u64..10),
        ) {
            let place = |index: u64| if index == 0 { 0 } else { at(index - 1) };
            let pairs: Vec<(u64, u64)> = links.iter().map(|(previous, next, ..)| (place(*previous), place(*next))).collect();
            let mut scene = Scene::new(&pairs, |index, task| {
                task[5] = links[index].2;
                task[4] += u64::from(links[index].3 == 0) * 64;
            });
            let shard = |pair: &[u64]| [0, place(pair[0]), place(pair[1])];
            let parts: Vec<u64> = ends.chunks(2).flat_map(shard).collect();
            scene.memory.map(RemoteAddr(SHARDS), words(&parts));
            let found = scene.find();
            let distinct: HashSet<RemoteAddr> = found.tasks.iter().map(|task| task.at).collect();
            proptest::prop_assert_eq!(distinct.len(), found.tasks.len());
            proptest::prop_assert!(found.tasks.iter().all(|task| task.scheduler == SCHEDULER));
            proptest::prop_assert!(found.torn <= 4);
        }
    }
}

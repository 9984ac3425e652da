//! Threads of which none can go on: each waits for what only others of them could do.
//!
//! A thread that waits at a descriptor waits for any thread of any process that has the other end. So a circle of waits is not
//! enough: all who could end a wait must be waiting in the same knot.

use crate::{Lwp, Pid};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// A thread anywhere on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Spot {
    pub(super) pid: Pid,
    pub(super) lwp: Lwp,
}

/// Who could end the wait of a thread. Any one of them is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It may go on by itself, or it is not known who could.
    Free,
    /// The holders of a lock.
    Holders(Vec<Spot>),
    /// Any other thread of its process: it waits to be woken.
    Own,
    /// Any thread of these processes.
    Ends(Vec<End>),
}

/// A process that has the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) pid: Pid,
    /// The descriptors by which it has that.
    pub(super) numbers: Vec<i32>,
}

/// What is known of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Knotted {
    pub(super) need: Need,
    /// Whether it waits for work, as threads of servers do.
    pub(super) is_idle: bool,
    /// Whether it only waits for what somebody may send. Nobody has to.
    pub(super) is_input: bool,
    /// The descriptors that it waits at.
    pub(super) watches: Vec<i32>,
}

/// How strictly all who could end a wait are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Every thread of a process could be the one.
    Strict,
    /// But for threads that wait for work elsewhere, while others of the process do not.
    WithoutIdle,
}

/// All threads that were looked at.
#[derive(Default)]
pub(super) struct Knot {
    pub(super) threads: BTreeMap<Spot, Knotted>,
    pub(super) processes: BTreeMap<Pid, Vec<Lwp>>,
}

impl Knot {
    /// The threads that cannot go on.
    pub(super) fn stuck(&self, rule: Rule) -> BTreeSet<Spot> {
        let reach = Reach::new(self, rule);
        let mut stuck: BTreeSet<Spot> = BTreeSet::new();
        let mut waiters: HashMap<Crowd<'_>, Vec<Spot>> = HashMap::new();
        for spot in self.threads.keys() {
            let Some(crowds) = reach.crowds(*spot) else { continue };
            stuck.insert(*spot);
            crowds.into_iter().for_each(|crowd| waiters.entry(crowd).or_default().push(*spot));
        }
        let mut crowds_with: HashMap<Spot, Vec<Crowd<'_>>> = HashMap::new();
        for crowd in waiters.keys() {
            reach.members(*crowd).for_each(|member| crowds_with.entry(member).or_default().push(*crowd));
        }
        // A thread that can go on frees all who wait for a crowd that it is in.
        let mut free: Vec<Spot> = crowds_with.keys().filter(|spot| !stuck.contains(spot)).copied().collect();
        while let Some(spot) = free.pop() {
            for crowd in crowds_with.remove(&spot).into_iter().flatten() {
                let freed = waiters.remove(&crowd).into_iter().flatten();
                free.extend(freed.filter(|waiter| stuck.remove(waiter)));
            }
        }
        stuck
    }

    /// Whether only a thread itself could end its wait.
    pub(super) fn is_alone(&self, spot: Spot, rule: Rule) -> bool {
        let reach = Reach::new(self, rule);
        let is_nobody = |crowd: Crowd<'_>| reach.members(crowd).all(|other| other == spot);
        reach.crowds(spot).is_some_and(|crowds| crowds.into_iter().all(is_nobody))
    }

    /// A shortest circle through `start`, within `stuck`: one by way of other processes, if there is one.
    pub(super) fn circle_through(&self, start: Spot, stuck: &BTreeSet<Spot>, rule: Rule) -> Option<Vec<Spot>> {
        let reach = Reach::new(self, rule);
        reach.circle(start, stuck, true).or_else(|| reach.circle(start, stuck, false))
    }

    /// All threads that the wait of `start` rests on, itself among them.
    pub(super) fn support(&self, start: Spot, rule: Rule) -> BTreeSet<Spot> {
        let reach = Reach::new(self, rule);
        let mut seen = BTreeSet::from([start]);
        let mut asked = HashSet::new();
        let mut todo = vec![start];
        while let Some(spot) = todo.pop() {
            for crowd in reach.crowds(spot).into_iter().flatten().filter(|crowd| asked.insert(*crowd)) {
                todo.extend(reach.members(crowd).filter(|member| seen.insert(*member)));
            }
        }
        seen
    }
}

/// Threads of which any one could end a wait. A thousand threads that wait to be woken wait for one crowd of a thousand: so the
/// work grows with the threads, and not with the pairs of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Crowd<'k> {
    /// Holders of a lock.
    Holders(&'k [Spot]),
    /// The threads of a process that wait at one of these descriptors.
    At(Pid, &'k [i32]),
    /// The threads of a process that do not wait for work.
    Working(Pid),
    /// All threads of a process.
    All(Pid),
}

impl Crowd<'_> {
    fn pids(&self) -> impl Iterator<Item = Pid> {
        let (holders, pid) = match *self {
            Crowd::Holders(holders) => (holders, None),
            Crowd::At(pid, _) | Crowd::Working(pid) | Crowd::All(pid) => (&[][..], Some(pid)),
        };
        holders.iter().map(|spot| spot.pid).chain(pid)
    }
}

/// What is known of one process.
#[derive(Default)]
struct Reached {
    /// Whether all its threads were looked at.
    is_known: bool,
    /// How many of its threads do not wait for work.
    working: usize,
    /// Threads by the descriptors that they wait at.
    at: HashMap<i32, Vec<Spot>>,
}

/// Who could end which wait, by one rule.
struct Reach<'k> {
    knot: &'k Knot,
    rule: Rule,
    processes: HashMap<Pid, Reached>,
}

impl<'k> Reach<'k> {
    fn new(knot: &'k Knot, rule: Rule) -> Self {
        let reached = |(pid, lwps): (&Pid, &Vec<Lwp>)| {
            let mut reached = Reached { is_known: true, ..Reached::default() };
            for spot in lwps.iter().map(|lwp| Spot { pid: *pid, lwp: *lwp }) {
                let Some(thread) = knot.threads.get(&spot) else {
                    reached.is_known = false;
                    continue;
                };
                reached.working += usize::from(!thread.is_idle);
                thread.watches.iter().for_each(|number| reached.at.entry(*number).or_default().push(spot));
            }
            (*pid, reached)
        };
        Self { knot, rule, processes: knot.processes.iter().map(reached).collect() }
    }

    /// The crowds of which anybody could end the wait of a thread, those first that are most likely meant: who waits at the same
    /// descriptor. `None` if it can be anybody.
    fn crowds(&self, spot: Spot) -> Option<Vec<Crowd<'k>>> {
        match &self.knot.threads.get(&spot)?.need {
            Need::Free => None,
            Need::Holders(holders) => Some(vec![Crowd::Holders(holders)]),
            Need::Own => self.processes.contains_key(&spot.pid).then(|| vec![Crowd::All(spot.pid)]),
            Need::Ends(ends) => {
                let crowds = ends.iter().map(|end| self.at_end(spot, end));
                Some(crowds.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
            }
        }
    }

    fn at_end(&self, waiter: Spot, end: &'k End) -> Option<[Crowd<'k>; 2]> {
        let process = self.processes.get(&end.pid).filter(|process| process.is_known)?;
        let is_working = |thread: &Knotted| !thread.is_idle;
        let is_one = waiter.pid == end.pid && self.knot.threads.get(&waiter).is_some_and(is_working);
        let others_work = process.working > usize::from(is_one);
        let rest = match self.rule {
            Rule::WithoutIdle if others_work => Crowd::Working(end.pid),
            Rule::WithoutIdle | Rule::Strict => Crowd::All(end.pid),
        };
        Some([Crowd::At(end.pid, &end.numbers), rest])
    }

    /// The threads of a crowd; one that waits for the crowd it is in cannot end its own wait.
    fn members<'r>(&'r self, crowd: Crowd<'k>) -> Box<dyn Iterator<Item = Spot> + 'r> {
        let threads = |pid: Pid| {
            let lwps = self.knot.processes.get(&pid).into_iter().flatten();
            lwps.map(move |lwp| Spot { pid, lwp: *lwp })
        };
        match crowd {
            Crowd::Holders(holders) => Box::new(holders.iter().copied()),
            Crowd::All(pid) => Box::new(threads(pid)),
            Crowd::Working(pid) => {
                let is_working = |spot: &Spot| self.knot.threads.get(spot).is_some_and(|thread| !thread.is_idle);
                Box::new(threads(pid).filter(is_working))
            }
            Crowd::At(pid, numbers) => {
                let at = self.processes.get(&pid).map(|process| &process.at);
                Box::new(numbers.iter().filter_map(move |number| at?.get(number)).flatten().copied())
            }
        }
    }

    /// A shortest circle through `start`, within `stuck`. `goes_abroad`: a thread that somebody of another process could wake is
    /// said to wait for that one.
    fn circle(&self, start: Spot, stuck: &BTreeSet<Spot>, goes_abroad: bool) -> Option<Vec<Spot>> {
        let mut came: HashMap<Spot, Spot> = HashMap::new();
        let mut asked: HashSet<(Crowd<'_>, Option<Pid>)> = HashSet::new();
        let mut queue = VecDeque::from([start]);
        while let Some(spot) = queue.pop_front() {
            let crowds = self.crowds(spot)?;
            let is_abroad = |other: &Spot| other.pid != spot.pid;
            let only_abroad = goes_abroad && crowds.iter().any(|crowd| crowd.pids().any(|pid| pid != spot.pid));
            let home = only_abroad.then_some(spot.pid);
            // The start asks for itself: its own crowd has to be asked once more by others, who may wait for the start.
            let crowds = crowds.into_iter().filter(|crowd| spot == start || asked.insert((*crowd, home)));
            let mut ways: Vec<Spot> = crowds.flat_map(|crowd| self.members(crowd)).collect();
            ways.retain(|way| *way != spot && stuck.contains(way) && (!only_abroad || is_abroad(way)));
            // Who waits at a descriptor or for a lock comes before who waits to be woken by anybody.
            ways.sort_by_key(|way| self.knot.threads.get(way).is_some_and(|thread| thread.need == Need::Own));
            for way in ways {
                if way == start {
                    let mut circle: Vec<Spot> = std::iter::successors(Some(spot), |at| came.get(at).copied()).collect();
                    circle.reverse();
                    return Some(circle);
                }
                if let Entry::Vacant(entry) = came.entry(way) {
                    entry.insert(spot);
                    queue.push_back(way);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(pid: i32, lwp: i32) -> Spot {
        Spot { pid: Pid(pid), lwp: Lwp(lwp) }
    }

    fn ends(pids: &[i32]) -> Need {
        Need::Ends(pids.iter().map(|pid| End { pid: Pid(*pid), numbers: vec![3] }).collect())
    }

    fn knot(threads: &[(Spot, Need, bool)]) -> Knot {
        let mut knot = Knot::default();
        for (spot, need, is_idle) in threads {
            let thread = Knotted { need: need.clone(), is_idle: *is_idle, is_input: false, watches: Vec::new() };
            knot.threads.insert(*spot, thread);
            knot.processes.entry(spot.pid).or_default().push(spot.lwp);
        }
        knot
    }

    #[test]
    fn two_that_wait_for_each_other_and_a_third_that_could_help() {
        let two = [(spot(1, 1), ends(&[2]), false), (spot(2, 2), ends(&[1]), false)];
        let circle = knot(&two);
        let stuck = circle.stuck(Rule::Strict);
        assert_eq!(stuck.len(), 2);
        assert_eq!(circle.circle_through(spot(2, 2), &stuck, Rule::Strict), Some(vec![spot(2, 2), spot(1, 1)]));
        // A third has the same end: it may speak.
        let mut helped = two.to_vec();
        helped[1].1 = ends(&[1, 3]);
        helped.push((spot(3, 3), Need::Free, true));
        assert!(knot(&helped).stuck(Rule::Strict).is_empty());
        // Nobody has looked at the third.
        helped.pop();
        assert!(knot(&helped).stuck(Rule::Strict).is_empty());
        // The third waits for one of them.
        helped.push((spot(3, 3), ends(&[1]), false));
        assert_eq!(knot(&helped).stuck(Rule::Strict).len(), 3);
    }

    #[test]
    fn locks_and_descriptors_in_one_circle() {
        // Thread 11 holds a mutex and waits for process 2, which writes to process 1, whose thread 12 wants the mutex.
        let threads = [
            (spot(1, 11), ends(&[2]), false),
            (spot(1, 12), Need::Holders(vec![spot(1, 11)]), false),
            (spot(2, 2), ends(&[1, 2]), false),
        ];
        let circle = knot(&threads);
        let stuck = circle.stuck(Rule::Strict);
        assert_eq!(stuck.len(), 3);
        assert!(circle.circle_through(spot(1, 12), &stuck, Rule::Strict).is_some());
        // A thread that waits for work may be the one that reads.
        let mut with_idle = threads.to_vec();
        with_idle.push((spot(1, 13), Need::Free, true));
        assert!(knot(&with_idle).stuck(Rule::Strict).is_empty());
        assert_eq!(knot(&with_idle).stuck(Rule::WithoutIdle).len(), 3);
        // One that waits at that very descriptor is not left out.
        let mut watched = knot(&with_idle);
        watched.threads.get_mut(&spot(1, 13)).unwrap().watches = vec![3];
        assert!(watched.stuck(Rule::WithoutIdle).is_empty());
    }

    #[test]
    fn a_circle_by_way_of_the_other_process_that_has_the_end() {
        // Process 1 waits for its child 2. There 21 waits for 22, which writes to a pipe that both processes can read from.
        let threads =
            [(spot(1, 1), ends(&[2]), false), (spot(2, 21), Need::Own, false), (spot(2, 22), ends(&[1, 2]), false)];
        let circle = knot(&threads);
        let found = circle.circle_through(spot(2, 21), &circle.stuck(Rule::Strict), Rule::Strict).unwrap();
        assert_eq!(found, [spot(2, 21), spot(2, 22), spot(1, 1)]);
    }

    #[test]
    fn one_that_only_itself_could_wake() {
        let alone = knot(&[(spot(1, 1), ends(&[1]), false)]);
        assert_eq!(alone.stuck(Rule::Strict).len(), 1);
        assert_eq!(alone.circle_through(spot(1, 1), &alone.stuck(Rule::Strict), Rule::Strict), None);
        let woken = knot(&[(spot(1, 1), Need::Own, false), (spot(1, 2), Need::Free, true)]);
        assert!(woken.stuck(Rule::WithoutIdle).is_empty(), "an idle thread may wake it");
    }
}

//! Threads of which none can go on: each waits for what only others of them could do.
//!
//! A thread that waits at a descriptor waits for any thread of any process that has the other end. So a circle of waits is not
//! enough: all who could end a wait must be waiting in the same knot.

use crate::{Lwp, Pid};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

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
        let waits = |(spot, thread): (&Spot, &Knotted)| (thread.need != Need::Free).then_some(*spot);
        let mut stuck: BTreeSet<Spot> = self.threads.iter().filter_map(waits).collect();
        let ways: HashMap<Spot, Option<Vec<Spot>>> = stuck.iter().map(|spot| (*spot, self.ways(*spot, rule))).collect();
        let mut waited_by: HashMap<Spot, Vec<Spot>> = HashMap::new();
        for (spot, ways) in &ways {
            ways.iter().flatten().for_each(|way| waited_by.entry(*way).or_default().push(*spot));
        }
        let is_free = |stuck: &BTreeSet<Spot>, spot: &Spot| match &ways[spot] {
            None => true,
            Some(ways) => ways.iter().any(|way| !stuck.contains(way)),
        };
        let mut freed: Vec<Spot> = stuck.iter().filter(|spot| is_free(&stuck, spot)).copied().collect();
        while let Some(spot) = freed.pop() {
            if stuck.remove(&spot) {
                freed.extend(waited_by.get(&spot).into_iter().flatten().filter(|waiter| stuck.contains(waiter)));
            }
        }
        stuck
    }

    /// Who could end the wait of a thread, those first that are most likely meant: those that wait at the same descriptor, then
    /// those that wait for somebody. `None` if that can be anybody.
    pub(super) fn ways(&self, spot: Spot, rule: Rule) -> Option<Vec<Spot>> {
        match &self.threads.get(&spot)?.need {
            Need::Free => None,
            Need::Holders(holders) => Some(holders.clone()),
            Need::Own => {
                let others = self.processes.get(&spot.pid)?.iter().map(|lwp| Spot { pid: spot.pid, lwp: *lwp });
                Some(others.filter(|other| *other != spot).collect())
            }
            Need::Ends(ends) => {
                let mut ways = Vec::new();
                for end in ends {
                    ways.extend(self.at_end(spot, end, rule)?);
                }
                Some(ways)
            }
        }
    }

    fn at_end(&self, waiter: Spot, end: &End, rule: Rule) -> Option<Vec<Spot>> {
        let spots = self.processes.get(&end.pid)?.iter().map(|lwp| Spot { pid: end.pid, lwp: *lwp });
        let mut known: Vec<(Spot, &Knotted)> = spots
            .filter(|spot| *spot != waiter)
            .map(|spot| Some((spot, self.threads.get(&spot)?)))
            .collect::<Option<_>>()?;
        let is_there = |thread: &Knotted| thread.watches.iter().any(|number| end.numbers.contains(number));
        if rule == Rule::WithoutIdle && known.iter().any(|(_, thread)| !thread.is_idle) {
            known.retain(|(_, thread)| !thread.is_idle || is_there(thread));
        }
        known.sort_by_key(|(_, thread)| (!is_there(thread), thread.need == Need::Own));
        Some(known.into_iter().map(|(spot, _)| spot).collect())
    }

    /// A shortest circle through `start`, within `stuck`: one by way of other processes, if there is one.
    pub(super) fn circle_through(&self, start: Spot, stuck: &BTreeSet<Spot>, rule: Rule) -> Option<Vec<Spot>> {
        let abroad = |from: Spot, ways: Vec<Spot>| match ways.iter().any(|way| way.pid != from.pid) {
            true => ways.into_iter().filter(|way| way.pid != from.pid).collect(),
            false => ways,
        };
        self.circle(start, stuck, rule, abroad).or_else(|| self.circle(start, stuck, rule, |_, ways| ways))
    }

    fn circle(
        &self,
        start: Spot,
        stuck: &BTreeSet<Spot>,
        rule: Rule,
        chosen: impl Fn(Spot, Vec<Spot>) -> Vec<Spot>,
    ) -> Option<Vec<Spot>> {
        let mut came: HashMap<Spot, Spot> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(spot) = queue.pop_front() {
            for way in chosen(spot, self.ways(spot, rule)?).into_iter().filter(|way| stuck.contains(way)) {
                if way == start {
                    let mut circle: Vec<Spot> = std::iter::successors(Some(spot), |at| came.get(at).copied()).collect();
                    circle.reverse();
                    return Some(circle);
                }
                if let std::collections::hash_map::Entry::Vacant(entry) = came.entry(way) {
                    entry.insert(spot);
                    queue.push_back(way);
                }
            }
        }
        None
    }

    /// All threads that the wait of `start` rests on, itself among them.
    pub(super) fn support(&self, start: Spot, rule: Rule) -> BTreeSet<Spot> {
        let mut seen = BTreeSet::from([start]);
        let mut todo = vec![start];
        while let Some(spot) = todo.pop() {
            for way in self.ways(spot, rule).into_iter().flatten() {
                if seen.insert(way) {
                    todo.push(way);
                }
            }
        }
        seen
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

//! The graph of who waits for whom.

use crate::Lwp;
use crate::model::{Detail, Evidence, HolderStatus, Side, SyncObject, SyncState, Waiter};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// One thread waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    /// For whom.
    pub(super) to: Lwp,
    /// Place of the object among the snapshot's.
    pub(super) object: usize,
    /// How it is known that this thread waits for the object, and that one holds it.
    pub(super) evidence: Evidence,
}

/// Who waits for whom.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// The best known edge first.
    pub(super) edges: BTreeMap<Lwp, Vec<Edge>>,
    /// Who waits for each thread.
    waiters: HashMap<Lwp, Vec<Lwp>>,
}

/// Whether `waiter` wants to read what is only read, and no writer is queued: it waits for another reader, one that may go on to
/// write, and not for itself.
fn is_behind_a_reader(waiter: &Waiter, object: &SyncObject) -> bool {
    let is_queued = !matches!(object.detail, Detail::Rwlock { writer_queued: false, .. });
    waiter.side == Some(Side::Read) && object.state == SyncState::ReadLocked && !is_queued
}

impl Graph {
    pub(super) fn new(objects: &[SyncObject]) -> Self {
        let mut edges: BTreeMap<Lwp, Vec<Edge>> = BTreeMap::new();
        for (index, object) in objects.iter().enumerate() {
            for waiter in &object.waiters {
                let of_waiter = edges.entry(waiter.lwp).or_default();
                let alive = object
                    .holders
                    .iter()
                    .filter(|holder| matches!(holder.status, HolderStatus::Alive | HolderStatus::OtherProcess));
                for holder in alive {
                    let Some(to) = holder.lwp else { continue };
                    if to == waiter.lwp && is_behind_a_reader(waiter, object) {
                        continue;
                    }
                    of_waiter.push(Edge { to, object: index, evidence: waiter.evidence.max(holder.evidence) });
                }
                of_waiter.sort_by_key(|edge| (edge.evidence, edge.to));
            }
        }
        Self::of(edges)
    }

    fn of(edges: BTreeMap<Lwp, Vec<Edge>>) -> Self {
        let mut waiters: HashMap<Lwp, Vec<Lwp>> = HashMap::new();
        for (from, edges) in &edges {
            for edge in edges {
                waiters.entry(edge.to).or_default().push(*from);
            }
        }
        Self { edges, waiters }
    }

    /// Circles: at least one through every thread that is part of any. Each is given as its edges, in
    /// order, with the thread each one comes from.
    pub(super) fn circles(&self) -> Vec<Vec<(Lwp, Edge)>> {
        let mut live = self.on_circles();
        let mut circles = Vec::new();
        while let Some(start) = live.pop_first() {
            // There is none where it is between two circles, or part of one that another one has been taken from.
            if let Some(circle) = self.circle_through(start, &live) {
                for (lwp, _) in &circle {
                    live.remove(lwp);
                }
                circles.push(circle);
            }
        }
        circles
    }

    /// Threads that are left when those that wait for nobody, and those that nobody waits for, are taken
    /// away again and again.
    fn on_circles(&self) -> BTreeSet<Lwp> {
        let targets = |edges: &Vec<Edge>| edges.iter().map(|edge| edge.to).collect();
        let forward: HashMap<Lwp, Vec<Lwp>> = self.edges.iter().map(|(from, edges)| (*from, targets(edges))).collect();
        let backward = &self.waiters;
        let mut live: BTreeSet<Lwp> = self.edges.keys().copied().chain(backward.keys().copied()).collect();
        prune(&mut live, &forward, backward);
        prune(&mut live, backward, &forward);
        live
    }

    /// A shortest circle through `start`, within `live`.
    fn circle_through(&self, start: Lwp, live: &BTreeSet<Lwp>) -> Option<Vec<(Lwp, Edge)>> {
        let mut came: HashMap<Lwp, (Lwp, Edge)> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(lwp) = queue.pop_front() {
            for edge in self.edges.get(&lwp).into_iter().flatten() {
                if edge.to == start {
                    let mut circle = vec![(lwp, *edge)];
                    let mut at = lwp;
                    while at != start {
                        let (from, edge) = came[&at];
                        circle.push((from, edge));
                        at = from;
                    }
                    circle.reverse();
                    return Some(circle);
                }
                if live.contains(&edge.to) && !came.contains_key(&edge.to) {
                    came.insert(edge.to, (lwp, *edge));
                    queue.push_back(edge.to);
                }
            }
        }
        None
    }

    /// Threads that wait, directly or not, for one of `these`, and are none of them.
    pub(super) fn behind(&self, these: &[Lwp]) -> Vec<Lwp> {
        let mut seen: HashSet<Lwp> = these.iter().copied().collect();
        let mut todo: Vec<Lwp> = these.to_vec();
        let mut behind = Vec::new();
        while let Some(lwp) = todo.pop() {
            for waiter in self.waiters.get(&lwp).into_iter().flatten() {
                if seen.insert(*waiter) {
                    todo.push(*waiter);
                    behind.push(*waiter);
                }
            }
        }
        behind.sort_unstable();
        behind
    }

    /// The roots, threads that others wait for and that wait for nobody we know, each with the longest chain to it that
    /// `rank` puts first by its last edge. Chains that lead into a circle have no root.
    pub(super) fn chains<R: Ord>(&self, rank: impl Fn(&Edge) -> R) -> Vec<Chain> {
        let best = |lwp| self.edges.get(&lwp).and_then(|edges| edges.first());
        // By thread that waits: its root, the last edge to it, and how many edges there are. `None` leads into a circle,
        // or is on the path at hand.
        let mut ends: HashMap<Lwp, Option<(Edge, usize)>> = HashMap::new();
        for start in self.edges.keys() {
            // Along the best edge each: with a stack of our own, for chains of any length.
            let mut path = Vec::new();
            let mut at = *start;
            while !ends.contains_key(&at)
                && let Some(edge) = best(at)
            {
                ends.insert(at, None);
                path.push((at, *edge));
                at = edge.to;
            }
            let mut end = ends.get(&at).copied().unwrap_or_else(|| path.last().map(|(_, edge)| (*edge, 0)));
            for (lwp, _) in path.into_iter().rev() {
                end = end.map(|(edge, length)| (edge, length + 1));
                ends.insert(lwp, end);
            }
        }
        let mut starts: BTreeMap<Lwp, (R, usize, std::cmp::Reverse<Lwp>)> = BTreeMap::new();
        for (lwp, (edge, length)) in ends.iter().filter_map(|(lwp, end)| Some((*lwp, (*end)?))) {
            let start = (rank(&edge), length, std::cmp::Reverse(lwp));
            match starts.get_mut(&edge.to) {
                Some(known) if *known >= start => {}
                Some(known) => *known = start,
                None => drop(starts.insert(edge.to, start)),
            }
        }
        let follow = |(root, (.., std::cmp::Reverse(start))): (Lwp, (R, usize, _))| {
            let steps = std::iter::successors(best(start).map(|edge| (start, *edge)), |(_, edge)| {
                best(edge.to).map(|next| (edge.to, *next))
            });
            Chain { steps: steps.collect(), root }
        };
        starts.into_iter().map(follow).collect()
    }
}

/// Threads that wait for one another, and the one at the end.
#[derive(Debug)]
pub(super) struct Chain {
    /// Who waits for the next, and by which edge.
    pub(super) steps: Vec<(Lwp, Edge)>,
    pub(super) root: Lwp,
}

/// Takes away those without a way `out`, until all that are left have one.
fn prune(live: &mut BTreeSet<Lwp>, out: &HashMap<Lwp, Vec<Lwp>>, back: &HashMap<Lwp, Vec<Lwp>>) {
    let ways = |lwp: &Lwp| out.get(lwp).into_iter().flatten().filter(|to| live.contains(to)).count();
    let mut left: HashMap<Lwp, usize> = live.iter().map(|lwp| (*lwp, ways(lwp))).collect();
    let mut ends: Vec<Lwp> = left.iter().filter(|(_, ways)| **ways == 0).map(|(lwp, _)| *lwp).collect();
    while let Some(end) = ends.pop() {
        live.remove(&end);
        for from in back.get(&end).into_iter().flatten().filter(|from| live.contains(from)) {
            if let Some(ways) = left.get_mut(from) {
                *ways -= 1;
                if *ways == 0 {
                    ends.push(*from);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(i32, i32)]) -> Graph {
        let mut by_thread: BTreeMap<Lwp, Vec<Edge>> = BTreeMap::new();
        for (from, to) in edges {
            let edge = Edge { to: Lwp(*to), object: 0, evidence: Evidence::Recorded };
            by_thread.entry(Lwp(*from)).or_default().push(edge);
        }
        Graph::of(by_thread)
    }

    fn circles(edges: &[(i32, i32)]) -> Vec<Vec<i32>> {
        let circles = graph(edges).circles();
        circles.iter().map(|circle| circle.iter().map(|(lwp, _)| lwp.0).collect()).collect()
    }

    #[test]
    fn circles_and_what_leads_to_them() {
        assert_eq!(circles(&[(1, 2), (2, 1), (3, 1), (4, 3), (5, 6)]), [[1, 2]]);
        assert_eq!(circles(&[(1, 1)]), [[1]]);
        assert_eq!(circles(&[(1, 2), (2, 3), (3, 1), (4, 5), (5, 4), (6, 4), (6, 1)]), vec![vec![1, 2, 3], vec![4, 5]]);
        assert!(circles(&[(1, 2), (2, 3)]).is_empty());
        // Two readers hold what one writer wants; one of them waits for the writer.
        assert_eq!(circles(&[(1, 2), (1, 3), (3, 1)]), [[1, 3]]);
        assert_eq!(graph(&[(1, 2), (2, 1), (3, 1), (4, 3)]).behind(&[Lwp(1), Lwp(2)]), [Lwp(3), Lwp(4)]);
    }

    #[test]
    fn chains_and_their_roots() {
        let chains = |edges: &[(i32, i32)]| {
            let chains = graph(edges).chains(|_| 0);
            let numbers = |chain: &Chain| chain.steps.iter().map(|(lwp, _)| lwp.0).chain([chain.root.0]).collect();
            chains.iter().map(numbers).collect::<Vec<Vec<i32>>>()
        };
        assert_eq!(chains(&[(1, 2), (2, 3), (4, 3), (5, 1), (6, 7)]), [vec![5, 1, 2, 3], vec![6, 7]]);
        assert!(chains(&[(1, 2), (2, 1), (3, 1)]).is_empty());
        assert!(chains(&[]).is_empty());
        // The edge that counts more comes before the longer chain.
        let mut graph = graph(&[(1, 2), (2, 3), (4, 3)]);
        graph.edges.get_mut(&Lwp(4)).unwrap()[0].object = 1;
        let chain = graph.chains(|edge| edge.object).remove(0);
        assert_eq!((chain.steps.len(), chain.steps[0].0, chain.root), (1, Lwp(4), Lwp(3)));
    }
}

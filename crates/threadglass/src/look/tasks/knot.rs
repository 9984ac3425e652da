//! Which tasks cannot go on, because each of them waits for another one that cannot: the largest set of tasks and threads of
//! which each could be woken by members alone. Threads are in it for locks of C that tasks wait for.

use super::rest;
use crate::model::{
    ChannelUse, Evidence, Side, Snapshot, SyncKind, SyncObject, Task, TaskWaitsFor, Thread, ThreadState,
};
use crate::runtimes::{ROOT_OF_POLLS, is_among_threads};
use crate::{Lwp, RemoteAddr};
use std::collections::{HashMap, HashSet};

/// Who waits, or is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// By its place among the tasks.
    Task(usize),
    Thread(Lwp),
}

/// What a node waits for, and who could end that.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) object: RemoteAddr,
    pub(super) kind: SyncKind,
    pub(super) side: Option<Side>,
    pub(super) channel_use: Option<ChannelUse>,
    pub(super) by: Vec<Node>,
    /// Whether all of them must go on, or one is enough.
    needs_all: bool,
}

/// The waits of a snapshot.
pub(super) struct Knot<'s> {
    snapshot: &'s Snapshot,
    /// By id. Ids are not unique where several copies of a runtime are in one process.
    tasks: HashMap<u64, Vec<usize>>,
    threads: HashMap<Lwp, &'s Thread>,
    /// By thread: the task that it runs, or that only it may run.
    carried: HashMap<Lwp, usize>,
    /// By thread: the innermost future that it is blocked on, inside of what it runs.
    roots: HashMap<Lwp, usize>,
    /// By lock that threads block on: the tasks that hold it while they wait.
    keepers: HashMap<RemoteAddr, Vec<Node>>,
    /// Locks of threads whose holders are only inferred.
    guessed: HashSet<RemoteAddr>,
    /// Whether nothing in the process goes on. A variable that has an end of a channel may have given it away: that does not
    /// matter then.
    is_at_rest: bool,
    blocks: HashMap<Node, Vec<Block>>,
    pub(super) stuck: HashSet<Node>,
}

impl<'s> Knot<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        let threads = snapshot.threads.iter().filter_map(|thread| Some((thread.lwp?, thread))).collect();
        let (mut tasks, mut keepers): (HashMap<u64, Vec<usize>>, HashMap<_, Vec<Node>>) = Default::default();
        let (mut carried, mut roots) = (HashMap::new(), HashMap::new());
        for (index, task) in snapshot.tasks.iter().enumerate() {
            tasks.entry(task.id).or_default().push(index);
            if is_among_threads(task.runtime) && task.state == ThreadState::Sleep && task.status != ROOT_OF_POLLS {
                roots.extend(task.bound_to.map(|lwp| (lwp, index)));
            }
            // A thread that may run a task of futures does other work as well.
            let bound_to = task.bound_to.filter(|_| !is_among_threads(task.runtime));
            for lwp in bound_to.into_iter().chain(task.carried_by) {
                carried.insert(lwp, index);
            }
            for held in task.holds.iter().filter(|held| held.blocks_threads && task.state == ThreadState::Sleep) {
                keepers.entry(held.address).or_default().push(Node::Task(index));
            }
        }
        let is_guessed = |object: &&SyncObject| object.holders.iter().any(|it| it.evidence >= Evidence::Inferred);
        let guessed = snapshot.objects.iter().filter(is_guessed).map(|object| object.address).collect();
        let (blocks, stuck) = Default::default();
        let is_at_rest = rest::is_all(snapshot);
        let mut knot = Self { snapshot, tasks, threads, carried, roots, keepers, guessed, is_at_rest, blocks, stuck };
        for index in 0..snapshot.tasks.len() {
            knot.add(Node::Task(index));
        }
        for lwp in snapshot.threads.iter().filter_map(|thread| thread.lwp) {
            if !knot.carried.contains_key(&lwp) {
                knot.add(Node::Thread(lwp));
            }
        }
        knot.tie();
        knot
    }

    fn add(&mut self, node: Node) {
        let blocks = match node {
            Node::Task(index) => self.of_task(&self.snapshot.tasks[index]),
            Node::Thread(lwp) => self.of_thread(lwp),
        };
        if let Some(blocks) = blocks {
            self.blocks.insert(node, blocks);
        }
    }

    fn node_of(&self, lwp: Lwp) -> Node {
        self.carried.get(&lwp).map_or(Node::Thread(lwp), |index| Node::Task(*index))
    }

    /// What a task waits for; `None` where it may go on. Nothing, where nobody could ever end the wait.
    fn of_task(&self, task: &Task) -> Option<Vec<Block>> {
        if is_blocked_poll(task) {
            return task.carried_by.and_then(|lwp| self.of_root(lwp).or_else(|| self.of_thread(lwp)));
        }
        if task.state != ThreadState::Sleep {
            return None;
        }
        let Some(wait) = &task.wait else { return task.carried_by.and_then(|lwp| self.of_thread(lwp)) };
        // A task of futures may be ended by another one, wherever it waits.
        if wait.for_ever && !is_among_threads(task.runtime) {
            return Some(Vec::new());
        }
        // A task that waits for one of several futures waits for more than is known.
        if wait.timed || wait.descriptor.is_some() || wait.reason.contains(" or ") {
            return None;
        }
        if wait.objects.is_empty() {
            return None;
        }
        // A choice of one channel alone is as good as that.
        wait.objects.iter().map(|waits| self.of_object(task, waits)).collect()
    }

    fn of_object(&self, task: &Task, waits: &TaskWaitsFor) -> Option<Block> {
        if waits.kind == SyncKind::Channel && is_among_threads(task.runtime) && !self.is_at_rest {
            return None;
        }
        let ids = if waits.held_by.is_empty() { &waits.woken_by } else { &waits.held_by };
        let is_it = |index: &&usize| {
            let task = &self.snapshot.tasks[**index];
            match waits.kind {
                SyncKind::Join => task.address == waits.address,
                _ => task.holds.iter().any(|held| held.address == waits.address),
            }
        };
        let node = |id: &u64| match self.tasks.get(id)?.as_slice() {
            [one] => Some(Node::Task(*one)),
            several => several.iter().find(is_it).map(|index| Node::Task(*index)),
        };
        let by: Vec<Node> = ids.iter().filter_map(node).collect();
        // All readers must leave before a writer enters, and all tasks of a group before it is done.
        let needs_all = matches!(waits.kind, SyncKind::Rwlock | SyncKind::WaitGroup);
        let (object, kind, side, channel_use) = (waits.address, waits.kind, waits.side, waits.channel_use);
        (!by.is_empty() && by.len() == ids.len()).then_some(Block { object, kind, side, channel_use, by, needs_all })
    }

    /// What the future waits for that the thread is blocked on: a lock, or the end of another one.
    fn of_root(&self, lwp: Lwp) -> Option<Vec<Block>> {
        let blocks = self.of_task(&self.snapshot.tasks[*self.roots.get(&lwp)?])?;
        let is_told = |block: &Block| !matches!(block.kind, SyncKind::Channel | SyncKind::Cond);
        (!blocks.is_empty() && blocks.iter().all(is_told)).then_some(blocks)
    }

    fn of_thread(&self, lwp: Lwp) -> Option<Vec<Block>> {
        let thread = self.threads.get(&lwp)?;
        let waits = thread.waits_for.as_ref().filter(|waits| !waits.timed && thread.state == ThreadState::Sleep)?;
        let by = match self.keepers.get(&waits.address) {
            Some(keepers) => keepers.clone(),
            None => waits.held_by.iter().map(|lwp| self.node_of(*lwp)).collect(),
        };
        let needs_all = waits.kind == SyncKind::Rwlock;
        let (object, kind, side, channel_use) = (waits.address, waits.kind, waits.side, None);
        (!by.is_empty()).then(|| vec![Block { object, kind, side, channel_use, by, needs_all }])
    }

    /// Takes away all who may go on, and then those who wait for one of them, until nobody is left to be taken away.
    fn tie(&mut self) {
        self.stuck = self.blocks.keys().copied().collect();
        let mut waiting: HashMap<Node, Vec<Node>> = HashMap::new();
        for (node, blocks) in &self.blocks {
            for by in blocks.iter().flat_map(|block| &block.by) {
                waiting.entry(*by).or_default().push(*node);
            }
        }
        let mut open: Vec<Node> = self.blocks.keys().copied().collect();
        while let Some(node) = open.pop() {
            if self.stuck.contains(&node) && !self.is_stuck(node) {
                self.stuck.remove(&node);
                open.extend(waiting.get(&node).into_iter().flatten());
            }
        }
    }

    /// Whether `node` cannot go on while those cannot that are said to.
    fn is_stuck(&self, node: Node) -> bool {
        let is_stuck = |by: &Node| self.stuck.contains(by);
        self.blocks.get(&node).is_some_and(|blocks| {
            blocks.iter().all(|block| match block.needs_all {
                true => block.by.iter().any(is_stuck),
                false => block.by.iter().all(is_stuck),
            })
        })
    }

    /// One of those that `node` waits for, of those that cannot go on, with the wait.
    pub(super) fn next(&self, node: Node) -> Option<(Node, &Block)> {
        let blocks = self.blocks.get(&node)?;
        blocks.iter().find_map(|block| Some((*block.by.iter().find(|by| self.stuck.contains(by))?, block)))
    }

    /// The same of all, where there is only one.
    pub(super) fn only(&self, node: Node) -> Option<(Node, &Block)> {
        let [block] = self.blocks.get(&node)?.as_slice() else { return None };
        let [by] = block.by.as_slice() else { return None };
        Some((*by, block))
    }

    /// Whether only an inference tells which threads hold the lock `object`.
    pub(super) fn is_guessed(&self, object: RemoteAddr) -> bool {
        self.guessed.contains(&object) && !self.keepers.contains_key(&object)
    }

    /// The tasks that hold a lock that threads block on while they wait.
    pub(super) fn keepers(&self, object: RemoteAddr) -> &[Node] {
        self.keepers.get(&object).map_or(&[], Vec::as_slice)
    }

    /// Whether nobody could ever end the wait of `node`.
    pub(super) fn is_for_ever(&self, node: Node) -> bool {
        self.blocks.get(&node).is_some_and(Vec::is_empty)
    }

    /// The task of a node, if it is one.
    pub(super) fn task(&self, node: Node) -> Option<&'s Task> {
        match node {
            Node::Task(index) => self.snapshot.tasks.get(index),
            Node::Thread(_) => None,
        }
    }

    /// The thread that a node is, or that carries it.
    pub(super) fn thread(&self, node: Node) -> Option<Lwp> {
        match node {
            Node::Task(index) => self.snapshot.tasks.get(index).and_then(|task| task.carried_by),
            Node::Thread(lwp) => Some(lwp),
        }
    }

    /// All nodes that wait, in an order that is the same at each look.
    pub(super) fn waiting(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = self.blocks.keys().copied().collect();
        nodes.sort_by_key(|node| match node {
            Node::Task(index) => (0, *index as i64),
            Node::Thread(lwp) => (1, i64::from(lwp.0)),
        });
        nodes
    }
}

/// Whether a thread runs the task, and blocks as a thread if it does: nothing takes the task away from there.
pub(super) fn is_blocked_poll(task: &Task) -> bool {
    task.state == ThreadState::Active && is_among_threads(task.runtime)
}

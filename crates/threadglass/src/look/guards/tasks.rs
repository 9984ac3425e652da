//! Which tasks would release a lock, or wake those who wait for something else, if they went on: their code is followed from
//! each of their frames. What a task has at a call is on its stack, so nothing but the stack is needed.

use super::code::Code;
use super::explore::{LockUse, MAX_LOCKS};
use super::machine::{Machine, Value};
use super::relevance::{NEAR, References};
use super::task_ways::{Acts, TaskWays};
use crate::RemoteAddr;
use crate::arch::insn::table::TASK_CONTEXT;
use crate::look::Look;
use crate::memory::read_each;
use crate::runtimes::{TaskCall, TaskCode, TaskFrame, TaskStand, TaskUse};
use crate::unwind::Call;
use std::collections::HashSet;

/// Instructions that are followed of tasks that may have to do with an object by what is on their stacks.
const NEAR_STEPS: usize = 8_000_000;
/// The same of all others.
const FAR_STEPS: usize = 3_000_000;
/// Instructions of the look at the ways to where tasks stand.
const WAY_HERE: usize = 1_000_000;
/// Bytes of one stack that are read at once.
const STACK: u64 = 32 << 10;
/// Stacks that are read together.
const BATCH: usize = 1024;

/// A lock or a group whose holders are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedUse {
    pub(crate) address: RemoteAddr,
    pub(crate) what: TaskUse,
    /// Bytes it takes.
    pub(crate) size: u64,
    /// Whether a task that has waited for it has it then.
    pub(crate) is_taken_by_waiters: bool,
}

impl WantedUse {
    /// The words that change when others take and release it.
    pub(super) fn words(&self) -> impl Iterator<Item = (u64, u8)> {
        (0..self.size.min(32) / 4).map(|number| (number * 4, 4))
    }
}

/// A task that will release something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskClue {
    /// Which of the tasks, and which of the wanted.
    pub(crate) task: usize,
    pub(crate) wanted: usize,
    /// Where the frame that gives it away goes on.
    pub(crate) frame: RemoteAddr,
    pub(crate) how: TaskReason,
}

/// Why a task is taken for a holder: later ones are better reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TaskReason {
    /// It took the lock on its way here, whichever that was.
    Took,
    /// Its code goes on to release it.
    Releases,
    /// It has put off the release until a function ends.
    Deferred,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    pub(crate) clues: Vec<TaskClue>,
    /// By task: what it would do to channels and such.
    pub(crate) acts: Vec<(usize, RemoteAddr, TaskUse)>,
    /// Whether all tasks were followed as far as their code shows.
    pub(crate) is_whole: bool,
}

/// A task that is followed.
pub(crate) struct FollowedTask {
    pub(crate) stand: TaskStand,
    /// What it waits for, of the wanted.
    pub(crate) waits_for: Option<usize>,
}

/// Follows all of `tasks`.
pub(crate) fn follow_tasks(
    look: &Look<'_>,
    code: &dyn TaskCode,
    wanted: &[WantedUse],
    tasks: &[Option<FollowedTask>],
) -> Followed {
    let mut search = Search {
        code: Code::new(&look.space),
        tasks: code,
        wanted,
        references: References::default(),
        will_take: HashSet::new(),
        found: Followed::default(),
    };
    search.found.is_whole = true;
    let mut far: Vec<(usize, &FollowedTask)> = Vec::new();
    let all: Vec<(usize, &FollowedTask)> =
        tasks.iter().enumerate().filter_map(|(index, task)| Some((index, task.as_ref()?))).collect();
    search.code.limit(NEAR_STEPS);
    for part in all.chunks(BATCH) {
        for ((index, task), stack) in part.iter().zip(stacks(look, part)) {
            if search.is_near(task, &stack) {
                search.follow(*index, task, stack);
            } else {
                far.push((*index, task));
            }
        }
    }
    // Of equal stacks one comes before the rest: if not all can be followed, of each kind one is.
    search.code.allow(FAR_STEPS);
    let mut kinds = HashSet::new();
    let (first, rest): (Vec<_>, Vec<_>) = far
        .into_iter()
        .partition(|(_, task)| kinds.insert(task.stand.frames.iter().map(|frame| frame.pc).collect::<Vec<u64>>()));
    for part in first.chunks(BATCH).chain(rest.chunks(BATCH)) {
        for ((index, task), stack) in part.iter().zip(stacks(look, part)) {
            search.follow(*index, task, stack);
        }
    }
    search.code.allow(WAY_HERE);
    let missing: Vec<usize> = (0..wanted.len()).filter(|index| search.is_missing(*index)).take(MAX_LOCKS).collect();
    for part in all.chunks(BATCH) {
        if missing.is_empty() {
            break;
        }
        for ((index, task), stack) in part.iter().zip(stacks(look, part)) {
            search.look_behind(*index, task, stack, &missing);
        }
    }
    search.found
}

/// What is read at once of each of their stacks.
fn stacks(look: &Look<'_>, tasks: &[(usize, &FollowedTask)]) -> Vec<Vec<u8>> {
    let place = |task: &FollowedTask| {
        let (first, last) = (task.stand.frames.first(), task.stand.frames.last());
        let sp = first.map_or(0, |frame| frame.sp);
        (RemoteAddr(sp), last.map_or(0, |frame| frame.top.saturating_sub(sp)).min(STACK) as usize)
    };
    read_each(look.target, tasks.iter().map(|(_, task)| place(task)))
}

struct Search<'s> {
    code: Code<'s>,
    tasks: &'s dyn TaskCode,
    wanted: &'s [WantedUse],
    references: References,
    /// Tasks that will take a lock: they have given it up, if they had it.
    will_take: HashSet<(usize, usize)>,
    found: Followed,
}

impl Search<'_> {
    /// Whether one of the wanted may be reached by what is on the stack, or in the code.
    fn is_near(&mut self, task: &FollowedTask, stack: &[u8]) -> bool {
        let wanted = self.wanted;
        let is_near = |value: u64| {
            wanted.iter().any(|it| value.wrapping_sub(it.address.0.wrapping_sub(NEAR)) < NEAR.saturating_add(it.size))
        };
        let words = stack.as_chunks().0.iter().copied().map(u64::from_le_bytes);
        words.into_iter().any(is_near)
            || task.stand.frames.iter().filter(|frame| !frame.is_wait).any(|frame| {
                let function = self.tasks.function(frame.pc.wrapping_sub(1));
                function.is_some_and(|function| {
                    self.references.of(&mut self.code, function).iter().any(|value| is_near(*value))
                })
            })
    }

    fn machine(stand: &TaskStand, frame: &TaskFrame) -> Machine {
        Machine::of_task(frame.pc, frame.sp, frame.top.wrapping_sub(16), stand.own)
    }

    fn follow(&mut self, index: usize, task: &FollowedTask, stack: Vec<u8>) {
        if self.code.is_spent() {
            self.found.is_whole = false;
            return;
        }
        let Some(first) = task.stand.frames.first() else { return };
        self.code.pages.set_stack(first.sp, stack);
        let mut acts = Acts::new();
        let chunks = self.wanted.len().div_ceil(MAX_LOCKS).max(1);
        for chunk in 0..chunks {
            let from = chunk * MAX_LOCKS;
            let wanted = &self.wanted[from..self.wanted.len().min(from + MAX_LOCKS)];
            self.follow_for(index, task, from, wanted, &mut acts);
        }
        self.found.acts.extend(acts.into_iter().map(|(object, what)| (index, RemoteAddr(object), what)));
    }

    fn follow_for(&mut self, index: usize, task: &FollowedTask, from: usize, wanted: &[WantedUse], acts: &mut Acts) {
        let waits = |at: usize| task.waits_for == Some(from + at);
        let mut debts = [0_i8; MAX_LOCKS];
        for ((at, debt), lock) in debts.iter_mut().enumerate().zip(wanted) {
            *debt = i8::from(waits(at) && lock.is_taken_by_waiters);
        }
        let mut named = [false; MAX_LOCKS];
        let mut is_first = true;
        for frame in task.stand.frames.iter().filter(|frame| !frame.is_wait) {
            let mut machine = Self::machine(&task.stand, frame);
            machine.store(&mut self.code.pages, task.stand.limit, 8, Value::of(0));
            // Behind a call that does not return begins another function.
            let is_last = self.tasks.function(frame.pc.wrapping_sub(1)).is_none_or(|(_, end)| end == frame.pc);
            let called = self.code.call_before(frame.pc);
            let is_last =
                is_last || matches!(called, Some(Call::To(function)) if self.tasks.call(function) == TaskCall::Never);
            let ahead = match is_last {
                true => [LockUse::default(); MAX_LOCKS],
                false => TaskWays::run(&mut self.code, self.tasks, wanted, acts, machine.clone(), debts),
            };
            let pending = self.pending(frame, &machine, wanted, debts, acts);
            for (at, lock) in wanted.iter().enumerate() {
                let ahead = ahead[at];
                // A frame that goes on to take the lock may have given it up for a while, or reads again; one that waits for it may
                // have put off its release before. The way to where it stands tells.
                let is_doubtful = ahead.takes || is_first && waits(at);
                let is_pending = pending[at] && (!is_doubtful || self.has_taken(task, frame, lock));
                let before = debts[at];
                if ahead.takes {
                    self.will_take.insert((index, from + at));
                }
                if ahead.ends || ahead.takes {
                    debts[at] = i8::from(ahead.keeps || !ahead.ends);
                }
                let releases = ahead.releases && !ahead.takes;
                // In a loop whose conditions are not known one release looks like two.
                let is_twice = lock.what == TaskUse::Exclusive && waits(at) && before > 0;
                if named[at] || !(is_pending || releases && !is_twice) {
                    continue;
                }
                named[at] = true;
                let how = if is_pending { TaskReason::Deferred } else { TaskReason::Releases };
                self.found.clues.push(TaskClue { task: index, wanted: from + at, frame: RemoteAddr(frame.pc), how });
            }
            is_first = false;
        }
    }

    /// Which of `wanted` the calls release that a frame has put off.
    fn pending(
        &mut self,
        frame: &TaskFrame,
        machine: &Machine,
        wanted: &[WantedUse],
        debts: [i8; MAX_LOCKS],
        acts: &mut Acts,
    ) -> [bool; MAX_LOCKS] {
        let mut pending = [false; MAX_LOCKS];
        for closure in &frame.deferred {
            let mut machine = machine.clone();
            let Some(entry) = machine.load(&mut self.code.pages, *closure, 8).get(8) else { continue };
            machine.set_sp(frame.sp.wrapping_sub(8));
            machine.regs[TASK_CONTEXT] = Value::of(*closure);
            machine.pc = entry;
            let seen: [LockUse; MAX_LOCKS] = TaskWays::run(&mut self.code, self.tasks, wanted, acts, machine, debts);
            for (pending, seen) in pending.iter_mut().zip(seen) {
                *pending |= seen.releases && !seen.takes;
            }
        }
        pending
    }

    /// Whether a task has taken `lock` in the function of `frame`, whichever way it came to where it stands.
    fn has_taken(&mut self, task: &FollowedTask, frame: &TaskFrame, lock: &WantedUse) -> bool {
        let Some(machine) = self.entry(task, frame) else { return false };
        TaskWays::taken_before(&mut self.code, self.tasks, &[*lock], machine, (frame.pc, frame.sp))[0]
    }

    /// The beginning of a frame's function.
    fn entry(&mut self, task: &FollowedTask, frame: &TaskFrame) -> Option<Machine> {
        let (start, _) = self.tasks.function(frame.pc.wrapping_sub(1))?;
        let mut machine = Machine::of_task(start, frame.top.wrapping_sub(8), 0, task.stand.own);
        machine.store(&mut self.code.pages, task.stand.limit, 8, Value::of(0));
        Some(machine)
    }

    /// Whether nobody was found for a lock that somebody took.
    fn is_missing(&self, index: usize) -> bool {
        self.wanted[index].what == TaskUse::Exclusive && self.found.clues.iter().all(|clue| clue.wanted != index)
    }

    /// Finds tasks that took a lock on their way here, and will never release it as far as is seen.
    fn look_behind(&mut self, index: usize, task: &FollowedTask, stack: Vec<u8>, missing: &[usize]) {
        let may_have = |at: &usize| task.waits_for != Some(*at) && !self.will_take.contains(&(index, *at));
        let missing: Vec<usize> = missing.iter().copied().filter(may_have).collect();
        if missing.is_empty() || self.code.is_spent() {
            return;
        }
        let Some(first) = task.stand.frames.first() else { return };
        self.code.pages.set_stack(first.sp, stack);
        let wanted: Vec<WantedUse> = missing.iter().map(|at| self.wanted[*at]).collect();
        for frame in task.stand.frames.iter().filter(|frame| !frame.is_wait) {
            let Some(machine) = self.entry(task, frame) else { continue };
            let taken = TaskWays::taken_before(&mut self.code, self.tasks, &wanted, machine, (frame.pc, frame.sp));
            let clues = missing.iter().zip(taken).filter(|(_, taken)| *taken).map(|(at, _)| TaskClue {
                task: index,
                wanted: *at,
                frame: RemoteAddr(frame.pc),
                how: TaskReason::Took,
            });
            self.found.clues.extend(clues);
        }
    }
}

//! What a task would do with locks and channels if it went on from a place: all ways it may go, as far as a budget reaches.

use super::code::Code;
use super::explore::{LockUse, MAX_LOCKS};
use super::machine::{Atomic, Change, Machine, Next, Value};
use super::standing::{self, Standing, packed};
use super::tasks::WantedUse;
use crate::arch::insn::table::{RESULT, SECOND_RESULT, STACK_POINTER, TASK_ARGUMENTS, TASK_CONTEXT, TASK_KEPT};
use crate::arch::insn::{Insn, Op, Operand};
use crate::by_number::ByWords;
use crate::runtimes::{Effect, TaskCall, TaskCode, TaskUse};
use std::collections::BTreeSet;

/// Instructions from one place on.
const STEPS: usize = 6_000;
/// Of these, those inside of one call; then it is taken to come back without having touched anything.
const STEPS_IN_CALL: usize = 800;
/// Calls inside of calls that are followed.
const MAX_DEPTH: usize = 12;
/// Ways that wait to be gone.
const MAX_WAYS: usize = 64;
/// Channels of one choice.
const MAX_CASES: u64 = 256;
/// Bytes between two of them.
const CASE: u64 = 16;

#[derive(Clone)]
struct Way {
    machine: Machine,
    locks: [Standing; MAX_LOCKS],
    calls: Vec<Entered>,
}

/// A call on the way, to come back from it.
#[derive(Clone)]
struct Entered {
    back: u64,
    sp: u64,
    kept: [Value; 2],
    /// Whether another task does what is done here.
    is_other: bool,
}

/// What was done to objects besides locks.
pub(super) type Acts = BTreeSet<(u64, TaskUse)>;

/// The exploration from one place.
pub(super) struct TaskWays<'e, 'c> {
    code: &'e mut Code<'c>,
    tasks: &'e dyn TaskCode,
    wanted: &'e [WantedUse],
    acts: &'e mut Acts,
    seen: [LockUse; MAX_LOCKS],
    visited: ByWords<(u64, u64, u64), ()>,
    /// By outermost call: its steps.
    spent: ByWords<(u64, u64), usize>,
    ways: Vec<Way>,
    steps: usize,
    /// The call of the first function that the task stands in: where it comes back to.
    arrival: Option<(u64, u64)>,
    /// Whether each lock was held on all ways that came to the arrival, if one did.
    held: Option<[bool; MAX_LOCKS]>,
}

impl<'e, 'c> TaskWays<'e, 'c> {
    fn new(
        code: &'e mut Code<'c>,
        tasks: &'e dyn TaskCode,
        wanted: &'e [WantedUse],
        acts: &'e mut Acts,
        mut machine: Machine,
        owed: [i8; MAX_LOCKS],
    ) -> Self {
        // When the task goes on, the words of the locks will be others.
        for lock in wanted {
            for (at, size) in lock.words() {
                machine.store(&mut code.pages, lock.address.0.wrapping_add(at), size, Value::UNKNOWN);
            }
        }
        Self {
            code,
            tasks,
            wanted,
            acts,
            seen: [LockUse::default(); MAX_LOCKS],
            visited: ByWords::default(),
            spent: ByWords::default(),
            ways: vec![Way { machine, locks: owed.map(Standing::Open), calls: Vec::new() }],
            steps: 0,
            arrival: None,
            held: None,
        }
    }

    /// Explores from `machine` on. `owed[i]`: how often lock `i` was taken shortly before. Other things that are done are added
    /// to `acts`.
    pub(super) fn run(
        code: &'e mut Code<'c>,
        tasks: &'e dyn TaskCode,
        wanted: &'e [WantedUse],
        acts: &'e mut Acts,
        machine: Machine,
        owed: [i8; MAX_LOCKS],
    ) -> [LockUse; MAX_LOCKS] {
        let mut ways = Self::new(code, tasks, wanted, acts, machine, owed);
        ways.go_all();
        ways.seen
    }

    /// Which locks a task has taken, and not released, on all ways from `machine` to the place `pc` with the stack pointer `sp`.
    pub(super) fn taken_before(
        code: &'e mut Code<'c>,
        tasks: &'e dyn TaskCode,
        wanted: &'e [WantedUse],
        machine: Machine,
        place: (u64, u64),
    ) -> [bool; MAX_LOCKS] {
        let mut acts = Acts::new();
        let mut ways = TaskWays::new(code, tasks, wanted, &mut acts, machine, [0; MAX_LOCKS]);
        ways.arrival = Some(place);
        ways.go_all();
        ways.held.filter(|_| ways.steps <= STEPS).unwrap_or_default()
    }

    fn go_all(&mut self) {
        while let Some(way) = self.ways.pop() {
            self.go(way);
        }
    }

    fn go(&mut self, mut way: Way) {
        loop {
            self.steps += 1;
            if self.steps > STEPS || !self.code.spend() {
                self.ended(&way);
                self.ways.clear();
                return;
            }
            if let Some(outer) = way.calls.first() {
                let spent = self.spent.entry((outer.back, outer.sp)).or_default();
                *spent += 1;
                if *spent > STEPS_IN_CALL {
                    way.calls.truncate(1);
                    if !self.come_back(&mut way) {
                        return;
                    }
                    continue;
                }
            }
            let at = way.machine.pc;
            let Some(insn) = self.code.insn(at) else { return self.ended(&way) };
            if self.arrival.is_some() && way.calls.is_empty() {
                self.recall(&mut way, &insn);
            }
            let (next, atomic) = way.machine.step(&mut self.code.pages, &insn);
            if let Some(atomic) = atomic {
                self.change(&mut way, &atomic);
            }
            // It stands in a call, which may never come back.
            let is_call = matches!(next, Next::Call(_)) && way.calls.is_empty();
            if is_call && self.arrival == Some((way.machine.pc, way.machine.sp().unwrap_or(0))) {
                return self.arrived(&way);
            }
            let alive = match next {
                Next::On => true,
                Next::Jump(Some(target)) => self.jump(&mut way, at, target, &insn),
                Next::Either(target) => {
                    self.fork(&way, target);
                    self.arrive(&way) || self.come_back(&mut way)
                }
                Next::Call(target) => self.call(&mut way, target),
                Next::Return | Next::Jump(None) if way.calls.is_empty() => {
                    self.ended(&way);
                    false
                }
                Next::Return => self.come_back_with_result(&mut way),
                Next::Jump(None) => self.come_back(&mut way),
                Next::End => false,
            };
            if !alive {
                return;
            }
        }
    }

    /// What a function has put onto its stack is still there: where it puts what is not known, that is known.
    fn recall(&mut self, way: &mut Way, insn: &Insn) {
        let (Op::Mov, Operand::Mem(mem), Operand::Reg(from), 8) = (insn.op, insn.dst, insn.src, insn.size) else {
            return;
        };
        let register = usize::from(from);
        let is_on_stack = mem.base.map(usize::from) == Some(STACK_POINTER) && mem.index.is_none();
        if !is_on_stack || way.machine.regs[register].get(8).is_some() {
            return;
        }
        if let Some(slot) = way.machine.sp().map(|sp| sp.wrapping_add_signed(mem.disp)) {
            way.machine.regs[register] = way.machine.load(&mut self.code.pages, slot, 8);
        }
    }

    /// Whether a way that is here now has not been gone before.
    fn arrive(&mut self, way: &Way) -> bool {
        let place = (way.machine.pc, way.machine.sp().unwrap_or(0), packed(&way.locks[..self.wanted.len()]));
        self.visited.insert(place, ()).is_none()
    }

    fn fork(&mut self, way: &Way, target: u64) {
        if self.ways.len() >= MAX_WAYS {
            // Who asks for all ways gets no answer.
            if self.arrival.is_some() {
                self.steps = STEPS;
            }
            return;
        }
        let mut other = way.clone();
        other.machine.pc = target;
        if self.arrive(&other) {
            self.ways.push(other);
        }
    }

    fn jump(&mut self, way: &mut Way, at: u64, target: u64, insn: &Insn) -> bool {
        let leaves = self.tasks.function(at).is_none_or(|(start, end)| !(start..end).contains(&target));
        if leaves {
            // A call whose return is ours.
            let is_outermost = way.calls.is_empty();
            match self.tasks.call(target) {
                TaskCall::Code => {}
                call => {
                    let going = self.act(way, call);
                    if is_outermost && going {
                        self.ended(way);
                    }
                    return going && !is_outermost && self.come_back(way);
                }
            }
        }
        let behind = std::mem::replace(&mut way.machine.pc, target);
        if self.arrive(way) {
            return true;
        }
        // Round a loop: what comes behind it, or back from the call that loops.
        way.machine.pc = behind;
        matches!(insn.op, Op::Jcc(_)) && self.arrive(way) || self.come_back(way)
    }

    fn call(&mut self, way: &mut Way, target: Option<u64>) -> bool {
        let call = target.map_or(TaskCall::Plain, |target| self.tasks.call(target));
        match (call, target) {
            (TaskCall::Code, Some(target)) if way.calls.len() < MAX_DEPTH && way.machine.sp().is_some() => {
                self.enter(way, target, false)
            }
            (TaskCall::Begins, _) => {
                let closure = way.machine.regs[TASK_ARGUMENTS[0]].get(8);
                let entry = closure.and_then(|at| way.machine.load(&mut self.code.pages, at, 8).get(8));
                match entry.filter(|_| way.calls.len() < MAX_DEPTH && way.machine.sp().is_some()) {
                    Some(entry) if self.tasks.call(entry) == TaskCall::Code => {
                        way.machine.regs[TASK_CONTEXT] = closure.into();
                        self.enter(way, entry, true)
                    }
                    _ => {
                        way.machine.after_task_call();
                        true
                    }
                }
            }
            (TaskCall::Makes, _) => {
                way.machine.after_task_call();
                way.machine.regs[RESULT] = Value::of(new_memory(way.machine.pc));
                true
            }
            (call, _) => {
                let going = self.act(way, call);
                way.machine.after_task_call();
                going
            }
        }
    }

    fn enter(&mut self, way: &mut Way, target: u64, is_begun: bool) -> bool {
        let (back, sp) = (way.machine.pc, way.machine.sp().unwrap_or(0));
        let kept = TASK_KEPT.map(|number| way.machine.regs[number]);
        let is_other = is_begun || way.calls.last().is_some_and(|call| call.is_other);
        way.calls.push(Entered { back, sp, kept, is_other });
        way.machine.push(&mut self.code.pages, Value::of(back));
        way.machine.pc = target;
        self.arrive(way) || self.come_back(way)
    }

    /// What a call does that is not gone into; whether it comes back.
    fn act(&mut self, way: &mut Way, call: TaskCall) -> bool {
        let argument = |number: usize| way.machine.regs[TASK_ARGUMENTS[number]].get(8);
        match call {
            TaskCall::Never => return false,
            TaskCall::Acts(what, effect, before) => {
                if let Some(object) = argument(0) {
                    self.note(way, object.wrapping_sub(before), what, effect);
                }
            }
            TaskCall::ReceivesFromSecond => {
                if let Some(channel) = argument(1) {
                    self.acts.insert((channel, TaskUse::Receive));
                }
            }
            TaskCall::Counts => {
                if let (Some(object), Some(by)) = (argument(0), argument(1)) {
                    let effect = if (by as i64) < 0 { Effect::Release } else { Effect::Take };
                    self.note(way, object, TaskUse::Group, effect);
                }
            }
            TaskCall::Chooses => {
                if let (Some(cases), Some(sends), Some(receives)) = (argument(0), argument(3), argument(4)) {
                    for number in 0..sends.saturating_add(receives).min(MAX_CASES) {
                        let at = cases.wrapping_add(number * CASE);
                        let what = if number < sends { TaskUse::Send } else { TaskUse::Receive };
                        if let Some(channel) = way.machine.load(&mut self.code.pages, at, 8).get(8) {
                            self.acts.insert((channel, what));
                        }
                    }
                }
            }
            // Of a function that is behind a task, what it had put off is not seen any more: that may have been a release.
            TaskCall::EndsDeferred if self.arrival.is_some() => {
                for standing in way.locks.iter_mut().filter(|standing| matches!(standing, Standing::Taken(_))) {
                    *standing = Standing::Released;
                }
            }
            TaskCall::Code | TaskCall::Plain | TaskCall::Begins | TaskCall::Makes | TaskCall::EndsDeferred => {}
        }
        true
    }

    /// Back from the innermost call, of which nothing else is known; from further ones while that leads only where ways have
    /// been before.
    fn come_back(&mut self, way: &mut Way) -> bool {
        while self.leave(way) {
            way.machine.after_task_call();
            if self.arrive(way) {
                return true;
            }
        }
        false
    }

    /// Back from a call whose return was reached.
    fn come_back_with_result(&mut self, way: &mut Way) -> bool {
        let results = (way.machine.regs[RESULT], way.machine.regs[SECOND_RESULT]);
        let other = TASK_ARGUMENTS.map(|number| way.machine.regs[number]);
        if !self.leave(way) {
            return false;
        }
        way.machine.after_task_call();
        for (number, value) in TASK_ARGUMENTS.into_iter().zip(other) {
            way.machine.regs[number] = value;
        }
        (way.machine.regs[RESULT], way.machine.regs[SECOND_RESULT]) = results;
        self.arrive(way) || self.come_back(way)
    }

    fn leave(&mut self, way: &mut Way) -> bool {
        let Some(entered) = way.calls.pop() else { return false };
        for (number, value) in TASK_KEPT.into_iter().zip(entered.kept) {
            way.machine.regs[number] = value;
        }
        way.machine.set_sp(entered.sp);
        way.machine.pc = entered.back;
        true
    }

    fn change(&mut self, way: &mut Way, atomic: &Atomic) {
        let Some(at) = atomic.addr else { return };
        for lock in self.wanted {
            let Some(place) = at.checked_sub(lock.address.0) else { continue };
            let done = match atomic.change {
                Change::Add(Some(by)) => self.tasks.added(place, atomic.size, by),
                Change::Exchange(Some(from), Some(to)) if place == 0 => self.tasks.exchanged(atomic.size, from, to),
                _ => None,
            };
            if let Some((what, effect)) = done.filter(|(what, _)| *what == lock.what) {
                self.note(way, lock.address.0, what, effect);
                return;
            }
        }
    }

    fn note(&mut self, way: &mut Way, object: u64, what: TaskUse, effect: Effect) {
        let is_other = way.calls.last().is_some_and(|call| call.is_other);
        if matches!(what, TaskUse::Send | TaskUse::Receive | TaskUse::Close | TaskUse::Wake) {
            self.acts.insert((object, what));
            return;
        }
        let Some(index) = self.wanted.iter().position(|lock| lock.address.0 == object && lock.what == what) else {
            return;
        };
        // Locks that a task takes that is begun here are not ours.
        if is_other && what != TaskUse::Group {
            return;
        }
        let most = if what == TaskUse::Exclusive { 1 } else { i8::MAX };
        let standing = way.locks[index];
        way.locks[index] = match (standing, effect) {
            (Standing::Released, Effect::Take) if self.arrival.is_some() => Standing::Taken(1),
            _ => standing.after(effect, most, &mut self.seen[index]),
        };
    }

    fn ended(&mut self, way: &Way) {
        standing::end(&mut self.seen, &way.locks);
    }

    fn arrived(&mut self, way: &Way) {
        let held = self.held.get_or_insert([true; MAX_LOCKS]);
        for (held, standing) in held.iter_mut().zip(way.locks) {
            *held &= standing.is_taken();
        }
    }
}

/// Where memory is taken to be that is made at `pc`, one object at each place: where the target can have none, so that only what is
/// written there on the way is known of it.
fn new_memory(pc: u64) -> u64 {
    const NOWHERE: u64 = 1 << 63;
    const LARGEST: u64 = 1 << 12;
    NOWHERE | (pc.wrapping_mul(LARGEST) & (NOWHERE - 1))
}

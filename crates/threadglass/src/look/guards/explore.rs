//! What a thread would do with some locks if it went on from a place: all ways it may go, as far as a
//! budget reaches.

use super::WantedLock;
use super::code::{Callee, Code};
use super::effect::{may_take, of_atomic, word_of};
use super::machine::{Atomic, Machine, Next, Value};
use super::standing::{self, Standing, packed};
use crate::arch::insn::table::{FIRST_ARGUMENT, PRESERVED, RESULT, SECOND_RESULT};
use crate::arch::insn::{Insn, Op};
use crate::by_number::ByWords;
use crate::model::SyncKind;
use crate::runtimes::{Effect, Function};

/// Instructions from one place on.
const STEPS: usize = 4_000;
/// Of these, those inside of one call; then it is taken to come back without having touched a lock.
const STEPS_IN_CALL: usize = 400;
/// The same where only registers matter, which calls leave alone.
const STEPS_IN_CALL_TO_ARRIVE: usize = 120;
/// Calls inside of calls that are followed.
const MAX_DEPTH: usize = 12;
/// Ways that wait to be gone.
const MAX_WAYS: usize = 64;
/// How often loops are gone round to see which registers they change.
const ROUNDS: u8 = 3;
/// Bytes of the stack in which guards are told apart.
const NEAR: u64 = 64 << 10;
/// Locks looked at together.
pub(super) const MAX_LOCKS: usize = 16;

/// What was seen of one lock on all ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LockUse {
    /// Released before it was taken.
    pub(super) releases: bool,
    /// Taken before it was released, or something that may be this.
    pub(super) takes: bool,
    /// Taken for sure, by an instruction or call that is about this lock.
    pub(super) takes_for_sure: bool,
    /// On some way it is still held by what was taken on this way when the function returns.
    pub(super) keeps: bool,
    /// A way came to the function's end.
    pub(super) ends: bool,
}

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
    preserved: [Value; 6],
    /// Which of the locks it was called for, counted from one; 0 for none. The same function does the same to another one.
    about: u64,
    /// What of its caller's stack it was given first, a guard for example; 0 for nothing. The same function does the same to
    /// another one of these, too.
    given: u64,
}

/// The exploration from one place.
pub(super) struct Explorer<'e, 'c> {
    code: &'e mut Code<'c>,
    wanted: &'e [&'e WantedLock],
    seen: [LockUse; MAX_LOCKS],
    visited: ByWords<(u64, u64, u64, u64), u8>,
    /// How often a way may come to the same place.
    rounds: u8,
    steps_in_call: usize,
    /// Calls that are not counted as such.
    base: usize,
    /// By outermost call: its steps.
    spent: ByWords<(u64, u64), usize>,
    ways: Vec<Way>,
    steps: usize,
    /// Where ways of the first function end.
    until: Option<u64>,
    arrival: Option<Arrival>,
    owed: [i8; MAX_LOCKS],
}

/// A place that the thread is known to have come to, and what it can have had there.
struct Arrival {
    pc: u64,
    sp: u64,
    /// Registers that are known to have these values there.
    known: Vec<(usize, u64)>,
    registers: Option<[Value; 16]>,
    /// What was done to the first lock on the way.
    done: Option<Done>,
    /// Whether the first lock is held on some way.
    may_have: bool,
    /// Whether what is done on all ways matters: an attempt that may fail takes nothing, and unknown code may have released
    /// everything.
    is_strict: bool,
}

/// What a thread has done to a lock on its way to where it stands, whichever way that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// Nothing.
    Nothing,
    /// Taken, and not released.
    Taken,
    /// That is not known, or is something else.
    Unclear,
}

impl<'e, 'c> Explorer<'e, 'c> {
    fn new(code: &'e mut Code<'c>, machine: Machine, owed: [i8; MAX_LOCKS]) -> Self {
        Self {
            code,
            wanted: &[],
            seen: [LockUse::default(); MAX_LOCKS],
            visited: ByWords::default(),
            rounds: 1,
            steps_in_call: STEPS_IN_CALL,
            base: 0,
            spent: ByWords::default(),
            ways: vec![Way { machine, locks: owed.map(Standing::Open), calls: Vec::new() }],
            steps: 0,
            until: None,
            arrival: None,
            owed,
        }
    }

    /// Explores from `machine` on, to `until` at most. `owed[i]`: how often lock `i` was taken shortly before.
    pub(super) fn run(
        code: &'e mut Code<'c>,
        wanted: &'e [&'e WantedLock],
        mut machine: Machine,
        owed: [i8; MAX_LOCKS],
        until: Option<u64>,
    ) -> [LockUse; MAX_LOCKS] {
        // When the thread goes on, the word will be another one: what the code makes of it is not decided by what it
        // is now. Libraries decide that out of sight.
        for lock in wanted.iter().filter(|lock| !word_of(lock).is_called) {
            machine.store(&mut code.pages, lock.address.0, lock.size.min(8) as u8, Value::UNKNOWN);
        }
        let mut explorer = Self { wanted, until, ..Self::new(code, machine, owed) };
        explorer.go_all();
        explorer.seen
    }

    /// The registers with which a thread comes from `machine` to `pc` with the stack pointer `sp`: those that
    /// are the same on all ways and in all rounds. `base`: calls in between. A way that ends with another value of a register
    /// that is `known` is not the one that the thread went.
    pub(super) fn arrival(
        code: &'e mut Code<'c>,
        machine: Machine,
        place: (u64, u64),
        base: usize,
        known: &[(usize, Option<u64>)],
    ) -> Option<[Value; 16]> {
        let new = Self::new(code, machine, [0; MAX_LOCKS]);
        let explorer = Self { rounds: ROUNDS, steps_in_call: STEPS_IN_CALL_TO_ARRIVE, base, ..new };
        let known = known.iter().filter_map(|(number, value)| Some((*number, (*value)?))).collect();
        explorer.arrive_at(Arrival { known, ..Arrival::new(place) })?.registers
    }

    /// What a thread has done to `lock`, which functions are called for, when it comes from `machine` to `pc` with the stack
    /// pointer `sp`.
    pub(super) fn done_before(
        code: &'e mut Code<'c>,
        lock: &'e [&'e WantedLock; 1],
        machine: Machine,
        place: (u64, u64),
        base: usize,
    ) -> Done {
        let new = Self::new(code, machine, [0; MAX_LOCKS]);
        let arrival = Self { wanted: lock, base, ..new }.arrive_at(Arrival { is_strict: true, ..Arrival::new(place) });
        arrival.and_then(|arrival| arrival.done).unwrap_or(Done::Unclear)
    }

    /// Whether a thread that takes `lock` at `machine` may come to `place` without having released it.
    pub(super) fn may_keep(
        code: &'e mut Code<'c>,
        lock: &'e [&'e WantedLock; 1],
        machine: Machine,
        place: (u64, u64),
    ) -> bool {
        let new = Self::new(code, machine, [0; MAX_LOCKS]);
        let arrival = Self { wanted: lock, ..new }.arrive_at(Arrival::new(place));
        arrival.is_some_and(|arrival| arrival.may_have)
    }

    fn arrive_at(mut self, arrival: Arrival) -> Option<Arrival> {
        self.arrival = Some(arrival);
        self.go_all();
        // What was not gone to the end may have had other values.
        self.arrival.filter(|_| self.steps <= STEPS)
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
            if let Some(outer) = way.calls.get(self.base) {
                let spent = self.spent.entry((outer.back, outer.sp)).or_default();
                *spent += 1;
                if *spent > self.steps_in_call {
                    way.calls.truncate(self.base + 1);
                    if !self.come_back(&mut way) {
                        return;
                    }
                    continue;
                }
            }
            if let Some(arrival) = self.arrival.as_mut().filter(|arrival| arrival.pc == way.machine.pc) {
                arrival.see(&way);
            }
            if way.calls.is_empty() && self.until == Some(way.machine.pc) {
                return self.ended(&way);
            }
            let at = way.machine.pc;
            let Some(insn) = self.code.insn(at) else { return self.ended(&way) };
            let (next, atomic) = way.machine.step(&mut self.code.pages, &insn);
            if let Some(atomic) = atomic {
                self.change(&mut way, &atomic);
            }
            let is_released = |lock: &Standing| *lock == Standing::Released;
            if self.arrival.is_none()
                && !self.wanted.is_empty()
                && way.locks[..self.wanted.len()].iter().all(is_released)
            {
                // Nothing more can be learned on this way.
                return;
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

    /// Whether a way that is here now has not been gone before.
    fn arrive(&mut self, way: &Way) -> bool {
        let about = way.calls.last().map_or(0, |call| call.given << 8 | call.about);
        let standings = packed(&way.locks[..self.wanted.len()]);
        let place = (way.machine.pc, way.machine.sp().unwrap_or(0), standings, about);
        let visits = self.visited.entry(place).or_default();
        *visits = visits.saturating_add(1);
        *visits <= self.rounds
    }

    fn fork(&mut self, way: &Way, target: u64) {
        if self.ways.len() >= MAX_WAYS {
            // All ways count there, and this one is not gone.
            if self.counts_to_arrive() {
                self.steps = STEPS;
            }
        } else {
            let mut other = way.clone();
            other.machine.pc = target;
            if self.arrive(&other) {
                self.ways.push(other);
            }
        }
    }

    fn jump(&mut self, way: &mut Way, at: u64, mut target: u64, insn: &Insn) -> bool {
        // A jump to a function's beginning is a call whose return is ours.
        if self.code.leaves(at, target) {
            match self.code.callee(target) {
                Callee::Named(named, may_fail) => {
                    let back = way.calls.is_empty();
                    let going = self.named(way, named, may_fail);
                    if back {
                        self.ended(way);
                    }
                    return going && !back && self.come_back(way);
                }
                // By way of a slot that nobody has called through yet.
                Callee::Code(function) => target = function,
                Callee::Opaque => {}
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
        let back = way.machine.pc;
        // Nothing is behind a call at a function's very end: it does not return.
        let last = self.code.ends_at(back);
        let callee = target.map_or(Callee::Opaque, |target| self.code.callee(target));
        match callee {
            Callee::Named(named, may_fail) => {
                if !self.named(way, named, may_fail) || last {
                    return false;
                }
            }
            Callee::Code(target) if way.calls.len() < MAX_DEPTH && way.machine.sp().is_some() => {
                let sp = way.machine.sp().unwrap_or(0);
                let preserved = PRESERVED.map(|number| way.machine.regs[number]);
                let (about, given) = (self.about(way), given(way, sp));
                way.calls.push(Entered { back, sp, preserved, about, given });
                way.machine.push(&mut self.code.pages, Value::of(back));
                way.machine.pc = target;
                return self.arrive(way) || self.come_back(way);
            }
            _ if last => return false,
            _ => {
                self.lose(way);
                way.machine.after_call();
            }
        }
        true
    }

    /// Which lock a call is for: the one that is its first argument, or that of the call it is in.
    fn about(&self, way: &Way) -> u64 {
        let argument = way.machine.regs[FIRST_ARGUMENT].get(8);
        let is_lock = |lock: &&WantedLock| Some(lock.address.0) == argument;
        let lock = self.wanted.iter().position(is_lock).map(|index| index as u64 + 1);
        lock.unwrap_or_else(|| way.calls.last().map_or(0, |call| call.about))
    }

    /// The effect of a call of a known function; whether it comes back.
    fn named(&mut self, way: &mut Way, named: Function, may_fail: bool) -> bool {
        match named {
            Function::Never => return false,
            Function::Plain | Function::Waits => way.machine.after_call(),
            Function::OnlyLock(effect, library) => {
                for (index, wanted) in self.wanted.iter().enumerate() {
                    if self.code.is_variable_of(wanted.address, library) {
                        self.note(way, index, effect);
                    }
                }
                way.machine.after_call();
            }
            Function::Lock(Effect::Take) if may_fail && self.counts_to_arrive() => way.machine.after_call(),
            Function::Lock(effect) => {
                let argument = way.machine.regs[FIRST_ARGUMENT].get(8);
                for (index, wanted) in self.wanted.iter().enumerate() {
                    match argument {
                        Some(addr) if addr == wanted.address.0 => self.note(way, index, effect),
                        None if self.counts_to_arrive() => self.lose(way),
                        None if effect == Effect::Take && word_of(wanted).is_called => self.unclear(way, index),
                        _ => {}
                    }
                }
                way.machine.after_call();
                // Where only registers matter, the thread may have come here after an attempt that has failed, too.
                if !(may_fail && self.wanted.is_empty()) {
                    way.machine.regs[RESULT] = Value::of(0);
                }
            }
        }
        true
    }

    /// Back from the innermost call, of which nothing else is known; from further ones while that leads
    /// only where ways have been before.
    fn come_back(&mut self, way: &mut Way) -> bool {
        while self.leave(way) {
            way.machine.after_call();
            if self.arrive(way) {
                return true;
            }
        }
        false
    }

    /// Back from a call whose return was reached.
    fn come_back_with_result(&mut self, way: &mut Way) -> bool {
        let results = (way.machine.regs[RESULT], way.machine.regs[SECOND_RESULT]);
        if !self.leave(way) {
            return false;
        }
        way.machine.after_call();
        (way.machine.regs[RESULT], way.machine.regs[SECOND_RESULT]) = results;
        self.arrive(way) || self.come_back(way)
    }

    /// Behind the innermost call; whether there is a place behind it.
    fn leave(&mut self, way: &mut Way) -> bool {
        let Some(entered) = way.calls.pop() else { return false };
        for (number, value) in PRESERVED.into_iter().zip(entered.preserved) {
            way.machine.regs[number] = value;
        }
        way.machine.set_sp(entered.sp);
        way.machine.pc = entered.back;
        !self.code.ends_at(entered.back)
    }

    fn change(&mut self, way: &mut Way, atomic: &Atomic) {
        for (index, wanted) in self.wanted.iter().enumerate() {
            if let Some(effect) = of_atomic(wanted, atomic) {
                // Inside of libc one release may change the word more than once: too many to count them.
                if effect == Effect::Release && self.owed[index] > 0 && word_of(wanted).is_called {
                    continue;
                }
                self.seen[index].takes_for_sure |= effect == Effect::Take;
                self.note(way, index, effect);
            } else if may_take(wanted, atomic) && !is_of_queue(wanted, index, way, atomic) {
                self.seen[index].takes_for_sure |= atomic.addr.is_some();
                self.unclear(way, index);
            }
        }
    }

    fn note(&mut self, way: &mut Way, index: usize, effect: Effect) {
        // Trying again to take what can be held once does not take it twice.
        let most = if self.wanted[index].kind == SyncKind::Mutex { 1 } else { i8::MAX };
        way.locks[index] = way.locks[index].after(effect, most, &mut self.seen[index]);
    }

    /// Whether what matters is which locks a thread has at its arrival.
    fn counts_to_arrive(&self) -> bool {
        self.arrival.as_ref().is_some_and(|arrival| arrival.is_strict)
    }

    /// Something on the way to an arrival that may have released any lock.
    fn lose(&self, way: &mut Way) {
        for standing in way.locks.iter_mut().filter(|standing| matches!(standing, Standing::Taken(_))) {
            if self.counts_to_arrive() {
                *standing = Standing::Released;
            }
        }
    }

    /// Something that may have taken the lock.
    fn unclear(&mut self, way: &mut Way, index: usize) {
        if let Standing::Open(_) = way.locks[index] {
            self.note(way, index, Effect::Take);
        }
    }

    fn ended(&mut self, way: &Way) {
        standing::end(&mut self.seen, &way.locks);
    }
}

/// What of the stack the call that comes next is given first, or else the call around it.
fn given(way: &Way, sp: u64) -> u64 {
    let argument = way.machine.regs[FIRST_ARGUMENT].get(8);
    let is_near = |at: &u64| at.wrapping_sub(sp) < NEAR;
    argument.filter(is_near).unwrap_or_else(|| way.calls.last().map_or(0, |call| call.given))
}

/// Whether `atomic` is about the queue of another lock than `wanted`, the one at `index`: the call was made for that one.
fn is_of_queue(wanted: &WantedLock, index: usize, way: &Way, atomic: &Atomic) -> bool {
    let about = way.calls.last().map_or(0, |call| call.about);
    atomic.addr.is_none() && word_of(wanted).has_queue && about != 0 && about != index as u64 + 1
}

impl Arrival {
    fn new((pc, sp): (u64, u64)) -> Self {
        Self { pc, sp, known: Vec::new(), registers: None, done: None, may_have: false, is_strict: false }
    }

    fn see(&mut self, way: &Way) {
        let machine = &way.machine;
        let is_other = |(number, value): &(usize, u64)| machine.regs[*number].get(8).is_some_and(|now| now != *value);
        if machine.sp() != Some(self.sp) || self.known.iter().any(is_other) {
            return;
        }
        self.may_have |= way.locks[0].is_taken();
        let registers = self.registers.get_or_insert(machine.regs);
        for (known, now) in registers.iter_mut().zip(machine.regs) {
            if *known != now {
                *known = Value::UNKNOWN;
            }
        }
        let done = match way.locks[0] {
            Standing::Open(0) => Done::Nothing,
            Standing::Taken(1..) => Done::Taken,
            _ => Done::Unclear,
        };
        let before = self.done.get_or_insert(done);
        if *before != done {
            *before = Done::Unclear;
        }
    }
}

//! The target's code and the memory it works on, each place looked at once.

use super::pages::Pages;
use crate::RemoteAddr;
use crate::arch::insn::{Insn, LONGEST, Op, Operand, decode};
use crate::by_number::ByAddress;
use crate::runtimes::{self, Function};
use crate::symbols::Symbolizer;
use crate::unwind::{Call, Known, Space, through_stubs, unbound_import};
use std::collections::HashSet;

/// Bytes of a function that are decoded.
pub(super) const MAX_FUNCTION: u64 = 64 << 10;
/// Places that are remembered.
const MAX_PLACES: usize = 1 << 20;
/// Instructions of one look, whatever the target makes of it.
const BUDGET: usize = 20_000_000;

/// Functions begin at multiples of this.
const ALIGNMENT: u64 = 16;
/// Instructions between two looks at the clock.
const BETWEEN_CLOCKS: usize = 256;

/// What is at the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callee {
    /// A function of another library, known by its name; whether it may come back without having taken its lock.
    Named(Function, bool),
    /// Code to go into.
    Code(u64),
    /// Something else.
    Opaque,
}

impl Callee {
    /// The function `name`.
    fn named(name: &str) -> Self {
        Self::Named(runtimes::function(name), runtimes::may_fail(name))
    }

    /// The function of a lock that begins at `function`, in a program that contains it.
    fn inside(names: &Symbolizer<'_>, function: u64) -> Option<Self> {
        let named = Self::named(&names.enclosing_function(RemoteAddr(function))?);
        matches!(named, Self::Named(Function::Lock(_), _)).then_some(named)
    }

    /// What is at `target`.
    fn of(space: &Space<'_>, target: u64) -> Self {
        if !space.is_code(target) {
            return Self::Opaque;
        }
        let function = through_stubs(space, target);
        // A slot that nobody has called through yet still has its name.
        if function == target
            && let Some(name) = unbound_import(space, target)
        {
            return match Self::named(&name) {
                Self::Named(Function::Plain, _) => space
                    .export_of(&name)
                    .filter(|found| space.is_code(*found) && !space.is_libc(*found))
                    .map_or(Self::named(&name), Self::Code),
                named => named,
            };
        }
        match space.exported(function).map(|name| Self::named(&name)) {
            Some(Self::Named(Function::Plain, _)) | None if !space.is_libc(function) => Self::Code(function),
            None => Self::Opaque,
            Some(named) => named,
        }
    }
}

pub(super) struct Code<'c> {
    space: &'c Space<'c>,
    /// Names of functions that are not exported, where they matter.
    names: Option<Symbolizer<'c>>,
    pub(super) known: Known,
    pub(super) pages: Pages<'c>,
    insns: ByAddress<Option<Insn>>,
    callees: ByAddress<Callee>,
    /// By address: whether a function ends there.
    ends: ByAddress<bool>,
    spent: usize,
    budget: usize,
}

impl<'c> Code<'c> {
    pub(super) fn new(space: &'c Space<'c>) -> Self {
        Self {
            space,
            names: None,
            known: Known::default(),
            pages: Pages::new(space.memory),
            insns: ByAddress::default(),
            callees: ByAddress::default(),
            ends: ByAddress::default(),
            spent: 0,
            budget: BUDGET,
        }
    }

    /// Lets functions that are not exported be known by name as well.
    pub(super) fn name_all(&mut self, names: Symbolizer<'c>) {
        self.names = Some(names);
    }

    /// Takes one instruction off the budget.
    pub(super) fn spend(&mut self) -> bool {
        self.spent += 1;
        if self.spent.is_multiple_of(BETWEEN_CLOCKS) && self.space.is_late() {
            self.budget = 0;
        }
        self.spent <= self.budget
    }

    /// Whether all that may be followed was.
    pub(super) fn is_spent(&self) -> bool {
        self.spent >= self.budget || self.space.is_late()
    }

    /// Allows `steps` more instructions at most.
    pub(super) fn limit(&mut self, steps: usize) {
        self.budget = self.budget.min(self.spent.saturating_add(steps));
    }

    /// Allows as many instructions from now on, also where others were not enough.
    pub(super) fn allow(&mut self, steps: usize) {
        self.budget = self.spent.saturating_add(steps);
    }

    pub(super) fn insn(&mut self, addr: u64) -> Option<Insn> {
        let Self { insns, pages, space, .. } = self;
        remembered(insns, addr, || {
            let mut bytes = [0; LONGEST];
            let got = pages.code(addr, &mut bytes);
            Some(got).filter(|_| space.is_code(addr)).and_then(|got| decode(&bytes[..got]))
        })
    }

    /// The call that returns to `back`.
    pub(super) fn call_before(&mut self, back: u64) -> Option<Call> {
        self.known.call(self.space, back)
    }

    /// What a call of `target` leads to.
    pub(super) fn callee(&mut self, target: u64) -> Callee {
        let Self { callees, space, names, .. } = self;
        remembered(callees, target, || match (Callee::of(space, target), names) {
            (Callee::Code(function), Some(names)) => Callee::inside(names, function).unwrap_or(Callee::Code(function)),
            (known, _) => known,
        })
    }

    /// Whether `addr` is in the object whose file is called `library`.
    pub(super) fn is_variable_of(&self, addr: RemoteAddr, library: &str) -> bool {
        self.space.file_name_at(addr.0).is_some_and(|name| name.starts_with(library))
    }

    /// Begin and end of the function around `addr`.
    pub(super) fn function(&mut self, addr: u64) -> Option<(u64, u64)> {
        self.known.row(self.space, addr).map(|row| row.function)
    }

    /// Whether the code that begins at `from` comes to the call that returns to `to`, in the same function.
    pub(super) fn reaches(&mut self, from: u64, to: u64) -> bool {
        let Some((begin, end)) = self.function(from.wrapping_sub(1)) else { return false };
        let (mut seen, mut open) = (HashSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            if !(begin..end).contains(&at) || !seen.insert(at) || !self.spend() {
                continue;
            }
            let Some(insn) = self.insn(at) else { continue };
            let next = at.wrapping_add(u64::from(insn.len));
            if next == to && insn.op == Op::Call {
                return true;
            }
            let target = match insn.src {
                Operand::Imm(by) => Some(next.wrapping_add_signed(by)),
                _ => None,
            };
            match insn.op {
                Op::Jmp => open.extend(target),
                Op::Jcc(_) => open.extend([Some(next), target].into_iter().flatten()),
                Op::Ret | Op::Stop => {}
                _ => open.push(next),
            }
        }
        false
    }

    /// Whether a jump from `pc` to `target` leaves the function.
    pub(super) fn leaves(&mut self, pc: u64, target: u64) -> bool {
        self.function(pc).is_none_or(|(start, end)| target <= start || target >= end)
    }

    /// Whether a function ends at `addr`, behind a call that does not return.
    pub(super) fn ends_at(&mut self, addr: u64) -> bool {
        let Self { known, space, ends, .. } = self;
        let mut function = |at: u64| known.row(space, at).map(|row| row.function);
        remembered(ends, addr, || match function(addr.wrapping_sub(1)) {
            Some((_, end)) => end == addr,
            // Of code without a table it is known where the next function begins, if that has one.
            None => addr
                .checked_next_multiple_of(ALIGNMENT)
                .is_some_and(|next| function(next).is_some_and(|(begin, _)| begin == next)),
        })
    }
}

/// What was found for `addr` before, or is now.
fn remembered<V: Copy>(known: &mut ByAddress<V>, addr: u64, find: impl FnOnce() -> V) -> V {
    if known.len() >= MAX_PLACES {
        known.clear();
    }
    *known.entry(addr).or_insert_with(find)
}

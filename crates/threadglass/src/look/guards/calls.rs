//! Which functions a function calls, as its code says.

use super::code::{Code, MAX_FUNCTION};
use crate::RemoteAddr;
use crate::arch::insn::{Op, Operand};
use crate::elf::demangle;
use crate::memory::Memory;
use crate::symbols::Symbolizer;
use crate::unwind::{Call, Space, through_stubs, unbound_import};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Functions whose code is read for one look, and how deep calls are followed.
const MAX_FUNCTIONS: usize = 512;
const DEPTH: usize = 2;

/// A call of another function: where the call returns to, where that function begins, and its name, demangled.
type CallOf = (u64, u64, Option<String>);

/// Reads the code of functions on stacks.
pub(crate) struct CallReader<'c> {
    space: &'c Space<'c>,
    symbolizer: Symbolizer<'c>,
    code: Code<'c>,
    known: HashMap<u64, Rc<Vec<CallOf>>>,
    /// Names of functions that are called, by where they begin.
    names: HashMap<u64, Option<String>>,
}

impl<'c> CallReader<'c> {
    pub(crate) fn new(space: &'c Space<'c>, symbolizer: Symbolizer<'c>) -> Self {
        Self { space, symbolizer, code: Code::new(space), known: HashMap::new(), names: HashMap::new() }
    }

    /// Where the function around `addr` begins.
    pub(crate) fn function(&mut self, addr: RemoteAddr) -> Option<u64> {
        self.code.function(addr.0).map(|(start, _)| start)
    }

    /// Whether the call that returns to `back` goes by way of a register or a table of functions.
    pub(crate) fn is_indirect(&mut self, back: RemoteAddr) -> bool {
        self.code.call_before(back.0) == Some(Call::Indirect)
    }

    /// The name of the function around `addr`, demangled.
    pub(crate) fn name(&self, addr: RemoteAddr) -> Option<String> {
        self.symbolizer.enclosing_function(addr)
    }

    /// Whether the call that returns to `back` is in a loop with another one that leads to a function whose name `is` tells.
    pub(crate) fn loops_with(&mut self, back: RemoteAddr, is: &dyn Fn(&str) -> bool) -> bool {
        let Some(start) = self.function(RemoteAddr(back.0.wrapping_sub(1))) else { return false };
        let calls = self.calls(start);
        let others = calls.iter().filter(|(returns_to, ..)| *returns_to != back.0);
        let awaited = others.filter(|(_, callee, name)| name.as_deref().is_some_and(is) || self.leads_to(*callee, is));
        let awaited: Vec<u64> = awaited.map(|(returns_to, ..)| *returns_to).collect();
        awaited.into_iter().any(|other| self.code.reaches(back.0, other) && self.code.reaches(other, back.0))
    }

    /// Whether the function around `addr` calls one whose name `is` tells, and which leads to one whose name `then` tells.
    pub(crate) fn calls_that_call(
        &mut self,
        addr: RemoteAddr,
        is: &dyn Fn(&str) -> bool,
        then: &dyn Fn(&str) -> bool,
    ) -> bool {
        let Some(start) = self.function(addr) else { return false };
        let calls = self.calls(start);
        let mut named = calls.iter().filter(|(_, _, name)| name.as_deref().is_some_and(is));
        named.any(|(_, callee, _)| self.leads_to(*callee, then))
    }

    /// Whether the function at `start`, or one that it calls, calls one whose name `is` tells.
    fn leads_to(&mut self, start: u64, is: &dyn Fn(&str) -> bool) -> bool {
        let mut seen = HashSet::from([start]);
        let mut level = vec![start];
        for _ in 0..DEPTH {
            let mut next = Vec::new();
            for function in level.into_iter().filter(|function| !self.space.is_libc(*function)).collect::<Vec<_>>() {
                for (_, callee, name) in self.calls(function).iter() {
                    if name.as_deref().is_some_and(is) {
                        return true;
                    }
                    if seen.insert(*callee) {
                        next.push(*callee);
                    }
                }
            }
            level = next;
        }
        false
    }

    /// The calls of fixed functions in the one that begins at `start`, in the order of its code.
    fn calls(&mut self, start: u64) -> Rc<Vec<CallOf>> {
        if let Some(known) = self.known.get(&start) {
            return known.clone();
        }
        let calls = if self.known.len() < MAX_FUNCTIONS { self.read(start) } else { None };
        let calls = Rc::new(calls.unwrap_or_default());
        self.known.insert(start, calls.clone());
        calls
    }

    fn read(&mut self, start: u64) -> Option<Vec<CallOf>> {
        let (begin, end) = self.code.function(start)?;
        let end = end.min(begin.saturating_add(MAX_FUNCTION));
        let (mut calls, mut at) = (Vec::new(), begin);
        while at < end && self.code.spend() {
            let Some(insn) = self.code.insn(at) else { break };
            let next = at.wrapping_add(u64::from(insn.len));
            let target = match (insn.op, insn.src) {
                (Op::Call | Op::Jmp, Operand::Imm(by)) => Some(next.wrapping_add_signed(by)),
                (Op::Call | Op::Jmp, Operand::Mem(slot)) if slot.pc_relative => {
                    self.word(next.wrapping_add_signed(slot.disp))
                }
                _ => None,
            };
            if let Some(target) = target.filter(|target| !(begin..end).contains(target)) {
                calls.push(self.call_of(next, target));
            }
            at = next;
        }
        Some(calls)
    }

    fn call_of(&mut self, back: u64, target: u64) -> CallOf {
        let function = through_stubs(self.space, target);
        if let Some(name) = self.names.get(&function) {
            return (back, function, name.clone());
        }
        let import = if function == target { unbound_import(self.space, target) } else { None };
        let name =
            import.map(|name| demangle(&name)).or_else(|| self.symbolizer.enclosing_function(RemoteAddr(function)));
        let name = name.or_else(|| self.space.exported(function).map(|name| demangle(&name)));
        let name = name.map(|name| name.split('@').next().unwrap_or_default().to_owned());
        self.names.insert(function, name.clone());
        (back, function, name)
    }

    fn word(&self, addr: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let memory: &dyn Memory = self.space.memory;
        memory.read_exact(RemoteAddr(addr), &mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes)).filter(|target| self.space.is_code(*target))
    }
}

//! A thread's registers and memory as they would become, had it gone on: nothing is run, nothing is
//! written anywhere but here. What is not known stays unknown through all that is computed from it.

use super::pages::Pages;
use crate::arch::insn::table::{
    CHANGED_BY_CALL, CHANGED_BY_STRING, CHANGED_BY_SYSCALL, FRAME_POINTER, RESULT, SECOND_RESULT, STACK_POINTER, TASK,
    TASK_KEPT, TASK_ZERO,
};
use crate::arch::insn::{Alu, Insn, Mem, Op, Operand, register};
use crate::arch::syscall::{EXIT, EXIT_GROUP};

/// Words that one path may write.
const MAX_WRITES: usize = 512;

/// A number of which each byte is known or not. Unknown bytes have no bits set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    bits: u64,
    /// One bit for each byte.
    known: u8,
}

impl Value {
    pub(super) const UNKNOWN: Self = Self { bits: 0, known: 0 };

    pub(super) fn of(bits: u64) -> Self {
        Self { bits, known: 0xff }
    }

    /// Its lowest `size` bytes, if all are known.
    pub(super) fn get(self, size: u8) -> Option<u64> {
        let need = byte_mask(size);
        (self.known & need == need).then_some(self.bits & bit_mask(size))
    }

    /// The bytes that are the same in both.
    fn common(self, other: Self) -> Self {
        let is_same = |byte: &u8| {
            let both = self.known & other.known & 1 << byte != 0;
            both && (self.bits ^ other.bits) >> (8 * u32::from(*byte)) & 0xff == 0
        };
        let known = (0..8).filter(is_same).fold(0, |known, byte| known | 1 << byte);
        let bits = (0..8).filter(is_same).fold(0, |bits, byte| bits | self.bits & 0xff << (8 * u32::from(byte)));
        Self { bits, known }
    }

    /// Its lowest `size` bytes replaced; a write of four clears the rest, as registers have it.
    fn replaced(self, new: Self, size: u8) -> Self {
        match size {
            8 => new,
            4 => Self { bits: new.bits & bit_mask(4), known: new.known | 0xf0 },
            _ => {
                let (bits, bytes) = (bit_mask(size), byte_mask(size));
                Self { bits: self.bits & !bits | new.bits & bits, known: self.known & !bytes | new.known & bytes }
            }
        }
    }
}

impl From<Option<u64>> for Value {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Self::UNKNOWN, Self::of)
    }
}

fn byte_mask(size: u8) -> u8 {
    if size >= 8 { 0xff } else { (1 << size) - 1 }
}

fn bit_mask(size: u8) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (8 * u32::from(size))) - 1 }
}

/// What the last comparison said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flags {
    zero: bool,
    sign: bool,
    carry: bool,
    overflow: bool,
}

/// The state at one point of a path.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) pc: u64,
    /// In the order of the encoding.
    pub(super) regs: [Value; 16],
    vectors: [Option<(u64, u64)>; 16],
    flags: Option<Flags>,
    /// Words written on the way, by address.
    writes: Vec<(u64, Value)>,
    /// Whether memory is taken to stay as it is.
    pub(super) is_exact: bool,
    /// Where thread-local data is counted from, if that is known.
    pub(super) thread_pointer: Option<u64>,
}

/// A change of memory that other threads may notice: what locks are taken and released by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Atomic {
    /// `None` where it is not known.
    pub(super) addr: Option<u64>,
    pub(super) size: u8,
    pub(super) change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Replaced by this, whatever it was.
    Swap(Option<u64>),
    /// By this much.
    Add(Option<i64>),
    /// From this to that, if it is this.
    Exchange(Option<u64>, Option<u64>),
}

/// What comes after an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// The one behind it.
    On,
    Jump(Option<u64>),
    /// A jump that may or may not be taken: it is not known which.
    Either(u64),
    Call(Option<u64>),
    Return,
    End,
}

impl Machine {
    pub(super) fn new(pc: u64, regs: [Value; 16]) -> Self {
        Self { pc, regs, vectors: [None; 16], flags: None, writes: Vec::new(), is_exact: false, thread_pointer: None }
    }

    /// Of which nothing but the stack pointer is known.
    pub(super) fn at(pc: u64, sp: u64) -> Self {
        let mut machine = Self::new(pc, [Value::UNKNOWN; 16]);
        machine.set_sp(sp);
        machine
    }

    /// A task at `pc`: after a call only these registers are known.
    pub(super) fn of_task(pc: u64, sp: u64, frame_pointer: u64, task: u64) -> Self {
        let mut machine = Self::at(pc, sp);
        machine.regs[FRAME_POINTER] = Value::of(frame_pointer);
        machine.regs[TASK] = Value::of(task);
        machine.vectors[TASK_ZERO] = Some((0, 0));
        machine
    }

    /// Forgets what a function of tasks may change: nearly everything.
    pub(super) fn after_task_call(&mut self) {
        let is_kept = |number: usize| number == STACK_POINTER || TASK_KEPT.contains(&number);
        for number in (0..self.regs.len()).filter(|number| !is_kept(*number)) {
            self.regs[number] = Value::UNKNOWN;
        }
        self.vectors = [None; 16];
        self.vectors[TASK_ZERO] = Some((0, 0));
        self.flags = None;
    }

    pub(super) fn sp(&self) -> Option<u64> {
        self.regs[STACK_POINTER].get(8)
    }

    pub(super) fn set_sp(&mut self, sp: u64) {
        self.regs[STACK_POINTER] = Value::of(sp);
    }

    /// Forgets what a function may change.
    pub(super) fn after_call(&mut self) {
        CHANGED_BY_CALL.into_iter().for_each(|number| self.regs[number] = Value::UNKNOWN);
        self.vectors = [None; 16];
        self.flags = None;
    }

    /// Where an operand is, of the instruction that `pc` is behind.
    fn address(&self, mem: &Mem) -> Option<u64> {
        let mut addr = if mem.pc_relative { self.pc } else { 0 };
        if mem.segment {
            addr = self.thread_pointer?;
        }
        if let Some(base) = mem.base {
            addr = addr.wrapping_add(self.regs[usize::from(base)].get(8)?);
        }
        if let Some((index, scale)) = mem.index {
            addr = addr.wrapping_add(self.regs[usize::from(index)].get(8)?.wrapping_mul(u64::from(scale)));
        }
        Some(addr.wrapping_add_signed(mem.disp))
    }

    /// Where an operand of `insn` is, which `pc` is at.
    pub(super) fn address_of(&self, insn: &Insn, mem: &Mem) -> Option<u64> {
        let behind = if mem.pc_relative { u64::from(insn.len) } else { 0 };
        Some(self.address(mem)?.wrapping_add(behind))
    }

    /// Whether words can still be written.
    pub(super) fn has_room(&self) -> bool {
        self.writes.len() + 2 <= MAX_WRITES
    }

    /// Whether this machine is where `other` is, in the same frame.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.pc == other.pc && self.sp() == other.sp()
    }

    /// What this machine and `other`, which is at the same place, have in common: all else is unknown.
    pub(super) fn widened(&self, pages: &mut Pages<'_>, other: &Self) -> Self {
        let mut wider = self.clone();
        wider.vectors = [None; 16];
        wider.flags = self.flags.filter(|_| self.flags == other.flags);
        for (register, other) in wider.regs.iter_mut().zip(other.regs) {
            *register = register.common(other);
        }
        for (addr, value) in &mut wider.writes {
            *value = value.common(other.word(pages, *addr));
        }
        for (addr, value) in &other.writes {
            if self.writes.iter().all(|(own, _)| own != addr) {
                wider.writes.push((*addr, value.common(self.word(pages, *addr))));
            }
        }
        wider
    }

    /// Whether this machine and `other`, which is at the same place and has written no other words, know the same.
    pub(super) fn is_like(&self, pages: &mut Pages<'_>, other: &Self) -> bool {
        let same = self.regs == other.regs && self.flags == other.flags;
        same && self.writes.iter().all(|(addr, value)| *value == other.word(pages, *addr))
    }

    pub(super) fn load(&self, pages: &mut Pages<'_>, addr: u64, size: u8) -> Value {
        let aligned = addr & !7;
        let shift = addr - aligned;
        let low = self.word(pages, aligned);
        let (mut bits, mut known) = (low.bits >> (8 * shift), low.known >> shift);
        if shift + u64::from(size) > 8 {
            let high = self.word(pages, aligned.wrapping_add(8));
            bits |= high.bits << (64 - 8 * shift);
            known |= high.known << (8 - shift);
        }
        Value { bits: bits & bit_mask(size), known: known & byte_mask(size) }
    }

    fn word(&self, pages: &mut Pages<'_>, aligned: u64) -> Value {
        match self.writes.iter().find(|(addr, _)| *addr == aligned) {
            Some((_, value)) => *value,
            None => pages.word(aligned).into(),
        }
    }

    pub(super) fn store(&mut self, pages: &mut Pages<'_>, addr: u64, size: u8, value: Value) {
        let aligned = addr & !7;
        let shift = (addr - aligned) as u32;
        self.merge(pages, aligned, value.bits.wrapping_shl(8 * shift), value.known << shift, byte_mask(size) << shift);
        if shift + u32::from(size) > 8 {
            let done = 8 - shift;
            let rest = byte_mask(size) >> done;
            self.merge(pages, aligned.wrapping_add(8), value.bits >> (8 * done), value.known >> done, rest);
        }
    }

    fn merge(&mut self, pages: &mut Pages<'_>, aligned: u64, bits: u64, known: u8, bytes: u8) {
        let old = self.word(pages, aligned);
        let mask = (0..8).filter(|byte| bytes >> byte & 1 == 1).fold(0u64, |mask, byte| mask | 0xff << (8 * byte));
        let new = Value { bits: old.bits & !mask | bits & mask, known: old.known & !bytes | known & bytes };
        if let Some((_, value)) = self.writes.iter_mut().find(|(addr, _)| *addr == aligned) {
            *value = new;
        } else if self.writes.len() < MAX_WRITES {
            self.writes.push((aligned, new));
        }
    }

    fn read(&self, pages: &mut Pages<'_>, operand: Operand, size: u8) -> Value {
        match operand {
            Operand::Reg(number) => self.regs[usize::from(number)],
            Operand::High(number) => {
                let value = self.regs[usize::from(number)];
                Value { bits: value.bits >> 8, known: value.known >> 1 }
            }
            Operand::Imm(value) => Value::of(value as u64),
            Operand::Mem(mem) => self.address(&mem).map_or(Value::UNKNOWN, |addr| self.load(pages, addr, size.min(8))),
            Operand::None | Operand::Vector(_) => Value::UNKNOWN,
        }
    }

    fn write(&mut self, pages: &mut Pages<'_>, operand: Operand, size: u8, value: Value) {
        match operand {
            Operand::Reg(number) => {
                let register = &mut self.regs[usize::from(number)];
                *register = register.replaced(value, size);
            }
            Operand::High(number) => {
                let register = &mut self.regs[usize::from(number)];
                let bits = register.bits & !0xff00 | (value.bits & 0xff) << 8;
                *register = Value { bits, known: register.known & !2 | (value.known & 1) << 1 };
            }
            Operand::Vector(number) => self.vectors[usize::from(number & 15)] = None,
            Operand::Mem(mem) => {
                let Some(addr) = self.address(&mem) else { return };
                for piece in 0..u64::from(size.div_ceil(8)) {
                    self.store(pages, addr.wrapping_add(8 * piece), size.min(8), value);
                }
            }
            Operand::None | Operand::Imm(_) => {}
        }
    }

    pub(super) fn push(&mut self, pages: &mut Pages<'_>, value: Value) {
        let slot = self.sp().map(|sp| sp.wrapping_sub(8));
        self.regs[STACK_POINTER] = slot.into();
        if let Some(slot) = slot {
            self.store(pages, slot, 8, value);
        }
    }

    pub(super) fn pop(&mut self, pages: &mut Pages<'_>) -> Value {
        let Some(sp) = self.sp() else { return Value::UNKNOWN };
        self.set_sp(sp.wrapping_add(8));
        self.load(pages, sp, 8)
    }

    /// Does the instruction at `pc`, which is behind it then. Tells what comes next, and what the instruction does
    /// to memory that other threads may see.
    pub(super) fn step(&mut self, pages: &mut Pages<'_>, insn: &Insn) -> (Next, Option<Atomic>) {
        self.pc = self.pc.wrapping_add(u64::from(insn.len));
        let atomic = self.atomic(pages, insn);
        (self.execute(pages, insn), atomic)
    }

    fn atomic(&self, pages: &mut Pages<'_>, insn: &Insn) -> Option<Atomic> {
        let (size, dst) = (insn.size, insn.dst);
        // An exchange with memory is locked without saying so.
        let is_locked = insn.lock || insn.op == Op::Xchg && matches!(dst, Operand::Mem(_));
        if !is_locked {
            return None;
        }
        let (old, by) = (self.read(pages, dst, size).get(size), self.read(pages, insn.src, size).get(size));
        let signed = by.map(|by| sign_extended(by, size));
        let change = match insn.op {
            Op::Xchg => Change::Swap(by),
            Op::Inc => Change::Add(Some(1)),
            Op::Dec => Change::Add(Some(-1)),
            Op::Xadd | Op::Alu(Alu::Add) => Change::Add(signed),
            Op::Alu(Alu::Sub) => Change::Add(signed.map(i64::wrapping_neg)),
            Op::Cmpxchg => Change::Exchange(self.regs[RESULT].get(size), by),
            // Of nothing, into the stack: a fence.
            Op::Alu(Alu::Or) if by == Some(0) => return None,
            // Bits set or cleared: what that means depends on the lock.
            Op::Alu(Alu::Or) => Change::Exchange(old, old.zip(by).map(|(old, by)| old | by)),
            Op::Alu(_) => Change::Exchange(old, old.zip(by).map(|(old, by)| old & by)),
            _ => return None,
        };
        let addr = if let Operand::Mem(mem) = dst { self.address(&mem) } else { None };
        Some(Atomic { addr, size, change })
    }

    fn execute(&mut self, pages: &mut Pages<'_>, insn: &Insn) -> Next {
        let (size, dst, src) = (insn.size, insn.dst, insn.src);
        let to_destination = match insn.op {
            Op::Mov => self.read(pages, src, size),
            Op::Movzx(from) => {
                let value = self.read(pages, src, from);
                Value { bits: value.bits & bit_mask(from), known: value.known | !byte_mask(from) }
            }
            Op::Movsx(from) => {
                self.read(pages, src, from).get(from).map(|bits| sign_extended(bits, from) as u64).into()
            }
            Op::Lea => {
                let Operand::Mem(mem) = src else { return Next::End };
                self.address(&mem).into()
            }
            Op::Alu(Alu::Cmp) => {
                self.alu(pages, insn, Alu::Cmp);
                return Next::On;
            }
            Op::Alu(kind) => self.alu(pages, insn, kind),
            Op::Test => {
                let (a, b) = (self.read(pages, dst, size), self.read(pages, src, size));
                self.flags = and(a, b, size).map(|bits| logic(bits, size));
                return Next::On;
            }
            Op::Inc | Op::Dec => {
                let carry = self.flags.map(|flags| flags.carry);
                let kind = if insn.op == Op::Inc { Alu::Add } else { Alu::Sub };
                let new = self.alu(pages, &Insn { src: Operand::Imm(1), ..*insn }, kind);
                self.flags = self.flags.map(|flags| Flags { carry: carry.unwrap_or(flags.carry), ..flags });
                new
            }
            Op::Neg => {
                let old = self.read(pages, dst, size).get(size);
                self.flags = old.map(|old| difference(0, old, size));
                old.map(u64::wrapping_neg).into()
            }
            Op::Not => self.read(pages, dst, size).get(size).map(|old| !old).into(),
            Op::Shl | Op::Shr | Op::Sar => {
                let most = if size == 8 { 63 } else { 31 };
                let count = self.read(pages, src, 1).get(1).map(|count| count as u32 & most);
                let value = self.read(pages, dst, size).get(size);
                let shifted = value.zip(count).map(|(value, count)| match insn.op {
                    Op::Shl => value << count,
                    Op::Shr => value >> count,
                    _ => (sign_extended(value, size) >> count) as u64,
                });
                // The last bit that leaves is the carry. No condition that compilers make of a shift asks for its overflow.
                let bits = 8 * u32::from(size.min(8));
                let last = value.zip(count).and_then(|(value, count)| match insn.op {
                    Op::Shl => Some(value.checked_shr(bits.checked_sub(count)?).unwrap_or(0) & 1 == 1),
                    _ => Some(value.checked_shr(count.checked_sub(1)?).unwrap_or(0) & 1 == 1),
                });
                // Of a thread at rest, what it shifts is mostly the count of a lock, which will be another one when it goes on.
                if !self.is_exact {
                    self.flags = None;
                } else if count != Some(0) {
                    self.flags = shifted.zip(last).map(|(new, carry)| Flags { carry, ..logic(new, size) });
                }
                shifted.into()
            }
            Op::Push => {
                let value = self.read(pages, src, 8);
                self.push(pages, value);
                return Next::On;
            }
            Op::Pop => self.pop(pages),
            Op::Leave => {
                self.regs[STACK_POINTER] = self.regs[FRAME_POINTER];
                self.regs[FRAME_POINTER] = self.pop(pages);
                return Next::On;
            }
            Op::Call => return Next::Call(self.target(pages, src)),
            Op::Jmp => return Next::Jump(self.target(pages, src)),
            Op::Jcc(condition) => {
                let Operand::Imm(distance) = src else { return Next::End };
                let target = self.pc.wrapping_add_signed(distance);
                return match self.holds(condition) {
                    Some(true) => Next::Jump(Some(target)),
                    Some(false) => Next::On,
                    None => Next::Either(target),
                };
            }
            Op::Setcc(condition) => self.holds(condition).map(u64::from).into(),
            Op::Cmov(condition) => {
                let (old, new) = (self.read(pages, dst, size), self.read(pages, src, size));
                match self.holds(condition) {
                    Some(true) => new,
                    Some(false) => old,
                    None if old.get(size) == new.get(size) => old,
                    None => Value::UNKNOWN,
                }
            }
            Op::Ret => return Next::Return,
            Op::Xchg => {
                let (a, b) = (self.read(pages, dst, size), self.read(pages, src, size));
                self.write(pages, dst, size, b);
                self.write(pages, src, size, a);
                return Next::On;
            }
            Op::Xadd => {
                let (a, b) = (self.read(pages, dst, size).get(size), self.read(pages, src, size).get(size));
                self.flags = a.zip(b).map(|(a, b)| sum(a, b, size));
                self.write(pages, src, size, a.into());
                a.zip(b).map(|(a, b)| a.wrapping_add(b)).into()
            }
            Op::Cmpxchg => {
                let (expected, old) = (self.regs[RESULT].get(size), self.read(pages, dst, size));
                match expected.zip(old.get(size)) {
                    Some((expected, old)) if expected != old => {
                        self.flags = Some(difference(expected, old, size));
                        self.write(pages, Operand::Reg(register::RESULT), size, Value::of(old));
                        return Next::On;
                    }
                    // Taken to succeed where that is not known: the other way is a loop, or a wait.
                    _ => {
                        self.flags = Some(Flags { zero: true, sign: false, carry: false, overflow: false });
                        self.read(pages, src, size)
                    }
                }
            }
            Op::MovVector => {
                self.move_vector(pages, insn);
                return Next::On;
            }
            Op::ZeroVector => {
                if let Operand::Vector(number) = dst {
                    self.vectors[usize::from(number & 15)] = Some((0, 0));
                }
                return Next::On;
            }
            Op::Extend => {
                let extended = match dst {
                    Operand::Reg(register::SECOND_RESULT) => {
                        self.regs[RESULT].get(size).map(|bits| sign_extended(bits, size) >> 63)
                    }
                    _ => self.regs[RESULT].get(size / 2).map(|bits| sign_extended(bits, size / 2)),
                };
                extended.map(|bits| bits as u64).into()
            }
            Op::Nop => return Next::On,
            Op::Stop => return Next::End,
            Op::Syscall => {
                let call = self.regs[RESULT].get(4).map(|number| number as i64);
                if call == Some(EXIT) || call == Some(EXIT_GROUP) {
                    return Next::End;
                }
                CHANGED_BY_SYSCALL.into_iter().for_each(|number| self.regs[number] = Value::UNKNOWN);
                return Next::On;
            }
            Op::Other => {
                self.flags = None;
                (self.regs[RESULT], self.regs[SECOND_RESULT]) = (Value::UNKNOWN, Value::UNKNOWN);
                self.write(pages, src, size, Value::UNKNOWN);
                Value::UNKNOWN
            }
            Op::String => {
                self.flags = None;
                CHANGED_BY_STRING.into_iter().for_each(|number| self.regs[number] = Value::UNKNOWN);
                Value::UNKNOWN
            }
        };
        self.write(pages, dst, size, to_destination);
        Next::On
    }

    fn target(&self, pages: &mut Pages<'_>, operand: Operand) -> Option<u64> {
        match operand {
            Operand::Imm(distance) => Some(self.pc.wrapping_add_signed(distance)),
            operand => self.read(pages, operand, 8).get(8),
        }
    }

    /// Sets the flags, and gives the result.
    fn alu(&mut self, pages: &mut Pages<'_>, insn: &Insn, kind: Alu) -> Value {
        let (size, dst, src) = (insn.size, insn.dst, insn.src);
        let (a, b) = (self.read(pages, dst, size), self.read(pages, src, size));
        // A register against itself is known without knowing it.
        let itself = dst == src && matches!(dst, Operand::Reg(_));
        let both = if itself && matches!(kind, Alu::Xor | Alu::Sub | Alu::Cmp) {
            Some((0, 0))
        } else {
            a.get(size).zip(b.get(size))
        };
        let carry = self.flags.map(|flags| u64::from(flags.carry));
        let with_carry = both.zip(carry).map(|((a, b), carry)| (a, b, carry));
        let new = match kind {
            Alu::Add => both.map(|(a, b)| a.wrapping_add(b)),
            Alu::Sub | Alu::Cmp => both.map(|(a, b)| a.wrapping_sub(b)),
            Alu::And => and(a, b, size),
            Alu::Or => both.map(|(a, b)| a | b),
            Alu::Xor => both.map(|(a, b)| a ^ b),
            // `sbb %eax,%eax` makes a mask of the carry.
            Alu::Sbb if itself => carry.map(u64::wrapping_neg),
            Alu::Adc => with_carry.map(|(a, b, carry)| a.wrapping_add(b).wrapping_add(carry)),
            Alu::Sbb => with_carry.map(|(a, b, carry)| a.wrapping_sub(b).wrapping_sub(carry)),
        };
        self.flags = match kind {
            Alu::Add => both.map(|(a, b)| sum(a, b, size)),
            Alu::Sub | Alu::Cmp => both.map(|(a, b)| difference(a, b, size)),
            Alu::And | Alu::Or | Alu::Xor => new.map(|new| logic(new, size)),
            Alu::Adc | Alu::Sbb => None,
        };
        new.into()
    }

    fn move_vector(&mut self, pages: &mut Pages<'_>, insn: &Insn) {
        let is_whole = insn.size == 16;
        let value = match insn.src {
            Operand::Vector(number) => self.vectors[usize::from(number & 15)],
            Operand::Mem(mem) => self.address(&mem).and_then(|addr| {
                let low = self.load(pages, addr, 8).get(8)?;
                let high = if is_whole { self.load(pages, addr.wrapping_add(8), 8).get(8)? } else { 0 };
                Some((low, high))
            }),
            operand => self.read(pages, operand, 8).get(8).map(|low| (low, 0)),
        };
        let (low, high) = value.unzip();
        match insn.dst {
            Operand::Vector(number) => {
                self.vectors[usize::from(number & 15)] = low.zip(if is_whole { high } else { Some(0) });
            }
            Operand::Mem(mem) => {
                let Some(addr) = self.address(&mem) else { return };
                self.store(pages, addr, 8, low.into());
                if is_whole {
                    self.store(pages, addr.wrapping_add(8), 8, high.into());
                }
            }
            operand => self.write(pages, operand, 8, low.into()),
        }
    }

    /// Whether condition `number` (as jumps encode it) holds.
    fn holds(&self, number: u8) -> Option<bool> {
        let Flags { zero, sign, carry, overflow } = self.flags?;
        let holds = match number >> 1 {
            0 => overflow,
            1 => carry,
            2 => zero,
            3 => carry || zero,
            4 => sign,
            6 => sign != overflow,
            7 => zero || sign != overflow,
            // Parity.
            _ => return None,
        };
        Some(holds ^ (number & 1 == 1))
    }
}

/// Both: where one is known to have no bits, the other does not matter.
fn and(a: Value, b: Value, size: u8) -> Option<u64> {
    let known = |value: Value, byte: u8| value.known >> byte & 1 == 1;
    let zero = |value: Value, byte: u8| known(value, byte) && value.bits >> (8 * u32::from(byte)) & 0xff == 0;
    let whole = (0..size).all(|byte| zero(a, byte) || zero(b, byte) || known(a, byte) && known(b, byte));
    whole.then_some(a.bits & b.bits & bit_mask(size))
}

fn sign_extended(bits: u64, size: u8) -> i64 {
    let unused = 64 - 8 * u32::from(size.clamp(1, 8));
    (bits << unused) as i64 >> unused
}

fn logic(bits: u64, size: u8) -> Flags {
    flags(bits & bit_mask(size), false, 0, size)
}

fn sum(a: u64, b: u64, size: u8) -> Flags {
    let (a, b) = (a & bit_mask(size), b & bit_mask(size));
    let result = a.wrapping_add(b) & bit_mask(size);
    flags(result, result < a, (a ^ result) & (b ^ result), size)
}

fn difference(a: u64, b: u64, size: u8) -> Flags {
    let (a, b) = (a & bit_mask(size), b & bit_mask(size));
    let result = a.wrapping_sub(b) & bit_mask(size);
    flags(result, a < b, (a ^ b) & (a ^ result), size)
}

/// Flags after `result`. The sign of `signs` says whether it overflowed.
fn flags(result: u64, carry: bool, signs: u64, size: u8) -> Flags {
    let is_negative = |bits| sign_extended(bits, size) < 0;
    Flags { zero: result == 0, sign: is_negative(result), carry, overflow: is_negative(signs) }
}

//! A thread's registers and memory as they would become, had it gone on: nothing is run, nothing is
//! written anywhere but here. What is not known stays unknown through all that is computed from it.

use super::pages::Pages;
use crate::arch::insn::table::{
    CHANGED_BY_CALL, CHANGED_BY_SYSCALL, FRAME_POINTER, RESULT, SECOND_RESULT, STACK_POINTER,
};
use crate::arch::insn::{Alu, Insn, Mem, Op, Operand, register};

/// Words that one path may write.
const MAX_WRITES: usize = 512;

/// A number of which each byte is known or not.
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
#[derive(Clone, Copy, Debug)]
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
        Self { pc, regs, vectors: [None; 16], flags: None, writes: Vec::new() }
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

    fn address(&self, mem: &Mem, end: u64) -> Option<u64> {
        if mem.segment {
            return None;
        }
        let mut addr = if mem.pc_relative { end } else { 0 };
        if let Some(base) = mem.base {
            addr = addr.wrapping_add(self.regs[usize::from(base)].get(8)?);
        }
        if let Some((index, scale)) = mem.index {
            addr = addr.wrapping_add(self.regs[usize::from(index)].get(8)?.wrapping_mul(u64::from(scale)));
        }
        Some(addr.wrapping_add_signed(mem.disp))
    }

    pub(super) fn load(&self, pages: &mut Pages<'_>, addr: u64, size: u8) -> Value {
        let aligned = addr & !7;
        let shift = addr - aligned;
        let low = self.word(pages, aligned);
        if shift == 0 {
            return Value { bits: low.bits & bit_mask(size), known: low.known & byte_mask(size) };
        }
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

    fn read(&self, pages: &mut Pages<'_>, operand: Operand, size: u8, end: u64) -> Value {
        match operand {
            Operand::Reg(number) => self.regs[usize::from(number)],
            Operand::High(number) => {
                let value = self.regs[usize::from(number)];
                Value { bits: value.bits >> 8, known: value.known >> 1 }
            }
            Operand::Imm(value) => Value::of(value as u64),
            Operand::Mem(mem) => {
                self.address(&mem, end).map_or(Value::UNKNOWN, |addr| self.load(pages, addr, size.min(8)))
            }
            Operand::None | Operand::Vector(_) => Value::UNKNOWN,
        }
    }

    fn write(&mut self, pages: &mut Pages<'_>, operand: Operand, size: u8, end: u64, value: Value) {
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
                let Some(addr) = self.address(&mem, end) else { return };
                for piece in 0..u64::from(size.div_ceil(8)) {
                    self.store(pages, addr.wrapping_add(8 * piece), size.min(8), value);
                }
            }
            Operand::None | Operand::Imm(_) => {}
        }
    }

    fn push(&mut self, pages: &mut Pages<'_>, value: Value) {
        let slot = self.sp().map(|sp| sp.wrapping_sub(8));
        self.regs[STACK_POINTER] = slot.into();
        if let Some(slot) = slot {
            self.store(pages, slot, 8, value);
        }
    }

    /// Puts a return address on the stack.
    pub(super) fn push_return(&mut self, pages: &mut Pages<'_>, back: u64) {
        self.push(pages, Value::of(back));
    }

    fn pop(&mut self, pages: &mut Pages<'_>) -> Value {
        let Some(sp) = self.sp() else { return Value::UNKNOWN };
        self.set_sp(sp.wrapping_add(8));
        self.load(pages, sp, 8)
    }

    /// Does one instruction, and tells what comes next; what it does to memory that may be shared is added
    /// to `atomics`.
    pub(super) fn step(&mut self, pages: &mut Pages<'_>, insn: &Insn, atomics: &mut Vec<Atomic>) -> Next {
        let end = self.pc.wrapping_add(u64::from(insn.len));
        let (size, dst, src) = (insn.size, insn.dst, insn.src);
        match insn.op {
            Op::Mov => {
                let value = self.read(pages, src, size, end);
                self.write(pages, dst, size, end, value);
            }
            Op::Movzx(from) => {
                let value = self.read(pages, src, from, end);
                let value = Value {
                    bits: value.bits & bit_mask(from),
                    known: value.known & byte_mask(from) | !byte_mask(from),
                };
                self.write(pages, dst, size, end, value);
            }
            Op::Movsx(from) => {
                let value = self.read(pages, src, from, end).get(from).map(|bits| sign_extended(bits, from) as u64);
                self.write(pages, dst, size, end, value.into());
            }
            Op::Lea => {
                let Operand::Mem(mem) = src else { return Next::End };
                let addr = self.address(&mem, end);
                self.write(pages, dst, size, end, addr.into());
            }
            Op::Alu(kind) => self.alu(pages, insn, kind, end, atomics),
            Op::Test => {
                let (a, b) = (self.read(pages, dst, size, end), self.read(pages, src, size, end));
                self.flags = and(a, b, size).map(|bits| logic(bits, size));
            }
            Op::Inc | Op::Dec => {
                let delta = if insn.op == Op::Inc { 1 } else { -1 };
                if insn.lock {
                    atomics.push(self.atomic(insn, end, Change::Add(Some(delta))));
                }
                let old = self.read(pages, dst, size, end).get(size);
                let new = old.map(|old| old.wrapping_add_signed(delta) & bit_mask(size));
                let carry = self.flags.map(|flags| flags.carry);
                self.flags = old.map(|old| match delta {
                    1 => sum(old, 1, size),
                    _ => difference(old, 1, size),
                });
                if let (Some(flags), Some(carry)) = (&mut self.flags, carry) {
                    flags.carry = carry;
                }
                self.write(pages, dst, size, end, new.into());
            }
            Op::Neg | Op::Not => {
                let old = self.read(pages, dst, size, end).get(size);
                if insn.op == Op::Neg {
                    self.flags = old.map(|old| difference(0, old, size));
                }
                let new = old.map(|old| if insn.op == Op::Neg { old.wrapping_neg() } else { !old });
                self.write(pages, dst, size, end, new.into());
            }
            Op::Shl | Op::Shr | Op::Sar => {
                let count =
                    self.read(pages, src, 1, end).get(1).map(|count| count as u32 & if size == 8 { 63 } else { 31 });
                let value = self.read(pages, dst, size, end).get(size);
                let new = value.zip(count).map(|(value, count)| match insn.op {
                    Op::Shl => value << count,
                    Op::Shr => value >> count,
                    _ => (sign_extended(value, size) >> count) as u64,
                });
                // The carry is not worth its trouble: none of the conditions that follow shifts here need it.
                self.flags = None;
                self.write(pages, dst, size, end, new.into());
            }
            Op::Push => {
                let value = self.read(pages, src, 8, end);
                self.push(pages, value);
            }
            Op::Pop => {
                let value = self.pop(pages);
                self.write(pages, dst, 8, end, value);
            }
            Op::Leave => {
                self.regs[STACK_POINTER] = self.regs[FRAME_POINTER];
                self.regs[FRAME_POINTER] = self.pop(pages);
            }
            Op::Call => return Next::Call(self.target(pages, src, end)),
            Op::Jmp => return Next::Jump(self.target(pages, src, end)),
            Op::Jcc(condition) => {
                let Operand::Imm(distance) = src else { return Next::End };
                let target = end.wrapping_add_signed(distance);
                return match self.holds(condition) {
                    Some(true) => Next::Jump(Some(target)),
                    Some(false) => Next::On,
                    None => Next::Either(target),
                };
            }
            Op::Setcc(condition) => {
                let value = self.holds(condition).map(u64::from);
                self.write(pages, dst, 1, end, value.into());
            }
            Op::Cmov(condition) => {
                let (old, new) = (self.read(pages, dst, size, end), self.read(pages, src, size, end));
                let value = match self.holds(condition) {
                    Some(true) => new,
                    Some(false) => old,
                    None if old.get(size) == new.get(size) => old,
                    None => Value::UNKNOWN,
                };
                self.write(pages, dst, size, end, value);
            }
            Op::Ret => return Next::Return,
            Op::Xchg => {
                let (a, b) = (self.read(pages, dst, size, end), self.read(pages, src, size, end));
                if matches!(dst, Operand::Mem(_)) {
                    atomics.push(self.atomic(insn, end, Change::Swap(b.get(size))));
                }
                self.write(pages, dst, size, end, b);
                self.write(pages, src, size, end, a);
            }
            Op::Xadd => {
                let (a, b) = (self.read(pages, dst, size, end).get(size), self.read(pages, src, size, end).get(size));
                if insn.lock {
                    atomics.push(self.atomic(insn, end, Change::Add(b.map(|b| sign_extended(b, size)))));
                }
                self.flags = a.zip(b).map(|(a, b)| sum(a, b, size));
                self.write(pages, src, size, end, a.into());
                self.write(pages, dst, size, end, a.zip(b).map(|(a, b)| a.wrapping_add(b)).into());
            }
            Op::Cmpxchg => {
                let expected = self.regs[RESULT].get(size);
                let new = self.read(pages, src, size, end);
                if insn.lock {
                    atomics.push(self.atomic(insn, end, Change::Exchange(expected, new.get(size))));
                }
                let old = self.read(pages, dst, size, end);
                // Taken to succeed where that is not known: the other way is a loop, or a wait.
                self.flags = Some(Flags { zero: true, sign: false, carry: false, overflow: false });
                match expected.zip(old.get(size)) {
                    Some((expected, old)) if expected != old => {
                        self.flags = Some(difference(expected, old, size));
                        self.write(pages, Operand::Reg(register::RESULT), size, end, Value::of(old));
                    }
                    _ => self.write(pages, dst, size, end, new),
                }
            }
            Op::MovVector => self.move_vector(pages, insn, end),
            Op::ZeroVector => {
                if let Operand::Vector(number) = dst {
                    self.vectors[usize::from(number & 15)] = Some((0, 0));
                }
            }
            Op::Extend => {
                let value = match dst {
                    Operand::Reg(register::SECOND_RESULT) => {
                        self.regs[RESULT].get(size).map(|bits| (sign_extended(bits, size) >> 63) as u64)
                    }
                    _ => self.regs[RESULT].get(size / 2).map(|bits| sign_extended(bits, size / 2) as u64),
                };
                self.write(pages, dst, size, end, value.into());
            }
            Op::Nop => {}
            Op::Stop => return Next::End,
            Op::Syscall => CHANGED_BY_SYSCALL.into_iter().for_each(|number| self.regs[number] = Value::UNKNOWN),
            Op::Other => {
                self.flags = None;
                (self.regs[RESULT], self.regs[SECOND_RESULT]) = (Value::UNKNOWN, Value::UNKNOWN);
                self.write(pages, dst, size, end, Value::UNKNOWN);
            }
        }
        Next::On
    }

    fn target(&self, pages: &mut Pages<'_>, operand: Operand, end: u64) -> Option<u64> {
        match operand {
            Operand::Imm(distance) => Some(end.wrapping_add_signed(distance)),
            operand => self.read(pages, operand, 8, end).get(8),
        }
    }

    fn atomic(&self, insn: &Insn, end: u64, change: Change) -> Atomic {
        let addr = match &insn.dst {
            Operand::Mem(mem) => self.address(mem, end),
            _ => None,
        };
        Atomic { addr, size: insn.size, change }
    }

    fn alu(&mut self, pages: &mut Pages<'_>, insn: &Insn, kind: Alu, end: u64, atomics: &mut Vec<Atomic>) {
        let (size, dst, src) = (insn.size, insn.dst, insn.src);
        let (a, b) = (self.read(pages, dst, size, end), self.read(pages, src, size, end));
        // A register against itself is known without knowing it.
        let itself = dst == src && matches!(dst, Operand::Reg(_));
        let both = if itself && matches!(kind, Alu::Xor | Alu::Sub | Alu::Cmp) {
            Some((0, 0))
        } else {
            a.get(size).zip(b.get(size))
        };
        if insn.lock {
            let by = b.get(size).map(|b| sign_extended(b, size));
            let change = match kind {
                Alu::Add => Change::Add(by),
                Alu::Sub => Change::Add(by.map(i64::wrapping_neg)),
                // Bits set or cleared: what that means depends on the lock.
                _ => Change::Exchange(a.get(size), both.map(|(a, b)| if kind == Alu::Or { a | b } else { a & b })),
            };
            // A locked `or` of nothing into the stack is a fence.
            if b.get(size) != Some(0) || kind != Alu::Or {
                atomics.push(self.atomic(insn, end, change));
            }
        }
        let carry = self.flags.map(|flags| u64::from(flags.carry));
        let (new, flags) = match kind {
            Alu::Add => (both.map(|(a, b)| a.wrapping_add(b)), both.map(|(a, b)| sum(a, b, size))),
            Alu::Sub | Alu::Cmp => (both.map(|(a, b)| a.wrapping_sub(b)), both.map(|(a, b)| difference(a, b, size))),
            Alu::And => {
                let new = and(a, b, size);
                (new, new.map(|new| logic(new, size)))
            }
            Alu::Or => {
                let new = both.map(|(a, b)| a | b);
                (new, new.map(|new| logic(new, size)))
            }
            Alu::Xor => {
                let new = both.map(|(a, b)| a ^ b);
                (new, new.map(|new| logic(new, size)))
            }
            // `sbb %eax,%eax` makes a mask of the carry.
            Alu::Sbb if itself => (carry.map(u64::wrapping_neg), None),
            Alu::Adc => (both.zip(carry).map(|((a, b), carry)| a.wrapping_add(b).wrapping_add(carry)), None),
            Alu::Sbb => (both.zip(carry).map(|((a, b), carry)| a.wrapping_sub(b).wrapping_sub(carry)), None),
        };
        self.flags = flags;
        if kind != Alu::Cmp {
            self.write(pages, dst, size, end, new.map(|new| new & bit_mask(size)).into());
        }
    }

    fn move_vector(&mut self, pages: &mut Pages<'_>, insn: &Insn, end: u64) {
        let high = |addr: u64| addr.wrapping_add(8);
        let value = match insn.src {
            Operand::Vector(number) => self.vectors[usize::from(number & 15)],
            Operand::Mem(mem) => self.address(&mem, end).and_then(|addr| {
                let low = self.load(pages, addr, 8).get(8)?;
                let high = if insn.size == 16 { self.load(pages, high(addr), 8).get(8)? } else { 0 };
                Some((low, high))
            }),
            operand => self.read(pages, operand, 8, end).get(8).map(|low| (low, 0)),
        };
        match insn.dst {
            Operand::Vector(number) => {
                self.vectors[usize::from(number & 15)] =
                    value.map(|(low, high)| (low, if insn.size == 16 { high } else { 0 }));
            }
            Operand::Mem(mem) => {
                let Some(addr) = self.address(&mem, end) else { return };
                self.store(pages, addr, 8, value.map(|value| value.0).into());
                if insn.size == 16 {
                    self.store(pages, high(addr), 8, value.map(|value| value.1).into());
                }
            }
            operand => self.write(pages, operand, 8, end, value.map(|value| value.0).into()),
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
    let zero = |value: Value, byte: u8| value.known >> byte & 1 == 1 && value.bits >> (8 * u32::from(byte)) & 0xff == 0;
    let known = |value: Value, byte: u8| value.known >> byte & 1 == 1;
    let whole = (0..size).all(|byte| zero(a, byte) || zero(b, byte) || known(a, byte) && known(b, byte));
    whole.then(|| a.bits & b.bits & bit_mask(size) & keep(a, size) & keep(b, size))
}

/// The bits of the bytes that are known, and all of the others: unknown ones have no bits set.
fn keep(value: Value, size: u8) -> u64 {
    (0..size).filter(|byte| value.known >> byte & 1 == 1).fold(0, |mask, byte| mask | 0xff << (8 * u32::from(byte)))
}

fn sign_extended(bits: u64, size: u8) -> i64 {
    let unused = 64 - 8 * u32::from(size.clamp(1, 8));
    (bits << unused) as i64 >> unused
}

fn logic(bits: u64, size: u8) -> Flags {
    Flags { zero: bits & bit_mask(size) == 0, sign: sign_extended(bits, size) < 0, carry: false, overflow: false }
}

fn sum(a: u64, b: u64, size: u8) -> Flags {
    let (a, b) = (a & bit_mask(size), b & bit_mask(size));
    let result = a.wrapping_add(b) & bit_mask(size);
    let signs = sign_extended((a ^ result) & (b ^ result), size) < 0;
    Flags { zero: result == 0, sign: sign_extended(result, size) < 0, carry: result < a, overflow: signs }
}

fn difference(a: u64, b: u64, size: u8) -> Flags {
    let (a, b) = (a & bit_mask(size), b & bit_mask(size));
    let result = a.wrapping_sub(b) & bit_mask(size);
    let signs = sign_extended((a ^ b) & (a ^ result), size) < 0;
    Flags { zero: result == 0, sign: sign_extended(result, size) < 0, carry: a < b, overflow: signs }
}

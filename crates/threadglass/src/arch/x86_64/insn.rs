//! Instructions: how long each is, and what those do that move addresses about and release locks.
//!
//! Every instruction that compilers emit has its length here; what vectors, floats and the like do is
//! not known, only which register they may change.

/// The longest instruction there is.
pub const LONGEST: usize = 15;

/// Numbers of registers in the encoding's order (rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 .. r15), as operands have them.
pub mod register {
    /// What a function or a system call answers; what many instructions work on without naming it.
    pub const RESULT: u8 = 0;
    /// The second half of an answer.
    pub const SECOND_RESULT: u8 = 2;
    pub const STACK_POINTER: u8 = 4;
    pub const FRAME_POINTER: u8 = 5;
    pub const SECOND_ARGUMENT: u8 = 6;
    pub const FIRST_ARGUMENT: u8 = 7;
}

/// The same numbers, as indices of a table of all registers.
pub mod table {
    use super::register;

    pub const RESULT: usize = register::RESULT as usize;
    pub const SECOND_RESULT: usize = register::SECOND_RESULT as usize;
    pub const STACK_POINTER: usize = register::STACK_POINTER as usize;
    pub const FRAME_POINTER: usize = register::FRAME_POINTER as usize;
    pub const FIRST_ARGUMENT: usize = register::FIRST_ARGUMENT as usize;
    pub const SECOND_ARGUMENT: usize = register::SECOND_ARGUMENT as usize;
    /// Those that a function gives back as it found them, besides the stack pointer.
    pub const PRESERVED: [usize; 6] = [3, FRAME_POINTER, 12, 13, 14, 15];
    /// The same with the stack pointer.
    pub const KEPT: [usize; 7] = [3, STACK_POINTER, FRAME_POINTER, 12, 13, 14, 15];
    /// Those that a function may change.
    pub const CHANGED_BY_CALL: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
    pub const CHANGED_BY_SYSCALL: [usize; 3] = [RESULT, 1, 11];
    pub const CHANGED_BY_STRING: [usize; 4] = [RESULT, 1, 6, 7];
    /// Where functions of Go get their arguments, and those that they keep: the frame's pointer and their goroutine.
    pub const TASK_ARGUMENTS: [usize; 9] = [RESULT, 3, 1, 7, 6, 8, 9, 10, 11];
    pub const TASK_KEPT: [usize; 2] = [FRAME_POINTER, TASK];
    /// The goroutine, and what a function was made with that has variables of another one.
    pub const TASK: usize = 14;
    pub const TASK_CONTEXT: usize = SECOND_RESULT;
    /// Always zero there.
    pub const TASK_ZERO: usize = 15;
    /// The numbers that DWARF has for each.
    pub const DWARF: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mem {
    pub base: Option<u8>,
    pub index: Option<(u8, u8)>,
    pub disp: i64,
    /// Counted from the next instruction.
    pub pc_relative: bool,
    /// Counted from a thread's own base, which is not known here.
    pub segment: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    None,
    Reg(u8),
    /// The second byte of one of the first four registers.
    High(u8),
    Vector(u8),
    Mem(Mem),
    Imm(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alu {
    Add,
    Or,
    Adc,
    Sbb,
    And,
    Sub,
    Xor,
    Cmp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Mov,
    /// Zero-extends from this many bytes.
    Movzx(u8),
    /// Sign-extends from this many bytes.
    Movsx(u8),
    Lea,
    Alu(Alu),
    Test,
    Inc,
    Dec,
    Neg,
    Not,
    /// Left, right, right with sign.
    Shl,
    Shr,
    Sar,
    Push,
    Pop,
    Leave,
    Call,
    Jmp,
    /// By condition number.
    Jcc(u8),
    Setcc(u8),
    Cmov(u8),
    Ret,
    Xchg,
    Xadd,
    Cmpxchg,
    /// A vector register, 16 bytes, or 8 of them with the rest cleared.
    MovVector,
    /// A vector register made zero.
    ZeroVector,
    Nop,
    /// Nothing comes after it.
    Stop,
    Syscall,
    /// The accumulator's sign into its upper half, or into rdx.
    Extend,
    /// Works through memory, and moves its pointers and counter.
    String,
    /// Anything else: the operands are not known afterwards, nor rax and rdx.
    Other,
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    pub len: u8,
    pub op: Op,
    /// Bytes of the operands.
    pub size: u8,
    pub dst: Operand,
    pub src: Operand,
    pub lock: bool,
}

struct CodeReader<'a> {
    code: &'a [u8],
    at: usize,
}

impl CodeReader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.code.get(self.at).filter(|_| self.at < LONGEST)?;
        self.at += 1;
        Some(byte)
    }

    fn signed(&mut self, bytes: u8) -> Option<i64> {
        let mut value = 0u64;
        for shift in 0..bytes {
            value |= u64::from(self.byte()?) << (8 * shift);
        }
        let unused = 64 - 8 * u32::from(bytes);
        Some((value << unused) as i64 >> unused)
    }

    /// Immediates have four bytes at most, also for operands of eight.
    fn immediate(&mut self, size: u8) -> Option<i64> {
        self.signed(size.min(4))
    }
}

/// What the prefixes of an instruction say.
#[derive(Clone, Copy, Default)]
struct Prefix {
    rex: u8,
    narrow: bool,
    repeat: u8,
    lock: bool,
    segment: bool,
    /// Addresses have 32 bits.
    short_address: bool,
}

impl Prefix {
    fn size(self) -> u8 {
        match (self.rex & 8 != 0, self.narrow) {
            (true, _) => 8,
            (_, true) => 2,
            _ => 4,
        }
    }

    /// Bytes of the operands of an opcode that comes in two forms, the even one for bytes.
    fn size_by(self, opcode: u8) -> u8 {
        if opcode & 1 == 0 { 1 } else { self.size() }
    }
}

/// Register and operand of a ModRM byte.
struct ModRm {
    /// The middle field without its extension.
    field: u8,
    reg: u8,
    rm: Operand,
}

fn modrm(code: &mut CodeReader<'_>, prefix: Prefix) -> Option<ModRm> {
    let byte = code.byte()?;
    let (mode, field, low) = (byte >> 6, byte >> 3 & 7, byte & 7);
    let reg = field | (prefix.rex & 4) << 1;
    if mode == 3 {
        return Some(ModRm { field, reg, rm: Operand::Reg(low | (prefix.rex & 1) << 3) });
    }
    let mut mem = Mem { base: None, index: None, disp: 0, pc_relative: false, segment: prefix.segment };
    let mut displacement = [0, 1, 4][usize::from(mode)];
    if low == 4 {
        let sib = code.byte()?;
        let index = sib >> 3 & 7 | (prefix.rex & 2) << 2;
        if index != 4 {
            mem.index = Some((index, 1 << (sib >> 6)));
        }
        if sib & 7 == 5 && mode == 0 {
            displacement = 4;
        } else {
            mem.base = Some(sib & 7 | (prefix.rex & 1) << 3);
        }
    } else if low == 5 && mode == 0 {
        displacement = 4;
        mem.pc_relative = true;
    } else {
        mem.base = Some(low | (prefix.rex & 1) << 3);
    }
    if displacement > 0 {
        mem.disp = code.signed(displacement)?;
    }
    Some(ModRm { field, reg, rm: Operand::Mem(mem) })
}

/// Decodes the instruction at the beginning of `code`; `None` when it is none, or cut off.
pub fn decode(code: &[u8]) -> Option<Insn> {
    let mut code = CodeReader { code, at: 0 };
    let mut prefix = Prefix::default();
    let opcode = loop {
        match code.byte()? {
            0x66 => prefix.narrow = true,
            byte @ (0xf2 | 0xf3) => prefix.repeat = byte,
            0xf0 => prefix.lock = true,
            0x64 | 0x65 => prefix.segment = true,
            0x67 => prefix.short_address = true,
            0x26 | 0x2e | 0x36 | 0x3e => {}
            byte @ 0x40..=0x4f => {
                // It counts only directly before the opcode.
                prefix.rex = byte;
                match code.byte()? {
                    0x66 | 0xf2 | 0xf3 | 0xf0 | 0x64 | 0x65 | 0x40..=0x4f => return None,
                    opcode => break opcode,
                }
            }
            opcode => break opcode,
        }
    };
    let mut insn = match opcode {
        0x0f => two_bytes(&mut code, prefix)?,
        0xc4 | 0xc5 | 0x62 => vector_extension(&mut code, prefix, opcode)?,
        _ => one_byte(&mut code, prefix, opcode)?,
    };
    let has_address = [insn.dst, insn.src].iter().any(|operand| matches!(operand, Operand::Mem(_)));
    if prefix.short_address && has_address {
        // Nobody computes those here.
        insn = plain(Op::Other, 8, insn.dst, Operand::None);
    }
    insn.len = code.at as u8;
    insn.lock = prefix.lock;
    Some(insn)
}

fn plain(op: Op, size: u8, dst: Operand, src: Operand) -> Insn {
    Insn { len: 0, op, size, dst, src, lock: false }
}

/// One without operands that matter.
fn bare(op: Op) -> Insn {
    plain(op, 8, Operand::None, Operand::None)
}

/// One of which only the destination is known.
fn other(dst: Operand) -> Insn {
    plain(Op::Other, 8, dst, Operand::None)
}

/// A byte register: without REX, numbers 4 to 7 are the second bytes of the first four.
fn narrow(operand: Operand, size: u8, prefix: Prefix) -> Operand {
    match operand {
        Operand::Reg(number @ 4..=7) if size == 1 && prefix.rex == 0 => Operand::High(number - 4),
        other => other,
    }
}

fn alu(number: u8) -> Op {
    const ALL: [Alu; 8] = [Alu::Add, Alu::Or, Alu::Adc, Alu::Sbb, Alu::And, Alu::Sub, Alu::Xor, Alu::Cmp];
    Op::Alu(ALL[usize::from(number & 7)])
}

fn one_byte(code: &mut CodeReader<'_>, prefix: Prefix, opcode: u8) -> Option<Insn> {
    use Operand::{Imm, Reg};
    let wide = prefix.size_by(opcode);
    let low = opcode & 7 | (prefix.rex & 1) << 3;
    let (rax, none) = (Reg(0), Operand::None);
    Some(match opcode {
        0x00..=0x3f if opcode & 6 == 4 => plain(alu(opcode >> 3), wide, rax, Imm(code.immediate(wide)?)),
        0x50..=0x57 => plain(Op::Push, 8, none, Reg(low)),
        0x58..=0x5f => plain(Op::Pop, 8, Reg(low), none),
        0x68 => plain(Op::Push, 8, none, Imm(code.signed(4)?)),
        0x6a => plain(Op::Push, 8, none, Imm(code.signed(1)?)),
        0x70..=0x7f => plain(Op::Jcc(opcode & 15), 8, none, Imm(code.signed(1)?)),
        0x90 if prefix.rex & 1 == 0 => bare(Op::Nop),
        0x90..=0x97 => plain(Op::Xchg, prefix.size(), rax, Reg(low)),
        0x98 | 0x99 => plain(Op::Extend, prefix.size(), if opcode == 0x98 { rax } else { Reg(2) }, none),
        0xa4..=0xa7 | 0xaa..=0xaf | 0x6c..=0x6f => bare(Op::String),
        0x9b | 0xf8..=0xfd | 0x9e | 0x9f => other(none),
        // The flags, to the stack and back.
        0x9c | 0x9d => other(Reg(register::STACK_POINTER)),
        0xa0..=0xa3 => code.signed(8).map(|_| other(none))?,
        0xa8 | 0xa9 => plain(Op::Test, wide, rax, Imm(code.immediate(wide)?)),
        0xb0..=0xb7 => plain(Op::Mov, 1, narrow(Reg(low), 1, prefix), Imm(code.signed(1)?)),
        0xb8..=0xbf => plain(Op::Mov, prefix.size(), Reg(low), Imm(code.signed(prefix.size())?)),
        0xc2 => code.signed(2).map(|_| bare(Op::Ret))?,
        0xc3 => bare(Op::Ret),
        0xc8 => code.signed(3).map(|_| bare(Op::Stop))?,
        0xc9 => bare(Op::Leave),
        0xcc | 0xf4 => bare(Op::Stop),
        0xcd | 0xe0..=0xe3 => code.byte().map(|_| bare(Op::Stop))?,
        0xe8 => plain(Op::Call, 8, none, Imm(code.signed(4)?)),
        0xe9 => plain(Op::Jmp, 8, none, Imm(code.signed(4)?)),
        0xeb => plain(Op::Jmp, 8, none, Imm(code.signed(1)?)),
        _ => return one_byte_and_modrm(code, prefix, opcode),
    })
}

fn one_byte_and_modrm(code: &mut CodeReader<'_>, prefix: Prefix, opcode: u8) -> Option<Insn> {
    use Operand::{Imm, Reg};
    let wide = prefix.size_by(opcode);
    let m = modrm(code, prefix)?;
    let (reg, rm) = (narrow(Reg(m.reg), wide, prefix), narrow(m.rm, wide, prefix));
    let none = Operand::None;
    Some(match opcode {
        0x00..=0x3f if opcode & 6 == 0 => plain(alu(opcode >> 3), wide, rm, reg),
        0x00..=0x3f if opcode & 6 == 2 => plain(alu(opcode >> 3), wide, reg, rm),
        0x63 => plain(Op::Movsx(4), prefix.size(), Reg(m.reg), m.rm),
        0x69 => code.immediate(prefix.size()).map(|_| other(Reg(m.reg)))?,
        0x6b => code.byte().map(|_| other(Reg(m.reg)))?,
        0x80 | 0x83 => plain(alu(m.field), wide, rm, Imm(code.signed(1)?)),
        0x81 => plain(alu(m.field), wide, rm, Imm(code.immediate(wide)?)),
        0x84 | 0x85 => plain(Op::Test, wide, rm, reg),
        0x86 | 0x87 => plain(Op::Xchg, wide, rm, reg),
        0x88 | 0x89 => plain(Op::Mov, wide, rm, reg),
        0x8a | 0x8b => plain(Op::Mov, wide, reg, rm),
        0x8c | 0x8e => other(m.rm),
        0x8d => plain(Op::Lea, prefix.size(), Reg(m.reg), m.rm),
        // The others of this group are vector instructions that few processors have had.
        0x8f if m.field == 0 => plain(Op::Pop, 8, m.rm, none),
        0xc0 | 0xc1 | 0xd0..=0xd3 => {
            let count = match opcode {
                0xc0 | 0xc1 => Imm(code.signed(1)?),
                0xd0 | 0xd1 => Imm(1),
                _ => Reg(1),
            };
            match m.field {
                4 | 6 => plain(Op::Shl, wide, rm, count),
                5 => plain(Op::Shr, wide, rm, count),
                7 => plain(Op::Sar, wide, rm, count),
                _ => other(m.rm),
            }
        }
        0xc6 | 0xc7 if m.field == 0 => plain(Op::Mov, wide, rm, Imm(code.immediate(wide)?)),
        // The others of this group begin and end transactions.
        0xc6 | 0xc7 => code.immediate(wide).map(|_| other(Reg(0)))?,
        // The status word may come to rax.
        0xd8..=0xdf => other(Reg(0)),
        0xf6 | 0xf7 => match m.field {
            0 | 1 => plain(Op::Test, wide, rm, Imm(code.immediate(wide)?)),
            2 => plain(Op::Not, wide, rm, none),
            3 => plain(Op::Neg, wide, rm, none),
            _ => other(Reg(0)),
        },
        0xfe | 0xff => match m.field {
            0 => plain(Op::Inc, wide, rm, none),
            1 => plain(Op::Dec, wide, rm, none),
            2 => plain(Op::Call, 8, none, m.rm),
            4 => plain(Op::Jmp, 8, none, m.rm),
            6 => plain(Op::Push, 8, none, m.rm),
            _ => return None,
        },
        _ => return None,
    })
}

fn two_bytes(code: &mut CodeReader<'_>, prefix: Prefix) -> Option<Insn> {
    use Operand::{Imm, Reg, Vector};
    let opcode = code.byte()?;
    let none = Operand::None;
    match opcode {
        0x05 => return Some(bare(Op::Syscall)),
        0x0b => return Some(bare(Op::Stop)),
        0x06..=0x09 | 0x30..=0x37 | 0x77 | 0xa0..=0xa1 | 0xa8..=0xaa => return Some(other(none)),
        // cpuid
        0xa2 => return Some(plain(Op::Other, 8, Reg(3), Reg(1))),
        0x80..=0x8f => return Some(plain(Op::Jcc(opcode & 15), 8, none, Imm(code.signed(4)?))),
        0xc8..=0xcf => return Some(other(Reg(opcode & 7 | (prefix.rex & 1) << 3))),
        _ => {}
    }
    // These have one more byte of the opcode.
    let operation = if matches!(opcode, 0x38 | 0x3a) { code.byte()? } else { 0 };
    let wide = prefix.size_by(opcode);
    let m = modrm(code, prefix)?;
    let (reg, rm) = (narrow(Reg(m.reg), wide, prefix), narrow(m.rm, wide, prefix));
    let vector = match m.rm {
        Reg(number) => Vector(number),
        rm => rm,
    };
    if matches!(opcode, 0x3a | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6) {
        code.byte()?;
    }
    Some(match opcode {
        0x0d | 0x18..=0x1f | 0xae => bare(Op::Nop),
        // Without a prefix these are of the old eight-byte registers.
        0x6f | 0x7f if prefix.repeat == 0 && !prefix.narrow => other(none),
        // Whole vectors and halves of them, to and from memory.
        0x10 | 0x28 | 0x6f if opcode != 0x10 || prefix.repeat == 0 => plain(Op::MovVector, 16, Vector(m.reg), vector),
        0x11 | 0x29 | 0x7f if opcode != 0x11 || prefix.repeat == 0 => plain(Op::MovVector, 16, vector, Vector(m.reg)),
        0x6e if prefix.narrow && prefix.rex & 8 != 0 => plain(Op::MovVector, 8, Vector(m.reg), m.rm),
        0x7e if prefix.narrow && prefix.rex & 8 != 0 => plain(Op::MovVector, 8, m.rm, Vector(m.reg)),
        0x7e if prefix.repeat == 0xf3 => plain(Op::MovVector, 8, Vector(m.reg), vector),
        0xd6 if prefix.narrow => plain(Op::MovVector, 8, vector, Vector(m.reg)),
        0x57 | 0xef => {
            let op = if m.rm == Reg(m.reg) { Op::ZeroVector } else { Op::Other };
            plain(op, 16, Vector(m.reg), none)
        }
        0x40..=0x4f => plain(Op::Cmov(opcode & 15), prefix.size(), Reg(m.reg), m.rm),
        0x90..=0x9f => plain(Op::Setcc(opcode & 15), 1, narrow(m.rm, 1, prefix), none),
        0xa3 => other(none),
        0xb0 | 0xb1 => plain(Op::Cmpxchg, wide, rm, reg),
        0xc0 | 0xc1 => plain(Op::Xadd, wide, rm, reg),
        0xb6 | 0xb7 | 0xbe | 0xbf => {
            let from = if opcode & 1 == 0 { 1 } else { 2 };
            let op = if opcode < 0xb8 { Op::Movzx(from) } else { Op::Movsx(from) };
            plain(op, prefix.size(), Reg(m.reg), narrow(m.rm, from, prefix))
        }
        // A bit that is only tested (0xba /4) leaves its operand as it was.
        0xba if m.field == 4 => other(none),
        0xa4 | 0xa5 | 0xab..=0xad | 0xb3 | 0xba | 0xbb | 0xc3 | 0xc7 | 0x7e => other(m.rm),
        // A part of a vector, to where it is wanted; comparisons of texts give rcx.
        0x3a if matches!(operation, 0x14..=0x17) => other(m.rm),
        0x3a if matches!(operation, 0x60..=0x63) => other(Reg(1)),
        // These give general registers.
        0x02 | 0x03 | 0x2c | 0x2d | 0x38 | 0x3a | 0x50 | 0xaf | 0xb8 | 0xbc | 0xbd | 0xc5 | 0xd7 => other(Reg(m.reg)),
        0x10..=0x17 | 0x28..=0x2f | 0x51..=0x76 | 0x78..=0x7f | 0xc2 | 0xc4 | 0xc6 | 0xd0..=0xfe => {
            other(Vector(m.reg))
        }
        0x00 | 0x01 => other(Reg(0)),
        _ => return None,
    })
}

/// Instructions of the vector extensions: only their length, and which register they may change.
fn vector_extension(code: &mut CodeReader<'_>, mut prefix: Prefix, opcode: u8) -> Option<Insn> {
    let first = code.byte()?;
    // The bits that REX would have are inverted here.
    prefix.rex = (!first >> 5 & 4) | if opcode == 0xc5 { 0 } else { !first >> 5 & 3 };
    let mut second = 0;
    let map = match opcode {
        0xc5 => 1,
        0xc4 => {
            second = code.byte()?;
            first & 0x1f
        }
        _ => {
            code.signed(2)?;
            first & 7
        }
    };
    let operation = code.byte()?;
    if map == 1 && operation == 0x77 {
        return Some(bare(Op::Nop));
    }
    let m = modrm(code, prefix)?;
    if map == 3 || map == 1 && matches!(operation, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) {
        code.byte()?;
    }
    // Some give general registers (masks, bit operations of map 2); vectors are forgotten likewise.
    let general = matches!((map, operation), (1, 0x50 | 0xd7 | 0x2c | 0x2d | 0xc5 | 0x93) | (2 | 3, 0xf0..=0xf7));
    if general {
        // Some give a register that is named beside the others, instead (0xf3) or as well (0xf6).
        let beside = match (map, operation) {
            (2, 0xf3 | 0xf6) => Operand::Reg(!second >> 3 & 15),
            _ => Operand::None,
        };
        return Some(plain(Op::Other, 8, Operand::Reg(m.reg), beside));
    }
    let store = map == 1 && matches!(operation, 0x11 | 0x29 | 0x7f | 0xd6 | 0x7e | 0x13 | 0x17 | 0x2b | 0xe7)
        || map == 3 && matches!(operation, 0x14..=0x17 | 0x19 | 0x1b | 0x1d | 0x39 | 0x3b);
    let dst = if store { m.rm } else { Operand::Vector(m.reg) };
    Some(plain(Op::Other, 32, dst, Operand::None))
}

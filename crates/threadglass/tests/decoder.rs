//! Every instruction of several real programs, decoded by us and by `iced-x86`: the lengths are equal, and so is what we
//! claim that an instruction does. Where we differ, [`DIFFERENCES`] says why.

use gimli::{BaseAddresses, CieOrFde, EhFrame, NativeEndian, UnwindSection};
use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use object::{Object, ObjectSection};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use threadglass::internals::insn::{Alu, Insn, Mem, Op, Operand, decode, table};

/// What we say otherwise, by the name that iced has for the instruction and for what is different, and why.
const DIFFERENCES: [(&str, &str, &str); 1] =
    [("Syscall", TOO_MUCH, "the processor changes rcx and r11; that the kernel answers in rax is its own affair")];

const TOO_LITTLE: &str = "changes a register that we say it does not";
const TOO_MUCH: &str = "does not change a register that we say it does";

/// The code of each function of a file: by the table that unwinds it, which stripped files have too.
fn functions(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let file = object::File::parse(file).expect("an ELF file");
    let section = |name| {
        let section = file.section_by_name(name)?;
        Some((section.address(), section.uncompressed_data().ok()?))
    };
    let Some((at, table)) = section(".eh_frame") else { panic!("no .eh_frame") };
    let text: Vec<(u64, Vec<u8>)> = file
        .sections()
        .filter(|section| section.kind() == object::SectionKind::Text)
        .filter_map(|section| Some((section.address(), section.data().ok()?.to_vec())))
        .collect();
    let table = EhFrame::new(&table, NativeEndian);
    let bases = BaseAddresses::default().set_eh_frame(at);
    let mut entries = table.entries(&bases);
    let mut found = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(|_, bases, offset| table.cie_from_offset(bases, offset)) else { continue };
        let (start, length) = (fde.initial_address(), fde.len() as usize);
        let code = text.iter().find_map(|(base, bytes)| {
            let from = usize::try_from(start.checked_sub(*base)?).ok()?;
            bytes.get(from..from.checked_add(length)?)
        });
        if let Some(code) = code {
            found.push((start, code.to_vec()));
        }
    }
    found
}

/// The number that we have for a general register, and how many bytes of it are meant.
fn number(register: Register) -> Option<u8> {
    register.is_gpr().then(|| register.full_register().number() as u8)
}

/// The general registers that an instruction changes.
fn written(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> u16 {
    let mut mask = 0;
    for used in factory.info(instruction).used_registers() {
        let is_write = matches!(
            used.access(),
            OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
        );
        if let (true, Some(number)) = (is_write, number(used.register())) {
            mask |= 1 << number;
        }
    }
    mask
}

fn bit(operand: Operand) -> u16 {
    match operand {
        Operand::Reg(number) | Operand::High(number) => 1 << number,
        _ => 0,
    }
}

/// The registers that we say an instruction may change, as whoever follows it takes it; and whether all of them are.
fn claimed(insn: &Insn) -> (u16, bool) {
    let of = |numbers: &[usize]| numbers.iter().fold(0, |mask, number| mask | 1 << number);
    let sp = of(&[table::STACK_POINTER]);
    match insn.op {
        Op::Alu(Alu::Cmp) | Op::Test | Op::Nop | Op::Jmp | Op::Jcc(_) | Op::ZeroVector => (0, true),
        Op::Mov | Op::Movzx(_) | Op::Movsx(_) | Op::Lea | Op::Alu(_) | Op::Inc | Op::Dec | Op::Neg | Op::Not => {
            (bit(insn.dst), true)
        }
        Op::Shl | Op::Shr | Op::Sar | Op::Setcc(_) | Op::Cmov(_) | Op::MovVector | Op::Extend => (bit(insn.dst), true),
        Op::Push | Op::Call | Op::Ret => (sp, true),
        Op::Pop => (sp | bit(insn.dst), true),
        Op::Leave => (of(&[table::STACK_POINTER, table::FRAME_POINTER]), true),
        Op::Xchg | Op::Xadd => (bit(insn.dst) | bit(insn.src), true),
        Op::Cmpxchg => (bit(insn.dst) | of(&[table::RESULT]), true),
        Op::Syscall => (of(&table::CHANGED_BY_SYSCALL), true),
        // Nobody asks what it changes.
        Op::Stop => (u16::MAX, false),
        Op::String => (of(&table::CHANGED_BY_STRING), false),
        Op::Other => (bit(insn.dst) | bit(insn.src) | of(&[table::RESULT, table::SECOND_RESULT]), false),
    }
}

/// Whether our name of what an instruction does is the right one.
fn is_named_so(insn: &Insn, instruction: &Instruction) -> bool {
    use Mnemonic as M;
    let name = instruction.mnemonic();
    match insn.op {
        Op::Mov => name == M::Mov,
        Op::Movzx(_) => name == M::Movzx,
        Op::Movsx(_) => matches!(name, M::Movsx | M::Movsxd),
        Op::Lea => name == M::Lea,
        Op::Alu(kind) => {
            let names = [M::Add, M::Or, M::Adc, M::Sbb, M::And, M::Sub, M::Xor, M::Cmp];
            name == names[kind as usize]
        }
        Op::Test => name == M::Test,
        Op::Inc => name == M::Inc,
        Op::Dec => name == M::Dec,
        Op::Neg => name == M::Neg,
        Op::Not => name == M::Not,
        Op::Shl => matches!(name, M::Shl | M::Sal),
        Op::Shr => name == M::Shr,
        Op::Sar => name == M::Sar,
        Op::Push => name == M::Push,
        Op::Pop => name == M::Pop,
        Op::Leave => name == M::Leave,
        Op::Call => name == M::Call,
        Op::Jmp => name == M::Jmp,
        Op::Jcc(_) => instruction.is_jcc_short_or_near(),
        Op::Setcc(_) => instruction.op_count() == 1 && instruction.condition_code() != ConditionCode::None,
        Op::Cmov(_) => instruction.op_count() == 2 && instruction.condition_code() != ConditionCode::None,
        Op::Ret => name == M::Ret,
        Op::Xchg => name == M::Xchg,
        Op::Xadd => name == M::Xadd,
        Op::Cmpxchg => name == M::Cmpxchg,
        Op::MovVector => {
            matches!(name, M::Movups | M::Movupd | M::Movaps | M::Movapd | M::Movdqa | M::Movdqu | M::Movq)
        }
        Op::ZeroVector => {
            matches!(name, M::Xorps | M::Xorpd | M::Pxor) && instruction.op0_register() == instruction.op1_register()
        }
        Op::Syscall => name == M::Syscall,
        Op::Extend => matches!(name, M::Cbw | M::Cwde | M::Cdqe | M::Cwd | M::Cdq | M::Cqo),
        // What changes no register, or is claimed to change others: the registers tell.
        Op::Nop | Op::String | Op::Other => true,
        Op::Stop => {
            matches!(
                name,
                M::Ud2 | M::Hlt | M::Int3 | M::Int | M::Enter | M::Loop | M::Loope | M::Loopne | M::Jrcxz | M::Jecxz
            )
        }
    }
}

/// The number of a condition in the encoding's order.
fn condition(code: ConditionCode) -> Option<u8> {
    use ConditionCode as C;
    let order =
        [C::o, C::no, C::b, C::ae, C::e, C::ne, C::be, C::a, C::s, C::ns, C::p, C::np, C::l, C::ge, C::le, C::g];
    order.iter().position(|known| *known == code).map(|position| position as u8)
}

/// An operand of iced's in our words; `None` where we have none for it.
fn operand(instruction: &Instruction, index: u32) -> Option<Operand> {
    Some(match instruction.op_kind(index) {
        OpKind::Register => match instruction.op_register(index) {
            Register::AH => Operand::High(0),
            Register::CH => Operand::High(1),
            Register::DH => Operand::High(2),
            Register::BH => Operand::High(3),
            register if register.is_vector_register() => Operand::Vector(register.number() as u8),
            register => Operand::Reg(number(register)?),
        },
        OpKind::Memory => {
            let pc_relative = instruction.is_ip_rel_memory_operand();
            let base = instruction.memory_base();
            let target = instruction.memory_displacement64();
            let disp = if pc_relative { target.wrapping_sub(instruction.next_ip()) } else { target };
            let index =
                number(instruction.memory_index()).map(|number| (number, instruction.memory_index_scale() as u8));
            Operand::Mem(Mem {
                base: if pc_relative { None } else { number(base) },
                index,
                disp: disp as i64,
                pc_relative,
                segment: matches!(instruction.segment_prefix(), Register::FS | Register::GS),
            })
        }
        OpKind::NearBranch64 => {
            Operand::Imm(instruction.near_branch_target().wrapping_sub(instruction.next_ip()) as i64)
        }
        _ => Operand::Imm(instruction.try_immediate(index).ok()? as i64),
    })
}

/// An immediate means the bytes of the operand that it is used for.
fn cut(operand: Operand, size: u8) -> Operand {
    match operand {
        Operand::Imm(value) if size < 8 => Operand::Imm(value & ((1 << (8 * size)) - 1)),
        other => other,
    }
}

/// What is wrong with the operands that we claim.
fn operand_fault(insn: &Insn, instruction: &Instruction) -> Option<&'static str> {
    let same = |ours: Operand, index: u32, size: u8| {
        operand(instruction, index).is_some_and(|theirs| cut(theirs, size) == cut(ours, size))
    };
    let width = |index: u32| match instruction.op_kind(index) {
        OpKind::Register => instruction.op_register(index).size(),
        _ => instruction.memory_size().size(),
    };
    let is_wide = |index: u32| width(index) == usize::from(insn.size);
    let has_condition = |number: u8| condition(instruction.condition_code()) == Some(number);
    let holds = match insn.op {
        Op::Mov | Op::Alu(_) | Op::Test => same(insn.dst, 0, insn.size) && same(insn.src, 1, insn.size) && is_wide(0),
        Op::Movzx(from) | Op::Movsx(from) => {
            same(insn.dst, 0, 8) && same(insn.src, 1, 8) && is_wide(0) && width(1) == usize::from(from)
        }
        Op::Lea => same(insn.dst, 0, 8) && same(insn.src, 1, 8) && is_wide(0),
        Op::Shl | Op::Shr | Op::Sar => same(insn.dst, 0, 8) && same(insn.src, 1, 1) && is_wide(0),
        Op::Inc | Op::Dec | Op::Neg | Op::Not => same(insn.dst, 0, 8) && is_wide(0),
        Op::Setcc(number) => same(insn.dst, 0, 8) && has_condition(number),
        Op::Cmov(number) => same(insn.dst, 0, 8) && same(insn.src, 1, 8) && is_wide(0) && has_condition(number),
        Op::Jcc(number) => same(insn.src, 0, 8) && has_condition(number),
        Op::Jmp | Op::Call => same(insn.src, 0, 8),
        Op::Push => same(insn.src, 0, 8),
        Op::Pop => same(insn.dst, 0, 8),
        Op::Xadd | Op::Cmpxchg => same(insn.dst, 0, 8) && same(insn.src, 1, 8) && is_wide(0),
        // Either way round it does the same.
        Op::Xchg => {
            is_wide(0) && (same(insn.dst, 0, 8) && same(insn.src, 1, 8) || same(insn.dst, 1, 8) && same(insn.src, 0, 8))
        }
        Op::MovVector => same(insn.dst, 0, 8) && same(insn.src, 1, 8),
        Op::ZeroVector => same(insn.dst, 0, 8),
        Op::Leave | Op::Ret | Op::Nop | Op::Stop | Op::Syscall | Op::Extend | Op::String | Op::Other => true,
    };
    (!holds).then_some("the operands differ")
}

/// What is wrong with what we say of an instruction.
fn fault(code: &[u8], instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Option<&'static str> {
    let Some(insn) = decode(code) else { return Some("is not decoded") };
    if usize::from(insn.len) != instruction.len() {
        return Some("has another length");
    }
    if decode(&code[..instruction.len() - 1]).is_some() {
        return Some("is decoded although its last byte is missing");
    }
    if !is_named_so(&insn, instruction) {
        return Some("is taken for another one");
    }
    let (claimed, exactly) = claimed(&insn);
    let written = written(factory, instruction);
    if written & !claimed != 0 {
        return Some(TOO_LITTLE);
    }
    if exactly && claimed != written {
        return Some(TOO_MUCH);
    }
    if insn.lock != instruction.has_lock_prefix() {
        return Some("its lock prefix is not seen");
    }
    operand_fault(&insn, instruction)
}

/// A loaded object of this process.
fn mapped(name: &str) -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our own mappings");
    let path = maps.lines().find_map(|line| line.split_once('/').filter(|(_, path)| path.contains(name)));
    Path::new("/").join(path.unwrap_or_else(|| panic!("no {name} in\n{maps}")).1)
}

/// The name of an instruction, and what is wrong with what we say of it.
type Fault = (String, &'static str);

/// What was compared, and what is wrong: how often, and where at first.
#[derive(Default)]
struct Tally {
    functions: usize,
    instructions: usize,
    faults: BTreeMap<Fault, (usize, String)>,
}

fn compare(path: &Path) -> Tally {
    let mut tally = Tally::default();
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut factory = InstructionInfoFactory::new();
    for (start, code) in functions(&file) {
        tally.functions += 1;
        let mut decoder = Decoder::with_ip(64, &code, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            let at = decoder.position();
            decoder.decode_out(&mut instruction);
            // Data among the code: what comes behind it may be anything.
            if instruction.is_invalid() {
                break;
            }
            tally.instructions += 1;
            if let Some(what) = fault(&code[at..], &instruction, &mut factory) {
                let bytes = &code[at..at + instruction.len()];
                let place =
                    format!("{} {:#x}: {bytes:02x?} {:?}", path.display(), instruction.ip(), decode(&code[at..]));
                let name = format!("{:?}", instruction.code());
                tally.faults.entry((name, what)).or_insert((0, place)).0 += 1;
            }
        }
    }
    tally
}

#[test]
fn every_instruction_of_real_programs_is_what_iced_says() {
    let mut paths = vec![mapped("/libc.so"), mapped("/ld-linux"), std::env::current_exe().expect("our own program")];
    for library in ["libstdc++.so.6", "libm.so.6"] {
        paths.extend(testkit::library(testkit::part(library), library));
    }
    for (program, path) in [("gdb", "/usr/bin/gdb"), ("python", "/usr/bin/python3"), ("perl", "/usr/bin/perl")] {
        match Path::new(path).is_file() {
            true => paths.push(path.into()),
            false => testkit::skip(testkit::part(program), &format!("{path} is not installed")),
        }
    }
    let mut faults: BTreeMap<Fault, (usize, String)> = BTreeMap::new();
    for path in paths {
        let tally = compare(&path);
        eprintln!("{}: {} functions, {} instructions", path.display(), tally.functions, tally.instructions);
        assert!(tally.instructions > 1000, "{} has no code that is found", path.display());
        for (fault, (count, place)) in tally.faults {
            faults.entry(fault).or_insert((0, place)).0 += count;
        }
    }
    for (code, what, why) in DIFFERENCES {
        assert!(faults.remove(&(code.to_owned(), what)).is_some(), "{code} {what} ({why}): not any more");
    }
    let lines =
        faults.iter().map(|((code, what), (count, place))| format!("{code} {what}, {count} times, as in {place}"));
    assert!(faults.is_empty(), "\n{}", lines.collect::<Vec<_>>().join("\n"));
}

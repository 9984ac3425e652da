//! Threads that wait without sleeping: they read one word again and again, or yield the CPU in a loop.

use crate::RemoteAddr;
use crate::arch::insn::{Alu, Insn, LONGEST, Mem, Op, Operand, decode, table};
use crate::look::Look;
use crate::memory::Memory;
use crate::model::Spin;
use crate::perf::Sample;

/// Samples that are enough to say that a thread does nothing else.
const ENOUGH: usize = 5;
/// Bytes of code that such a loop has at most.
const LOOP: u64 = 160;

/// What a thread waits for in a loop, by its samples.
pub(super) fn spin(look: &Look<'_>, samples: &[Sample]) -> Option<Spin> {
    if samples.len() < ENOUGH {
        return None;
    }
    let symbolizer = look.symbolizer();
    let in_function = |name: &str| {
        let here =
            |sample: &&Sample| symbolizer.enclosing_function(RemoteAddr(sample.ip)).is_some_and(|it| it.contains(name));
        samples.iter().filter(here).count()
    };
    if in_function("sched_yield") * 5 >= samples.len() {
        return Some(Spin { yields: true, word: None, name: None });
    }
    let is_lock = in_function("pthread_spin_lock") * 5 >= samples.len() * 4;
    let word = if is_lock { argument(samples) } else { word_of(look.target, samples) }?;
    let lock = if is_lock { "spinlock " } else { "" };
    let mut data = look.data_names();
    let name = data.variable_at(word).or_else(|| data.place_of(word));
    Some(Spin { yields: false, word: Some(word), name: name.map(|name| format!("{lock}{name}")) })
}

/// The first argument of a function that keeps it where it was.
fn argument(samples: &[Sample]) -> Option<RemoteAddr> {
    let mut all = samples.iter().filter_map(|sample| Some(sample.registers.as_ref()?.general[table::FIRST_ARGUMENT]));
    let first = all.next()?;
    all.all(|other| other == first).then_some(RemoteAddr(first))
}

/// The one word that the loop reads in which all samples are, if the loop writes nothing and calls nobody.
fn word_of(memory: &dyn Memory, samples: &[Sample]) -> Option<RemoteAddr> {
    let first = samples.iter().map(|sample| sample.ip).min()?;
    let last = samples.iter().map(|sample| sample.ip).max()?;
    // The jump back may lead to before the first sample.
    let (begin, _) = loop_at(memory, first, last)?;
    let (_, reads) = loop_at(memory, begin, last)?;
    let mut words = reads.iter().flat_map(|(mem, next)| samples.iter().map(|sample| address(mem, *next, sample)));
    let word = words.next()??;
    words.all(|other| other == Some(word)).then_some(RemoteAddr(word))
}

/// Where the loop begins that goes on from `first` and jumps back behind `last`, and what it reads, each with the address of
/// the next instruction; `None` where it does more than wait, or waits for nothing.
fn loop_at(memory: &dyn Memory, first: u64, last: u64) -> Option<(u64, Vec<(Mem, u64)>)> {
    let room = last.checked_sub(first).filter(|room| *room <= LOOP)? + LOOP;
    let code = memory.read_up_to(RemoteAddr(first), room as usize + LONGEST).ok()?;
    let (mut reads, mut at, mut has_way_out) = (Vec::new(), 0, false);
    while at <= room {
        let insn = decode(code.get(at as usize..)?)?;
        if !is_harmless(&insn) {
            return None;
        }
        at += u64::from(insn.len);
        let next = first + at;
        reads.extend([insn.dst, insn.src].into_iter().filter_map(|operand| match operand {
            Operand::Mem(mem) if !matches!(insn.op, Op::Lea | Op::Nop) => Some((mem, next)),
            _ => None,
        }));
        has_way_out |= matches!(insn.op, Op::Jcc(_));
        if let (Op::Jcc(_) | Op::Jmp, Operand::Imm(distance)) = (insn.op, insn.src) {
            let to = next.wrapping_add_signed(distance);
            if next > last && to <= first && first - to <= LOOP {
                return has_way_out.then_some((to, reads));
            }
        }
    }
    None
}

/// Whether an instruction can be in a loop that only waits: it changes no memory, but for atomic tries to take a lock.
fn is_harmless(insn: &Insn) -> bool {
    let writes = matches!(insn.dst, Operand::Mem(_))
        && !matches!(insn.op, Op::Alu(Alu::Cmp) | Op::Test | Op::Nop)
        && !insn.lock
        && insn.op != Op::Xchg;
    !writes
        && !matches!(insn.op, Op::Call | Op::Ret | Op::Syscall | Op::Push | Op::Pop | Op::String | Op::Other | Op::Stop)
}

/// Where an operand lay at a sample.
fn address(mem: &Mem, next: u64, sample: &Sample) -> Option<u64> {
    let registers = sample.registers.as_ref().filter(|_| !mem.segment)?;
    let of = |register: u8| registers.general.get(usize::from(register)).copied();
    let base = match (mem.base, mem.pc_relative) {
        (_, true) => next,
        (Some(register), false) => of(register)?,
        (None, false) => 0,
    };
    let index = match mem.index {
        Some((register, scale)) => of(register)?.wrapping_mul(u64::from(scale)),
        None => 0,
    };
    Some(base.wrapping_add(index).wrapping_add_signed(mem.disp))
}

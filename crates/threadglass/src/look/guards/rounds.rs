//! What a running thread goes round in: its code is followed from where the thread was seen, until all is as it was before.
//! Nothing but another thread can end such a round, so the thread waits, without sleeping, for a word that it reads.
//!
//! What differs from round to round (a counter of tries) is taken for unknown. Where a jump depends on that, both ways are gone,
//! and both must lead back. No address may depend on anything unknown.

use super::machine::{Machine, Next, Value};
use super::pages::Pages;
use crate::arch::insn::table::{RESULT, STACK_POINTER};
use crate::arch::insn::{Alu, Insn, LONGEST, Op, Operand, decode};
use crate::arch::syscall::{CLOCK_NANOSLEEP, NANOSLEEP, SCHED_YIELD};
use crate::memory::Memory;
use crate::{RemoteAddr, arch};
use std::collections::BTreeSet;
use std::ops::Range;

/// Instructions that are followed to find the round of one thread.
pub(crate) const STEPS: usize = 20_000;
/// Of these, those of a round that are remembered.
const LONGEST_ROUND: usize = 4_096;
/// Of these, those at which flags of before the sample may matter, and how many jumps may depend on them.
const FIRST: usize = 8;
const FORKS: u8 = 2;
/// Loops of which rounds are tried with something unknown, how many bytes of code each has at most, and how often.
const TOPS: usize = 16;
const LOOP: u64 = 4096;
const TRIES: u8 = 2;
/// Jumps of one round that depend on what differs, counted as often as they are come to.
const BRANCHES: usize = 16;
/// Times that more is taken for unknown in one try.
const WIDENINGS: usize = 8;
/// Words that a thread waits for in one round, at most; more of them are work.
const WORDS: usize = 8;
/// How far the thread's own memory reaches below and above its stack pointer.
const OWN_STACK: u64 = 64 << 10;
/// How far libc's record of the thread reaches above the thread pointer, and thread-local variables below it.
const OWN_DATA: u64 = 2304;

/// A running thread as the kernel saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningThread<'s> {
    /// Where it is in its code, or goes on after a system call.
    pub(crate) pc: u64,
    /// In the order of the encoding, as far as they are known.
    pub(crate) registers: [Option<u64>; 16],
    /// The stack from the stack pointer on.
    pub(crate) stack: &'s [u8],
    /// Whether it is in a system call.
    pub(crate) in_call: bool,
    /// Where its thread-local data is found.
    pub(crate) thread_pointer: Option<u64>,
}

/// What a thread does again and again while it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// Addresses of the instructions.
    pub(crate) places: BTreeSet<u64>,
    /// The thread lets others run.
    pub(crate) yields: bool,
    /// The thread sleeps for a time.
    pub(crate) sleeps: bool,
    /// The words that decide whether the thread goes round once more, the one that is most likely waited for first; each with
    /// the place that reads it. None where nothing can end the round.
    pub(crate) words: Vec<(RemoteAddr, u64)>,
}

/// The round of `thread`, if that is all it does. Takes the instructions that were followed off `budget`.
pub(crate) fn round(memory: &dyn Memory, thread: &RunningThread<'_>, budget: &mut usize) -> Option<Round> {
    let mut pages = Pages::new(memory);
    let sp = thread.registers[STACK_POINTER]?;
    pages.set_stack(sp, thread.stack.to_vec());
    let mut machine = Machine::new(thread.pc, thread.registers.map(Value::from));
    machine.thread_pointer = thread.thread_pointer;
    machine.is_exact = true;
    if thread.in_call {
        // What the call answers is not in the registers yet: it is made once more.
        machine.pc = arch::code::call_before(|at, buf| pages.code(at, buf), thread.pc)?;
        machine.regs[RESULT] = Value::UNKNOWN;
    }
    let stack = sp.saturating_sub(OWN_STACK)..sp.saturating_add(OWN_STACK);
    let data = thread.thread_pointer.map_or(0..0, |at| at.saturating_sub(OWN_DATA)..at.saturating_add(OWN_DATA));
    Rounds { pages, own: [stack, data], budget }.find(machine, FORKS)
}

struct Rounds<'m> {
    pages: Pages<'m>,
    /// Instructions that may still be followed.
    budget: &'m mut usize,
    /// The part of the thread's own stack that it works with, and what libc keeps for the thread.
    own: [Range<u64>; 2],
}

/// A place in memory and its size, if an instruction works on one.
type Touched = Option<(u64, u8)>;

/// What one instruction did.
struct Done {
    at: u64,
    is_atomic: bool,
    /// The number of a system call.
    call: Option<i64>,
    /// Memory that was read, and written.
    read: Touched,
    written: Touched,
    /// Whether other threads can see a change.
    is_seen: bool,
}

/// All ways of a round.
struct Ways {
    /// What is then.
    ends: Vec<Machine>,
    steps: Vec<Done>,
    /// Addresses of the jumps that depend on something unknown.
    undecided: BTreeSet<u64>,
    /// Whether all ways lead back.
    is_whole: bool,
}

/// Why the code cannot be followed.
enum Lost {
    /// A jump depends on something unknown; where it may lead.
    Undecided(u64),
    /// Anything else.
    Otherwise,
}

impl Rounds<'_> {
    /// Whether other threads have nothing to do with what is at `addr`.
    fn is_own(&self, addr: u64) -> bool {
        self.own.iter().any(|own| own.contains(&addr))
    }

    /// Follows `machine` until it is as it was at an earlier time, which is moved on from time to time, or comes to the top of a
    /// loop again. At `forks` jumps both ways are tried.
    fn find(&mut self, mut machine: Machine, forks: u8) -> Option<Round> {
        let (mut earlier, mut since, mut next_earlier) = (machine.clone(), 0, 16);
        let mut tops: Vec<(Machine, u8)> = Vec::new();
        for step in 1..=STEPS {
            let at = machine.pc;
            match self.step(&mut machine) {
                Ok(_) => {}
                // The flags are not known at first. A way that leaves the loop proves nothing.
                Err(Lost::Undecided(to)) if step <= FIRST && forks > 0 => {
                    let mut jumped = machine.clone();
                    jumped.pc = to;
                    return self.find(jumped, forks - 1).or_else(|| self.find(machine, forks - 1));
                }
                Err(_) => return None,
            }
            if machine.is_at(&earlier) && machine.is_like(&mut self.pages, &earlier) {
                let steps = self.go_round(&earlier, step - since)?;
                return self.describe(&earlier, &steps, &BTreeSet::new(), true);
            }
            if machine.pc < at && at - machine.pc < LOOP {
                match tops.iter().position(|(top, _)| machine.is_at(top)) {
                    Some(index) if tops[index].1 < TRIES => {
                        let start = machine.widened(&mut self.pages, &tops[index].0);
                        if let Some(found) = self.prove(start) {
                            return Some(found);
                        }
                        tops[index] = (machine.clone(), tops[index].1 + 1);
                    }
                    None if tops.len() < TOPS => tops.push((machine.clone(), 0)),
                    _ => {}
                }
            }
            if step == next_earlier {
                (earlier, since, next_earlier) = (machine.clone(), step, 2 * next_earlier);
            }
        }
        None
    }

    /// Goes one round from `start`, and more with less known, until it comes back as it was.
    fn prove(&mut self, mut start: Machine) -> Option<Round> {
        for _ in 0..WIDENINGS {
            let ways = self.go_all_ways(&start, LONGEST_ROUND);
            if !ways.is_whole || ways.steps.iter().any(|done| done.is_seen) {
                return None;
            }
            let mut wider = start.clone();
            for end in &ways.ends {
                wider = end.widened(&mut self.pages, &wider);
            }
            if wider.is_like(&mut self.pages, &start) {
                return self.describe(&start, &ways.steps, &ways.undecided, false);
            }
            start = wider;
        }
        None
    }

    /// One round of this many steps, which changes nothing that other threads can see.
    fn go_round(&mut self, start: &Machine, number: usize) -> Option<Vec<Done>> {
        let (mut machine, mut steps) = (start.clone(), Vec::new());
        while steps.len() < number.min(LONGEST_ROUND) {
            let done = self.step(&mut machine).ok()?;
            if done.is_seen {
                return None;
            }
            steps.push(done);
        }
        Some(steps)
    }

    /// All ways from `start` until it is passed again, of `limit` steps together, whatever other threads can see of it.
    fn go_all_ways(&mut self, start: &Machine, limit: usize) -> Ways {
        let mut ways = Ways { ends: Vec::new(), steps: Vec::new(), undecided: BTreeSet::new(), is_whole: true };
        let (mut open, mut branches) = (vec![start.clone()], 0);
        while let Some(mut machine) = open.pop() {
            loop {
                let at = machine.pc;
                match self.step(&mut machine) {
                    _ if ways.steps.len() >= limit => ways.is_whole = false,
                    Ok(done) => {
                        ways.steps.push(done);
                        if !machine.is_at(start) {
                            continue;
                        }
                        ways.ends.push(machine);
                    }
                    Err(Lost::Undecided(to)) => {
                        ways.undecided.insert(at);
                        branches += 1;
                        if branches <= BRANCHES && machine.pc != at {
                            let mut jumped = machine.clone();
                            jumped.pc = to;
                            let list = if jumped.is_at(start) { &mut ways.ends } else { &mut open };
                            list.push(jumped);
                            continue;
                        }
                        ways.is_whole = false;
                    }
                    _ => ways.is_whole = false,
                }
                break;
            }
        }
        ways
    }

    /// The round that was gone from `start`, where these jumps depend on what differs; if it `is_exact`, nothing does.
    fn describe(
        &mut self,
        start: &Machine,
        steps: &[Done],
        undecided: &BTreeSet<u64>,
        is_exact: bool,
    ) -> Option<Round> {
        let end = |word: (u64, u8)| word.0.saturating_add(word.1.into());
        let overlap = |a: (u64, u8), b: (u64, u8)| a.0 < end(b) && b.0 < end(a);
        let is_written = |word| steps.iter().filter_map(|done| done.written).any(|written| overlap(written, word));
        let is_own = |word: &(u64, u8)| self.is_own(word.0) && is_written(*word);
        // From the top of the loop on: what is waited for is usually read first there.
        let top = (0..steps.len()).min_by_key(|index| steps[*index].at)?;
        let (begin, end) = steps.split_at(top);
        let mut words: Vec<((u64, u8), u64)> = Vec::new();
        for done in end.iter().chain(begin) {
            let is_new = |word: &(u64, u8)| words.iter().all(|(known, _)| known != word);
            if let Some(word) = done.read.filter(|word| !is_own(word) && is_new(word)) {
                words.push((word, done.at));
            }
        }
        let sleeps = steps.iter().any(|done| done.call.is_some_and(|call| call != SCHED_YIELD));
        // All is as before, nothing is read that another thread could change, and no time passes in a call.
        let is_endless = words.is_empty() && undecided.is_empty() && is_exact && !sleeps;
        words.retain(|(word, _)| self.decides(start, *word, steps.len(), undecided));
        if words.is_empty() && !is_endless || words.len() > WORDS {
            return None;
        }
        // What the thread tries to take, else what is not its own.
        let is_tried = |word: &(u64, u8)| steps.iter().any(|done| done.is_atomic && done.written == Some(*word));
        words.sort_by_key(|(word, _)| (!is_tried(word), self.is_own(word.0)));
        Some(Round {
            places: steps.iter().map(|done| done.at).collect(),
            yields: steps.iter().any(|done| done.call == Some(SCHED_YIELD)),
            sleeps,
            words: words.into_iter().map(|((addr, _), place)| (RemoteAddr(addr), place)).collect(),
        })
    }

    /// Whether a jump on the way from `start` depends on `word`, other than by an address that is computed from it, and is none
    /// of those that are `undecided` anyway.
    fn decides(&mut self, start: &Machine, word: (u64, u8), steps: usize, undecided: &BTreeSet<u64>) -> bool {
        let mut machine = start.clone();
        machine.store(&mut self.pages, word.0, word.1, Value::UNKNOWN);
        // The jump may come after the round, by the flags that it leaves.
        for _ in 0..2 * steps {
            let at = machine.pc;
            match self.step(&mut machine) {
                Ok(_) => {}
                Err(Lost::Undecided(_)) if !undecided.contains(&at) => return true,
                // The word may decide on each of the ways.
                Err(Lost::Undecided(_)) => {
                    return !self.go_all_ways(&machine, 2 * steps).undecided.is_subset(undecided);
                }
                Err(Lost::Otherwise) => return false,
            }
        }
        false
    }

    /// Does the instruction at hand, if all that it does is known.
    fn step(&mut self, machine: &mut Machine) -> Result<Done, Lost> {
        let at = machine.pc;
        *self.budget = self.budget.checked_sub(1).ok_or(Lost::Otherwise)?;
        let mut code = [0; LONGEST];
        let got = self.pages.code(at, &mut code);
        let insn = decode(&code[..got]).ok_or(Lost::Otherwise)?;
        let (read, written) = self.touched(machine, &insn)?;
        let call = machine.regs[RESULT].get(4).filter(|_| insn.op == Op::Syscall).map(|number| number as i64);
        let call = call.filter(|number| [SCHED_YIELD, NANOSLEEP, CLOCK_NANOSLEEP].contains(number));
        let is_unknown = match insn.op {
            Op::Syscall => call.is_none(),
            Op::Other => written.is_some(),
            Op::String | Op::Stop => true,
            _ => !machine.has_room(),
        };
        if is_unknown {
            return Err(Lost::Otherwise);
        }
        if let (Op::Cmpxchg, Some((addr, size))) = (insn.op, read)
            && machine.regs[RESULT].get(size).is_none() | machine.load(&mut self.pages, addr, size).get(size).is_none()
        {
            return Err(Lost::Undecided(at.wrapping_add(u64::from(insn.len))));
        }
        let shared = written.filter(|(addr, _)| !self.is_own(*addr));
        if shared.is_some_and(|(_, size)| size > 8) {
            return Err(Lost::Otherwise);
        }
        let before = shared.map(|(addr, size)| machine.load(&mut self.pages, addr, size));
        let (next, atomic) = machine.step(&mut self.pages, &insn);
        let is_seen = before != shared.map(|(addr, size)| machine.load(&mut self.pages, addr, size));
        if call.is_some() {
            machine.regs[RESULT] = Value::of(0);
        }
        match next {
            Next::On => {}
            Next::Jump(Some(to)) => machine.pc = to,
            Next::Call(Some(to)) => {
                let back = Value::of(machine.pc);
                machine.push(&mut self.pages, back);
                machine.pc = to;
            }
            Next::Return => machine.pc = machine.pop(&mut self.pages).get(8).ok_or(Lost::Otherwise)?,
            Next::Either(to) => return Err(Lost::Undecided(to)),
            Next::Jump(None) | Next::Call(None) | Next::End => return Err(Lost::Otherwise),
        }
        Ok(Done { at, is_atomic: atomic.is_some(), call, read, written, is_seen })
    }

    /// The memory that an instruction reads and writes, but for pushes and pops.
    fn touched(&self, machine: &Machine, insn: &Insn) -> Result<(Touched, Touched), Lost> {
        if matches!(insn.op, Op::Lea | Op::Nop) {
            return Ok((None, None));
        }
        let place = |operand: Operand, size: u8| match operand {
            Operand::Mem(mem) => machine.address_of(insn, &mem).map(|addr| Some((addr, size))).ok_or(Lost::Otherwise),
            _ => Ok(None),
        };
        let from = match insn.op {
            Op::Movzx(from) | Op::Movsx(from) => from,
            _ => insn.size,
        };
        let (dst, src) = (place(insn.dst, insn.size)?, place(insn.src, from)?);
        let only_reads = matches!(insn.op, Op::Alu(Alu::Cmp) | Op::Test | Op::Push | Op::Call | Op::Jmp);
        let only_writes = matches!(insn.op, Op::Mov | Op::MovVector | Op::Setcc(_) | Op::Pop);
        let read = src.or(dst.filter(|_| !only_writes)).map(|(addr, size)| (addr, size.min(8)));
        Ok((read, dst.filter(|_| !only_reads)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    const CODE: u64 = 0x1000;
    const DATA: u64 = 0x5000;
    const STACK: u64 = 0x9000;

    /// The round of a thread at the beginning of `code`, with pointers to data in all registers.
    fn round_in(code: &[u8]) -> Option<Round> {
        let mut memory = Bytes::default();
        memory.map(RemoteAddr(CODE), code.to_vec());
        memory.map(RemoteAddr(DATA), vec![0; 256]);
        memory.map(RemoteAddr(STACK - 256), vec![0; 512]);
        let mut registers = [Some(DATA); 16];
        registers[STACK_POINTER] = Some(STACK);
        let thread =
            RunningThread { pc: CODE, registers, stack: &[], in_call: false, thread_pointer: Some(u64::MAX - 4) };
        round(&memory, &thread, &mut 2_000)
    }

    #[test]
    fn waits_and_work() {
        // mov (%rdi),%eax; test %eax,%eax; je
        let waits = round_in(&[0x8b, 0x07, 0x85, 0xc0, 0x74, 0xfa]).expect("a round");
        assert_eq!((waits.words.as_slice(), waits.yields), ([(RemoteAddr(DATA), CODE)].as_slice(), false));
        assert_eq!(waits.places, BTreeSet::from([CODE, CODE + 2, CODE + 4]));
        // mov (%rdi),%eax; inc %ecx; test %eax,%eax; je: nobody looks at the count.
        let counts = round_in(&[0x8b, 0x07, 0xff, 0xc1, 0x85, 0xc0, 0x74, 0xf8]).expect("a round");
        assert_eq!(counts.words, [(RemoteAddr(DATA), CODE)]);
        // xor %edx,%edx; mov $24,%eax; syscall; cmp (%rdi),%edx; je
        let yields = round_in(&[0x31, 0xd2, 0xb8, 24, 0, 0, 0, 0x0f, 0x05, 0x3b, 0x17, 0x74, 0xf3]).expect("a round");
        assert!(yields.yields, "{yields:?}");
        // top: cmpl $0,(%rdi); jne out; inc %ecx; cmp $0x7fffffff,%ecx; jle top; xor %ecx,%ecx; jmp top; out: ud2
        let tries = [
            0x83, 0x3f, 0, 0x75, 14, 0xff, 0xc1, 0x81, 0xf9, 0xff, 0xff, 0xff, 0x7f, 0x7e, 0xf1, 0x31, 0xc9, 0xeb,
            0xed, 0x0f, 0x0b,
        ];
        assert_eq!(round_in(&tries).expect("a round").words, [(RemoteAddr(DATA), CODE)]);
        // The same with a way out by the count: it will end.
        let gives_up =
            [0x83, 0x3f, 0, 0x75, 10, 0xff, 0xc1, 0x81, 0xf9, 0xff, 0xff, 0xff, 0x7f, 0x7e, 0xf1, 0x0f, 0x0b];
        assert_eq!(round_in(&gives_up), None);
        // jmp: it waits for nothing, and nothing ends it.
        assert_eq!(round_in(&[0xeb, 0xfe]).expect("a round").words, []);
        let works: [&[u8]; 4] = [
            // incl (%rdi); jmp: it changes memory.
            &[0xff, 0x07, 0xeb, 0xfc],
            // mov (%rdi),%eax; jmp: whatever it reads.
            &[0x8b, 0x07, 0xeb, 0xfc],
            // dec %ecx; jne: it will end.
            &[0xff, 0xc9, 0x75, 0xfc],
            // mov $1,%eax; syscall; cmp (%rdi),%edx; jne: another call.
            &[0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0x3b, 0x17, 0x75, 0xf5],
        ];
        for code in works {
            assert_eq!(round_in(code), None, "{code:x?}");
        }
    }

    #[test]
    fn any_code_is_followed() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let mut code: Vec<u8> = (0..6).flat_map(|_| random().to_le_bytes()).collect();
            // Vectors and locked instructions are rare among random ones.
            match random() % 4 {
                0 => code[..2].copy_from_slice(&[0x0f, 0x29]),
                1 => code[..3].copy_from_slice(&[0xf0, 0x0f, 0xb1]),
                2 => code[..3].copy_from_slice(&[0x66, 0x0f, 0x6f]),
                _ => {}
            }
            round_in(&code);
        }
    }
}

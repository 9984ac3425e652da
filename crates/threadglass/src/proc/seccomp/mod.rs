//! Running filters (classic BPF, of which seccomp allows a part) on calls of which not everything is known.

use crate::arch::AUDIT;
#[cfg(test)]
mod oracle_tests;

use std::collections::HashSet;

/// One filter, as it was given to the kernel: eight bytes for each instruction.
pub type Filter = Vec<[u8; 8]>;

/// What a call's arguments are, as far as they are known.
pub type Args = [Option<u64>; 6];

/// What becomes of a call: the worst that can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It is made.
    Allowed,
    /// It returns an error, and is not made.
    Fails,
    /// The thread is killed or stopped, or gets a signal, or another process decides; or the outcome cannot be told.
    Worse,
}

/// States of one filter that are followed for one call, at most. Jumps lead forwards only, so few ever meet.
const MAX_STATES: usize = 1 << 16;

/// What a filter returns: the upper half of the word is one of these, or something worse.
const ERRNO: u32 = 0x0005_0000;
const LOG: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;

/// What `filters` together say of a call: the strictest word of all.
pub fn verdict(filters: &[Filter], number: u32, args: &Args) -> Verdict {
    let each = filters.iter().map(|filter| of_filter(filter, number, args).unwrap_or(Verdict::Worse));
    each.max().unwrap_or(Verdict::Allowed)
}

/// A word that may be known.
type MaybeWord = Option<u32>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FilterState {
    at: usize,
    a: MaybeWord,
    x: MaybeWord,
    memory: [MaybeWord; 16],
}

fn load(number: u32, args: &Args, at: u32) -> Option<MaybeWord> {
    Some(match at {
        0 => Some(number),
        4 => Some(AUDIT),
        // Where the call is made.
        8 | 12 => None,
        16..64 if at.is_multiple_of(4) => args[(at as usize - 16) / 8].map(|arg| match at.is_multiple_of(8) {
            true => arg as u32,
            false => (arg >> 32) as u32,
        }),
        _ => return None,
    })
}

fn action(value: u32) -> Verdict {
    match value & 0xffff_0000 {
        ALLOW | LOG => Verdict::Allowed,
        // An error of 0 looks like success: a program that relies on the call goes wrong later.
        ERRNO if value & 0xffff != 0 => Verdict::Fails,
        _ => Verdict::Worse,
    }
}

fn arithmetic(code: u16, a: MaybeWord, operand: MaybeWord) -> Option<MaybeWord> {
    let both = |act: fn(u32, u32) -> u32| a.zip(operand).map(|(a, operand)| act(a, operand));
    Some(match code & 0xf0 {
        0x00 => both(u32::wrapping_add),
        0x10 => both(u32::wrapping_sub),
        0x20 => both(u32::wrapping_mul),
        // The kernel kills for a division by zero, and an operand that is not known may be zero.
        0x30 => {
            let operand = operand.filter(|operand| *operand != 0)?;
            a.map(|a| a / operand)
        }
        0x40 => both(|a, b| a | b),
        0x50 if a == Some(0) || operand == Some(0) => Some(0),
        0x50 => both(|a, b| a & b),
        // The processor takes the lower five bits of the distance, and so does the kernel.
        0x60 => both(u32::wrapping_shl),
        0x70 => both(u32::wrapping_shr),
        0x80 => a.map(u32::wrapping_neg),
        0xa0 => both(|a, b| a ^ b),
        _ => return None,
    })
}

/// The worst that one filter can say; `None` if it makes no sense.
fn of_filter(filter: &[[u8; 8]], number: u32, args: &Args) -> Option<Verdict> {
    let mut worst = Verdict::Allowed;
    let mut open = vec![FilterState { at: 0, a: Some(0), x: Some(0), memory: [Some(0); 16] }];
    let mut seen = HashSet::new();
    while let Some(mut state) = open.pop() {
        if !seen.insert(state) {
            continue;
        }
        if seen.len() > MAX_STATES {
            return None;
        }
        let [c0, c1, jt, jf, k @ ..] = *filter.get(state.at)?;
        let (code, k) = (u16::from_le_bytes([c0, c1]), u32::from_le_bytes(k));
        state.at += 1;
        let operand = if code & 8 != 0 { state.x } else { Some(k) };
        match code & 7 {
            to @ (0 | 1) => {
                let register = if to == 0 { &mut state.a } else { &mut state.x };
                *register = match code & 0xe0 {
                    0x00 => Some(k),
                    0x20 if to == 0 => load(number, args, k)?,
                    0x60 => *state.memory.get(k as usize)?,
                    0x80 => Some(64),
                    _ => return None,
                }
            }
            2 => *state.memory.get_mut(k as usize)? = state.a,
            3 => *state.memory.get_mut(k as usize)? = state.x,
            4 => state.a = arithmetic(code, state.a, operand)?,
            5 if code & 0xf0 == 0 => state.at = state.at.checked_add(k as usize)?,
            5 => {
                let is_taken: fn(u32, u32) -> bool = match code & 0xf0 {
                    0x10 => |a, b| a == b,
                    0x20 => |a, b| a > b,
                    0x30 => |a, b| a >= b,
                    0x40 => |a, b| a & b != 0,
                    _ => return None,
                };
                let decided = state.a.zip(operand).map(|(a, operand)| is_taken(a, operand));
                let mut taken = state;
                taken.at += usize::from(jt);
                if code & 0xf0 == 0x10 {
                    taken.a = taken.a.or(operand);
                }
                state.at += usize::from(jf);
                match decided {
                    Some(true) => state = taken,
                    Some(false) => {}
                    None => open.push(taken),
                }
            }
            6 => {
                let value = if code & 0x18 == 0x10 { state.a? } else { k };
                worst = worst.max(action(value));
                continue;
            }
            _ => match code & 0xf8 {
                0x00 => state.x = state.a,
                0x80 => state.a = state.x,
                _ => return None,
            },
        }
        open.push(state);
    }
    Some(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILL: u32 = 0;

    pub(super) fn op(code: u16, jt: u8, jf: u8, k: u32) -> [u8; 8] {
        let ([c0, c1], [k0, k1, k2, k3]) = (code.to_le_bytes(), k.to_le_bytes());
        [c0, c1, jt, jf, k0, k1, k2, k3]
    }

    fn of(program: &[[u8; 8]], number: u32, args: Args) -> Verdict {
        verdict(&[program.to_vec()], number, &args)
    }

    #[test]
    fn filters_are_read_as_the_kernel_reads_them() {
        // As libseccomp writes them: the machine, then a list of numbers.
        let program = [
            op(0x20, 0, 0, 4),
            op(0x15, 0, 5, AUDIT),
            op(0x20, 0, 0, 0),
            op(0x15, 2, 0, 319),
            op(0x15, 0, 2, 9),
            op(0x06, 0, 0, ALLOW),
            op(0x06, 0, 0, ERRNO | 1),
            op(0x06, 0, 0, KILL),
        ];
        assert_eq!(of(&program, 9, [None; 6]), Verdict::Allowed);
        assert_eq!(of(&program, 319, [None; 6]), Verdict::Fails);
        assert_eq!(of(&program, 1, [None; 6]), Verdict::Worse);
        // What makes no sense, or has no end, allows nothing.
        for nonsense in [&[op(0x05, 0, 0, 100)][..], &[op(0x20, 0, 0, 3)], &[]] {
            assert_eq!(of(nonsense, 0, [None; 6]), Verdict::Worse);
        }
        // What returns 0 and was not made has not failed.
        assert_eq!(of(&[op(0x06, 0, 0, ERRNO)], 9, [None; 6]), Verdict::Worse);
        // The strictest of several counts.
        let allow = vec![op(0x06, 0, 0, ALLOW)];
        assert_eq!(verdict(&[allow.clone(), program.to_vec()], 319, &[None; 6]), Verdict::Fails);
        assert_eq!(verdict(&[allow], 319, &[None; 6]), Verdict::Allowed);
    }

    #[test]
    fn every_value_of_what_is_not_known_is_thought_of() {
        // Kills if the third argument has a bit.
        let program = [op(0x20, 0, 0, 32), op(0x45, 0, 1, 4), op(0x06, 0, 0, KILL), op(0x06, 0, 0, ALLOW)];
        let third = |value| [None, None, value, None, None, None];
        assert_eq!(of(&program, 9, third(Some(3))), Verdict::Allowed);
        assert_eq!(of(&program, 9, third(Some(7))), Verdict::Worse);
        assert_eq!(of(&program, 9, third(None)), Verdict::Worse);
        // Its upper half.
        let program = [op(0x20, 0, 0, 36), op(0x15, 1, 0, 0), op(0x06, 0, 0, KILL), op(0x06, 0, 0, ALLOW)];
        assert_eq!(of(&program, 9, third(Some(3))), Verdict::Allowed);
        assert_eq!(of(&program, 9, third(Some(1 << 32))), Verdict::Worse);
        // What was found equal is known from there on; no bit of nothing is set.
        let program = [
            op(0x20, 0, 0, 32),
            op(0x15, 0, 2, 5),
            op(0x15, 1, 0, 5),
            op(0x06, 0, 0, KILL),
            op(0x54, 0, 0, 0),
            op(0x15, 0, 1, 0),
            op(0x06, 0, 0, ALLOW),
            op(0x06, 0, 0, KILL),
        ];
        assert_eq!(of(&program, 9, third(None)), Verdict::Allowed);
    }

    #[test]
    fn a_filter_that_multiplies_ways_ends() {
        // 600 times: add something to the sum, or not, as an unknown bit says.
        let mut program = vec![op(0x00, 0, 0, 0), op(0x02, 0, 0, 0)];
        for bit in 0..600_u32 {
            program.extend([
                op(0x20, 0, 0, 32),
                op(0x45, 0, 3, 1 << (bit % 32)),
                op(0x60, 0, 0, 0),
                op(0x04, 0, 0, bit),
                op(0x02, 0, 0, 0),
            ]);
        }
        program.push(op(0x06, 0, 0, ALLOW));
        assert_eq!(of(&program, 9, [None; 6]), Verdict::Worse);
    }
}

//! Seccomp filters of any instructions: running them ends, and what is said of a call of which less is known is no better.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::internals::{Filter, Verdict, verdict};

/// Parts of an instruction: its code, two distances to jump, a number.
type Parts = (u8, u8, u8, u32);

/// What is known of a call: its number, its arguments, and which of these are known.
type Call = (u32, [u64; 6], u8);

/// An instruction that seccomp may allow: one of its codes, so that most inputs get past the first of them.
fn instruction((code, jt, jf, k): Parts) -> [u8; 8] {
    const CODES: [u16; 16] =
        [0x20, 0x20, 0x20, 0x15, 0x15, 0x25, 0x35, 0x45, 0x05, 0x06, 0x54, 0x04, 0x02, 0x60, 0x07, 0x1d];
    let code = if code < 0xf0 { CODES[usize::from(code % 16)] } else { u16::from(code) << 1 };
    // Words that are there, and returns that mean something, are a few of all numbers.
    let k = match code {
        0x20 if k % 8 != 0 => k % 16 * 4,
        0x06 if k % 8 != 0 => [0x7fff_0000, 0x0005_0001, 0, 0x7ffc_0000][k as usize % 4],
        0x02 | 0x60 => k % 17,
        0x05 => k % 32,
        _ => k,
    };
    let [a, b, c, d] = k.to_le_bytes();
    let [low, high] = code.to_le_bytes();
    [low, high, jt % 16, jf % 16, a, b, c, d]
}

fuzz_target!(|input: (Vec<Vec<Parts>>, Call)| {
    let (filters, (number, args, known)) = input;
    let filters: Vec<Filter> = filters.into_iter().map(|one| one.into_iter().map(instruction).collect()).collect();
    let of = |known: u8| {
        let mut index = 0..6;
        verdict(&filters, number, &args.map(|arg| index.next().filter(|at| known >> at & 1 == 1).map(|_| arg)))
    };
    let (all, some, none) = (of(0x3f), of(known), of(0));
    assert!(all <= some && some <= none, "{all:?}, {some:?}, {none:?}");
    if filters.is_empty() {
        assert_eq!(none, Verdict::Allowed);
    }
    // A filter that falls off its end, or is empty, is none that the kernel takes.
    if filters.iter().any(Vec::is_empty) {
        assert_eq!(all, Verdict::Worse);
    }
});

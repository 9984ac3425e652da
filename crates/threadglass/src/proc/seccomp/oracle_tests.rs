//! Filters that were made up, in our interpreter and in the kernel.

use super::tests::op;
use super::{ALLOW, Args, ERRNO, Verdict, verdict};
use proptest::prelude::RngExt;
use proptest::test_runner::{RngAlgorithm, TestRng};
use testkit::{Build, Fixture, Variant};

/// A call that no kernel has; `seccomp_oracle.c` makes it.
const NUMBER: u32 = 1000;

/// Numbers that tests of filters tell apart: small ones, single bits, whatever is near a border.
fn word(numbers: &mut TestRng) -> u32 {
    match numbers.random_range(0..5) {
        0 => numbers.random_range(0..8),
        1 => 1 << numbers.random_range(0..32),
        2 => (1_u32 << numbers.random_range(0..32)).wrapping_sub(1),
        3 => u32::MAX - numbers.random_range(0..4),
        _ => numbers.random(),
    }
}

fn one_of<T: Copy>(numbers: &mut TestRng, all: &[T]) -> T {
    all[numbers.random_range(0..all.len())]
}

/// Words of memory that filters here use; the kernel wants each to be written before it is read.
const WORDS: u32 = 4;

/// A filter that the kernel takes: it leaves all calls alone but ours, and jumps forwards only.
fn made_up(numbers: &mut TestRng) -> Vec<[u8; 8]> {
    const LOAD_NUMBER: u16 = 0x20;
    let mut program = vec![op(LOAD_NUMBER, 0, 0, 0), op(0x15, 1, 0, NUMBER), op(0x06, 0, 0, ALLOW)];
    program.extend((0..WORDS).map(|word| op(0x02, 0, 0, word)));
    let length = numbers.random_range(4..44);
    for at in 0..length {
        let left = (length - at).min(6) as u8;
        let jump = |numbers: &mut TestRng| numbers.random_range(0..left);
        let with_x = u16::from(numbers.random::<bool>()) << 3;
        program.push(match numbers.random_range(0..12) {
            0 => op(0x00, 0, 0, word(numbers)),
            // All but where the call comes from.
            1..=3 => op(0x20, 0, 0, 4 * one_of(numbers, &[0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])),
            4 => op(one_of(numbers, &[0x60, 0x61, 0x02, 0x03]), 0, 0, numbers.random_range(0..WORDS)),
            5 => op(one_of(numbers, &[0x80, 0x81, 0x07, 0x87]), 0, 0, 0),
            6 => op(0x01, 0, 0, word(numbers)),
            7 | 8 => {
                let act = one_of(numbers, &[0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0xa0]);
                let k = match act {
                    // A division by nothing and a shift by everything are refused if they are plain to see.
                    0x30 => word(numbers).max(1),
                    0x60 | 0x70 => numbers.random_range(0..32),
                    _ => word(numbers),
                };
                op(0x04 | act | if act == 0x80 { 0 } else { with_x }, 0, 0, k)
            }
            9 | 10 => {
                let test = one_of(numbers, &[0x15, 0x25, 0x35, 0x45]);
                let (jt, jf) = (jump(numbers), jump(numbers));
                op(test | with_x, jt, jf, word(numbers))
            }
            _ if numbers.random_range(0..3) == 0 => op(0x06, 0, 0, one_of(numbers, &[ALLOW, ERRNO | 7])),
            _ => op(0x05, 0, 0, u32::from(jump(numbers))),
        });
    }
    program.push(op(0x06, 0, 0, one_of(numbers, &[ALLOW, ERRNO | 7])));
    program
}

/// Allows our call if a word that is shifted by another becomes a third.
fn shifting(act: u16, word: u32, by: u32, into: u32) -> Vec<[u8; 8]> {
    vec![
        op(0x20, 0, 0, 0),
        op(0x15, 1, 0, NUMBER),
        op(0x06, 0, 0, ALLOW),
        op(0x00, 0, 0, word),
        op(0x01, 0, 0, by),
        op(0x0c | act, 0, 0, 0),
        op(0x15, 0, 1, into),
        op(0x06, 0, 0, ALLOW),
        op(0x06, 0, 0, ERRNO | 7),
    ]
}

#[test]
fn the_kernel_says_the_same_of_filters_that_were_made_up() {
    let mut fixture = Fixture::start(&Build::new("seccomp_oracle.c").variant(Variant::Default).path(), &[]);
    // The same numbers each time.
    let mut numbers = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut seen = [0; 3];
    let shifts = [(0x60, 5, 33, 10), (0x60, 5, 33, 0), (0x70, 8, 33, 4), (0x70, 8, 33, 0), (0x60, 5, 32, 5)];
    let mut programs: Vec<_> = shifts.map(|(act, word, by, into)| shifting(act, word, by, into)).into();
    programs.extend((0..600).map(|_| made_up(&mut numbers)));
    for program in programs {
        let filter = [program.clone()];
        let args: [u64; 6] =
            std::array::from_fn(|_| u64::from(word(&mut numbers)) << 32 | u64::from(word(&mut numbers)));
        let hex: String = program.iter().flatten().map(|byte| format!("{byte:02x}")).collect();
        let [a, b, c, d, e, f] = args;
        let kernel = match fixture.ask(&format!("{hex} {a:x} {b:x} {c:x} {d:x} {e:x} {f:x}")).as_str() {
            "-38" => Verdict::Allowed,
            "-7" => Verdict::Fails,
            "killed" => Verdict::Worse,
            other => panic!("{other}: {program:x?}"),
        };
        seen[kernel as usize] += 1;
        assert_eq!(verdict(&filter, NUMBER, &args.map(Some)), kernel, "{args:x?} {program:x?}");
        // The less is known of the arguments, the worse it may be.
        let some: Args = args.map(|arg| numbers.random::<bool>().then_some(arg));
        for known in [some, [None; 6]] {
            assert!(verdict(&filter, NUMBER, &known) >= kernel, "{known:x?} of {args:x?} {program:x?}");
        }
    }
    assert!(seen.iter().all(|times| *times > 2), "{seen:?}");
}

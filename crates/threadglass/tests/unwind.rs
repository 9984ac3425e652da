//! Stacks and unwind tables that lie: bounded work, no panic, no frame from nowhere.

use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use threadglass::RemoteAddr;
use threadglass::internals::{Image, MAX_FRAMES, Registers, Space, walk_bytes};
use threadglass::memory::{Memory, ReadError};
use threadglass::model::StackEnd;
use threadglass::target::Bytes;

const BASE: u64 = 0x40_0000;
const STACK: u64 = 0x7000_0000;

/// A small object with one function, from 0x1000 to 0x1100 of it, whose frame is undone by `rules`.
fn object(rules: &[u8]) -> Vec<u8> {
    let mut image = vec![0; 0x2000];
    image[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (image[18], image[32], image[54], image[56]) = (62, 64, 56, 2);
    let mut header = |number: usize, kind: u32, at: u64, size: u64| {
        let from = 64 + number * 56;
        image[from..from + 4].copy_from_slice(&kind.to_le_bytes());
        for (place, value) in [(8, at), (16, BASE + at), (32, size), (40, size)] {
            image[from + place..from + place + 8].copy_from_slice(&value.to_le_bytes());
        }
    };
    header(0, 1, 0, 0x2000);
    header(1, 0x6474_e550, 0x1800, 20);
    // The index: the table follows it at 0x1820, the one function's entry is 0x18 further on.
    image[0x1800..0x1804].copy_from_slice(&[1, 0x1b, 0x03, 0x3b]);
    for (at, value) in [(0x1804, 0x1c_i32), (0x1808, 1), (0x180c, -0x800), (0x1810, 0x38)] {
        image[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    // CIE: version 1, "zR", code 1, data -8, return address in 16, pointers relative to themselves.
    let cie = [0x14, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
    image[0x1820..0x1838].copy_from_slice(&cie);
    let length = (13 + rules.len()).next_multiple_of(4);
    image[0x1838..0x183c].copy_from_slice(&(length as u32).to_le_bytes());
    image[0x183c..0x1840].copy_from_slice(&0x1c_u32.to_le_bytes());
    image[0x1840..0x1844].copy_from_slice(&(-0x840_i32).to_le_bytes());
    image[0x1844..0x1848].copy_from_slice(&0x100_u32.to_le_bytes());
    image[0x1849..0x1849 + rules.len()].copy_from_slice(rules);
    image
}

fn walk(image: Vec<u8>, stack: Vec<u8>, registers: Registers) -> (usize, StackEnd) {
    let mut target = Bytes::default();
    target.map(RemoteAddr(BASE), image);
    target.map(RemoteAddr(STACK), stack);
    let space = Space::new(&target, &[(RemoteAddr(BASE), RemoteAddr(BASE + 0x2000))]);
    let walk = walk_bytes(&space, registers);
    assert!(walk.places.len() <= MAX_FRAMES);
    (walk.places.len(), walk.end)
}

fn blocked() -> Registers {
    Registers::blocked(RemoteAddr(BASE + 0x1010), RemoteAddr(STACK))
}

#[test]
fn the_object_is_one_that_can_be_unwound() {
    let mut target = Bytes::default();
    target.map(RemoteAddr(BASE), object(&[]));
    assert!(Image::load(&target, RemoteAddr(BASE)).unwrap().eh_frame_hdr().is_some());
    // Two return addresses, then null.
    let stack: Vec<u8> = [BASE + 0x1020, BASE + 0x1030, 0].into_iter().flat_map(u64::to_le_bytes).collect();
    assert_eq!(walk(object(&[]), stack, blocked()), (3, StackEnd::Start));
}

#[test]
fn a_stack_without_an_end_is_cut() {
    let stack: Vec<u8> = std::iter::repeat_n(BASE + 0x1020, 100_000).flat_map(u64::to_le_bytes).collect();
    assert_eq!(walk(object(&[]), stack, blocked()), (MAX_FRAMES, StackEnd::Limit));
}

#[test]
fn a_stack_that_loops_leaves_its_mapping_or_the_code_ends_there() {
    // CFA = rbp + 16, rbp at CFA - 16: a saved rbp that points at itself.
    let by_rbp = [0x0c, 6, 16, 0x86, 2];
    let looped: Vec<u8> = [STACK, BASE + 0x1020].into_iter().flat_map(u64::to_le_bytes).collect();
    let mut registers = blocked();
    registers.general[6] = Some(STACK);
    let (frames, end) = walk(object(&by_rbp), looped, registers);
    assert!(frames <= 2 && matches!(end, StackEnd::Unknown { .. }), "{frames} {end:?}");
    let short = (BASE + 0x1020).to_le_bytes().to_vec();
    let (frames, end) = walk(object(&[]), short, blocked());
    assert!(frames == 2 && matches!(end, StackEnd::Unknown { .. }), "{frames} {end:?}");
    let (frames, end) = walk(object(&[]), 0x1234_5678_u64.to_le_bytes().to_vec(), blocked());
    assert!(frames == 1 && matches!(end, StackEnd::Unknown { .. }), "{frames} {end:?}");
    // Without rbp, and with nothing on the stack that could tell it.
    let (frames, end) = walk(object(&by_rbp), vec![0; 256], blocked());
    assert!(frames == 1 && matches!(end, StackEnd::Unknown { .. }), "{frames} {end:?}");
}

/// An object, zeros as far as anybody cares to read behind it, and a count of the bytes that were read.
struct Endless {
    object: Vec<u8>,
    stack: Vec<u8>,
    read: AtomicU64,
}

impl Memory for Endless {
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        let (bytes, start) = if addr.0 < STACK { (&self.object, BASE) } else { (&self.stack, STACK) };
        let at = addr.0.wrapping_sub(start) as usize;
        buf.fill(0);
        if let Some(rest) = bytes.get(at..) {
            let there = rest.len().min(buf.len());
            buf[..there].copy_from_slice(&rest[..there]);
        }
        Ok(buf.len())
    }
}

/// The object, with segments of `size` bytes and an index that claims `pairs`; its one function has `nops` more
/// instructions that do nothing.
fn large(size: u64, pairs: u32, nops: usize) -> Endless {
    let mut object = object(&[]);
    object[64 + 40..64 + 48].copy_from_slice(&size.to_le_bytes());
    object[64 + 56 + 40..64 + 56 + 48].copy_from_slice(&(12 + 8 * u64::from(pairs)).to_le_bytes());
    object[0x1808..0x180c].copy_from_slice(&pairs.to_le_bytes());
    object[0x1838..0x183c].copy_from_slice(&(16 + nops as u32).to_le_bytes());
    let stack = [BASE + 0x1020, BASE + 0x1030, 0].into_iter().flat_map(u64::to_le_bytes).collect();
    Endless { object, stack, read: AtomicU64::new(0) }
}

fn walk_large(memory: &Endless) -> (usize, u64) {
    let space = Space::new(memory, &[(RemoteAddr(BASE), RemoteAddr(BASE + (1 << 30)))]);
    let walk = walk_bytes(&space, blocked());
    (walk.places.len(), memory.read.load(Ordering::Relaxed))
}

#[test]
fn of_a_table_that_claims_to_be_endless_only_entries_are_read() {
    let (frames, read) = walk_large(&large(200 << 20, 1, 0));
    assert_eq!(frames, 3);
    assert!(read < 1 << 20, "{read} bytes");
}

#[test]
fn an_index_that_claims_to_be_endless_is_searched_where_it_is() {
    // Pairs are sorted as unsigned numbers would be: behind the first one the zeros are beyond all code.
    let mut memory = large(255 << 20, 20 << 20, 0);
    memory.object[0x180c..0x1810].copy_from_slice(&(-0x800_i32).to_le_bytes());
    let (_, read) = walk_large(&memory);
    assert!(read < 1 << 20, "{read} bytes");
}

#[test]
fn an_entry_that_no_compiler_makes_ends_the_stack() {
    assert_eq!(walk_large(&large(1 << 20, 1, 4 << 10)).0, 3);
    assert_eq!(walk_large(&large(1 << 20, 1, 128 << 10)).0, 1);
}

proptest! {
    #[test]
    fn damaged_tables_and_stacks_are_survived(
        damage in prop::collection::vec((0usize..0x100, any::<u8>()), 0..24),
        headers in prop::collection::vec((0usize..176, any::<u8>()), 0..4),
        rules in prop::collection::vec(any::<u8>(), 0..64),
        stack in prop::collection::vec(prop_oneof![any::<u64>(), (0u64..0x2000).prop_map(|at| BASE + at), (0u64..512).prop_map(|at| STACK + at)], 0..64),
        rbp in prop::option::of(prop_oneof![any::<u64>(), (0u64..512).prop_map(|at| STACK + at)]),
        pc in 0u64..0x2000,
    ) {
        let mut image = object(&rules);
        for (at, byte) in damage {
            image[0x1800 + at] = byte;
        }
        for (at, byte) in headers {
            image[at] = byte;
        }
        let mut registers = Registers::blocked(RemoteAddr(BASE + pc), RemoteAddr(STACK));
        registers.general[6] = rbp;
        walk(image, stack.into_iter().flat_map(u64::to_le_bytes).collect(), registers);
    }
}

//! The seccomp filters of a thread, read from the kernel while the thread goes on.
//!
//! The other way, ptrace, stops the thread, and a thread that is stopped in a system call repeats it: if a filter has come
//! since that forbids the call, the stop itself kills. So two small programs run for the one thread: the first tells where
//! its filters are, the second copies one of them, in pieces. In the end the first is run again: what has not moved was
//! there all the time.

use super::btf::{Btf, TypeKind};
use super::fields::place;
use super::permission;
use super::program::{FRAME, JUMP_IF_EQUAL, LOAD_8, STORE_8, STORE_8_CONSTANT, TASK, insn, probe_read, whole, write};
use crate::Lwp;
use crate::proc::seccomp::Filter;
use crate::sys::bpf::{self, BpfInsn};
use crate::target::Live;
use nix::errno::Errno;
use std::sync::OnceLock;

/// More filters than that are not followed. Services that systemd confines have a dozen.
const FILTERS: usize = 24;
/// A word for how many there are, and for each where it is and how long.
const RECORD: usize = 8 + 16 * FILTERS;
/// Behind the record on the program's stack: a pointer that is being followed.
const POINTER: i16 = -(RECORD as i16) - 8;
const _: () = assert!(RECORD + 8 <= 512);

/// What a program copies in one piece, from its stack, and in one run, into the kernel's buffer.
const PIECE: usize = 256;
const RUN: usize = 16 << 10;
/// Instructions of the longest filter that the kernel allows.
const LONGEST: u64 = 4096;

/// A constant of 64 bits, which takes two instructions.
const LOAD_CONSTANT: u8 = 0x18;
const NOT_EQUAL: u8 = 0x55;

/// Where things are in this kernel.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    function: u32,
    seq: i16,
    first: i16,
    previous: i16,
    program: i16,
    original: i16,
    length: i16,
    code: i16,
}

impl Offsets {
    fn find(types: &[u8]) -> Option<Self> {
        let wanted = [
            (TypeKind::Function, "bpf_iter_task"),
            (TypeKind::Struct, "seccomp_filter"),
            (TypeKind::Struct, "bpf_prog"),
            (TypeKind::Struct, "sock_fprog_kern"),
        ];
        let (btf, [function, filter, program, original]) = Btf::parse(types, wanted)?;
        let (meta, task) = (btf.parameter(function, 0)?, btf.parameter(function, 1)?);
        let is_right = btf.points_to(filter, "prev", filter)
            && btf.points_to(filter, "prog", program)
            && btf.points_to(program, "orig_prog", original);
        is_right.then_some(())?;
        Some(Self {
            function: function.0,
            seq: place(&btf, meta, &["seq"], 8)?,
            first: place(&btf, task, &["seccomp", "filter"], 8)?,
            previous: place(&btf, filter, &["prev"], 8)?,
            program: place(&btf, filter, &["prog"], 8)?,
            original: place(&btf, program, &["orig_prog"], 8)?,
            length: place(&btf, original, &["len"], 2)?,
            code: place(&btf, original, &["filter"], 8)?,
        })
    }

    fn of_this_kernel() -> Option<Self> {
        static FOUND: OnceLock<Option<Offsets>> = OnceLock::new();
        *FOUND.get_or_init(|| Self::find(&bpf::KernelTypes::open().ok()?))
    }
}

/// Tells how many filters there are, and for each where its code is and how long. One more than fit is counted.
fn listing(offsets: &Offsets) -> Vec<BpfInsn> {
    const FOLLOWED: u8 = 9;
    let slot = |word: usize| 8 * word as i16 - RECORD as i16;
    let follow = insn(LOAD_8, FOLLOWED, FRAME, POINTER, 0);
    let mut blocks: Vec<Vec<BpfInsn>> = (0..FILTERS)
        .map(|number| {
            let mut block = vec![insn(STORE_8_CONSTANT, FRAME, 0, slot(0), number as i32 + 1), follow];
            // From the filter to its program, from that to what it was made of.
            block.extend(probe_read(FOLLOWED, offsets.previous, slot(1 + 2 * number), 8));
            block.extend(probe_read(FOLLOWED, offsets.program, POINTER, 8));
            block.push(follow);
            block.extend(probe_read(FOLLOWED, offsets.original, POINTER, 8));
            block.extend([insn(LOAD_8, 6, FRAME, slot(1 + 2 * number), 0), follow]);
            block.extend(probe_read(FOLLOWED, offsets.code, slot(1 + 2 * number), 8));
            block.extend(probe_read(FOLLOWED, offsets.length, slot(2 + 2 * number), 2));
            block.push(insn(STORE_8, FRAME, 6, POINTER, 0));
            block
        })
        .collect();
    let mut body: Vec<BpfInsn> =
        (0..=2 * FILTERS).map(|word| insn(STORE_8_CONSTANT, FRAME, 0, slot(word), 0)).collect();
    body.push(insn(STORE_8_CONSTANT, FRAME, 0, POINTER, 0));
    body.extend(probe_read(TASK, offsets.first, POINTER, 8));
    // Before each: is there another one? At the end: are there too many?
    blocks.push(vec![insn(STORE_8_CONSTANT, FRAME, 0, slot(0), FILTERS as i32 + 1)]);
    let mut rest: usize = blocks.iter().map(|block| block.len() + 2).sum();
    for block in blocks {
        rest -= 2;
        body.extend([insn(LOAD_8, 1, FRAME, POINTER, 0), insn(JUMP_IF_EQUAL, 1, 0, rest as i16, 0)]);
        rest -= block.len();
        body.extend(block);
    }
    body.extend(write(RECORD));
    whole(offsets.seq, &body)
}

/// Copies `pieces` pieces of the kernel's memory at `from`. Where they cannot be read nothing is written.
fn copying(offsets: &Offsets, from: u64, pieces: usize) -> Vec<BpfInsn> {
    const SOURCE: u8 = 6;
    let mut body = Vec::new();
    for piece in 0..pieces {
        let at = from.wrapping_add((piece * PIECE) as u64);
        body.extend([insn(LOAD_CONSTANT, SOURCE, 0, 0, at as i32), insn(0, 0, 0, 0, (at >> 32) as i32)]);
        body.extend(probe_read(SOURCE, 0, -(PIECE as i16), PIECE as i32));
        let write = write(PIECE);
        body.push(insn(NOT_EQUAL, 0, 0, write.len() as i16, 0));
        body.extend(write);
    }
    whole(offsets.seq, &body)
}

/// Runs a program for one thread.
fn run(offsets: &Offsets, code: &[BpfInsn], lwp: Lwp) -> Option<Vec<u8>> {
    let program = bpf::load_iterator(code, offsets.function).ok()?;
    let link = bpf::attach_to_thread(&program, u32::try_from(lwp.0).ok()?).ok()?;
    let mut all = Vec::new();
    let take = |bytes: &[u8]| {
        all.extend_from_slice(bytes);
        // No thread has more than one record.
        if all.len() > 2 * RUN { Err(Errno::EFBIG) } else { Ok(()) }
    };
    super::run(&link, take).ok()?;
    Some(all)
}

impl Live {
    /// The seccomp filters of a thread, the newest first, without a stop; `None` where they cannot be had so.
    pub(crate) fn seccomp_filters(&self, lwp: Lwp) -> Option<Vec<Filter>> {
        if !permission::may_read_kernel(self) {
            return None;
        }
        let offsets = Offsets::of_this_kernel()?;
        let listing = listing(&offsets);
        let list = || run(&offsets, &listing, lwp).filter(|record| record.len() == RECORD);
        let record = list()?;
        let word = |index: usize| u64::from_le_bytes(record[8 * index..][..8].try_into().unwrap_or_default());
        let count = usize::try_from(word(0)).ok().filter(|count| (1..=FILTERS).contains(count))?;
        let mut filters = Vec::new();
        for number in 0..count {
            let (at, length) = (word(1 + 2 * number), word(2 + 2 * number));
            // A kernel that does not keep what a filter was made of.
            if at == 0 || !(1..=LONGEST).contains(&length) {
                return None;
            }
            let size = 8 * length as usize;
            let mut bytes = Vec::new();
            while bytes.len() < size {
                let left = (size - bytes.len()).next_multiple_of(PIECE).min(RUN);
                let got = run(&offsets, &copying(&offsets, at + bytes.len() as u64, left / PIECE), lwp)?;
                if got.len() != left {
                    return None;
                }
                bytes.extend(got);
            }
            bytes.truncate(size);
            filters.push(bytes.as_chunks::<8>().0.to_vec());
        }
        (list()? == record && self.check_identity().is_ok()).then_some(filters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pid;
    use crate::act::StoppedThread;
    use crate::sys::ptrace::seccomp_filter;
    use testkit::{Build, Fixture, Variant};

    /// By ptrace, from a thread that may be stopped.
    fn by_stop(lwp: Lwp) -> Vec<Filter> {
        let _stopped = StoppedThread::stop_by_force(Pid(lwp.0), lwp).unwrap();
        let filters = (0..).map_while(|number| seccomp_filter(lwp, number).unwrap());
        let mut filters: Vec<_> = filters.collect();
        // ptrace counts from the oldest.
        filters.reverse();
        filters
    }

    #[test]
    fn filters_are_the_same_with_and_without_a_stop() {
        testkit::needs_ptrace!();
        let test = "filters_are_the_same_with_and_without_a_stop";
        let program = Build::new("inject_refuse.c").variant(Variant::Default).path();
        let with = |args: &[&str]| {
            let fixture = Fixture::start(&program, args).settled();
            let live = Live::open(Pid(fixture.pid())).unwrap();
            (fixture, live)
        };
        let (_fixture, live) = with(&["filter-argument", "319", "1", "has", "4"]);
        if live.seccomp_filters(live.witness()).is_none() {
            testkit::skip(test, "needs root, and a kernel of 6.1 or later that describes its types");
            return;
        }
        // One; two; the longest there can be, and so many of them that it takes several runs.
        for args in [&["filter-harmless"][..], &["filter-futex"], &["filter-long", "4096"], &["filter-long", "2100"]] {
            let (_fixture, live) = with(args);
            let lwp = live.witness();
            let read = live.seccomp_filters(lwp);
            assert_eq!(read, Some(by_stop(lwp)), "{args:?}");
            assert!(read.is_some_and(|filters| !filters.is_empty()), "{args:?}");
        }
        // None at all, and too many.
        for args in [&["none"][..], &["filter-many", "30"]] {
            let (_fixture, live) = with(args);
            assert_eq!(live.seccomp_filters(live.witness()), None, "{args:?}");
        }
    }
}

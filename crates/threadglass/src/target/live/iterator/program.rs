//! The program that the kernel runs for each thread: it copies fields into a record and writes that.
//!
//! Nearly straight code. It decides nothing: what the values mean is for [`super::record`] to say.
//! Plain members are loaded directly, so the kernel's verifier checks every offset against its own
//! types before the program may run. Members that are pointers are copied by a helper: loaded
//! directly, the verifier would look up what each may be used for, which takes a millisecond.

use super::fields::{Field, FieldOffsets, Load, RECORD};
use crate::sys::bpf::BpfInsn;

/// Copies kernel memory into the frame.
const PROBE_READ_KERNEL: i32 = 113;
/// Writes bytes to the iterator's stream.
const SEQ_WRITE: i32 = 127;
/// Address of a task's user registers.
const TASK_PT_REGS: i32 = 175;

const CONTEXT: u8 = 1;
const VALUE: u8 = 1;
pub(super) const TASK: u8 = 7;
pub(super) const STREAM: u8 = 8;
const REGISTERS: u8 = 0;
const OTHER_TASK: u8 = 9;
pub(super) const FRAME: u8 = 10;

const LOAD_4: u8 = 0x61;
pub(super) const LOAD_8: u8 = 0x79;
pub(super) const STORE_8: u8 = 0x7b;
pub(super) const STORE_8_CONSTANT: u8 = 0x7a;
const COPY: u8 = 0xbf;
const SET: u8 = 0xb7;
const ADD: u8 = 0x07;
pub(super) const JUMP_IF_EQUAL: u8 = 0x15;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

pub(super) fn insn(code: u8, to: u8, from: u8, off: i16, imm: i32) -> BpfInsn {
    BpfInsn { code, regs: to | from << 4, off, imm }
}

/// Where in the frame a word of the record lies.
fn slot(word: usize) -> i16 {
    8 * word as i16 - RECORD as i16
}

fn copy(from: u8, loads: &[Load]) -> impl Iterator<Item = BpfInsn> {
    loads.iter().flat_map(move |load| {
        let code = if load.is_wide { LOAD_8 } else { LOAD_4 };
        [insn(code, VALUE, from, load.offset, 0), insn(STORE_8, FRAME, VALUE, slot(load.word), 0)]
    })
}

/// Copies `size` bytes of the kernel's memory at `from + offset` to the frame, at `to`; zeros where nothing can be read.
pub(super) fn probe_read(from: u8, offset: i16, to: i16, size: i32) -> [BpfInsn; 6] {
    [
        insn(COPY, 1, FRAME, 0, 0),
        insn(ADD, 1, 0, 0, to.into()),
        insn(SET, 2, 0, 0, size),
        insn(COPY, 3, from, 0, 0),
        insn(ADD, 3, 0, 0, offset.into()),
        insn(CALL, 0, 0, 0, PROBE_READ_KERNEL),
    ]
}

/// Writes the last `size` bytes of the frame to the stream.
pub(super) fn write(size: usize) -> [BpfInsn; 5] {
    let size = size as i32;
    [
        insn(COPY, 1, STREAM, 0, 0),
        insn(COPY, 2, FRAME, 0, 0),
        insn(ADD, 2, 0, 0, -size),
        insn(SET, 3, 0, 0, size),
        insn(CALL, 0, 0, 0, SEQ_WRITE),
    ]
}

/// The whole program around `body`, which has [`TASK`] and [`STREAM`]. The latter is at `seq` in the first argument.
pub(super) fn whole(seq: i16, body: &[BpfInsn]) -> Vec<BpfInsn> {
    // The context is the list of arguments: meta, task. The kernel calls once more at the end, without a task.
    let begin = [
        insn(LOAD_8, TASK, CONTEXT, 8, 0),
        insn(JUMP_IF_EQUAL, TASK, 0, body.len() as i16 + 2, 0),
        insn(LOAD_8, STREAM, CONTEXT, 0, 0),
        insn(LOAD_8, STREAM, STREAM, seq, 0),
    ];
    [&begin, body, &[insn(SET, 0, 0, 0, 0), insn(EXIT, 0, 0, 0, 0)]].concat()
}

/// The instructions for this kernel.
pub(super) fn build(fields: &FieldOffsets) -> Vec<BpfInsn> {
    let parent = slot(Field::ParentTid as usize);
    // Filled in any case: the record is written whole.
    let mut body = vec![insn(STORE_8_CONSTANT, FRAME, 0, parent, 0)];
    body.extend(copy(TASK, &fields.before));
    body.extend(probe_read(TASK, fields.robust_list, slot(Field::RobustList as usize), 8));
    // Only of a traced thread: its parent, and of that its number.
    let mut tracer: Vec<_> = probe_read(TASK, fields.parent, parent, 8).into();
    tracer.push(insn(LOAD_8, OTHER_TASK, FRAME, parent, 0));
    tracer.push(insn(STORE_8_CONSTANT, FRAME, 0, parent, 0));
    tracer.extend(probe_read(OTHER_TASK, fields.tid, parent, 4));
    body.push(insn(LOAD_8, VALUE, FRAME, slot(Field::Ptrace as usize), 0));
    body.push(insn(JUMP_IF_EQUAL, VALUE, 0, tracer.len() as i16, 0));
    body.append(&mut tracer);
    body.extend([insn(COPY, 1, TASK, 0, 0), insn(CALL, 0, 0, 0, TASK_PT_REGS)]);
    body.extend(copy(REGISTERS, &fields.registers));
    body.extend(copy(TASK, &fields.after));
    body.extend(write(RECORD));
    whole(fields.seq, &body)
}

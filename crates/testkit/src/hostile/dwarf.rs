//! Debug information that is small in a file and large in memory.

use numbers::*;

/// The few numbers of DWARF that are needed here.
mod numbers {
    pub const TAG_ARRAY: u64 = 0x01;
    pub const TAG_STRUCTURE: u64 = 0x13;
    pub const TAG_TYPEDEF: u64 = 0x16;
    pub const TAG_SUBRANGE: u64 = 0x21;
    pub const TAG_SUBPROGRAM: u64 = 0x2e;
    pub const TAG_VARIABLE: u64 = 0x34;
    pub const TAG_NAMESPACE: u64 = 0x39;
    pub const TAG_UNIT: u64 = 0x11;
    pub const AT_LOCATION: u64 = 0x02;
    pub const AT_NAME: u64 = 0x03;
    pub const AT_BYTE_SIZE: u64 = 0x0b;
    pub const AT_STMT_LIST: u64 = 0x10;
    pub const AT_LOW_PC: u64 = 0x11;
    pub const AT_HIGH_PC: u64 = 0x12;
    pub const AT_COUNT: u64 = 0x37;
    pub const AT_TYPE: u64 = 0x49;
    pub const AT_RANGES: u64 = 0x55;
    pub const FORM_ADDR: u64 = 0x01;
    pub const FORM_DATA2: u64 = 0x05;
    pub const FORM_DATA8: u64 = 0x07;
    pub const FORM_STRING: u64 = 0x08;
    pub const FORM_STRP: u64 = 0x0e;
    pub const FORM_REF4: u64 = 0x13;
    pub const FORM_SEC_OFFSET: u64 = 0x17;
    pub const FORM_EXPRLOC: u64 = 0x18;
}

/// The code that every unit here says it has: all there can be.
const LOW: u64 = 1;
const LENGTH: u64 = 1 << 47;

fn leb(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// An abbreviation: its number, tag, whether there is something below it, and its attributes.
pub fn abbreviation(code: u64, tag: u64, has_children: bool, attributes: &[(u64, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    leb(&mut out, code);
    leb(&mut out, tag);
    out.push(has_children.into());
    for (name, form) in attributes {
        leb(&mut out, *name);
        leb(&mut out, *form);
    }
    out.extend([0, 0]);
    out
}

/// The abbreviations that the units here are made of.
pub fn abbreviations() -> Vec<u8> {
    let unit = [(AT_STMT_LIST, FORM_SEC_OFFSET), (AT_LOW_PC, FORM_ADDR), (AT_HIGH_PC, FORM_DATA8)];
    let mut out = abbreviation(UNIT.into(), TAG_UNIT, true, &unit);
    out.extend(abbreviation(SCOPE.into(), TAG_NAMESPACE, true, &[]));
    out.extend(abbreviation(PIECES.into(), TAG_SUBPROGRAM, false, &[(AT_RANGES, FORM_SEC_OFFSET)]));
    let named = [(AT_NAME, FORM_STRP), (AT_LOW_PC, FORM_ADDR), (AT_HIGH_PC, FORM_DATA8)];
    out.extend(abbreviation(NAMED.into(), TAG_SUBPROGRAM, false, &named));
    out.extend(abbreviation(LOCK.into(), TAG_TYPEDEF, false, &[(AT_NAME, FORM_STRING), (AT_TYPE, FORM_REF4)]));
    out.extend(abbreviation(BODY.into(), TAG_STRUCTURE, false, &[(AT_BYTE_SIZE, FORM_DATA2)]));
    out.extend(abbreviation(ARRAY.into(), TAG_ARRAY, true, &[(AT_TYPE, FORM_REF4)]));
    out.extend(abbreviation(RANGE.into(), TAG_SUBRANGE, false, &[(AT_COUNT, FORM_DATA2)]));
    let variable = [(AT_NAME, FORM_STRING), (AT_TYPE, FORM_REF4), (AT_LOCATION, FORM_EXPRLOC)];
    out.extend(abbreviation(VARIABLE.into(), TAG_VARIABLE, false, &variable));
    out.push(0);
    out
}

pub const UNIT: u8 = 1;
pub const SCOPE: u8 = 2;
pub const PIECES: u8 = 3;
pub const NAMED: u8 = 4;
pub const LOCK: u8 = 5;
pub const BODY: u8 = 6;
pub const ARRAY: u8 = 7;
pub const RANGE: u8 = 8;
pub const VARIABLE: u8 = 9;

/// A unit (version 4) with all code, whose entries are `body`; its abbreviations are at `abbreviations`.
pub fn unit(abbreviations: u32, body: &[u8]) -> Vec<u8> {
    let mut rest = vec![4, 0];
    rest.extend(abbreviations.to_le_bytes());
    rest.push(8);
    rest.push(UNIT);
    rest.extend(0u32.to_le_bytes());
    rest.extend(LOW.to_le_bytes());
    rest.extend(LENGTH.to_le_bytes());
    rest.extend(body);
    rest.push(0);
    let mut out = (rest.len() as u32).to_le_bytes().to_vec();
    out.extend(rest);
    out
}

/// Where the body of a unit begins in it.
const BODY_AT: u32 = 11 + 1 + 4 + 8 + 8;

/// `count` functions in pieces, as many as one list has.
pub fn functions_in_pieces(count: usize) -> Vec<u8> {
    let mut one = vec![PIECES];
    one.extend(0u32.to_le_bytes());
    unit(0, &one.repeat(count))
}

/// A list of `count` pieces (`.debug_ranges`).
pub fn pieces(count: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for index in 0..count {
        out.extend((index * 16 + 16).to_le_bytes());
        out.extend((index * 16 + 24).to_le_bytes());
    }
    out.extend([0; 16]);
    out
}

/// A namespace, to be repeated.
pub const NAMESPACE: [u8; 2] = [SCOPE, 0];

/// The front and the end of a unit that is as long as `length` bytes of entries make it.
pub fn around(length: usize) -> (Vec<u8>, Vec<u8>) {
    let mut front = unit(0, &[]);
    let back = vec![front.pop().unwrap_or_default()];
    let all = (front.len() + length + back.len() - 4) as u32;
    front[..4].copy_from_slice(&all.to_le_bytes());
    (front, back)
}

/// `count` functions with all code, whose names begin at the front of `.debug_str`.
pub fn functions_with_names(count: usize) -> Vec<u8> {
    let mut one = vec![NAMED];
    one.extend(0u32.to_le_bytes());
    one.extend(LOW.to_le_bytes());
    one.extend(LENGTH.to_le_bytes());
    unit(0, &one.repeat(count))
}

/// `count` variables, each of which is an array of as many mutexes as one may have.
pub fn arrays_of_locks(count: u64) -> Vec<u8> {
    let lock_at = BODY_AT + 3;
    let mut body = vec![BODY, 40, 0, LOCK];
    body.extend(b"pthread_mutex_t\0");
    body.extend(BODY_AT.to_le_bytes());
    let array_at = BODY_AT + body.len() as u32;
    body.push(ARRAY);
    body.extend(lock_at.to_le_bytes());
    body.extend([RANGE, 0xff, 0xff, 0]);
    for index in 0..count {
        body.push(VARIABLE);
        body.extend(b"v\0");
        body.extend(array_at.to_le_bytes());
        body.extend([9, 3]);
        body.extend((0x1000 + index * 8).to_le_bytes());
    }
    unit(0, &body)
}

/// A table of abbreviations with `count` entries that are nothing.
pub fn many_abbreviations(count: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for code in 10..10 + count {
        out.extend(abbreviation(code, TAG_VARIABLE, false, &[]));
    }
    out
}

/// The fields that all line programs (version 5) begin with; `files` are the tables, `code` the program.
fn line_program(files: &[u8], code: &[u8]) -> Vec<u8> {
    let mut header = vec![1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
    header.extend(files);
    let mut rest = vec![5, 0, 8, 0];
    rest.extend((header.len() as u32).to_le_bytes());
    rest.extend(header);
    rest.extend(code);
    let mut out = (rest.len() as u32).to_le_bytes().to_vec();
    out.extend(rest);
    out
}

/// One step, one line.
pub const ROW: u8 = 13 + 5 + 1 + 14;

/// The front and the end of a program that has `rows` rows, of a byte each, between them.
pub fn around_rows(rows: usize) -> (Vec<u8>, Vec<u8>) {
    let mut code = vec![0, 9, 2];
    code.extend(LOW.to_le_bytes());
    let mut front = line_program(&[1, 1, 8, 1, 0, 1, 1, 8, 1, b'a', 0], &code);
    let back = vec![0, 1, 1];
    let all = (front.len() + rows + back.len() - 4) as u32;
    front[..4].copy_from_slice(&all.to_le_bytes());
    (front, back)
}

/// The front and the end of a program whose header has `count` files, of a byte each, between them.
pub fn around_files(count: usize) -> (Vec<u8>, Vec<u8>) {
    let mut files = vec![1, 1, 8, 1, 0, 1, 1, 8];
    leb(&mut files, count as u64);
    let mut front = line_program(&files, &[]);
    let back = vec![0, 9, 2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20, 0, 1, 1];
    let header = u32::from_le_bytes([front[8], front[9], front[10], front[11]]) + count as u32;
    front[8..12].copy_from_slice(&header.to_le_bytes());
    let all = (front.len() + count + back.len() - 4) as u32;
    front[..4].copy_from_slice(&all.to_le_bytes());
    (front, back)
}

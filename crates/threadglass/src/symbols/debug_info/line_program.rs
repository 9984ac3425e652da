//! Line numbers: a unit has a program that makes a table of them, and only the rows that are wanted are made.
//!
//! One byte of such a program is one row of the table, and a header may claim any number of files. So no table is
//! built: the program is run once for all addresses that are asked for, and files are looked up one by one.

use gimli::constants as dw;

/// Files and directories of one unit that are looked at.
const MAX_FILES: u64 = 1 << 20;
/// Columns of the tables of files.
const MAX_COLUMNS: u8 = 16;
/// Instructions between two looks at the clock.
const STEP: u32 = 1 << 16;

/// A text in the header, not looked up yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text<'a> {
    Here(&'a [u8]),
    InLineStrings(u64),
    InStrings(u64),
    ByIndex(u64),
}

/// A file, as the header has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileEntry<'a> {
    pub(super) name: Text<'a>,
    /// Its directory; `None` for that of the unit.
    pub(super) directory: Option<Text<'a>>,
}

/// Where an address is in the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) file: u64,
    /// 0 when no line is to be blamed.
    pub(super) line: u64,
}

/// The program of one unit.
pub(super) struct LineProgram<'a> {
    version: u16,
    /// Whether offsets are of 8 bytes.
    is_wide: bool,
    step: u64,
    line_base: i8,
    line_range: u8,
    /// How many operands each of the first instructions has.
    operands: &'a [u8],
    tables: &'a [u8],
    code: &'a [u8],
}

/// What is read from the front of a slice; `None` once it is at its end.
#[derive(Clone, Copy)]
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number of `size` bytes, 8 at most.
    fn fixed(&mut self, size: u64) -> Option<u64> {
        let bytes = self.take(size)?;
        (bytes.len() <= 8).then(|| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn half(&mut self) -> Option<u16> {
        self.fixed(2).map(|half| half as u16)
    }

    fn offset(&mut self, is_wide: bool) -> Option<u64> {
        self.fixed(if is_wide { 8 } else { 4 })
    }

    /// Bits beyond the 64th are dropped.
    fn unsigned(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
    }

    fn signed(&mut self) -> Option<i64> {
        let before = self.0;
        let number = self.unsigned()?;
        let length = before.len() - self.0.len();
        let bits = u32::try_from(length).ok()?.saturating_mul(7);
        let unused = 64u32.saturating_sub(bits);
        Some((number << unused) as i64 >> unused)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(0, self.0)?;
        let text = self.take(end as u64)?;
        self.byte()?;
        Some(text)
    }
}

impl<'a> LineProgram<'a> {
    /// The program at `offset` of the section. `None` when there is none that can be read.
    pub(super) fn at(section: &'a [u8], offset: u64) -> Option<Self> {
        let mut input = Cursor(section.get(usize::try_from(offset).ok()?..)?);
        let first = input.fixed(4)?;
        let is_wide = first == 0xffff_ffff;
        let length = if is_wide { input.fixed(8)? } else { first };
        let mut input = Cursor(input.take(length)?);
        let version = input.half()?;
        if !(2..=5).contains(&version) {
            return None;
        }
        if version == 5 {
            // Sizes of addresses and of segment selectors.
            input.take(2)?;
        }
        let header_length = input.offset(is_wide)?;
        let mut header = Cursor(input.take(header_length)?);
        let code = input.0;
        let step = u64::from(header.byte()?);
        if version >= 4 {
            // Instructions in one word: only where there are several.
            header.byte()?;
        }
        let _is_statement = header.byte()?;
        let line_base = header.byte()? as i8;
        let line_range = Some(header.byte()?).filter(|range| *range != 0)?;
        let first_special = header.byte()?.checked_sub(1)?;
        let operands = header.take(u64::from(first_special))?;
        Some(Self { version, is_wide, step, line_base, line_range, operands, tables: header.0, code })
    }

    /// The row of each of `addrs`, which are sorted. Gives what it has when `is_over` says so.
    pub(super) fn rows(&self, addrs: &[u64], is_over: impl Fn() -> bool) -> Vec<Option<Row>> {
        let mut found = vec![None; addrs.len()];
        let _ = self.run(addrs, &mut found, is_over);
        found
    }

    fn run(&self, addrs: &[u64], found: &mut [Option<Row>], is_over: impl Fn() -> bool) -> Option<()> {
        let (lowest, highest) = (*addrs.first()?, *addrs.last()?);
        let special = self.operands.len() + 1;
        let start = Row { file: 1, line: 1 };
        let (mut addr, mut row) = (0u64, start);
        // The last row that was made in this sequence, and where it begins.
        let mut open: Option<(u64, Row)> = None;
        let mut is_dead = false;
        let mut input = Cursor(self.code);
        let mut count = 0u32;
        while !input.0.is_empty() {
            count = count.wrapping_add(1);
            if count.is_multiple_of(STEP) && is_over() {
                return None;
            }
            let opcode = input.byte()?;
            let mut makes_row = false;
            let mut ends = false;
            if usize::from(opcode) >= special {
                let by = opcode - special as u8;
                addr = addr.wrapping_add(u64::from(by / self.line_range).wrapping_mul(self.step));
                let lines = i64::from(self.line_base) + i64::from(by % self.line_range);
                row.line = row.line.wrapping_add_signed(lines);
                makes_row = true;
            } else {
                match opcode {
                    0 => {
                        let length = input.unsigned()?;
                        let mut body = Cursor(input.take(length)?);
                        match body.byte().map(dw::DwLne) {
                            Some(dw::DW_LNE_end_sequence) => (makes_row, ends) = (true, true),
                            Some(dw::DW_LNE_set_address) => addr = body.fixed(body.0.len() as u64)?,
                            _ => {}
                        }
                    }
                    1 => makes_row = true,
                    2 => addr = addr.wrapping_add(input.unsigned()?.wrapping_mul(self.step)),
                    3 => row.line = row.line.wrapping_add_signed(input.signed()?),
                    4 => row.file = input.unsigned()?,
                    8 => {
                        let by = (255 - special as u8) / self.line_range;
                        addr = addr.wrapping_add(u64::from(by).wrapping_mul(self.step));
                    }
                    9 => addr = addr.wrapping_add(input.fixed(2)?),
                    _ => {
                        for _ in 0..*self.operands.get(usize::from(opcode) - 1)? {
                            input.unsigned()?;
                        }
                    }
                }
            }
            if !makes_row {
                continue;
            }
            match open {
                // What the linker has thrown away is at 0.
                None => is_dead = addr == 0,
                Some((from, before)) if from < addr && from <= highest && lowest < addr && !is_dead => {
                    let first = addrs.partition_point(|wanted| *wanted < from);
                    let inside = addrs[first..].iter().take_while(|wanted| **wanted < addr).count();
                    for slot in &mut found[first..first + inside] {
                        slot.get_or_insert(before);
                    }
                }
                Some(_) => {}
            }
            open = Some((addr, row));
            if ends {
                (addr, row, open) = (0, start, None);
            }
        }
        Some(())
    }

    /// The file with this number.
    pub(super) fn file(&self, number: u64) -> Option<FileEntry<'a>> {
        let mut input = Cursor(self.tables);
        if self.version >= 5 {
            let directories = Columns::read(&mut input)?;
            let first = input;
            directories.skip(&mut input, self.is_wide)?;
            let files = Columns::read(&mut input)?;
            let (name, directory) = files.nth(input, self.is_wide, number)?;
            let directory = (directory != 0).then(|| directories.nth(first, self.is_wide, directory)).flatten();
            return Some(FileEntry { name, directory: directory.map(|(name, _)| name) });
        }
        // Before version 5, both count from 1, and 0 is the unit's own directory.
        let first = input;
        for _ in 0..MAX_FILES {
            if input.text()?.is_empty() {
                break;
            }
        }
        let mut last = None;
        for _ in 0..number.min(MAX_FILES) {
            let name = input.text().filter(|name| !name.is_empty())?;
            let directory = input.unsigned()?;
            // Times and sizes.
            input.unsigned()?;
            input.unsigned()?;
            last = Some((name, directory));
        }
        let (name, directory) = last.filter(|_| number <= MAX_FILES)?;
        let mut directories = first;
        let mut text = None;
        for _ in 0..directory.min(MAX_FILES) {
            text = directories.text().filter(|text| !text.is_empty());
            text?;
        }
        Some(FileEntry { name: Text::Here(name), directory: text.map(Text::Here) })
    }
}

/// How the entries of a table of files or directories are written, since version 5.
struct Columns {
    columns: Vec<(u64, dw::DwForm)>,
    count: u64,
}

impl Columns {
    fn read(input: &mut Cursor<'_>) -> Option<Self> {
        let mut columns = Vec::new();
        for _ in 0..Some(input.byte()?).filter(|count| *count <= MAX_COLUMNS)? {
            let content = input.unsigned()?;
            columns.push((content, dw::DwForm(u16::try_from(input.unsigned()?).ok()?)));
        }
        Some(Self { columns, count: input.unsigned()? })
    }

    /// Moves behind the last entry.
    fn skip(&self, input: &mut Cursor<'_>, is_wide: bool) -> Option<()> {
        // Each has a byte at least: all its columns are of forms that have.
        if self.count > MAX_FILES || (self.columns.is_empty() && self.count > 0) {
            return None;
        }
        for _ in 0..self.count {
            self.entry(input, is_wide)?;
        }
        Some(())
    }

    /// The entry with this number: its name and its directory.
    fn nth<'a>(&self, mut input: Cursor<'a>, is_wide: bool, number: u64) -> Option<(Text<'a>, u64)> {
        if number >= self.count.min(MAX_FILES) || self.columns.is_empty() {
            return None;
        }
        for _ in 0..number {
            self.entry(&mut input, is_wide)?;
        }
        let (name, directory) = self.entry(&mut input, is_wide)?;
        Some((name?, directory))
    }

    fn entry<'a>(&self, input: &mut Cursor<'a>, is_wide: bool) -> Option<(Option<Text<'a>>, u64)> {
        let (mut name, mut directory) = (None, 0);
        for (content, form) in &self.columns {
            match (dw::DwLnct(u16::try_from(*content).unwrap_or(u16::MAX)), value(input, *form, is_wide)?) {
                (dw::DW_LNCT_path, Value::Text(text)) => name = Some(text),
                (dw::DW_LNCT_directory_index, Value::Number(number)) => directory = number,
                _ => {}
            }
        }
        Some((name, directory))
    }
}

enum Value<'a> {
    Text(Text<'a>),
    Number(u64),
    Other,
}

/// One value. Only forms that take a byte at least: others have no place in such a table.
fn value<'a>(input: &mut Cursor<'a>, form: dw::DwForm, is_wide: bool) -> Option<Value<'a>> {
    Some(match form {
        dw::DW_FORM_string => Value::Text(Text::Here(input.text()?)),
        dw::DW_FORM_line_strp => Value::Text(Text::InLineStrings(input.offset(is_wide)?)),
        dw::DW_FORM_strp => Value::Text(Text::InStrings(input.offset(is_wide)?)),
        dw::DW_FORM_strx => Value::Text(Text::ByIndex(input.unsigned()?)),
        dw::DW_FORM_strx1 => Value::Text(Text::ByIndex(input.fixed(1)?)),
        dw::DW_FORM_strx2 => Value::Text(Text::ByIndex(input.fixed(2)?)),
        dw::DW_FORM_strx3 => Value::Text(Text::ByIndex(input.fixed(3)?)),
        dw::DW_FORM_strx4 => Value::Text(Text::ByIndex(input.fixed(4)?)),
        dw::DW_FORM_udata => Value::Number(input.unsigned()?),
        dw::DW_FORM_data1 => Value::Number(input.fixed(1)?),
        dw::DW_FORM_data2 => Value::Number(input.fixed(2)?),
        dw::DW_FORM_data4 => Value::Number(input.fixed(4)?),
        dw::DW_FORM_data8 => Value::Number(input.fixed(8)?),
        dw::DW_FORM_data16 => input.take(16).map(|_| Value::Other)?,
        dw::DW_FORM_block => {
            let length = input.unsigned()?;
            input.take(length).map(|_| Value::Other)?
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of version 5: two directories, two files, then `code`.
    fn program(code: &[u8]) -> Vec<u8> {
        let mut header = vec![1, 1, 1, (-5i8) as u8, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
        header.extend([1, 1, 8, 2]);
        header.extend(b"/src\0sub\0");
        header.extend([2, 1, 8, 2, 11, 2]);
        header.extend(b"a.c\0\0b.c\0\x01");
        let mut body = vec![5, 0, 8, 0];
        body.extend((header.len() as u32).to_le_bytes());
        body.extend(header);
        body.extend(code);
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(body);
        bytes
    }

    /// Sets the address, then rows 4 bytes and one line apart, then the end.
    fn sequence(addr: u64, rows: usize) -> Vec<u8> {
        let mut code = vec![0, 9, 2];
        code.extend(addr.to_le_bytes());
        code.push(1);
        // Special: 4 steps, 1 line.
        code.extend(vec![13 + 5 + 1 + 4 * 14; rows]);
        code.extend([0, 1, 1]);
        code
    }

    #[test]
    fn rows_are_found_in_the_sequence_that_holds_the_address() {
        // The first sequence was thrown away by the linker.
        let code = [sequence(0, 100), vec![4, 1], sequence(0x1000, 3), sequence(0x40, 2)].concat();
        let bytes = program(&code);
        let program = LineProgram::at(&bytes, 0).unwrap();
        let lines =
            |addrs: &[u64]| program.rows(addrs, || false).iter().map(|row| row.map(|row| row.line)).collect::<Vec<_>>();
        assert_eq!(lines(&[0x10, 0x40, 0x44, 0x47]), [None, Some(1), Some(2), Some(2)]);
        assert_eq!(
            lines(&[0xfff, 0x1000, 0x1003, 0x1004, 0x1008, 0x100c]),
            [None, Some(1), Some(1), Some(2), Some(3), None]
        );
        assert_eq!(lines(&[]), []);
        let directory = Some(Text::Here(&b"sub"[..]));
        assert_eq!(program.file(0), Some(FileEntry { name: Text::Here(b"a.c"), directory: None }));
        assert_eq!(program.file(1), Some(FileEntry { name: Text::Here(b"b.c"), directory }));
        assert_eq!(program.file(2), None);
    }

    #[test]
    fn what_a_header_claims_costs_nothing() {
        let good = program(&sequence(0x1000, 8));
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                if let Some(program) = LineProgram::at(&bad, 0) {
                    let _ = program.rows(&[0x1000, 0x1004, u64::MAX], || false);
                    for file in [0, 1, 2, u64::MAX] {
                        let _ = program.file(file);
                    }
                }
            }
        }
        // Files without number, none of which takes a byte.
        let mut header = vec![1, 1, 1, 0xfb, 14, 1, 1, 1, 0x19, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        header.extend(header.clone());
        let mut bytes = ((header.len() + 8) as u32).to_le_bytes().to_vec();
        bytes.extend([5, 0, 8, 0]);
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header);
        assert_eq!(LineProgram::at(&bytes, 0).unwrap().file(u64::MAX), None);
    }

    #[test]
    fn signed_numbers() {
        for (bytes, number) in [(&[0x7e][..], -2), (&[2], 2), (&[0x81, 0x7f], -127), (&[0x80, 1], 128)] {
            assert_eq!(Cursor(bytes).signed(), Some(number), "{bytes:?}");
        }
    }
}

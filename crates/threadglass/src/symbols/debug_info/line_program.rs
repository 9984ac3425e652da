//! Line numbers: a unit has a program that makes a table of them, and only the rows that are wanted are made.
//!
//! One byte of such a program is one row of the table, and a header may claim any number of files. So no table is
//! built: the program is run once for all addresses that are asked for, and files are looked up one by one.

use super::Slice;
use gimli::{
    AttributeValue, DebugLineStrOffset, DebugStrOffset, DebugStrOffsetsIndex, Format, LittleEndian, Reader,
    constants as dw,
};

/// Files and directories of one unit that are looked at.
const MAX_FILES: u64 = 1 << 20;
/// Columns of the tables of files.
const MAX_COLUMNS: u8 = 16;
/// Instructions between two looks at the clock.
const STEP: u32 = 1 << 16;

/// A text in the header, not looked up yet.
type Text<'a> = AttributeValue<Slice<'a>>;

/// A file, as the header has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileEntry<'a> {
    pub(super) name: Text<'a>,
    /// Its directory; `None` for that of the unit.
    pub(super) directory: Option<Text<'a>>,
}

/// Where an address is in the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceRow {
    pub(super) file: u64,
    /// 0 when no line is to be blamed.
    pub(super) line: u64,
}

/// The program of one unit.
pub(super) struct LineProgram<'a> {
    version: u16,
    format: Format,
    step: u64,
    line_base: i8,
    line_range: u8,
    /// How many operands each of the first instructions has.
    operands: &'a [u8],
    tables: Slice<'a>,
    code: Slice<'a>,
}

impl<'a> LineProgram<'a> {
    /// The program at `offset` of the section. `None` when there is none that can be read.
    pub(super) fn at(section: &'a [u8], offset: usize) -> Option<Self> {
        let mut input = Slice::new(section.get(offset..)?, LittleEndian);
        let (length, format) = input.read_initial_length().ok()?;
        let mut code = input.split(length).ok()?;
        let version = code.read_u16().ok().filter(|version| (2..=5).contains(version))?;
        if version == 5 {
            // Sizes of addresses and of segment selectors.
            code.skip(2).ok()?;
        }
        let header_length = code.read_offset(format).ok()?;
        let mut header = code.split(header_length).ok()?;
        let step = u64::from(header.read_u8().ok()?);
        if version >= 4 {
            // Instructions in one word: only where there are several.
            header.skip(1).ok()?;
        }
        let _is_statement = header.read_u8().ok()?;
        let line_base = header.read_i8().ok()?;
        let line_range = header.read_u8().ok().filter(|range| *range != 0)?;
        let first_special = header.read_u8().ok()?.checked_sub(1)?;
        let operands = header.split(first_special.into()).ok()?.slice();
        Some(Self { version, format, step, line_base, line_range, operands, tables: header, code })
    }

    /// The row of each of `addrs`, which are sorted. Gives what it has when `is_over` says so.
    pub(super) fn rows(&self, addrs: &[u64], is_over: impl Fn() -> bool) -> Vec<Option<SourceRow>> {
        let mut found = vec![None; addrs.len()];
        let _ = self.run(addrs, &mut found, is_over);
        found
    }

    fn run(&self, addrs: &[u64], found: &mut [Option<SourceRow>], is_over: impl Fn() -> bool) -> Option<()> {
        let (lowest, highest) = (*addrs.first()?, *addrs.last()?);
        let special = self.operands.len() as u8 + 1;
        let advance = |by: u8| u64::from(by / self.line_range).wrapping_mul(self.step);
        let start = SourceRow { file: 1, line: 1 };
        let (mut addr, mut row) = (0u64, start);
        // The last row that was made in this sequence, and where it begins.
        let mut open: Option<(u64, SourceRow)> = None;
        let mut is_dead = false;
        let mut input = self.code;
        let mut count = 0u32;
        while !input.is_empty() {
            count = count.wrapping_add(1);
            if count.is_multiple_of(STEP) && is_over() {
                return None;
            }
            let opcode = input.read_u8().ok()?;
            let (mut makes_row, mut ends) = (false, false);
            match dw::DwLns(opcode) {
                dw::DwLns(0) => {
                    let length = input.read_uleb128().ok()?;
                    let mut body = input.split(usize::try_from(length).ok()?).ok()?;
                    match body.read_u8().ok().map(dw::DwLne) {
                        Some(dw::DW_LNE_end_sequence) => (makes_row, ends) = (true, true),
                        Some(dw::DW_LNE_set_address) if body.len() > 8 => return None,
                        Some(dw::DW_LNE_set_address) => addr = body.read_uint(body.len()).ok()?,
                        _ => {}
                    }
                }
                _ if opcode >= special => {
                    let by = opcode - special;
                    addr = addr.wrapping_add(advance(by));
                    let lines = i64::from(self.line_base) + i64::from(by % self.line_range);
                    row.line = row.line.wrapping_add_signed(lines);
                    makes_row = true;
                }
                dw::DW_LNS_copy => makes_row = true,
                dw::DW_LNS_advance_pc => {
                    addr = addr.wrapping_add(input.read_uleb128().ok()?.wrapping_mul(self.step));
                }
                dw::DW_LNS_advance_line => row.line = row.line.wrapping_add_signed(input.read_sleb128().ok()?),
                dw::DW_LNS_set_file => row.file = input.read_uleb128().ok()?,
                dw::DW_LNS_const_add_pc => addr = addr.wrapping_add(advance(255 - special)),
                dw::DW_LNS_fixed_advance_pc => addr = addr.wrapping_add(input.read_u16().ok()?.into()),
                _ => {
                    for _ in 0..*self.operands.get(usize::from(opcode) - 1)? {
                        input.skip_leb128().ok()?;
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
        let mut input = self.tables;
        if self.version >= 5 {
            let directories = Columns::read(&mut input)?;
            let first = input;
            directories.skip(&mut input, self.format)?;
            let files = Columns::read(&mut input)?;
            let (name, directory) = files.nth(input, self.format, number)?;
            let directory = (directory != 0).then(|| directories.nth(first, self.format, directory)).flatten();
            return Some(FileEntry { name, directory: directory.map(|(name, _)| name) });
        }
        // Before version 5, both count from 1, and 0 is the unit's own directory.
        let mut directories = input;
        for _ in 0..MAX_FILES {
            if input.read_null_terminated_slice().ok()?.is_empty() {
                break;
            }
        }
        let mut last = None;
        for _ in 0..number.min(MAX_FILES) {
            let name = input.read_null_terminated_slice().ok().filter(|name| !name.is_empty())?;
            let directory = input.read_uleb128().ok()?;
            // Times and sizes.
            input.skip_leb128().ok()?;
            input.skip_leb128().ok()?;
            last = Some((name, directory));
        }
        let (name, directory) = last.filter(|_| number <= MAX_FILES)?;
        let mut text = None;
        for _ in 0..directory.min(MAX_FILES) {
            text = Some(directories.read_null_terminated_slice().ok().filter(|text| !text.is_empty())?);
        }
        Some(FileEntry { name: AttributeValue::String(name), directory: text.map(AttributeValue::String) })
    }
}

/// How the entries of a table of files or directories are written, since version 5.
struct Columns {
    columns: Vec<(dw::DwLnct, dw::DwForm)>,
    count: u64,
}

impl Columns {
    fn read(input: &mut Slice<'_>) -> Option<Self> {
        let mut columns = Vec::new();
        for _ in 0..input.read_u8().ok().filter(|count| *count <= MAX_COLUMNS)? {
            let content = u16::try_from(input.read_uleb128().ok()?).unwrap_or(u16::MAX);
            columns.push((dw::DwLnct(content), dw::DwForm(input.read_uleb128_u16().ok()?)));
        }
        Some(Self { columns, count: input.read_uleb128().ok()? })
    }

    /// Moves behind the last entry.
    fn skip(&self, input: &mut Slice<'_>, format: Format) -> Option<()> {
        // Each has a byte at least: all its columns are of forms that have.
        if self.count > MAX_FILES || (self.columns.is_empty() && self.count > 0) {
            return None;
        }
        for _ in 0..self.count {
            self.entry(input, format)?;
        }
        Some(())
    }

    /// The entry with this number: its name and its directory.
    fn nth<'a>(&self, mut input: Slice<'a>, format: Format, number: u64) -> Option<(Text<'a>, u64)> {
        if number >= self.count.min(MAX_FILES) || self.columns.is_empty() {
            return None;
        }
        for _ in 0..number {
            self.entry(&mut input, format)?;
        }
        let (name, directory) = self.entry(&mut input, format)?;
        Some((name?, directory))
    }

    fn entry<'a>(&self, input: &mut Slice<'a>, format: Format) -> Option<(Option<Text<'a>>, u64)> {
        let (mut name, mut directory) = (None, 0);
        for (content, form) in &self.columns {
            match (*content, value(input, *form, format).ok()?) {
                (dw::DW_LNCT_path, text) => name = Some(text),
                (dw::DW_LNCT_directory_index, AttributeValue::Udata(number)) => directory = number,
                _ => {}
            }
        }
        Some((name, directory))
    }
}

/// One value. Only forms that take a byte at least: others have no place in such a table.
fn value<'a>(input: &mut Slice<'a>, form: dw::DwForm, format: Format) -> gimli::Result<Text<'a>> {
    let by_index = |index: u64| AttributeValue::DebugStrOffsetsIndex(DebugStrOffsetsIndex(index as usize));
    Ok(match form {
        dw::DW_FORM_string => AttributeValue::String(input.read_null_terminated_slice()?),
        dw::DW_FORM_line_strp => AttributeValue::DebugLineStrRef(DebugLineStrOffset(input.read_offset(format)?)),
        dw::DW_FORM_strp => AttributeValue::DebugStrRef(DebugStrOffset(input.read_offset(format)?)),
        dw::DW_FORM_strx => by_index(input.read_uleb128()?),
        dw::DW_FORM_strx1 => by_index(input.read_uint(1)?),
        dw::DW_FORM_strx2 => by_index(input.read_uint(2)?),
        dw::DW_FORM_strx3 => by_index(input.read_uint(3)?),
        dw::DW_FORM_strx4 => by_index(input.read_uint(4)?),
        dw::DW_FORM_udata => AttributeValue::Udata(input.read_uleb128()?),
        dw::DW_FORM_data1 => AttributeValue::Udata(input.read_uint(1)?),
        dw::DW_FORM_data2 => AttributeValue::Udata(input.read_uint(2)?),
        dw::DW_FORM_data4 => AttributeValue::Udata(input.read_uint(4)?),
        dw::DW_FORM_data8 => AttributeValue::Udata(input.read_uint(8)?),
        dw::DW_FORM_data16 => AttributeValue::Block(input.split(16)?),
        dw::DW_FORM_block => {
            let length = input.read_uleb128()?;
            AttributeValue::Block(input.split(length as usize)?)
        }
        _ => return Err(gimli::Error::UnknownForm(form)),
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
        let text = |text| AttributeValue::String(Slice::new(text, LittleEndian));
        assert_eq!(program.file(0), Some(FileEntry { name: text(b"a.c"), directory: None }));
        assert_eq!(program.file(1), Some(FileEntry { name: text(b"b.c"), directory: Some(text(b"sub")) }));
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
            assert_eq!(Slice::new(bytes, LittleEndian).read_sleb128(), Ok(number), "{bytes:?}");
        }
    }
}

//! The functions at an address, those that the compiler put into others too, with their places in the source.

use super::line_program::{LineProgram, Row, Text};
use super::unit::Parsed;
use super::{DebugInfo, Entry, EntryAt, MAX_NAME, MAX_REFERENCES, Session, up_to_nul};
use gimli::{AttributeValue, DebugStrOffsetsIndex, Section, UnitOffset, constants as dw};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// Entries below one function that are read.
const MAX_ENTRIES: usize = 1 << 17;
/// Functions that lie in one another.
const MAX_INLINED: usize = 256;

/// One function at an address, as debug information has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionAt {
    /// Its name as the object has it, not demangled.
    pub name: Option<String>,
    /// Its first address at link time; `None` for one that was inlined.
    pub start: Option<u64>,
    /// The source file.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
}

/// Functions, the outermost first; each with where it was called from in the one before it.
type Calls = Vec<(EntryAt, Row)>;

/// What is known of one address before its files are looked up.
struct Found {
    functions: Calls,
    start: Option<u64>,
    row: Option<Row>,
}

impl DebugInfo {
    /// The functions at each of the link-time addresses `pcs`, the innermost first. Where only a line is known, that
    /// is of a function without a name.
    pub(in crate::symbols) fn functions_at(&mut self, pcs: &[u64]) -> Vec<Vec<FunctionAt>> {
        let sections = self.sections.clone();
        let mut session = self.session();
        let mut by_unit: BTreeMap<usize, Vec<(u64, usize)>> = BTreeMap::new();
        for (index, pc) in pcs.iter().enumerate() {
            if let Some(unit) = session.unit_at(*pc) {
                by_unit.entry(unit).or_default().push((*pc, index));
            }
        }
        let mut functions = vec![Vec::new(); pcs.len()];
        for (unit, mut wanted) in by_unit {
            wanted.sort_unstable();
            if let Some(found) = session.functions_in(unit, &wanted, sections.lines()) {
                for ((_, index), found) in wanted.iter().zip(found) {
                    functions[*index] = found;
                }
            }
        }
        functions
    }
}

impl<'a> Session<'a> {
    fn functions_in(&mut self, unit: usize, wanted: &[(u64, usize)], lines: &[u8]) -> Option<Vec<Vec<FunctionAt>>> {
        let parsed = self.unit(unit)?;
        let root = parsed.unit.entry(parsed.unit.header.root_offset()).ok()?;
        let program = match root.attr_value(dw::DW_AT_stmt_list) {
            Some(AttributeValue::DebugLineRef(offset)) => LineProgram::at(lines, offset.0 as u64),
            _ => None,
        };
        let pcs: Vec<u64> = wanted.iter().map(|(pc, _)| *pc).collect();
        let rows = match &program {
            Some(program) => program.rows(&pcs, || self.is_exhausted()),
            None => vec![None; pcs.len()],
        };
        let directory = root.attr_value(dw::DW_AT_comp_dir).and_then(|value| self.string(&parsed, value));
        let mut files = Files { program: program.as_ref(), directory, known: HashMap::new() };
        let mut all = Vec::with_capacity(pcs.len());
        for (pc, row) in pcs.iter().zip(rows) {
            let (functions, start) = self.chain(&parsed, *pc).unzip();
            let functions = functions.unwrap_or_default();
            all.push(self.describe(&parsed, Found { functions, start, row }, &mut files));
        }
        Some(all)
    }

    /// The function that holds `pc` and those that were put into it there, and where the first of them begins.
    fn chain(&mut self, parsed: &Parsed<'a>, pc: u64) -> Option<(Calls, u64)> {
        let index = self.index(parsed.index)?;
        let (start, function) = super::code::function_at(&index, pc)?;
        let base = self.units.get(parsed.index)?.start;
        let mut entries = parsed.unit.entries_raw(Some(UnitOffset(function))).ok()?;
        let mut entry = Entry::null();
        let mut chain = vec![(base.checked_add(function)?, Row::default())];
        // Below an entry that has other code, nothing is of interest.
        let mut skipped: Option<isize> = None;
        for number in 0.. {
            if number == MAX_ENTRIES || chain.len() == MAX_INLINED || self.is_exhausted() {
                self.leave_out("functions that were inlined", "a function has too many of them");
                break;
            }
            if entries.is_empty() {
                break;
            }
            let depth = entries.next_depth();
            let Ok(is_entry) = entries.read_entry(&mut entry) else { break };
            if is_entry && depth > 0 && skipped.is_none_or(|at| depth <= at) {
                skipped = None;
                let is_open = match entry.tag() {
                    dw::DW_TAG_inlined_subroutine | dw::DW_TAG_lexical_block => {
                        let ranges = self.code_ranges(parsed, entry.attrs());
                        let is_here = ranges.iter().any(|(from, to)| (*from..*to).contains(&pc));
                        if is_here && entry.tag() == dw::DW_TAG_inlined_subroutine {
                            let number = |name| entry.attr(name).and_then(|value| value.udata_value());
                            let file = match entry.attr_value(dw::DW_AT_call_file) {
                                Some(AttributeValue::FileIndex(file)) => file,
                                _ => number(dw::DW_AT_call_file).unwrap_or(u64::MAX),
                            };
                            let line = number(dw::DW_AT_call_line).unwrap_or(0);
                            chain.push((base.checked_add(entry.offset().0)?, Row { file, line }));
                        }
                        // A block without code of its own only groups names.
                        is_here || (ranges.is_empty() && entry.tag() == dw::DW_TAG_lexical_block)
                    }
                    _ => false,
                };
                if !is_open && entry.has_children() {
                    skipped = Some(depth);
                }
            }
            if entries.next_depth() <= 0 {
                break;
            }
        }
        Some((chain, start))
    }

    /// Names and files, the innermost function first.
    fn describe(&mut self, parsed: &Parsed<'a>, found: Found, files: &mut Files<'_>) -> Vec<FunctionAt> {
        let mut place = found.row;
        let mut described = Vec::with_capacity(found.functions.len());
        for (index, (at, call)) in found.functions.iter().enumerate().rev() {
            let (file, line) = self.place(parsed, place, files);
            let start = found.start.filter(|_| index == 0);
            described.push(FunctionAt { name: self.object_name(*at), start, file, line });
            place = Some(*call);
        }
        if described.is_empty() && found.row.is_some() {
            let (file, line) = self.place(parsed, found.row, files);
            described.push(FunctionAt { file, line, ..FunctionAt::default() });
        }
        described
    }

    fn place(&self, parsed: &Parsed<'a>, row: Option<Row>, files: &mut Files<'_>) -> (Option<String>, Option<u32>) {
        let Some(row) = row else { return (None, None) };
        let line = u32::try_from(row.line).ok().filter(|line| *line != 0);
        if let Some(known) = files.known.get(&row.file) {
            return (known.clone(), line);
        }
        let path = self.path(parsed, row.file, files);
        files.known.insert(row.file, path.clone());
        (path, line)
    }

    fn path(&self, parsed: &Parsed<'a>, number: u64, files: &Files<'_>) -> Option<String> {
        let file = files.program?.file(number)?;
        let text = |text| self.text(parsed, text).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let mut path = PathBuf::from(files.directory.as_deref().unwrap_or_default());
        path.extend(file.directory.and_then(text));
        path.push(text(file.name)?);
        Some(path.to_string_lossy().into_owned())
    }

    fn text<'t>(&self, parsed: &Parsed<'a>, text: Text<'t>) -> Option<&'t [u8]>
    where
        'a: 't,
    {
        let place = |offset: u64| usize::try_from(offset).ok();
        match text {
            Text::Here(bytes) => Some(&bytes[..bytes.len().min(MAX_NAME)]),
            Text::InLineStrings(offset) => up_to_nul(self.dwarf.debug_line_str.reader().slice(), place(offset)?),
            Text::InStrings(offset) => up_to_nul(self.dwarf.debug_str.reader().slice(), place(offset)?),
            Text::ByIndex(index) => {
                let index = DebugStrOffsetsIndex(place(index)?);
                let unit = &parsed.unit;
                let offsets = &self.dwarf.debug_str_offsets;
                let offset = offsets.get_str_offset(unit.encoding().format, unit.str_offsets_base, index).ok()?;
                up_to_nul(self.dwarf.debug_str.reader().slice(), offset.0)
            }
        }
    }

    /// The name of the function `at` as the object has it, or else as its author wrote it; either may be said elsewhere.
    fn object_name(&mut self, at: EntryAt) -> Option<String> {
        let (mut at, mut plain) = (at, None);
        for _ in 0..MAX_REFERENCES {
            let (parsed, entry) = self.entry(at)?;
            for name in [dw::DW_AT_linkage_name, dw::DW_AT_MIPS_linkage_name] {
                if let Some(name) = entry.attr_value(name).and_then(|value| self.string(&parsed, value)) {
                    return Some(name);
                }
            }
            plain = plain.or_else(|| self.attribute_name(&parsed, &entry));
            match self.origin(&parsed, &entry) {
                Some(origin) => at = origin,
                None => break,
            }
        }
        plain
    }
}

/// The files of one unit that were looked up.
struct Files<'p> {
    program: Option<&'p LineProgram<'p>>,
    directory: Option<String>,
    known: HashMap<u64, Option<String>>,
}

//! The functions at an address, those that the compiler put into others too, with their places in the source.

use super::line_program::{LineProgram, SourceRow};
use super::unit::Parsed;
use super::{DebugEntry, DebugInfo, EntryAt, Query};
use gimli::{AttributeValue, constants as dw};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

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
type InlineChain = Vec<(EntryAt, SourceRow)>;

impl DebugInfo {
    /// The functions at each of the link-time addresses `pcs`, the innermost first. Where only a line is known, that
    /// is of a function without a name.
    pub(in crate::symbols) fn functions_at(&mut self, pcs: &[u64]) -> Vec<Vec<FunctionAt>> {
        let mut query = self.query();
        let mut by_unit: BTreeMap<usize, Vec<(u64, usize)>> = BTreeMap::new();
        for (index, pc) in pcs.iter().enumerate() {
            if let Some(unit) = query.unit_at(*pc) {
                by_unit.entry(unit).or_default().push((*pc, index));
            }
        }
        let mut functions = vec![Vec::new(); pcs.len()];
        for (unit, mut wanted) in by_unit {
            wanted.sort_unstable();
            if let Some(found) = query.functions_in(unit, &wanted) {
                for ((_, index), found) in wanted.iter().zip(found) {
                    functions[*index] = found;
                }
            }
        }
        functions
    }
}

impl<'a> Query<'a> {
    fn functions_in(&mut self, unit: usize, wanted: &[(u64, usize)]) -> Option<Vec<Vec<FunctionAt>>> {
        let parsed = self.unit(unit)?;
        let mut files = SourceFiles::of(self, &parsed);
        let program = &files.program;
        let pcs: Vec<u64> = wanted.iter().map(|(pc, _)| *pc).collect();
        let rows = match program {
            Some(program) => program.rows(&pcs, || self.is_exhausted()),
            None => vec![None; pcs.len()],
        };
        let mut all = Vec::with_capacity(pcs.len());
        for (pc, row) in pcs.iter().zip(rows) {
            let (functions, start) = self.chain(&parsed, *pc).unzip();
            all.push(self.describe(&parsed, functions.unwrap_or_default(), start, row, &mut files));
        }
        Some(all)
    }

    /// The function that holds `pc` and those that were put into it there, and where the first of them begins.
    fn chain(&mut self, parsed: &Parsed<'a>, pc: u64) -> Option<(InlineChain, u64)> {
        let index = self.index(parsed.index)?;
        let (start, function) = super::code::function_at(&index, pc)?;
        let mut chain = vec![(parsed.start.checked_add(function)?, SourceRow::default())];
        let is_whole = self.walk(parsed, function, |this, depth, entry| {
            if chain.len() == MAX_INLINED || this.is_exhausted() {
                return None;
            }
            let is_open = depth == 0 || this.is_inner_code(parsed, entry, pc);
            if is_open && entry.tag() == dw::DW_TAG_inlined_subroutine {
                let number = |name| entry.attr(name).and_then(|value| value.udata_value());
                let file = match entry.attr_value(dw::DW_AT_call_file) {
                    Some(AttributeValue::FileIndex(file)) => file,
                    _ => number(dw::DW_AT_call_file).unwrap_or(u64::MAX),
                };
                let line = number(dw::DW_AT_call_line).unwrap_or(0);
                chain.push((parsed.start.checked_add(entry.offset().0)?, SourceRow { file, line }));
            }
            Some(is_open)
        });
        if !is_whole.ok()? {
            self.leave_out("functions that were inlined", "a function has too many of them");
        }
        Some((chain, start))
    }

    /// Names and files, the innermost function first.
    fn describe(
        &mut self,
        parsed: &Parsed<'a>,
        functions: InlineChain,
        start: Option<u64>,
        row: Option<SourceRow>,
        files: &mut SourceFiles<'_>,
    ) -> Vec<FunctionAt> {
        let mut place = row;
        let mut described = Vec::with_capacity(functions.len());
        for (index, (at, call)) in functions.into_iter().enumerate().rev() {
            let (file, line) = self.place(parsed, place, files);
            let start = start.filter(|_| index == 0);
            described.push(FunctionAt { name: self.object_name(at), start, file, line });
            place = Some(call);
        }
        if described.is_empty() && row.is_some() {
            let (file, line) = self.place(parsed, row, files);
            described.push(FunctionAt { file, line, ..FunctionAt::default() });
        }
        described
    }

    pub(super) fn place(
        &self,
        parsed: &Parsed<'a>,
        row: Option<SourceRow>,
        files: &mut SourceFiles<'_>,
    ) -> (Option<String>, Option<u32>) {
        let Some(row) = row else { return (None, None) };
        let SourceFiles { program, directory, known } = files;
        let path = || {
            let file = program.as_ref()?.file(row.file)?;
            let mut path = PathBuf::from(directory.as_deref().unwrap_or_default());
            path.extend(file.directory.and_then(|text| self.string(parsed, text)));
            path.push(self.string(parsed, file.name)?);
            Some(path.to_string_lossy().into_owned())
        };
        let line = u32::try_from(row.line).ok().filter(|line| *line != 0);
        (known.entry(row.file).or_insert_with(path).clone(), line)
    }

    /// The name of the function `at` as the object has it, or else as its author wrote it; either may be said elsewhere.
    fn object_name(&mut self, at: EntryAt) -> Option<String> {
        let linkage = |this: &Self, parsed: &Parsed<'a>, entry: &DebugEntry<'a>| {
            let mut names = [dw::DW_AT_linkage_name, dw::DW_AT_MIPS_linkage_name].into_iter();
            names.find_map(|name| this.string(parsed, entry.attr_value(name)?))
        };
        self.first_along(at, linkage).or_else(|| self.first_along(at, Self::attribute_name))
    }
}

/// The files of one unit that were looked up.
pub(super) struct SourceFiles<'p> {
    program: Option<LineProgram<'p>>,
    directory: Option<String>,
    known: HashMap<u64, Option<String>>,
}

impl<'p> SourceFiles<'p> {
    /// Those of the unit `parsed`, of which none was looked up yet.
    pub(super) fn of(query: &Query<'p>, parsed: &Parsed<'p>) -> Self {
        let root = parsed.unit.entry(parsed.unit.header.root_offset()).ok();
        let attribute = |name| root.as_ref()?.attr_value(name);
        let program = match attribute(dw::DW_AT_stmt_list) {
            Some(AttributeValue::DebugLineRef(offset)) => LineProgram::at(query.source.sections.lines(), offset.0),
            _ => None,
        };
        let directory = attribute(dw::DW_AT_comp_dir).and_then(|value| query.string(parsed, value));
        Self { program, directory, known: HashMap::new() }
    }
}

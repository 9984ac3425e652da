//! The table of functions that every Go program carries: names, lines, inlined functions and sizes of frames. Programs
//! without symbols have it too, because Go's own stack traces and garbage collector need it.

use crate::RemoteAddr;
use crate::memory::{Memory, ReadError, u32_at, u64_at};
use std::collections::HashMap;
use std::ops::Range;

/// Functions that one program may have. The largest programs have some hundred thousand.
const MAX_FUNCTIONS: u64 = 4 << 20;
/// Bytes of one table of a function. Generated functions have some hundred thousand.
const MAX_VALUES: usize = 1 << 20;
/// How much of such a table is read at first.
const USUAL_VALUES: usize = 512;
/// The longest name of a function or a file.
const MAX_NAME: usize = 4096;
const USUAL_NAME: usize = 128;
/// How deep functions may be put into each other.
const MAX_INLINED: usize = 64;
/// Tables that one function may have.
const MAX_TABLES: u32 = 64;

/// Which of a function's tables.
const INLINE_INDEX: usize = 2;
const INLINE_TREE: usize = 3;
const OPEN_DEFERS: usize = 4;
/// An offset that leads nowhere.
const NONE: u32 = u32::MAX;

/// Flags of a function.
const TOP_FRAME: u8 = 1;

/// The words of `moduledata` that lead to the table.
#[derive(Clone, Debug)]
pub(super) struct Module {
    pub(super) names: u64,
    units: u64,
    files: u64,
    values: u64,
    pub(super) functions: Range<u64>,
    index: u64,
    index_len: u64,
    pub(super) text: Range<u64>,
    trees: u64,
    /// Of a release that is not known: words that may be that, from the first one on.
    may_be_trees: Vec<u64>,
    /// Whether the table is of 1.20 or later.
    is_new: bool,
}

/// Words of `moduledata` that are read.
pub(super) const MODULE_WORDS: usize = 52;
/// Where what is common to functions of 1.20 or later is, in releases that are known, and where it may be in others.
const TREES: usize = 40;
const TREES_SINCE_27: usize = 43;
const MAY_BE_TREES: Range<usize> = 36..52;
/// Functions by which such a word is tried.
const TRIED: usize = 64;
/// The first bytes of the table, before 1.20 and since.
pub(super) const MAGIC_OLD: [u8; 8] = [0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8];
pub(super) const MAGIC: [u8; 8] = [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];

impl Module {
    /// What the `bytes` of a `moduledata` say, of a program of `release`; `None` if they cannot be one.
    pub(super) fn decode(bytes: &[u8], magic: [u8; 8], release: Option<u32>) -> Option<Self> {
        let word = |at: usize| u64_at(bytes, at * 8);
        let is_new = match magic {
            MAGIC_OLD => false,
            MAGIC => true,
            _ => return None,
        };
        let trees = match (is_new, release) {
            (false, _) => Some(38),
            (true, Some(..27)) => Some(TREES),
            (true, Some(27)) => Some(TREES_SINCE_27),
            (true, _) => None,
        };
        let may_be_trees = if trees.is_none() { MAY_BE_TREES.filter_map(word).collect() } else { Vec::new() };
        let module = Self {
            names: word(1)?,
            units: word(4)?,
            files: word(7)?,
            values: word(10)?,
            functions: word(13)?..word(13)?.checked_add(word(14)?)?,
            index: word(16)?,
            index_len: word(17)?,
            text: word(22)?..word(23)?,
            trees: word(trees.unwrap_or(TREES))?,
            may_be_trees,
            is_new,
        };
        let is_whole = (1..MAX_FUNCTIONS).contains(&module.index_len) && !module.functions.is_empty();
        let holds_code = module.text.start < module.text.end && word(20)? >= module.text.start;
        (is_whole && holds_code && word(20)? < word(21)?).then_some(module)
    }
}

/// A function.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) entry: u64,
    pub(super) end: u64,
    name: u32,
    frame_sizes: u32,
    files: u32,
    lines: u32,
    unit: u32,
    flags: u8,
    inline_index: u32,
    inline_tree: u32,
    open_defers: u32,
}

impl Function {
    /// Whether nothing called it.
    pub(super) fn is_outermost(&self) -> bool {
        self.flags & TOP_FRAME != 0
    }
}

/// A place in a program's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceFrame {
    pub(super) function: String,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) inlined: bool,
}

/// All functions of a program. What is read of them is not kept here.
pub(super) struct Functions<'m> {
    memory: &'m dyn Memory,
    pub(super) module: Module,
    /// Where each begins, counted from the text's start, and where its description is; sorted.
    index: Vec<(u32, u32)>,
}

impl<'m> Functions<'m> {
    /// Reads the index of all functions.
    pub(super) fn read(memory: &'m dyn Memory, module: Module) -> Result<Self, ReadError> {
        let bytes = memory.read_vec(RemoteAddr(module.index), module.index_len as usize * 8)?;
        let pair = |bytes: &[u8; 8]| (u32_at(bytes, 0).unwrap_or(0), u32_at(bytes, 4).unwrap_or(0));
        let mut read = Self { memory, module, index: bytes.as_chunks().0.iter().map(pair).collect() };
        if let Some(trees) = read.find_trees() {
            read.module.trees = trees;
        }
        Ok(read)
    }

    /// In a release that is not known: the word under which the most functions that others were put into make sense.
    fn find_trees(&self) -> Option<u64> {
        let step = (self.index.len() / (TRIED * 8)).max(1);
        let functions = (0..self.index.len()).step_by(step).filter_map(|number| self.described(number));
        let some: Vec<Function> = match self.module.may_be_trees.is_empty() {
            true => Vec::new(),
            false => functions.filter(|function| function.inline_tree != NONE).take(TRIED).collect(),
        };
        let fitting = |trees: u64| some.iter().filter(|function| self.has_tree_at(function, trees)).count();
        let best =
            self.module.may_be_trees.iter().map(|trees| (fitting(*trees), *trees)).max_by_key(|(fits, _)| *fits)?;
        (best.0 > 0).then_some(best.1)
    }

    /// Whether what was put into `function` makes sense where `trees` leads.
    fn has_tree_at(&self, function: &Function, trees: u64) -> bool {
        let (_, name, parent) = self.tree_node();
        let at = trees.checked_add(u64::from(function.inline_tree));
        let Some(node) = at.and_then(|at| self.memory.read_vec(RemoteAddr(at), 20).ok()) else { return false };
        let (Some(name), Some(parent)) = (u32_at(&node, name), u32_at(&node, parent)) else { return false };
        // Names lie one behind the other.
        let before = self.module.names.checked_add(u64::from(name)).and_then(|at| at.checked_sub(1));
        let begins = before.and_then(|at| self.memory.read_vec(RemoteAddr(at), 1).ok()).is_some_and(|byte| byte == [0]);
        u64::from(parent) < function.end.saturating_sub(function.entry)
            && name != 0
            && begins
            && self.name_at(name).is_some()
    }

    /// Of what was put into functions: the size of one description, and where the name and the place are in it.
    fn tree_node(&self) -> (u64, usize, usize) {
        if self.module.is_new { (16, 4, 8) } else { (20, 12, 16) }
    }

    /// The function that holds `pc`.
    pub(super) fn at(&self, pc: u64) -> Option<Function> {
        if !self.module.text.contains(&pc) {
            return None;
        }
        let offset = u32::try_from(pc - self.module.text.start).ok()?;
        let number = self.index.partition_point(|(entry, _)| *entry <= offset).checked_sub(1)?;
        // The last one is only the end of the one before.
        self.described(number).filter(|function| (function.entry..function.end).contains(&pc))
    }

    /// Begin and end of the function that holds `pc`, without reading more of it.
    pub(super) fn bounds(&self, pc: u64) -> Option<(u64, u64)> {
        let text = &self.module.text;
        let offset = u32::try_from(pc.checked_sub(text.start)?).ok()?;
        let behind = self.index.partition_point(|(entry, _)| *entry <= offset);
        let place = |number: usize| Some(text.start.wrapping_add(u64::from(self.index.get(number)?.0)));
        Some((place(behind.checked_sub(1)?)?, place(behind)?))
    }

    /// The function of that number.
    fn described(&self, number: usize) -> Option<Function> {
        let (entry, at) = *self.index.get(number)?;
        let (end, _) = *self.index.get(number + 1)?;
        let at = self.module.functions.start.checked_add(u64::from(at))?;
        let size = if self.module.is_new { 44 } else { 40 };
        let mut bytes = vec![0; size];
        self.memory.read_exact(RemoteAddr(at), &mut bytes).ok()?;
        let number_at = |at: usize| u32_at(&bytes, at);
        let (tables, data) = (number_at(28)?, u32::from(*bytes.get(size - 1)?));
        if tables > MAX_TABLES || data > MAX_TABLES {
            return None;
        }
        let rest = self.memory.read_vec(RemoteAddr(at + size as u64), (tables + data) as usize * 4).ok()?;
        let of = |index: usize, from: u32, count: u32| match (index as u32) < count {
            true => u32_at(&rest, (from as usize + index) * 4),
            false => Some(NONE),
        };
        Some(Function {
            entry: self.module.text.start.checked_add(u64::from(entry))?,
            end: self.module.text.start.checked_add(u64::from(end))?,
            name: number_at(4)?,
            frame_sizes: number_at(16)?,
            files: number_at(20)?,
            lines: number_at(24)?,
            unit: number_at(32)?,
            flags: *bytes.get(size - 3)?,
            inline_index: of(INLINE_INDEX, 0, tables)?,
            inline_tree: of(INLINE_TREE, tables, data)?,
            open_defers: of(OPEN_DEFERS, tables, data)?,
        })
    }

    /// A name that ends with a 0.
    fn text_at(&self, address: u64) -> Option<String> {
        for size in [USUAL_NAME, MAX_NAME] {
            let bytes = self.memory.read_up_to(RemoteAddr(address), size).ok()?;
            if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
                return Some(String::from_utf8_lossy(&bytes[..end]).into_owned());
            }
        }
        None
    }

    fn name_at(&self, offset: u32) -> Option<String> {
        self.text_at(self.module.names.checked_add(u64::from(offset))?).filter(|name| !name.is_empty())
    }

    /// What `function` is called.
    pub(super) fn name(&self, function: &Function) -> Option<String> {
        self.name_at(function.name)
    }

    /// The value that a table of `function` has for `pc`.
    fn value_at(&self, function: &Function, table: u32, pc: u64) -> Option<i32> {
        if table == 0 || table == NONE {
            return None;
        }
        let address = RemoteAddr(self.module.values.checked_add(u64::from(table))?);
        for size in [USUAL_VALUES, MAX_VALUES] {
            let bytes = self.memory.read_up_to(address, size).ok()?;
            match value_in(&bytes, function.entry, pc) {
                Ok(value) => return Some(value),
                Err(NoValue::Ended) => return None,
                Err(NoValue::Short) => {}
            }
        }
        None
    }

    /// Bytes between the stack pointer at `pc` and the place of the return address.
    pub(super) fn frame_size(&self, function: &Function, pc: u64) -> Option<u64> {
        u64::try_from(self.value_at(function, function.frame_sizes, pc)?).ok()
    }

    /// The numbers that say where a frame of `function` keeps the calls that it has put off, of a function that keeps them there.
    pub(super) fn open_defers(&self, function: &Function, count: usize) -> Option<Vec<u32>> {
        const MOST: usize = 128;
        if function.open_defers == NONE {
            return None;
        }
        let at = self.module.trees.checked_add(u64::from(function.open_defers))?;
        let bytes = self.memory.read_up_to(RemoteAddr(at), MOST).ok()?;
        let mut place = 0;
        Some((0..count).map_while(|_| varint(&bytes, &mut place)).collect())
    }

    /// The source of `pc`: functions that were put into others come first.
    pub(super) fn source(&self, function: &Function, pc: u64) -> Vec<SourceFrame> {
        let mut frames = Vec::new();
        let mut at = pc;
        for _ in 0..MAX_INLINED {
            let Some((name, parent)) = self.inlined_at(function, at) else { break };
            frames.push(self.source_frame(function, at, name, true));
            at = parent;
        }
        let name = self.name(function).unwrap_or_else(|| format!("{:#x}", function.entry));
        frames.push(self.source_frame(function, at, name, false));
        frames
    }

    fn source_frame(&self, function: &Function, pc: u64, name: String, inlined: bool) -> SourceFrame {
        let line = self.value_at(function, function.lines, pc).and_then(|line| u32::try_from(line).ok());
        SourceFrame { function: name, file: self.file_at(function, pc), line, inlined }
    }

    fn file_at(&self, function: &Function, pc: u64) -> Option<String> {
        let number = u32::try_from(self.value_at(function, function.files, pc)?).ok()?;
        let number = u64::from(function.unit.checked_add(number)?);
        let offset = self.memory.read_u32(RemoteAddr(self.module.units.checked_add(number * 4)?)).ok()?;
        if offset == NONE {
            return None;
        }
        self.text_at(self.module.files.checked_add(u64::from(offset))?).filter(|file| !file.is_empty())
    }

    /// The function that was put in at `pc`, and where its caller is.
    fn inlined_at(&self, function: &Function, pc: u64) -> Option<(String, u64)> {
        if function.inline_tree == NONE {
            return None;
        }
        let index = u64::try_from(self.value_at(function, function.inline_index, pc)?).ok()?;
        let (size, name, parent) = self.tree_node();
        let node = self.module.trees.checked_add(u64::from(function.inline_tree))?.checked_add(index * size)?;
        let bytes = self.memory.read_vec(RemoteAddr(node), size as usize).ok()?;
        let parent = function.entry.checked_add(u64::from(u32_at(&bytes, parent)?))?;
        if !(function.entry..function.end).contains(&parent) {
            return None;
        }
        Some((self.name_at(u32_at(&bytes, name)?)?, parent))
    }

    /// The functions of these names.
    pub(super) fn named(&self, names: &[&'static str]) -> HashMap<&'static str, Function> {
        let mut found = HashMap::new();
        let Some(wanted) = self.offsets_of(names) else { return found };
        let mut piece = Piece::default();
        for number in 0..self.index.len().saturating_sub(1) {
            if found.len() == wanted.len() {
                break;
            }
            // The name comes second in a description.
            let at = self.module.functions.start.wrapping_add(u64::from(self.index[number].1)).wrapping_add(4);
            let Some(name) = piece.number_at(self.memory, at) else { continue };
            if let Some(name) = wanted.get(&name)
                && let Some(function) = self.described(number)
            {
                found.insert(*name, function);
            }
        }
        found
    }

    /// Where `names` are among all names.
    fn offsets_of(&self, names: &[&'static str]) -> Option<HashMap<u32, &'static str>> {
        const PIECE: usize = 1 << 20;
        let mut found = HashMap::new();
        let mut at = 0;
        // Names end where the next table begins.
        let all = usize::try_from(self.module.units.checked_sub(self.module.names)?).ok()?.min(1 << 28);
        while at < all && found.len() < names.len() {
            let bytes = self.memory.read_up_to(RemoteAddr(self.module.names + at as u64), PIECE.min(all - at)).ok()?;
            let mut start = 0;
            for end in bytes.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(end, _)| end) {
                if let Some(name) = names.iter().find(|name| name.as_bytes() == &bytes[start..end]) {
                    found.insert(u32::try_from(at + start).ok()?, *name);
                }
                start = end + 1;
            }
            if start == 0 {
                break;
            }
            // The last name may go on in the next piece.
            at += start;
        }
        Some(found)
    }
}

/// A piece of memory that is read from start to end.
#[derive(Default)]
struct Piece {
    start: u64,
    bytes: Vec<u8>,
}

impl Piece {
    const SIZE: usize = 256 << 10;

    fn number_at(&mut self, memory: &dyn Memory, at: u64) -> Option<u32> {
        let known = |piece: &Self| u32_at(&piece.bytes, usize::try_from(at.checked_sub(piece.start)?).ok()?);
        if known(self).is_none() {
            *self = Self { start: at, bytes: memory.read_up_to(RemoteAddr(at), Self::SIZE).ok()? };
        }
        known(self)
    }
}

/// Why a table has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoValue {
    /// It ends before.
    Ended,
    /// There are not enough bytes of it.
    Short,
}

/// The value that the table in `bytes` has for `pc`, of a function at `entry`: pairs of numbers, each the difference
/// to the one before.
fn value_in(bytes: &[u8], entry: u64, pc: u64) -> Result<i32, NoValue> {
    let (mut at, mut value, mut end) = (0, -1_i32, entry);
    loop {
        let change = varint(bytes, &mut at).ok_or(NoValue::Short)?;
        if change == 0 && at > 1 {
            return Err(NoValue::Ended);
        }
        // Signs are in the last bit.
        value = value.wrapping_add(((change >> 1) as i32) ^ -((change & 1) as i32));
        let bytes_of_code = varint(bytes, &mut at).ok_or(NoValue::Short)?;
        end = end.wrapping_add(u64::from(bytes_of_code));
        if pc < end {
            return Ok(value);
        }
    }
}

/// The number at `at` of `bytes`, seven bits a byte.
fn varint(bytes: &[u8], at: &mut usize) -> Option<u32> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_code() {
        // -1 + 1 = 0 for 4 bytes, 0 + 24 = 24 for 300 bytes, 24 - 24 = 0 for 1 byte, end.
        let table = [2, 4, 48, 0xac, 2, 47, 1, 0];
        assert_eq!(value_in(&table, 0x1000, 0x1000), Ok(0));
        assert_eq!(value_in(&table, 0x1000, 0x1003), Ok(0));
        assert_eq!(value_in(&table, 0x1000, 0x1004), Ok(24));
        assert_eq!(value_in(&table, 0x1000, 0x1000 + 303), Ok(24));
        assert_eq!(value_in(&table, 0x1000, 0x1000 + 304), Ok(0));
        assert_eq!(value_in(&table, 0x1000, 0x1000 + 305), Err(NoValue::Ended));
        assert_eq!(value_in(&table[..3], 0x1000, 0x1004), Err(NoValue::Short));
        assert_eq!(value_in(&[0x80; 9], 0, 0), Err(NoValue::Short));
    }
}

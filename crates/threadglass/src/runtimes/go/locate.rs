//! Where the tables and variables of Go's runtime are in a program, with symbols or without.

use super::build_info;
use super::code;
use super::functions::{Functions, MAGIC, MAGIC_OLD, MODULE_WORDS, Module};
use crate::RemoteAddr;
use crate::elf::{FileSymbols, Image, ObjectFile};
use crate::memory::{Memory, u64_at};
use crate::model::SharedText;
use crate::target::{Module as MappedFile, Target};
use std::collections::HashMap;

/// The table of functions that every Go program has, and where programs that may be loaded anywhere have it.
const TABLE_SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
const BUILD_INFO: &str = ".go.buildinfo";
/// Data that is looked through for the word that points at the table.
const MAX_DATA: usize = 256 << 20;
const PIECE: usize = 4 << 20;
const WRITABLE: u32 = 2;

/// Variables of the runtime.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Globals {
    /// All goroutines that ever were: a list, and its length.
    pub(super) all: Option<(RemoteAddr, RemoteAddr)>,
    pub(super) semaphores: Option<RemoteAddr>,
    pub(super) wait_reasons: Option<RemoteAddr>,
    /// The number of goroutines that may run at one time.
    pub(super) processors: Option<RemoteAddr>,
}

/// What was found of a Go program.
pub(super) struct Located {
    pub(super) version: Option<String>,
    pub(super) release: Option<u32>,
    pub(super) module: Module,
    pub(super) symbols: HashMap<String, RemoteAddr>,
}

const SYMBOLS: [&str; 6] = [
    "runtime.firstmoduledata",
    "runtime.allgptr",
    "runtime.allglen",
    "runtime.semtable",
    "runtime.waitReasonStrings",
    "runtime.gomaxprocs",
];

/// The program among what is mapped.
pub(super) fn program(target: &dyn Target) -> Option<&MappedFile> {
    target.modules().iter().find(|module| target.is_program(module))
}

/// Whether `program` was made by Go's linker.
pub(in crate::runtimes) fn is_go(target: &dyn Target, program: &MappedFile) -> bool {
    let file = target.open_module(program);
    let object = file.and_then(|file| ObjectFile::open(&file, target.limits()));
    object.is_some_and(|object| table_section(&object).is_some())
}

fn table_section(object: &ObjectFile) -> Option<u64> {
    TABLE_SECTIONS.iter().find_map(|name| object.section(name)).map(|section| section.addr)
}

/// The tables of the Go program `file`; `None` if it is none. An error says what is missing.
pub(super) fn locate(target: &dyn Target, file: &MappedFile) -> Option<Result<Located, String>> {
    let opened = target.open_module(file);
    let object = opened.as_ref().and_then(|opened| ObjectFile::open(opened, target.limits()))?;
    let image = Image::load(target, file.base).ok()?;
    let moved = |address: u64| RemoteAddr(address.wrapping_add(image.bias()));
    let table = moved(table_section(&object)?);
    let version = object.section(BUILD_INFO).and_then(|at| build_info::version_at(target, moved(at.addr)));
    let symbols = match object.has_symbols() {
        true => FileSymbols::new(opened.as_ref()?, target.limits()).addresses_of(&SYMBOLS, image.bias()),
        false => HashMap::new(),
    };
    let release = version.as_deref().and_then(build_info::release_of);
    let module = symbols
        .get("runtime.firstmoduledata")
        .and_then(|address| module_at(target, *address, table, release))
        .or_else(|| module_by_table(target, &image, table, release));
    Some(match module {
        Some(module) => Ok(Located { version, release, module, symbols }),
        None => Err("the table of its functions cannot be read".to_owned()),
    })
}

/// The `moduledata` at `address`, whose first word points at `table`.
pub(super) fn module_at(
    memory: &dyn Memory,
    address: RemoteAddr,
    table: RemoteAddr,
    release: Option<u32>,
) -> Option<Module> {
    let bytes = memory.read_vec(address, MODULE_WORDS * 8).ok()?;
    if u64_at(&bytes, 0)? != table.0 {
        return None;
    }
    let mut magic = [0; 8];
    memory.read_exact(table, &mut magic).ok()?;
    Module::decode(&bytes, magic, release)
}

/// The same, where no symbol tells the address: a word of the program's data that points at `table`.
fn module_by_table(target: &dyn Target, image: &Image, table: RemoteAddr, release: Option<u32>) -> Option<Module> {
    let mut magic = [0; 8];
    target.read_exact(table, &mut magic).ok()?;
    if magic != MAGIC && magic != MAGIC_OLD {
        return None;
    }
    let mut left = MAX_DATA;
    for (start, size) in image.loads_with(WRITABLE) {
        let mut at = start.0;
        let end = start.0.saturating_add(size.min(left as u64));
        left = left.saturating_sub(size as usize);
        while at < end && !target.limits().is_over() {
            let bytes = target.read_up_to(RemoteAddr(at), PIECE.min((end - at) as usize)).unwrap_or_default();
            let words = bytes.as_chunks::<8>().0.iter().enumerate();
            let found = words.filter(|(_, word)| u64::from_le_bytes(**word) == table.0);
            let module = |number: usize| module_at(target, RemoteAddr(at + number as u64 * 8), table, release);
            if let Some(module) = found.map(|(number, _)| number).find_map(module) {
                return Some(module);
            }
            if bytes.len() < 8 {
                break;
            }
            at += bytes.len() as u64 / 8 * 8;
        }
    }
    None
}

impl Globals {
    /// By their symbols, else by what functions of the runtime do with them.
    pub(super) fn find(memory: &dyn Memory, functions: &Functions<'_>, symbols: &HashMap<String, RemoteAddr>) -> Self {
        let symbol = |name: &str| symbols.get(name).copied();
        let by_symbols = Self {
            all: symbol("runtime.allgptr").zip(symbol("runtime.allglen")),
            semaphores: symbol("runtime.semtable"),
            wait_reasons: symbol("runtime.waitReasonStrings"),
            processors: symbol("runtime.gomaxprocs"),
        };
        if by_symbols.all.is_some() && by_symbols.semaphores.is_some() && by_symbols.wait_reasons.is_some() {
            return by_symbols;
        }
        const ADDS: &str = "runtime.allgadd";
        const RELEASES: &str = "runtime.semrelease1";
        const NAMES: &str = "runtime.waitReason.String";
        const RESIZES: &str = "runtime.procresize";
        let found = functions.named(&[ADDS, RELEASES, NAMES, RESIZES]);
        let code = |name: &str| {
            let function = found.get(name)?;
            let size = usize::try_from(function.end.checked_sub(function.entry)?).ok()?.min(64 << 10);
            Some((function.entry, memory.read_up_to(RemoteAddr(function.entry), size).ok()?))
        };
        let taken = |name: &str, is_it: &dyn Fn(RemoteAddr) -> bool| {
            let (entry, code) = code(name)?;
            code::addresses_taken(&code, entry).find(|address| is_it(*address))
        };
        let processors = || code(RESIZES).and_then(|(entry, code)| code::first_number_read(&code, entry));
        let reasons = |address: RemoteAddr| !wait_reasons(memory, address).is_empty();
        let all = || code(ADDS).and_then(|(entry, code)| code::last_two_exchanged(&code, entry));
        Self {
            all: by_symbols.all.or_else(all),
            semaphores: by_symbols.semaphores.or_else(|| taken(RELEASES, &|_| true)),
            wait_reasons: by_symbols.wait_reasons.or_else(|| taken(NAMES, &reasons)),
            processors: by_symbols.processors.or_else(processors),
        }
    }
}

/// Reasons to wait that a release may have. It has some forty.
const MAX_REASONS: usize = 128;
const LONGEST_REASON: u64 = 64;
/// A table with fewer is none.
const LEAST_REASONS: usize = 16;

/// The table of reasons to wait at `table`: texts, each with its length. Empty if it is none.
pub(super) fn wait_reasons(memory: &dyn Memory, table: RemoteAddr) -> Vec<SharedText> {
    let bytes = memory.read_up_to(table, MAX_REASONS * 16).unwrap_or_default();
    let text = |header: &[u8; 16]| {
        let (at, length) = (u64_at(header, 0)?, u64_at(header, 8)?);
        let bytes = memory.read_vec(RemoteAddr(at), usize::try_from(length).ok().filter(|_| length <= LONGEST_REASON)?);
        let text = String::from_utf8(bytes.ok()?).ok()?;
        text.bytes().all(|byte| (b' '..0x7f).contains(&byte)).then(|| SharedText::from(text.as_str()))
    };
    // Behind the table is something else.
    let texts: Vec<SharedText> = bytes.as_chunks().0.iter().map_while(text).collect();
    if texts.len() < LEAST_REASONS { Vec::new() } else { texts }
}

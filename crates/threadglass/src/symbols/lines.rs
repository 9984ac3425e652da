//! Source lines and inlined functions, by blazesym.
//!
//! It maps the files it reads into memory. A mapped file that is cut short kills who reads it, and the
//! files of a target belong to others: so it is given a copy in memory of ours.

use super::debug_file::find_debug_file;
use super::demangle;
use super::frames::Function;
use crate::sys::file::copy_to_memory;
use crate::target::Module;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolizer};
use object::{Object, ObjectSection};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Larger files are not searched for lines; their functions are named all the same.
const MAX_FILE: u64 = 512 << 20;

/// The debug information of one object.
pub(super) struct Lines {
    symbolizer: Symbolizer,
    source: Source<'static>,
    /// Held open because the source leads through it.
    _copy: File,
}

impl Lines {
    /// Opens the debug information of `module`: in its own file or in a separate one. `None` when it has
    /// none.
    pub(super) fn open(module: &Module, file: Option<&File>, build_id: Option<&[u8]>) -> Option<Self> {
        let separate;
        let file = match file.filter(|file| has_lines(file)) {
            Some(file) => file,
            None => {
                separate = find_debug_file(module, file, build_id).filter(has_lines)?;
                &separate
            }
        };
        let copy = copy_to_memory(file, MAX_FILE).ok()?;
        let source = Source::Elf(Elf::new(format!("/proc/self/fd/{}", copy.as_raw_fd())));
        let no_dirs: [&str; 0] = [];
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_demangling(false)
            .set_debug_dirs(Some(no_dirs))
            .build();
        Some(Self { symbolizer, source, _copy: copy })
    }

    /// The functions at each of the link-time addresses `offsets`, which are `bias` lower than in the
    /// target.
    pub(super) fn functions_at(&self, offsets: &[u64], bias: u64) -> Option<Vec<Vec<Function>>> {
        let look_up = || {
            let found = self.symbolizer.symbolize(&self.source, Input::VirtOffset(offsets)).ok()?;
            let functions = found.iter().map(|found| found.as_sym().map(|symbol| functions(symbol, bias)));
            Some(functions.map(Option::unwrap_or_default).collect())
        };
        // The debug information is the target's; a decoder's panic over it must not end the look.
        catch_unwind(AssertUnwindSafe(look_up)).ok().flatten()
    }
}

fn functions(symbol: &blazesym::symbolize::Sym<'_>, bias: u64) -> Vec<Function> {
    let function = |name: &str, start, info: Option<&CodeInfo<'_>>| Function {
        name: demangle(name),
        start,
        file: info.map(|info| info.to_path().to_string_lossy().into_owned()),
        line: info.and_then(|info| info.line),
    };
    let start = Some(symbol.addr.wrapping_add(bias));
    let mut functions = vec![function(&symbol.name, start, symbol.code_info.as_deref())];
    functions.extend(symbol.inlined.iter().map(|inlined| function(&inlined.name, None, inlined.code_info.as_ref())));
    functions.reverse();
    functions
}

fn has_lines(file: &File) -> bool {
    let Ok(file) = file.try_clone() else { return false };
    let cache = object::ReadCache::new(file);
    let Ok(elf) = object::read::elf::ElfFile64::<object::Endianness, _>::parse(&cache) else { return false };
    elf.section_by_name(".debug_line").is_some_and(|section| section.size() > 0)
        && elf.section_by_name(".debug_info").is_some()
}

//! Where the glibc symbols of a target are: in the loaded images first, then in the files.

use super::SYMBOLS;
use super::{Library, Module, Target};
use crate::RemoteAddr;
use crate::elf::{FileSymbols, Image};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The symbols of [`SYMBOLS`] that the process has.
#[derive(Debug)]
pub(super) struct GlibcSymbols(HashMap<String, RemoteAddr>);

impl GlibcSymbols {
    /// Looks for them in the objects of `target`.
    pub(super) fn load(target: &dyn Target) -> Self {
        // libc first: a program may define a symbol of the same name for itself.
        let mut modules: Vec<_> = target.modules().iter().collect();
        modules.sort_by_key(|module| rank(module));
        let mut found = HashMap::new();
        let started = Instant::now();
        for (number, module) in modules.iter().enumerate() {
            // A target may map thousands of huge tables just to keep us busy. libc comes first; other
            // objects, and those that only have its name, are not worth so long a search.
            if (rank(module) == OTHER || number >= NAMESAKES) && started.elapsed() > PATIENCE {
                break;
            }
            let Ok(mut image) = Image::load(target, module.base) else { continue };
            if image.load_symbols(target).is_err() {
                continue;
            }
            for name in SYMBOLS {
                if let Some(addr) = image.address_of(target, name) {
                    found.entry((*name).to_owned()).or_insert(addr);
                }
            }
            if found.contains_key("__nptl_rtld_global") && found.contains_key("__libc_stack_end") {
                return Self(found);
            }
        }
        // A libc before 2.34 keeps its list heads out of the dynamic table, and a static program
        // has no dynamic table at all: their files may still have a full one.
        for module in modules {
            if rank(module) == OTHER && !target.is_program(module) {
                continue;
            }
            if target.limits().is_over() {
                break;
            }
            let (Ok(image), Some(file)) = (Image::load(target, module.base), target.open_module(module)) else {
                continue;
            };
            for (name, addr) in FileSymbols::new(&file, target.limits()).addresses_of(SYMBOLS, image.bias()) {
                found.entry(name).or_insert(addr);
            }
        }
        Self(found)
    }

    /// Address of `name`, one of [`SYMBOLS`].
    pub(super) fn address_of(&self, name: &str) -> Option<RemoteAddr> {
        debug_assert!(SYMBOLS.contains(&name), "{name} is missing from target::SYMBOLS");
        self.0.get(name).copied()
    }
}

const OTHER: u8 = 3;
/// Objects that may be libc, or a part of it: one of each in every namespace.
const NAMESAKES: usize = 16;
/// How long symbols are searched for in objects that are not libc.
const PATIENCE: Duration = Duration::from_secs(2);

fn rank(module: &Module) -> u8 {
    match module.library() {
        Library::Libc | Library::PlainLibc => 0,
        Library::Threads => 1,
        Library::Loader | Library::Musl => 2,
        _ => OTHER,
    }
}

//! The objects of a target. Each is opened once, for naming and for unwinding.

use super::debug_file::find_debug_file;
use super::debug_info::{DebugInfo, FrameVariable, TypeAt, ValueType, has_debug_info};
use super::object_names::{LazyDebugInfo, ObjectNames};
use super::{FunctionAt, LockTypes};
use crate::RemoteAddr;
use crate::arch::Registers;
use crate::elf::{DataSymbols, FileSymbols, Image, Symbol};
use crate::model::{Family, SyncKind};
use crate::target::{Module, Target};
use std::fs::File;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The objects of one target. Nothing of an object is read before it is asked for.
pub struct Objects<'t> {
    pub(crate) target: &'t dyn Target,
    /// In address order.
    all: Vec<MappedObject<'t>>,
}

impl<'t> Objects<'t> {
    /// The objects of `target`; `lock_types` says which types are locks.
    pub fn new(target: &'t dyn Target, lock_types: &'static dyn LockTypes) -> Arc<Self> {
        let object = |module| MappedObject { module, target, lock_types, read: ReadParts::default() };
        Arc::new(Self { target, all: target.modules().iter().map(object).collect() })
    }

    pub(crate) fn all(&self) -> &[MappedObject<'t>] {
        &self.all
    }

    /// The object that has `addr` in one of its segments.
    pub(crate) fn at(&self, addr: RemoteAddr) -> Option<&MappedObject<'t>> {
        let behind = self.all.partition_point(|object| object.module.base <= addr);
        // An object may lie in a hole of another object.
        self.all[..behind].iter().rev().find(|object| object.module.contains(addr) && object.has_mapped(addr))
    }

    /// The object that holds `addr`. Its variables may lie beyond the last mapping of its file.
    pub(crate) fn around(&self, addr: RemoteAddr) -> Option<&MappedObject<'t>> {
        self.at(addr).or_else(|| {
            let before = self.all.iter().filter(|object| object.module.end <= addr);
            let object = before.max_by_key(|object| object.module.end)?;
            object.image()?.segment_end(addr).map(|_| object)
        })
    }
}

/// One object: what is in memory, its file, its separate debug file.
pub(crate) struct MappedObject<'t> {
    pub(crate) module: &'t Module,
    target: &'t dyn Target,
    pub(super) lock_types: &'static dyn LockTypes,
    read: ReadParts,
}

/// What can be asked about types of values. Addresses are those of the running program.
pub(crate) struct TypeQuestions<'d> {
    debug: &'d mut DebugInfo,
    bias: u64,
}

impl TypeQuestions<'_> {
    /// The type `at`.
    pub(crate) fn value_type(&mut self, at: TypeAt) -> Option<Arc<ValueType>> {
        self.debug.value_type(at)
    }

    /// The structures with these `names`, in their order, of the unit called `unit`.
    pub(crate) fn structures(&mut self, unit: &str, names: &[&str]) -> Vec<Option<TypeAt>> {
        self.debug.structures(unit, names)
    }

    /// The types that the function that begins at `pc` has values of.
    pub(crate) fn types_in_function(&mut self, pc: RemoteAddr) -> Vec<TypeAt> {
        self.debug.types_in_function(pc.0.wrapping_sub(self.bias))
    }

    /// The variables of the functions at `pc` whose names `wants` accepts; see [`DebugInfo::frame_variables`].
    pub(crate) fn frame_variables(
        &mut self,
        pc: RemoteAddr,
        wants: &dyn Fn(&str) -> bool,
        registers: &Registers,
        read: &dyn Fn(u64) -> Option<u64>,
    ) -> Vec<FrameVariable> {
        self.debug.frame_variables(pc.0.wrapping_sub(self.bias), wants, registers, read)
    }

    /// The type whose table of methods is at `addr`.
    pub(crate) fn type_of_methods(&mut self, addr: RemoteAddr) -> Option<TypeAt> {
        self.debug.type_of_methods(addr.0.wrapping_sub(self.bias))
    }

    /// The locks in a value of the type `at`.
    pub(crate) fn locks_of_type(&mut self, at: TypeAt) -> Vec<(u64, SyncKind, Family)> {
        self.debug.locks_of_type(at)
    }
}

/// What was read of an object, each part when it was first asked for.
#[derive(Default)]
struct ReadParts {
    image: OnceLock<Option<Image>>,
    exports: OnceLock<Option<Image>>,
    build_id: OnceLock<Option<Vec<u8>>>,
    file: OnceLock<Option<File>>,
    debug_file: OnceLock<Option<File>>,
    functions: OnceLock<Option<Arc<FileSymbols>>>,
    split_functions: OnceLock<Option<Arc<FileSymbols>>>,
    debug: OnceLock<Arc<Mutex<LazyDebugInfo>>>,
    names: OnceLock<ObjectNames>,
}

impl<'t> MappedObject<'t> {
    /// Its headers in memory; `None` where no object begins.
    pub(crate) fn image(&self) -> Option<&Image> {
        self.read.image.get_or_init(|| Image::load(self.target, self.module.base).ok()).as_ref()
    }

    /// Whether one of its segments is mapped at `addr`. Where nothing is known of those, its mappings tell.
    fn has_mapped(&self, addr: RemoteAddr) -> bool {
        self.image().is_none_or(|image| image.has_page_of(addr))
    }

    /// Its image with the symbols that other objects may use.
    pub(crate) fn exports(&self) -> Option<&Image> {
        let load = || Image::with_symbols(self.target, self.module.base, self.target.limits()).ok();
        self.read.exports.get_or_init(load).as_ref()
    }

    /// The exported function that holds `addr`.
    pub(crate) fn exported_at(&self, addr: RemoteAddr) -> Option<Symbol> {
        self.exports()?.function_at(self.target, addr)
    }

    /// Whether it uses the function `name` of another object.
    pub(crate) fn uses(&self, name: &str) -> bool {
        self.exports().is_some_and(|image| image.uses(self.target, name))
    }

    /// Its file, if that can be shown to be the one that is mapped.
    pub(crate) fn file(&self) -> Option<&File> {
        self.read.file.get_or_init(|| self.target.open_module(self.module)).as_ref()
    }

    /// The file that has its debug information: its own or a separate one.
    pub(crate) fn debug_file(&self) -> Option<&File> {
        let find = || {
            let own = self.file().filter(|file| has_debug_info(file, self.target.limits()));
            let own = own.and_then(|file| file.try_clone().ok());
            own.or_else(|| find_debug_file(self.module, self.file(), self.build_id()))
        };
        self.read.debug_file.get_or_init(find).as_ref()
    }

    fn build_id(&self) -> Option<&[u8]> {
        self.read.build_id.get_or_init(|| self.image()?.build_id(self.target)).as_deref()
    }

    /// The symbols of its file.
    fn functions(&self) -> Option<&Arc<FileSymbols>> {
        let open = || Some(Arc::new(FileSymbols::new(self.file()?, self.target.limits())));
        self.read.functions.get_or_init(open).as_ref()
    }

    /// Whether its own file has the full symbol table.
    pub(crate) fn has_full_symbols(&self) -> bool {
        self.functions().is_some_and(|symbols| symbols.has_full_table())
    }

    /// The full symbol table that was split off into its debug file. Only of a file without one of its own.
    fn split_functions(&self) -> Option<&Arc<FileSymbols>> {
        let open = || {
            let debug = if self.has_full_symbols() { None } else { self.debug_file() };
            Some(Arc::new(FileSymbols::new(debug?, self.target.limits())))
        };
        self.read.split_functions.get_or_init(open).as_ref()
    }

    /// The function that holds each of the link-time addresses `offsets`, as the symbol tables of its files have it.
    pub(crate) fn functions_at(&self, offsets: &[u64]) -> Vec<Option<Symbol>> {
        let mut found = vec![None; offsets.len()];
        for table in [self.split_functions(), self.functions()].into_iter().flatten() {
            let missing: Vec<usize> = (0..offsets.len()).filter(|index| found[*index].is_none()).collect();
            let wanted: Vec<u64> = missing.iter().map(|index| offsets[*index]).collect();
            missing.into_iter().zip(table.functions_at(&wanted)).for_each(|(index, symbol)| found[index] = symbol);
        }
        found
    }

    /// The functions of this name in its files, at link-time addresses.
    #[cfg(feature = "profile")]
    pub(crate) fn functions_named(&self, name: &str) -> Vec<Symbol> {
        let named =
            |table: Option<&Arc<FileSymbols>>| table.map(|table| table.functions_named(name)).unwrap_or_default();
        let found = named(self.functions());
        if found.is_empty() { named(self.split_functions()) } else { found }
    }

    /// The function that holds `addr`, as its files or the image have it, at its run-time address.
    pub(crate) fn function_at(&self, addr: RemoteAddr) -> Option<Symbol> {
        let bias = self.image()?.bias();
        let symbol = self.functions_at(&[addr.0.wrapping_sub(bias)]).pop().flatten();
        if symbol.is_none() && self.file().is_none() {
            return self.exported_at(addr);
        }
        symbol.map(|symbol| Symbol { addr: symbol.addr.offset(bias), ..symbol })
    }

    /// Its debug information.
    fn debug(&self) -> &Arc<Mutex<LazyDebugInfo>> {
        self.read.debug.get_or_init(|| LazyDebugInfo::of(self.debug_file().and_then(|file| file.try_clone().ok())))
    }

    /// The functions at each of the link-time addresses `offsets`, as its debug information has them, the innermost
    /// first.
    pub(crate) fn described_at(&self, offsets: &[u64]) -> Vec<Vec<FunctionAt>> {
        let mut debug = self.debug().lock().unwrap_or_else(PoisonError::into_inner);
        match debug.read(self.target.limits(), self.lock_types) {
            Some(debug) => debug.functions_at(offsets),
            None => vec![Vec::new(); offsets.len()],
        }
    }

    /// Asks its debug information about types of values; `None` where there is no answer, or no debug information.
    pub(crate) fn ask_types<T>(&self, question: impl FnOnce(&mut TypeQuestions<'_>) -> Option<T>) -> Option<T> {
        let mut debug = self.debug().lock().unwrap_or_else(PoisonError::into_inner);
        let bias = self.image()?.bias();
        question(&mut TypeQuestions { debug: debug.read(self.target.limits(), self.lock_types)?, bias })
    }

    /// Names of its variables and types; `None` where no object begins.
    pub(crate) fn names(&self) -> Option<&ObjectNames> {
        self.image()?;
        Some(self.read.names.get_or_init(|| {
            let symbols = self.data_symbols();
            // The types of a runtime itself are not shown, and there are very many of them.
            let debug = if self.module.library().is_runtime() { Arc::default() } else { self.debug().clone() };
            let limits = self.target.limits().clone();
            ObjectNames { symbols, debug, limits, lock_types: self.lock_types }
        }))
    }

    fn data_symbols(&self) -> DataSymbols {
        let tables = [self.split_functions(), self.functions()].into_iter().flatten();
        let from_files = tables.map(DataSymbols::of).find(|symbols| !symbols.is_empty());
        from_files.unwrap_or_else(|| match self.exports() {
            Some(exports) => DataSymbols::from_symbols(exports.data_symbols(self.target), self.target.limits()),
            None => DataSymbols::default(),
        })
    }

    /// Takes what is needed to name its functions later, when its process may have ended. Quick: nothing is
    /// searched.
    #[cfg(feature = "profile")]
    pub(crate) fn pin(&self) {
        self.build_id();
        if self.file().is_none()
            && let Some(exports) = self.exports()
        {
            exports.hold_names(self.target);
        }
    }
}

//! Names of the variables and members of one object.

use super::LockTypes;
use super::data::LockVariable;
use super::debug_info::{DebugInfo, FunctionAt, has_debug_info, join};
use crate::elf::{DataSymbols, demangle};
use crate::limits::Limits;
use crate::model::{Evidence, SyncKind};
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

/// One way to see a lock as a member.
pub(super) struct MemberFit {
    /// Its name in the outermost structure that is known to hold it, and its names in those within.
    pub(super) names: Vec<String>,
    /// Whether the structure begins with the lock, so that a pointer to one looks like a pointer to the other.
    pub(super) is_first: bool,
    /// Whether it is named by its own type only.
    pub(super) is_alone: bool,
}

/// What the functions at an address say of a lock.
#[derive(Default)]
pub(super) struct MemberFits {
    pub(super) fits: Vec<MemberFit>,
    /// Whether one of them has a pointer to a lock and to nothing around it.
    pub(super) has_bare: bool,
    /// Whether one of them is the program's own.
    pub(super) is_own: bool,
}

/// Names of the variables of one object, from its file or files. All addresses are those of link time.
///
/// Symbols are read when this is made, debug information when it is needed.
pub struct ObjectNames {
    pub(super) symbols: DataSymbols,
    pub(super) debug: Arc<Mutex<LazyDebugInfo>>,
    pub(super) limits: Limits,
    pub(super) lock_types: &'static dyn LockTypes,
}

/// The debug information of an object, which is read when it is needed.
#[derive(Default)]
pub(super) struct LazyDebugInfo {
    /// The file that has it, until it is read.
    file: Option<File>,
    info: Option<DebugInfo>,
}

impl LazyDebugInfo {
    pub(super) fn of(file: Option<File>) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { file, info: None }))
    }

    /// What there is, read.
    pub(super) fn read(&mut self, limits: &Limits, lock_types: &'static dyn LockTypes) -> Option<&mut DebugInfo> {
        if let Some(file) = self.file.take() {
            self.info = DebugInfo::open(&file, limits, lock_types);
        }
        self.info.as_mut()
    }
}

impl ObjectNames {
    /// From the object's file alone, on the budget `limits`.
    pub fn new(file: File, limits: &Limits, lock_types: &'static dyn LockTypes) -> Self {
        let symbols = DataSymbols::read(&file, limits);
        let debug = LazyDebugInfo::of(has_debug_info(&file, limits).then_some(file));
        Self { symbols, debug, limits: limits.clone(), lock_types }
    }

    /// Asks the debug information, where there is some.
    fn ask<T>(&self, question: impl FnOnce(&mut DebugInfo) -> Option<T>) -> Option<T> {
        let mut debug = self.debug.lock().unwrap_or_else(PoisonError::into_inner);
        question(debug.read(&self.limits, self.lock_types)?)
    }

    /// The variable at `addr` with the member there, or the symbol there.
    pub fn variable_at(&self, addr: u64) -> Option<String> {
        let described = self.ask(|debug| debug.variable_at(addr));
        described.or_else(|| {
            let symbol = self.symbols.at(addr)?;
            let name = demangle(&symbol.name);
            Some(if symbol.addr.0 == addr { name } else { format!("{name}+{:#x}", addr - symbol.addr.0) })
        })
    }

    /// All locks in variables: by their types, or by the size of their symbols in an object without debug
    /// information.
    pub fn lock_variables(&self) -> Vec<LockVariable> {
        if let Some(found) = self.ask(DebugInfo::lock_variables) {
            return found;
        }
        let sizes = self.lock_types.sizes();
        let symbols = self.symbols.of_size(&sizes.iter().map(|(size, ..)| *size).collect::<Vec<_>>()).into_iter();
        // The compiler's own tables of C++ classes have such sizes too, and locks are aligned.
        let symbols = symbols.filter(|symbol| !symbol.name.starts_with("_ZT") && symbol.addr.0 % 8 == 0);
        let limits = &self.limits;
        symbols
            // Any of their names may take long to be written out.
            .take_while(|_| !limits.is_over())
            .filter_map(|symbol| {
                let (_, kind, family) = sizes.iter().find(|(size, ..)| *size == symbol.size)?;
                Some(LockVariable {
                    address: symbol.addr,
                    kind: *kind,
                    family: *family,
                    name: demangle(&symbol.name),
                    evidence: Evidence::Inferred,
                })
            })
            .collect()
    }

    /// The functions at `pc` with their places in the source, those that were inlined there first; nothing without debug
    /// information.
    pub fn functions_at(&self, pc: u64) -> Vec<FunctionAt> {
        self.ask(|debug| debug.functions_at(&[pc]).pop()).unwrap_or_default()
    }

    /// The members that are locks of the types that the functions at `pc` have pointers to.
    pub fn members_at(&self, pc: u64) -> Vec<String> {
        let members = self.ask(|debug| {
            let facts = debug.code_at(pc)?;
            let locks = facts.pointees.iter().flat_map(|pointee| pointee.locks.iter());
            Some(locks.filter_map(|lock| debug.member_names(lock).pop()).collect())
        });
        members.unwrap_or_default()
    }

    /// What the functions at `pc` say of a lock of `kind` at `addr` (in the target), given the `words` (sorted)
    /// of the stack they run on. `None` where no function is known.
    pub(super) fn fits(&self, pc: u64, addr: u64, kind: SyncKind, words: &[u64]) -> Option<MemberFits> {
        self.ask(|debug| {
            let facts = debug.code_at(pc)?;
            let mut fits = MemberFits { is_own: facts.is_own, ..MemberFits::default() };
            for pointee in &facts.pointees {
                for lock in pointee.locks.iter().filter(|lock| lock.kind == kind) {
                    let Some(offset) = lock.offset.checked_add(pointee.offset) else { continue };
                    let Some(start) = addr.checked_sub(offset) else { continue };
                    if start == 0 || words.binary_search(&start).is_err() {
                        continue;
                    }
                    if pointee.is_bare {
                        fits.has_bare |= offset == 0;
                        continue;
                    }
                    let mut names = debug.member_names(lock);
                    // A structure without a name of its own is known by its other one.
                    if names.is_empty() && !lock.path.is_empty() {
                        names.push(join(&pointee.name, &lock.path));
                    }
                    names.reverse();
                    // From afar, a pointer to the first member says nothing.
                    if !names.is_empty() && (offset != 0 || pointee.is_near) {
                        fits.fits.push(MemberFit { names, is_first: offset == 0, is_alone: lock.path.is_empty() });
                    }
                }
            }
            Some(fits)
        })
    }
}

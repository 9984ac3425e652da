//! Names for synchronization objects: the variable, the member of a type, or the place.

use super::LockTypes;
use super::debug_file::find_debug_file;
use super::debug_info::has_debug_info;
use super::object_names::{Fit, ObjectNames};
use crate::RemoteAddr;
use crate::elf::demangle;
use crate::elf::{DataSymbols, FileSymbols, Image, ObjectFile};
use crate::model::{Evidence, Family, SyncKind};
use crate::proc::map_at;
use crate::target::{Module, Target};
use std::collections::HashMap;
use std::fs::File;

/// Frames of a stack that are asked who they know.
const MAX_FRAMES: usize = 64;

/// A lock in a global or static variable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LockVariable {
    /// Where it begins.
    pub address: RemoteAddr,
    /// What it is. By the size of a symbol alone, a barrier looks like a semaphore.
    pub kind: SyncKind,
    /// Whose it is.
    pub family: Family,
    /// The variable, with the member: `registry.shards[3].mu`.
    pub name: String,
    /// `Derived` from the type in debug information, or `Inferred` from the size of a symbol.
    pub evidence: Evidence,
}

/// Names data of one process. Objects are opened when something in them is asked for.
pub struct DataNames<'a> {
    target: &'a dyn Target,
    lock_types: &'static dyn LockTypes,
    /// Where the segments of objects are, without opening their files.
    images: HashMap<RemoteAddr, Option<Image>>,
    objects: HashMap<RemoteAddr, Option<Object>>,
}

/// One loaded object.
struct Object {
    image: Image,
    names: ObjectNames,
    /// For the functions of a program that has libc in it.
    functions: Option<FileSymbols>,
    /// What is known of addresses in them: a look at all symbols costs, and many threads are at few places.
    locking: HashMap<u64, bool>,
}

impl<'a> DataNames<'a> {
    /// Prepares to name the data of `target`; reads nothing yet.
    pub fn new(target: &'a dyn Target, lock_types: &'static dyn LockTypes) -> Self {
        Self { target, lock_types, images: HashMap::new(), objects: HashMap::new() }
    }

    /// The global or static variable at `addr`. With debug information this is the innermost member there:
    /// `registry.shards[3].mu`, `ns::lock_a`, `app::STATE`; otherwise the symbol, demangled: `symbol` or
    /// `symbol+0x40`. `None` when no variable of a loaded object is known to be there.
    pub fn variable_at(&mut self, addr: RemoteAddr) -> Option<String> {
        let _look = self.target.limits().begin();
        let module = self.module_of(addr)?;
        let object = self.object(module)?;
        object.names.variable_at(addr.0.wrapping_sub(object.image.bias()))
    }

    /// Where `addr` lies: [`Self::offset_of`] it, or else `heap`, `stack` (that of the main thread) or `[anon]`,
    /// where other things lie too. `None` where nothing is mapped.
    pub fn place_of(&mut self, addr: RemoteAddr) -> Option<String> {
        self.offset_of(addr).or_else(|| {
            let map = map_at(self.target.maps(), addr)?;
            Some(match String::from_utf8_lossy(&map.name).as_ref() {
                "" => "[anon]".to_owned(),
                "[heap]" => "heap".to_owned(),
                "[stack]" => "stack".to_owned(),
                other => other.to_owned(),
            })
        })
    }

    /// The place of `addr` in a loaded object, `libfoo.so+0x4012`, or in another mapped file.
    pub fn offset_of(&mut self, addr: RemoteAddr) -> Option<String> {
        if let Some(module) = self.module_of(addr)
            && self.image(module).is_some()
        {
            return Some(format!("{}+{:#x}", module.name(), addr.0 - module.base.0));
        }
        let map = map_at(self.target.maps(), addr).filter(|map| map.is_file())?;
        let name = String::from_utf8_lossy(&map.name);
        let file = name.rsplit('/').next().unwrap_or_default();
        Some(format!("{file}+{:#x}", (addr.0 - map.start.0).saturating_add(map.offset)))
    }

    /// The member of a type that the lock of `kind` at `addr`, which is in no variable, is:
    /// `Session::lock_`, `struct session::lock`, `app::Session::ledger`.
    ///
    /// It is found by way of a thread that uses it: `frames` are addresses in the instructions that its stack
    /// is at, from the innermost outwards, and `words` what is on that stack and in its registers. A function
    /// there that has a pointer to a type with such a lock in it knows the name, if the pointer, as far as the
    /// lock's address tells it, is among the words. That makes it `inferred`; `None` when several names fit.
    pub fn member_of(
        &mut self,
        addr: RemoteAddr,
        kind: SyncKind,
        frames: &[RemoteAddr],
        words: &[u64],
    ) -> Option<String> {
        let _look = self.target.limits().begin();
        let mut words = words.to_vec();
        words.sort_unstable();
        let (mut near, mut far): (Vec<Fit>, Vec<Fit>) = (Vec::new(), Vec::new());
        // A pointer to a structure that begins with the lock cannot be told from a pointer to the lock, which
        // is on the stack anyhow: only who called the lock's function is believed.
        let mut is_caller = true;
        for pc in frames.iter().take(MAX_FRAMES) {
            // Behind code of which nothing is known there is no telling whose lock it is: a structure of its
            // own may look like one of its callers'.
            let Some(module) = self.module_of(*pc) else { break };
            if passes_on(module) {
                continue;
            }
            let Some(object) = self.object(module) else { break };
            let offset = pc.0.wrapping_sub(object.image.bias());
            match object.names.fits(offset, addr.0, kind, &words) {
                Some(fits) => {
                    let has_bare = fits.has_bare;
                    let is_believed = |fit: &Fit| !fit.is_first || (is_caller && (!has_bare || fit.is_alone));
                    let found = if is_caller { &mut near } else { &mut far };
                    found.extend(fits.fits.into_iter().filter(is_believed));
                    is_caller &= !fits.is_own;
                }
                None if object.is_locking(offset) => {}
                None => break,
            }
        }
        if near.is_empty() {
            return widest(far.iter()).cloned();
        }
        // Who called the lock's function knows best. Its own callers may only say what is around that.
        let name = widest(near.iter())?;
        let around = near.iter().chain(&far).filter(|fit| fit.names.contains(name));
        widest(around).or(Some(name)).cloned()
    }

    /// All global and static variables, those of functions too, that are or contain a lock. Those of libc
    /// itself are left out.
    pub fn lock_variables(&mut self) -> Vec<LockVariable> {
        let target = self.target;
        let _look = target.limits().begin();
        let mut found = Vec::new();
        for module in target.modules().iter().filter(|module| !passes_on(module)) {
            if target.limits().is_over() {
                break;
            }
            let Some(object) = self.object(module) else { continue };
            let bias = object.image.bias();
            found.extend(object.names.lock_variables().into_iter().map(|lock| LockVariable {
                address: RemoteAddr(lock.addr.wrapping_add(bias)),
                kind: lock.kind,
                family: lock.family,
                name: lock.name,
                evidence: lock.evidence,
            }));
        }
        found
    }

    /// The object that has `addr` in it. Its variables may lie beyond the last mapping of its file.
    fn module_of(&mut self, addr: RemoteAddr) -> Option<&'a Module> {
        let target = self.target;
        if let Some(module) = target.module_at(addr) {
            return Some(module);
        }
        let before = target.modules().iter().filter(|module| module.end <= addr);
        let module = before.max_by_key(|module| module.end)?;
        self.image(module)?.segment_end(addr)?;
        Some(module)
    }

    fn image(&mut self, module: &Module) -> Option<&Image> {
        let target = self.target;
        self.images.entry(module.base).or_insert_with(|| Image::load(target, module.base).ok()).as_ref()
    }

    fn object(&mut self, module: &Module) -> Option<&mut Object> {
        let (target, lock_types) = (self.target, self.lock_types);
        self.objects.entry(module.base).or_insert_with(|| Object::open(target, module, lock_types)).as_mut()
    }
}

impl Object {
    fn open(target: &dyn Target, module: &Module, lock_types: &'static dyn LockTypes) -> Option<Self> {
        let limits = target.limits();
        let mut image = Image::load(target, module.base).ok()?;
        let file = target.open_module(module);
        let build_id = image.build_id(target);
        let separate = || find_debug_file(module, file.as_ref(), build_id.as_deref());
        let mut symbols = file.as_ref().map(|file| DataSymbols::read(file, limits)).unwrap_or_default();
        let own = file.as_ref().filter(|file| has_debug_info(file, limits)).and_then(|file| file.try_clone().ok());
        let debug = own.or_else(separate);
        let has_symbols = |file: &File| ObjectFile::open(file, limits).is_some_and(|object| object.has_symbols());
        if let Some(debug) = &debug
            && file.as_ref().is_none_or(|file| !has_symbols(file))
        {
            let full = DataSymbols::read(debug, limits);
            symbols = if full.is_empty() { symbols } else { full };
        }
        if symbols.is_empty() && image.load_symbols_within(target, limits).is_ok() {
            symbols = DataSymbols::from_symbols(image.data_symbols(), limits);
        }
        // libc's own types are nobody's business, and there are very many of them.
        let debug = debug.filter(|_| !passes_on(module));
        let names = ObjectNames::with(symbols, debug, limits, lock_types);
        let functions = file.map(|file| FileSymbols::new(file, limits));
        Some(Self { image, names, functions, locking: HashMap::new() })
    }

    /// Whether the function at `offset`, of which debug information says nothing, is one of libc's that take
    /// locks, linked into the program.
    fn is_locking(&mut self, offset: u64) -> bool {
        const NAMES: [&str; 10] =
            ["pthread_", "lll_", "futex_", "sem_", "new_sem_", "old_sem_", "mtx_", "cnd_", "libc_lock", "syscall"];
        let functions = &self.functions;
        *self.locking.entry(offset).or_insert_with(|| {
            let symbol = functions.as_ref().and_then(|functions| functions.function_at(offset));
            symbol.is_some_and(|symbol| {
                let name = symbol.name.trim_start_matches('_');
                NAMES.iter().any(|prefix| name.starts_with(prefix)) || demangle(&symbol.name).starts_with("std::")
            })
        })
    }
}

/// The name in the widest structure, if all of `fits` agree that the others lie in it.
fn widest<'f>(fits: impl Iterator<Item = &'f Fit> + Clone) -> Option<&'f String> {
    let mut all = fits.clone();
    let holds_all =
        |fit: &&Fit| fits.clone().all(|other| other.names.first().is_some_and(|name| fit.names.contains(name)));
    all.find(holds_all)?.names.first()
}

/// Runtimes pass the locks of others on, and keep their own to themselves.
fn passes_on(module: &Module) -> bool {
    module.library().is_runtime()
}

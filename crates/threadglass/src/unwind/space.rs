//! The code of a target: its objects with their unwind tables, read once and shared by all walks.

use super::call::{Call, call_before};
use super::cfi::{Row, Table};
use crate::RemoteAddr;
use crate::elf::Image;
use crate::model::Evidence;
use crate::target::{Memory, Target};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many objects' tables are read. A stack that leads through more is not a real one.
const MAX_TABLES: usize = 512;

type Opener<'a> = dyn Fn() -> Option<File> + Send + Sync + 'a;

/// The code of a target.
pub struct Space<'a> {
    pub(super) memory: &'a (dyn Memory + Sync),
    /// In address order.
    objects: Vec<Object<'a>>,
    /// Ranges of code that belong to no object: generated at run time.
    loose: OnceLock<Vec<(RemoteAddr, RemoteAddr)>>,
    find_loose: Box<dyn Fn() -> Vec<(RemoteAddr, RemoteAddr)> + Send + Sync + 'a>,
    tables: AtomicUsize,
}

/// One loaded object.
pub(super) struct Object<'a> {
    base: RemoteAddr,
    end: RemoteAddr,
    /// Whether it is the C library, or a part of it.
    pub(super) libc: bool,
    open: Box<Opener<'a>>,
    loaded: OnceLock<Option<Loaded>>,
    names: OnceLock<Option<Image>>,
}

struct Loaded {
    table: Option<Table>,
}

impl std::fmt::Debug for Space<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space").field("objects", &self.objects.len()).finish_non_exhaustive()
    }
}

impl<'a> Space<'a> {
    /// The code of `target`.
    pub fn of_target(target: &'a dyn Target) -> Self {
        let mut space = Self::new(target, &[]);
        space.objects = target
            .modules()
            .iter()
            .map(|module| Object {
                libc: is_libc(&module.name()),
                ..Object::new(module.base, module.end, Box::new(move || target.open_module(module)))
            })
            .collect();
        space.find_loose = Box::new(move || {
            let code = target.maps().iter().filter(|map| map.exec && !map.is_file());
            code.map(|map| (map.start, map.end)).collect()
        });
        space
    }

    /// The same code, its memory read by another way.
    pub(crate) fn through(mut self, memory: &'a (dyn Memory + Sync)) -> Self {
        self.memory = memory;
        self
    }

    /// Code in plain memory: objects by their first and one past their last address, in order.
    pub fn new(memory: &'a (dyn Memory + Sync), objects: &[(RemoteAddr, RemoteAddr)]) -> Self {
        Self {
            memory,
            objects: objects.iter().map(|(base, end)| Object::new(*base, *end, Box::new(|| None))).collect(),
            loose: OnceLock::new(),
            find_loose: Box::new(Vec::new),
            tables: AtomicUsize::new(0),
        }
    }

    /// Whether the C library is an object of its own.
    pub(super) fn has_libc(&self) -> bool {
        self.objects.iter().any(|object| object.libc)
    }

    /// The object that holds `addr`.
    pub(super) fn object_at(&self, addr: u64) -> Option<&Object<'a>> {
        let behind = self.objects.partition_point(|object| object.base.0 <= addr);
        self.objects.get(behind.checked_sub(1)?).filter(|object| addr < object.end.0)
    }

    /// Whether code can be at `addr`.
    pub(crate) fn is_code(&self, addr: u64) -> bool {
        self.object_at(addr).is_some() || self.loose_at(addr).is_some()
    }

    fn loose_at(&self, addr: u64) -> Option<RemoteAddr> {
        let loose = self.loose.get_or_init(|| (self.find_loose)());
        loose.iter().find(|(from, to)| (from.0..to.0).contains(&addr)).map(|(from, _)| *from)
    }

    fn row(&self, addr: u64) -> Option<Row> {
        let Some(object) = self.object_at(addr) else {
            // The kernel's own object (vDSO) is mapped without a file.
            return Loaded::new(self, self.loose_at(addr)?, &|| None)?.table?.row(addr);
        };
        object.loaded.get_or_init(|| Loaded::new(self, object.base, &*object.open)).as_ref()?.table.as_ref()?.row(addr)
    }

    /// Name of the exported function that begins at `addr`.
    pub(crate) fn exported(&self, addr: u64) -> Option<String> {
        self.names_at(addr)?.name_of_function(RemoteAddr(addr))
    }

    /// Name and first address of the exported function that holds `addr`.
    pub(super) fn exported_around(&self, addr: u64) -> Option<(String, RemoteAddr)> {
        self.names_at(addr)?.function_at(RemoteAddr(addr)).map(|symbol| (symbol.name, symbol.addr))
    }

    /// Name of the function that is bound to the slot of a procedure linkage table.
    pub(super) fn import_at(&self, slot: u64) -> Option<String> {
        self.names_at(slot)?.import_at(RemoteAddr(slot))
    }

    /// The memory that the code is in.
    pub(crate) fn memory(&self) -> &'a (dyn Memory + Sync) {
        self.memory
    }

    /// Whether `addr` is in the C library, where that is an object of its own.
    pub(crate) fn is_libc(&self, addr: u64) -> bool {
        self.object_at(addr).is_some_and(|object| object.libc)
    }

    fn names_at(&self, addr: u64) -> Option<&Image> {
        let object = self.object_at(addr)?;
        let load = || {
            let mut image = Image::load(self.memory, object.base).ok()?;
            image.load_symbols(self.memory).ok().map(|()| image)
        };
        object.names.get_or_init(load).as_ref()
    }

    /// `N` bytes of code.
    pub(super) fn code<const N: usize>(&self, addr: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.memory.read_exact(RemoteAddr(addr), &mut bytes).ok().map(|()| bytes)
    }
}

impl<'a> Object<'a> {
    fn new(base: RemoteAddr, end: RemoteAddr, open: Box<Opener<'a>>) -> Self {
        Self { base, end, libc: false, open, loaded: OnceLock::new(), names: OnceLock::new() }
    }
}

impl Loaded {
    fn new(space: &Space<'_>, base: RemoteAddr, open: &dyn Fn() -> Option<File>) -> Option<Self> {
        if space.tables.fetch_add(1, Ordering::Relaxed) >= MAX_TABLES {
            return None;
        }
        let image = Image::load(space.memory, base).ok()?;
        Some(Self { table: Table::load(space.memory, &image, open) })
    }
}

/// Whether an object of this name is the C library, or a library that was split from it before 2.34.
fn is_libc(name: &str) -> bool {
    const PREFIXES: [&str; 6] = ["libc.so", "libc-2", "libpthread.so", "libpthread-2", "librt.so", "librt-2"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// What one reader has found out about places in the code, so that stacks that are alike cost little.
#[derive(Default)]
pub(crate) struct Known {
    rows: HashMap<u64, Option<Rc<Row>>>,
    calls: HashMap<u64, Option<Call>>,
    /// By return address into the program: the exported function of libc that is called there.
    pub(super) sites: HashMap<u64, Option<(String, Evidence)>>,
    /// Places that have been given away to be named.
    pub(super) named: HashSet<RemoteAddr>,
}

impl Known {
    /// The unwind rule for the instruction at `addr`.
    pub(crate) fn row(&mut self, space: &Space<'_>, addr: u64) -> Option<Rc<Row>> {
        self.rows.entry(addr).or_insert_with(|| space.row(addr).map(Rc::new)).clone()
    }

    /// The call that returns to `back`.
    pub(super) fn call(&mut self, space: &Space<'_>, back: u64) -> Option<Call> {
        *self.calls.entry(back).or_insert_with(|| call_before(space, back))
    }
}

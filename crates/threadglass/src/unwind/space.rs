//! The code of a target: its objects with their unwind tables, read once and shared by all walks.

use super::call::{Call, call_before};
use super::cfi::{TableInput, UnwindRow, UnwindTable};
use super::entries::Fault;
use super::walk::Walk;
use crate::RemoteAddr;
use crate::arch::Registers;
use crate::elf::Image;
use crate::limits::Limits;
use crate::memory::Memory;
use crate::model::{Evidence, StackEnd};
use crate::symbols::{MappedObject, Objects};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// How many objects' tables are read. A stack that leads through more is not a real one.
const MAX_TABLES: usize = 512;

/// The code of a target.
pub struct Space<'a> {
    pub(crate) memory: &'a (dyn Memory + Sync),
    /// In address order.
    objects: Vec<CodeObject<'a>>,
    /// Ranges of code that belong to no file: generated at run time, or the kernel's (vDSO). In address order.
    loose: OnceLock<Vec<CodeExtent>>,
    find_loose: Box<dyn Fn() -> Vec<(RemoteAddr, RemoteAddr)> + Send + Sync + 'a>,
    tables: AtomicUsize,
    walks: Mutex<Walks>,
    pub(crate) limits: Limits,
}

/// Whole stacks that were walked, by stack pointer and program counter. Callers check that the thread has not moved.
#[derive(Default)]
struct Walks {
    known: HashMap<(RemoteAddr, RemoteAddr), Arc<Walk>>,
    frames: usize,
}

/// Frames of all stacks that are remembered.
const MAX_REMEMBERED: usize = 1 << 16;

/// One loaded object.
pub(crate) struct CodeObject<'a> {
    extent: CodeExtent,
    /// The objects of a target, and which of them it is; `None` where it lies in plain memory.
    mapped: Option<(Arc<Objects<'a>>, usize)>,
    /// Its symbols, where it lies in plain memory.
    image: Box<OnceLock<Option<Image>>>,
    /// Whether it is the C library, or a part of it.
    pub(crate) libc: bool,
}

/// A range of addresses with an unwind table of its own, which is read when it is first asked for.
struct CodeExtent {
    base: RemoteAddr,
    end: RemoteAddr,
    table: OnceLock<Option<UnwindTable>>,
}

impl<'a> Space<'a> {
    /// The code of `objects`.
    pub fn of_objects(objects: &Arc<Objects<'a>>) -> Self {
        let target = objects.target;
        let mut space = Self { limits: target.limits().clone(), ..Self::new(target, &[]) };
        let object = |(number, object): (usize, &MappedObject<'a>)| CodeObject {
            mapped: Some((objects.clone(), number)),
            libc: object.module.library().is_libc(),
            ..CodeObject::plain(object.module.base, object.module.end)
        };
        space.objects = objects.all().iter().enumerate().map(object).collect();
        space.find_loose = Box::new(move || {
            let code = target.maps().iter().filter(|map| map.exec && !map.is_file());
            code.map(|map| (map.start, map.end)).collect()
        });
        space
    }

    /// Code in plain memory: objects by their first and one past their last address, in order.
    pub fn new(memory: &'a (dyn Memory + Sync), objects: &[(RemoteAddr, RemoteAddr)]) -> Self {
        Self {
            memory,
            objects: objects.iter().map(|(base, end)| CodeObject::plain(*base, *end)).collect(),
            loose: OnceLock::new(),
            find_loose: Box::new(Vec::new),
            tables: AtomicUsize::new(0),
            walks: Mutex::default(),
            limits: Limits::default(),
        }
    }

    /// Whether the C library is an object of its own.
    pub(crate) fn has_libc(&self) -> bool {
        self.objects.iter().any(|object| object.libc)
    }

    /// The object that holds `addr`.
    pub(crate) fn object_at(&self, addr: u64) -> Option<&CodeObject<'a>> {
        find(&self.objects, |object| &object.extent, addr)
    }

    /// Whether code can be at `addr`.
    pub(crate) fn is_code(&self, addr: u64) -> bool {
        self.object_at(addr).is_some() || self.loose_at(addr).is_some()
    }

    fn loose_at(&self, addr: u64) -> Option<&CodeExtent> {
        let ranges = || (self.find_loose)().into_iter().map(|(from, to)| CodeExtent::new(from, to)).collect();
        find(self.loose.get_or_init(ranges), |extent| extent, addr)
    }

    fn row(&self, addr: u64) -> Option<UnwindRow> {
        let object = self.object_at(addr);
        let extent = object.map(|object| &object.extent).or_else(|| self.loose_at(addr))?;
        let mapped = object.and_then(CodeObject::mapped);
        let found = if self.is_late() { Err(Fault::Time) } else { extent.row(self, addr, mapped) };
        found.unwrap_or_else(|fault| {
            let name = mapped.map_or_else(|| format!("the code at {}", extent.base), |object| object.module.name());
            self.limits.leave_out(format!("the unwind table of {name}"), fault.to_string());
            None
        })
    }

    /// Whether the look that needs the code has taken as long as it may.
    pub(crate) fn is_late(&self) -> bool {
        self.limits.is_over()
    }

    /// Name of the exported function that begins at `addr`.
    pub(crate) fn exported(&self, addr: u64) -> Option<String> {
        self.exported_around(addr).filter(|(_, start)| start.0 == addr).map(|(name, _)| name)
    }

    /// Name and first address of the exported function that holds `addr`.
    pub(crate) fn exported_around(&self, addr: u64) -> Option<(String, RemoteAddr)> {
        self.names_at(addr)?.function_at(RemoteAddr(addr)).map(|symbol| (symbol.name, symbol.addr))
    }

    /// Name of the function that is bound to the slot of a procedure linkage table.
    pub(crate) fn import_at(&self, slot: u64) -> Option<String> {
        self.names_at(slot)?.import_at(RemoteAddr(slot))
    }

    /// Remembers a stack that was walked to its start.
    pub(crate) fn remember(&self, registers: &Registers, walk: &Arc<Walk>) {
        let mut walks = self.walks.lock().unwrap_or_else(PoisonError::into_inner);
        if walk.end == StackEnd::Start && walks.frames < MAX_REMEMBERED {
            walks.frames += walk.places.len();
            // The first walk knew most about the thread.
            walks.known.entry((registers.sp, registers.pc)).or_insert_with(|| walk.clone());
        }
    }

    /// The stack of a thread with these registers, if it was walked before.
    pub(crate) fn walked(&self, registers: &Registers) -> Option<Arc<Walk>> {
        let walks = self.walks.lock().unwrap_or_else(PoisonError::into_inner);
        walks.known.get(&(registers.sp, registers.pc)).cloned()
    }

    /// Forgets all stacks: threads may have moved since.
    pub(crate) fn forget_walks(&self) {
        *self.walks.lock().unwrap_or_else(PoisonError::into_inner) = Walks::default();
    }

    /// Whether `addr` is in the C library, where that is an object of its own.
    pub(crate) fn is_libc(&self, addr: u64) -> bool {
        self.object_at(addr).is_some_and(|object| object.libc)
    }

    fn names_at(&self, addr: u64) -> Option<&Image> {
        let object = self.object_at(addr).filter(|_| !self.limits.is_over())?;
        let load = || Image::with_symbols(self.memory, object.extent.base, &self.limits).ok();
        match object.mapped() {
            Some(mapped) => mapped.exports(),
            None => object.image.get_or_init(load).as_ref(),
        }
    }

    /// `N` bytes of code.
    pub(crate) fn code<const N: usize>(&self, addr: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.memory.read_exact(RemoteAddr(addr), &mut bytes).ok().map(|()| bytes)
    }
}

impl<'a> CodeObject<'a> {
    fn plain(base: RemoteAddr, end: RemoteAddr) -> Self {
        Self { extent: CodeExtent::new(base, end), mapped: None, image: Box::default(), libc: false }
    }

    fn mapped(&self) -> Option<&MappedObject<'a>> {
        self.mapped.as_ref().and_then(|(objects, number)| objects.all().get(*number))
    }
}

impl CodeExtent {
    fn new(base: RemoteAddr, end: RemoteAddr) -> Self {
        Self { base, end, table: OnceLock::new() }
    }

    fn row(&self, space: &Space<'_>, addr: u64, object: Option<&MappedObject<'_>>) -> Result<Option<UnwindRow>, Fault> {
        // The first caller reports what is wrong with a table.
        let mut fault = Ok(None);
        let load = || {
            self.load(space, object).unwrap_or_else(|why| {
                fault = Err(why);
                None
            })
        };
        match self.table.get_or_init(load) {
            Some(table) => table.row(space.memory, addr),
            None => fault,
        }
    }

    fn load(&self, space: &Space<'_>, object: Option<&MappedObject<'_>>) -> Result<Option<UnwindTable>, Fault> {
        let loaded;
        let image = match object {
            Some(object) => object.image(),
            None => {
                loaded = Image::load(space.memory, self.base).ok();
                loaded.as_ref()
            }
        };
        let Some(image) = image else { return Ok(None) };
        if space.tables.fetch_add(1, Ordering::Relaxed) >= MAX_TABLES {
            return Err(Fault::TooMany);
        }
        let open = || object.and_then(|object| object.file()?.try_clone().ok());
        UnwindTable::load(TableInput { memory: space.memory, limits: &space.limits }, image, open)
    }
}

/// The one of `all`, which are in address order, that holds `addr`.
fn find<T>(all: &[T], extent: impl Fn(&T) -> &CodeExtent, addr: u64) -> Option<&T> {
    let behind = all.partition_point(|it| extent(it).base.0 <= addr);
    all.get(behind.checked_sub(1)?).filter(|it| addr < extent(it).end.0)
}

/// Places in the code that one reader remembers.
const MAX_KNOWN: usize = 1 << 15;

/// What one reader has found out about places in the code, so that stacks that are alike cost little.
#[derive(Default)]
pub(crate) struct Known {
    rows: HashMap<u64, Option<Rc<UnwindRow>>>,
    calls: HashMap<u64, Option<Call>>,
    /// By return address into the program: the exported function of libc that is called there.
    pub(crate) sites: HashMap<u64, Option<(String, Evidence)>>,
    /// Places that have been given away to be named.
    pub(crate) named: HashSet<RemoteAddr>,
}

impl Known {
    /// The unwind rule for the instruction at `addr`.
    pub(crate) fn row(&mut self, space: &Space<'_>, addr: u64) -> Option<Rc<UnwindRow>> {
        if self.rows.len() >= MAX_KNOWN {
            self.rows.clear();
        }
        self.rows.entry(addr).or_insert_with(|| space.row(addr).map(Rc::new)).clone()
    }

    /// The call that returns to `back`.
    pub(crate) fn call(&mut self, space: &Space<'_>, back: u64) -> Option<Call> {
        if self.calls.len() >= MAX_KNOWN {
            self.calls.clear();
        }
        *self.calls.entry(back).or_insert_with(|| call_before(space, back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ReadError;

    /// Memory without any object, that counts its reads.
    struct Barren(AtomicUsize);

    impl Memory for Barren {
        fn read_at(&self, _: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            buf.fill(0);
            Ok(buf.len())
        }
    }

    #[test]
    fn code_without_a_file_is_looked_at_once() {
        let memory = Barren(AtomicUsize::new(0));
        let mut space = Space::new(&memory, &[]);
        space.find_loose = Box::new(|| vec![(RemoteAddr(0x1000), RemoteAddr(0x9000))]);
        for addr in 0x1000..0x2000 {
            assert!(space.row(addr).is_none());
        }
        assert_eq!(memory.0.load(Ordering::Relaxed), 1);
        assert!(space.is_code(0x8fff) && !space.is_code(0x9000));
    }
}

//! The code of a target: its objects with their unwind tables, read once and shared by all walks.

use super::call::{Call, call_before};
use super::cfi::{TableInput, UnwindRow, UnwindTable};
use super::debug_frame::DebugFrameTable;
use super::entries::Fault;
use super::follow::{FollowedFrame, follow};
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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// How many objects' tables are read. A stack that leads through more is not a real one.
const MAX_TABLES: usize = 512;

/// The code of a target.
pub struct Space<'a> {
    pub(crate) memory: &'a (dyn Memory + Sync),
    /// What the files have to say; `None` for plain memory.
    objects: Option<Arc<Objects<'a>>>,
    /// The code of each object, in address order.
    code: Vec<CodeExtent>,
    /// Ranges of code that belong to no file: generated at run time, or the kernel's (vDSO). In address order.
    loose: OnceLock<Vec<CodeExtent>>,
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

/// A range of addresses with an unwind table of its own, which is read when it is first asked for.
struct CodeExtent {
    base: RemoteAddr,
    end: RemoteAddr,
    /// Whether it is the C library, or a part of it.
    libc: bool,
    table: OnceLock<Option<UnwindTable>>,
    /// The table that is only for debuggers, for what the other one does not cover.
    debug_frame: OnceLock<Option<DebugFrameTable>>,
    /// Set when a part of its tables was left out.
    is_faulty: AtomicBool,
}

impl<'a> Space<'a> {
    /// The code of `objects`.
    pub fn of_objects(objects: &Arc<Objects<'a>>) -> Self {
        let modules = objects.all().iter().map(|object| object.module);
        let code = modules.map(|it| CodeExtent { libc: it.library().is_libc(), ..CodeExtent::new(it.base, it.end) });
        let limits = objects.target.limits().clone();
        Self { objects: Some(objects.clone()), code: code.collect(), limits, ..Self::new(objects.target, &[]) }
    }

    /// Code in plain memory: objects by their first and one past their last address, in order. They have no names.
    pub fn new(memory: &'a (dyn Memory + Sync), objects: &[(RemoteAddr, RemoteAddr)]) -> Self {
        Self {
            memory,
            objects: None,
            code: objects.iter().map(|(base, end)| CodeExtent::new(*base, *end)).collect(),
            loose: OnceLock::new(),
            tables: AtomicUsize::new(0),
            walks: Mutex::default(),
            limits: Limits::default(),
        }
    }

    /// Whether the C library is an object of its own.
    pub(crate) fn has_libc(&self) -> bool {
        self.code.iter().any(|extent| extent.libc)
    }

    /// Whether an object holds `addr`.
    pub(crate) fn is_in_object(&self, addr: u64) -> bool {
        find(&self.code, addr).is_some()
    }

    /// Whether code can be at `addr`.
    pub(crate) fn is_code(&self, addr: u64) -> bool {
        self.is_in_object(addr) || self.loose_at(addr).is_some()
    }

    fn object_at(&self, addr: u64) -> Option<&MappedObject<'a>> {
        let (number, _) = find(&self.code, addr)?;
        self.objects.as_ref()?.all().get(number)
    }

    fn loose_at(&self, addr: u64) -> Option<&CodeExtent> {
        let ranges = || {
            let maps = self.objects.as_ref().map_or(&[][..], |objects| objects.target.maps());
            let code = maps.iter().filter(|map| map.exec && !map.is_file());
            code.map(|map| CodeExtent::new(map.start, map.end)).collect()
        };
        find(self.loose.get_or_init(ranges), addr).map(|(_, extent)| extent)
    }

    fn row(&self, addr: u64) -> Option<UnwindRow> {
        let extent = find(&self.code, addr).map(|(_, extent)| extent).or_else(|| self.loose_at(addr))?;
        let object = self.object_at(addr);
        let found = if self.is_late() { Err(Fault::Time) } else { extent.row(self, addr, object) };
        found.unwrap_or_else(|fault| {
            let name = object.map_or_else(|| format!("the code at {}", extent.base), |object| object.module.name());
            self.limits.leave_out(format!("the unwind table of {name}"), fault.to_string());
            extent.is_faulty.store(true, Ordering::Relaxed);
            None
        })
    }

    /// Whether there may be a rule for the code at `addr` that was left out.
    pub(crate) fn has_faulty_table(&self, addr: u64) -> bool {
        let extent = find(&self.code, addr).map(|(_, extent)| extent).or_else(|| self.loose_at(addr));
        extent.is_some_and(|extent| extent.is_faulty.load(Ordering::Relaxed))
    }

    /// Whether the look that needs the code has taken as long as it may.
    pub(crate) fn is_late(&self) -> bool {
        self.limits.is_over()
    }

    /// Name of the file that the object at `addr` is from.
    pub(crate) fn file_name_at(&self, addr: u64) -> Option<String> {
        self.object_at(addr).map(|object| object.module.name())
    }

    /// Name of the exported function that begins at `addr`.
    pub(crate) fn exported(&self, addr: u64) -> Option<String> {
        self.exported_around(addr).filter(|(_, start)| start.0 == addr).map(|(name, _)| name)
    }

    /// Name and first address of the exported function that holds `addr`.
    pub(crate) fn exported_around(&self, addr: u64) -> Option<(String, RemoteAddr)> {
        self.names_at(addr)?.function_at(self.memory, RemoteAddr(addr)).map(|symbol| (symbol.name, symbol.addr))
    }

    /// Where the first object that exports the function `name` has it.
    pub(crate) fn export_of(&self, name: &str) -> Option<u64> {
        let exports = self.code.iter().filter_map(|extent| self.names_at(extent.base.0));
        exports.into_iter().find_map(|exports| exports.find_export(self.memory, name)).map(|symbol| symbol.addr.0)
    }

    /// Name of the function that is bound to the slot of a procedure linkage table.
    pub(crate) fn import_at(&self, slot: u64) -> Option<String> {
        self.names_at(slot)?.import_at(self.memory, RemoteAddr(slot))
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
        find(&self.code, addr).is_some_and(|(_, extent)| extent.libc)
    }

    fn names_at(&self, addr: u64) -> Option<&Image> {
        self.object_at(addr).filter(|_| !self.is_late())?.exports()
    }

    /// `N` bytes of code.
    pub(crate) fn code<const N: usize>(&self, addr: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.memory.read_exact(RemoteAddr(addr), &mut bytes).ok().map(|()| bytes)
    }
}

impl CodeExtent {
    fn new(base: RemoteAddr, end: RemoteAddr) -> Self {
        let (table, debug_frame) = (OnceLock::new(), OnceLock::new());
        Self { base, end, libc: false, table, debug_frame, is_faulty: AtomicBool::new(false) }
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
        let row = match self.table.get_or_init(load) {
            Some(table) => table.row(space.memory, addr)?,
            None => fault?,
        };
        match (row, object) {
            (None, Some(object)) => {
                let load = || DebugFrameTable::load(object, &space.limits);
                self.debug_frame.get_or_init(load).as_ref().map_or(Ok(None), |table| table.row(addr))
            }
            (row, _) => Ok(row),
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

/// The one of `all`, which are in address order, that holds `addr`, and its number.
fn find(all: &[CodeExtent], addr: u64) -> Option<(usize, &CodeExtent)> {
    let number = all.partition_point(|extent| extent.base.0 <= addr).checked_sub(1)?;
    Some((number, &all[number])).filter(|(_, extent)| addr < extent.end.0)
}

/// Places in the code that one reader remembers.
const MAX_KNOWN: usize = 1 << 15;

/// What one reader has found out about places in the code, so that stacks that are alike cost little.
#[derive(Default)]
pub(crate) struct Known {
    rows: HashMap<u64, Option<Rc<UnwindRow>>>,
    calls: HashMap<u64, Option<Call>>,
    followed: HashMap<u64, Rc<FollowedFrame>>,
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

    /// What the code from `pc` on, which has no unwind rule, does to its frame.
    pub(super) fn followed(&mut self, space: &Space<'_>, pc: u64) -> Rc<FollowedFrame> {
        if self.followed.len() >= MAX_KNOWN {
            self.followed.clear();
        }
        self.followed.entry(pc).or_insert_with(|| Rc::new(follow(space, pc))).clone()
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
        space.loose = OnceLock::from(vec![CodeExtent::new(RemoteAddr(0x1000), RemoteAddr(0x9000))]);
        for addr in 0x1000..0x2000 {
            assert!(space.row(addr).is_none());
        }
        assert_eq!(memory.0.load(Ordering::Relaxed), 1);
        assert!(space.is_code(0x8fff) && !space.is_code(0x9000));
    }
}

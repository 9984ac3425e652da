//! The threads that Java knows, and the monitors they wait for.

use super::vm_structs::VmStructs;
use crate::memory::{Memory, read_arrays, u64_at};
use crate::runtimes::Context;
use crate::runtimes::languages::Loaded;
use crate::{InnerTid, Lwp, RemoteAddr};
use std::collections::HashMap;

/// Threads that are looked at.
const MAX_THREADS: u32 = 1 << 17;
/// A Java thread's structure takes less than this.
const MAX_SIZE: u64 = 8192;
/// Since this version the place where Java code parks a thread is a part of the thread's structure.
const PARKER_INSIDE: u32 = 16;

/// What a thread of Java's waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JavaWait {
    /// To enter this monitor.
    Enter(RemoteAddr),
    /// In `Object.wait`, with this monitor.
    Notify(RemoteAddr),
    /// Until it is unparked.
    Unpark,
    /// For what only the virtual machine knows.
    Internal,
}

/// The threads that Java knows, and where they keep what.
#[derive(Debug)]
pub(crate) struct JavaThreads {
    threads: HashMap<Lwp, RemoteAddr>,
    ids: HashMap<RemoteAddr, InnerTid>,
    pending: u64,
    waiting: u64,
    owner: u64,
    /// The end and the size of each thread's stack.
    stacks: Vec<(InnerTid, u64, u64)>,
    /// The numbers by which newer monitors know threads.
    numbers: Vec<(InnerTid, u64)>,
    has_parker_inside: bool,
}

impl JavaThreads {
    /// Reads them; `None` where the virtual machine does not describe them as expected.
    pub(in crate::runtimes) fn find(context: &Context<'_>, java: &Loaded) -> Option<Self> {
        let target = context.target;
        let members = VmStructs::read(target, java.symbol)?;
        let of_thread = |name| members.get(&["JavaThread", "Thread"], name);
        let list = target.read_addr(RemoteAddr(members.get(&["ThreadsSMRSupport"], "_java_thread_list")?)).ok()?;
        let length = target.read_u32(list.checked_add(members.get(&["ThreadsList"], "_length")?)?).ok()?;
        let array = target.read_addr(list.checked_add(members.get(&["ThreadsList"], "_threads")?)?).ok()?;
        let bytes = target.read_vec(array, (length.min(MAX_THREADS) as usize).checked_mul(8)?).ok()?;
        let threads: Vec<RemoteAddr> =
            bytes.as_chunks().0.iter().map(|it| RemoteAddr(u64::from_le_bytes(*it))).collect();
        let (osthread, id) = (of_thread("_osthread")?, members.get(&["OSThread"], "_thread_id")?);
        let numbers = follow(target, &threads, osthread, id);
        let ids: HashMap<RemoteAddr, InnerTid> = threads
            .iter()
            .zip(numbers)
            .filter_map(|(thread, id)| Some((*thread, InnerTid(id? as u32 as i32))))
            .collect();
        let member = |at: Option<u64>| {
            let places: Vec<RemoteAddr> = ids.keys().map(|it| RemoteAddr(it.0.wrapping_add(at.unwrap_or(0)))).collect();
            let words = at.map_or_else(Vec::new, |_| read_arrays::<8>(target, &places));
            words.into_iter().map(|word| word.map_or(0, u64::from_le_bytes)).collect::<Vec<u64>>()
        };
        let (bases, sizes) = (member(of_thread("_stack_base")), member(of_thread("_stack_size")));
        let numbers = member(of_thread("_monitor_owner_id").or_else(|| of_thread("_lock_id")));
        let stacks = ids.values().zip(bases).zip(sizes).map(|((id, base), size)| (*id, base, size)).collect();
        let numbers = ids.values().copied().zip(numbers).collect();
        let version = members.get(&["Abstract_VM_Version"], "_vm_major_version");
        let version = version.and_then(|at| target.read_u32(RemoteAddr(at)).ok());
        Some(Self {
            threads: ids.iter().filter_map(|(thread, id)| Some((context.lwp_of(*id)?, *thread))).collect(),
            stacks,
            numbers,
            ids,
            pending: of_thread("_current_pending_monitor")?,
            waiting: of_thread("_current_waiting_monitor")?,
            owner: members.get(&["ObjectMonitor"], "_owner")?,
            has_parker_inside: version.is_some_and(|version| version >= PARKER_INSIDE),
        })
    }

    /// What the thread `lwp` waits for now, which waits at `event`.
    pub(super) fn wait(&self, memory: &dyn Memory, lwp: Lwp, event: RemoteAddr) -> JavaWait {
        let Some(thread) = self.threads.get(&lwp) else { return JavaWait::Internal };
        let monitor = |at| thread.checked_add(at).and_then(|at| memory.read_addr(at).ok()).filter(|it| it.0 != 0);
        let is_inside = event.0.wrapping_sub(thread.0) < MAX_SIZE;
        match (monitor(self.pending), monitor(self.waiting)) {
            (Some(monitor), _) => JavaWait::Enter(monitor),
            (None, Some(monitor)) => JavaWait::Notify(monitor),
            (None, None) if is_inside || !self.has_parker_inside => JavaWait::Unpark,
            (None, None) => JavaWait::Internal,
        }
    }

    /// Who owns `monitor`, where it says so; and whether anybody does.
    pub(super) fn owner(&self, memory: &dyn Memory, monitor: RemoteAddr) -> (Option<InnerTid>, bool) {
        let owner = monitor.checked_add(self.owner).and_then(|at| memory.read_u64(at).ok()).unwrap_or(0);
        if owner == 0 {
            return (None, false);
        }
        let thread = self.ids.get(&RemoteAddr(owner)).copied();
        (thread.or_else(|| self.by_stack(owner)).or_else(|| self.by_number(owner)), true)
    }

    /// A monitor that was a simple lock names its owner by an address on the owner's stack.
    fn by_stack(&self, owner: u64) -> Option<InnerTid> {
        let has = |(_, base, size): &&(InnerTid, u64, u64)| base.wrapping_sub(owner).wrapping_sub(1) < *size;
        only(self.stacks.iter().filter(has).map(|(id, ..)| *id))
    }

    /// Monitors since version 24 name their owner by a number that each thread has.
    fn by_number(&self, owner: u64) -> Option<InnerTid> {
        only(self.numbers.iter().filter(|(_, number)| *number == owner).map(|(id, _)| *id))
    }
}

/// The one there is.
fn only(mut found: impl Iterator<Item = InnerTid>) -> Option<InnerTid> {
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// From each of `places` by the pointer at `first` to the word at `second`.
fn follow(memory: &dyn Memory, places: &[RemoteAddr], first: u64, second: u64) -> Vec<Option<u64>> {
    let pointers: Vec<RemoteAddr> = places.iter().map(|place| RemoteAddr(place.0.wrapping_add(first))).collect();
    let pointers = read_arrays::<8>(memory, &pointers).into_iter();
    let words: Vec<RemoteAddr> =
        pointers.map(|it| RemoteAddr(it.map_or(0, u64::from_le_bytes).wrapping_add(second))).collect();
    read_arrays::<8>(memory, &words).into_iter().map(|it| it.and_then(|bytes| u64_at(&bytes, 0))).collect()
}

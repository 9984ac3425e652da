//! Which object each blocked thread waits for, and what that object says.

use super::classify::{Class, Waiting, classify};
use super::futex::{FutexOp, FutexWait};
use super::guess::Around;
use super::rust;
use crate::limits::Limits;
use crate::look::guards;
use crate::memory::{Memory, Slot};
use crate::model::{CallSite, Detail, Evidence, Family, MutexProtocol, SyncKind, SyncState};
use crate::proc::SyscallFile;
use crate::runtimes::glibc::Layout;
use crate::runtimes::glibc::locks::{CondLayout, Decoded, decode, size_of};
use crate::symbols::Symbolizer;
use crate::target::Target;
use crate::unwind::{Site, Sites};
use crate::{InnerTid, Lwp, PthreadId, RemoteAddr};
use std::collections::{HashMap, HashSet};

/// Of the guard of a C++ variable: its first byte says that it is initialised, a bit of its second that somebody is
/// at it.
const GUARD_DONE: u32 = 1;
const GUARD_PENDING: u32 = 1 << 8;

/// A thread, as far as its waits go.
#[derive(Clone, Debug)]
pub struct Sleeper {
    /// Its LWP.
    pub lwp: Lwp,
    /// Its LWP as the target sees it.
    pub inner: InnerTid,
    /// Its thread.
    pub id: Option<PthreadId>,
    /// What it is blocked in.
    pub call: Option<SyscallFile>,
}

/// What one thread waits for.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) lwp: Lwp,
    pub(super) futex: FutexWait,
    pub(super) class: Class,
    /// Of a wait on a condition variable: the mutex it gave up.
    pub(super) mutex: Option<RemoteAddr>,
}

/// Looks for what threads wait for.
pub struct Survey<'a> {
    target: &'a dyn Target,
    memory: &'a (dyn Memory + Sync),
    layout: Option<&'a Layout>,
    sites: Sites<'a>,
    symbolizer: Symbolizer<'a>,
    names: HashMap<RemoteAddr, Option<String>>,
    threads: HashSet<InnerTid>,
    /// Descriptors, by which a join and a stream's owner are known.
    ids: HashMap<RemoteAddr, Lwp>,
}

impl<'a> Survey<'a> {
    /// What looking may cost.
    pub(super) fn limits(&self) -> &'a Limits {
        self.target.limits()
    }

    /// Of `target`, whose memory is read through `memory`, and whose threads are these.
    pub fn new(
        target: &'a dyn Target,
        memory: &'a (dyn Memory + Sync),
        layout: Option<&'a Layout>,
        threads: impl IntoIterator<Item = (Option<InnerTid>, Option<PthreadId>, Option<Lwp>)>,
    ) -> Self {
        let mut inner = HashSet::new();
        let mut ids = HashMap::new();
        for (tid, id, lwp) in threads {
            inner.extend(tid);
            if let Some(id) = id {
                ids.insert(id.0, lwp.unwrap_or(Lwp(0)));
            }
        }
        Self {
            target,
            memory,
            layout,
            sites: Sites::new(target, memory),
            symbolizer: Symbolizer::new(target),
            names: HashMap::new(),
            threads: inner,
            ids,
        }
    }

    /// Whether the target has a thread of this id.
    pub(super) fn has_thread(&self, inner: InnerTid) -> bool {
        self.threads.contains(&inner)
    }

    pub(super) fn cond(&self) -> CondLayout {
        self.layout.map_or(CondLayout::Unknown, |layout| layout.cond)
    }

    /// What each of `sleepers` waits for; those that wait for no word are left out.
    pub(super) fn waits(&mut self, sleepers: &[Sleeper]) -> Vec<Wait> {
        let futexes: Vec<(&Sleeper, FutexWait, RemoteAddr, RemoteAddr)> = sleepers
            .iter()
            .filter_map(|sleeper| {
                let call = sleeper.call.as_ref()?;
                let (sp, pc) = call.registers()?;
                Some((sleeper, FutexWait::of(call)?, sp, pc))
            })
            .collect();
        // Threads that wait on one word, in one way and from one place in libc wait for the same object: one
        // of them is looked at closely.
        let mut first: HashMap<(FutexWait, RemoteAddr), usize> = HashMap::new();
        let mut chosen = Vec::new();
        for (sleeper, futex, sp, pc) in &futexes {
            first.entry((*futex, *pc)).or_insert_with(|| {
                chosen.push((sleeper.lwp, *sp, *pc, *futex));
                chosen.len() - 1
            });
        }
        let places: Vec<_> = chosen.iter().map(|(lwp, sp, pc, _)| (*lwp, *sp, *pc)).collect();
        let sites = self.sites.find(&places);
        let found: Vec<_> = places
            .iter()
            .zip(&chosen)
            .zip(&sites)
            .map(|((at, chosen), site)| self.look_closely(at, &chosen.3, site))
            .collect();
        futexes
            .iter()
            .filter_map(|(sleeper, futex, _, pc)| {
                let (class, mutex) = found[*first.get(&(*futex, *pc))?]?;
                Some(Wait { lwp: sleeper.lwp, futex: *futex, class, mutex })
            })
            .collect()
    }

    /// What a wait is for, and the mutex given up for it. `at` is the thread, with its stack pointer and program
    /// counter.
    fn look_closely(
        &mut self,
        at: &(Lwp, RemoteAddr, RemoteAddr),
        futex: &FutexWait,
        site: &Site,
    ) -> Option<(Class, Option<RemoteAddr>)> {
        let locks = |call: &&CallSite| Waiting::in_libc(&call.function) == Some(Waiting::Mutex);
        if let Some(call) = site.call.as_ref().filter(locks).filter(|_| futex.is_put_off() && self.may_be_glibc(site)) {
            return Some((self.put_off(at, futex, call.evidence), None));
        }
        let class = self.by_call(futex, site);
        let class = match class {
            Some(class) => class,
            // A restarted call may be any call.
            None if futex.restarted => return None,
            None => self.by_numbers(futex, site),
        };
        let mutex = match class.kind {
            SyncKind::Cond if class.family == Family::Pthread => self.given_up(class.address, &site.words),
            _ => None,
        };
        Some((class, mutex))
    }

    fn by_call(&mut self, futex: &FutexWait, site: &Site) -> Option<Class> {
        let cond = self.cond();
        let memory = self.memory;
        let mut is_mutex = |addr| is_waited_mutex(memory, addr);
        match &site.call {
            Some(call) => match Waiting::in_libc(&call.function)? {
                Waiting::Raw => self.by_caller(futex, site),
                _ if !self.may_be_glibc(site) => None,
                waiting => classify(waiting, futex, call.evidence, cond, &mut is_mutex),
            },
            // No call leads out of libc: it is a part of the program, whose functions may have names.
            None => site.places.iter().find_map(|place| {
                let name = self.name_of(place.lookup())?;
                let evidence = if place.firm { Evidence::Derived } else { place.evidence };
                match Waiting::in_libc(&name) {
                    Some(Waiting::Raw) | None => rust::by_name(&name, futex).or_else(|| self.parked(&name, futex)),
                    Some(_) if !self.may_be_glibc(site) => None,
                    Some(waiting) => classify(waiting, futex, evidence, cond, &mut is_mutex),
                }
            }),
        }
    }

    /// Of a wait made by `syscall(2)` itself: by the function that made it.
    fn by_caller(&mut self, futex: &FutexWait, site: &Site) -> Option<Class> {
        let outside = site.places.last()?;
        let name = self.name_of(outside.lookup());
        // A static variable of a function that another thread initialises.
        if name.as_deref() == Some("__cxa_guard_acquire") {
            let (kind, family, evidence) = (SyncKind::Once, Family::Cxx, Evidence::Derived);
            return Some(Class { kind, family, address: futex.word, side: None, evidence });
        }
        if let Some(name) = &name
            && let Some(class) = rust::by_name(name, futex).or_else(|| self.parked(name, futex))
        {
            return Some(class);
        }
        // A function with a name that is not the library's was given the wait by inlining: of another library,
        // or of a language we do not know.
        match name {
            Some(_) => None,
            None => rust::by_numbers(futex),
        }
    }

    /// Of a wait in `parking_lot`: the lock that the thread is queued for.
    fn parked(&self, function: &str, futex: &FutexWait) -> Option<Class> {
        let (kind, side) = rust::parking_lot(function)?;
        let keys = rust::PARKING_LOT_KEYS.iter().filter_map(|offset| {
            let key = self.memory.read_u64(RemoteAddr(futex.word.0.wrapping_add_signed(*offset))).ok()?;
            let lock = rust::parking_lot_lock(key);
            // What the key leads to has a byte or word that says that threads are parked.
            let word = self.memory.read_u64(lock).ok()?;
            (key != 0 && word & 3 != 0).then_some(lock)
        });
        let address = keys.take(1).next();
        Some(Class {
            kind: if address.is_some() { kind } else { SyncKind::Park },
            family: Family::ParkingLot,
            address: address.unwrap_or(futex.word),
            side,
            evidence: Evidence::Inferred,
        })
    }

    /// Whether a wait can be one of glibc's: there is one, and the system call was not made past it. Objects of
    /// another libc look different, and so do those of libraries that wait by themselves.
    fn may_be_glibc(&self, site: &Site) -> bool {
        self.layout.is_some() && !site.past_libc
    }

    /// What a thread waits for that libc has put to sleep for ever (or until its time is over), because the kernel
    /// found that the mutex it wants can never be had: it waits on a word of its own, and only the argument of the
    /// call says for which mutex.
    fn put_off(&self, at: &(Lwp, RemoteAddr, RemoteAddr), futex: &FutexWait, evidence: Evidence) -> Class {
        let inherits = |addr: &RemoteAddr| {
            let mut bytes = [0; 40];
            let decoded = self.memory.read_exact(*addr, &mut bytes).ok();
            decoded.and_then(|()| decode(SyncKind::Mutex, &bytes, CondLayout::Unknown)).is_some_and(|mutex| {
                let is_inherit = matches!(mutex.detail, Detail::Mutex { protocol: MutexProtocol::Inherit, .. });
                mutex.is_plausible && is_inherit && mutex.owner.is_some()
            })
        };
        let (lwp, sp, pc) = *at;
        let class = |kind, family, address, evidence| Class { kind, family, address, side: None, evidence };
        match guards::first_argument(self.target, lwp, sp, pc).filter(inherits) {
            Some(mutex) => class(SyncKind::Mutex, Family::Pthread, mutex, evidence),
            None => class(SyncKind::Futex, Family::Libc, futex.word, Evidence::Recorded),
        }
    }

    fn by_numbers(&mut self, futex: &FutexWait, site: &Site) -> Class {
        let class = |kind, family, evidence| Class { kind, family, address: futex.word, side: None, evidence };
        let function = site.call.as_ref().map(|call| call.function.as_str());
        if self.joined(futex.word).is_some() && !futex.private {
            return class(SyncKind::Join, Family::Pthread, Evidence::Derived);
        }
        // Called by way of syscall(2), none of libc's own objects is meant.
        if function != Some("syscall") && !site.past_libc {
            let around =
                Around { memory: self.memory, cond: self.cond(), is_thread: &|tid| self.threads.contains(&tid) };
            if self.layout.is_some()
                && let Some(class) = around.guess(futex)
            {
                return class;
            }
            // Nothing of libc's: in a program that has no libc of its own beside it, Rust's library may wait.
            if function.is_none()
                && let Some(class) = rust::by_numbers(futex)
            {
                return class;
            }
            // Some other function of libc waits: for a lock that libc keeps for itself.
            if function.is_some() && futex.private && futex.op == FutexOp::Wait && futex.value == 2 {
                return class(SyncKind::Mutex, Family::Libc, Evidence::Inferred);
            }
        }
        class(SyncKind::Futex, Family::Other, Evidence::Recorded)
    }

    /// The thread whose end is told by `word`.
    fn joined(&self, word: RemoteAddr) -> Option<RemoteAddr> {
        let layout = self.layout?;
        let words = [Some(layout.tid), layout.joinid].into_iter().flatten();
        words.filter_map(|at| word.checked_sub(at)).find(|id| self.ids.contains_key(id))
    }

    fn name_of(&mut self, addr: RemoteAddr) -> Option<String> {
        let symbolizer = &mut self.symbolizer;
        self.names.entry(addr).or_insert_with(|| symbolizer.enclosing_function(addr)).clone()
    }

    /// The mutex that a waiter on the condition variable `cond` gave up. libc keeps both pointers side by
    /// side on the waiter's stack, for the case that it is cancelled.
    fn given_up(&self, cond: RemoteAddr, words: &[u64]) -> Option<RemoteAddr> {
        words.windows(2).filter(|pair| pair[0] == cond.0).find_map(|pair| {
            let mutex = RemoteAddr(pair[1]);
            let mut bytes = [0; 40];
            self.memory.read_exact(mutex, &mut bytes).ok()?;
            let decoded = decode(SyncKind::Mutex, &bytes, CondLayout::Unknown)?;
            // Waiters are counted as users of the mutex.
            let users = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
            (decoded.is_plausible && users > 0 && mutex != cond).then_some(mutex)
        })
    }

    /// What the objects say now, read in few calls; `None` for one that cannot be read.
    pub(super) fn read(&self, objects: &[Class]) -> Vec<Option<Content>> {
        let sizes: Vec<usize> = objects.iter().map(|class| bytes_of(class.kind, class.family)).collect();
        let mut bytes = vec![0; sizes.iter().sum()];
        let mut rest = bytes.as_mut_slice();
        let mut slots = Vec::with_capacity(objects.len());
        for (class, size) in objects.iter().zip(&sizes) {
            let (mine, others) = rest.split_at_mut(*size);
            slots.push(Slot::new(class.address, mine));
            rest = others;
        }
        self.memory.read_many(&mut slots);
        slots.iter().zip(objects).map(|(slot, class)| slot.is_whole().then(|| self.content(class, slot.buf))).collect()
    }

    fn content(&self, class: &Class, bytes: &[u8]) -> Content {
        let word = bytes.get(..4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes);
        let bare = |size, state, detail| Content {
            size,
            shared: None,
            state,
            detail,
            owner: Owner::None,
            has_waiters: false,
            is_plausible: true,
            raw: bytes.to_vec(),
        };
        match (class.family, class.kind) {
            (Family::Pthread, SyncKind::Join) => {
                let id = self.joined(class.address);
                let state = if word == 0 { SyncState::Exited } else { SyncState::Running };
                Content { owner: id.map_or(Owner::None, Owner::Thread), ..bare(None, state, Detail::None {}) }
            }
            (Family::Pthread, kind) => match decode(kind, bytes, self.cond()) {
                Some(decoded) => Content::of(decoded, bytes),
                None => bare(None, SyncState::Unknown, Detail::None {}),
            },
            (Family::Libc, _) => {
                // The lock of a stream has its owner beside it: a pointer to the thread's descriptor.
                let owner =
                    bytes.get(8..16).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes).map(RemoteAddr);
                let owner = owner.filter(|id| self.ids.contains_key(id)).map_or(Owner::None, Owner::Thread);
                let state = if word == 0 { SyncState::Unlocked } else { SyncState::Locked };
                Content { owner, has_waiters: word == 2, ..bare(Some(4), state, Detail::Futex { value: word }) }
            }
            (Family::RustStd, kind) => {
                let (size, state, detail) = rust::decode(kind, word);
                bare(Some(size), state, detail)
            }
            (Family::ParkingLot, kind) => {
                let (size, state, detail) = rust::decode_parking_lot(kind, bytes);
                bare(size, state, detail)
            }
            (Family::Cxx, SyncKind::Once) => {
                let state = match (word & GUARD_DONE != 0, word & GUARD_PENDING != 0) {
                    (true, _) => SyncState::Done,
                    (false, true) => SyncState::InProgress,
                    (false, false) => SyncState::New,
                };
                bare(Some(8), state, Detail::Futex { value: word })
            }
            (Family::Cxx | Family::Other, _) => bare(Some(4), SyncState::Unknown, Detail::Futex { value: word }),
        }
    }
}

/// Bytes that are read of an object.
fn bytes_of(kind: SyncKind, family: Family) -> usize {
    match family {
        Family::Pthread => size_of(kind).unwrap_or(4),
        Family::Libc => 16,
        Family::ParkingLot => 8,
        _ => 4,
    }
}

/// Who owns an object, as the object has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    None,
    /// By its kernel id.
    Tid(InnerTid),
    /// By its descriptor.
    Thread(RemoteAddr),
}

/// What an object's bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) size: Option<u64>,
    pub(super) shared: Option<bool>,
    pub(super) state: SyncState,
    pub(super) detail: Detail,
    pub(super) owner: Owner,
    pub(super) has_waiters: bool,
    pub(super) is_plausible: bool,
    pub(super) raw: Vec<u8>,
}

impl Content {
    /// Of a mutex.
    pub(super) fn of_mutex(bytes: &[u8; 40]) -> Self {
        match decode(SyncKind::Mutex, bytes, CondLayout::Unknown) {
            Some(decoded) => Self::of(decoded, bytes),
            None => unreachable!("a mutex has 40 bytes"),
        }
    }

    fn of(decoded: Decoded, bytes: &[u8]) -> Self {
        Self {
            size: Some(decoded.size),
            shared: decoded.shared,
            state: decoded.state,
            detail: decoded.detail,
            owner: decoded.owner.map_or(Owner::None, Owner::Tid),
            has_waiters: decoded.has_waiters,
            is_plausible: decoded.is_plausible,
            raw: bytes.to_vec(),
        }
    }
}

fn is_waited_mutex(memory: &dyn Memory, addr: RemoteAddr) -> bool {
    let mut bytes = [0; 40];
    memory.read_exact(addr, &mut bytes).is_ok()
        && decode(SyncKind::Mutex, &bytes, CondLayout::Unknown)
            .is_some_and(|mutex| mutex.is_plausible && mutex.has_waiters)
}

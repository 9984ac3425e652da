//! The call sites of many blocked threads, and no more of their stacks than that takes.

use super::call::Call;
use super::libc_site::call_site;
use super::space::{Known, Space};
use super::stack::StackWords;
use super::walk::{Place, Walker};
use crate::RemoteAddr;
use crate::arch::Registers;
use crate::memory::read_each;
use crate::model::CallSite;
use crate::target::Target;
use std::sync::Arc;

/// Bytes of each stack that are read at once: libc's frames around a wait are small.
const TOP: usize = 1024;
/// Frames and bytes of each stack for [`Sites::deep`].
const DEEP: usize = 32;
const DEEP_TOP: usize = 16 << 10;
/// Stacks read by one call.
const BATCH: usize = 512;
/// Frames of one stack, those in libc too: a wait in libc is less deep than this.
const MOST: usize = 64;
/// Frames that are looked at in a program that has libc in itself, where nothing tells the two apart.
const STATIC: usize = 6;

/// Where a blocked thread's program called libc.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The function of libc, where it can be told.
    pub(crate) call: Option<CallSite>,
    /// The innermost frames: those in libc and the first outside.
    pub(crate) places: Vec<Place>,
    /// The words from the stack pointer on.
    pub(crate) words: Vec<u64>,
    /// Whether the system call was made past a libc that is an object of its own: by another library, or by the
    /// program itself.
    pub(crate) past_libc: bool,
}

/// A function on the stack of a blocked thread.
pub(crate) struct Caller {
    /// Where the thread is in it.
    pub(crate) place: Place,
    /// The exported function that was called there. It need not be the one that the thread is in: functions end in a
    /// jump to others that have no name.
    pub(crate) entry: Option<String>,
}

pub(crate) struct Sites<'a> {
    space: Arc<Space<'a>>,
    target: &'a dyn Target,
    known: Known,
    /// Frames outside libc that are looked at.
    enough: usize,
    /// Bytes of each stack that are read at once.
    top: usize,
}

impl<'a> Sites<'a> {
    /// For the threads of `target`, whose code is `space`.
    pub(crate) fn new(target: &'a dyn Target, space: &Arc<Space<'a>>) -> Self {
        let enough = if space.has_libc() { 1 } else { STATIC };
        Self { space: space.clone(), target, known: Known::default(), enough, top: TOP }
    }

    /// The same with more frames: the callers of the functions that wait.
    pub(crate) fn deep(target: &'a dyn Target, space: &Arc<Space<'a>>) -> Self {
        Self { enough: DEEP, top: DEEP_TOP, ..Self::new(target, space) }
    }

    /// The sites of threads that are blocked with these stack pointers and program counters; `lwp` finds
    /// the registers of one that cannot move any more.
    pub(crate) fn find(&mut self, threads: &[(crate::Lwp, RemoteAddr, RemoteAddr)]) -> Vec<Site> {
        let mut out = Vec::with_capacity(threads.len());
        for part in threads.chunks(BATCH) {
            let tops = read_each(self.target, part.iter().map(|(_, sp, _)| (*sp, self.top)));
            for ((lwp, sp, pc), top) in part.iter().zip(tops) {
                let registers = self.target.registers_at_rest(*lwp).unwrap_or_else(|| Registers::blocked(*pc, *sp));
                out.push(self.one(registers, *sp, top));
            }
        }
        out
    }

    /// The functions outside libc on the stack of a blocked thread, the innermost first, and the words of the stack.
    pub(crate) fn callers(&mut self, thread: (crate::Lwp, RemoteAddr, RemoteAddr)) -> Option<(Vec<Caller>, Vec<u64>)> {
        let site = self.find(&[thread]).pop()?;
        let outside = |place: &&Place| !self.space.is_libc(place.lookup().0) && !place.signal;
        let places: Vec<Place> = site.places.iter().filter(outside).copied().collect();
        let entry = |back: &Place, known: &mut Known, space: &Space<'_>| match known.call(space, back.pc.0)? {
            Call::To(function) => space.exported(function),
            Call::Indirect => None,
        };
        let behind = places.iter().skip(1).map(Some).chain([None]);
        let callers = places.iter().zip(behind).map(|(place, back)| Caller {
            place: *place,
            entry: back.and_then(|back| entry(back, &mut self.known, &self.space)),
        });
        Some((callers.collect(), site.words))
    }

    fn one(&mut self, registers: Registers, sp: RemoteAddr, top: Vec<u8>) -> Site {
        let words = top.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect();
        let mut stack = StackWords::begun(self.target, sp, top);
        let mut walker =
            Walker { space: &self.space, known: &mut self.known, start_routine: None, enough: self.enough, most: MOST };
        let walk = Arc::new(walker.walk(&mut stack, registers));
        self.space.remember(&registers, &walk);
        let call = call_site(&self.space, &mut self.known, &walk.places);
        let innermost = walk.places.first().map(|place| place.lookup().0);
        let past_libc = self.space.has_libc() && innermost.is_some_and(|pc| !self.space.is_libc(pc));
        Site { call, places: walk.places.clone(), words, past_libc }
    }
}

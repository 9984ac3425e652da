//! What Qt builds on condition variables of POSIX: wait conditions, and rwlocks. Both are one pointer to what they need
//! while threads wait.

use super::release::{Release, is_inside};
use crate::RemoteAddr;
use crate::memory::{Memory, read_each, u32_at, u64_at};
use crate::model::{Detail, Family, Preference, Side, SyncKind, SyncState};
use crate::runtimes::{Class, Content, Context, SeenWait};
use std::collections::HashSet;

/// Words of a stack that may lead to the object that a thread waits for.
const MAX_WORDS: usize = 768;
/// Calls of functions of the library, one from the other, of which the argument is looked for.
const MAX_CALLS: usize = 4;
/// No program has as many threads.
const MOST_THREADS: u32 = 1 << 22;
/// A wait condition leads to a mutex of POSIX, and then the condition variable.
const COND: u64 = 40;
/// Of the word of a rwlock: what no pointer has.
const STATE: u64 = 3;
const READ: u64 = 1;
const WRITTEN: u64 = 2;
/// The other readers are counted from here on.
const READERS: u32 = 4;
/// How the functions begin that a thread waits for a rwlock in, and in which it waits for a condition.
const RWLOCKS: [&str; 2] = ["QReadWriteLock::", "QBasicReadWriteLock::"];
const CONDS: &str = "QWaitCondition::wait";

/// What a rwlock leads to: where its condition variables are, those of writers first, and its counts.
struct Parts {
    conds: [u64; 2],
    /// Whether those are wait conditions, which lead to one in turn.
    are_pointers: bool,
    counts: u64,
}

impl Parts {
    fn of(release: Release) -> Self {
        let (conds, counts) = match release {
            Release::Five => ([8, 16], 24),
            Release::Six => ([40, 88], 136),
            Release::SixSeven => ([0, 48], 168),
        };
        Self { conds, are_pointers: release == Release::Five, counts }
    }

    /// What a rwlock with its parts at `at` is waited for, where that is on the condition variable `cond`.
    fn side_of(&self, memory: &dyn Memory, at: u64, cond: RemoteAddr) -> Option<Side> {
        let is_at = |part: u64| {
            let part = RemoteAddr(at).checked_add(part)?;
            let place = match self.are_pointers {
                true => RemoteAddr(memory.read_u64(part).ok()?).checked_add(COND)?,
                false => part,
            };
            (place == cond).then_some(())
        };
        let counts = Counts::read(memory, self, at)?;
        match self.conds.map(is_at) {
            [Some(()), _] if counts.writers_wait > 0 => Some(Side::Write),
            [_, Some(())] if counts.readers_wait > 0 => Some(Side::Read),
            _ => None,
        }
    }
}

/// How many threads have a rwlock, and wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    readers: u32,
    writers: u32,
    readers_wait: u32,
    writers_wait: u32,
}

impl Counts {
    fn read(memory: &dyn Memory, parts: &Parts, at: u64) -> Option<Self> {
        let bytes = memory.read_vec(RemoteAddr(at).checked_add(parts.counts)?, 16).ok()?;
        let number = |index: usize| u32_at(&bytes, 4 * index).filter(|count| *count <= MOST_THREADS);
        Some(Self { readers: number(0)?, writers: number(1)?, readers_wait: number(2)?, writers_wait: number(3)? })
    }
}

/// What `class`, a condition variable of POSIX that a thread waits for, is to Qt: the rwlock or the wait condition that the
/// functions of Qt were called for.
pub(super) fn of_cond(class: &Class, seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
    let release = context.qt()?;
    let outside = (seen.outside)();
    let is_of_qt = |frame: &RemoteAddr| is_inside(context.target, *frame);
    // A method of the C++ library may stand between.
    let first = outside.frames.iter().take(2).position(is_of_qt)?;
    let behind = first + outside.frames.iter().skip(first).take_while(|frame| is_of_qt(frame)).count();
    let is_in = |begins: &[&str]| {
        let names = outside.functions.iter().take(behind).skip(first).flatten().flatten();
        names.into_iter().any(|name| begins.iter().any(|begin| name.starts_with(begin)))
    };
    let parts = Parts::of(release);
    let find = |leads: &dyn Fn(u64) -> Option<Option<Side>>| {
        // The lock that they were called for; else one that the stack leads to, which may be a copy or a list of the library.
        let given = (first + 1..=behind.min(first + MAX_CALLS)).filter_map(|number| {
            let at = (seen.argument_in)(number)?;
            Some((at, context.target.read_u64(at).ok()?))
        });
        let checked = |(at, to): (RemoteAddr, u64)| Some((at, leads(to)?));
        given.into_iter().find_map(checked).or_else(|| {
            let pointers = pointers(context.target, &outside.words);
            let is_own = |at: &RemoteAddr| at.0.wrapping_sub(seen.sp.0) < 8 * MAX_WORDS as u64;
            let (own, others): (Vec<_>, Vec<_>) = pointers.into_iter().partition(|(at, _)| is_own(at));
            let mut others = others.into_iter().filter(|(at, _)| !is_of_qt(at));
            others.find_map(checked).or_else(|| own.into_iter().find_map(checked))
        })
    };
    let rwlock = || {
        let side = |to: u64| parts.side_of(context.target, to, class.address).filter(|_| to & STATE == 0).map(Some);
        let (address, side) = find(&side)?;
        Some(Class { side, ..Class::new(SyncKind::Rwlock, Family::Qt, address, class.evidence) })
    };
    let cond = || {
        let is_that = |to: u64| (RemoteAddr(to).checked_add(COND) == Some(class.address)).then_some(None);
        Some(Class::new(SyncKind::Cond, Family::Qt, find(&is_that)?.0, class.evidence))
    };
    // In Qt 5 a rwlock is waited for in a wait condition of its own; in Qt 6 the first parts of both are alike.
    match (is_in(&RWLOCKS), is_in(&[CONDS])) {
        (true, _) => rwlock(),
        (false, true) => (release == Release::Five).then(rwlock).flatten().or_else(cond),
        // The library may have no names for functions of its own.
        (false, false) => rwlock(),
    }
}

/// What the words of a stack point to, and where that leads.
fn pointers(memory: &dyn Memory, words: &[u64]) -> Vec<(RemoteAddr, u64)> {
    let mut words: Vec<RemoteAddr> = words.iter().take(MAX_WORDS).map(|word| RemoteAddr(*word)).collect();
    words.retain(|word| word.0 % 8 == 0 && word.0 > 0xffff);
    let mut known = HashSet::new();
    words.retain(|word| known.insert(*word));
    let read = read_each(memory, words.iter().map(|word| (*word, 8)));
    words.iter().zip(read).filter_map(|(word, bytes)| Some((*word, u64_at(&bytes, 0)?))).collect()
}

/// What the word of a rwlock says: who has it, or where that is kept while threads wait.
pub(super) fn rwlock(bytes: &[u8], context: &Context<'_>) -> Content {
    let word = u64_at(bytes, 0).unwrap_or(0);
    let (state, readers, writer_queued) = match word & STATE {
        0 if word == 0 => (SyncState::Unlocked, 0, false),
        READ => (SyncState::ReadLocked, u32::try_from(word >> READERS).unwrap_or(u32::MAX).saturating_add(1), false),
        WRITTEN => (SyncState::WriteLocked, 0, false),
        0 => match context.qt().and_then(|release| Counts::read(context.target, &Parts::of(release), word)) {
            Some(Counts { writers: 1.., writers_wait, .. }) => (SyncState::WriteLocked, 0, writers_wait > 0),
            Some(Counts { readers: readers @ 1.., writers_wait, .. }) => {
                (SyncState::ReadLocked, readers, writers_wait > 0)
            }
            Some(Counts { writers_wait, .. }) => (SyncState::Unlocked, 0, writers_wait > 0),
            None => (SyncState::Unknown, 0, false),
        },
        _ => (SyncState::Unknown, 0, false),
    };
    // A reader that finds a writer waiting queues behind it, whoever it is, but for locks that are made recursive.
    let detail = Detail::Rwlock { preference: Preference::WriterNonrecursive, readers, writer_queued };
    let has_waiters = word != 0 && word & STATE == 0;
    Content { has_waiters, shared: Some(false), ..Content::plain(bytes, Some(8), state, detail) }
}

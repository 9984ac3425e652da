//! Who called the functions that have waited: from the stacks that the agent has taken.

use crate::RemoteAddr;
use crate::look::{Look, library_of};
use crate::measure::bounded;
use crate::model::{Evidence, Frame, WaitStack};
use crate::table::{Agent, WaitSample};
use crate::target::Target;
use crate::unwind::{FrameNames, Known, Place, StackWords, Walker};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Frames that are followed.
const DEPTH: usize = 8;
/// Samples that wait to be named, locks that are remembered, and stacks of each.
const MOST_FRESH: usize = 4096;
const MOST_LOCKS: usize = 10_000;
const MOST_STACKS: usize = 256;
/// Stacks of one lock that are told.
const TOLD: usize = 10;

/// What is known of the callers so far.
pub(super) struct Callers {
    taken: u64,
    /// Not undone yet.
    fresh: Vec<WaitSample>,
    /// By lock and stack, the time waited.
    stacks: HashMap<RemoteAddr, HashMap<Vec<Place>, u64>>,
    /// By an address within the call.
    frames: HashMap<RemoteAddr, Vec<Frame>>,
}

impl Callers {
    /// What comes from now on; of a program that is watched from its beginning all.
    pub(super) fn begin(agent: &Agent, is_running: bool) -> Self {
        let taken = if is_running { agent.stacks_taken() } else { 0 };
        Self { taken, fresh: Vec::new(), stacks: HashMap::new(), frames: HashMap::new() }
    }

    /// Reads what was taken since.
    pub(super) fn read(&mut self, agent: &Agent, target: &dyn Target) {
        let samples = agent.stacks_since(target, self.taken);
        self.taken = agent.stacks_taken();
        let room = MOST_FRESH.saturating_sub(self.fresh.len());
        self.fresh.extend(samples.into_iter().take(room));
    }

    /// Undoes the new stacks, and names the frames in them and at the return addresses `sites`.
    pub(super) fn name(&mut self, look: &Look<'_>, sites: &[RemoteAddr]) {
        let mut known = Known::default();
        let sites = sites.iter().map(|site| Place { exact: false, ..place(*site) });
        let mut wanted: Vec<Place> = sites.collect();
        for sample in std::mem::take(&mut self.fresh) {
            let mut stack = StackWords::copied(sample.registers.sp, sample.bytes);
            let mut walker = Walker { most: DEPTH, ..Walker::whole(&look.space, &mut known, None) };
            let places = walker.walk(&mut stack, sample.registers).places;
            wanted.extend(&places);
            let time = bounded(&mut self.stacks, sample.lock, MOST_LOCKS)
                .and_then(|stacks| bounded(stacks, places, MOST_STACKS));
            if let Some(time) = time {
                *time += sample.time_ns;
            }
        }
        wanted.retain(|place| !self.frames.contains_key(&place.lookup()));
        let mut names = FrameNames::new(&look.objects, false);
        names.look_up(&wanted);
        self.frames.extend(wanted.iter().map(|place| (place.lookup(), names.frames(place))));
    }

    /// The innermost frame at a return address.
    pub(super) fn frame(&self, site: RemoteAddr) -> Frame {
        let place = Place { exact: false, ..place(site) };
        let found = self.frames.get(&place.lookup()).and_then(|frames| frames.first());
        Frame { pc: site, ..found.cloned().unwrap_or_default() }
    }

    /// Where threads have waited for `lock`, longest first.
    pub(super) fn of(&self, lock: RemoteAddr) -> Vec<WaitStack> {
        let Some(stacks) = self.stacks.get(&lock) else { return Vec::new() };
        let mut all: Vec<_> = stacks.iter().collect();
        all.sort_by_key(|(places, time)| (Reverse(**time), places.first().map(|place| place.pc)));
        let told = all.into_iter().take(TOLD).map(|(places, time)| {
            let frames = places.iter().flat_map(|place| self.at(place));
            wait_stack(*time, frames.collect())
        });
        told.collect()
    }

    fn at(&self, place: &Place) -> Vec<Frame> {
        let unnamed = || vec![Frame { pc: place.pc, evidence: place.evidence, ..Frame::default() }];
        self.frames.get(&place.lookup()).cloned().filter(|frames| !frames.is_empty()).unwrap_or_else(unnamed)
    }
}

fn place(pc: RemoteAddr) -> Place {
    Place { pc, exact: true, signal: false, evidence: Evidence::Recorded, firm: true }
}

/// A stack, with the first frame of it that is no wrapper.
pub(super) fn wait_stack(time_ns: u64, frames: Vec<Frame>) -> WaitStack {
    let caller = frames.iter().position(|frame| !is_wrapper(frame)).unwrap_or(0);
    WaitStack { time_ns, frames, caller }
}

/// Whether a function seems to do no more than take a lock for its caller: it is of a library for that, or a word of its name
/// says so. One without a name is none.
fn is_wrapper(frame: &Frame) -> bool {
    #[rustfmt::skip]
    const WORDS: [&str; 23] = [
        "lock", "unlock", "relock", "trylock", "timedlock", "rdlock", "wrlock", "rwlock", "spinlock", "rw", "mutex", "mtx",
        "latch", "acquire", "guard", "semaphore", "sem", "monitor", "enter", "cond", "wait", "timedwait", "clockwait",
    ];
    if library_of(frame).is_some() {
        return true;
    }
    // The last part of a path, without what stands in brackets: `Guard<std::mutex>::lock()`.
    let name = frame.function.as_deref().unwrap_or_default();
    let name = name.split(['(', '<']).next().unwrap_or(name);
    let last = name.rsplit("::").next().unwrap_or(name);
    words(last).any(|word| WORDS.contains(&word.as_str()))
}

/// The words of a name, in small letters: `LWLockAcquire` and `lw_lock_acquire` have the same.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        let is_last_capital = before.is_uppercase() && rest.peek().is_some_and(|next| next.is_lowercase());
        if !c.is_alphabetic() || c.is_uppercase() && (before.is_lowercase() || is_last_capital) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphabetic()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.into_iter().filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str) -> Frame {
        Frame { function: Some(function.to_owned()), module: Some("server".to_owned()), ..Frame::default() }
    }

    #[test]
    fn the_first_frame_that_is_no_wrapper() {
        let cases: [(&[&str], usize); 6] = [
            (&["rw_pr_wrlock", "update_row", "main"], 1),
            (&["std::mutex::lock()", "std::unique_lock<std::mutex>::lock()", "Cache::get(int)", "serve"], 2),
            (&["update_row", "lock_everything"], 0),
            (&["LWLockAcquire", "WALInsertLockAcquire", "XLogInsertRecord"], 2),
            // Nothing but wrappers: the one that called.
            (&["my_mutex_lock", "lock_all"], 0),
            (&[], 0),
        ];
        for (functions, expected) in cases {
            let stack = wait_stack(1, functions.iter().map(|name| frame(name)).collect());
            assert_eq!(stack.caller, expected, "{functions:?}");
        }
    }

    #[test]
    fn wrappers_are_known_by_whole_words() {
        for name in
            ["lock", "unlock", "mutex_lock", "my_lock2", "LockGuard", "LWLockAcquire", "DBMutex", "Pool::waitFor"]
        {
            assert!(is_wrapper(&frame(name)), "{name}");
        }
        for name in ["write_block", "block", "clock", "center", "Clock::now", "ReadBlock", "Lock::flush", "blocking_IO"]
        {
            assert!(!is_wrapper(&frame(name)), "{name}");
        }
    }
}

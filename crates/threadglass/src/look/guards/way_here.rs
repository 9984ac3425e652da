//! What a thread has taken on its way to where it stands, where nothing ahead tells: it takes the same lock again, or never
//! comes to a release.

use super::code::Callee;
use super::explore::{Done, Explorer};
use super::frames::{FrameState, Search, sleeps_on};
use super::{Clue, Grade, RestingThread, WantedLock};
use crate::runtimes::Function;
use crate::unwind::Call;

/// Frames of one stack whose functions are gone through from their beginning.
const MAX_FRAMES: usize = 6;

impl Search<'_> {
    /// Finds what the thread has taken on its way.
    ///
    /// Only for locks that functions are called for: of others it is not seen whether an attempt has failed. And only for
    /// a thread that waits for a lock, or for no word: a condition may be waited for with any lock released.
    pub(super) fn look_behind(&mut self, thread: &RestingThread, frames: &[FrameState], part: &[WantedLock]) {
        for lock in part {
            let waits = thread.waits_on == Some(lock.address) || sleeps_on(thread, lock);
            let waits_for_another = thread.waits_on.is_some_and(|other| self.wanted.contains(&other));
            if waits || waits_for_another || thread.futex.is_none() {
                self.taken_before(thread, frames, lock);
            }
        }
    }

    /// Finds a frame whose function has taken `lock`, whichever way it went, and has not released it, nor has one that it
    /// called.
    fn taken_before(&mut self, thread: &RestingThread, frames: &[FrameState], lock: &WantedLock) {
        for index in 0..frames.len().min(MAX_FRAMES) {
            let frame = &frames[index];
            // A function that makes the system call itself is that which waits.
            if index == 0 && frame.place.exact && frame.handler.is_none() {
                continue;
            }
            // What an outer frame has taken was given up there, and may be wanted back now.
            if self.waits_for_condition(frame) {
                return;
            }
            let Some(call) = self.block(frame).and_then(|block| block.last().map(|(at, _)| *at)) else { return };
            let place = (call, frame.registers.sp.0);
            // Of a call by way of a pointer only the function's beginning is known.
            let entry = match self.entry_unseen(frames, index) {
                Some(start) => Some((start, 0)),
                None => self.entry(frames, index, thread.start),
            };
            let Some((start, base)) = entry else { return };
            match Explorer::done_before(&mut self.code, &[lock], start, place, base) {
                Done::Nothing => {}
                Done::Unclear => return,
                Done::Taken => {
                    let (frame, handler) = (frame.place.pc, frame.handler);
                    let (object, lwp, grade) = (lock.address, thread.lwp, Grade::Takes);
                    self.found.push(Clue { object, lwp, grade, frame, handler });
                    return;
                }
            }
        }
    }

    /// Whether the call that a frame is in is one that waits for a condition.
    fn waits_for_condition(&mut self, frame: &FrameState) -> bool {
        match self.code.call_before(frame.place.pc.0) {
            Some(Call::To(target)) => matches!(self.code.callee(target), Callee::Named(Function::Waits, _)),
            _ => false,
        }
    }
}

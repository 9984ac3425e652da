//! Stopping a thread for as long as it takes to copy its stack.

use super::stopped::{ControlError, StoppedThread};
use crate::arch::{GeneralRegisters, Registers};
use crate::look::{Look, Moving, Stacks, own_frames};
use crate::memory::Memory;
use crate::model::{Frame, Gap, Remedy, Snapshot, Task, Thread, ThreadState, WaitGroup};
use crate::runtimes::CopiedStack;
use crate::sys::ptrace::RegisterSet;
use crate::target::Live;
use crate::{Lwp, RemoteAddr};
use nix::errno::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// As much of a stack as is copied while its thread stands still: what 512 frames rarely exceed.
const MAX_COPY: u64 = 512 << 10;
/// Of a stack whose end is not known.
const USUAL_COPY: u64 = 64 << 10;

/// Frames by which the threads of a group are told apart.
const GROUP_FRAMES: usize = 3;

/// What was copied from a thread while it was stopped.
#[derive(Clone, Debug)]
pub struct StackCopy {
    /// All its registers.
    pub registers: Registers,
    /// Its stack, from the stack pointer up.
    pub bytes: Vec<u8>,
    /// For how long it was held: from before it was asked to stop until after it was let go.
    pub held: Duration,
    /// Number of the system call that returns EINTR because of the stop.
    pub interrupted: Option<i64>,
}

/// **Stops** thread `lwp`, copies its registers and its stack (which ends at `end`, if that is known), and
/// lets it go.
pub fn copy_stack(live: &Live, lwp: Lwp, end: Option<RemoteAddr>) -> Result<StackCopy, ControlError> {
    let started = Instant::now();
    let stopped = StoppedThread::stop(live.pid(), lwp)?;
    let general = stopped.registers(RegisterSet::General)?;
    let registers = GeneralRegisters::from_bytes(&general).ok_or(ControlError::System(lwp, Errno::EIO))?.frame();
    let used = end.and_then(|end| end.0.checked_sub(registers.sp.0)).filter(|used| *used > 0);
    let size = used.unwrap_or(USUAL_COPY).min(MAX_COPY) as usize;
    let bytes = live.read_up_to(registers.sp, size).unwrap_or_default();
    let interrupted = stopped.visible_interruption();
    drop(stopped);
    Ok(StackCopy { registers, bytes, held: started.elapsed(), interrupted })
}

/// Adds to `snapshot` the stacks of its threads. **Stops** those that do not stand still, one after the
/// other, each for as long as its stack is copied; the snapshot tells for how long.
pub fn add_stacks_stopping(live: &Live, snapshot: &mut Snapshot) {
    let mut stacks = Stacks::new(&Look::new(live));
    let moving = stacks.read(&snapshot.threads, &mut snapshot.gaps);
    let (mut total, mut longest) = (Duration::ZERO, Duration::ZERO);
    let mut still = Moving::default();
    // A thread that runs a task is on the task's own stack.
    let runs = |task: &&Task| task.state == ThreadState::Active && task.wait.is_none();
    let running: HashMap<Lwp, &Task> =
        snapshot.tasks.iter().filter(runs).filter_map(|task| Some((task.carried_by?, task))).collect();
    let mut copied = Vec::new();
    for lwp in moving.threads() {
        let Some(thread) = snapshot.threads.iter().find(|thread| thread.lwp == Some(lwp)) else { continue };
        let task = running.get(&lwp);
        let stack = task.and_then(|task| task.stack).or(thread.stack);
        match copy_stack(live, lwp, stack.map(|stack| stack.base)) {
            Ok(copy) => {
                copied.extend(task.map(|task| CopiedStack {
                    runtime: task.runtime,
                    id: task.id,
                    address: task.address,
                    pc: copy.registers.pc,
                    sp: copy.registers.sp,
                    bytes: copy.bytes.clone(),
                }));
                total += copy.held;
                longest = longest.max(copy.held);
                stacks.add_copied(thread, copy.registers, copy.registers.sp, copy.bytes);
                if let Some(number) = copy.interrupted {
                    let name = crate::arch::syscall_word(number);
                    let why = format!("the stop made its {name} return EINTR");
                    Gap::of_thread(&mut snapshot.gaps, "undisturbed thread", &why, lwp);
                }
            }
            Err(ControlError::NoThread(..)) => still.push(lwp, "the thread ended during the look"),
            Err(error) => {
                let gap = Gap::whole("stack", error.to_string()).with(error.remedy());
                gap.add_of_thread(&mut snapshot.gaps, lwp);
            }
        }
    }
    still.report(&mut snapshot.gaps);
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    snapshot.pause_us += micros(total);
    snapshot.longest_pause_us = snapshot.longest_pause_us.max(micros(longest));
    stacks.finish(snapshot);
    Look::new(live).add_running_tasks(snapshot, &copied);
}

/// Adds to `snapshot`, which explains a hang, the stacks of the threads that run and that no sample has found.
/// **Stops** those alone, as [`add_stacks_stopping`] does.
pub fn add_missing_stacks_stopping(live: &Live, snapshot: &mut Snapshot) {
    let may_stop = |gap: &Gap| matches!(gap.remedy, Some(Remedy::StopThread | Remedy::RetryOrStop));
    let missing: BTreeSet<Lwp> =
        snapshot.gaps.iter().filter(|gap| may_stop(gap)).flat_map(|gap| gap.lwps.iter().copied()).collect();
    let is_missing = |thread: &&Thread| {
        thread.frames.is_empty() && thread.watched.is_none() && thread.lwp.is_some_and(|lwp| missing.contains(&lwp))
    };
    let threads: Vec<Thread> = snapshot.threads.iter().filter(is_missing).cloned().collect();
    if threads.is_empty() {
        return;
    }
    let mut part = Snapshot { threads, gaps: Vec::new(), ..snapshot.clone() };
    add_stacks_stopping(live, &mut part);
    (snapshot.pause_us, snapshot.longest_pause_us) = (part.pause_us, part.longest_pause_us);
    let asked: BTreeSet<Lwp> = part.threads.iter().filter_map(|thread| thread.lwp).collect();
    // What the stop could not read either has a gap of its own now.
    for gap in snapshot.gaps.iter_mut().filter(|gap| may_stop(gap) && !gap.lwps.is_empty()) {
        gap.lwps.retain(|lwp| !asked.contains(lwp));
    }
    snapshot.gaps.retain(|gap| !may_stop(gap) || !gap.lwps.is_empty());
    snapshot.gaps.extend(part.gaps);
    let mut found: HashMap<Lwp, Thread> =
        part.threads.into_iter().filter_map(|thread| Some((thread.lwp?, thread))).collect();
    for thread in &mut snapshot.threads {
        if let Some(found) = thread.lwp.and_then(|lwp| found.remove(&lwp)) {
            (thread.frames, thread.frames_end, thread.call_site) = (found.frames, found.frames_end, found.call_site);
        }
    }
    let groups = std::mem::take(&mut snapshot.groups);
    snapshot.groups = groups.into_iter().flat_map(|group| by_place(group, &snapshot.threads)).collect();
}

/// A group whose threads were somewhere, by where they are now known to be; the largest first.
fn by_place(group: WaitGroup, threads: &[Thread]) -> Vec<WaitGroup> {
    if !group.frames.is_empty() {
        return vec![group];
    }
    let own = |lwp: &Lwp| -> Vec<Frame> {
        let thread = threads.iter().find(|thread| thread.lwp.as_ref() == Some(lwp));
        let frames = thread.map_or(&[][..], |thread| &thread.frames);
        own_frames(frames).take(GROUP_FRAMES).cloned().collect()
    };
    // Of a running thread the address changes from look to look.
    let place = |frame: &Frame| match &frame.function {
        Some(function) => (Some(function.clone()), None),
        None => (frame.module.clone(), frame.offset),
    };
    let mut places: BTreeMap<Vec<_>, (Vec<Frame>, Vec<Lwp>)> = BTreeMap::new();
    for lwp in &group.threads {
        let frames = own(lwp);
        let key = frames.iter().map(place).collect();
        places.entry(key).or_insert_with(|| (frames, Vec::new())).1.push(*lwp);
    }
    let mut parts: Vec<WaitGroup> =
        places.into_values().map(|(frames, threads)| WaitGroup { threads, frames, ..group.clone() }).collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.threads.len()));
    parts
}

//! Putting the agent into a program that is running, and removing its hooks again.
//!
//! **What it does to the program.** One thread is stopped, for about as long as a page fault takes: it maps some memory
//! and makes a thread, by two system calls, since it may hold any lock. That thread calls `pthread_create`, and what
//! it creates is a thread like any other, which may wait for locks: it loads the agent from memory and patches the
//! slots through which objects call the C library. When nobody wants that any more, or whoever wanted it has ended
//! in whatever way, it restores the slots and ends. The agent's object stays mapped, and its table.
//!
//! **What it will not do:** load anything on a thread that was hijacked (it may hold the very lock), stop a thread whose
//! system call would return early, or leave a thread that depends on us.

mod alone;
mod calls;
mod code;
mod control;
mod hijack;
mod places;
mod refuse;
mod room;
mod spare;
mod turn;
mod victim;

pub use control::{Injected, detach, is_preloaded};

use crate::act::ControlError;
use crate::arch::syscall;
use crate::look::{Names, Scope, look};
use crate::memory::{Memory, ReadError};
use crate::model::Remedy;
use crate::runtimes::glibc::LayoutError;
use crate::runtimes::{u32_at, u64_at};
use crate::table::TrackError;
use crate::target::{Live, TargetError};
use crate::{Pid, RemoteAddr};
use alone::Alone;
use control::Control;
use hijack::{MadeThread, Prepared};
use nix::errno::Errno;
use room::Room;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use table::control::{MAIL_SIZE, Mail, attached, go, step};
use turn::Turn;
use victim::Victim;

/// How it is to be done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Time every hold.
    pub exact: bool,
    /// Objects there is to be room for; a million otherwise.
    pub size: Option<u64>,
    /// Although it may kill a program with seccomp filters, or lock much memory.
    pub force: bool,
    /// Also into a program with one thread, which has a second one from then on.
    pub single: bool,
}

/// Why the agent is not in the program.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The program cannot have it.
    #[error("{0}")]
    Misfit(String),
    /// No glibc that is known.
    #[error("the program has no glibc that could be recognised: the agent needs glibc 2.31 or later")]
    NoGlibc,
    /// A function is missing.
    #[error("the program's C library lacks {0} (a program without threads, or a libc before 2.31)")]
    Missing(&'static str),
    /// It has one thread.
    #[error("process {0} has only one thread: no thread waits for its locks")]
    Single(Pid),
    /// Its one thread was never where nothing is half done.
    #[error(
        "the one thread of process {0} was inside the C library, or where its stack could not be followed, each time that it \
         was stopped: a second thread must not come then (try again)"
    )]
    InLibc(Pid),
    /// No thread can be stopped without noticing it.
    #[error("every thread is in a system call that a stop would interrupt (try again)")]
    NoVictim,
    /// Not permitted to look.
    #[error("not permitted to change process {0}: {1}")]
    Denied(Pid, String),
    /// Somebody traces it.
    #[error("process {0} is traced by {1}: the agent can only be loaded by that debugger (in gdb: `locks track on`)")]
    Traced(Pid, i32),
    /// It is stopped.
    #[error("process {0} is stopped: nothing in it can run (kill -CONT {0})")]
    Stopped(Pid),
    /// Its control group is frozen. What thaws it.
    #[error("process {0} is frozen by its control group: nothing in it can run ({1})")]
    Frozen(Pid, String),
    /// All its memory is locked.
    #[error("process {0} locks its memory (mlockall), and would lock the agent's table too")]
    Locked(Pid),
    /// It would be killed for using more memory.
    #[error(
        "process {0} has {1} KiB of memory left of the {2} KiB of its control group {3}, and the agent may need {4} \
         KiB: the \
         kernel would kill it"
    )]
    NoMemory(Pid, u64, u64, String, u64),
    /// Filters.
    #[error("process {0} has seccomp filters that might kill it: {1}")]
    Seccomp(Pid, String),
    /// A call that was made by the thread failed.
    #[error("{}", refused(*.0, *.1))]
    Call(i64, Errno),
    /// Its memory cannot be written.
    #[error("cannot write to the program's memory: {0}")]
    Write(Errno),
    /// The thread in the program failed.
    #[error("{0}")]
    Inside(&'static str),
    /// It did not answer.
    #[error(
        "the program did not answer in time: its loader or allocator may be stuck (nothing was changed in it; \
         the thread that was created there ends when they go on)"
    )]
    Silent,
    /// Whatever it names as the agent's pipe is none, or not its own.
    #[error("the descriptor that should be the pipe of the agent is not one (nothing was opened or written)")]
    NoPipe,
    /// Something of the system.
    #[error("cannot inject the agent: {0}")]
    System(Errno),
    /// Stopping a thread failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The process cannot be looked at.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Nor its memory.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its libc is not understood.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// An agent is there that cannot be used.
    #[error(transparent)]
    Track(#[from] TrackError),
}

impl InjectError {
    fn writing(error: std::io::Error) -> Self {
        Self::Write(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }

    /// What could be done, where that takes a command of the face.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Single(_) => Some(Remedy::ForceSingle),
            Self::Locked(_) => Some(Remedy::Force),
            Self::NoMemory(..) | Self::Seccomp(..) => Some(Remedy::ForceAtRisk),
            Self::Control(error) => error.remedy(),
            Self::Target(error) => error.remedy(),
            Self::Track(error) => error.remedy(),
            _ => None,
        }
    }
}

fn refused(number: i64, errno: Errno) -> String {
    let name = crate::arch::syscall_word(number);
    let why = match (number, errno) {
        (syscall::MMAP, Errno::EACCES | Errno::EPERM) => "it may not add executable memory",
        (syscall::MMAP, Errno::ENOMEM | Errno::EAGAIN) => "its memory is limited or locked",
        (syscall::CLONE, Errno::EAGAIN) => "it may not create threads",
        _ => "nothing was changed",
    };
    format!("the program was refused {name} ({errno}): {why}")
}

/// How long an injection waits for the program, all in all: locks of the allocator and the loader may be waited for, and a
/// program may be slow at every step on purpose.
const PATIENCE: Duration = Duration::from_secs(10);
/// Why there is no agent if `pthread_create` fails.
const NO_THREAD: &str = "the program could not create a thread";
/// How many threads are tried after one look, and how many looks are taken.
const TRIES: usize = 16;

/// Puts the agent into a process, or finds it there, and lets it count until what is returned is dropped.
/// **Stops** one thread for a moment, unless the agent is at work already.
pub fn attach(pid: Pid, options: &Options) -> Result<Injected, InjectError> {
    let live = Live::open(pid)?;
    let _turn = Turn::take(pid);
    live.or_ended(find_or_load(pid, options))
}

fn find_or_load(pid: Pid, options: &Options) -> Result<Injected, InjectError> {
    let until = Instant::now() + PATIENCE;
    for _ in 0..3 {
        let live = Live::open(pid)?;
        let there = Control::find(&live);
        match there.as_ref().map(|control| control.view(&live)).transpose()? {
            Some(view) if !view.is_late => {
                return Err(InjectError::Inside("the program was started with the agent, so it needs no other"));
            }
            Some(view) if matches!(view.state, attached::WAITING | attached::YES) => {
                // Another tool has it at work: join, unless it leaves this very moment.
                if let Some(injected) = there.and_then(|control| control.join(&live, until).ok()) {
                    return Ok(injected);
                }
                if Instant::now() > until {
                    break;
                }
            }
            Some(view) if view.state == attached::BY_HAND => {
                return Err(InjectError::Inside(control::BY_HAND));
            }
            Some(view) if view.state == attached::LEAVING => {}
            _ => return load(&live, there, options, until),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(InjectError::Silent)
}

/// Learns everything first; then stops a thread.
fn load(live: &Live, there: Option<Control>, options: &Options, until: Instant) -> Result<Injected, InjectError> {
    let is_single = refuse::check(live, options)?;
    let prepared = Prepared::new(live, there.map(|control| control.attach), options)?;
    if is_single {
        return load_alone(&prepared, &Alone::new(live)?, until);
    }
    let mut filtered = None;
    for _ in 0..TRIES {
        let snapshot = look(live, Scope::Threads, Names::None)?;
        for victim in victim::candidates(live, &snapshot).into_iter().take(TRIES) {
            let made = match hijack::make_thread(&prepared, &victim, None) {
                // It moved to another stack, or has ended.
                Err(InjectError::NoVictim | InjectError::Control(ControlError::NoThread(..))) => continue,
                // Another may be in a call that it may repeat.
                Err(InjectError::Control(ControlError::Filtered(_, danger))) => {
                    filtered = Some(danger);
                    continue;
                }
                made => made?,
            };
            return follow(&prepared, &victim, &made, until);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(filtered.map_or(InjectError::NoVictim, |danger| InjectError::Seccomp(live.pid(), danger)))
}

/// How long a program's one thread is waited for to be where it may be stopped.
const ALONE: Duration = Duration::from_secs(1);

/// The same for a program with one thread: it is stopped again and again for a while, until nothing is half done.
fn load_alone(prepared: &Prepared<'_>, alone: &Alone<'_>, until: Instant) -> Result<Injected, InjectError> {
    let live = prepared.live;
    let begun = Instant::now();
    let mut refused = InjectError::NoVictim;
    for again in 1.. {
        let snapshot = look(live, Scope::Threads, Names::None)?;
        // Most of a second is for stops: a look takes longer.
        for victim in victim::candidates(live, &snapshot) {
            let until_look = Instant::now() + ALONE / 8;
            while Instant::now() < until_look {
                if alone.is_stoppable(&victim) {
                    match hijack::make_thread(prepared, &victim, Some(alone)) {
                        Err(error @ InjectError::InLibc(_)) => refused = error,
                        Err(InjectError::NoVictim) => {}
                        made => return follow(prepared, &victim, &made?, until),
                    }
                }
                // Of different lengths, so that no rhythm of the program's is met again and again.
                std::thread::sleep(Duration::from_micros(300 + 170 * (again % 7)));
            }
        }
        if begun.elapsed() > ALONE {
            break;
        }
    }
    Err(refused)
}

/// Follows the new thread, and says what was done.
fn follow(
    prepared: &Prepared<'_>,
    victim: &Victim,
    made: &MadeThread,
    until: Instant,
) -> Result<Injected, InjectError> {
    let mut injected = settle(prepared, made.start, until)?;
    injected.pause = Some(made.pause);
    injected.interrupted = made.interrupted;
    injected.victim = Some(victim.lwp);
    Ok(injected)
}

/// Follows the threads inside, whose memory begins at `start`, until the agent is at work.
fn settle(prepared: &Prepared<'_>, start: RemoteAddr, until: Instant) -> Result<Injected, InjectError> {
    let Prepared { live, mem, room, .. } = prepared;
    let mail = Room::mail(start);
    let at = |field: usize| mail.offset(field as u64);
    let tell = |what: u32| write(mem, at(offset_of!(Mail, go)), &what.to_le_bytes());
    let begun = Instant::now();
    let mut is_filled = false;
    loop {
        let mut bytes = [0; MAIL_SIZE];
        let is_there = live.read_exact(mail, &mut bytes).is_ok();
        let word = |at: usize| u32_at(&bytes, at).unwrap_or(0);
        let state = word(offset_of!(Mail, state));
        match state {
            _ if !is_there => {
                // The agent has given the memory back: it has been told to go on, or somebody else is served.
                let live = Live::open(live.pid())?;
                let control = Control::find(&live).ok_or(InjectError::Silent)?;
                return control.join(&live, until);
            }
            step::FILE if !is_filled => {
                if let Err(error) = bring(mem, start, room, word(offset_of!(Mail, file))) {
                    let _ = tell(go::AWAY);
                    return Err(error);
                }
                tell(go::ON)?;
                is_filled = true;
            }
            step::ENTERED => {
                let address = RemoteAddr(u64_at(&bytes, offset_of!(Mail, thread)).unwrap_or(0));
                return Control { address, attach: RemoteAddr(0) }.join(live, until);
            }
            failed if failed >= step::FAILED => {
                let _ = tell(go::AWAY);
                return Err(InjectError::Inside(match failed {
                    step::NO_THREAD => NO_THREAD,
                    step::NO_FILE => "the program could not create a file in memory (memfd_create)",
                    step::NOT_LOADED => {
                        "the program's loader refused the agent (is /proc mounted where the program is, and may memory \
                         be executed?)"
                    }
                    _ => "the tool did not answer the program in time, or the program could not write a file in memory",
                }));
            }
            _ => {}
        }
        if Instant::now() > until || live.check_identity().is_err() {
            let _ = tell(go::AWAY);
            return Err(InjectError::Silent);
        }
        wait_a_little(begun);
    }
}

/// Waits for something that usually comes soon after `begun`.
fn wait_a_little(begun: Instant) {
    let is_soon = begun.elapsed() < Duration::from_millis(20);
    std::thread::sleep(Duration::from_micros(if is_soon { 50 } else { 1000 }));
}

/// Writes into the address space that was opened at the beginning, and no other: by now the process may have executed
/// another program, or its number be another process's.
fn write(mem: &File, at: RemoteAddr, bytes: &[u8]) -> Result<(), InjectError> {
    mem.write_all_at(bytes, at.0).map_err(InjectError::writing)
}

/// Writes the agent into the program's memory, from where its own thread puts it into the file that it has made. No
/// descriptor of the program is touched: what its number leads to is the program's own affair.
fn bring(mem: &File, start: RemoteAddr, room: &Room, file: u32) -> Result<(), InjectError> {
    write(mem, room.payload(start), agent::AGENT)?;
    // Written in a way that no program has: the loader would take an object of the same name for this one.
    // The thread has descriptors of its own.
    let name = format!("/proc/thread-self/fd/./{file}\0");
    write(mem, Room::mail(start).offset(offset_of!(Mail, path) as u64), name.as_bytes())
}

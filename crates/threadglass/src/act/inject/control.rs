//! Talking to an agent that is in the program: by a pipe of its thread's, which it listens to as long as it counts.

use super::InjectError;
use super::turn::Turn;
use crate::arch::syscall_name;
use crate::memory::Memory;
use crate::model::InjectionReport;
use crate::sys::pipe::{open_anonymous, send};
use crate::sys::task::status_of;
use crate::target::{Live, Target};
use crate::{InnerTid, Lwp, Pid, RemoteAddr};
use nix::errno::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use table::control::{ATTACH_SYMBOL, CONTROL_SIZE, CONTROL_SYMBOL, ControlView, MESSAGE, attached, message};

/// Why an agent is not ours to switch.
pub(super) const BY_HAND: &str = "a debugger has switched the agent on (in gdb: `locks track off`)";

/// How long slots take to be patched or restored, at most.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where an agent's state is, and its function that a new thread begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    pub(super) address: RemoteAddr,
    pub(super) attach: RemoteAddr,
}

impl Control {
    /// That of the agent in the process, if one is loaded that can be attached.
    pub(super) fn find(live: &Live) -> Option<Self> {
        crate::table::images(live).find_map(|image| {
            Some(Self {
                address: image.address_of(live, CONTROL_SYMBOL)?,
                attach: image.address_of(live, ATTACH_SYMBOL)?,
            })
        })
    }

    pub(super) fn view(&self, live: &Live) -> Result<ControlView, InjectError> {
        let bytes: [u8; CONTROL_SIZE] = live.read_array(self.address)?;
        ControlView::read(&bytes).ok_or(InjectError::Track(crate::table::TrackError::Version(0)))
    }

    /// Opens the pipe of an agent that listens. Which descriptor that is, is the program's claim.
    fn open(&self, live: &Live, view: &ControlView) -> Result<File, InjectError> {
        let lwp = live.lwp_of_inner(InnerTid(view.tid as i32)).unwrap_or(Lwp(0));
        let task = format!("/proc/{}/task/{lwp}", live.pid());
        let uid = status_of(live.pid(), lwp).and_then(|status| status.euid()).ok_or(InjectError::NoPipe)?;
        let pipe = open_anonymous(format!("{task}/fd/{}", view.fd).as_ref(), uid).map_err(|errno| match errno {
            Errno::ESTALE | Errno::ENOENT => InjectError::NoPipe,
            errno => InjectError::System(errno),
        })?;
        match pipe.metadata() {
            Ok(about) if about.ino() == view.inode => Ok(pipe),
            _ => Err(InjectError::NoPipe),
        }
    }

    /// Waits for the agent to listen, says that it is wanted, and waits until it counts; all that until some time.
    pub(super) fn join(&self, live: &Live, until: Instant) -> Result<Injected, InjectError> {
        let listens = |view: &ControlView| matches!(view.state, attached::WAITING | attached::YES | attached::FAILED);
        let view = self.wait_for(live, until, listens)?;
        if view.state == attached::FAILED {
            return Err(InjectError::Inside("the agent could not set itself up (no memory, or an unknown C library)"));
        }
        let pipe = self.open(live, &view)?;
        let say = |word, number| send(&pipe, &bytes_of(word, number)).map_err(InjectError::System);
        say(message::HELLO, 0)?;
        // Who we are, where that means anything to the program: then we are watched from the first moment.
        if same_pids(live) {
            say(message::PID, std::process::id())?;
        }
        let view = self.wait_for(live, until, |view| view.state != attached::WAITING)?;
        if view.state != attached::YES {
            return Err(InjectError::Silent);
        }
        // The raw thread is not on libc's list: a change of user at that moment has passed it by, and what it made.
        if !has_same_user(live, &view) {
            let _ = send(&pipe, &bytes_of(message::LEAVE, 0));
            return Err(InjectError::Inside("the program changed its user meanwhile (run again)"));
        }
        let (pid, control, pipe) = (live.pid(), *self, Some(pipe));
        Ok(Injected { pid, control, pipe, pause: None, interrupted: None, victim: None, view })
    }

    fn wait_for(
        &self,
        live: &Live,
        until: Instant,
        is_it: impl Fn(&ControlView) -> bool,
    ) -> Result<ControlView, InjectError> {
        let begun = Instant::now();
        loop {
            let view = self.view(live)?;
            if is_it(&view) {
                return Ok(view);
            }
            if Instant::now() > until {
                return Err(InjectError::Silent);
            }
            super::wait_a_little(begun);
        }
    }
}

/// Whether the agent's thread has the rights that the others have.
fn has_same_user(live: &Live, view: &ControlView) -> bool {
    let rights = |lwp: Lwp| {
        let status = status_of(live.pid(), lwp)?;
        Some((status.users, status.groups, status.capabilities))
    };
    let own = live.lwp_of_inner(InnerTid(view.tid as i32)).and_then(rights);
    own.is_none() || own == rights(live.witness())
}

fn bytes_of(word: u8, number: u32) -> [u8; MESSAGE] {
    let [a, b, c, d] = number.to_le_bytes();
    [word, 0, 0, 0, a, b, c, d]
}

/// Whether ids mean the same to that process as to us.
fn same_pids(live: &Live) -> bool {
    let namespace = |of: String| std::fs::read_link(format!("/proc/{of}/ns/pid")).ok();
    // A leader that has left by pthread_exit is in none any more.
    let theirs = namespace(format!("{}/task/{}", live.pid(), live.witness()));
    theirs.is_some() && theirs == namespace("self".to_owned())
}

/// An agent that counts in a process because we want it. Dropping this lets it restore all slots, unless somebody else
/// wants it too; and so does the end of our process in whatever way.
#[derive(Debug)]
pub struct Injected {
    pid: Pid,
    control: Control,
    pipe: Option<File>,
    /// For how long a thread of the program was stopped; `None` if the agent was at work already.
    pub pause: Option<Duration>,
    /// The system call that returned early because of it, if there was one.
    pub interrupted: Option<i64>,
    /// The thread that was stopped.
    pub victim: Option<Lwp>,
    view: ControlView,
}

impl Injected {
    /// The process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Slots that were patched, and those that could not be.
    pub fn slots(&self) -> (u32, u32) {
        (self.view.patched, self.view.missed)
    }

    /// Lets go; what was done to the process.
    pub fn finish(self) -> InjectionReport {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (slots, missed) = self.slots();
        let (pause_us, interrupted) = (self.pause.map(micros), self.interrupted.and_then(syscall_name));
        // A process that has ended has nothing to restore.
        let restored = self.detach().unwrap_or(true);
        InjectionReport { pause_us, slots, missed, restored, interrupted }
    }

    /// Lets go, and waits until the slots are restored; `false` if somebody else still wants them.
    pub fn detach(mut self) -> Result<bool, InjectError> {
        drop(self.pipe.take());
        let live = Live::open(self.pid)?;
        let begun = Instant::now();
        loop {
            match self.control.view(&live)?.state {
                attached::NO | attached::FAILED => return Ok(true),
                // It notices at once that the last one has gone; nothing but another one keeps it.
                attached::YES if begun.elapsed() > Duration::from_secs(1) => return Ok(false),
                _ if begun.elapsed() > PATIENCE => return Err(InjectError::Silent),
                _ => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}

/// Lets the agent of a process restore all slots, whoever wants it; whether there was anything to restore.
pub fn detach(pid: Pid) -> Result<bool, InjectError> {
    // Somebody may be putting it in right now.
    let _turn = Turn::take(pid);
    let live = Live::open(pid)?;
    live.or_ended(remove_hooks(&live))
}

fn remove_hooks(live: &Live) -> Result<bool, InjectError> {
    if let Some(denial) = live.denial() {
        return Err(InjectError::Denied(live.pid(), denial.to_string()));
    }
    let Some(control) = Control::find(live) else { return Ok(false) };
    let view = control.view(live)?;
    match view.state {
        attached::NO | attached::FAILED => return Ok(false),
        attached::BY_HAND => {
            return Err(InjectError::Inside(BY_HAND));
        }
        attached::LEAVING => {}
        _ => {
            let pipe = control.open(live, &view)?;
            match send(&pipe, &bytes_of(message::LEAVE, 0)) {
                Ok(()) | Err(Errno::EPIPE) => {}
                Err(errno) => return Err(InjectError::System(errno)),
            }
        }
    }
    control.wait_for(live, Instant::now() + PATIENCE, |view| matches!(view.state, attached::NO | attached::FAILED))?;
    Ok(true)
}

/// Whether a process was started with the agent in it, which then needs no injection.
pub fn is_preloaded(live: &Live) -> bool {
    let view = Control::find(live).and_then(|control| control.view(live).ok());
    view.is_some_and(|view| !view.is_late)
}

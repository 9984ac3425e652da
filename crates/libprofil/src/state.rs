//! The one profile that a process has, and what happens to it at a fork.

use crate::session::{Session, Settings, StartError};
use crate::sink::Sink;
use crate::sys::timers;
use perf::histogram::Layout;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard};

/// What the process has.
#[derive(Debug)]
pub(crate) struct State {
    /// The latest profile, which may have ended.
    pub session: Option<Arc<Session>>,
    /// The histogram of the C functions that keep one.
    pub region: Option<Region>,
}

/// A histogram that is kept for the program.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub layout: Layout,
    pub counts: Arc<[AtomicU32]>,
    pub rate: u32,
}

static STATE: Mutex<State> = Mutex::new(State { session: None, region: None });

thread_local! {
    /// The lock, from before a fork until after it. Nothing in it needs a destructor, which the thread would run
    /// while it ends: after that there may still be forks, by the program's own destructors and exit handlers.
    static HELD: RefCell<Option<ManuallyDrop<MutexGuard<'static, State>>>> = const { RefCell::new(None) };
}

/// Whoever starts, stops or asks holds this.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|poison| poison.into_inner())
}

impl State {
    /// Ends the profile there is, if any, and starts another in its place.
    pub fn replace(&mut self, settings: Settings, sink: Sink) -> Result<Arc<Session>, StartError> {
        self.stop();
        let session = Session::start(settings, sink)?;
        self.session = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Ends the profile there is.
    pub fn stop(&mut self) {
        if let Some(session) = &self.session {
            session.stop();
        }
    }

    /// The profile, if it is on.
    pub fn running(&self) -> Option<&Arc<Session>> {
        self.session.as_ref().filter(|session| !session.is_finished())
    }
}

/// Before a fork: nobody is in the middle of a change, and the helper has counted everything and stands still.
/// So the child's copy of the histogram has all ticks up to here, and no half of one.
pub(crate) extern "C" fn prepare() {
    let state = lock();
    if let Some(session) = state.running() {
        session.hold();
    }
    HELD.with(|held| *held.borrow_mut() = Some(ManuallyDrop::new(state)));
}

fn release() -> Option<MutexGuard<'static, State>> {
    HELD.with(|held| held.borrow_mut().take()).map(ManuallyDrop::into_inner)
}

pub(crate) extern "C" fn parent() {
    if let Some(state) = release()
        && let Some(session) = state.running()
    {
        session.flush();
    }
}

/// In the child: no helper, no clock, no open file is left, only memory.
pub(crate) extern "C" fn child() {
    if let Some(state) = release()
        && let Some(session) = &state.session
    {
        timers::forget();
        session.start_again();
    }
}

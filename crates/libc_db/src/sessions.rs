//! The sessions that exist, by the pointers clients hold.

use crate::abi::{Td, TdErr, ThrAgent};
use crate::fork::forking_thread;
use crate::handles::OwnProcess;
use crate::session::{Session, lock};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// A session, or the mark that one was deleted there.
type Entry = Option<Arc<Registered>>;
type Sessions = Option<HashMap<usize, Entry>>;

struct Registered {
    session: Session,
    /// Calls in progress on any thread, with their numbers.
    calls: Mutex<Calls>,
    /// Whether this is a child, and another thread of its parent's was in a call at the fork: locks of the session may be held
    /// by nobody.
    lost: AtomicBool,
}

#[derive(Default)]
struct Calls {
    last: u64,
    open: Vec<(u64, Place)>,
}

impl Calls {
    /// Notes a call, in the place of those that the client has left by longjmp.
    fn begin(&mut self, place: Place) -> u64 {
        self.open.retain(|(_, open)| !open.is_left_for(place));
        self.last += 1;
        self.open.push((self.last, place));
        self.last
    }

    /// Whether a call is in progress on another thread that exists.
    fn are_elsewhere(&self) -> bool {
        let here = thread_number();
        self.open.iter().any(|(_, place)| place.thread != here && exists(place.thread))
    }
}

static SESSIONS: RwLock<Sessions> = RwLock::new(None);

/// How long deleting a session waits for calls on other threads. One that a client left by longjmp
/// never ends, so the wait must.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a call was made: on which thread, and how deep in its stack.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    thread: i32,
    frame: usize,
}

impl Place {
    /// That of whoever calls this.
    #[inline(never)]
    pub(crate) fn here() -> Self {
        let local = 0u8;
        Self { thread: thread_number(), frame: (&raw const local).addr() }
    }

    /// Whether a call made here must have been left, now that its thread makes one at `now`: its frame would be below.
    /// A client that has several stacks on one thread looks so too, so nothing is freed for this that a call uses.
    pub(crate) fn is_left_for(self, now: Self) -> bool {
        self.thread == now.thread && self.frame <= now.frame
    }

    /// Whether the one made at `now` was made by a callback of this one.
    pub(crate) fn is_around(self, now: Self) -> bool {
        self.thread == now.thread && self.frame > now.frame
    }
}

pub(crate) fn thread_number() -> i32 {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Whether this process has a thread of that number. Its parent's threads are none of its own.
fn exists(thread: i32) -> bool {
    // SAFETY: signal 0 is never sent: only the thread is looked for.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) == 0 }
}

/// A session in use by one call. Keeps it alive; holds no lock.
pub(crate) struct Call {
    number: u64,
    place: Place,
    registered: Arc<Registered>,
}

impl Call {
    /// Where it was made.
    pub(crate) fn place(&self) -> Place {
        self.place
    }
}

impl Deref for Call {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.registered.session
    }
}

impl Drop for Call {
    // Also runs when the client's exception passes through.
    fn drop(&mut self) {
        lock(&self.registered.calls).open.retain(|(number, _)| *number != self.number);
    }
}

/// Begins a call on the session `ta`.
pub(crate) fn enter(ta: *const ThrAgent) -> Td<Call> {
    let place = Place::here();
    let (registered, number) = {
        let sessions = SESSIONS.read().unwrap_or_else(PoisonError::into_inner);
        let entry = sessions.as_ref().and_then(|sessions| sessions.get(&ta.addr())).ok_or(TdErr::BadTa)?;
        let registered = entry.clone().ok_or(TdErr::BadPh)?;
        if registered.lost.load(Ordering::Relaxed) {
            return Err(TdErr::BadPh);
        }
        // While the list of sessions is locked: whoever deletes this one sees the call.
        let number = lock(&registered.calls).begin(place);
        (registered, number)
    };
    let call = Call { number, place, registered };
    if call.is_released() { Err(TdErr::BadPh) } else { Ok(call) }
}

/// Registers a session; gives the pointer the client will hold.
pub(crate) fn register(make: impl FnOnce(*mut ThrAgent) -> Session) -> *mut ThrAgent {
    // As with handles: an address that is never given out again.
    let ta: *mut ThrAgent = Box::into_raw(Box::new(0u64)).cast();
    let registered = Arc::new(Registered { session: make(ta), calls: Mutex::default(), lost: AtomicBool::new(false) });
    let mut sessions = SESSIONS.write().unwrap_or_else(PoisonError::into_inner);
    sessions.get_or_insert_default().insert(ta.addr(), Some(registered));
    ta
}

/// Deletes a session, after calls on other threads have ended: the client may free its process handle
/// when this returns.
pub(crate) fn delete(ta: *const ThrAgent) -> Td {
    let registered = {
        let mut sessions = SESSIONS.write().unwrap_or_else(PoisonError::into_inner);
        let entry = sessions.as_mut().and_then(|sessions| sessions.get_mut(&ta.addr())).ok_or(TdErr::BadTa)?;
        entry.take().ok_or(TdErr::BadPh)?
    };
    if registered.lost.load(Ordering::Relaxed) {
        // Nothing of it can be touched.
        std::mem::forget(registered);
        return Ok(());
    }
    let deadline = Instant::now() + PATIENCE;
    while lock(&registered.calls).are_elsewhere() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(50));
    }
    registered.session.end();
    Ok(())
}

/// Ends the sessions of a released handle: the threads they suspended go on, and nothing is kept open for them.
pub(crate) fn release_of(process: &Arc<OwnProcess>) {
    let of_process: Vec<_> = {
        let mut sessions = SESSIONS.write().unwrap_or_else(PoisonError::into_inner);
        let entries = sessions.iter_mut().flat_map(HashMap::values_mut);
        entries.filter_map(|entry| entry.take_if(|registered| registered.session.is_of(process))).collect()
    };
    for registered in of_process {
        match registered.lost.load(Ordering::Relaxed) {
            true => std::mem::forget(registered),
            false => registered.session.end(),
        }
    }
}

/// All sessions, held still while the process forks.
pub(crate) struct HeldSessions(RwLockWriteGuard<'static, Sessions>);

impl HeldSessions {
    pub(crate) fn hold() -> Self {
        Self(SESSIONS.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// In the child: gives up the sessions, and the handles, in which another thread of the parent's was at work.
    pub(crate) fn lose_those_in_use(&self) {
        let all = || self.0.iter().flat_map(HashMap::values).flatten();
        for registered in all() {
            // The forking thread holds no lock of ours, and is in no call but those it has around it.
            let is_in_use = match registered.calls.try_lock() {
                // Those of the forking thread bear its old number.
                Ok(calls) => calls.open.iter().any(|(_, place)| place.thread != forking_thread()),
                Err(_) => true,
            };
            if is_in_use {
                registered.lost.store(true, Ordering::Relaxed);
                registered.session.lose_process();
            }
        }
        // What the sessions of one handle share may be locked too.
        for registered in all().filter(|registered| registered.session.has_lost_process()) {
            registered.lost.store(true, Ordering::Relaxed);
        }
    }
}

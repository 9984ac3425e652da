//! A client that forks while its threads are in calls of ours.
//!
//! Its child has one thread, and whatever another one had locked stays so. What all calls go through is held still during the
//! fork, and what others were at work in is given up in the child: its functions answer TD_BADPH there, and deleting it
//! waits for nobody. Sessions and handles that nobody used at that moment go on to work.

use crate::handles::HeldHandles;
use crate::sessions::{self, HeldSessions};
use std::cell::{Cell, RefCell};

thread_local! {
    /// What is held during a fork, by the thread that forks.
    static HELD: RefCell<Option<(HeldSessions, HeldHandles)>> = const { RefCell::new(None) };
    /// The number of this thread when it last forked, which is another one in the child.
    static FORKING: Cell<i32> = const { Cell::new(0) };
}

/// When the library is loaded, not when it is first used: another thread could be in the middle of a fork just then.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        // SAFETY: the library is never unloaded (it is linked with -z nodelete). Where there is no memory for the
        // handlers, a child may wait for what nobody gives back.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }
    at_load
};

/// The number that the forking thread had in the parent.
pub(crate) fn forking_thread() -> i32 {
    FORKING.get()
}

unsafe extern "C" fn prepare() {
    FORKING.set(sessions::thread_number());
    // No call of ours runs foreign code with one of these.
    HELD.set(Some((HeldSessions::hold(), HeldHandles::hold())));
}

unsafe extern "C" fn parent() {
    HELD.take();
}

unsafe extern "C" fn child() {
    if let Some((sessions, handles)) = HELD.take() {
        handles.lose_those_in_use();
        sessions.lose_those_in_use();
    }
}

//! The agents that exist, by the pointers clients hold.

use crate::abi::{Td, TdErr, ThrAgent};
use crate::agent::Agent;
use crate::handles::OwnProcess;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// An agent, or the mark that one was deleted there.
type Entry = Option<Arc<Registered>>;

struct Registered {
    agent: Agent,
    /// Calls in progress on any thread.
    active: AtomicUsize,
}

static AGENTS: RwLock<Option<HashMap<usize, Entry>>> = RwLock::new(None);

thread_local! {
    /// Calls in progress on this thread, by agent: callbacks may call us again.
    static OWN: RefCell<HashMap<usize, usize>> = RefCell::default();
}

/// How long deleting an agent waits for calls on other threads. One that a client left by longjmp
/// never ends, so the wait must.
const PATIENCE: Duration = Duration::from_secs(2);

/// An agent in use by one call. Keeps it alive; holds no lock.
pub(crate) struct Call {
    key: usize,
    registered: Arc<Registered>,
}

impl Deref for Call {
    type Target = Agent;

    fn deref(&self) -> &Agent {
        &self.registered.agent
    }
}

impl Drop for Call {
    // Also runs when the client's exception passes through.
    fn drop(&mut self) {
        self.registered.active.fetch_sub(1, Ordering::Release);
        OWN.with_borrow_mut(|own| {
            if let Some(count) = own.get_mut(&self.key) {
                *count -= 1;
                if *count == 0 {
                    own.remove(&self.key);
                }
            }
        });
    }
}

/// Begins a call on the agent `ta`.
pub(crate) fn enter(ta: *const ThrAgent) -> Td<Call> {
    let registered = {
        let agents = AGENTS.read().unwrap_or_else(PoisonError::into_inner);
        let entry = agents.as_ref().and_then(|agents| agents.get(&ta.addr())).ok_or(TdErr::BadTa)?;
        let registered = entry.clone().ok_or(TdErr::BadPh)?;
        registered.active.fetch_add(1, Ordering::AcqRel);
        registered
    };
    OWN.with_borrow_mut(|own| *own.entry(ta.addr()).or_default() += 1);
    let call = Call { key: ta.addr(), registered };
    if call.is_released() { Err(TdErr::BadPh) } else { Ok(call) }
}

/// Registers an agent; gives the pointer the client will hold.
pub(crate) fn register(make: impl FnOnce(*mut ThrAgent) -> Agent) -> *mut ThrAgent {
    // As with handles: an address that is never given out again.
    let ta: *mut ThrAgent = Box::into_raw(Box::new(0u64)).cast();
    let registered = Arc::new(Registered { agent: make(ta), active: AtomicUsize::new(0) });
    let mut agents = AGENTS.write().unwrap_or_else(PoisonError::into_inner);
    agents.get_or_insert_default().insert(ta.addr(), Some(registered));
    ta
}

/// Deletes an agent, after calls on other threads have ended: the client may free its process handle
/// when this returns.
pub(crate) fn delete(ta: *const ThrAgent) -> Td {
    let registered = {
        let mut agents = AGENTS.write().unwrap_or_else(PoisonError::into_inner);
        let entry = agents.as_mut().and_then(|agents| agents.get_mut(&ta.addr())).ok_or(TdErr::BadTa)?;
        entry.take().ok_or(TdErr::BadPh)?
    };
    let own = OWN.with_borrow(|own| own.get(&ta.addr()).copied().unwrap_or(0));
    let deadline = Instant::now() + PATIENCE;
    while registered.active.load(Ordering::Acquire) > own && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(50));
    }
    registered.agent.end();
    Ok(())
}

/// Ends the agents of a released handle: the threads they suspended go on, and nothing is kept open for them.
pub(crate) fn release_of(process: &Arc<OwnProcess>) {
    let of_process: Vec<_> = {
        let mut agents = AGENTS.write().unwrap_or_else(PoisonError::into_inner);
        let entries = agents.iter_mut().flat_map(HashMap::values_mut);
        entries.filter_map(|entry| entry.take_if(|registered| registered.agent.is_of(process))).collect()
    };
    for registered in of_process {
        registered.agent.end();
    }
}

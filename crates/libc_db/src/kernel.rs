//! The live process behind a client's handle, once it has been shown to be the same.
//!
//! A debugger's handle may stand for a core file whose pid belongs to a stranger by now. So `/proc` is
//! believed only when the sixteen random bytes that the kernel gave the process at its start read the
//! same both ways, *and* writing those same bytes over themselves through the client succeeds, which a
//! core refuses.

use crate::client::Client;
use crate::session::lock;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use threadglass::memory::Memory;
use threadglass::target::{Live, ProcService};

/// How long a failed check stands before it is tried again.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a successful one does: a process does not exec between two threads of a walk.
const FRESH: Duration = Duration::from_millis(1);

#[derive(Default)]
enum State {
    #[default]
    Unchecked,
    Same(Arc<Live>, Instant),
    Failed(Instant),
}

/// The result of the check, kept for a session.
#[derive(Default)]
pub(crate) struct Kernel {
    state: Mutex<State>,
}

impl Kernel {
    /// Closes the process.
    pub(crate) fn forget(&self) {
        *lock(&self.state) = State::Unchecked;
    }

    /// The live process, if there is one and it is the same.
    pub(crate) fn live(&self, client: Client) -> Option<Arc<Live>> {
        match &mut *lock(&self.state) {
            State::Same(live, checked) if checked.elapsed() < FRESH => return Some(live.clone()),
            State::Same(live, checked) if live.is_same_image() => {
                *checked = Instant::now();
                return Some(live.clone());
            }
            State::Failed(when) if when.elapsed() < PATIENCE => return None,
            _ => {}
        }
        // Not locked meanwhile: the client's routines run, and may throw.
        let found = check(client);
        *lock(&self.state) = match &found {
            Some(live) => State::Same(live.clone(), Instant::now()),
            None => State::Failed(Instant::now()),
        };
        found
    }
}

fn check(client: Client) -> Option<Arc<Live>> {
    let live = Live::open(client.pid()?).ok()?;
    if live.denial().is_some() {
        return None;
    }
    let at = live.auxv()?.random?;
    let (mut ours, mut theirs) = ([0; 16], [0; 16]);
    live.read_exact(at, &mut ours).ok()?;
    client.read(at, &mut theirs).ok()?;
    if ours != theirs {
        return None;
    }
    client.write(at, &theirs).ok()?;
    Some(Arc::new(live))
}

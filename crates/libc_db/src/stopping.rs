//! Stopping the process for the time of a call, where the client offers that.
//!
//! A stop changes what the kernel says of threads. It takes a thread out of its wait for a priority-inheriting mutex, so
//! the owner loses what it had inherited; and where a client stops by a signal, every thread looks stopped by job control.
//! So both are read before the stop.

use crate::abi::{Td, TdErr};
use crate::client::Client;
use crate::session::{Session, lock, look_error};
use crate::sessions::Place;
use std::collections::HashMap;
use threadglass::internals::KernelState;
use threadglass::target::{KernelFacts, Live, LwpFacts};
use threadglass::{Lwp, PthreadId};

/// What a stop hides of a thread.
#[derive(Clone, Copy)]
struct BeforeStop {
    boosted: Option<bool>,
    was_stopped: bool,
}

/// The stop that is in force. Those of calls from callbacks are inside it.
#[derive(Default)]
pub(crate) struct OuterStop {
    place: Option<Place>,
    before: HashMap<Lwp, BeforeStop>,
}

/// The client has stopped its process while this lives. Nests, as calls from callbacks do.
pub(crate) struct StoppedByClient(Client);

impl StoppedByClient {
    /// Stops the process; `None` if the client does not offer that.
    pub(crate) fn stop(client: Client) -> Td<Option<Self>> {
        match client.stop() {
            None => Ok(None),
            Some(true) => Ok(Some(Self(client))),
            Some(false) => Err(TdErr::DbErr),
        }
    }
}

impl Drop for StoppedByClient {
    // Also runs when the client's exception passes through.
    fn drop(&mut self) {
        self.0.go_on();
    }
}

/// The process of a session is stopped while this lives, if the client offers that.
pub(crate) struct Stopping<'a> {
    session: &'a Session,
    is_outer: bool,
    _process: Option<StoppedByClient>,
}

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        if self.is_outer {
            *lock(&self.session.stop) = OuterStop::default();
        }
    }
}

impl Session {
    /// Stops the process for the time of a call that tells nothing of the kernel's and calls nobody back.
    pub(crate) fn stopping(&self) -> Td<Stopping<'_>> {
        self.stop_knowing(|_| Vec::new())
    }

    /// Stops the process for the time of a call that tells of one thread.
    pub(crate) fn stopping_for(&self, id: PthreadId) -> Td<Stopping<'_>> {
        let lwp = || self.inspect(|inspector| Ok(inspector.lwp_of(&inspector.descriptor(id).map_err(look_error)?)));
        self.stop_knowing(|_| lwp().ok().flatten().into_iter().collect())
    }

    /// Stops the process for the time of a call whose callbacks may ask for any thread.
    pub(crate) fn stopping_for_all(&self) -> Td<Stopping<'_>> {
        self.stop_knowing(|live| live.lwps().unwrap_or_default())
    }

    fn stop_knowing(&self, who: impl FnOnce(&Live) -> Vec<Lwp>) -> Td<Stopping<'_>> {
        let unstopped = Stopping { session: self, is_outer: false, _process: None };
        let Some(client) = self.client().filter(|client| client.can_stop()) else { return Ok(unstopped) };
        let here = Place::here();
        // One that was left by longjmp is around nothing.
        let is_outer = !lock(&self.stop).place.is_some_and(|outer| outer.is_around(here));
        // Nothing is locked meanwhile: the client's routines run.
        let before = if is_outer { self.live().map(|live| before_stop(&live, &who(&live))) } else { None };
        let process = StoppedByClient::stop(client)?;
        if is_outer {
            *lock(&self.stop) = OuterStop { place: Some(here), before: before.unwrap_or_default() };
        }
        Ok(Stopping { is_outer, _process: process, ..unstopped })
    }

    /// What the kernel told of a thread, as it would be without the stop that is in force.
    pub(crate) fn as_before_stop(&self, mut facts: LwpFacts) -> LwpFacts {
        let Some(before) = lock(&self.stop).before.get(&facts.lwp).copied() else { return facts };
        facts.boosted = before.boosted;
        if facts.state == KernelState::Stopped && !before.was_stopped {
            // As a tracer's stop, it is looked through.
            facts.state = KernelState::Traced;
        }
        facts
    }
}

fn before_stop(live: &Live, lwps: &[Lwp]) -> HashMap<Lwp, BeforeStop> {
    let of = |facts: LwpFacts| {
        (facts.lwp, BeforeStop { boosted: facts.boosted, was_stopped: facts.state == KernelState::Stopped })
    };
    live.facts(lwps).into_iter().flatten().map(of).collect()
}

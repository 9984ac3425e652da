//! What the agent inside a program has counted, read from outside while the program runs.
//!
//! The agent's shared object is one of the target's, and its header one of that object's symbols. Nothing is written
//! and nobody is stopped: see [`table`] for what a reader may rely on.

mod read;
mod scale;
mod since;
#[cfg(feature = "agent")]
mod stacks;
mod stats;

pub use since::Tracked;
#[cfg(feature = "agent")]
pub(crate) use stacks::WaitSample;

use crate::elf::Image;
use crate::limits::{Limits, NO_TIME};
use crate::memory::Memory;
use crate::model::{Gap, Remedy, Snapshot, SyncKind, SyncObject};
use crate::target::{Module, Target};
use crate::{InnerTid, RemoteAddr};
use scale::Scale;
use std::collections::HashMap;
use table::control::{CONTROL_SIZE, CONTROL_SYMBOL, ControlView, attached};
use table::decode::{HEADER_SIZE, HeaderView, NotHeader, header};

/// Objects of one table that are kept in memory: all that fit into one of the usual size.
pub(crate) const MOST_KEPT: usize = table::size::units(table::size::OBJECTS);
/// Objects of a table that a snapshot shows. Nobody reads more, and each takes a kilobyte.
const MOST_SHOWN: usize = 1 << 17;

/// Part of the file name of every agent, however it was loaded.
pub const FILE_NAME: &str = "threadglass-agent";

/// Why an agent that is there cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrackError {
    /// It does not count.
    #[error("the agent could not set itself up (no memory, or a C library before 2.31)")]
    Refused,
    /// It belongs to another tool version.
    #[error("the agent in the program is of another version ({0})")]
    Version(u32),
    /// Its memory makes no sense.
    #[error("the agent's table is damaged")]
    Damaged,
    /// Too many want it on.
    #[error("the agent is off, and too many processes have asked for it to be on")]
    Crowded,
    /// Its memory cannot be read.
    #[error("the agent's table cannot be read: {0}")]
    Read(#[from] crate::memory::ReadError),
}

impl TrackError {
    /// What could be done, where that takes a command of the face.
    pub fn remedy(&self) -> Option<Remedy> {
        matches!(self, Self::Version(_)).then_some(Remedy::UseOtherVersion)
    }
}

/// The agent of a target.
#[derive(Clone, Debug)]
pub struct Agent {
    pub(crate) address: RemoteAddr,
    pub(crate) view: HeaderView,
    scale: Scale,
    limits: Limits,
}

impl Agent {
    /// The agent of `target`, if it has one.
    pub fn find(target: &dyn Target) -> Result<Option<Self>, TrackError> {
        let address = images(target).find_map(|image| image.address_of(target, table::HEADER_SYMBOL));
        address.map(|address| Self::of(target, address)).transpose()
    }

    fn of(target: &dyn Target, address: RemoteAddr) -> Result<Self, TrackError> {
        let agent = Self::at(target, address, target.identity().core.is_none())?;
        Ok(Self { limits: target.limits().clone(), ..agent })
    }

    /// The agent whose header is at `address`. Whether the program runs matters for its clock.
    pub fn at(memory: &dyn Memory, address: RemoteAddr, is_live: bool) -> Result<Self, TrackError> {
        let mut bytes = [0; HEADER_SIZE];
        memory.read_exact(address, &mut bytes)?;
        let view = header(&bytes).map_err(|why| match why {
            NotHeader::Version(version) => TrackError::Version(version),
            NotHeader::Foreign | NotHeader::Damaged => TrackError::Damaged,
        })?;
        if view.state != table::state::READY {
            return Err(TrackError::Refused);
        }
        Ok(Self { address, scale: Scale::new(&view, is_live), view, limits: Limits::default() })
    }

    /// The same agent as it is now, without looking for it; `None` if it is not there any more.
    #[cfg(feature = "agent")]
    pub(crate) fn again(&self, target: &dyn Target) -> Option<Self> {
        target.check_identity().ok()?;
        // The moment when it began tells it from one that has come to be at the same address.
        Self::of(target, self.address).ok().filter(|now| now.view.start == self.view.start)
    }

    /// Where its header is.
    pub fn address(&self) -> RemoteAddr {
        self.address
    }

    /// What the header says.
    pub fn header(&self) -> &HeaderView {
        &self.view
    }

    /// Whether it counts now.
    pub fn is_on(&self) -> bool {
        self.view.mode != table::mode::OFF
    }

    /// The objects it knows: all that a table of the usual size has room for. [`Self::each`] gives more.
    pub fn objects(&self, memory: &dyn Memory) -> Vec<Tracked> {
        let mut objects = Vec::new();
        self.each(memory, &mut |tracked| {
            objects.push(tracked);
            objects.len() < MOST_KEPT
        });
        objects
    }
}

fn is_agent(module: &Module) -> bool {
    module.name().contains(FILE_NAME)
}

/// Whether `addr` lies in an agent.
pub(crate) fn is_in_agent(target: &dyn Target, addr: RemoteAddr) -> bool {
    target.module_at(addr).is_some_and(is_agent)
}

/// The agents that are loaded in `target`.
pub(crate) fn images(target: &dyn Target) -> impl Iterator<Item = Image> {
    let agents = target.modules().iter().filter(|module| is_agent(module));
    agents.filter_map(|module| Image::with_symbols(target, module.base, target.limits()).ok())
}

/// The thread of an agent that was injected, as the program itself counts. Its start function does not tell: that lay
/// in memory of the injection, which the agent has given back.
pub(crate) fn agent_thread(target: &dyn Target) -> Option<InnerTid> {
    let mut bytes = [0; CONTROL_SIZE];
    let address = images(target).find_map(|image| image.address_of(target, CONTROL_SYMBOL))?;
    target.read_exact(address, &mut bytes).ok()?;
    let view = ControlView::read(&bytes)?;
    let is_there = matches!(view.state, attached::WAITING | attached::YES | attached::LEAVING);
    (is_there && view.tid != 0).then_some(InnerTid(view.tid as i32))
}

/// The objects that the agent of `target` knows, if there is one: as many as are shown.
pub(crate) fn registered(target: &dyn Target) -> Vec<(RemoteAddr, SyncKind)> {
    let Ok(Some(agent)) = Agent::find(target) else { return Vec::new() };
    let mut found = Vec::new();
    agent.each(target, &mut |tracked| {
        found.push((tracked.address, tracked.kind));
        found.len() < MOST_SHOWN
    });
    found
}

/// Adds statistics to the objects of a snapshot, if there is an agent that counts. Those of one that is off are of a time that
/// nobody knows.
pub(crate) fn add_stats(target: &dyn Target, snapshot: &mut Snapshot) {
    let agent = match Agent::find(target) {
        Ok(Some(agent)) if agent.is_on() => agent,
        Ok(_) => return,
        Err(error) => return snapshot.gaps.push(Gap::whole("lock statistics", error.to_string()).with(error.remedy())),
    };
    // Many are read together, few one by one: a table may have a million.
    let taken = usize::try_from(agent.view.entries.2).unwrap_or(usize::MAX);
    if snapshot.objects.len() > taken / 16 {
        let mut objects: HashMap<RemoteAddr, &mut SyncObject> =
            snapshot.objects.iter_mut().map(|object| (object.address, object)).collect();
        agent.each(target, &mut |tracked| {
            if let Some(object) = objects.get_mut(&tracked.address).filter(|object| object.kind == tracked.kind) {
                object.stats = Some(tracked.stats());
            }
            true
        });
    } else {
        for object in &mut snapshot.objects {
            if agent.limits.is_over() {
                agent.limits.leave_out("statistics of some locks", NO_TIME);
                break;
            }
            let known = agent.object(target, object.address).filter(|tracked| tracked.kind == object.kind);
            object.stats = known.map(|tracked| tracked.stats());
        }
    }
    if agent.view.drops > 0 {
        let why = format!("the agent's table was full for {} uses of locks", agent.view.drops);
        snapshot.gaps.push(Gap::whole("statistics of some locks", why).with(Remedy::LargerTable));
    }
}

#[cfg(all(test, feature = "agent"))]
mod tests {
    use super::*;
    use crate::Pid;
    use crate::target::Live;
    use std::mem::offset_of;
    use table::Header;

    #[test]
    fn an_agent_is_known_again_by_its_header() {
        let mut bytes = vec![0; HEADER_SIZE];
        let numbers = [table::VERSION, HEADER_SIZE as u32, table::UNIT as u32, table::decode::EXTRA_SIZE as u32];
        let head = numbers.into_iter().chain([table::state::READY]).flat_map(u32::to_le_bytes);
        let head: Vec<u8> = table::MAGIC.into_iter().chain(head).collect();
        bytes[..head.len()].copy_from_slice(&head);
        let bytes = std::hint::black_box(&mut bytes);
        // It is in no module: whoever looks for it does not find it.
        let live = Live::open(Pid::me()).unwrap();
        let agent = Agent::at(&live, RemoteAddr(bytes.as_ptr() as u64), true).unwrap();
        assert!(!agent.again(&live).unwrap().is_on());
        bytes[offset_of!(Header, mode)] = 1;
        assert!(agent.again(&live).unwrap().is_on(), "what it says now");
        bytes[offset_of!(Header, start_ticks)] = 1;
        assert!(agent.again(&live).is_none(), "another one in the same place");
        bytes[0] = 0;
        assert!(agent.again(&live).is_none(), "none");
    }
}

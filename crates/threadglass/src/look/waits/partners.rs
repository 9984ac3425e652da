//! Who could end a wait that leaves the process.

use super::calls::{self, Awaited};
use super::relatives;
use super::shared;
use crate::host::{Holders, Host, OtherEnd, Socket, TcpTimes};
use crate::model::{Direction, Evidence, OutsideKind, Syscall};
use crate::target::Target;
use crate::{Lwp, Pid};

/// Descriptors that an event loop may watch to be followed.
const WATCHED: usize = 16;

/// What a process is to the one that waits for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// Its child.
    Child,
    /// Its child, whose end only wakes it by a signal.
    Signals,
    /// A process that it traces.
    Traced,
    /// A process that it has a descriptor of.
    Watched,
}

/// Who could end a wait at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundPartners {
    pub(super) kind: OutsideKind,
    pub(super) direction: Option<Direction>,
    pub(super) holders: Holders,
    /// Of a socket: what it is, and how much is unread.
    pub(super) socket: Option<Socket>,
    /// The FIFO that it waits to open, until somebody opens the other end.
    pub(super) fifo: Option<String>,
    /// Of those whose end is waited for: what they are to the one that waits.
    pub(super) relation: Relation,
    /// The process that waits, which may be one of the holders itself.
    pub(super) own: Pid,
    /// What it is, where a name tells that better than the file: `System V queue 3`.
    pub(super) what: Option<String>,
    /// What else is known of the place, in words: `System V queue 3 is empty`.
    pub(super) about: Option<String>,
    /// Whether any process may open it at any time, by its name.
    pub(super) is_named: bool,
    /// Whether the holders are only those who were seen there last: others may end the wait.
    pub(super) is_hint: bool,
}

impl FoundPartners {
    /// The other processes, each once.
    pub(super) fn others(&self) -> Vec<Pid> {
        self.holders.pids().into_iter().filter(|pid| *pid != self.own).collect()
    }

    /// The one that it must be.
    pub(super) fn only(&self) -> Option<Pid> {
        match self.others().as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// How it is known that it is one of the others: several that could be meant are each inferred, and so is one if others were
    /// not seen.
    pub(super) fn evidence(&self) -> Evidence {
        match self.only() {
            _ if self.relation == Relation::Signals || self.is_hint => Evidence::Inferred,
            Some(_) if self.holders.is_recorded => Evidence::Recorded,
            Some(_) if self.holders.is_whole => Evidence::Derived,
            None if self.kind == OutsideKind::Child => Evidence::Derived,
            _ => Evidence::Inferred,
        }
    }

    /// Who was sent something and has not answered, if it is known that somebody has to.
    pub(super) fn owed_by(&self) -> Option<Pid> {
        let socket = self.socket.as_ref().filter(|_| self.direction == Some(Direction::Input))?;
        // Who has been asked has answered, and waits for the next question.
        let socket = Some(socket).filter(|socket| !socket.is_accepted)?;
        let asked = socket.times.and_then(TcpTimes::has_spoken_last) == Some(true);
        self.only().filter(|_| asked || socket.times.is_none() && socket.unread_there > Some(0))
    }
}

/// Who could end the wait of thread `lwp` of `target` in `call`, for each descriptor that it waits at. Nothing where it is not
/// known of all of them, or an event loop that watches several is left by itself after some time.
pub(super) fn partners(host: &Host, target: &dyn Target, lwp: Lwp, call: &Syscall) -> Vec<FoundPartners> {
    if let Some(path) = opened_fifo(target, lwp, call) {
        let nobody = Holders { places: Vec::new(), is_recorded: false, is_whole: true };
        return vec![FoundPartners { fifo: Some(path), ..of(target, OutsideKind::Pipe, nobody) }];
    }
    let found = match calls::kind_at(target, call) {
        _ if calls::outside(call) == calls::Outside::Transfer => transfer(host, target, lwp, call),
        Some(OutsideKind::EventLoop) => {
            let awaited = calls::awaited(target, call);
            let most = if calls::is_timed(call) { 1 } else { WATCHED };
            let known = (1..=most).contains(&awaited.len());
            // An eventfd among others is how a loop is woken from within its process, or by the kernel.
            let at = |one: &Awaited| at_only(host, target, *one, awaited.len());
            let found = known.then(|| awaited.iter().map(at).collect());
            // By a pipe to itself an event loop is woken by its own threads and signal handlers.
            let is_own = |one: &FoundPartners| one.holders.is_whole && one.others().is_empty();
            match found.flatten() {
                Some(found) if !Vec::is_empty(&found) && found.iter().all(is_own) => {
                    relatives::that_signal(target).map(|one| vec![one])
                }
                found => found,
            }
        }
        Some(OutsideKind::Socket) if calls::addressed_to(target, call).is_some() => {
            let socket = calls::addressed_to(target, call)
                .and_then(|name| host.unix_socket_to(target.pid(), &name, call.name == "sendto"));
            socket.and_then(|socket| at_socket(host, target, socket, Direction::Output)).map(|one| vec![one])
        }
        Some(OutsideKind::Pipe | OutsideKind::Socket | OutsideKind::Terminal | OutsideKind::Eventfd) => {
            calls::awaited(target, call).iter().map(|one| at_only(host, target, *one, 1)).collect()
        }
        Some(OutsideKind::MessageQueue | OutsideKind::Semaphore) => {
            shared::partners(host, target, call).map(|one| vec![one])
        }
        Some(OutsideKind::FileLock) => {
            let path = call.descriptors.first().and_then(|descriptor| descriptor.file.as_deref());
            let holders = host.lock_holders(target.pid(), calls::wanted_lock(target, call), path);
            holders.map(|holders| vec![of(target, OutsideKind::FileLock, holders)])
        }
        Some(OutsideKind::Child) => relatives::awaited_by(target, lwp, call).map(|one| vec![one]),
        _ => None,
    };
    found.unwrap_or_default()
}

pub(super) fn of(target: &dyn Target, kind: OutsideKind, holders: Holders) -> FoundPartners {
    let (direction, socket, fifo, what, about, is_named, is_hint) = Default::default();
    let (relation, own) = (Relation::Child, target.pid());
    FoundPartners { kind, direction, holders, socket, fifo, relation, own, what, about, is_named, is_hint }
}

/// Who has the other end of one of `number` descriptors that a thread waits at.
fn at_only(host: &Host, target: &dyn Target, awaited: Awaited, number: usize) -> Option<FoundPartners> {
    let eventfd = if number == 1 { shared::eventfd(host, target, awaited) } else { None };
    eventfd.or_else(|| at_descriptor(host, target, awaited))
}

/// The path of the FIFO that a thread waits to open: until somebody opens the other end.
pub(super) fn opened_fifo(target: &dyn Target, lwp: Lwp, call: &Syscall) -> Option<String> {
    /// The function of the kernel that waits for that.
    const WAITS_FOR_OTHER_END: &str = "wait_for_partner";
    let path = calls::path_of(target, call, target.limits()).filter(|_| call.name.starts_with("open"))?;
    target.wait_channel(lwp).filter(|function| function.contains(WAITS_FOR_OTHER_END)).map(|_| path)
}

/// Who could end the wait of a call that moves bytes from one descriptor to another: it waits at one of the two.
fn transfer(host: &Host, target: &dyn Target, lwp: Lwp, call: &Syscall) -> Option<Vec<FoundPartners>> {
    let mut ends = calls::awaited(target, call);
    // Nobody waits for a file.
    ends.retain(|end| {
        let link = target.descriptor_file(end.number).unwrap_or_default();
        link.starts_with("pipe:[") || link.starts_with("socket:[") || target.is_fifo(end.number)
    });
    if ends.len() > 1
        && let Some(direction) = target.wait_channel(lwp).and_then(|function| calls::direction_in(&function))
    {
        ends.retain(|end| end.direction == direction);
    }
    ends.iter().map(|end| at_descriptor(host, target, *end)).collect()
}

/// Who has the other end of what a descriptor of `target` leads to.
pub(super) fn at_descriptor(host: &Host, target: &dyn Target, awaited: Awaited) -> Option<FoundPartners> {
    let Awaited { number, direction } = awaited;
    let link = target.descriptor_file(number)?;
    let pid = target.pid();
    let reads = direction == Direction::Input;
    if relatives::is_process(&link) {
        return relatives::behind_descriptor(target, number);
    }
    if link.starts_with("socket:[") {
        return at_socket(host, target, host.socket(pid, &link)?, direction);
    }
    if let Some(one) = shared::terminal(host, target, awaited, &link) {
        return Some(one);
    }
    if !link.starts_with("pipe:[") && !target.is_fifo(number) {
        return None;
    }
    let holders = host.at_pipe(&link, (pid, number), |end| if reads { end.writes } else { end.reads });
    let is_named = is_named(&link);
    Some(FoundPartners { direction: Some(direction), is_named, ..of(target, OutsideKind::Pipe, holders) })
}

/// Whether a descriptor with this link leads to what has a name, and has it still.
pub(super) fn is_named(link: &str) -> bool {
    link.starts_with('/') && !link.ends_with(" (deleted)")
}

fn at_socket(host: &Host, target: &dyn Target, socket: Socket, direction: Direction) -> Option<FoundPartners> {
    let holders = match &socket.other_end {
        OtherEnd::Socket(inode) => host.at_sockets(&[*inode]),
        OtherEnd::Listeners(inodes) => host.at_sockets(inodes),
        // Anybody may come, from anywhere.
        OtherEnd::Anybody => return None,
        OtherEnd::NotHere => Holders { places: Vec::new(), is_recorded: false, is_whole: false },
    };
    let (direction, socket) = (Some(direction), Some(socket));
    Some(FoundPartners { direction, socket, ..of(target, OutsideKind::Socket, holders) })
}

//! Who could end a wait for what processes share beside pipes and sockets: terminals, eventfds, queues and semaphores.

use super::calls::{self, Awaited};
use super::partners::{FoundPartners, is_named, of};
use super::words::count;
use crate::host::{self, Holders, Host, LastUser, TerminalSide};
use crate::memory::Memory;
use crate::model::{Direction, OutsideKind, Syscall};
use crate::target::Target;
use crate::{Pid, RemoteAddr};

/// Who has the other side of the terminal that a descriptor leads to.
pub(super) fn terminal(host: &Host, target: &dyn Target, awaited: Awaited, link: &str) -> Option<FoundPartners> {
    if !calls::is_terminal(link) {
        return None;
    }
    let (side, holders) = host.terminal((target.pid(), awaited.number))?;
    let direction = Some(awaited.direction);
    let about = Some(of_terminal(side, awaited.direction, &holders));
    Some(FoundPartners { direction, about, ..of(target, OutsideKind::Terminal, holders) })
}

fn of_terminal(side: TerminalSide, direction: Direction, holders: &Holders) -> String {
    let name = format!("/dev/pts/{}", side.index);
    match (side.is_master, direction) {
        (false, Direction::Input) => format!("input from terminal {name}"),
        (false, Direction::Output) => format!("room in terminal {name}, whose output is full or was stopped (Ctrl-S)"),
        (true, _) => {
            let front = side.foreground(&holders.pids());
            let name_of = |pid: &Pid| format!("{} (pid {pid})", host::name_of(*pid).unwrap_or_default());
            let names: Vec<String> = front.iter().map(name_of).collect();
            match names.is_empty() {
                true => format!("terminal {name}"),
                false => format!("terminal {name}, in whose foreground is {}", names.join(", ")),
            }
        }
    }
}

/// Who has the eventfd that a descriptor leads to.
pub(super) fn eventfd(host: &Host, target: &dyn Target, awaited: Awaited) -> Option<FoundPartners> {
    let link = target.descriptor_file(awaited.number)?;
    let holders = host.at_eventfd((target.pid(), awaited.number), &link)?;
    let about = match awaited.direction {
        Direction::Input => "the count of the eventfd is zero",
        Direction::Output => "the count of the eventfd is as large as can be",
    };
    let (direction, about) = (Some(awaited.direction), Some(about.to_owned()));
    Some(FoundPartners { direction, about, ..of(target, OutsideKind::Eventfd, holders) })
}

/// Who uses the queue or the semaphore that a call waits for.
pub(super) fn partners(host: &Host, target: &dyn Target, call: &Syscall) -> Option<FoundPartners> {
    let id = call.args[0] as i32;
    match &*call.name {
        "mq_timedreceive" => named_queue(host, target, id, Direction::Input),
        "mq_timedsend" => named_queue(host, target, id, Direction::Output),
        "msgrcv" => Some(queue(host, target, id, Direction::Input)),
        "msgsnd" => Some(queue(host, target, id, Direction::Output)),
        "semop" | "semtimedop" => semaphore(host, target, call),
        _ => None,
    }
}

fn named_queue(host: &Host, target: &dyn Target, number: i32, direction: Direction) -> Option<FoundPartners> {
    let link = target.descriptor_file(number)?;
    let reads = direction == Direction::Input;
    let place = (target.pid(), number);
    let holders = host.at_named_queue(&link, place, |end| if reads { end.writes } else { end.reads });
    let state = if reads { "empty" } else { "full" };
    let (direction, about) = (Some(direction), Some(format!("message queue {link} is {state}")));
    let is_named = is_named(&link);
    Some(FoundPartners { direction, about, is_named, ..of(target, OutsideKind::MessageQueue, holders) })
}

/// The kernel does not tell who could use a queue of System V, only who did so last.
fn queue(host: &Host, target: &dyn Target, id: i32, direction: Direction) -> FoundPartners {
    let (about, last) = match (host.message_queue(target.pid(), id), direction) {
        (Err(why), _) => (format!("System V queue {id}: {why}"), LastUser::Nobody),
        (Ok(queue), Direction::Input) => {
            // Messages of other types may be there.
            let state = match queue.messages {
                0 => "is empty".to_owned(),
                number => format!("has {} of other types", messages(number)),
            };
            (format!("System V queue {id} {state}; {}", who("sent to it", queue.sent, target.pid())), queue.sent)
        }
        (Ok(queue), Direction::Output) => {
            let state = format!("has {}, {} bytes", messages(queue.messages), queue.bytes);
            let who = who("received from it", queue.received, target.pid());
            (format!("System V queue {id} {state}; {who}"), queue.received)
        }
    };
    let direction = Some(direction);
    let what = Some(format!("System V queue {id}"));
    FoundPartners { direction, what, ..by_last(target, OutsideKind::MessageQueue, about, last) }
}

fn messages(number: u64) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), "message", "messages")
}

fn semaphore(host: &Host, target: &dyn Target, call: &Syscall) -> Option<FoundPartners> {
    let id = call.args[0] as i32;
    let wanted = operations(target, call)?;
    let blocked = |operation: &Operation| {
        let found = host.system_semaphore(target.pid(), id, operation.number.into());
        found.as_ref().map_or(true, |found| operation.waits_at(found.value)).then_some((*operation, found))
    };
    let (operation, found) = wanted.iter().find_map(blocked)?;
    let name = format!("semaphore {} of System V set {id}", operation.number);
    let (about, last) = match found {
        Err(why) => (format!("{name}: {why}"), LastUser::Nobody),
        Ok(found) => {
            let wants = match operation.change {
                0 => "zero is waited for".to_owned(),
                change => format!("{} is to be taken", change.unsigned_abs()),
            };
            let state = format!("{name} is {}, {wants}", found.value);
            (format!("{state}; {}", who("changed it", found.changed, target.pid())), found.changed)
        }
    };
    Some(FoundPartners { what: Some(name), ..by_last(target, OutsideKind::Semaphore, about, last) })
}

/// One `struct sembuf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    number: u16,
    change: i16,
}

impl Operation {
    fn waits_at(self, value: i32) -> bool {
        match self.change {
            0 => value != 0,
            change => value + i32::from(change) < 0,
        }
    }
}

/// The operations of a call, of which one cannot be done.
fn operations(memory: &dyn Memory, call: &Syscall) -> Option<Vec<Operation>> {
    /// The kernel takes no more in one call.
    const MOST: u64 = 500;
    const SIZE: usize = 6;
    let mut bytes = vec![0; SIZE * call.args[2].min(MOST) as usize];
    memory.read_exact(RemoteAddr(call.args[1]), &mut bytes).ok()?;
    let operation = |bytes: &[u8; SIZE]| Operation {
        number: u16::from_le_bytes([bytes[0], bytes[1]]),
        change: i16::from_le_bytes([bytes[2], bytes[3]]),
    };
    Some(bytes.as_chunks().0.iter().map(operation).collect())
}

fn by_last(target: &dyn Target, kind: OutsideKind, about: String, last: LastUser) -> FoundPartners {
    let places = match last {
        LastUser::Process(pid) => vec![(pid, None)],
        LastUser::Ended(_) | LastUser::Nobody => Vec::new(),
    };
    // Any process may use it that has the permission.
    let holders = Holders { places, is_recorded: false, is_whole: false };
    FoundPartners { about: Some(about), is_hint: true, ..of(target, kind, holders) }
}

/// `who changed it last (pid 7) has ended`, or the beginning of a sentence that goes on with the process.
fn who(did: &str, last: LastUser, own: Pid) -> String {
    match last {
        LastUser::Nobody => format!("it is not known who {did} last"),
        LastUser::Ended(pid) => format!("who {did} last (pid {pid}) has ended"),
        LastUser::Process(pid) if pid == own => format!("who {did} last is the process itself"),
        LastUser::Process(_) => format!("who {did} last is"),
    }
}

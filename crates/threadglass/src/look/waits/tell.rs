//! Waits across processes in words: who is at the other end, and what that one does.

use super::calls;
use super::knot::Spot;
use super::net::{Net, NetThread};
use super::partners::{FoundPartners, Relation, at_descriptor};
use super::verdict::verdict;
use super::words::count;
use crate::Pid;
use crate::host::{self, OtherEnd, TcpTimes};
use crate::model::{Direction, Evidence, OutsideKind, OutsideWait, Partner, VerdictKind, signal_name};
use crate::target::Live;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

/// Partners that are told of.
const PARTNERS: usize = 8;
/// Processes that a wait is told through.
const HOPS: usize = 8;
/// Processes that a chain of waits is followed through to its end.
const LONGEST: usize = 64;
/// Sockets of an event loop that are asked for answers that it waits for.
const ASKED: usize = 64;

pub(super) struct Teller<'a> {
    net: &'a Net,
    names: RefCell<HashMap<Pid, String>>,
    by_time: RefCell<HashMap<(Spot, Pid), Option<Spot>>>,
    /// The process that the wait of each one leads to in the end, as far as that was asked for.
    ends: RefCell<HashMap<Pid, Option<Pid>>>,
    /// Whether only what is known already is told.
    is_brief: bool,
}

impl<'a> Teller<'a> {
    pub(super) fn new(net: &'a Net) -> Self {
        let (names, by_time, ends) = Default::default();
        Self { net, names, by_time, ends, is_brief: false }
    }

    /// One that reads nothing more of any process.
    pub(super) fn brief(net: &'a Net) -> Self {
        Self { is_brief: true, ..Self::new(net) }
    }

    /// `nginx (pid 4711)`
    fn name(&self, pid: Pid) -> String {
        let name = || host::name_of(pid).unwrap_or_else(|| "process".to_owned());
        let name = self.names.borrow_mut().entry(pid).or_insert_with(name).clone();
        format!("{name} (pid {pid})")
    }

    /// The thread of a process that seems to have taken the request of the one that waits.
    fn by_time(&self, waiter: Spot, end: &FoundPartners, pid: Pid) -> Option<Spot> {
        if self.is_brief || (end.kind, end.direction) != (OutsideKind::Socket, Some(Direction::Input)) {
            return None;
        }
        let find = || self.net.thread_by_time(waiter, pid);
        *self.by_time.borrow_mut().entry((waiter, pid)).or_insert_with(find)
    }

    /// Where the wait of a thread leads that waits at one place outside of the process.
    pub(super) fn wait(&self, spot: Spot) -> Option<OutsideWait> {
        let thread = self.net.threads.get(&spot)?;
        let [one] = thread.partners.as_slice() else { return None };
        let mut path = vec![spot.pid];
        let doing = self.doing_at(spot, one, &mut path);
        let file = thread.call.as_ref().and_then(|call| call.descriptors.first()?.file.clone());
        let wait = self.end_where(one, doing);
        Some(OutsideWait {
            timed: thread.call.as_ref().is_some_and(calls::is_timed),
            what: wait.what.or(file).or(one.fifo.clone()),
            text: wait.text + &self.or_children(thread),
            ..wait
        })
    }

    /// What is at the other end of one place.
    pub(super) fn end(&self, one: &FoundPartners) -> OutsideWait {
        self.end_where(one, None)
    }

    fn end_where(&self, one: &FoundPartners, doing: Option<String>) -> OutsideWait {
        let root = self.root_of(one);
        let partner = |pid: Pid| Partner {
            pid,
            name: host::name_of(pid),
            evidence: one.evidence(),
            doing: doing.clone().filter(|_| root == Some(pid)),
            lwp: self.net.thread_at(pid, &one.holders.numbers_of(pid)).map(|spot| spot.lwp),
        };
        OutsideWait {
            direction: one.direction,
            partners: one.others().into_iter().take(PARTNERS).map(partner).collect(),
            what: one.socket.as_ref().map(|socket| socket.what.clone()).or(one.what.clone()),
            unread: one.socket.as_ref().and_then(|socket| socket.unread_there),
            owed_by: one.owed_by(),
            ..OutsideWait::new(one.kind, self.at_end(one, doing.as_deref()))
        }
    }

    /// The threads of other processes that a wait leads to, hop by hop, as far as they can be told.
    pub(super) fn led_to(&self, spot: Spot) -> BTreeSet<Spot> {
        let mut found = BTreeSet::new();
        let mut at = spot;
        for _ in 0..HOPS {
            let one = match self.net.threads.get(&at).map(|thread| thread.partners.as_slice()) {
                Some([one]) => one,
                _ => break,
            };
            let Some(pid) = self.root_of(one) else { break };
            let next = self.net.thread_at(pid, &one.holders.numbers_of(pid)).or_else(|| self.by_time(at, one, pid));
            match next {
                Some(next) if found.insert(next) => at = next,
                Some(_) => break,
                None => break,
            }
        }
        found
    }

    /// Of several that could end a wait, the one that all others of them wait for, as a command waits for what it has started;
    /// or the one that all of them wait for, as the commands of a pipeline wait for the slow one.
    fn root_of(&self, one: &FoundPartners) -> Option<Pid> {
        let others = one.others();
        let waits_for_another = |pid: &Pid| {
            let next = self.only_wait(*pid).and_then(FoundPartners::only);
            next.is_some_and(|next| next != *pid && others.contains(&next))
        };
        let mut roots = others.iter().filter(|pid| !waits_for_another(pid));
        if let (Some(root), None) = (roots.next(), roots.next()) {
            return Some(*root);
        }
        let ends: BTreeSet<Option<Pid>> = others.iter().map(|pid| self.end_of_chain(*pid, LONGEST)).collect();
        ends.first().copied().flatten().filter(|_| ends.len() == 1)
    }

    /// What a process waits for that has one thread, which waits at one place.
    fn only_wait(&self, pid: Pid) -> Option<&'a FoundPartners> {
        let mut spots = self.net.spots_of(pid);
        let (Some(spot), None) = (spots.next(), spots.next()) else { return None };
        match self.net.threads.get(&spot)?.partners.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The process that the wait of another one leads to in the end: itself, if it waits for none. `None` if that can be several,
    /// or it waits in a circle.
    fn end_of_chain(&self, pid: Pid, hops: usize) -> Option<Pid> {
        if let Some(known) = self.ends.borrow().get(&pid) {
            return *known;
        }
        let Some(wait) = self.only_wait(pid).filter(|wait| !wait.others().is_empty()) else { return Some(pid) };
        let hops = hops.checked_sub(1)?;
        self.ends.borrow_mut().insert(pid, None);
        let ends: BTreeSet<Option<Pid>> = wait.others().iter().map(|next| self.end_of_chain(*next, hops)).collect();
        let end = ends.first().copied().flatten().filter(|_| ends.len() == 1);
        self.ends.borrow_mut().insert(pid, end);
        end
    }

    /// What the one does that a wait leads to, if it is one.
    fn doing_at(&self, waiter: Spot, one: &FoundPartners, path: &mut Vec<Pid>) -> Option<String> {
        let root = self.root_of(one)?;
        let doing = self.doing(waiter, root, one, path)?;
        match one.only() {
            Some(_) => Some(doing),
            None if one.others().contains(&root) => {
                Some(format!("of which all others wait for {}, {doing}", self.name(root)))
            }
            None => Some(format!("all of which wait for {}, {doing}", self.name(root))),
        }
    }

    /// What a process does that a wait leads to by `end`, and so on to the end of the chain.
    fn doing(&self, waiter: Spot, pid: Pid, end: &FoundPartners, path: &mut Vec<Pid>) -> Option<String> {
        if path.contains(&pid) {
            return Some("which waits in turn".to_owned());
        }
        path.push(pid);
        if pid.0 == std::process::id() as i32 {
            return Some("which takes this look".to_owned());
        }
        if let Some(why) = self.net.closed.get(&pid) {
            return Some(format!("which may not be looked into: {why}"));
        }
        let threads = self.net.spots_of(pid).count();
        match self.net.thread_at(pid, &end.holders.numbers_of(pid)) {
            Some(spot) => {
                let thread = self.net.threads.get(&spot)?;
                let name = thread.facts.name.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                let who = if threads == 1 { "which".to_owned() } else { format!("whose thread {name} ({})", spot.lwp) };
                Some(format!("{who} {}", self.thread(spot, thread, path)))
            }
            None if threads == 0 => None,
            None => {
                if let Some(spot) = self.by_time(waiter, end, pid) {
                    let doing = self.thread(spot, self.net.threads.get(&spot)?, path);
                    let when = format!("thread {} of them went to sleep when this wait began", spot.lwp);
                    return Some(format!("which has {threads} threads: {when}, and {doing}"));
                }
                let mut said = format!("which has {threads} threads");
                if let Some(snapshot) = self.net.snapshots.get(&pid) {
                    let mut snapshot = snapshot.clone();
                    snapshot.groups = super::groups::groups(&snapshot, &HashMap::new());
                    let verdict = verdict(&snapshot);
                    // What all its threads do is not told if nothing is wrong with that.
                    if verdict.kind <= VerdictKind::Behind {
                        said += &format!(": {}", verdict.text);
                    }
                }
                Some(said)
            }
        }
    }

    /// What one thread does: `runs`, `is reading (read of descriptor 3 (pipe:[1])): ..`.
    fn thread(&self, spot: Spot, thread: &NetThread, path: &mut Vec<Pid>) -> String {
        let is_stopped = thread.facts.state.is_stopped();
        let Some(call) = &thread.call else {
            return if is_stopped { format!("is stopped{}", by_signal(spot.pid)) } else { "runs".to_owned() };
        };
        let stopped = if is_stopped { format!("stopped{}, ", by_signal(spot.pid)) } else { String::new() };
        if let Some((_, lock)) = &thread.lock {
            return format!("is {stopped}waiting for {lock}");
        }
        let doing = format!("is {stopped}{}", calls::doing(call));
        match thread.partners.as_slice() {
            [one] if path.len() < HOPS => {
                let further = self.doing_at(spot, one, path);
                format!("{doing}: {}{}", self.at_end(one, further.as_deref()), self.or_children(thread))
            }
            // One that passes on what it gets from one to another waits for that other one.
            many @ [_, _, ..] if path.len() < HOPS => match self.besides(many, path) {
                Some(one) => {
                    let further = self.doing_at(spot, one, path);
                    format!("{doing}, besides for this: {}", self.at_end(one, further.as_deref()))
                }
                None => doing,
            },
            [] if self.net.is_idle(spot) && !self.is_brief => {
                format!("{doing}{}", self.open_requests(spot, thread, path))
            }
            _ => doing,
        }
    }

    /// The only one of several places at which others are than those that the chain has come through.
    fn besides<'p>(&self, many: &'p [FoundPartners], path: &[Pid]) -> Option<&'p FoundPartners> {
        let mut others = many.iter().filter(|one| one.others().iter().any(|pid| !path.contains(pid)));
        match (others.next(), others.next()) {
            (Some(one), None) => Some(one),
            _ => None,
        }
    }

    /// What an event loop has asked others and got no answer to, in words.
    fn open_requests(&self, spot: Spot, thread: &NetThread, path: &[Pid]) -> String {
        let requests = self.requests(spot, thread).into_iter().filter(|(pid, _)| !path.contains(pid));
        let told: Vec<String> = requests.map(|(_, told)| told).collect();
        match told.is_empty() {
            true => String::new(),
            false => format!("; it has asked {} and got no answer yet", told.join(", ")),
        }
    }

    /// Whom an event loop has asked and got no answer from, by the times of its TCP connections.
    fn requests(&self, spot: Spot, thread: &NetThread) -> Vec<(Pid, String)> {
        let Some((call, target)) = thread.call.as_ref().zip(Live::open(spot.pid).ok()) else { return Vec::new() };
        let sockets = calls::awaited(&target, call).into_iter().take(ASKED);
        let owed = sockets.filter_map(|awaited| {
            let awaited = calls::Awaited { direction: Direction::Input, ..awaited };
            at_descriptor(&self.net.host, &target, awaited).filter(|one| one.owed_by().is_some())
        });
        owed.filter_map(|one| Some((one.only()?, format!("{} ({})", self.name(one.only()?), what_waits(&one)))))
            .take(PARTNERS)
            .collect()
    }

    /// The wait of an event loop that has asked others: for their answers.
    pub(super) fn answers(&self, spot: Spot) -> Option<OutsideWait> {
        let thread = self.net.threads.get(&spot).filter(|thread| thread.partners.is_empty())?;
        let requests = self.requests(spot, thread);
        let (first, _) = requests.first()?;
        let partner = |pid: &Pid| Partner {
            pid: *pid,
            name: host::name_of(*pid),
            evidence: Evidence::Inferred,
            doing: None,
            lwp: None,
        };
        let told: Vec<&str> = requests.iter().map(|(_, told)| told.as_str()).collect();
        let text = format!("it has asked {} and got no answer yet", told.join(", "));
        // An event loop that is left after some time comes back, and waits for the answer as before.
        Some(OutsideWait {
            partners: requests.iter().map(|(pid, _)| partner(pid)).collect(),
            owed_by: Some(*first).filter(|_| requests.len() == 1),
            ..OutsideWait::new(OutsideKind::EventLoop, text)
        })
    }

    /// Who is at the other end. `doing` is what the only one does.
    fn at_end(&self, one: &FoundPartners, doing: Option<&str>) -> String {
        let others = one.others();
        let mut who: Vec<String> = others.iter().take(PARTNERS).map(|pid| self.name(*pid)).collect();
        if let Some(more @ 1..) = others.len().checked_sub(PARTNERS) {
            who.push(format!("{more} more"));
        }
        let mut who = who.join(", ");
        who += &doing.map(|doing| format!(", {doing}")).unwrap_or_default();
        if let Some(about) = &one.about {
            return at_shared(one, about, others.len(), &who);
        }
        let socket = one.socket.as_ref().map(|socket| format!("{}: ", socket.what)).unwrap_or_default();
        let is_whole = one.holders.is_whole;
        let far = one.socket.as_ref().is_some_and(|socket| socket.other_end == OtherEnd::NotHere);
        let text = match (one.kind, others.len()) {
            (OutsideKind::Socket, 0) if far && what_waits(one).starts_with("unix") => {
                "who listens there was not found".to_owned()
            }
            (OutsideKind::Socket, 0) if far => {
                "the other end is on another machine, or behind a translation of addresses".to_owned()
            }
            (OutsideKind::Pipe, 0) if one.fifo.is_some() => {
                format!("nobody has opened the other end of the FIFO {}", one.fifo.as_deref().unwrap_or_default())
            }
            (OutsideKind::FileLock, 0) if !one.holders.places.is_empty() => {
                let numbers: Vec<String> = one.holders.numbers_of(one.own).iter().map(i32::to_string).collect();
                format!("the process itself holds the lock, by its descriptor {}", numbers.join(" and "))
            }
            (OutsideKind::FileLock, 0) if is_whole => "who held the lock has let go of it meanwhile".to_owned(),
            (OutsideKind::FileLock, 0) => {
                "who holds the lock cannot be seen from here: not all processes can be looked into".to_owned()
            }
            (OutsideKind::Pipe, 0) if is_whole && one.is_named => {
                "nobody else has the FIFO open; any process may open it".to_owned()
            }
            (OutsideKind::Pipe | OutsideKind::Socket, 0) if is_whole && self.net.is_under_way() => {
                "no process has the other end open but this one itself; descriptors are on their way between processes, \
                 and one of them may lead there"
                    .to_owned()
            }
            // Another thread of the process may use it.
            (OutsideKind::Pipe, 0) if is_whole && self.net.spots_of(one.own).count() > 1 => {
                "no other process has the other end open, only this one itself".to_owned()
            }
            (OutsideKind::Pipe, 0) if is_whole && is_own(one) => match one.direction {
                Some(Direction::Output) => "the only reading end left is its own".to_owned(),
                _ => "the only writing end left is its own".to_owned(),
            },
            (OutsideKind::Socket, 0) if is_whole && is_own(one) => "the only other end left is its own".to_owned(),
            (_, 0) if !is_whole => {
                "who has the other end cannot be seen from here: not all processes can be looked into".to_owned()
            }
            (_, 0) => "no other process has the other end".to_owned(),
            (OutsideKind::Child, number) => relation(one.relation, number, &who),
            (OutsideKind::FileLock, _) => format!("the lock is held by {who}"),
            _ if one.socket.as_ref().is_some_and(|socket| matches!(socket.other_end, OtherEnd::Listeners(_))) => {
                let before = one.socket.as_ref().and_then(|socket| socket.before);
                match before.and_then(|before| usize::try_from(before).ok()) {
                    Some(before) => {
                        let waiting = count(before, "connection waits", "connections wait");
                        format!("the queue is full: {waiting} to be accepted by {who}")
                    }
                    None => format!("the connection has not been accepted by {who}"),
                }
            }
            _ => format!("the other end is open in {who}"),
        };
        format!("{socket}{text}{}", self.queue(one))
    }

    /// The children whose end wakes a thread, too.
    fn or_children(&self, thread: &NetThread) -> String {
        let names: Vec<String> = thread.children.iter().take(PARTNERS).map(|pid| self.name(*pid)).collect();
        match names.is_empty() || thread.partners.iter().any(|one| one.kind == OutsideKind::Child) {
            true => String::new(),
            false => format!("; the end of a child wakes it, too: {}", names.join(", ")),
        }
    }

    /// Who has to act, by the bytes on the way and the times of the last ones.
    fn queue(&self, one: &FoundPartners) -> String {
        let Some(socket) = one.socket.as_ref().filter(|_| !is_own(one)) else { return String::new() };
        let them = match one.only() {
            Some(pid) => self.name(pid),
            None => "the other side".to_owned(),
        };
        let bytes = |number: u64| match socket.is_datagram {
            true => "datagrams".to_owned(),
            false => count(usize::try_from(number).unwrap_or(usize::MAX), "byte", "bytes"),
        };
        let spoke_last = socket.times.and_then(TcpTimes::has_spoken_last);
        let time = |ms: Option<u32>| ms.map(|ms| format!(", {} ago", ago(ms))).unwrap_or_default();
        match (one.direction, socket.unread_there, socket.times) {
            (Some(Direction::Output), Some(unread @ 1..), _) => {
                format!("; {them} is the slow side: {} wait to be read", bytes(unread))
            }
            (Some(Direction::Input), Some(unread @ 1..), _) if socket.is_accepted => {
                format!("; {them} has not read {} that were sent", bytes(unread))
            }
            (Some(Direction::Input), Some(0), Some(times)) if socket.is_accepted && spoke_last == Some(true) => {
                let when = time(times.sent_ms_ago);
                format!("; no answer is owed: {them} has asked nothing since it got the last one{when}")
            }
            (Some(Direction::Input), Some(unread @ 1..), _) if spoke_last != Some(false) => {
                format!("; {them} owes an answer: it has not read {} that were sent", bytes(unread))
            }
            (Some(Direction::Input), Some(0), Some(times)) if spoke_last == Some(true) => {
                format!("; {them} owes an answer: it has read all that was sent{}", time(times.sent_ms_ago))
            }
            (Some(Direction::Input), _, Some(times)) if spoke_last == Some(false) => {
                let when = time(times.received_ms_ago);
                format!("; no answer is owed: nothing was sent since {them} spoke last{when}")
            }
            (Some(Direction::Input), Some(0), None) => format!("; {them} has read all that was sent"),
            _ => String::new(),
        }
    }

    /// The waits of threads that wait for each other, one after another.
    pub(super) fn steps(&self, spots: &[Spot]) -> String {
        let steps: Vec<String> = spots.iter().map(|spot| self.step(*spot, spots)).collect();
        steps.join("; ")
    }

    fn step(&self, spot: Spot, all: &[Spot]) -> String {
        let Some(thread) = self.net.threads.get(&spot) else { return self.name(spot.pid) };
        let has_several = self.net.spots_of(spot.pid).count() > 1;
        let process = self.name(spot.pid);
        let who = if has_several { format!("thread {} of {process}", spot.lwp) } else { process };
        let doing = thread.call.as_ref().map(calls::doing).unwrap_or_default();
        let next = all.iter().position(|at| *at == spot).and_then(|at| all.get((at + 1) % all.len()));
        let next = next.filter(|next| **next != spot);
        match (&thread.lock, thread.partners.as_slice(), next) {
            (Some((_, lock)), _, Some(next)) => {
                let by = if next.pid == spot.pid { String::new() } else { format!(" of {}", self.name(next.pid)) };
                format!("{who} waits for {lock}, for which thread {}{by} has to act", next.lwp)
            }
            (Some((_, lock)), _, None) => format!("{who} waits for {lock}"),
            (None, [one], _) => format!("{who} is {doing}: {}{}", never(one), self.at_end(one, None)),
            (None, many, Some(next)) if !many.is_empty() => format!("{who} is {doing}: for {}", self.name(next.pid)),
            _ => format!("{who} is {doing}"),
        }
    }
}

/// The signal that job control has stopped a process by, in words.
fn by_signal(pid: Pid) -> String {
    let signal = host::job(pid).and_then(|job| job.stopped_by);
    signal.map(|signal| format!(" by {}", signal_name(signal))).unwrap_or_default()
}

/// Who is at what processes share beside pipes and sockets.
fn at_shared(one: &FoundPartners, about: &str, others: usize, who: &str) -> String {
    let (has_own, is_whole) = (!one.holders.places.is_empty(), one.holders.is_whole);
    match (one.kind, others) {
        _ if one.is_hint && others == 0 => about.to_owned(),
        _ if one.is_hint => format!("{about} {who}"),
        (_, 0) if !is_whole => {
            format!("{about}; who else has it open cannot be seen from here: not all processes can be looked into")
        }
        (OutsideKind::Terminal, 0) if has_own => format!("{about}; only the process itself has the other side"),
        (OutsideKind::Terminal, 0) => format!("{about}; no process has the other side"),
        (OutsideKind::Terminal, _) => format!("{about}; the other side is open in {who}"),
        (OutsideKind::Eventfd, 0) => format!("{about}; no other process has it"),
        (OutsideKind::Eventfd, _) => format!("{about}; it is also open in {who}"),
        (_, 0) => match one.direction {
            Some(Direction::Output) => format!("{about}; nobody else has it open to receive from it"),
            _ => format!("{about}; nobody else has it open to send to it"),
        },
        (_, _) => match one.direction {
            Some(Direction::Output) => format!("{about}; to receive from it, it is open in {who}"),
            _ => format!("{about}; to send to it, it is open in {who}"),
        },
    }
}

/// Whether only the process itself has the other end.
fn is_own(one: &FoundPartners) -> bool {
    one.others().is_empty() && !one.holders.places.is_empty()
}

/// What follows for a thread that cannot go on, if only its own process has the other end. Of one that was seen once this would be
/// too much: it may just be starting the process that will have that end.
fn never(one: &FoundPartners) -> &'static str {
    match (one.kind, one.direction) {
        _ if !is_own(one) => "",
        (OutsideKind::Pipe, Some(Direction::Output)) => "nobody will ever read: ",
        (OutsideKind::Pipe, _) => "nobody will ever write: ",
        (OutsideKind::Socket, _) => "nobody will ever send or receive: ",
        _ => "",
    }
}

/// What those are whose end a thread waits for, in words.
fn relation(relation: Relation, number: usize, who: &str) -> String {
    match (relation, number) {
        (Relation::Child, 1) => format!("the child is {who}"),
        (Relation::Child, _) => format!("its children are {who}"),
        (Relation::Signals, 1) => format!("it is told of the end of its child {who}"),
        (Relation::Signals, _) => format!("it is told of the end of its children {who}"),
        (Relation::Traced, 1) => format!("it traces {who}"),
        (Relation::Traced, _) => format!("it traces these processes: {who}"),
        (Relation::Watched, _) => format!("for the end of {who}"),
    }
}

/// What a socket is, in words.
fn what_waits(one: &FoundPartners) -> &str {
    one.socket.as_ref().map(|socket| socket.what.as_str()).unwrap_or_default()
}

/// `3.2 s`
fn ago(ms: u32) -> String {
    if ms < 1000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1000, ms % 1000 / 100) }
}

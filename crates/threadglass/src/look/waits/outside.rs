//! Waits that leave the process: who is at the other end, and what that one does.

use super::calls::{self, Outside};
use super::findings::finding;
use super::glance::glance;
use super::look::has_not_moved;
use crate::host::{self, Holders, Host};
use crate::model::{
    Certainty, Evidence, Finding, FindingKind, Member, OutsideKind, OutsideWait, Partner, Snapshot, Syscall,
    ThreadState,
};
use crate::target::{LwpFacts, Target};
use crate::{Lwp, Pid};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;

/// Different waits of one process that are followed.
const FOLLOWED: usize = 8;
const MANY_WAITS: &str = "one look follows eight different waits out of the process";
/// Processes on the way of a wait after which none with several threads is looked at any more.
const LOOKS: usize = 2;
/// Processes that a wait is followed through.
const HOPS: usize = 8;
/// For how long processes must stand still that are said to wait for each other.
const MOMENT: Duration = Duration::from_millis(20);
/// Partners that are told of.
const PARTNERS: usize = 8;

/// A wait that was followed.
#[derive(Clone)]
pub(crate) struct Followed {
    pub(crate) wait: OutsideWait,
    /// The processes that it leads through, where each has one partner only; it ends where it began if they wait in a circle.
    pub(crate) path: Vec<Pid>,
    /// Whether nobody but the process itself could end the wait.
    pub(crate) is_alone: bool,
}

/// Follows waits of a target out of its process.
pub(crate) struct Follower<'a> {
    target: &'a dyn Target,
    host: Rc<Host>,
    /// Processes from which waits lead here.
    from: &'a [Pid],
    /// How many ways may still be followed.
    left: usize,
    /// By call, descriptor and argument: threads that wait in the same way wait for the same.
    followed: HashMap<(i64, Option<String>, u64), Option<Followed>>,
}

impl<'a> Follower<'a> {
    /// Waits of processes in `from`, which were looked at before, lead here.
    pub(crate) fn new(target: &'a dyn Target, host: &Rc<Host>, from: &'a [Pid]) -> Self {
        Self { target, host: host.clone(), from, left: FOLLOWED, followed: HashMap::new() }
    }

    /// Where the wait of a thread in `call` leads, if it leaves the process. If it is `important`, a partner that has several
    /// threads is looked at, too.
    pub(crate) fn follow(&mut self, call: &Syscall, important: bool) -> Option<Followed> {
        let kind = calls::kind_of(call).filter(|kind| has_partner(*kind))?;
        let file = call.descriptors.first().and_then(|descriptor| descriptor.file.clone());
        let way = (call.number, file, call.args[0]);
        if let Some(known) = self.followed.get(&way) {
            return known.clone();
        }
        if self.left == 0 || self.target.limits().is_over() {
            self.target.limits().leave_out("who is at the other end of some waits", MANY_WAITS);
            return None;
        }
        self.left -= 1;
        let found = self.follow_anew(kind, call, important);
        self.followed.insert(way, found.clone());
        found
    }

    /// Follows the waits of `snapshot` that leave the process: of roots first, then of others.
    pub(crate) fn add_to(&mut self, snapshot: &mut Snapshot) {
        // The processes of this machine are not those of a core: it may be of another time and place.
        if snapshot.target.core.is_some() {
            return;
        }
        let roots: BTreeSet<Lwp> =
            snapshot.findings.iter().filter_map(|finding| finding.threads.last().copied()).collect();
        let mut order: Vec<usize> = (0..snapshot.threads.len()).collect();
        order.sort_by_key(|index| !snapshot.threads[*index].lwp.is_some_and(|lwp| roots.contains(&lwp)));
        let living = snapshot.threads.iter().filter(|thread| thread.state != ThreadState::Zombie).count();
        for index in order {
            let Some(call) = snapshot.threads[index].syscall.clone() else { continue };
            let Some(lwp) = snapshot.threads[index].lwp else { continue };
            let Some(followed) = self.follow(&call, living == 1 || roots.contains(&lwp)) else { continue };
            let text = followed.wait.text.clone();
            let chains = snapshot.findings.iter_mut().filter(|finding| finding.kind == FindingKind::LongChain);
            for finding in chains.filter(|finding| finding.threads.last() == Some(&lwp)) {
                finding.text += &format!("; {text}");
            }
            // Where the process has other threads, one of them may do what this one waits for.
            let pid = self.target.pid();
            let kind = match followed.path.as_slice() {
                path @ [first, .., last] if first == last && living == 1 => {
                    stand_still(self.target, path).then_some(FindingKind::ProcessCircle)
                }
                _ if followed.is_alone && living == 1 => Some(FindingKind::NobodyLeft),
                _ => None,
            };
            if let Some(kind) = kind {
                // A handler may write to a pipe of its own process.
                let handled = self.target.handled_signals().filter(|_| kind == FindingKind::NobodyLeft);
                let (certainty, only) = match handled {
                    Some(signals) if !signals.is_empty() => {
                        (Certainty::Possible, format!("; only a signal handler could end that (of {signals})"))
                    }
                    _ => (Certainty::Likely, String::new()),
                };
                let circle = followed.path.iter().skip(1).filter(|other| **other != pid);
                let member = |pid: &Pid| Member { pid: *pid, lwp: None, object: None };
                let members = [Member { pid, lwp: Some(lwp), object: None }].into_iter().chain(circle.map(member));
                snapshot.findings.push(Finding {
                    members: members.collect(),
                    text: format!("{} is {}: {text}{only}", snapshot.target.name, calls::doing(&call)),
                    ..finding(kind, certainty, vec![lwp], Vec::new(), Vec::new())
                });
            }
            snapshot.threads[index].waits_outside = Some(Box::new(followed.wait));
        }
    }

    fn follow_anew(&self, kind: OutsideKind, call: &Syscall, important: bool) -> Option<Followed> {
        let pid = self.target.pid();
        let found = partners(&self.host, pid, kind, call)?;
        let by_itself = matches!(kind, OutsideKind::Pipe | OutsideKind::FileLock);
        let is_alone = by_itself && found.holders.pids.is_empty() && found.holders.is_whole;
        let mut chain =
            WaitChain { target: self.target, host: &self.host, from: self.from, important, path: vec![pid] };
        let doing = found.only().and_then(|next| chain.doing_of(next));
        let partners = found.named(doing.as_deref());
        let text = found.text(kind, &partners);
        Some(Followed { wait: OutsideWait { kind, partners, text }, path: chain.path, is_alone })
    }
}

/// Whether a wait of this kind is for another process.
fn has_partner(kind: OutsideKind) -> bool {
    matches!(kind, OutsideKind::Pipe | OutsideKind::Socket | OutsideKind::FileLock | OutsideKind::Child)
}

/// Says what the threads of `snapshot` wait for outside of the process, as far as their calls tell.
pub(super) fn add_kinds(snapshot: &mut Snapshot) {
    for thread in &mut snapshot.threads {
        let plain = |call: &Syscall| {
            let kind = calls::kind_of(call)?;
            Some(OutsideWait { kind, partners: Vec::new(), text: calls::doing(call) })
        };
        thread.waits_outside = thread.syscall.as_ref().and_then(plain).map(Box::new);
    }
}

/// A wait on its way through processes.
struct WaitChain<'a> {
    target: &'a dyn Target,
    host: &'a Rc<Host>,
    from: &'a [Pid],
    important: bool,
    path: Vec<Pid>,
}

/// Whether processes of one thread each stand still where they were.
pub(crate) fn stand_still(target: &dyn Target, path: &[Pid]) -> bool {
    let facts = || -> Option<Vec<LwpFacts>> {
        let of = |pid: &Pid| {
            let other = target.other(*pid)?;
            other.facts(&other.lwps().ok()?).pop().flatten()
        };
        path.iter().map(of).collect()
    };
    let before = facts();
    std::thread::sleep(MOMENT);
    let pairs = before.zip(facts());
    pairs.is_some_and(|(before, now)| before.iter().zip(&now).all(|(before, now)| has_not_moved(before, now)))
}

impl WaitChain<'_> {
    /// What a process does that has one thread, and so on to the end of the chain.
    fn doing_of(&mut self, pid: Pid) -> Option<String> {
        let is_known = self.path.contains(&pid) || self.from.contains(&pid);
        self.path.push(pid);
        if is_known {
            return Some("so they wait for each other in a circle".to_owned());
        }
        if pid.0 == std::process::id() as i32 {
            return Some("which takes this look".to_owned());
        }
        let other = self.target.other(pid)?;
        let lwps = other.lwps().ok()?;
        let [lwp] = lwps.as_slice() else {
            let from: Vec<Pid> = self.from.iter().chain(&self.path).copied().filter(|it| *it != pid).collect();
            let is_worthwhile = self.important && self.from.len() < LOOKS;
            let seen = is_worthwhile.then(|| glance(&*other, self.host, &from)).flatten();
            let verdict = seen.and_then(|snapshot| snapshot.verdict).map(|verdict| format!(": {}", verdict.text));
            return Some(format!("which has {} threads{}", lwps.len(), verdict.unwrap_or_default()));
        };
        let facts = other.facts(&[*lwp]).pop().flatten()?;
        let Some(mut call) = facts.syscall.and_then(|call| call.call()) else {
            return Some(match facts.state.is_stopped() {
                true => "which is stopped".to_owned(),
                false => "which runs".to_owned(),
            });
        };
        calls::add_descriptors_of(&*other, &mut call);
        let stopped = if facts.state.is_stopped() { "stopped, " } else { "" };
        let doing = format!("which is {stopped}{}", calls::doing(&call));
        let kind = calls::kind_of(&call).filter(|kind| has_partner(*kind) && self.path.len() < HOPS);
        let next = kind.and_then(|kind| Some((kind, partners(self.host, pid, kind, &call)?)));
        let Some((kind, found)) = next else { return Some(doing) };
        let further = found.only().and_then(|next| self.doing_of(next));
        let partners = found.named(further.as_deref());
        Some(format!("{doing}: {}", found.text(kind, &partners)))
    }
}

/// Who could end a wait.
struct FoundPartners {
    holders: Holders,
    /// Of a socket: what it is, with its addresses.
    socket: Option<String>,
}

impl FoundPartners {
    /// The one that it must be.
    fn only(&self) -> Option<Pid> {
        match self.holders.pids.as_slice() {
            [(pid, _)] => Some(*pid),
            _ => None,
        }
    }

    /// The processes by name. `doing` is what the only one does.
    fn named(&self, doing: Option<&str>) -> Vec<Partner> {
        let partner = |(pid, evidence): &(Pid, Evidence)| Partner {
            pid: *pid,
            name: host::name_of(*pid),
            evidence: *evidence,
            doing: doing.map(str::to_owned),
        };
        self.holders.pids.iter().take(PARTNERS).map(partner).collect()
    }

    fn text(&self, kind: OutsideKind, partners: &[Partner]) -> String {
        let all = self.holders.pids.len();
        let list: Vec<String> = partners
            .iter()
            .map(|partner| format!("{} (pid {})", partner.name.as_deref().unwrap_or("process"), partner.pid))
            .collect();
        let more = if all > list.len() { format!(" and {} more", all - list.len()) } else { String::new() };
        let doing = partners.first().and_then(|partner| partner.doing.as_ref()).filter(|_| all == 1);
        let doing = doing.map(|doing| format!(", {doing}")).unwrap_or_default();
        let who = format!("{}{more}{doing}", list.join(", "));
        let socket = self.socket.as_ref().map(|socket| format!("{socket}: ")).unwrap_or_default();
        match (kind, all) {
            (OutsideKind::Pipe | OutsideKind::Socket | OutsideKind::FileLock, 0) if !self.holders.is_whole => {
                let whose = if kind == OutsideKind::FileLock { "holds the lock" } else { "has the other end" };
                format!("{socket}who {whose} cannot be seen from here: not all processes can be looked into")
            }
            (OutsideKind::Pipe, 0) => "no other process has the other end open, only this one itself".to_owned(),
            (OutsideKind::FileLock, 0) => "only the process itself holds the lock, by another descriptor".to_owned(),
            (OutsideKind::Child, 1) => format!("the child is {who}"),
            (OutsideKind::Child, _) => format!("its children are {who}"),
            (OutsideKind::FileLock, _) => format!("the lock is held by {who}"),
            (_, 0) => format!("{socket}no other process of its network namespace has the other end"),
            _ => format!("{socket}the other end is open in {who}"),
        }
    }
}

/// Who could end the wait of a thread of `pid` in `call`. `None` where it cannot be told what is there.
fn partners(host: &Host, pid: Pid, kind: OutsideKind, call: &Syscall) -> Option<FoundPartners> {
    let file = call.descriptors.first().and_then(|descriptor| descriptor.file.as_deref());
    let of = |holders: Holders| Some(FoundPartners { holders, socket: None });
    match kind {
        OutsideKind::Pipe => {
            let reads = calls::outside(call) == Outside::Input;
            of(host.at_pipe(pid, file?, |end: &host::OpenEnd| if reads { end.writes } else { end.reads }))
        }
        OutsideKind::Socket => {
            let socket = host.socket(pid, file?)?;
            let nobody = Holders { pids: Vec::new(), is_whole: true };
            let holders = socket.peer.map_or(nobody, |peer| host.at_socket(pid, &peer));
            Some(FoundPartners { holders, socket: Some(socket.what) })
        }
        OutsideKind::FileLock => of(host.lock_holders(pid, call.args[0] as i32)?),
        OutsideKind::Child => {
            let named = (call.name == "wait4" && call.args[0] as i32 > 0).then_some(Pid(call.args[0] as i32));
            let children = named.map_or_else(|| host::children(pid), |child| vec![child]);
            let evidence = if named.is_some() { Evidence::Recorded } else { Evidence::Derived };
            let pids: Vec<_> = children.into_iter().map(|pid| (pid, evidence)).collect();
            (!pids.is_empty()).then(|| of(Holders { pids, is_whole: true })).flatten()
        }
        _ => None,
    }
}

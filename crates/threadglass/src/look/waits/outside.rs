//! Waits that leave the process: who is at the other end, and what that one does.

use super::calls::{self, Outside};
use super::look::has_not_moved;
use crate::Pid;
use crate::host::{self, Holders, Host};
use crate::model::{Evidence, OutsideKind, OutsideWait, Partner, Syscall};
use crate::target::{LwpFacts, Target};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Different waits of one process that are followed.
const FOLLOWED: usize = 8;
const MANY_WAITS: &str = "one look follows eight different waits out of the process";
/// Processes that a wait is followed through.
const HOPS: usize = 8;
/// For how long processes must stand still that are said to wait for each other.
const MOMENT: Duration = Duration::from_millis(20);
/// Partners that are told of.
const PARTNERS: usize = 8;

/// A wait that was followed.
#[derive(Clone)]
pub(super) struct Followed {
    pub(super) wait: OutsideWait,
    /// The processes that it leads through, where each has one partner only; it ends where it began if they wait in a circle.
    pub(super) path: Vec<Pid>,
    /// Whether nobody but the process itself could end the wait.
    pub(super) is_alone: bool,
}

/// Follows waits of a target out of its process.
pub(super) struct Follower<'a> {
    target: &'a dyn Target,
    host: Host,
    /// How many ways may still be followed.
    left: usize,
    /// By call, descriptor and argument: threads that wait in the same way wait for the same.
    followed: HashMap<(i64, Option<String>, u64), Option<Followed>>,
}

impl<'a> Follower<'a> {
    pub(super) fn new(target: &'a dyn Target) -> Self {
        Self { target, host: Host::new(target.limits()), left: FOLLOWED, followed: HashMap::new() }
    }

    /// Where the wait of a thread in `call` leads, if it leaves the process.
    pub(super) fn follow(&mut self, call: &Syscall) -> Option<Followed> {
        let file = call.descriptors.first().and_then(|descriptor| descriptor.file.clone());
        let is_channel = file.as_ref().is_some_and(|file| file.starts_with("pipe:") || file.starts_with("socket:"));
        match calls::outside(call) {
            Outside::Input | Outside::Output if is_channel => {}
            Outside::FileLock | Outside::Child => {}
            _ => return None,
        }
        let way = (call.number, file, call.args[0]);
        if let Some(known) = self.followed.get(&way) {
            return known.clone();
        }
        if self.left == 0 || self.target.limits().is_over() {
            self.target.limits().leave_out("who is at the other end of some waits", MANY_WAITS);
            return None;
        }
        self.left -= 1;
        let found = self.follow_anew(call);
        self.followed.insert(way, found.clone());
        found
    }

    fn follow_anew(&self, call: &Syscall) -> Option<Followed> {
        let pid = self.target.pid();
        let (kind, found) = partners(&self.host, pid, call)?;
        let is_alone = found.pids.is_empty() && found.is_whole && kind == OutsideKind::Pipe;
        let mut chain =
            WaitChain { target: self.target, host: &self.host, seen: BTreeSet::from([pid]), path: vec![pid] };
        let doing = match found.pids.as_slice() {
            [(next, _)] => chain.doing_of(*next),
            _ => None,
        };
        let partners = named(&found, doing.as_deref());
        let text = text(kind, &partners, &found);
        Some(Followed { wait: OutsideWait { kind, partners, text }, path: chain.path, is_alone })
    }
}

/// A wait on its way through processes.
struct WaitChain<'a> {
    target: &'a dyn Target,
    host: &'a Host,
    seen: BTreeSet<Pid>,
    path: Vec<Pid>,
}

/// Whether processes of one thread each stand still where they were.
pub(super) fn stand_still(target: &dyn Target, path: &[Pid]) -> bool {
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
        self.path.push(pid);
        if !self.seen.insert(pid) {
            return Some("so they wait for each other in a circle".to_owned());
        }
        let other = self.target.other(pid)?;
        let lwps = other.lwps().ok()?;
        let [lwp] = lwps.as_slice() else { return Some(format!("which has {} threads", lwps.len())) };
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
        let next = Some(()).filter(|()| self.path.len() < HOPS).and_then(|()| partners(self.host, pid, &call));
        let Some((kind, found)) = next else { return Some(doing) };
        let further = match found.pids.as_slice() {
            [(next, _)] => self.doing_of(*next),
            _ => None,
        };
        let partners = named(&found, further.as_deref());
        Some(format!("{doing}: {}", text(kind, &partners, &found)))
    }
}

/// The processes that were found, by name. `doing` is what the only one does.
fn named(found: &Holders, doing: Option<&str>) -> Vec<Partner> {
    let partner = |(pid, evidence): &(Pid, Evidence)| Partner {
        pid: *pid,
        name: host::name_of(*pid),
        evidence: *evidence,
        doing: doing.map(str::to_owned),
    };
    found.pids.iter().take(PARTNERS).map(partner).collect()
}

/// Who could end the wait of a thread of `pid` in `call`. `None` where it does not leave the process, or it cannot be told what
/// is there.
fn partners(host: &Host, pid: Pid, call: &Syscall) -> Option<(OutsideKind, Holders)> {
    let file = || call.descriptors.first().and_then(|descriptor| descriptor.file.as_deref());
    match calls::outside(call) {
        way @ (Outside::Input | Outside::Output) if file()?.starts_with("pipe:") => {
            let wanted = |end: &host::OpenEnd| if way == Outside::Input { end.writes } else { end.reads };
            Some((OutsideKind::Pipe, host.at_pipe(pid, file()?, wanted)))
        }
        Outside::Input | Outside::Output if file()?.starts_with("socket:") => {
            let peer = host.socket(pid, file()?)?.peer?;
            Some((OutsideKind::Socket, host.at_socket(pid, &peer)))
        }
        Outside::FileLock => {
            let found = host.lock_holders(pid, call.args[0] as i32)?;
            (!found.pids.is_empty()).then_some((OutsideKind::FileLock, found))
        }
        Outside::Child => {
            let named = (call.name == "wait4" && call.args[0] as i32 > 0).then_some(Pid(call.args[0] as i32));
            let children = named.map_or_else(|| host::children(pid), |child| vec![child]);
            let evidence = if named.is_some() { Evidence::Recorded } else { Evidence::Derived };
            let pids: Vec<_> = children.into_iter().map(|pid| (pid, evidence)).collect();
            (!pids.is_empty()).then_some((OutsideKind::Child, Holders { pids, is_whole: true }))
        }
        _ => None,
    }
}

fn text(kind: OutsideKind, partners: &[Partner], found: &Holders) -> String {
    let all = found.pids.len();
    let list: Vec<String> = partners
        .iter()
        .map(|partner| format!("{} (pid {})", partner.name.as_deref().unwrap_or("process"), partner.pid))
        .collect();
    let more = if all > list.len() { format!(" and {} more", all - list.len()) } else { String::new() };
    let doing = partners.first().and_then(|partner| partner.doing.as_ref()).filter(|_| all == 1);
    let doing = doing.map(|doing| format!(", {doing}")).unwrap_or_default();
    let who = format!("{}{more}{doing}", list.join(", "));
    match (kind, all) {
        (OutsideKind::Pipe | OutsideKind::Socket, 0) if !found.is_whole => {
            "who has the other end cannot be seen from here: not all processes can be looked into".to_owned()
        }
        (OutsideKind::Pipe, 0) => "no other process has the other end open, only this one itself".to_owned(),
        (OutsideKind::Socket, 0) => "no other process has the other end".to_owned(),
        (OutsideKind::Pipe | OutsideKind::Socket, _) => format!("the other end is open in {who}"),
        (OutsideKind::FileLock, _) => format!("the lock is held by {who}"),
        (OutsideKind::Child, 1) => format!("the child is {who}"),
        (OutsideKind::Child, _) => format!("its children are {who}"),
    }
}

//! Waits that leave the process: who is at the other end, and what that one does.

use super::calls::{self, Outside};
use super::look::has_not_moved;
use crate::Pid;
use crate::host;
use crate::model::{Evidence, OutsideKind, OutsideWait, Partner, Syscall};
use crate::target::{LwpFacts, Target};
use std::collections::BTreeSet;
use std::time::Duration;

/// Processes that a wait is followed through.
const HOPS: usize = 8;
/// For how long processes must stand still that are said to wait for each other.
const MOMENT: Duration = Duration::from_millis(20);
/// Partners that are told of.
const PARTNERS: usize = 8;

/// A wait that was followed.
pub(super) struct Followed {
    pub(super) wait: OutsideWait,
    /// The processes that it leads through, where each has one partner only; it ends where it began if they wait in a circle.
    pub(super) path: Vec<Pid>,
    /// Whether nobody but the process itself could end the wait.
    pub(super) is_alone: bool,
}

/// Where the wait of a thread of `target` in `call` leads, if it leaves the process.
pub(super) fn follow(target: &dyn Target, call: &Syscall) -> Option<Followed> {
    let pid = target.pid();
    let (kind, found) = partners(pid, call)?;
    let is_alone = found.is_empty() && kind == OutsideKind::Pipe;
    let mut seen = BTreeSet::from([pid]);
    let mut path = vec![pid];
    let doing = match found.as_slice() {
        [(next, _)] => doing_of(target, *next, &mut seen, &mut path),
        _ => None,
    };
    let partners = named(&found, doing.as_deref());
    let text = text(kind, &partners, found.len());
    Some(Followed { wait: OutsideWait { kind, partners, text }, path, is_alone })
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

/// What a process does that has one thread, and so on to the end of the chain.
fn doing_of(target: &dyn Target, pid: Pid, seen: &mut BTreeSet<Pid>, path: &mut Vec<Pid>) -> Option<String> {
    path.push(pid);
    if !seen.insert(pid) {
        return Some("so they wait for each other in a circle".to_owned());
    }
    let other = target.other(pid)?;
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
    let next = partners(pid, &call).filter(|_| path.len() < HOPS);
    let Some((kind, found)) = next else { return Some(doing) };
    let further = match found.as_slice() {
        [(next, _)] => doing_of(target, *next, seen, path),
        _ => None,
    };
    let partners = named(&found, further.as_deref());
    Some(format!("{doing}: {}", text(kind, &partners, found.len())))
}

/// The processes that were found, by name. `doing` is what the only one does.
fn named(found: &[(Pid, Evidence)], doing: Option<&str>) -> Vec<Partner> {
    let partner = |(pid, evidence): &(Pid, Evidence)| Partner {
        pid: *pid,
        name: host::name_of(*pid),
        evidence: *evidence,
        doing: doing.map(str::to_owned),
    };
    found.iter().take(PARTNERS).map(partner).collect()
}

/// Who could end the wait of a thread of `pid` in `call`. Empty where nobody else could; `None` where it does not leave the
/// process, or it cannot be told who is there.
fn partners(pid: Pid, call: &Syscall) -> Option<(OutsideKind, Vec<(Pid, Evidence)>)> {
    let file = || call.descriptors.first().and_then(|descriptor| descriptor.file.as_deref());
    let others = |mut pids: Vec<Pid>| {
        pids.retain(|other| *other != pid);
        pids.sort_unstable();
        pids.dedup();
        let evidence = if pids.len() == 1 { Evidence::Derived } else { Evidence::Inferred };
        pids.into_iter().map(|pid| (pid, evidence)).collect::<Vec<_>>()
    };
    match calls::outside(call) {
        way @ (Outside::Input | Outside::Output) if file()?.starts_with("pipe:") => {
            let wanted = |end: &host::OpenEnd| if way == Outside::Input { end.writes } else { end.reads };
            let ends = host::ends_of_pipe(file()?).into_iter().filter(wanted).map(|end| end.pid).collect();
            Some((OutsideKind::Pipe, others(ends)))
        }
        Outside::Input | Outside::Output if file()?.starts_with("socket:") => {
            let socket = host::socket(pid, file()?)?;
            let holders = host::holders_of(&socket.peer?);
            Some((OutsideKind::Socket, others(holders.into_iter().map(|(pid, _)| pid).collect())))
        }
        Outside::FileLock => {
            let holders = host::lock_holders(pid);
            let found: Vec<_> = holders.iter().map(|holder| (holder.pid, holder.evidence)).collect();
            (!found.is_empty()).then_some((OutsideKind::FileLock, found))
        }
        Outside::Child => {
            let named = (call.name == "wait4" && call.args[0] as i32 > 0).then_some(Pid(call.args[0] as i32));
            let children = named.map_or_else(|| host::children(pid), |child| vec![child]);
            let evidence = if named.is_some() { Evidence::Recorded } else { Evidence::Derived };
            (!children.is_empty()).then(|| (OutsideKind::Child, children.iter().map(|pid| (*pid, evidence)).collect()))
        }
        _ => None,
    }
}

fn text(kind: OutsideKind, partners: &[Partner], all: usize) -> String {
    let list: Vec<String> = partners
        .iter()
        .map(|partner| format!("{} (pid {})", partner.name.as_deref().unwrap_or("process"), partner.pid))
        .collect();
    let more = if all > list.len() { format!(" and {} more", all - list.len()) } else { String::new() };
    let doing = partners.first().and_then(|partner| partner.doing.as_ref()).filter(|_| all == 1);
    let doing = doing.map(|doing| format!(", {doing}")).unwrap_or_default();
    let who = format!("{}{more}{doing}", list.join(", "));
    match (kind, all) {
        (OutsideKind::Pipe, 0) => "no other process has the other end open, only this one itself".to_owned(),
        (OutsideKind::Socket, 0) => "no other process has the other end".to_owned(),
        (OutsideKind::Pipe | OutsideKind::Socket, _) => format!("the other end is open in {who}"),
        (OutsideKind::FileLock, _) => format!("the lock is held by {who}"),
        (OutsideKind::Child, 1) => format!("the child is {who}"),
        (OutsideKind::Child, _) => format!("its children are {who}"),
    }
}

//! Waits that leave the process: who is at the other end, what that one does, and who waits in a circle.

use super::calls;
use super::findings::finding;
use super::knot::Spot;
use super::net::{Circle, Net, Stuck};
use super::partners::opened_fifo;
use super::task_ends::add_task_ends;
use super::tell::Teller;
use super::words::count;
use crate::host::Host;
use crate::model::{
    Certainty, Finding, FindingKind, Member, OutsideKind, OutsideWait, Snapshot, Syscall, Thread, ThreadState,
};
use crate::proc::KernelState;
use crate::target::{LwpFacts, Target};
use crate::{Lwp, Pid};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Circles that are told of one process.
const CIRCLES: usize = 3;

/// What is said where a signal could end a wait.
const ONLY_HANDLER: &str = "; only a signal handler could end that";

/// Follows the waits of `snapshot` that leave the process. Gives the threads of other processes that they lead to.
pub(crate) fn follow(target: &dyn Target, snapshot: &mut Snapshot) -> BTreeSet<Spot> {
    // The processes of this machine are not those of a core: it may be of another time and place.
    if snapshot.target.core.is_some() || target.denial().is_some() {
        return BTreeSet::new();
    }
    let Ok(lwps) = target.lwps() else { return BTreeSet::new() };
    let facts: Vec<LwpFacts> = target.brief_facts(&lwps).into_iter().flatten().collect();
    let mut net = Net::new(&Rc::new(Host::new(target.limits())));
    net.add(target, facts);
    net.add_locks(snapshot);
    net.explore(target);
    // These first: where none can be told, because descriptors are on their way, no wait is said to have no other end.
    let circles = circles_of(target, &net, &net.stuck(), target.pid());
    let mut led_to = add_waits(target, &net, snapshot);
    for finding in circles {
        led_to.extend(finding.members.iter().filter_map(spot_of));
        if !is_told(snapshot, &finding) {
            let finding = by_its_chain(snapshot, finding);
            // A chain within the circle is no more than a part of it.
            let is_part = |chain: &Finding| {
                let in_circle = |lwp: &Lwp| finding.threads.contains(lwp);
                chain.kind == FindingKind::LongChain
                    && finding.kind == FindingKind::ProcessCircle
                    && chain.threads.iter().chain(&chain.behind).all(in_circle)
            };
            snapshot.findings.retain(|known| !is_part(known));
            snapshot.findings.push(finding);
        }
    }
    // The worst first: a circle that is likely comes before a chain.
    snapshot.findings.sort_by_key(|finding| !finding.kind.is_hang());
    let own = target.pid();
    led_to.extend(snapshot.findings.iter().flat_map(|finding| &finding.members).filter_map(spot_of));
    led_to.retain(|spot| spot.pid != own);
    led_to
}

/// Says what is known of a wait that leads to no process: which socket it is that anybody may connect or send to, or why
/// nobody can be named.
fn without_partner(target: &dyn Target, net: &Net, call: &Syscall, wait: Option<&mut OutsideWait>) {
    let Some(wait) = wait else { return };
    let link = call.descriptors.first().and_then(|descriptor| descriptor.file.as_deref());
    let text = match wait.kind {
        OutsideKind::Socket | OutsideKind::Connection => {
            let Some(socket) = link.and_then(|link| net.host.socket(target.pid(), link)) else { return };
            wait.what = Some(socket.what.clone());
            format!(": {}", socket.what)
        }
        OutsideKind::Inotify => "; any process may change the files that it watches".to_owned(),
        OutsideKind::Completion => {
            "; what its requests wait for is not known: the kernel does not tell that".to_owned()
        }
        OutsideKind::Terminal => "; what is at the other side is no process, or cannot be seen".to_owned(),
        _ => return,
    };
    wait.text += &text;
}

fn spot_of(member: &Member) -> Option<Spot> {
    Some(Spot { pid: member.pid, lwp: member.lwp? })
}

/// Whether a finding says what another one says already: the threads of a circle of locks hang in any case.
fn is_told(snapshot: &Snapshot, found: &Finding) -> bool {
    let covers = |known: &Finding| {
        (known.kind.is_hang() || known.kind.is_unwoken())
            && found.threads.iter().all(|lwp| known.threads.contains(lwp) || known.behind.contains(lwp))
    };
    snapshot.findings.iter().any(covers)
}

/// A wait that nobody is left to end in the words of the chain that leads to it, if there is one: that tells who waits for whom.
fn by_its_chain(snapshot: &Snapshot, found: Finding) -> Finding {
    let root = found.threads.first().filter(|_| found.kind == FindingKind::NobodyLeft);
    let is_it = |finding: &&Finding| finding.kind == FindingKind::LongChain && finding.threads.last() == root;
    match root.and_then(|_| snapshot.findings.iter().find(is_it)) {
        Some(chain) => {
            let only = found.text.find(ONLY_HANDLER).map_or("", |at| &found.text[at..]);
            let text = format!("{}; every thread that could do something about that waits too{only}", chain.text);
            Finding { text, ..found }
        }
        None => found,
    }
}

/// Says of each thread of `snapshot` where its wait leads, and of the last one of each chain. Gives the threads at the other
/// ends.
fn add_waits(target: &dyn Target, net: &Net, snapshot: &mut Snapshot) -> BTreeSet<Spot> {
    let teller = Teller::new(net);
    let mut led_to = BTreeSet::new();
    let mut texts: BTreeMap<Lwp, String> = BTreeMap::new();
    for thread in &mut snapshot.threads {
        let Some((lwp, call)) = thread.lwp.zip(thread.syscall.as_ref()) else { continue };
        let spot = Spot { pid: target.pid(), lwp };
        let is_same = |now: &Syscall| (now.number, now.args) == (call.number, call.args);
        if !net.threads.get(&spot).and_then(|known| known.call.as_ref()).is_some_and(is_same) {
            continue;
        }
        let is_loop = thread.waits_outside.as_ref().is_some_and(|plain| plain.kind == OutsideKind::EventLoop);
        let answers = || if is_loop { teller.answers(spot) } else { None };
        let Some(mut wait) = teller.wait(spot).or_else(answers) else {
            without_partner(target, net, call, thread.waits_outside.as_deref_mut().filter(|_| thread.stop.is_none()));
            continue;
        };
        led_to.extend(teller.led_to(spot));
        texts.insert(lwp, wait.text.clone());
        let plain = thread.waits_outside.take();
        wait.watched = plain.and_then(|plain| plain.watched);
        thread.waits_outside = Some(Box::new(wait));
    }
    for finding in snapshot.findings.iter_mut().filter(|finding| finding.kind == FindingKind::LongChain) {
        if let Some(text) = finding.threads.last().and_then(|root| texts.get(root)) {
            finding.text += &format!("; {text}");
        }
    }
    led_to
}

/// What is wrong with the threads of `pid` that wait for other processes: circles, and waits that nobody is left to end.
pub(crate) fn circles_of(target: &dyn Target, net: &Net, stuck: &Stuck, pid: Pid) -> Vec<Finding> {
    let teller = Teller::new(net);
    let mut findings: Vec<Finding> = Vec::new();
    let mut told: BTreeSet<Spot> = BTreeSet::new();
    for is_strict in [true, false] {
        let stuck = stuck.by_rule(is_strict);
        // Those first at which chains of locks end.
        let mut spots: Vec<Spot> = net.spots_of(pid).filter(|spot| stuck.contains(spot)).collect();
        spots.sort_by_key(|spot| !net.is_at_descriptor(*spot));
        for spot in spots.iter().copied() {
            if told.contains(&spot) || findings.len() >= CIRCLES || !net.leaves(spot, is_strict) {
                continue;
            }
            if let Some(circle) = net.circle(target, spot, stuck, is_strict) {
                told.extend(&circle.spots);
                let mut found = of_circle(target, net, &teller, pid, &circle);
                if let Some(found) = found.as_mut().filter(|found| found.kind == FindingKind::NobodyLeft) {
                    // Any thread of the process could have ended that wait: so all of them hang, and that is said once.
                    let others = spots.iter().filter(|spot| !net.is_at_descriptor(**spot));
                    told.extend(others.clone());
                    found.behind = others.filter(|spot| !circle.spots.contains(spot)).map(|spot| spot.lwp).collect();
                }
                findings.extend(found);
            }
        }
    }
    without_shortcuts(findings)
}

/// Without circles of which another one that is as sure has all threads, and more: that one tells why.
fn without_shortcuts(mut findings: Vec<Finding>) -> Vec<Finding> {
    let spots = |finding: &Finding| finding.members.iter().filter_map(spot_of).collect::<BTreeSet<Spot>>();
    let known: Vec<(BTreeSet<Spot>, Certainty)> = findings.iter().map(|it| (spots(it), it.certainty)).collect();
    findings.retain(|finding| {
        let (own, certainty) = (spots(finding), finding.certainty);
        let tells_more = |(other, sure): &(BTreeSet<Spot>, Certainty)| {
            other.len() > own.len() && other.is_superset(&own) && *sure >= certainty
        };
        finding.kind != FindingKind::ProcessCircle || !known.iter().any(tells_more)
    });
    findings
}

fn of_circle(target: &dyn Target, net: &Net, teller: &Teller<'_>, pid: Pid, circle: &Circle) -> Option<Finding> {
    let spots = circle.spots.as_slice();
    let pids: BTreeSet<Pid> = spots.iter().map(|spot| spot.pid).collect();
    let (kind, certainty, text) = match pids.len() {
        1 => {
            // A handler may write to a pipe of its own process.
            let handled = target.other(pid).and_then(|own| own.handled_signals()).unwrap_or_default();
            let (certainty, only) = match handled.is_empty() {
                true => (Certainty::Likely, String::new()),
                false => (Certainty::Possible, format!("{ONLY_HANDLER} (of {handled})")),
            };
            (FindingKind::NobodyLeft, certainty, teller.steps(spots) + &only)
        }
        number => {
            let wait = format!("{number} processes wait for each other in a circle");
            (FindingKind::ProcessCircle, Certainty::Likely, format!("{wait}: {}", teller.steps(spots)))
        }
    };
    let is_whole = net.is_whole(spots);
    // Who else has the other end of a pipe was not seen. A lock of the process's own is one whoever shares it.
    let is_lock = |spot: &Spot| {
        let partners = net.threads.get(spot).map(|thread| thread.partners.as_slice()).unwrap_or_default();
        partners.iter().any(|one| one.kind == OutsideKind::FileLock)
    };
    if !is_whole && kind == FindingKind::NobodyLeft && !spots.iter().any(is_lock) {
        return None;
    }
    let is_sure = circle.is_strict && is_whole && !net.may_be_woken(spots);
    let certainty = if is_sure { certainty } else { Certainty::Possible };
    let members = spots.iter().map(|spot| Member {
        pid: spot.pid,
        lwp: Some(spot.lwp),
        object: net.threads.get(spot).and_then(|thread| thread.lock.as_ref()).map(|(address, _)| *address),
    });
    let threads = spots.iter().filter(|spot| spot.pid == pid).map(|spot| spot.lwp).collect();
    Some(Finding { members: members.collect(), text, ..finding(kind, certainty, threads, Vec::new(), Vec::new()) })
}

/// Says what the threads of `snapshot` wait for outside of the process, and who is at the other end. Other processes are not
/// looked into.
pub fn add_other_ends(target: &dyn Target, snapshot: &mut Snapshot) {
    let _look = target.limits().begin();
    calls::add_descriptors(target, &mut snapshot.threads);
    add_kinds(target, snapshot);
    if snapshot.target.core.is_some() || target.denial().is_some() {
        return;
    }
    let lwps: Vec<Lwp> = snapshot.threads.iter().filter_map(|thread| thread.lwp).collect();
    let mut net = Net::new(&Rc::new(Host::new(target.limits())));
    net.add(target, target.brief_facts(&lwps).into_iter().flatten().collect());
    add_waits(target, &net, snapshot);
    add_task_ends(target, snapshot);
}

/// Says what the threads of `snapshot` wait for outside of the process, as far as their calls tell.
pub(super) fn add_kinds(target: &dyn Target, snapshot: &mut Snapshot) {
    let is_live = snapshot.target.core.is_none();
    for thread in &mut snapshot.threads {
        thread.waits_outside = plain(target, thread, is_live).map(Box::new);
    }
}

fn plain(target: &dyn Target, thread: &Thread, is_live: bool) -> Option<OutsideWait> {
    let call = thread.syscall.as_ref()?;
    let mut kind = calls::kind_at(target, call);
    let mut wait_channel = None;
    let path = calls::path_of(target, call, target.limits());
    if is_live && kind != Some(OutsideKind::Child) && thread.state == ThreadState::Sleep && thread.waits_for.is_none() {
        let lwp = thread.lwp?;
        let can_be_disk = matches!(kind, None | Some(OutsideKind::File | OutsideKind::Socket));
        let is_deep = can_be_disk && target.facts(&[lwp]).pop().flatten()?.state == KernelState::DiskSleep;
        if is_deep {
            kind = Some(OutsideKind::Disk);
        } else if kind.is_none() && path.is_some() {
            // A file system keeps it waiting, as one that another process or machine serves.
            kind = Some(OutsideKind::File);
        }
        if matches!(kind, Some(OutsideKind::Disk | OutsideKind::File)) {
            wait_channel = target.wait_channel(lwp);
        }
    }
    if thread.lwp.filter(|_| is_live).is_some_and(|lwp| opened_fifo(target, lwp, call).is_some()) {
        kind = Some(OutsideKind::Pipe);
    }
    let kind = kind?;
    let mut text = calls::doing(call);
    if let Some(path) = &path {
        text += &format!(": {path}");
    }
    if let Some(function) = &wait_channel {
        text += &format!(", inside the kernel in {function}");
    }
    let watched = (kind == OutsideKind::EventLoop).then(|| calls::awaited(target, call).len());
    if let Some(watched) = watched.filter(|_| is_live) {
        text += &format!(", with {}", count(watched, "descriptor", "descriptors"));
    }
    let what = call.descriptors.first().and_then(|descriptor| descriptor.file.clone()).or(path);
    let direction = calls::direction(call);
    Some(OutsideWait {
        direction,
        watched: watched.filter(|_| is_live),
        what,
        wait_channel,
        ..OutsideWait::new(kind, text)
    })
}

/// Where the waits of a process lead that leave the process, each with the call in words, and the thread.
pub(crate) fn waits_of(net: &Net, pid: Pid) -> Vec<(Lwp, String, OutsideWait)> {
    let teller = Teller::brief(net);
    let wait = |spot: Spot| {
        let call = net.threads.get(&spot)?.call.as_ref()?;
        Some((spot.lwp, calls::doing(call), teller.wait(spot)?))
    };
    net.spots_of(pid).filter_map(wait).collect()
}

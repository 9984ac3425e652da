//! Contention over a stretch of time.

use super::callers::{Callers, wait_stack};
use super::open::OpenWaits;
use crate::RemoteAddr;
use crate::look::Look;
use crate::model::{Contended, HeldIn, Snapshot, SyncKind, SyncStats, WaitSite};
use crate::runtimes::{self, counted};
use crate::table::{Agent, MOST_KEPT, Tracked};
use crate::target::Target;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Bytes of the largest object that is counted.
const LARGEST: u64 = 56;

/// What was counted of one object.
#[derive(Clone)]
struct CountedLock {
    address: RemoteAddr,
    kind: SyncKind,
    /// Those that have ended.
    waits: u64,
    stats: SyncStats,
}

/// What was seen of a program's contention so far.
pub(super) struct Contention {
    pub(super) agent: Agent,
    start: HashMap<RemoteAddr, Tracked>,
    began: Instant,
    looked: Instant,
    rows: Vec<CountedLock>,
    functions: HashMap<RemoteAddr, String>,
    callers: Callers,
}

impl Contention {
    /// Begins to look at a program that is running (`true`), or that has just been started and is looked at from its
    /// beginning.
    pub(super) fn begin(agent: Agent, target: &dyn Target, is_running: bool) -> Self {
        let _look = target.limits().begin();
        let objects = if is_running { agent.objects(target) } else { Vec::new() };
        let start = objects.into_iter().map(|tracked| (tracked.address, tracked)).collect();
        let now = Instant::now();
        let callers = Callers::begin(&agent, is_running);
        Self { agent, start, began: now, looked: now, rows: Vec::new(), functions: HashMap::new(), callers }
    }

    /// Looks again; `false` if there is nothing to be seen any more.
    pub(super) fn look(&mut self, target: &dyn Target) -> bool {
        let Some(agent) = self.agent.again(target) else { return false };
        self.agent = agent;
        let _look = target.limits().begin();
        let (mut rows, mut is_empty) = (Vec::new(), true);
        self.agent.each(target, &mut |now| {
            is_empty = false;
            let start = self.start.get(&now.address);
            let row = now.since(start).map(|now| {
                let stats = now.stats();
                CountedLock { address: now.address, kind: now.kind, waits: now.ended_waits(&stats), stats }
            });
            rows.extend(row.filter(|row| row.stats.waits().0 > 0));
            rows.len() < MOST_KEPT
        });
        if is_empty && !self.rows.is_empty() {
            return false;
        }
        self.rows = rows;
        // Of now: the stack of a wait that is among these was taken before it was counted.
        if let Some(agent) = self.agent.again(target) {
            self.callers.read(&agent, target);
        }
        self.looked = Instant::now();
        true
    }

    /// Names the functions that have waited and made others wait, while the program is there to tell.
    pub(super) fn name_functions(&mut self, look: &Look<'_>) {
        let _look = look.target.limits().begin();
        let symbols = look.symbolizer();
        let contentions = self.rows.iter().filter_map(|row| row.stats.contention());
        let sites = contentions.flat_map(|contention| &contention.sites);
        let sites: Vec<RemoteAddr> = sites.flat_map(|site| [Some(site.waiter), site.holder]).flatten().collect();
        self.callers.name(look, &sites);
        for address in sites {
            if self.functions.contains_key(&address) {
                continue;
            }
            // The call itself is before the address it returns to.
            let call = RemoteAddr(address.0.saturating_sub(1));
            if let Some(name) = symbols.enclosing_function(call).or_else(|| symbols.function_at(call)) {
                self.functions.insert(address, name);
            }
        }
    }

    /// Whether `word` is in an object that is counted.
    pub(super) fn is_counted(&self, word: RemoteAddr) -> bool {
        let size = |kind| counted(kind).map(|family| runtimes::of(family).bytes_of(kind, family) as u64);
        let is_in = |address: RemoteAddr, kind| size(kind).is_some_and(|size| word.0.wrapping_sub(address.0) < size);
        let mut starts = (0..LARGEST).step_by(4).filter_map(|offset| word.checked_sub(offset));
        starts.any(|at| self.start.get(&at).is_some_and(|start| is_in(at, start.kind)))
            || self.rows.iter().any(|row| is_in(row.address, row.kind))
    }

    /// For how long it was looked at.
    pub(super) fn span(&self) -> Duration {
        self.looked - self.began
    }

    /// When it began.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// The objects with the longest waits, with names. Waits for a condition, a barrier or a semaphore come after
    /// those for locks: most of them are idleness.
    pub(super) fn worst(&self, open: &OpenWaits, names: Option<&Snapshot>, limit: usize) -> Vec<Contended> {
        use SyncKind::{Mutex, Rwlock, Spinlock};
        let mut opens = open.all();
        let mut rows: Vec<(CountedLock, (u64, u64))> = Vec::new();
        for row in &self.rows {
            rows.push((row.clone(), opens.remove(&(row.address, row.kind)).unwrap_or_default()));
        }
        let uncounted = opens.into_iter().filter_map(|((address, kind), open)| {
            Some((CountedLock { address, kind, waits: 0, stats: SyncStats::none(kind)? }, open))
        });
        rows.extend(uncounted);
        // What has begun and was not seen to go on.
        rows.retain(|(row, (open_waits, _))| row.waits + open_waits > 0);
        rows.sort_by_key(|(row, (_, open_ns))| {
            let waited = row.stats.waits().1.saturating_add(*open_ns);
            (!matches!(row.kind, Mutex | Rwlock | Spinlock), Reverse(waited), row.address)
        });
        rows.into_iter().take(limit).map(|(row, opened)| self.contended(row, opened, open, names)).collect()
    }

    fn contended(
        &self,
        row: CountedLock,
        (open_waits, open_wait_ns): (u64, u64),
        open: &OpenWaits,
        names: Option<&Snapshot>,
    ) -> Contended {
        let at = |address: RemoteAddr| self.functions.get(&address).cloned().unwrap_or_else(|| address.to_string());
        let (_, wait_ns) = row.stats.waits();
        let sites = row.stats.contention().map_or(&[][..], |contention| &contention.sites);
        let mut waited_in = self.callers.of(row.address);
        if waited_in.is_empty() {
            let by_site = |site: &WaitSite| wait_stack(site.time_ns, vec![self.callers.frame(site.waiter)]);
            waited_in = sites.iter().map(by_site).collect();
        }
        waited_in.extend(open.waited_in((row.address, row.kind)));
        waited_in.sort_by_key(|stack| Reverse(stack.time_ns));
        Contended {
            address: row.address,
            kind: row.kind,
            name: name_of(names, row.address),
            waits: row.waits,
            wait_ns,
            sites: sites.iter().map(|site| (at(site.waiter), site.holder.map(at), site.time_ns)).collect(),
            open_waits,
            open_wait_ns,
            waited_in,
            held_in: self.held_in(sites),
            holders_did: open.holders_did(row.address),
            stats: row.stats,
        }
    }

    /// Where those had taken a lock who made others wait.
    fn held_in(&self, sites: &[WaitSite]) -> Vec<HeldIn> {
        let mut times: HashMap<RemoteAddr, u64> = HashMap::new();
        for site in sites {
            if let Some(holder) = site.holder {
                *times.entry(holder).or_default() += site.time_ns;
            }
        }
        let held = times.into_iter().map(|(site, time_ns)| HeldIn { time_ns, frame: self.callers.frame(site) });
        let mut held: Vec<HeldIn> = held.collect();
        held.sort_by_key(|held| (Reverse(held.time_ns), held.frame.pc));
        held
    }
}

/// The name that `names` has for the object at `address`.
pub(super) fn name_of(names: Option<&Snapshot>, address: RemoteAddr) -> Option<String> {
    names?.objects.iter().find(|object| object.address == address)?.name.clone()
}

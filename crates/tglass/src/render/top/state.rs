//! What the screen of `top` shows: plain data. `cmd/top` keeps it up to date, the views draw it.

use super::super::snapshot::utc;
use super::list::{List, Rows};
use super::{locks, processes, tasks, threads};
use ratatui_core::layout::Rect;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use threadglass::model::{
    Finding, FindingKind, Gap, Machine, Snapshot, Stats, SyncObject, Thread, ThreadStats, Verdict, VerdictKind,
};
use threadglass::{Lwp, Pid, RemoteAddr};

/// One of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    Threads,
    Locks,
    Tasks,
}

impl Tab {
    pub const ALL: [Self; 3] = [Self::Threads, Self::Locks, Self::Tasks];

    pub fn title(self) -> &'static str {
        match self {
            Self::Threads => "Threads",
            Self::Locks => "Locks",
            Self::Tasks => "Tasks",
        }
    }
}

/// What is typed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptKind {
    Filter,
    Save,
    Process,
}

/// A line that is typed.
pub struct Prompt {
    pub kind: PromptKind,
    pub text: String,
}

/// What is shown in place of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Help,
    /// What is wrong, in whole sentences.
    Why,
    /// What could not be seen.
    Gaps,
}

/// Everything on the screen.
pub struct State {
    pub machine: MachineState,
    /// The process that is watched; else all of them are shown.
    pub process: Option<ProcessState>,
    pub prompt: Option<Prompt>,
    pub page: Option<Page>,
    pub frozen: bool,
    /// Said in the last line until the next key, and whether it is about something that went wrong.
    pub message: Option<(String, bool)>,
    pub mouse: bool,
    pub colour: bool,
    pub size: Rect,
}

impl State {
    pub fn new(colour: bool, mouse: bool) -> Self {
        Self {
            machine: MachineState::default(),
            process: None,
            prompt: None,
            page: None,
            frozen: false,
            message: None,
            mouse,
            colour,
            size: Rect::new(0, 0, 80, 24),
        }
    }

    /// The rows of the list that is shown, and where the user is in it.
    pub fn list(&mut self) -> (Box<dyn Rows + '_>, &mut List) {
        match &mut self.process {
            None => (Box::new(processes::ProcessRows::new(&self.machine.seen)), &mut self.machine.list),
            Some(process) => process.list(),
        }
    }

    /// Puts the rows in their order anew, after what they show has changed.
    pub fn arrange(&mut self) {
        let size = self.size;
        let height = usize::from(super::areas(size, self).list.height);
        let (rows, list) = self.list();
        list.arrange(&*rows, height);
    }
}

/// The look at the whole machine.
#[derive(Default)]
pub struct MachineState {
    pub seen: Option<Machine>,
    /// What is said where there is no process at all.
    pub nothing: Option<&'static str>,
    pub list: List,
}

/// One process.
pub struct ProcessState {
    pub pid: Pid,
    pub tab: Tab,
    pub graph: bool,
    pub look: Option<LookState>,
    pub times: Times,
    /// What `why` says, and when the look behind that began, in milliseconds since 1970.
    pub explained: Option<Snapshot>,
    /// Why nothing more is seen.
    pub ended: Option<String>,
    /// Of what does not change: what it is.
    pub still: Option<String>,
    lists: [List; 3],
}

/// The last look.
pub struct LookState {
    pub snapshot: Snapshot,
    pub details: BTreeMap<Lwp, Thread>,
    pub took: Duration,
    pub every: Duration,
    places: HashMap<Lwp, usize>,
    objects: HashMap<RemoteAddr, usize>,
    /// Members of hangs.
    stuck: HashSet<Lwp>,
}

/// What threads did with their time in the last interval.
#[derive(Default)]
pub struct Times {
    pub stats: Option<Stats>,
    places: HashMap<Lwp, usize>,
}

impl Times {
    pub fn new(stats: Stats) -> Self {
        let places = stats.threads.iter().enumerate().map(|(place, thread)| (thread.lwp, place)).collect();
        Self { stats: Some(stats), places }
    }

    pub fn of(&self, lwp: Lwp) -> Option<&ThreadStats> {
        self.stats.as_ref()?.threads.get(*self.places.get(&lwp)?)
    }
}

impl LookState {
    pub fn new(snapshot: Snapshot, details: BTreeMap<Lwp, Thread>, took: Duration, every: Duration) -> Self {
        let threads = snapshot.threads.iter().enumerate();
        let places = threads.filter_map(|(place, thread)| Some((thread.lwp?, place))).collect();
        let objects = snapshot.objects.iter().enumerate().map(|(place, object)| (object.address, place)).collect();
        let hangs = snapshot.findings.iter().filter(|finding| is_bad(finding));
        let stuck = hangs.flat_map(|finding| finding.threads.iter().copied()).collect();
        Self { snapshot, details, took, every, places, objects, stuck }
    }

    pub fn thread(&self, lwp: Lwp) -> Option<&Thread> {
        self.snapshot.threads.get(*self.places.get(&lwp)?)
    }

    pub fn object(&self, address: RemoteAddr) -> Option<&SyncObject> {
        self.snapshot.objects.get(*self.objects.get(&address)?)
    }

    /// The thread with all that was read of it.
    pub fn detail<'a>(&'a self, thread: &'a Thread) -> &'a Thread {
        let known = thread.lwp.and_then(|lwp| self.details.get(&lwp));
        let is_same = |known: &&Thread| {
            known.syscall.as_ref().map(|call| call.number) == thread.syscall.as_ref().map(|call| call.number)
        };
        known.filter(is_same).unwrap_or(thread)
    }

    /// Whether a thread is a member of a hang.
    pub fn is_stuck(&self, lwp: Lwp) -> bool {
        self.stuck.contains(&lwp)
    }
}

/// Whether a finding is a hang.
pub fn is_bad(finding: &Finding) -> bool {
    finding.kind.is_hang() || finding.kind.is_unwoken()
}

impl ProcessState {
    pub fn new(pid: Pid) -> Self {
        Self {
            pid,
            tab: Tab::Threads,
            graph: true,
            look: None,
            times: Times::default(),
            explained: None,
            ended: None,
            still: None,
            lists: Default::default(),
        }
    }

    /// What a core file or a snapshot tells, in full.
    pub fn still(snapshot: Snapshot) -> Self {
        let what = match &snapshot.target.snapshot {
            Some(file) => format!("taken {}", utc(file.taken_at_ms)),
            None => "does not change".to_owned(),
        };
        let none = Duration::ZERO;
        Self {
            explained: Some(snapshot.clone()),
            look: Some(LookState::new(snapshot.clone(), BTreeMap::new(), none, none)),
            still: Some(what),
            ..Self::new(snapshot.target.pid)
        }
    }

    /// Whether nothing more is to come.
    pub fn stands(&self) -> bool {
        self.ended.is_some() || self.still.is_some()
    }

    /// The rows of the list that is shown, and where the user is in it.
    pub fn list(&mut self) -> (Box<dyn Rows + '_>, &mut List) {
        let stuck = self.hangs().iter().flat_map(|finding| finding.tasks.iter().copied()).collect();
        let Self { look, times, explained, lists, tab, .. } = self;
        let (look, explained) = (look.as_ref(), explained.as_ref());
        let rows: Box<dyn Rows + '_> = match tab {
            Tab::Threads => Box::new(threads::ThreadRows { look, times, explained }),
            Tab::Locks => Box::new(locks::LockRows { look }),
            Tab::Tasks => Box::new(tasks::TaskRows { look, explained, stuck }),
        };
        (rows, &mut lists[*tab as usize])
    }

    /// Where the user is in the list that is shown.
    pub fn place(&self) -> &List {
        &self.lists[self.tab as usize]
    }

    /// How many rows a list has.
    pub fn number(&self, tab: Tab) -> Option<usize> {
        let snapshot = &self.look.as_ref()?.snapshot;
        Some(match tab {
            Tab::Threads => snapshot.threads.len(),
            Tab::Locks => snapshot.objects.len(),
            Tab::Tasks => snapshot.tasks.len(),
        })
    }

    /// What could not be seen, as the last look and the last explanation tell it.
    pub fn gaps(&self) -> Vec<&Gap> {
        let mut gaps: Vec<&Gap> = self.look.iter().flat_map(|look| &look.snapshot.gaps).collect();
        for gap in self.explained.iter().flat_map(|explained| &explained.gaps) {
            if !gaps.iter().any(|known| (&known.what, &known.why) == (&gap.what, &gap.why)) {
                gaps.push(gap);
            }
        }
        gaps
    }

    /// What the last explanation says, unless that is of a hang: those are told as long as looks show them.
    pub fn verdict(&self) -> Option<&Verdict> {
        let verdict = self.explained.as_ref()?.verdict.as_ref()?;
        (!matches!(verdict.kind, VerdictKind::Deadlock | VerdictKind::NobodyLeft)).then_some(verdict)
    }

    /// The hangs: those of the last look, and of the last explanation those that only that can find.
    pub fn hangs(&self) -> Vec<&Finding> {
        let looked = self.look.iter().flat_map(|look| &look.snapshot.findings).filter(|finding| is_bad(finding));
        let mut hangs: Vec<&Finding> = looked.collect();
        // What a look finds was seen in it, or is over.
        let needs_more = |finding: &&Finding| {
            matches!(
                finding.kind,
                FindingKind::ProcessCircle
                    | FindingKind::TaskDeadlock
                    | FindingKind::PoolStarved
                    | FindingKind::NobodyLeft
                    | FindingKind::CondWithoutSignaller
            )
        };
        let explained = self.explained.iter().flat_map(|explained| &explained.findings).filter(needs_more);
        for finding in explained {
            if !hangs.iter().any(|known| known.kind == finding.kind && known.threads == finding.threads) {
                hangs.push(finding);
            }
        }
        hangs
    }
}

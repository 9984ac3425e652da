//! What one look has read, for all its parts.

use super::Stacks;
use super::threads::{Collected, collect_threads};
use super::waits::{add_descriptors, collect, name_objects};
use crate::Lwp;
use crate::model::{Libc, Snapshot, SyncObject, Thread};
use crate::runtimes::Types;
use crate::runtimes::glibc::Layout;
use crate::symbols::{DataNames, LockVariable, Objects, Symbolizer};
use crate::target::{LwpFacts, Target, TargetError};
use crate::unwind::Space;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Threads alone.
    Threads,
    /// What threads wait for, too, and what is wrong with that. Where memory may not be read, threads alone.
    Waited,
    /// Locks that threads hold as well, as far as they can be found.
    Held,
    /// Idle ones too, where a variable's type or symbol names them.
    All,
}

/// Which objects get names, where names can be found. That may take longer than all the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// None, and no statistics: for those who look often.
    None,
    /// Those that a finding is about; with [`Scope::Held`] all.
    Findings,
    /// All.
    All,
}

/// One look at a target: its objects and their code, of which each is read once. Several snapshots of a process
/// that loads nothing new may be taken with one.
pub struct Look<'t> {
    pub(crate) target: &'t dyn Target,
    pub(crate) objects: Arc<Objects<'t>>,
    pub(crate) space: Arc<Space<'t>>,
    /// What the kernel told of the threads last.
    facts: Mutex<Arc<BTreeMap<Lwp, LwpFacts>>>,
    /// Where things are in the target's memory, if that was known before.
    pub(crate) layout: Option<Layout>,
    /// The C library of the target, once it is known.
    libc: OnceLock<Libc>,
    /// All locks in variables, once they are known.
    variables: OnceLock<Arc<Vec<LockVariable>>>,
}

impl<'t> Look<'t> {
    /// Begins to look at `target`; reads nothing yet.
    pub fn new(target: &'t dyn Target) -> Self {
        let objects = Objects::new(target, &Types);
        let space = Arc::new(Space::of_objects(&objects));
        Self {
            target,
            objects,
            space,
            facts: Mutex::default(),
            layout: None,
            libc: OnceLock::new(),
            variables: OnceLock::new(),
        }
    }

    /// The same look, by one who knows where things are in the target's memory.
    pub fn with_layout(self, layout: &Layout) -> Self {
        Self { layout: Some(layout.clone()), ..self }
    }

    /// The same look, by one who knows the locks in variables: finding them takes its time.
    pub fn with_variables(self, variables: &Arc<Vec<LockVariable>>) -> Self {
        Self { variables: OnceLock::from(variables.clone()), ..self }
    }

    /// Looks, without stopping the target.
    pub fn take(&self, scope: Scope, names: Names) -> Result<Snapshot, TargetError> {
        if scope == Scope::Threads {
            let Collected { snapshot, facts, .. } = collect_threads(self)?;
            self.keep_facts(facts);
            return Ok(snapshot);
        }
        if let Some(denial) = self.target.denial().filter(|_| scope >= Scope::Held) {
            return Err(TargetError::NoLocks { pid: self.target.pid(), why: denial.to_string() });
        }
        let limits = self.target.limits();
        let _look = limits.begin();
        let mut snapshot = collect(self, scope, names, &[])?;
        if names == Names::All {
            add_descriptors(self.target, &mut snapshot.threads);
        }
        if names != Names::None {
            crate::table::add_stats(self.target, &mut snapshot);
            limits.report(&mut snapshot.gaps);
        }
        Ok(snapshot)
    }

    /// Adds the stacks of the threads of `snapshot` that stand still.
    pub fn add_stacks(&self, snapshot: &mut Snapshot) {
        let mut stacks = Stacks::new(self);
        stacks.read(&snapshot.threads, &mut snapshot.gaps).report(&mut snapshot.gaps);
        stacks.finish(snapshot);
    }

    /// The same for those of `lwps` alone. Why others have none is not said.
    pub fn add_stacks_of(&self, snapshot: &mut Snapshot, lwps: &BTreeSet<Lwp>) {
        let is_wanted = |thread: &&Thread| thread.lwp.is_some_and(|lwp| lwps.contains(&lwp));
        let threads: Vec<Thread> = snapshot.threads.iter().filter(is_wanted).cloned().collect();
        if threads.is_empty() {
            return;
        }
        let mut stacks = Stacks::new(self).without_libc_lines();
        stacks.read(&threads, &mut snapshot.gaps).report(&mut snapshot.gaps);
        stacks.finish(snapshot);
    }

    /// Adds the descriptors of the calls that the threads of `snapshot` are in.
    pub fn add_descriptors(&self, snapshot: &mut Snapshot) {
        add_descriptors(self.target, &mut snapshot.threads);
    }

    /// Names those objects of `snapshot` that are `wanted` and have no name yet, and the waits for them.
    pub fn add_names(&self, snapshot: &mut Snapshot, wanted: &dyn Fn(&SyncObject) -> bool) {
        name_objects(self, snapshot, wanted);
    }

    /// Names for addresses of its code.
    pub fn symbolizer(&self) -> Symbolizer<'t> {
        Symbolizer::new(&self.objects)
    }

    /// Names for addresses of its data.
    pub fn data_names(&self) -> DataNames<'t> {
        DataNames::new(&self.objects)
    }

    /// All locks in variables.
    pub fn lock_variables(&self) -> &Arc<Vec<LockVariable>> {
        self.variables.get_or_init(|| Arc::new(self.data_names().lock_variables()))
    }

    /// The C library of the target, as the last look found it.
    pub(crate) fn libc(&self) -> &Libc {
        self.libc.get().unwrap_or(&Libc::Unread)
    }

    pub(crate) fn keep_libc(&self, libc: &Libc) {
        let _ = self.libc.set(libc.clone());
    }

    /// What the kernel told of the threads when they were looked at last.
    pub(crate) fn facts(&self) -> Arc<BTreeMap<Lwp, LwpFacts>> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn keep_facts(&self, facts: BTreeMap<Lwp, LwpFacts>) {
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(facts);
    }
}

//! One look at the threads of a target.

use super::describe::Describer;
use super::job_control;
use super::musl::MuslThreads;
use super::pairing::{self, Pairs};
use super::running;
use crate::Lwp;
use crate::look::Look;
use crate::model::{Gap, Libc, SCHEMA, Snapshot, Stop, StopKind, TargetInfo, Thread};
use crate::runtimes::glibc::{Layout, LayoutError};
use crate::runtimes::{self, LibcLayout, ThreadRecord, musl};
use crate::target::{Identity, Library, LwpFacts, Target, TargetError};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// How often threads that appeared while we looked are added. In a process that makes threads
/// without pause somebody is always newer than the look.
const ROUNDS: usize = 3;

/// The name a thread takes that holds another process's thread suspended, so that a second look can
/// tell its stop from a debugger's.
pub(crate) const SUSPENDER: &CStr = c"tglass-suspend";

/// A snapshot together with what was learned to make it, for questions that come after.
#[derive(Debug)]
pub struct Collected {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// glibc's layout in this target, where it has one.
    pub layout: Option<Layout>,
    /// musl's, where it has that.
    pub musl: Option<musl::Layout>,
    /// What the kernel told of each thread.
    pub facts: BTreeMap<Lwp, LwpFacts>,
}

impl Collected {
    /// The layout of its C library, whichever that is.
    pub fn libc(&self) -> Option<LibcLayout<'_>> {
        let glibc = self.layout.as_ref().map(LibcLayout::Glibc);
        glibc.or(self.musl.as_ref().map(LibcLayout::Musl))
    }
}

/// Looks at threads, without stopping the target.
pub(crate) fn collect_threads(look: &Look<'_>) -> Result<Collected, TargetError> {
    let (target, symbolizer) = (look.target, look.symbolizer());
    let _look = target.limits().begin();
    let taken_at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let mut gaps = target.losses();
    let mut facts: BTreeMap<Lwp, LwpFacts> = BTreeMap::new();
    let mut pairs = Pairs::default();
    let mut layout: Option<Result<Layout, LayoutError>> = look.layout.clone().map(Ok);
    let denial = target.denial();

    for round in 0..ROUNDS {
        if round > 0 && target.thread_count() == Some(facts.len()) {
            break;
        }
        let new: Vec<_> = target.lwps()?.into_iter().filter(|lwp| !facts.contains_key(lwp)).collect();
        if new.is_empty() {
            break;
        }
        let new: Vec<_> = target.facts(&new).into_iter().flatten().collect();
        if denial.is_none() {
            let hints = pairing::hints(&new);
            let known = layout.get_or_insert_with(|| {
                let hints: Vec<_> = hints.iter().map(|(_, hint)| *hint).collect();
                Layout::discover(target, target, &hints)
            });
            if let Ok(layout) = known {
                pairs.add_by_anchors(target, layout, &hints);
            }
        }
        facts.extend(new.into_iter().map(|facts| (facts.lwp, facts)));
        if facts.is_empty() {
            return Err(TargetError::Exited(target.pid()));
        }
    }
    let mut musl = None;
    let layout = match layout {
        Some(Ok(layout)) => {
            let refs: Vec<_> = facts.values().collect();
            pairs.add_by_list(target, &layout, &refs);
            Some(layout)
        }
        Some(Err(error)) => {
            musl = MuslThreads::find(target, &facts.values().cloned().collect::<Vec<_>>())
                .filter(|_| error == LayoutError::NoGlibc);
            if musl.is_none() && !(error == LayoutError::NoGlibc && runtimes::needs_no_libc(target)) {
                gaps.push(Gap::whole(
                    "thread ids, stacks, start functions, thread-specific data",
                    describe_libc(target, &error),
                ));
            }
            None
        }
        None => None,
    };
    if let Some(denial) = &denial {
        gaps.push(Gap::whole("thread ids, stacks, start functions, registers, system calls", denial.to_string()));
    }
    if let Some(reason) = pairs.broken.take() {
        let why = match target.identity().core {
            // Nothing moves in a core.
            Some(_) => "the core lacks a part of libc's list of threads, or the list is corrupt".to_owned(),
            None => reason.to_string(),
        };
        gaps.push(Gap::whole("threads that have exited and were not joined", why));
    }

    running::refine(target, facts.values_mut());
    if let Some(layout) = &layout {
        pairs.confirm(target, layout);
    }
    if let Some(musl) = &mut musl {
        musl.confirm(target, &mut gaps);
    }
    target.check_identity()?;
    let leader = target.pid().leader();
    // A thread other than the leader that the kernel calls ended is only waiting to be removed.
    let is_there = |lwp: Lwp, facts: &LwpFacts| (lwp == leader || !facts.state.has_ended()) && target.has_thread(lwp);
    facts.retain(|lwp, facts| pairs.of_lwp.contains_key(lwp) || is_there(*lwp, facts));
    let record = |lwp: Lwp, facts: &LwpFacts| match (&layout, &musl) {
        (Some(layout), _) => pairs.of_lwp.get(&lwp).map(|thread| thread.record(layout)),
        (None, Some(musl)) => musl.record(target, facts.inner),
        (None, None) => None,
    };

    let mut describer = Describer::new(Some(target), Some(&symbolizer));
    let mut threads: Vec<Thread> = Vec::with_capacity(facts.len() + pairs.zombies.len());
    for (lwp, facts) in &facts {
        let record: Option<ThreadRecord> = record(*lwp, facts);
        if record.is_none() && (layout.is_some() || musl.is_some()) {
            Gap::of_thread(&mut gaps, "thread id", why_no_descriptor(target, facts), *lwp);
        }
        threads.push(describer.living(facts, record.as_ref(), &mut gaps));
    }
    if let Some(layout) = &layout {
        threads.extend(pairs.zombies.iter().map(|zombie| describer.zombie(&zombie.record(layout))));
    }
    job_control::add(target, &mut threads);
    if let Some(thaw) = target.frozen() {
        for thread in threads.iter_mut().filter(|thread| thread.stop.is_none() && thread.lwp.is_some()) {
            thread.stop = Some(Stop { by: Some(thaw.clone()), ..Stop::new(StopKind::Frozen) });
        }
    }
    target.limits().report(&mut gaps);
    threads.sort_by_key(|thread| (thread.lwp.is_none(), thread.lwp != Some(leader), thread.lwp));

    let snapshot = Snapshot {
        schema: SCHEMA,
        target: target_info(target, denial.is_some(), layout.as_ref(), musl.is_some()),
        taken_at_ms,
        pause_us: 0,
        longest_pause_us: 0,
        threads,
        task_runtimes: Vec::new(),
        tasks: Vec::new(),
        task_groups: Vec::new(),
        objects: Vec::new(),
        verdict: None,
        findings: Vec::new(),
        groups: Vec::new(),
        runtimes: Vec::new(),
        strangers: Vec::new(),
        looks: 1,
        gaps,
    };
    look.keep_libc(&snapshot.target.libc);
    Ok(Collected { snapshot, layout, musl: musl.map(|it| it.layout), facts })
}

/// Why a living thread of a process whose C library is known has no descriptor of its own.
fn why_no_descriptor(target: &dyn Target, facts: &LwpFacts) -> &'static str {
    match facts.thread_pointer.map(|pointer| target.read_u64(pointer)) {
        Some(Err(_)) => "the core lacks the memory that holds it",
        // gdb up to 13 (at least) gives up on a whole stack whose guard it cannot read (glibc 2.42 on).
        Some(Ok(0)) => "the core has only zeros there: its writer could not read that memory",
        _ => "the thread is starting or ending, or was not created by pthread_create",
    }
}

fn target_info(target: &dyn Target, denied: bool, layout: Option<&Layout>, is_musl: bool) -> TargetInfo {
    let libc = match layout {
        Some(layout) => Libc::Glibc { version: layout.version.clone(), layout: layout.provenance },
        None if denied => Libc::Unread,
        None if is_musl => Libc::Musl,
        None => Libc::Other { name: other_libc(target).map(str::to_owned) },
    };
    let Identity { name, exe, uid, in_pid_namespace, shared_pending, tracer, core } = target.identity();
    TargetInfo {
        pid: target.pid(),
        name,
        exe,
        uid,
        in_pid_namespace,
        libc,
        shared_pending,
        tracer,
        core,
        snapshot: None,
    }
}

fn other_libc(target: &dyn Target) -> Option<&'static str> {
    // It has been found not to be glibc, so what is called plain `libc.so` is musl too.
    let is_musl = |library| matches!(library, Library::Musl | Library::PlainLibc);
    target.modules().iter().any(|module| is_musl(module.library())).then_some("musl")
}

fn describe_libc(target: &dyn Target, error: &LayoutError) -> String {
    match (error, other_libc(target)) {
        (LayoutError::NoGlibc, Some(name)) => {
            format!("this process runs on {name}, not glibc: only what the kernel knows is shown")
        }
        (LayoutError::NoGlibc, None) => {
            "this process has no glibc that can be recognised (static without threads, another libc, or none): \
             only what the kernel knows is shown"
                .to_owned()
        }
        (error, _) => format!("{error}: only what the kernel knows is shown"),
    }
}

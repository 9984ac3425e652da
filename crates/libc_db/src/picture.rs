//! What threads wait for and hold, seen in one look and kept for a moment.
//!
//! A client asks for one object after the other, but what an object is follows from a look at all threads.
//! So the last look is kept, for [`FRESH`] at most; whatever acts on the process forgets it. Only the
//! kinds of objects and who waited are taken from it: an object's bytes are read anew in every call, and a
//! wait counts only while the kernel says that the thread has not moved since.

use crate::abi::{Td, TdErr};
use crate::session::{Session, lock};
use crate::sync::stats::recorded_kind;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadglass::internals::{LockVariable, Reread, SyscallFile, around, by_content, reread};
use threadglass::look::{Look, Names, Scope};
use threadglass::model::{Evidence, Family, SyncObject, Thread};
use threadglass::target::{Live, LwpFacts, Target};
use threadglass::{Lwp, RemoteAddr};

/// For how long a look may be used.
const FRESH: Duration = Duration::from_millis(50);

/// Locks in variables, as symbols and debug information have them, with where each object was loaded then.
/// They are looked for again when other objects are.
#[derive(Clone, Default)]
pub(crate) struct Variables {
    objects: Vec<(RemoteAddr, RemoteAddr)>,
    locks: Arc<Vec<LockVariable>>,
}

impl Variables {
    /// Those of `target`: these, or found anew.
    fn of(self, target: &dyn Target) -> Self {
        let objects: Vec<_> = target.modules().iter().map(|module| (module.base, module.end)).collect();
        match self.objects == objects {
            true => self,
            false => Self { objects, locks: Look::new(target).lock_variables().clone() },
        }
    }
}

/// How much a look shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// The objects that threads wait for. Needs no debug information, which takes long to read.
    Waits,
    /// Those that are held too, and idle ones in variables.
    All,
}

/// One look.
pub(crate) struct Picture {
    depth: Depth,
    taken: Instant,
    /// The live process, opened for this look: its mappings are those of the moment.
    live: Option<Arc<Live>>,
    threads: Vec<Thread>,
    objects: BTreeMap<RemoteAddr, SyncObject>,
    /// What each sleeping thread was blocked in, and how often it had given up the CPU, before the look.
    calls: HashMap<Lwp, (SyscallFile, Option<(u64, u64)>)>,
    /// What it waits for.
    waits: HashMap<Lwp, RemoteAddr>,
}

impl Session {
    /// A look that is not older than [`FRESH`], and whether it was taken for this call.
    pub(crate) fn recent_picture(&self, depth: Depth) -> Td<(Arc<Picture>, bool)> {
        // Nothing moves in a core.
        let fresh = |picture: &Picture| self.core().is_some() || picture.taken.elapsed() < FRESH;
        let recent = |picture: &&Arc<Picture>| picture.depth >= depth && fresh(picture);
        let known = lock(&self.picture).as_ref().filter(recent).cloned();
        match known {
            Some(picture) => Ok((picture, false)),
            None => Ok((self.new_picture(depth)?, true)),
        }
    }

    /// A new look.
    pub(crate) fn new_picture(&self, depth: Depth) -> Td<Arc<Picture>> {
        // Not locked meanwhile: the client's routines run.
        let picture = Arc::new(Picture::take(self, depth)?);
        *lock(&self.picture) = Some(picture.clone());
        Ok(picture)
    }

    /// Forgets what was read ahead: something in the target was changed, or will be.
    pub(crate) fn forget(&self) {
        lock(&self.facts).forget();
        lock(&self.picture).take();
        lock(&self.tasks).forget();
    }

    /// Runs `look` with everything of the process: its memory and what the kernel knows.
    pub(crate) fn looking<R>(&self, live: Option<&Live>, look: impl FnOnce(&dyn Target) -> Td<R>) -> Td<R> {
        let look = |target: &dyn Target| {
            let _look = target.limits().begin();
            look(target)
        };
        if let Some(core) = self.core() {
            return look(core);
        }
        match (self.client(), live) {
            (Some(client), live) => {
                let target = self.service(client, live);
                let found = look(&target);
                if self.was_whole(&target) { found } else { Err(TdErr::DbErr) }
            }
            (None, Some(live)) => look(live),
            (None, None) => Err(TdErr::DbErr),
        }
    }
}

/// The live process opened once more, because what was opened keeps its first list of mappings.
pub(crate) fn open_again(session: &Session) -> Td<Option<Arc<Live>>> {
    let Some(known) = session.live() else {
        return if session.core().is_some() || session.client().is_some() { Ok(None) } else { Err(TdErr::DbErr) };
    };
    let again = Live::open(known.pid()).map_err(|_| TdErr::DbErr)?;
    // The one that was known is still there, so nobody else can have had its number.
    known.check_identity().map_err(|_| TdErr::DbErr)?;
    if again.denial().is_some() { Err(TdErr::DbErr) } else { Ok(Some(Arc::new(again))) }
}

impl Picture {
    fn take(session: &Session, depth: Depth) -> Td<Self> {
        let live = open_again(session)?;
        let known = lock(&session.variables).clone();
        let (snapshot, before, variables) = session.looking(live.as_deref(), |target| {
            // Before anything else, so that a thread of which the same is true later has not moved since.
            let before = target.facts(&target.lwps().map_err(|_| TdErr::DbErr)?);
            // Idle objects too, where a variable says what they are: a client may ask for one by its address.
            let (scope, variables) = match depth {
                Depth::Waits => (Scope::Waited, known),
                Depth::All => (Scope::All, known.of(target)),
            };
            let look = Look::new(target).with_variables(&variables.locks);
            let look = match session.layout().ok().filter(|_| session.client().is_some()) {
                Some(layout) => look.with_layout(layout),
                None => look,
            };
            let snapshot = look.take(scope, Names::None).map_err(|_| TdErr::DbErr)?;
            Ok((snapshot, before, variables))
        })?;
        // Only what was learned from a whole answer is kept.
        *lock(&session.variables) = variables;
        let waits = snapshot.objects.iter().flat_map(|object| {
            let address = object.address;
            object.waiters.iter().filter(|waiter| waiter.pid.is_none()).map(move |waiter| (waiter.lwp, address))
        });
        let waits = waits.collect();
        let calls =
            before.into_iter().flatten().filter_map(|facts| Some((facts.lwp, (facts.syscall?, facts.switches))));
        let calls = calls.filter(|(_, (call, _))| matches!(call, SyscallFile::Inside { .. })).collect();
        Ok(Self {
            depth,
            taken: Instant::now(),
            live,
            threads: snapshot.threads,
            objects: snapshot.objects.into_iter().map(|object| (object.address, object)).collect(),
            calls,
            waits,
        })
    }

    /// Runs `look` with the process as this look had it.
    pub(crate) fn looking<R>(&self, session: &Session, look: impl FnOnce(&dyn Target) -> Td<R>) -> Td<R> {
        session.looking(self.live.as_deref(), look)
    }

    /// How much it shows.
    pub(crate) fn depth(&self) -> Depth {
        self.depth
    }

    /// The live process, where there is one.
    pub(crate) fn live(&self) -> Option<&Live> {
        self.live.as_deref()
    }

    /// The objects that were seen, in address order.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &SyncObject> {
        self.objects.values()
    }

    /// The object that was seen at `address`.
    pub(crate) fn object(&self, address: RemoteAddr) -> Option<&SyncObject> {
        self.objects.get(&address)
    }

    /// What a thread waited for.
    pub(crate) fn wait_of(&self, lwp: Lwp) -> Option<RemoteAddr> {
        self.waits.get(&lwp).copied()
    }

    /// Whether each of `lwps` still is in the call it was seen in, and was so all the time.
    pub(crate) fn have_not_moved(&self, target: &dyn Target, lwps: &[Lwp]) -> bool {
        lwps.is_empty() || lwps.iter().zip(target.facts(lwps)).all(|(lwp, now)| self.has_not_moved(*lwp, now.as_ref()))
    }

    /// Whether a thread, with these facts now, is in the call it was seen in, and was so all the time.
    pub(crate) fn has_not_moved(&self, lwp: Lwp, now: Option<&LwpFacts>) -> bool {
        let (Some((call, switches)), Some(now)) = (self.calls.get(&lwp), now) else { return false };
        now.syscall == Some(*call) && now.switches == *switches
    }

    /// What the object at `address` says now. `Err` when nothing can be read there; `None` in the place of
    /// its state when it cannot be told what it is.
    pub(crate) fn read(&self, session: &Session, target: &dyn Target, address: RemoteAddr) -> Td<Option<Reread>> {
        let layout = session.layout().ok();
        if let Some(object) = self.object(address) {
            return reread(target, layout, &self.threads, object).map(Some).ok_or(TdErr::DbErr);
        }
        target.read_u32(address).map_err(|_| TdErr::DbErr)?;
        let before = self.objects.range(..address).next_back().map(|(_, object)| object);
        if around(before, address).is_some() {
            return Ok(None);
        }
        let is_thread = |inner| self.threads.iter().any(|thread| thread.inner_lwp == Some(inner));
        let known = match by_content(target, address, &is_thread) {
            Some(kind) => Some((kind, Evidence::Inferred)),
            None => recorded_kind(session, address)?,
        };
        let Some((kind, evidence)) = known else { return Ok(None) };
        Ok(reread(target, layout, &self.threads, &SyncObject::bare(address, kind, Family::Pthread, evidence)))
    }
}

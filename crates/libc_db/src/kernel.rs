//! The live process behind a client's handle, once it has been shown to be the same.
//!
//! A debugger's handle may stand for a core file whose pid belongs to a stranger by now, or to the very process that has
//! moved on since. So `/proc` is believed only when everything that can be read both ways agrees: the sixteen random
//! bytes that the kernel gave the process at its start, libc's lists of threads, and the stack and registers of every
//! thread that does not move.
//!
//! Nothing is written for this: clients have a `ps_pdwrite` that aborts. A core in which nothing differs from its process
//! is told apart only by a write, so that is tried before the process is acted upon, and never for a look.

use crate::client::Client;
use crate::session::lock;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use threadglass::internals::glibc::Layout;
use threadglass::internals::{Inspector, KernelState};
use threadglass::memory::Memory;
use threadglass::target::{KernelFacts, Live, LwpFacts, ProcService, Service};
use threadglass::{InnerTid, Pid, PthreadId, RemoteAddr};

/// How long a failed check stands before it is tried again.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a successful one does: a process does not exec between two threads of a walk.
const FRESH: Duration = Duration::from_millis(1);

/// How often lists are compared while threads come and go.
const TRIES: usize = 4;

/// Bytes of a thread's stack that are compared: the frames of its call.
const STACK: usize = 256;

#[derive(Default)]
enum State {
    #[default]
    Unchecked,
    Same(Arc<Live>, Instant),
    Failed(Instant),
}

/// The result of the check, kept for a session.
#[derive(Default)]
pub(crate) struct Kernel {
    state: Mutex<State>,
}

impl Kernel {
    /// Closes the process.
    pub(crate) fn forget(&self) {
        *lock(&self.state) = State::Unchecked;
    }

    /// The live process, if there is one and it is the same.
    pub(crate) fn live(&self, client: Client, layout: &Layout) -> Option<Arc<Live>> {
        match &mut *lock(&self.state) {
            State::Same(live, checked) if checked.elapsed() < FRESH => return Some(live.clone()),
            State::Same(live, checked) if live.is_same_image() => {
                *checked = Instant::now();
                return Some(live.clone());
            }
            State::Failed(when) if when.elapsed() < PATIENCE => return None,
            _ => {}
        }
        // Not locked meanwhile: the client's routines run, and may throw.
        let found = check(client, layout);
        *lock(&self.state) = match &found {
            Some(live) => State::Same(live.clone(), Instant::now()),
            None => State::Failed(Instant::now()),
        };
        found
    }
}

/// Whether the client can write to its process: to a core it cannot. Writes over bytes what they are already.
pub(crate) fn can_write(client: Client, live: &Live) -> bool {
    random_bytes(client, live).is_some_and(|(at, bytes)| client.write(at, &bytes).is_ok())
}

fn check(client: Client, layout: &Layout) -> Option<Arc<Live>> {
    let live = Live::open(client.pid()?).ok()?;
    if live.denial().is_some() {
        return None;
    }
    random_bytes(client, &live)?;
    let both = BothWays { client, live: &live, layout };
    let listed = (0..TRIES).find_map(|_| both.listed_threads())?;
    both.threads_agree(&listed).then(|| Arc::new(live))
}

/// The bytes that the kernel gave the process at its start, if they read the same both ways.
fn random_bytes(client: Client, live: &Live) -> Option<(RemoteAddr, [u8; 16])> {
    let at = live.auxv()?.random?;
    let (mut ours, mut theirs) = ([0; 16], [0; 16]);
    live.read_exact(at, &mut ours).ok()?;
    client.read(at, &mut theirs).ok()?;
    (ours == theirs).then_some((at, ours))
}

/// What comparing one thread says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    /// It has not moved meanwhile, and still the two differ.
    Other,
    /// It moved.
    Unknown,
}

/// One process, as the client shows it and as the kernel does.
struct BothWays<'a> {
    client: Client,
    live: &'a Live,
    layout: &'a Layout,
}

impl BothWays<'_> {
    /// The threads on libc's lists, if the lists agree: those that were there before and after the client was asked are on
    /// its list too, and it has no others.
    fn listed_threads(&self) -> Option<HashSet<InnerTid>> {
        let before = self.list(self.live)?;
        let theirs = self.list(&Service::new(self.client))?;
        let after = self.list(self.live)?;
        let agree = before.intersection(&after).all(|thread| theirs.contains(thread))
            && theirs.iter().all(|thread| before.contains(thread) || after.contains(thread));
        agree.then(|| theirs.into_iter().map(|(_, tid)| InnerTid(tid)).collect())
    }

    fn list(&self, memory: &dyn Memory) -> Option<HashSet<(PthreadId, i32)>> {
        let inspector = Inspector { memory, layout: self.layout, target: None };
        if !inspector.is_initialised().ok()? {
            return Some(HashSet::new());
        }
        Some(inspector.list().ok()?.iter().map(|thread| (thread.id, thread.tid)).collect())
    }

    /// Whether every thread that stands still is in the same place both ways, and there is such a thread.
    fn threads_agree(&self, listed: &HashSet<InnerTid>) -> bool {
        let facts = self.live.facts(&self.live.lwps().unwrap_or_default());
        let mut seen = false;
        for facts in facts.iter().flatten() {
            match self.compare(facts, listed.contains(&facts.inner) || is_leader(facts, self.live.pid())) {
                Verdict::Same => seen = true,
                Verdict::Other => return false,
                Verdict::Unknown => {}
            }
        }
        seen
    }

    /// `is_known`: the client's process has this thread too, so its registers may be asked for.
    fn compare(&self, facts: &LwpFacts, is_known: bool) -> Verdict {
        if facts.state.has_ended() {
            return Verdict::Unknown;
        }
        let Some((sp, pc)) = facts.syscall.and_then(|call| call.registers()) else { return Verdict::Unknown };
        let may_ask = is_known && can_be_asked(facts);
        // A client without the registers of a thread that runs still has its stack.
        let registers = may_ask.then(|| self.client.registers(facts.lwp).ok()).flatten();
        let agree =
            registers.is_none_or(|registers| (registers.sp(), registers.pc()) == (sp, pc)) && self.stacks_agree(sp);
        if agree {
            return Verdict::Same;
        }
        let now = self.live.facts(&[facts.lwp]).pop().flatten();
        let stood = now.is_some_and(|now| (now.syscall, now.switches) == (facts.syscall, facts.switches));
        if stood { Verdict::Other } else { Verdict::Unknown }
    }

    fn stacks_agree(&self, sp: RemoteAddr) -> bool {
        let (mut ours, mut theirs) = ([0; STACK], [0; STACK]);
        // The top of a stack may be nearer than that.
        let len = self.live.read_at(sp, &mut ours).unwrap_or(0);
        len > 0 && self.client.read(sp, &mut theirs[..len]).is_ok() && ours[..len] == theirs[..len]
    }
}

/// A debugger cannot tell the registers of a thread that it lets run, and may throw when it is asked.
fn can_be_asked(facts: &LwpFacts) -> bool {
    facts.tracer == 0 || facts.state == KernelState::Traced
}

fn is_leader(facts: &LwpFacts, pid: Pid) -> bool {
    facts.lwp.0 == pid.0
}

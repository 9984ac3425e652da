//! Threads that wait by reading a word again and again: without sleeping, with `sched_yield`, or with a short sleep in between.
//! Those that never sleep are found by samples (`sampled_spin.rs`).

use super::look::object;
use super::owners::Owners;
use super::survey::read_objects;
use crate::arch::syscall::{CLOCK_NANOSLEEP, NANOSLEEP};
use crate::look::Look;
use crate::look::guards::{Round, RunningThread, STEPS, after_call, round};
use crate::model::{Evidence, Snapshot, Spin, SyncKind, Thread, ThreadState, Watched};
use crate::proc::SyscallFile;
use crate::runtimes::{self, Class, Content, Context};
use crate::{Lwp, RemoteAddr};
use std::collections::{BTreeSet, HashMap};

/// Calls that sleep for a time.
const SLEEPS: [i64; 2] = [NANOSLEEP, CLOCK_NANOSLEEP];
/// Looks at a thread that may be asleep the next moment.
const TRIES_ASLEEP: usize = 3;
/// Sleeping threads of which it is looked at whether they poll.
const MAX_POLLS: usize = 16;
/// Running threads of a core of which it is looked at whether they spin.
const MAX_SPINS: usize = 16;

/// Bytes of the largest lock of libc.
const LARGEST_LOCK: u64 = 56;

/// A round in words: the word that decides whether it goes on, with the name of the lock or variable there.
pub(super) fn describe(look: &Look<'_>, round: &Round) -> Option<Spin> {
    let symbolizer = look.symbolizer();
    let kind = round.places.iter().find_map(|place| {
        let function = symbolizer.enclosing_function(RemoteAddr(*place))?;
        runtimes::tries(&function)
    });
    // What libc looks at on the way is waited for by nobody, unless it is asked for a lock.
    let is_libc = |place: u64| look.space.is_libc(place);
    let words = round.words.iter().filter(|(_, place)| kind.is_some() || !is_libc(*place));
    let words: Vec<RemoteAddr> = words.map(|(word, _)| *word).collect();
    if round.words.is_empty() {
        // Nothing can end it: a compiler that knows the word never to change leaves this.
        let (yields, sleeps) = (round.yields, round.sleeps);
        return Some(Spin { yields, sleeps, word: None, name: None, kind: None, held_by: None });
    }
    let word = word_of(&words, kind)?;
    let mut data = look.data_names();
    let name = data.variable_at(word).map(own_part).or_else(|| data.offset_of(word));
    let name = match (kind, name) {
        (Some(kind), Some(name)) => Some(format!("{} {name}", kind.word())),
        (Some(kind), None) => Some(format!("{} {}", kind.word(), word)),
        (None, name) => name,
    };
    Some(Spin { yields: round.yields, sleeps: round.sleeps, word: Some(word), name, kind, held_by: None })
}

/// Finds the threads of `snapshot` that sleep for a time, and do so until a word changes.
pub(super) fn add_polls(look: &Look<'_>, snapshot: &mut Snapshot) {
    // Those that sleep shortly may have been seen awake.
    let may_sleep = |thread: &&mut Thread| match &thread.syscall {
        Some(call) => SLEEPS.contains(&call.number),
        None => thread.state != ThreadState::Zombie && thread.stop.is_none() && thread.spin().is_none(),
    };
    for thread in snapshot.threads.iter_mut().filter(may_sleep).take(MAX_POLLS) {
        thread.polls = poll(look, thread).map(Box::new);
    }
}

/// Finds the threads of a core that were going round until a word changes: of each the core has the one moment at which it was
/// written, with all registers.
pub(super) fn add_spins_at_rest(look: &Look<'_>, snapshot: &mut Snapshot) {
    let runs = |thread: &&mut Thread| thread.syscall.is_none() && thread.state == ThreadState::Active;
    for thread in snapshot.threads.iter_mut().filter(runs).take(MAX_SPINS) {
        if let Some(spin) = spin_at_rest(look, thread) {
            thread.watched = Some(Box::new(Watched { samples: 1, here: 1, spins: Some(spin) }));
        }
    }
}

fn spin_at_rest(look: &Look<'_>, thread: &Thread) -> Option<Spin> {
    let registers = look.target.registers_at_rest(thread.lwp?)?;
    let thread_pointer = thread.id.map(|id| id.0.0);
    let (pc, registers) = (registers.pc.0, registers.as_instructions_do());
    let running = RunningThread { pc, registers, stack: &[], in_call: false, thread_pointer };
    // One that only comes to a loop is not in it yet.
    let round = round(look.target, &running, &mut { STEPS }).filter(|round| round.places.contains(&pc))?;
    describe(look, &round)
}

fn poll(look: &Look<'_>, thread: &Thread) -> Option<Spin> {
    let lwp = thread.lwp?;
    let sleeping = |call: &SyscallFile| matches!(call, SyscallFile::Inside { number, .. } if SLEEPS.contains(number));
    let call = (0..TRIES_ASLEEP).find_map(|_| look.target.wait_call(lwp).filter(sleeping))?;
    let (sp, pc) = call.registers()?;
    let (pc, registers) = after_call(look.target, &look.space, (lwp, sp, pc), thread.start)?;
    let thread_pointer = thread.id.map(|id| id.0.0);
    let running = RunningThread { pc, registers, stack: &[], in_call: false, thread_pointer };
    describe(look, &round(look.target, &running, &mut { STEPS })?).filter(|spin| spin.sleeps)
}

/// Says who holds the mutexes that threads try to take again and again.
pub(super) fn add_holders(look: &Look<'_>, snapshot: &mut Snapshot) {
    let tried = |spin: &Spin| spin.word.filter(|_| spin.kind == Some(SyncKind::Mutex));
    let words: BTreeSet<RemoteAddr> = snapshot.threads.iter().filter_map(Thread::spin).filter_map(tried).collect();
    let Some(family) = runtimes::usual(SyncKind::Mutex, &snapshot.target.libc) else { return };
    let classes: Vec<Class> =
        words.into_iter().map(|word| Class::new(SyncKind::Mutex, family, word, Evidence::Derived)).collect();
    let contents = read_objects(&Context::new(look.target, None, &[]), &classes);
    let owners = Owners::new(look.target, &snapshot.threads);
    let holder = |(class, content): (&Class, &Option<Content>)| {
        let content = content.as_ref().filter(|content| content.is_plausible)?;
        let holder = object(look.target, class, Some(content), &owners).holders.first()?.lwp?;
        Some((class.address, holder))
    };
    let holders: HashMap<RemoteAddr, Lwp> = classes.iter().zip(&contents).filter_map(holder).collect();
    for thread in &mut snapshot.threads {
        let watched = thread.watched.as_mut().and_then(|watched| watched.spins.as_mut());
        if let Some(spin) = watched.or(thread.polls.as_deref_mut()) {
            spin.held_by = tried(spin).and_then(|word| holders.get(&word)).copied();
        }
    }
}

/// The word that a thread waits for; of a lock that it tries to take the first one, which is where the lock is.
fn word_of(words: &[RemoteAddr], kind: Option<SyncKind>) -> Option<RemoteAddr> {
    let first = *words.first()?;
    let is_near = |word: &&RemoteAddr| word.0.abs_diff(first.0) < LARGEST_LOCK;
    kind.and_then(|_| words.iter().filter(is_near).min()).copied().or(Some(first))
}

/// A variable's name without the members that only its library knows: `flag` of `flag._M_base._M_i`.
fn own_part(name: String) -> String {
    let is_reserved = |member: &str| {
        let mut letters = member.chars();
        letters.next() == Some('_') && letters.next().is_some_and(|next| next == '_' || next.is_ascii_uppercase())
    };
    let mut members = name.split('.');
    let variable = members.next().unwrap_or_default().to_owned();
    members.take_while(|member| !is_reserved(member)).fold(variable, |name, member| format!("{name}.{member}"))
}

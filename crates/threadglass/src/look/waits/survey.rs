//! Which object each blocked thread waits for, and what that object says.

use crate::elf::demangle;
use crate::look::guards::Argument;
use crate::look::{Look, guards};
use crate::memory::read_each;
use crate::model::{Evidence, SyncKind, Thread, Waiter};
use crate::proc::SyscallFile;
use crate::runtimes::{self, Class, Content, Context, FutexWait, LibcLayout, OutsideLibc, SeenWait, Spot};
use crate::symbols::Symbolizer;
use crate::unwind::{Caller, Site, Sites, Space};
use crate::{Lwp, PthreadId, RemoteAddr};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Waits of one look whose stacks are searched because nothing else tells what they are for.
const MAX_SEARCHES: usize = 1024;

/// Functions on a stack that are named for a runtime that asks.
const MAX_NAMED: usize = 8;

/// Threads of those that wait in one way that are looked at closely at most.
const MAX_CLOSE_LOOKS: usize = 3;

/// A thread, and the call that it is blocked in.
pub(crate) type Sleeper = (Lwp, SyscallFile);

/// A thread with its stack pointer and program counter, and the word it waits on.
type Waiting = ((Lwp, RemoteAddr, RemoteAddr), FutexWait);

/// What a wait is for, and the mutex given up for it.
type Closely = (Class, Option<RemoteAddr>);

/// What one thread waits for.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) lwp: Lwp,
    pub(super) futex: FutexWait,
    pub(super) class: Class,
    /// Of a wait on a condition variable: the mutex it gave up.
    pub(super) mutex: Option<RemoteAddr>,
}

impl Wait {
    /// Of a thread of the target; `is_stable` says that it was seen not to move.
    pub(super) fn waiter(&self, thread: Option<PthreadId>, is_stable: bool) -> Waiter {
        Waiter {
            lwp: self.lwp,
            thread,
            pid: None,
            side: self.class.side,
            timed: self.futex.timed && !self.class.keeps_waiting(),
            stable: is_stable,
            evidence: self.class.evidence,
        }
    }
}

/// Looks for what threads wait for.
pub struct Survey<'a> {
    pub(super) context: Context<'a>,
    space: Arc<Space<'a>>,
    sites: Sites<'a>,
    callers: Rc<RefCell<Sites<'a>>>,
    /// How many stacks may still be searched for a function that knows the wait.
    searches: usize,
    symbolizer: Rc<Symbolizer<'a>>,
    names: HashMap<RemoteAddr, Option<String>>,
}

impl<'a> Survey<'a> {
    /// Of a target whose threads are these.
    pub fn new(look: &Look<'a>, libc: Option<LibcLayout<'a>>, threads: &[Thread]) -> Self {
        Self {
            context: Context::new(look.target, libc, threads),
            space: look.space.clone(),
            sites: Sites::new(look.target, &look.space),
            callers: Rc::new(RefCell::new(Sites::deep(look.target, &look.space))),
            searches: MAX_SEARCHES,
            symbolizer: Rc::new(look.symbolizer()),
            names: HashMap::new(),
        }
    }

    /// What each of `sleepers` waits for; those that wait for no word are left out.
    pub(super) fn waits(&mut self, sleepers: &[Sleeper]) -> Vec<Wait> {
        let waiting = sleepers.iter().filter_map(|(lwp, call)| {
            let (sp, pc) = call.registers()?;
            Some(((*lwp, sp, pc), FutexWait::of(call)?))
        });
        let waiting: Vec<Waiting> = waiting.collect();
        // Threads that wait on one word, in one way and from one place in libc wait for the same object: one
        // of them is looked at closely. If that finds no more than the word, the thread may have moved meanwhile.
        let mut found: HashMap<(FutexWait, RemoteAddr), Option<Closely>> = HashMap::new();
        let mut left: Vec<&Waiting> = waiting.iter().collect();
        for _ in 0..MAX_CLOSE_LOOKS {
            let is_open = |way: &(FutexWait, RemoteAddr)| {
                found.get(way).is_none_or(|known| known.is_none_or(|(class, _)| class.kind == SyncKind::Futex))
            };
            left.retain(|((_, _, pc), futex)| is_open(&(*futex, *pc)));
            let mut ways = HashSet::new();
            let (chosen, others): (Vec<&Waiting>, Vec<&Waiting>) =
                left.into_iter().partition(|((_, _, pc), futex)| ways.insert((*futex, *pc)));
            let places: Vec<_> = chosen.iter().map(|(at, _)| *at).collect();
            let sites = self.sites.find(&places);
            for ((at, futex), site) in chosen.into_iter().zip(&sites) {
                let seen = self.look_closely(at, futex, site);
                let known = found.entry((*futex, at.2)).or_default();
                *known = seen.or(*known);
            }
            left = others;
        }
        let wait = |&((lwp, _, pc), futex): &Waiting| {
            let (class, mutex) = found.get(&(futex, pc)).copied()??;
            Some(Wait { lwp, futex, class, mutex })
        };
        waiting.iter().filter_map(wait).collect()
    }

    /// The kind of object each of `sleepers` waits for, and no more.
    pub(crate) fn kinds(&mut self, sleepers: &[Sleeper]) -> Vec<(Lwp, FutexWait, SyncKind)> {
        let _look = self.context.target.limits().begin();
        self.waits(sleepers).into_iter().map(|wait| (wait.lwp, wait.futex, wait.class.kind)).collect()
    }

    /// What a wait is for, and the mutex given up for it. `at` is the thread, with its stack pointer and program
    /// counter.
    fn look_closely(&mut self, at: &(Lwp, RemoteAddr, RemoteAddr), futex: &FutexWait, site: &Site) -> Option<Closely> {
        let call = site.call.as_ref();
        // Where a function only passes the system call on, its caller tells what is waited for.
        let is_passed_on = call.is_some_and(|call| runtimes::passes_on(&call.function));
        let caller = site.places.last().filter(|_| is_passed_on).and_then(|place| self.name_of(place.lookup()));
        let (lwp, sp, pc) = *at;
        let (target, space) = (self.context.target, self.space.clone());
        let (callers, symbolizer) = (self.callers.clone(), self.symbolizer.clone());
        let seen = SeenWait {
            futex: *futex,
            lwp,
            call,
            past_libc: site.past_libc,
            is_from_nameless: is_passed_on && caller.is_none(),
            sp,
            words: &site.words,
            first_argument: &|| guards::argument_of_call(target, &space, (lwp, sp, pc), Argument::First, 0),
            second_argument: &|| guards::argument_of_call(target, &space, (lwp, sp, pc), Argument::Second, 0),
            argument_in: &|number| guards::argument_of_call(target, &space, (lwp, sp, pc), Argument::First, number),
            outside: &|| outside_libc(&callers, &symbolizer, *at),
        };
        let may_tell = !futex.restarted || seen.is_from_nameless;
        let class = match (call, caller) {
            (_, Some(caller)) => runtimes::by_function(&seen, Spot::Caller(&caller), &self.context),
            (Some(call), None) => {
                runtimes::by_function(&seen, Spot::Entry(&call.function, call.evidence), &self.context)
            }
            // No call leads out of libc: it is a part of the program, whose functions may have names.
            (None, None) => site.places.iter().find_map(|place| {
                let name = self.name_of(place.lookup())?;
                let evidence = if place.firm { Evidence::Derived } else { place.evidence };
                runtimes::by_function(&seen, Spot::Frame(&name, evidence), &self.context)
            }),
        };
        // A restarted call may be any call.
        let by_numbers = || runtimes::by_numbers(&seen, &self.context).filter(|_| may_tell);
        let class = class.or_else(by_numbers);
        let is_outside = is_passed_on || site.past_libc || call.is_none();
        let class = match class {
            None if is_outside && !futex.restarted => self.by_callers(at, &seen),
            class => class,
        };
        let class = class.or_else(|| (!futex.restarted).then(|| self.by_code(at, futex)))?;
        let class = runtimes::known_better(class, &seen, &self.context);
        Some((class, runtimes::of(class.family).given_up(&class, &site.words, &self.context)))
    }

    /// What a wait is for that only a library other than libc knows: by the functions on the stack, the innermost first.
    fn by_callers(&mut self, at: &(Lwp, RemoteAddr, RemoteAddr), seen: &SeenWait<'_>) -> Option<Class> {
        self.searches = self.searches.checked_sub(1)?;
        let (callers, words) = self.callers.borrow_mut().callers(*at)?;
        let seen = &SeenWait { words: &words, ..*seen };
        callers.iter().enumerate().find_map(|(depth, caller)| {
            let symbol = self.name_of(caller.place.lookup());
            let evidence = if caller.place.firm { Evidence::Derived } else { caller.place.evidence };
            [symbol, caller.entry.as_deref().map(demangle)].into_iter().flatten().find_map(|name| {
                let function = name.split('@').next().unwrap_or(&name);
                runtimes::by_function(seen, Spot::Outer { function, depth, evidence }, &self.context)
            })
        })
    }

    /// What a word is of which no runtime knows: a lock, if the thread goes on to take it.
    fn by_code(&mut self, at: &(Lwp, RemoteAddr, RemoteAddr), futex: &FutexWait) -> Class {
        let word = Class::word(futex.word, Evidence::Recorded);
        let Some(left) = self.searches.checked_sub(1).filter(|_| futex.value != 0) else { return word };
        self.searches = left;
        let lock = Class::lock_of_program(futex.word);
        if guards::will_take(self.context.target, &self.space, *at, &lock) { lock } else { word }
    }

    fn name_of(&mut self, addr: RemoteAddr) -> Option<String> {
        let symbolizer = &self.symbolizer;
        self.names.entry(addr).or_insert_with(|| symbolizer.enclosing_function(addr)).clone()
    }
}

/// What the thread `at` has on its stack outside of the C library.
fn outside_libc(
    callers: &RefCell<Sites<'_>>,
    symbolizer: &Symbolizer<'_>,
    at: (Lwp, RemoteAddr, RemoteAddr),
) -> OutsideLibc {
    let (callers, words) = callers.borrow_mut().callers(at).unwrap_or_default();
    let names = |caller: &Caller| {
        [symbolizer.enclosing_function(caller.place.lookup()), caller.entry.as_deref().map(demangle)]
            .map(|name| name.map(|name| name.split('@').next().unwrap_or_default().to_owned()))
    };
    let functions = callers.iter().take(MAX_NAMED).map(names).collect();
    OutsideLibc { frames: callers.iter().map(|caller| caller.place.lookup()).collect(), functions, words }
}

/// What the objects say now, read in few calls; `None` for one that cannot be read.
pub(super) fn read_objects(context: &Context<'_>, objects: &[Class]) -> Vec<Option<Content>> {
    let size = |class: &Class| runtimes::of(class.family).bytes_of(class.kind, class.family);
    let read = read_each(context.target, objects.iter().map(|class| (class.address, size(class))));
    let decode = |(class, bytes): (&Class, Vec<u8>)| {
        (bytes.len() == size(class)).then(|| runtimes::of(class.family).decode(class, &bytes, context))
    };
    objects.iter().zip(read).map(decode).collect()
}

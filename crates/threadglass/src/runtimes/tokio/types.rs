//! Types of futures, as debug information has them, and what each is for a task.

use crate::RemoteAddr;
use crate::model::{Family, SyncKind};
use crate::symbols::{MappedObject, Objects, TypeAt, ValueMember, ValueType};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Types that are kept.
const MAX_TYPES: usize = 1 << 16;
/// How far into a future words without a variable are searched for.
const MAX_HOLES: u64 = 1 << 14;
/// How deep a part of a type is searched for.
const MAX_DEPTH: usize = 16;

/// What all locks of tokio are made of.
const SEMAPHORE: &str = "tokio::sync::batch_semaphore::Semaphore";
/// What calls that block are wrapped in.
const BLOCKING: &str = "tokio::runtime::blocking::task::BlockingTask<";

/// A type of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TypeRef {
    pub(super) object: usize,
    pub(super) at: TypeAt,
}

/// What a type is for whoever reads a future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// What the compiler makes of an async function or block.
    Coroutine,
    /// What tokio itself, or Rust's library, lets a task wait by.
    Leaf(Leaf),
    /// Whoever has one holds a lock.
    Guard,
    /// A set of futures that come in any order.
    Unordered,
    /// What sends to a channel.
    Sender,
    /// Values in a row, behind a pointer: `Vec`, `Box<[T]>`.
    Row,
    /// Nothing in it is a future or a guard.
    Opaque,
    /// Its members tell.
    Plain,
}

/// How a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Leaf {
    Acquire,
    Notified,
    JoinHandle,
    Sleep,
    Readiness,
    Device,
    Oneshot,
    Receiver,
    Broadcast,
    JoinSet,
    Yield,
    Pending,
    Signal,
}

/// A type with its role.
#[derive(Debug)]
pub(super) struct KnownType {
    pub(super) value: Arc<ValueType>,
    pub(super) role: Role,
    /// Which object it is of.
    pub(super) object: usize,
    /// The name as people write it.
    pub(super) shown: Arc<str>,
    /// Of a function or method of tokio: its path.
    pub(super) path: Option<Arc<str>>,
}

impl KnownType {
    fn new(value: Arc<ValueType>, object: usize) -> Self {
        let role = role_of(&value);
        let path = value.name.split("::{async").next().filter(|path| path.starts_with("tokio::"));
        let path = path.filter(|_| role == Role::Coroutine).map(Arc::from);
        Self { role, shown: readable(&value.name).into(), path, value, object }
    }

    pub(super) fn name(&self) -> &str {
        &self.value.name
    }

    pub(super) fn member(&self, name: &str) -> Option<(&ValueMember, TypeRef)> {
        let member = self.value.member(name)?;
        Some((member, TypeRef { object: self.object, at: member.of }))
    }

    pub(super) fn reference(&self, at: TypeAt) -> TypeRef {
        TypeRef { object: self.object, at }
    }
}

/// How the number of threads that run tasks is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workers {
    One,
    /// It is so many bytes behind where the pointer to the scheduler leads.
    NotedAt(u64),
}

/// The types of a target that were asked for.
pub(super) struct Types<'t> {
    objects: &'t Objects<'t>,
    known: RefCell<HashMap<TypeRef, Option<Rc<KnownType>>>>,
    methods: RefCell<HashMap<u64, Option<TypeRef>>>,
    parts: RefCell<HashMap<(TypeRef, Part), Option<u64>>>,
    holes: RefCell<HashMap<TypeRef, Rc<Vec<u64>>>>,
    /// Whether a value matters that nobody polls.
    matters: RefCell<HashMap<TypeRef, bool>>,
    /// The semaphore that locks are made of.
    semaphore: Cell<Option<TypeRef>>,
}

/// A part of a type that is searched for, whatever is around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// The semaphore that all locks of tokio are made of.
    Semaphore,
    /// The number of a descriptor.
    Descriptor,
    /// What tokio reads and writes by.
    Device,
    /// Any pointer.
    Pointer,
}

impl<'t> Types<'t> {
    pub(super) fn new(objects: &'t Objects<'t>) -> Self {
        let (known, methods, parts, holes, matters, semaphore) = Default::default();
        Self { objects, known, methods, parts, holes, matters, semaphore }
    }

    fn object_at(&self, addr: RemoteAddr) -> Option<(usize, &MappedObject<'t>)> {
        let object = self.objects.at(addr)?;
        let index = self.objects.all().iter().position(|other| std::ptr::eq(other, object))?;
        Some((index, object))
    }

    /// The type `of`.
    pub(super) fn get(&self, of: TypeRef) -> Option<Rc<KnownType>> {
        if let Some(known) = self.known.borrow().get(&of) {
            return known.clone();
        }
        let object = self.objects.all().get(of.object)?;
        let value = object.ask_types(|types| types.value_type(of.at));
        let known = value.map(|value| Rc::new(KnownType::new(value, of.object)));
        let mut all = self.known.borrow_mut();
        if all.len() < MAX_TYPES {
            all.insert(of, known.clone());
        }
        known
    }

    /// The type of a whole task, header and all, that the function at `poll` polls.
    pub(super) fn task(&self, poll: RemoteAddr) -> Option<Rc<KnownType>> {
        let (index, object) = self.object_at(poll)?;
        let types = object.ask_types(|types| Some(types.types_in_function(poll)))?;
        for at in types {
            let of = TypeRef { object: index, at };
            let Some(harness) = self.get(of).filter(|known| known.name().contains("task::harness::Harness<")) else {
                continue;
            };
            let (_, cell) = harness.member("cell")?;
            // A pointer that is never null is a structure around a pointer.
            let pointer = self.get(cell).and_then(|cell| Some(self.get(cell.member("pointer")?.1)?.clone()))?;
            return self.get(pointer.reference(pointer.value.points_to?));
        }
        None
    }

    /// The name of the future of a task of the type `cell`.
    pub(super) fn future_name(&self, cell: &KnownType) -> Option<String> {
        let (_, at) = cell.value.parameters.iter().find(|(name, _)| name == "T")?;
        let known = self.get(cell.reference(*at))?;
        // A call that blocks is made a future of.
        let call = known.shown.strip_prefix(BLOCKING).and_then(|rest| rest.strip_suffix('>'));
        Some(call.unwrap_or(&known.shown).to_owned())
    }

    /// How the number of threads is known that run tasks of the type `cell`.
    pub(super) fn workers(&self, cell: &KnownType) -> Option<Workers> {
        let (_, at) = cell.value.parameters.iter().find(|(name, _)| name == "S")?;
        let scheduler = self.get(cell.reference(*at))?;
        if ["current_thread::", "task::local::"].iter().any(|part| scheduler.name().contains(part)) {
            return Some(Workers::One);
        }
        if !scheduler.name().contains("multi_thread::") {
            return None;
        }
        // A shared pointer: a structure around a structure around a pointer to counts and the handle.
        let (_, pointer) = scheduler.member("ptr")?;
        let (_, pointer) = self.get(pointer)?.member("pointer").map(|(member, of)| (member.offset, of))?;
        let inner = self.get(pointer)?;
        let inner = self.get(inner.reference(inner.value.points_to?))?;
        let (handle, of) = inner.member("data")?;
        let handle_type = self.get(of)?;
        let (shared, of) = handle_type.member("shared")?;
        let shared_type = self.get(of)?;
        let (remotes, of) = shared_type.member("remotes")?;
        let length = self.get(of)?.member("length")?.0.offset;
        let offsets = [handle.offset, shared.offset, remotes.offset, length];
        Some(Workers::NotedAt(offsets.iter().try_fold(0u64, |all, offset| all.checked_add(*offset))?))
    }

    /// The type whose table of methods is at `addr`.
    pub(super) fn of_methods(&self, addr: u64) -> Option<TypeRef> {
        if let Some(known) = self.methods.borrow().get(&addr) {
            return *known;
        }
        let find = || {
            let (object, mapped) = self.object_at(RemoteAddr(addr))?;
            let at = mapped.ask_types(|types| types.type_of_methods(RemoteAddr(addr)))?;
            Some(TypeRef { object, at })
        };
        let found = find();
        let mut all = self.methods.borrow_mut();
        if all.len() < MAX_TYPES {
            all.insert(addr, found);
        }
        found
    }

    /// Words of an async function in which no state has a variable that debug information knows, although in one
    /// state two variables have the same name: of those it keeps one.
    pub(super) fn holes(&self, of: TypeRef, coroutine: &KnownType) -> Rc<Vec<u64>> {
        if let Some(known) = self.holes.borrow().get(&of) {
            return known.clone();
        }
        let found = Rc::new(self.find_holes(coroutine).unwrap_or_default());
        self.holes.borrow_mut().insert(of, found.clone());
        found
    }

    fn find_holes(&self, coroutine: &KnownType) -> Option<Vec<u64>> {
        let cases = coroutine.value.cases.as_ref()?;
        let mut covered: Vec<(u64, u64)> =
            cases.tag.map(|(offset, size)| (offset, offset + size)).into_iter().collect();
        let mut has_lost = false;
        for case in &cases.list {
            let state = self.get(coroutine.reference(case.of))?;
            let mut names: Vec<&str> = state.value.members.iter().map(|member| member.name.as_str()).collect();
            names.sort_unstable();
            has_lost |= names.windows(2).any(|pair| pair[0] == pair[1]);
            for member in &state.value.members {
                let size = self.get(state.reference(member.of)).map_or(8, |known| known.value.size.max(1));
                let start = case.offset.checked_add(member.offset)?;
                covered.push((start, start.checked_add(size)?));
            }
        }
        let words = (0..coroutine.value.size.min(MAX_HOLES).saturating_sub(7)).step_by(8);
        let is_free = |word: &u64| covered.iter().all(|(from, to)| word + 8 <= *from || *to <= *word);
        Some(words.filter(|_| has_lost).filter(is_free).collect())
    }

    /// Whether a value of the type `of` that nobody polls may have in it what a task holds: a lock, an end of a channel, a
    /// future that was polled before.
    pub(super) fn matters(&self, of: TypeRef) -> bool {
        self.may_matter(of, 0)
    }

    fn may_matter(&self, of: TypeRef, depth: usize) -> bool {
        if let Some(known) = self.matters.borrow().get(&of) {
            return *known;
        }
        // Types that lead to themselves do so by pointers; what is deeper is looked at when a walk comes there.
        if depth >= MAX_DEPTH {
            return true;
        }
        self.matters.borrow_mut().insert(of, false);
        let found = self.get(of).is_some_and(|known| match known.role {
            Role::Coroutine | Role::Leaf(_) | Role::Guard | Role::Unordered | Role::Sender => true,
            Role::Opaque => false,
            Role::Row => self.element(&known).is_some_and(|of| self.may_matter(of, depth + 1)),
            Role::Plain => match known.value.points_to {
                Some(to) => {
                    known.name().starts_with("alloc::boxed::Box<") && self.may_matter(known.reference(to), depth + 1)
                }
                None if known.member("vtable").is_some() => known.name().starts_with("alloc::boxed::Box<"),
                None => {
                    let cases = known.value.cases.iter().flat_map(|cases| &cases.list).map(|case| case.of);
                    let mut parts = known.value.members.iter().map(|member| member.of).chain(cases);
                    parts.any(|of| self.may_matter(known.reference(of), depth + 1))
                }
            },
        });
        self.matters.borrow_mut().insert(of, found);
        found
    }

    /// What the values are that a row of them has.
    pub(super) fn element(&self, row: &KnownType) -> Option<TypeRef> {
        if let Some((_, of)) = row.member("data_ptr") {
            let pointer = self.get(of)?;
            return Some(pointer.reference(pointer.value.points_to?));
        }
        let (_, at) = row.value.parameters.iter().find(|(name, _)| name == "T")?;
        Some(row.reference(*at))
    }

    /// Where the member is that `path` leads to, in a value of the type `of`.
    pub(super) fn member_at(&self, of: TypeRef, path: &[&str]) -> Option<u64> {
        let (mut of, mut at) = (of, 0u64);
        for name in path {
            let known = self.get(of)?;
            let (member, next) = known.member(name)?;
            (of, at) = (next, at.checked_add(member.offset)?);
        }
        Some(at)
    }

    /// Where a semaphore has the number of its permits, twice, once such a type was seen.
    pub(super) fn permits(&self) -> Option<u64> {
        self.member_at(self.semaphore.get()?, &["permits"])
    }

    /// The locks of other families in a value of the type `of`.
    pub(super) fn locks_of(&self, of: TypeRef) -> Vec<(u64, SyncKind, Family)> {
        let object = self.objects.all().get(of.object);
        object.and_then(|object| object.ask_types(|types| Some(types.locks_of_type(of.at)))).unwrap_or_default()
    }

    /// Where the first `part` of a value of the type `of` is.
    pub(super) fn offset_of(&self, of: TypeRef, part: Part) -> Option<u64> {
        if let Some(known) = self.parts.borrow().get(&(of, part)) {
            return *known;
        }
        let found = self.search(of, part, 0);
        self.parts.borrow_mut().insert((of, part), found);
        found
    }

    fn search(&self, of: TypeRef, part: Part, depth: usize) -> Option<u64> {
        let known = self.get(of).filter(|_| depth < MAX_DEPTH)?;
        if known.value.points_to.is_some() {
            return (part == Part::Pointer).then_some(0);
        }
        let is_part = match part {
            Part::Semaphore if known.name() == SEMAPHORE => {
                self.semaphore.set(Some(of));
                true
            }
            Part::Semaphore => false,
            Part::Device => known.name().starts_with("tokio::io::poll_evented::PollEvented<"),
            Part::Descriptor | Part::Pointer => false,
        };
        if is_part {
            return Some(0);
        }
        let is_number = |of| self.get(known.reference(of)).is_some_and(|known| known.value.size == 4);
        let descriptor = known.value.member("fd").filter(|_| part == Part::Descriptor);
        if let Some(descriptor) = descriptor.filter(|descriptor| is_number(descriptor.of)) {
            return Some(descriptor.offset);
        }
        let cases = known.value.cases.iter().flat_map(|cases| &cases.list).map(|case| (case.offset, case.of));
        let mut parts = known.value.members.iter().map(|member| (member.offset, member.of)).chain(cases);
        parts.find_map(|(offset, of)| offset.checked_add(self.search(known.reference(of), part, depth + 1)?))
    }
}

/// Names that types begin with, and what they are.
const ROLES: [(&str, Role); 45] = [
    ("tokio::sync::batch_semaphore::Acquire", Role::Leaf(Leaf::Acquire)),
    ("tokio::sync::notify::Notified", Role::Leaf(Leaf::Notified)),
    ("tokio::sync::notify::OwnedNotified", Role::Leaf(Leaf::Notified)),
    ("tokio::runtime::task::join::JoinHandle<", Role::Leaf(Leaf::JoinHandle)),
    ("tokio::time::sleep::Sleep", Role::Leaf(Leaf::Sleep)),
    ("tokio::runtime::io::scheduled_io::Readiness", Role::Leaf(Leaf::Readiness)),
    ("tokio::io::poll_evented::PollEvented<", Role::Leaf(Leaf::Device)),
    ("tokio::sync::oneshot::Receiver<", Role::Leaf(Leaf::Oneshot)),
    ("tokio::sync::mpsc::bounded::Receiver<", Role::Leaf(Leaf::Receiver)),
    ("tokio::sync::mpsc::unbounded::UnboundedReceiver<", Role::Leaf(Leaf::Receiver)),
    ("tokio::sync::mpsc::chan::Rx<", Role::Leaf(Leaf::Receiver)),
    ("tokio::sync::broadcast::Recv<", Role::Leaf(Leaf::Broadcast)),
    ("tokio::sync::mpsc::bounded::Sender<", Role::Sender),
    ("tokio::sync::mpsc::unbounded::UnboundedSender<", Role::Sender),
    ("tokio::sync::oneshot::Sender<", Role::Sender),
    ("tokio::sync::watch::Sender<", Role::Sender),
    ("tokio::sync::broadcast::Sender<", Role::Sender),
    ("tokio::io::async_fd::AsyncFd<", Role::Leaf(Leaf::Device)),
    ("tokio::signal::", Role::Leaf(Leaf::Signal)),
    ("tokio::task::join_set::JoinSet<", Role::Leaf(Leaf::JoinSet)),
    // A structure in old versions, a closure in new ones.
    ("tokio::task::yield_now::", Role::Leaf(Leaf::Yield)),
    ("core::future::pending::Pending<", Role::Leaf(Leaf::Pending)),
    ("futures_util::future::pending::Pending<", Role::Leaf(Leaf::Pending)),
    ("futures_util::stream::futures_unordered::FuturesUnordered<", Role::Unordered),
    ("tokio::runtime::scheduler::", Role::Opaque),
    ("tokio::runtime::handle::", Role::Opaque),
    ("tokio::runtime::time::", Role::Opaque),
    ("tokio::runtime::io::", Role::Opaque),
    ("tokio::runtime::blocking::", Role::Opaque),
    ("core::sync::atomic::", Role::Opaque),
    ("core::task::", Role::Opaque),
    ("core::marker::", Role::Opaque),
    ("core::mem::maybe_uninit::", Role::Opaque),
    ("core::time::", Role::Opaque),
    ("core::fmt::", Role::Opaque),
    ("std::time::", Role::Opaque),
    ("std::io::", Role::Opaque),
    ("alloc::sync::", Role::Opaque),
    ("alloc::rc::", Role::Opaque),
    ("alloc::string::", Role::Opaque),
    ("alloc::vec::Vec<", Role::Row),
    ("alloc::vec::", Role::Opaque),
    ("alloc::boxed::Box<[", Role::Row),
    ("alloc::collections::", Role::Opaque),
    ("std::collections::", Role::Opaque),
];

/// Guards: how their names begin, and what is in the part that follows.
const GUARDS: [(&str, &[&str]); 8] = [
    ("tokio::sync::mutex::", &["MutexGuard<"]),
    ("tokio::sync::rwlock::", &["Guard<"]),
    ("tokio::sync::semaphore::", &["Permit"]),
    ("std::sync::", &["MutexGuard<", "RwLockReadGuard<", "RwLockWriteGuard<"]),
    ("lock_api::", &["Guard<"]),
    ("tokio::sync::mpsc::bounded::", &["Permit"]),
    ("async_lock::", &["Guard<"]),
    ("futures_util::lock::mutex::", &["MutexGuard<"]),
];

fn role_of(value: &ValueType) -> Role {
    let name = value.name.as_str();
    if value.cases.is_some() && is_coroutine(name) {
        return Role::Coroutine;
    }
    // What is in angle brackets belongs to parameters.
    let path = name.split('<').next().unwrap_or(name);
    let with_bracket = name.get(..path.len() + 1).unwrap_or(name);
    let is_guard = |(start, parts): &(&str, &[&str])| {
        path.starts_with(start) && parts.iter().any(|part| with_bracket.contains(part))
    };
    if GUARDS.iter().any(is_guard) {
        return Role::Guard;
    }
    ROLES.iter().find(|(start, _)| name.starts_with(start)).map_or(Role::Plain, |(_, role)| *role)
}

/// Whether a type of this name is what the compiler makes of an async function, block or closure.
pub(super) fn is_coroutine(name: &str) -> bool {
    const MADE: [&str; 4] = ["{async_fn_env#", "{async_block_env#", "{async_closure_env#", "{coroutine_env#"];
    // Parameters may have such names, too: they follow behind `<`.
    let at = MADE.iter().filter_map(|made| name.find(made)).min();
    at.is_some_and(|at| !name[..at].contains('<'))
}

/// A name as people write it: `app::transfer`, not `app::transfer::{async_fn_env#0}`.
pub(super) fn readable(name: &str) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("::{async_fn_env#", ""),
        ("::{async_block_env#", "::{async block}"),
        ("::{async_closure_env#", "::{async closure}"),
        ("::{closure_env#", "::{closure}"),
        ("::{coroutine_env#", "::{coroutine}"),
    ];
    let mut text = name.to_owned();
    for (from, to) in WORDS {
        while let Some(at) = text.find(from) {
            let end = text[at..].find('}').map_or(text.len(), |end| at + end + 1);
            text.replace_range(at..end, to);
        }
    }
    // The functions and blocks that it lies in.
    for (from, to) in [("::{async_fn#", ""), ("::{async_block#", "::{async block}"), ("::{closure#", "::{closure}")] {
        while let Some(at) = text.find(from) {
            let end = text[at..].find('}').map_or(text.len(), |end| at + end + 1);
            text.replace_range(at..end, to);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> ValueType {
        ValueType { name: name.to_owned(), cases: Some(crate::symbols::Cases::default()), ..ValueType::default() }
    }

    #[test]
    fn roles_come_from_names_but_not_from_parameters() {
        assert_eq!(role_of(&named("app::run::{async_fn_env#0}<u8>")), Role::Coroutine);
        assert_eq!(role_of(&named("app::Wrap<app::run::{async_fn_env#0}>")), Role::Plain);
        assert_eq!(role_of(&named("tokio::sync::mutex::MutexGuard<u64>")), Role::Guard);
        assert_eq!(role_of(&named("std::sync::poison::mutex::MutexGuard<u64>")), Role::Guard);
        assert_eq!(role_of(&named("core::option::Option<std::sync::poison::mutex::MutexGuard<u64>>")), Role::Plain);
        assert_eq!(role_of(&named("tokio::sync::mutex::{impl#10}::lock::{async_fn_env#0}<u64>")), Role::Coroutine);
    }

    #[test]
    fn names_are_written_as_in_the_source() {
        assert_eq!(readable("app::run::{async_fn_env#0}<u8>"), "app::run<u8>");
        assert_eq!(readable("app::run::{async_fn#0}::{async_block_env#1}"), "app::run::{async block}");
    }
}

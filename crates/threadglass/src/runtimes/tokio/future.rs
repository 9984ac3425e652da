//! The future of a task: the chain of awaits, what it ends in, and the locks that are held meanwhile.

use super::ends::ChannelEnd;
use super::types::{KnownType, Leaf, Part, Role, TypeRef, Types};
use crate::RemoteAddr;
use crate::memory::Memory;
use crate::model::{Family, SyncKind};
use crate::runtimes;
use std::rc::Rc;
use std::sync::Arc;

/// How deep futures lie in one another.
const MAX_DEPTH: usize = 96;
/// Values of one task that are looked at.
const MAX_VALUES: usize = 1024;
/// Futures of one set.
const MAX_SET: usize = 1024;
/// Awaits that are shown of one task.
const MAX_FRAMES: usize = 64;
/// Waits and locks that are kept of one task.
const MAX_FOUND: usize = 256;

/// One await of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AwaitFrame {
    /// The async function or block.
    pub(super) name: Arc<str>,
    pub(super) file: Option<Arc<str>>,
    /// The line of the await.
    pub(super) line: Option<u32>,
}

/// What a future waits by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeafWait {
    pub(super) leaf: Leaf,
    /// The function of tokio that the task called, as its path: `tokio::sync::mutex::{impl#10}::lock`.
    pub(super) through: Option<Arc<str>>,
    /// The object: a lock, a channel, another task.
    pub(super) object: Option<RemoteAddr>,
    /// Of a lock: its semaphore.
    pub(super) semaphore: Option<RemoteAddr>,
    /// What all ends of a channel lead to.
    pub(super) channel: Option<RemoteAddr>,
    pub(super) descriptor: Option<u32>,
    /// Whether a poll of the task comes here.
    pub(super) is_polled: bool,
    /// Of a lock: whether it was given to this future, which has not noticed.
    pub(super) is_granted: bool,
}

/// A lock that is held while the task waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldLock {
    /// The guard's type.
    pub(super) guard: String,
    pub(super) object: RemoteAddr,
    /// Of a lock of tokio: its semaphore.
    pub(super) semaphore: Option<RemoteAddr>,
    /// What it is, of a lock that is none of tokio.
    pub(super) other: Option<(SyncKind, Family)>,
}

/// What a future tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FutureFacts {
    /// The outermost first.
    pub(super) frames: Vec<AwaitFrame>,
    pub(super) waits: Vec<LeafWait>,
    pub(super) holds: Vec<HeldLock>,
    /// The ends of channels that it has in its variables.
    pub(super) ends: Vec<ChannelEnd>,
    /// Words of variables that the debug information lost, because another variable has the same name.
    pub(super) hidden: Vec<u64>,
    /// The last future of the chain, if that is none that is known.
    pub(super) unknown: Option<String>,
    /// Whether the future was not polled yet.
    pub(super) is_new: bool,
}

impl FutureFacts {
    /// Whether the task only lets others be polled before it.
    pub(super) fn yields(&self) -> bool {
        let mut polled = self.waits.iter().filter(|wait| wait.is_polled).peekable();
        polled.peek().is_some() && polled.all(|wait| wait.leaf == Leaf::Yield)
    }
}

/// Reads futures.
pub(super) struct FutureReader<'r> {
    pub(super) types: &'r Types<'r>,
    pub(super) memory: &'r dyn Memory,
}

/// One task that is being read.
pub(super) struct Walk<'r> {
    pub(super) reader: &'r FutureReader<'r>,
    /// What was read of the task already.
    start: RemoteAddr,
    bytes: &'r [u8],
    pub(super) facts: FutureFacts,
    /// In the order they were seen; few enough to be searched.
    seen: Vec<(u64, TypeRef)>,
    /// The functions of tokio that lead to where the walk is.
    through: Vec<Through>,
    /// Whether the chain has parted: what follows is no single chain.
    has_parted: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Value {
    pub(super) at: RemoteAddr,
    pub(super) of: TypeRef,
    pub(super) is_polled: bool,
}

/// A function of tokio that is being polled: its path, and what it was called on.
#[derive(Clone)]
pub(super) struct Through {
    path: Arc<str>,
    /// What `self` leads to, and the type of that.
    pub(super) this: Option<RemoteAddr>,
    pub(super) of: Option<TypeRef>,
}

/// The case of a value that is in force: where it is, its type, and where it comes from.
struct InForce {
    at: RemoteAddr,
    of: TypeRef,
    file: Option<Arc<str>>,
    line: Option<u32>,
}

impl FutureReader<'_> {
    /// What the future of a task at `start` tells, whose `bytes` were read and whose type is `cell`.
    pub(super) fn read(&self, cell: &KnownType, start: RemoteAddr, bytes: &[u8]) -> Option<FutureFacts> {
        let (stage, at) = self.stage(cell, start)?;
        let mut walk = Walk::new(self, start, bytes);
        walk.visit(Value { at, of: stage, is_polled: true }, 0);
        Some(walk.facts)
    }

    /// What a future at `at` tells, whose `bytes` were read and whose type is `of`.
    pub(super) fn read_value(&self, of: TypeRef, at: RemoteAddr, bytes: &[u8]) -> FutureFacts {
        let mut walk = Walk::new(self, at, bytes);
        walk.visit(Value { at, of, is_polled: true }, 0);
        walk.facts
    }

    /// What may be guards in a task that a thread is polling: words where some state has a guard. Which state comes next is
    /// not known, so the guard may have been dropped.
    pub(super) fn read_guards(&self, cell: &KnownType, start: RemoteAddr, bytes: &[u8]) -> Option<FutureFacts> {
        let (stage, at) = self.stage(cell, start)?;
        let mut walk = Walk::new(self, start, bytes);
        walk.guard_slots(at, stage, 0);
        Some(walk.facts)
    }

    /// Where the future of a task lies in it, for comparing two reads: the rest changes while the task waits.
    pub(super) fn place(&self, cell: &KnownType) -> Option<std::ops::Range<usize>> {
        let (of, at) = self.stage(cell, RemoteAddr(0))?;
        let start = usize::try_from(at.0).ok()?;
        Some(start..start.checked_add(usize::try_from(self.types.get(of)?.value.size).ok()?)?)
    }

    /// Where the future of a task is, or was, and the type of that.
    fn stage(&self, cell: &KnownType, start: RemoteAddr) -> Option<(TypeRef, RemoteAddr)> {
        let (core, of) = cell.member("core")?;
        let core_type = self.types.get(of)?;
        let (stage, of) = core_type.member("stage")?;
        Some((of, start.checked_add(core.offset)?.checked_add(stage.offset)?))
    }
}

impl<'r> Walk<'r> {
    fn new(reader: &'r FutureReader<'r>, start: RemoteAddr, bytes: &'r [u8]) -> Self {
        Self {
            reader,
            start,
            bytes,
            facts: FutureFacts::default(),
            seen: Vec::with_capacity(32),
            through: Vec::new(),
            has_parted: false,
        }
    }

    pub(super) fn number(&self, at: RemoteAddr, size: u64) -> Option<u64> {
        let size = usize::try_from(size).ok().filter(|size| (1..=8).contains(size))?;
        let mut bytes = [0; 8];
        let own = at.0.checked_sub(self.start.0).and_then(|offset| usize::try_from(offset).ok());
        match own.and_then(|offset| self.bytes.get(offset..offset.checked_add(size)?)) {
            Some(own) => bytes[..size].copy_from_slice(own),
            None => self.reader.memory.read_exact(at, &mut bytes[..size]).ok()?,
        }
        Some(u64::from_le_bytes(bytes))
    }

    pub(super) fn pointer(&self, at: RemoteAddr) -> Option<RemoteAddr> {
        self.number(at, 8).filter(|pointer| *pointer != 0).map(RemoteAddr)
    }

    pub(super) fn visit(&mut self, value: Value, depth: usize) {
        let key = (value.at.0, value.of);
        if depth > MAX_DEPTH || self.seen.len() > MAX_VALUES || self.seen.contains(&key) {
            return;
        }
        self.seen.push(key);
        let Some(known) = self.reader.types.get(value.of) else { return };
        match known.role {
            Role::Opaque => {}
            Role::Coroutine => drop(self.coroutine(&known, value, depth)),
            Role::Leaf(leaf) => drop(self.leaf(&known, leaf, value)),
            Role::Guard => drop(self.guard(&known, value)),
            Role::Unordered => drop(self.unordered(&known, value, depth)),
            Role::Sender => drop(self.sender(&known, value)),
            Role::Row => drop(self.row(&known, value, depth)),
            Role::Plain => self.plain(&known, value, depth),
        }
    }

    /// The case of a value that is in force: where it is, its type, and where it comes from.
    fn case(&self, known: &KnownType, at: RemoteAddr) -> Option<InForce> {
        let cases = known.value.cases.as_ref()?;
        let case = match cases.tag {
            Some((offset, size)) => cases.case(self.number(at.checked_add(offset)?, size)?)?,
            None => cases.list.first()?,
        };
        let (file, line) = (case.file.clone(), case.line);
        Some(InForce { at: at.checked_add(case.offset)?, of: known.reference(case.of), file, line })
    }

    fn coroutine(&mut self, known: &KnownType, value: Value, depth: usize) -> Option<()> {
        let InForce { at, of, file, line } = self.case(known, value.at)?;
        let state = self.reader.types.get(of)?;
        let name = state.name().rsplit("::").next().unwrap_or_default();
        if matches!(name, "Returned" | "Panicked") {
            return None;
        }
        let is_suspended = name.starts_with("Suspend");
        let is_polled = value.is_polled && is_suspended;
        if value.is_polled && !is_suspended && self.facts.frames.is_empty() {
            self.facts.is_new = true;
        }
        if is_polled && !self.has_parted && self.facts.frames.len() < MAX_FRAMES {
            // An await that a macro of a library has written: where the function begins tells more.
            let start = known.value.cases.as_ref().and_then(|cases| cases.list.first());
            let start = start.filter(|start| start.line.is_some() && start.file.is_some() && start.file != file);
            let (file, line) = start.map_or((file, line), |start| (start.file.clone(), start.line));
            self.facts.frames.push(AwaitFrame { name: known.shown.clone(), file, line });
        }
        if let Some(path) = &known.path {
            let this = state.member("self");
            let of = this.and_then(|(_, of)| {
                let pointer = self.reader.types.get(of)?;
                Some(pointer.reference(pointer.value.points_to?))
            });
            let this = this.and_then(|(this, _)| self.pointer(at.checked_add(this.offset)?));
            self.through.push(Through { path: path.clone(), this, of });
        }
        // What is polled comes first: the same future may be there under another name.
        let is_awaited = |name: &str| name == "__awaitee";
        if let Some((awaited, of)) = state.member("__awaitee") {
            self.visit(Value { at: at.checked_add(awaited.offset)?, of, is_polled }, depth + 1);
        }
        if is_polled && known.path.as_ref().is_some_and(|path| path.starts_with("tokio::net::")) {
            self.device(&state, at);
        }
        for member in state.value.members.iter().filter(|member| !is_awaited(&member.name)) {
            let (at, of) = (at.checked_add(member.offset)?, state.reference(member.of));
            if self.reader.types.matters(of) {
                self.visit(Value { at, of, is_polled: false }, depth + 1);
            }
        }
        if known.path.is_some() {
            self.through.pop();
        } else if is_suspended {
            self.hidden(known, value);
        }
        Some(())
    }

    /// Notes the words of a suspended function that no variable explains, if variables with the same names were lost.
    fn hidden(&mut self, known: &KnownType, value: Value) -> Option<()> {
        for word in self.reader.types.holes(value.of, known).iter() {
            let number = self.number(value.at.checked_add(*word)?, 8)?;
            if self.facts.hidden.len() < MAX_FOUND && number > 0xffff {
                self.facts.hidden.push(number);
            }
        }
        Some(())
    }

    /// Notes what is where any state of the value has a guard.
    fn guard_slots(&mut self, at: RemoteAddr, of: TypeRef, depth: usize) {
        if depth > MAX_DEPTH || self.seen.len() > MAX_VALUES || self.seen.contains(&(at.0, of)) {
            return;
        }
        self.seen.push((at.0, of));
        let Some(known) = self.reader.types.get(of) else { return };
        let parts: Vec<(u64, TypeRef)> = match known.role {
            Role::Guard => {
                let pointer =
                    known.value.members.iter().find(|member| self.pointee(known.reference(member.of)).is_some());
                let word = pointer.and_then(|pointer| self.pointer(at.checked_add(pointer.offset)?));
                if let Some(word) = word.filter(|_| self.facts.hidden.len() < MAX_FOUND) {
                    self.facts.hidden.push(word.0);
                }
                return;
            }
            // The functions of tokio keep no guards of the program.
            Role::Coroutine if known.path.is_some() => return,
            Role::Coroutine | Role::Plain if known.value.points_to.is_none() => {
                let cases = known.value.cases.iter().flat_map(|cases| &cases.list);
                let members = known.value.members.iter().map(|member| (member.offset, member.of));
                let parts = members.chain(cases.map(|case| (case.offset, case.of)));
                parts.map(|(offset, of)| (offset, known.reference(of))).collect()
            }
            _ => return,
        };
        for (offset, of) in parts {
            if let Some(at) = at.checked_add(offset) {
                self.guard_slots(at, of, depth + 1);
            }
        }
    }

    /// A value without a role: a pointer, one of several cases, or something with members.
    fn plain(&mut self, known: &Rc<KnownType>, value: Value, depth: usize) {
        if let Some(to) = known.value.points_to {
            self.behind(known, to, value, depth);
        } else if known.value.cases.is_some() {
            if let Some(InForce { at, of, .. }) = self.case(known, value.at) {
                self.visit(Value { at, of, ..value }, depth + 1);
            }
        } else if known.member("vtable").is_some() {
            self.dynamic(known, value, depth);
        } else {
            let before = self.facts.waits.len() + self.facts.frames.len();
            let members = &known.value.members;
            for (index, member) in members.iter().enumerate() {
                let Some(at) = value.at.checked_add(member.offset) else { continue };
                let found = self.facts.waits.len() + self.facts.frames.len() > before;
                self.has_parted |= value.is_polled && found && index > 0;
                self.visit(Value { at, of: known.reference(member.of), ..value }, depth + 1);
            }
            let is_future = value.is_polled && before == self.facts.waits.len() + self.facts.frames.len();
            if is_future && depth > 0 && known.value.size > 0 && !known.name().starts_with("core::") {
                self.facts.unknown = Some(known.shown.to_string());
            }
        }
    }

    /// What a pointer leads to: what is owned, or what is polled through it.
    fn behind(&mut self, known: &KnownType, to: usize, value: Value, depth: usize) {
        let name = known.name();
        let is_owned = name.starts_with("alloc::boxed::Box<");
        let is_lent = name.starts_with("&mut ") && value.is_polled;
        if let Some(at) = self.pointer(value.at).filter(|_| is_owned || is_lent) {
            self.visit(Value { at, of: known.reference(to), ..value }, depth + 1);
        }
    }

    /// A pointer with a table of methods beside it: `Box<dyn Future>`, `&mut dyn Future`.
    fn dynamic(&mut self, known: &KnownType, value: Value, depth: usize) -> Option<()> {
        let name = known.name();
        let is_followed = name.starts_with("alloc::boxed::Box<") || name.starts_with("&mut ") && value.is_polled;
        let (pointer, vtable) = (known.member("pointer")?.0.offset, known.member("vtable")?.0.offset);
        let at = self.pointer(value.at.checked_add(pointer)?).filter(|_| is_followed)?;
        let methods = self.number(value.at.checked_add(vtable)?, 8)?;
        match self.reader.types.of_methods(methods) {
            Some(of) => self.visit(Value { at, of, ..value }, depth + 1),
            None if value.is_polled => self.facts.unknown = Some(known.shown.to_string()),
            None => {}
        }
        Some(())
    }

    /// From here on what is polled is no single chain.
    pub(super) fn part(&mut self) {
        self.has_parted = true;
    }

    /// The futures of a set.
    fn unordered(&mut self, known: &KnownType, value: Value, depth: usize) -> Option<()> {
        let (head, of) = known.member("head_all")?;
        let task = self.pointee(of)?;
        let node = self.reader.types.get(task)?;
        let (future, of) = node.member("future")?;
        let next = node.member("next_all")?.0.offset;
        let mut at = self.pointer(value.at.checked_add(head.offset)?);
        self.has_parted = true;
        for _ in 0..MAX_SET {
            let Some(node) = at else { break };
            self.visit(Value { at: node.checked_add(future.offset)?, of, ..value }, depth + 1);
            at = self.pointer(node.checked_add(next)?);
        }
        Some(())
    }

    /// What a pointer leads to that lies in structures of its own.
    pub(super) fn pointee(&self, of: TypeRef) -> Option<TypeRef> {
        let mut of = of;
        for _ in 0..8 {
            let known = self.reader.types.get(of)?;
            if let Some(to) = known.value.points_to {
                return Some(known.reference(to));
            }
            of = known.reference(known.value.members.first()?.of);
        }
        None
    }

    fn leaf(&mut self, known: &KnownType, leaf: Leaf, value: Value) -> Option<()> {
        if matches!(leaf, Leaf::Receiver | Leaf::Oneshot) {
            self.receiver(known, leaf, value);
        }
        // Only a lock can be given to who does not ask.
        if !value.is_polled && leaf != Leaf::Acquire || self.facts.waits.len() >= MAX_FOUND {
            return None;
        }
        let outermost = self.through.first().cloned();
        let this = outermost.as_ref().map(|through| through.this);
        let channel = outermost.as_ref().and_then(|through| self.channel_of(through));
        let through = outermost.map(|through| through.path);
        let pointer = |member: &str| self.pointer(value.at.checked_add(known.member(member)?.0.offset)?);
        let mut wait = LeafWait {
            leaf,
            through,
            object: None,
            semaphore: None,
            channel,
            descriptor: None,
            is_polled: value.is_polled,
            is_granted: false,
        };
        match leaf {
            Leaf::Acquire => {
                wait.semaphore = pointer("semaphore");
                wait.object =
                    self.through.iter().rev().find_map(|through| through.this).or(this.flatten()).or(wait.semaphore);
                let queued = value.at.checked_add(known.member("queued")?.0.offset)?;
                let (node, of) = known.member("node")?;
                let state = self.reader.types.get(of)?.member("state")?.0.offset;
                let needed = self.number(value.at.checked_add(node.offset)?.checked_add(state)?, 8)?;
                let is_queued = self.number(queued, 1)? == 1;
                wait.is_granted = is_queued && needed == 0;
                // A future that was never polled, or has ended, stands in no queue.
                if !is_queued && !value.is_polled {
                    return None;
                }
            }
            Leaf::Notified => wait.object = this.flatten().or_else(|| pointer("notify")),
            Leaf::JoinHandle => wait.object = self.pointer(value.at),
            Leaf::Oneshot => wait.object = pointer("inner"),
            Leaf::Receiver => wait.object = self.pointer(value.at),
            Leaf::Broadcast => {
                wait.object = pointer("receiver");
                let lent = known.member("receiver").and_then(|(_, of)| self.pointee(of));
                wait.channel = lent.zip(wait.object).and_then(|(of, at)| self.first_pointer(of, at));
            }
            Leaf::Device => {
                let offset = self.reader.types.offset_of(value.of, Part::Descriptor);
                let at = offset.and_then(|offset| value.at.checked_add(offset));
                wait.descriptor = at.and_then(|at| self.number(at, 4)).map(|number| number as u32);
            }
            Leaf::Readiness | Leaf::Sleep | Leaf::JoinSet | Leaf::Yield | Leaf::Pending | Leaf::Signal => {}
        }
        if matches!(leaf, Leaf::Oneshot | Leaf::Receiver) {
            wait.channel = wait.object;
        }
        self.facts.waits.push(wait);
        Some(())
    }

    /// Notes the descriptor that a function of tokio waits for, which the object that it belongs to has.
    fn device(&mut self, state: &KnownType, at: RemoteAddr) -> Option<()> {
        let (this, of) = state.member("self")?;
        let pointer = self.reader.types.get(of)?;
        let of = pointer.reference(pointer.value.points_to?);
        let device = self.reader.types.offset_of(of, Part::Device)?;
        let descriptor = self.reader.types.offset_of(of, Part::Descriptor)?;
        let object = self.pointer(at.checked_add(this.offset)?)?;
        let number = self.number(object.checked_add(descriptor)?, 4)?;
        let waits = self.facts.waits.iter_mut().filter(|wait| wait.leaf == Leaf::Readiness);
        waits.for_each(|wait| {
            wait.descriptor = Some(number as u32);
            wait.object = object.checked_add(device);
        });
        Some(())
    }

    fn guard(&mut self, known: &KnownType, value: Value) -> Option<()> {
        let lock = known.value.members.iter().find_map(|member| {
            let of = self.pointee(known.reference(member.of))?;
            Some((self.pointer(value.at.checked_add(member.offset)?)?, of))
        });
        let (object, of) = lock?;
        let types = self.reader.types;
        let semaphore = types.offset_of(of, Part::Semaphore).and_then(|offset| object.checked_add(offset));
        // Locks of other crates for tasks have locks for threads in them, which their guards do not hold.
        let is_for_threads = ["std::", "lock_api::"].iter().any(|start| known.name().starts_with(start));
        let other = match semaphore {
            None if is_for_threads => types.locks_of(of).first().copied(),
            _ => None,
        };
        let is_of_tasks = !is_for_threads && !known.name().starts_with("tokio::");
        let object = match other {
            Some((offset, ..)) => object.checked_add(offset)?,
            None => object,
        };
        // Who has given a guard away, or dropped it by hand, may still have its bytes.
        let is_free = match (semaphore, other) {
            (Some(semaphore), _) => self.is_free(known.name(), semaphore),
            (None, Some((_, kind, family))) => self.is_unlocked(object, kind, family),
            (None, None) => false,
        };
        if is_free {
            return None;
        }
        if self.facts.holds.len() < MAX_FOUND && (semaphore.is_some() || other.is_some() || is_of_tasks) {
            let guard = known.shown.to_string();
            let other = other.map(|(_, kind, family)| (kind, family));
            self.facts.holds.push(HeldLock { guard, object, semaphore, other });
        }
        Some(())
    }
    /// Whether nobody has what the guard `name` stands for.
    fn is_free(&self, name: &str, semaphore: RemoteAddr) -> bool {
        /// Readers of one lock.
        const MAX_READERS: u64 = u32::MAX as u64 >> 3;
        let Some(permits) = self.reader.types.permits() else { return false };
        let Some(left) = semaphore.checked_add(permits).and_then(|at| self.number(at, 8)) else { return false };
        let left = left >> 1;
        match name.split('<').next().unwrap_or_default() {
            path if path.ends_with("Permit") => false,
            path if path.contains("Read") => left >= MAX_READERS,
            _ => left > 0,
        }
    }

    /// Whether a lock that threads block on says that nobody has it.
    fn is_unlocked(&self, lock: RemoteAddr, kind: SyncKind, family: Family) -> bool {
        let word = runtimes::of(family).lock_word(kind, family);
        let size = word.sizes.iter().copied().max().map_or(0, u64::from).min(8);
        let number = lock.checked_add(word.at).and_then(|at| self.number(at, size));
        number.is_some_and(|number| (word.held)(number) == 0)
    }
}

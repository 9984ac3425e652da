//! Where goroutines go on, and what the functions that they call do to locks and channels: for who follows their code.

use super::goroutines::{self, Goroutine};
use super::program::Program;
use super::stacks::{Stacks, Walked};
use crate::RemoteAddr;
use crate::memory::u64_at;
use crate::model::{SyncKind, Task};
use crate::runtimes::{Effect, TaskCall, TaskCode, TaskFrame, TaskStand, TaskUse};
use std::cell::RefCell;
use std::collections::HashMap;

/// Calls that one goroutine has put off.
const MAX_DEFERRED: usize = 256;
/// The same of one function that keeps them in its own frame.
const MAX_OPEN: usize = 8;
/// Functions whose names are remembered.
const MAX_KNOWN: usize = 1 << 18;

/// In a goroutine: how far down its stack may reach.
const STACK_LIMIT: u64 = 16;
/// What a writer takes off the count of readers.
const WRITER: i64 = 1 << 30;
/// In a rwlock: the count of readers.
const READERS: u64 = 16;
/// In a once: its mutex.
const ONCE_MUTEX: u64 = 4;
/// In a condition variable: the list of those who wait.
const COND_LIST: u64 = 16;

/// Packages whose functions call nobody back with a lock held, and take and release no lock of the program.
const NOT_FOLLOWED: [&str; 13] = [
    "runtime", "reflect", "fmt", "strconv", "unicode", "math", "syscall", "time", "os", "log", "errors", "strings",
    "bytes",
];

/// The code of a Go program.
pub(super) struct GoCode<'m> {
    program: Program<'m>,
    calls: RefCell<HashMap<u64, TaskCall>>,
    places: RefCell<HashMap<u64, Option<PlaceFacts>>>,
}

/// What is the same of all frames that stand at one place.
#[derive(Clone)]
struct PlaceFacts {
    /// Bytes from the stack pointer to the return address.
    size: u64,
    is_outermost: bool,
    is_of_runtime: bool,
    is_part_of_wait: bool,
    /// Where the frame keeps calls that are put off.
    open: Option<Vec<u32>>,
}

impl<'m> GoCode<'m> {
    pub(super) fn new(program: Program<'m>) -> Self {
        Self { program, calls: RefCell::default(), places: RefCell::default() }
    }

    fn word(&self, at: u64) -> Option<u64> {
        self.program.memory.read_u64(RemoteAddr(at)).ok()
    }

    fn stand(&self, stacks: &Stacks<'_>, goroutine: &Goroutine, walked: Walked, task: &Task) -> Option<TaskStand> {
        let (Walked::Whole(stack) | Walked::Deep(stack)) = walked else { return None };
        let mut sp = goroutine.sp;
        let mut frames = Vec::new();
        let waits_for_lock = task.wait.as_ref().and_then(|wait| wait.objects.first()).is_some_and(|object| {
            matches!(object.kind, SyncKind::Mutex | SyncKind::Rwlock | SyncKind::Once | SyncKind::WaitGroup)
        });
        let mut is_wait = true;
        for (pc, place) in stacks.places(stack) {
            let facts = self.place(place)?;
            if facts.is_outermost {
                break;
            }
            let top = sp.checked_add(facts.size)?.checked_add(8)?;
            is_wait &= facts.is_of_runtime || waits_for_lock && facts.is_part_of_wait;
            let deferred = facts.open.map(|numbers| self.open_defers(&numbers, top)).unwrap_or_default();
            frames.push(TaskFrame { pc, sp, top, is_wait: is_wait || facts.is_of_runtime, deferred });
            sp = top;
        }
        self.add_deferred(goroutine, &mut frames);
        Some(TaskStand { own: goroutine.address, limit: goroutine.address.wrapping_add(STACK_LIMIT), frames })
    }

    fn place(&self, place: u64) -> Option<PlaceFacts> {
        let mut places = self.places.borrow_mut();
        if places.len() >= MAX_KNOWN {
            places.clear();
        }
        let read = || {
            let functions = &self.program.functions;
            let function = functions.at(place)?;
            let is_outermost = function.is_outermost();
            let name = functions.name(&function).unwrap_or_default();
            Some(PlaceFacts {
                size: functions.frame_size(&function, place).or(is_outermost.then_some(0))?,
                is_outermost,
                is_of_runtime: name.starts_with("runtime.") || name.contains(".runtime_"),
                is_part_of_wait: is_part_of_wait(&name),
                open: functions.open_defers(&function, 2 + MAX_OPEN),
            })
        };
        places.entry(place).or_insert_with(read).clone()
    }

    /// Calls that a function has put off and keeps in its frame, which ends at `top`.
    fn open_defers(&self, numbers: &[u32], top: u64) -> Vec<u64> {
        // Variables are counted from below the saved frame pointer.
        let Some(variables) = top.checked_sub(16) else { return Vec::new() };
        let at = |below: u32| variables.wrapping_sub(u64::from(below));
        let [bits, second, rest @ ..] = numbers else { return Vec::new() };
        let Ok(bits) = self.program.memory.read_vec(RemoteAddr(at(*bits)), 1) else { return Vec::new() };
        let slots: Vec<(usize, u64)> = if self.program.layout.deferred.are_counted {
            let count = (*second as usize).min(MAX_OPEN);
            rest.iter().take(count).enumerate().map(|(number, below)| (count - 1 - number, at(*below))).collect()
        } else {
            (0..MAX_OPEN).rev().map(|number| (number, at(*second).wrapping_add(number as u64 * 8))).collect()
        };
        let is_pending = |number: &usize| bits[0] >> number & 1 == 1;
        let pending = slots.into_iter().filter(|(number, _)| is_pending(number));
        pending.filter_map(|(_, slot)| self.word(slot)).filter(|closure| *closure != 0).collect()
    }

    /// Adds the calls that were put off and are in a list.
    fn add_deferred(&self, goroutine: &Goroutine, frames: &mut [TaskFrame]) {
        let layout = self.program.layout.deferred;
        let mut at = goroutine.deferred;
        for _ in 0..MAX_DEFERRED {
            if at == 0 {
                return;
            }
            let Ok(bytes) = self.program.memory.read_vec(RemoteAddr(at), 48) else { return };
            let word = |at: usize| u64_at(&bytes, at).unwrap_or(0);
            let sp = word(layout.sp);
            if let Some(frame) = frames.iter_mut().find(|frame| frame.sp == sp)
                && word(layout.function) != 0
            {
                frame.deferred.push(word(layout.function));
            }
            at = word(layout.next);
        }
    }

    fn meaning(&self, entry: u64) -> TaskCall {
        let functions = &self.program.functions;
        let function = functions.at(entry).filter(|function| function.entry == entry);
        function.and_then(|function| functions.name(&function)).map_or(TaskCall::Plain, |name| meaning(&name))
    }
}

impl TaskCode for GoCode<'_> {
    fn function(&self, pc: u64) -> Option<(u64, u64)> {
        self.program.functions.bounds(pc)
    }

    fn call(&self, entry: u64) -> TaskCall {
        let mut calls = self.calls.borrow_mut();
        if calls.len() >= MAX_KNOWN {
            calls.clear();
        }
        *calls.entry(entry).or_insert_with(|| self.meaning(entry))
    }

    fn added(&self, at: u64, size: u8, by: i64) -> Option<(TaskUse, Effect)> {
        match (at, size, by) {
            (0, 4, -1) => Some((TaskUse::Exclusive, Effect::Release)),
            (READERS, 4, 1) => Some((TaskUse::Shared, Effect::Take)),
            (READERS, 4, -1) => Some((TaskUse::Shared, Effect::Release)),
            (READERS, 4, WRITER) => Some((TaskUse::Exclusive, Effect::Release)),
            _ => None,
        }
    }

    fn exchanged(&self, size: u8, from: u64, to: u64) -> Option<(TaskUse, Effect)> {
        (size == 4 && from & 1 == 0 && to & 1 == 1).then_some((TaskUse::Exclusive, Effect::Take))
    }

    fn stands(&self, tasks: &[&Task]) -> Vec<Option<TaskStand>> {
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        order.sort_unstable_by_key(|index| tasks[*index].address);
        let addresses: Vec<u64> = order.iter().map(|index| tasks[*index].address.0).collect();
        let read = goroutines::read(self.program.memory, &self.program.layout, &addresses);
        // One that has gone on since it was listed is another wait.
        let stands_still = |goroutine: &&Goroutine, task: &Task| {
            let place = (RemoteAddr(goroutine.pc), RemoteAddr(goroutine.sp));
            goroutine.id == task.id
                && goroutine.status.is_at_rest()
                && (task.pc, task.sp) == (Some(place.0), Some(place.1))
        };
        let mut still: Vec<(usize, Goroutine)> = Vec::new();
        for index in order {
            let task = tasks[index];
            let Ok(place) = read.binary_search_by_key(&task.address.0, |it| it.address) else { continue };
            still.extend(Some(read[place]).filter(|it| stands_still(&it, task)).map(|it| (index, it)));
        }
        let mut stacks = Stacks::new(self.program.memory, &self.program.functions, None);
        let goroutines: Vec<Goroutine> = still.iter().map(|(_, goroutine)| *goroutine).collect();
        let walked = stacks.walk(&goroutines);
        let mut stands: Vec<Option<TaskStand>> = vec![None; tasks.len()];
        for ((index, goroutine), walked) in still.iter().zip(walked) {
            stands[*index] = self.stand(&stacks, goroutine, walked, tasks[*index]);
        }
        stands
    }

    fn lock_of(&self, object: RemoteAddr, kind: SyncKind) -> RemoteAddr {
        if kind == SyncKind::Once { object.offset(ONCE_MUTEX) } else { object }
    }
}

/// Whether `function` is a part of a wait for a lock.
fn is_part_of_wait(function: &str) -> bool {
    let types = ["(*Mutex).", "(*RWMutex).", "(*Once).", "(*WaitGroup).", "(*rlocker)."];
    let name = function.strip_prefix("sync.").or_else(|| function.strip_prefix("internal/sync."));
    name.is_some_and(|name| types.iter().any(|of| name.starts_with(of)))
}

/// What a call of the function `name` means.
fn meaning(name: &str) -> TaskCall {
    use Effect::{Release, Take};
    use TaskUse::{Close, Exclusive, Group, Receive, Send, Shared, Wake};
    if let Some(method) = name.strip_prefix("sync.").or_else(|| name.strip_prefix("internal/sync.")) {
        return match method {
            "(*Mutex).Lock" | "(*Mutex).lockSlow" | "(*Mutex).TryLock" => TaskCall::Acts(Exclusive, Take, 0),
            "(*Mutex).Unlock" => TaskCall::Acts(Exclusive, Release, 0),
            "(*RWMutex).Lock" | "(*RWMutex).TryLock" => TaskCall::Acts(Exclusive, Take, 0),
            "(*RWMutex).Unlock" => TaskCall::Acts(Exclusive, Release, 0),
            "(*RWMutex).RLock" | "(*RWMutex).TryRLock" | "(*rlocker).Lock" => TaskCall::Acts(Shared, Take, 0),
            "(*RWMutex).RUnlock" | "(*rlocker).Unlock" => TaskCall::Acts(Shared, Release, 0),
            "(*WaitGroup).Done" => TaskCall::Acts(Group, Release, 0),
            "(*WaitGroup).Add" => TaskCall::Counts,
            "(*Cond).Signal" | "(*Cond).Broadcast" => TaskCall::Acts(Wake, Release, 0),
            "runtime_notifyListNotifyOne" | "runtime_notifyListNotifyAll" => TaskCall::Acts(Wake, Release, COND_LIST),
            "runtime_Semrelease" => TaskCall::Acts(Wake, Release, 0),
            // What they do after the lock's word has changed.
            "(*Mutex).unlockSlow" | "(*RWMutex).rUnlockSlow" | "(*WaitGroup).Wait" => TaskCall::Plain,
            "fatal" | "throw" => TaskCall::Never,
            _ if method.starts_with("runtime_") => TaskCall::Plain,
            _ => TaskCall::Code,
        };
    }
    if let Some(function) = name.strip_prefix("runtime.") {
        return match function {
            "chansend1" | "selectnbsend" => TaskCall::Acts(Send, Release, 0),
            "chanrecv1" | "chanrecv2" => TaskCall::Acts(Receive, Release, 0),
            "selectnbrecv" => TaskCall::ReceivesFromSecond,
            "closechan" => TaskCall::Acts(Close, Release, 0),
            "selectgo" => TaskCall::Chooses,
            "newproc" => TaskCall::Begins,
            "newobject" => TaskCall::Makes,
            // Since 1.26 the compiler calls what makes objects of one size itself.
            _ if function.starts_with("mallocgc") => TaskCall::Makes,
            "deferreturn" => TaskCall::EndsDeferred,
            "gopanic" | "throw" | "fatal" | "fatalthrow" | "fatalpanic" | "goexit" | "Goexit" | "block" | "goexit0" => {
                TaskCall::Never
            }
            // Stacks are taken to be large enough: else the function would begin again.
            _ if ["panic", "goPanic", "morestack"].iter().any(|start| function.starts_with(start)) => TaskCall::Never,
            _ => TaskCall::Plain,
        };
    }
    if name == "os.Exit" {
        return TaskCall::Never;
    }
    let package = name.split(['.', '/']).next().unwrap_or_default();
    let has_host = name.split('/').next().is_some_and(|first| name.contains('/') && first.contains('.'));
    let is_plain = NOT_FOLLOWED.contains(&package) && !has_host || name.starts_with("internal/");
    if is_plain { TaskCall::Plain } else { TaskCall::Code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_functions_do() {
        assert_eq!(meaning("internal/sync.(*Mutex).Unlock"), TaskCall::Acts(TaskUse::Exclusive, Effect::Release, 0));
        assert_eq!(meaning("sync.(*RWMutex).RLock"), TaskCall::Acts(TaskUse::Shared, Effect::Take, 0));
        assert_eq!(meaning("sync.(*Once).doSlow"), TaskCall::Code);
        assert_eq!(meaning("runtime.panicIndex"), TaskCall::Never);
        assert_eq!(meaning("runtime.mallocgcSmallScanNoHeaderSC6"), TaskCall::Makes);
        assert_eq!(meaning("fmt.Println"), TaskCall::Plain);
        assert_eq!(meaning("main.(*Server).run"), TaskCall::Code);
        assert_eq!(meaning("example.com/time/queue.(*Q).Put"), TaskCall::Code);
        assert_eq!(meaning("time.Sleep"), TaskCall::Plain);
    }
}

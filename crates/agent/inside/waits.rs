//! Waits in which a thread may be cancelled: condition variables and semaphores.
//!
//! A cancelled thread does not come back: the C library undoes its stack. So the call is made from assembly, which
//! has nothing to undo, and a cleanup handler of the old sort (a list in the thread's descriptor, which `longjmp`
//! minds too) tells of the end. The C library's own handler of such a wait is above ours in that list: when ours runs,
//! the mutex of a condition wait has been taken again.

use crate::functions::{real, waiting};
use crate::memory;
use crate::mutex::{self, ETIMEDOUT, Mutex, THRD_TIMEDOUT};
use crate::sem;
use crate::stacks::Caller;
use crate::tally::{self, Wait};
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicUsize, Ordering::*};
use table::{Entry, Kind};

/// The functions, by number.
pub const COND_WAIT: usize = 0;
const COND_TIMEDWAIT: usize = 1;
const COND_CLOCKWAIT: usize = 2;
const CND_WAIT: usize = 3;
const CND_TIMEDWAIT: usize = 4;
const SEM_WAIT: usize = 5;
const SEM_TIMEDWAIT: usize = 6;
const SEM_CLOCKWAIT: usize = 7;

/// What is known of a wait in progress, on the stack of the thread that waits.
#[repr(C)]
struct Frame {
    args: [usize; 4],
    op: usize,
    site: usize,
    real: usize,
    /// Room for the C library's list of handlers.
    handler: [usize; 4],
    entry: Option<&'static Entry>,
    /// Key of the entry: the object may be destroyed before its last waiter is back here.
    key: u64,
    mutex: Option<&'static Entry>,
    wait: Wait,
}

const SIZE: usize = size_of::<Frame>().next_multiple_of(16) + 8;

/// `_pthread_cleanup_push` and `_pthread_cleanup_pop`, or what does nothing.
pub static PUSH: AtomicUsize = AtomicUsize::new(0);
pub static POP: AtomicUsize = AtomicUsize::new(0);

extern "C" fn nothing() {}

/// Where the C library keeps the two, if it has them.
pub fn begin(push: Option<usize>, pop: Option<usize>) {
    let (push, pop) = push.zip(pop).unwrap_or((nothing as *const () as usize, nothing as *const () as usize));
    PUSH.store(push, Relaxed);
    POP.store(pop, Relaxed);
}

macro_rules! wait {
    ($($name:ident $op:expr;)*) => {$(
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(".cfi_startproc", "mov r11d, {op}", "jmp {common}", ".cfi_endproc", op = const $op, common = sym common)
        }
    )*};
}
wait! {
    cond_wait COND_WAIT;
    cond_timedwait COND_TIMEDWAIT;
    cond_clockwait COND_CLOCKWAIT;
    cnd_wait CND_WAIT;
    cnd_timedwait CND_TIMEDWAIT;
    sem_wait SEM_WAIT;
    sem_timedwait SEM_TIMEDWAIT;
    sem_clockwait SEM_CLOCKWAIT;
}

#[unsafe(naked)]
unsafe extern "C" fn common() {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        ".cfi_offset rbx, -24",
        "sub rsp, {size}",
        "mov [rsp + {args}], rdi",
        "mov [rsp + {args} + 8], rsi",
        "mov [rsp + {args} + 16], rdx",
        "mov [rsp + {args} + 24], rcx",
        "mov [rsp + {op}], r11",
        "mov rax, [rbp + 8]",
        "mov [rsp + {site}], rax",
        "mov rdi, rsp",
        "call {before}",
        "lea rdi, [rsp + {handler}]",
        "lea rsi, [rip + {cancelled}]",
        "mov rdx, rsp",
        "call [rip + {push}]",
        "mov rdi, [rsp + {args}]",
        "mov rsi, [rsp + {args} + 8]",
        "mov rdx, [rsp + {args} + 16]",
        "mov rcx, [rsp + {args} + 24]",
        "call [rsp + {real}]",
        "mov ebx, eax",
        "lea rdi, [rsp + {handler}]",
        "xor esi, esi",
        "call [rip + {pop}]",
        "mov rdi, rsp",
        "mov esi, ebx",
        "call {after}",
        "mov eax, ebx",
        "add rsp, {size}",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        size = const SIZE,
        args = const offset_of!(Frame, args),
        op = const offset_of!(Frame, op),
        site = const offset_of!(Frame, site),
        handler = const offset_of!(Frame, handler),
        real = const offset_of!(Frame, real),
        before = sym before,
        cancelled = sym cancelled,
        after = sym after,
        push = sym PUSH,
        pop = sym POP,
    )
}

fn pointer(value: usize) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(value)
}

/// Whether the C library will accept a time limit; it counts no wait that it refuses.
fn is_valid(until: usize) -> bool {
    // SAFETY: the program's own `timespec`, if it gives one.
    until != 0 && unsafe { (0..1_000_000_000).contains(&pointer(until).cast::<i64>().add(1).read()) }
}

fn is_clock(clock: usize) -> bool {
    clock as u32 <= 1
}

unsafe extern "C" fn before(frame: *mut Frame) {
    // SAFETY: the room that the assembly has made; everything it has not written is written here.
    let frame = unsafe { &mut *frame };
    let [first, second, third, fourth] = frame.args;
    let (real, is_counted) = match frame.op {
        COND_WAIT => (waiting!(pthread_cond_wait), true),
        COND_TIMEDWAIT => (waiting!(pthread_cond_timedwait), is_valid(third)),
        COND_CLOCKWAIT => (waiting!(pthread_cond_clockwait), is_clock(third) && is_valid(fourth)),
        CND_WAIT => (waiting!(cnd_wait), true),
        CND_TIMEDWAIT => (waiting!(cnd_timedwait), is_valid(third)),
        SEM_WAIT => (waiting!(sem_wait), true),
        SEM_TIMEDWAIT => (waiting!(sem_timedwait), is_valid(second)),
        _ => (waiting!(sem_clockwait), is_clock(second) && is_valid(third)),
    };
    frame.real = real;
    (frame.entry, frame.mutex, frame.key, frame.wait) = (None, None, 0, Wait::default());
    if !is_counted {
        return;
    }
    if frame.op >= SEM_WAIT {
        let Some(entry) = sem::entry(pointer(first)) else { return };
        tally::bump(&entry.sema().wait);
        frame.key = entry.key.load(Relaxed);
        frame.entry = Some(entry);
        if sem::value(pointer(first)) == 0 {
            tally::bump(&entry.sema().sleep);
            frame.wait = Wait::begin(Some(entry));
        }
        return;
    }
    if let Some(entry) = memory::entry(first, Kind::Cond) {
        frame.key = entry.key.load(Relaxed);
        frame.entry = Some(entry);
        frame.wait = Wait::begin(Some(entry));
        let body = entry.cond();
        tally::bump(if is_timed(frame.op) { &body.timedwait } else { &body.wait });
    }
    if mutex::would_release(mutex_at(second)) {
        frame.mutex = memory::entry(second, Kind::Mutex);
        if let Some(entry) = frame.mutex {
            mutex::released(mutex_at(second), entry);
        }
    }
}

fn is_timed(op: usize) -> bool {
    !matches!(op, COND_WAIT | CND_WAIT)
}

fn mutex_at<'a>(address: usize) -> &'a Mutex {
    // SAFETY: the program's own mutex.
    unsafe { &*pointer(address).cast() }
}

unsafe extern "C" fn after(frame: *mut Frame, result: c_int) {
    // SAFETY: written by `before`.
    let frame = unsafe { &*frame };
    if frame.op >= SEM_WAIT {
        end_sem(frame);
        if let Some(entry) = frame.entry
            && result == 0
        {
            sem::saw_least(entry, sem::value(pointer(frame.args[0])));
        }
        return;
    }
    let timed_out = if matches!(frame.op, CND_WAIT | CND_TIMEDWAIT) { THRD_TIMEDOUT } else { ETIMEDOUT };
    end_cond(frame);
    if let Some(entry) = current(frame)
        && result == timed_out
    {
        tally::bump(&entry.cond().timeout);
    }
}

/// Called by the C library as the thread is cancelled, or leaves by `longjmp`.
unsafe extern "C" fn cancelled(frame: *mut c_void) {
    // SAFETY: the frame still is on the stack.
    let frame = unsafe { &*frame.cast::<Frame>() };
    if frame.op >= SEM_WAIT { end_sem(frame) } else { end_cond(frame) }
}

/// The entry, if it still stands for what was waited for.
fn current(frame: &Frame) -> Option<&'static Entry> {
    frame.entry.filter(|entry| entry.key.load(Relaxed) == frame.key)
}

/// Where the call came from. Behind the frame lie the two registers that the assembly saves, and the return address.
fn caller(frame: &Frame) -> Caller {
    let saved = core::ptr::from_ref(frame).addr() + SIZE + 8;
    let at: *const usize = core::ptr::with_exposed_provenance(saved);
    // SAFETY: written by the assembly, whose call has not returned.
    Caller { sp: saved + 16, frame_pointer: unsafe { at.read() } }
}

fn end_sem(frame: &Frame) {
    if let Some(entry) = current(frame)
        && frame.wait.has_begun()
    {
        let time = frame.wait.end(entry, frame.site, || Some(caller(frame)));
        entry.sema().sleep_time.fetch_add(time, Relaxed);
    }
}

fn end_cond(frame: &Frame) {
    let mutex = mutex_at(frame.args[1]);
    if let Some(entry) = frame.mutex
        // It was not, if the C library refused, or the thread leaves by `longjmp`.
        && mutex.owner.load(Relaxed) == mutex::tid()
    {
        mutex::acquired(mutex, entry, frame.site);
    }
    if let Some(entry) = current(frame) {
        let time = frame.wait.end(entry, frame.site, || Some(caller(frame)));
        let body = entry.cond();
        let total = if is_timed(frame.op) { &body.timedwait_time } else { &body.wait_time };
        total.fetch_add(time, Relaxed);
    }
}

macro_rules! plain {
    ($destroy:ident $signal:ident $broadcast:ident,
     $real_destroy:ident $real_signal:ident $real_broadcast:ident) => {
        pub unsafe extern "C" fn $destroy(cond: *mut c_void) -> c_int {
            let result = real!($real_destroy(*mut c_void))(cond);
            memory::end(cond.addr());
            result
        }
        pub unsafe extern "C" fn $signal(cond: *mut c_void) -> c_int {
            // Counted before: once a waiter is awake it may destroy the object.
            if let Some(entry) = memory::entry(cond.addr(), Kind::Cond) {
                tally::bump(&entry.cond().signal);
            }
            real!($real_signal(*mut c_void))(cond)
        }
        pub unsafe extern "C" fn $broadcast(cond: *mut c_void) -> c_int {
            if let Some(entry) = memory::entry(cond.addr(), Kind::Cond) {
                tally::bump(&entry.cond().broadcast);
            }
            real!($real_broadcast(*mut c_void))(cond)
        }
    };
}
plain!(cond_destroy cond_signal cond_broadcast,
    pthread_cond_destroy pthread_cond_signal pthread_cond_broadcast);
plain!(cnd_destroy cnd_signal cnd_broadcast, cnd_destroy cnd_signal cnd_broadcast);

pub unsafe extern "C" fn cond_init(cond: *mut c_void, attributes: *const c_void) -> c_int {
    let result = real!(pthread_cond_init(*mut c_void, *const c_void))(cond, attributes);
    if result == 0 {
        memory::renew(cond.addr(), Kind::Cond);
    }
    result
}

pub unsafe extern "C" fn cnd_init(cond: *mut c_void) -> c_int {
    let result = real!(cnd_init(*mut c_void))(cond);
    if result == 0 {
        memory::renew(cond.addr(), Kind::Cond);
    }
    result
}

//! CPU-time timers of single threads, and the handler of their signal.
//!
//! The handler runs in the middle of the program, so it only takes a slot of a fixed array and writes the
//! program counter there; the helper thread collects.

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// Ticks that wait to be collected: more than a second's worth on 16 busy CPUs, at the rate that timers reach.
const SLOTS: u64 = 16_384;

struct Slot {
    /// The program counter; valid while `ticks` is not 0.
    pc: UnsafeCell<u64>,
    ticks: AtomicU64,
}

// SAFETY: `pc` is written by who took the slot, before `ticks` is set, and read by the collector after it saw
// `ticks`; until then the slot is not given out again.
unsafe impl Sync for Slot {}

static RING: [Slot; SLOTS as usize] =
    [const { Slot { pc: UnsafeCell::new(0), ticks: AtomicU64::new(0) } }; SLOTS as usize];
static HEAD: AtomicU64 = AtomicU64::new(0);
static TAIL: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// The signal that was chosen; 0 until then. The handler stays for ever: a tick that is still on its way to a
/// thread would otherwise end the program.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

fn push(pc: u64, ticks: u64) {
    let mut head = HEAD.load(Ordering::Relaxed);
    loop {
        if head.wrapping_sub(TAIL.load(Ordering::Acquire)) >= SLOTS {
            LOST.fetch_add(ticks, Ordering::Relaxed);
            return;
        }
        match HEAD.compare_exchange_weak(head, head + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    let slot = &RING[(head % SLOTS) as usize];
    // SAFETY: the slot is ours: it was taken above, and it is free because the collector has passed it.
    unsafe { *slot.pc.get() = pc };
    slot.ticks.store(ticks, Ordering::Release);
}

extern "C" fn on_tick(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if !ACTIVE.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the kernel passes both to a handler installed with SA_SIGINFO.
    unsafe {
        if (*info).si_code != libc::SI_TIMER {
            return;
        }
        // `si_overrun`, behind `si_tid`: expiries since the signal was sent that got no signal of their own.
        let overrun = *info.cast::<i32>().add(5);
        let context = &*context.cast::<libc::ucontext_t>();
        let pc = context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
        push(pc, 1 + u64::try_from(overrun).unwrap_or(0));
    }
}

/// Takes a real-time signal that the program does not use, from the top; installs the handler. Once a process.
fn install() -> io::Result<i32> {
    let chosen = SIGNAL.load(Ordering::Acquire);
    if chosen != 0 {
        return Ok(chosen);
    }
    for signal in (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev() {
        // SAFETY: both structures are ours, and all zeroes is a valid value of them; the handler does only what
        // is allowed in one.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut old) != 0 || old.sa_sigaction != libc::SIG_DFL {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_tick;
            new.sa_sigaction = handler as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
            libc::sigfillset(&raw mut new.sa_mask);
            if libc::sigaction(signal, &raw const new, std::ptr::null_mut()) == 0 {
                SIGNAL.store(signal, Ordering::Release);
                return Ok(signal);
            }
        }
    }
    Err(io::Error::other("no real-time signal is free"))
}

/// Turns collecting on, with nothing left from before; only the helper thread calls this.
pub(crate) fn begin() -> io::Result<i32> {
    let signal = install()?;
    collect(|_, _| {});
    LOST.store(0, Ordering::Relaxed);
    ACTIVE.store(true, Ordering::Release);
    Ok(signal)
}

/// Turns collecting off.
pub(crate) fn end() {
    ACTIVE.store(false, Ordering::Release);
}

/// In the child of a fork: forgets ticks of the parent, one of which may be half written.
pub(crate) fn forget() {
    ACTIVE.store(false, Ordering::Release);
    RING.iter().for_each(|slot| slot.ticks.store(0, Ordering::Relaxed));
    TAIL.store(HEAD.load(Ordering::Relaxed), Ordering::Release);
}

/// Takes what the handler has left: program counter and ticks. Only one thread at a time does so.
pub(crate) fn collect(mut take: impl FnMut(u64, u64)) {
    let mut tail = TAIL.load(Ordering::Relaxed);
    while tail != HEAD.load(Ordering::Acquire) {
        let slot = &RING[(tail % SLOTS) as usize];
        let ticks = slot.ticks.swap(0, Ordering::Acquire);
        if ticks == 0 {
            // Taken, and not yet written.
            break;
        }
        // SAFETY: `ticks` was set, so the writer is done with the slot, and it is free only below.
        let pc = unsafe { *slot.pc.get() };
        tail += 1;
        TAIL.store(tail, Ordering::Release);
        take(pc, ticks);
    }
}

/// Ticks that found no room, since `begin`.
pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// A timer that runs on the CPU time of one thread and signals that thread.
#[derive(Debug)]
pub(crate) struct Timer(i32);

/// `struct sigevent` as the kernel has it, for SIGEV_THREAD_ID.
#[repr(C)]
struct SigEvent {
    value: u64,
    signal: i32,
    notify: i32,
    tid: i32,
    pad: [i32; 11],
}

const SIGEV_THREAD_ID: i32 = 4;
const _: () = assert!(size_of::<SigEvent>() == 64);

impl Timer {
    /// Starts one for thread `tid` of this process.
    pub fn start(tid: i32, signal: i32, period_ns: u64) -> io::Result<Self> {
        // The clock of a thread by number: CPUCLOCK_SCHED (2) and CPUCLOCK_PERTHREAD (4).
        let clock = (!tid << 3) | 6;
        let event = SigEvent { value: 0, signal, notify: SIGEV_THREAD_ID, tid, pad: [0; 11] };
        let mut id = 0i32;
        // SAFETY: the kernel reads `event` and writes `id`, both of the layout it expects.
        let made = unsafe {
            libc::syscall(libc::SYS_timer_create, clock, std::ptr::from_ref(&event), std::ptr::from_mut(&mut id))
        };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = Self(id);
        timer.set(period_ns)?;
        Ok(timer)
    }

    /// Starts it anew with this period; 0 stops it.
    pub fn set(&self, period_ns: u64) -> io::Result<()> {
        let each =
            libc::timespec { tv_sec: (period_ns / 1_000_000_000) as i64, tv_nsec: (period_ns % 1_000_000_000) as i64 };
        let spec = libc::itimerspec { it_interval: each, it_value: each };
        // SAFETY: the kernel reads `spec`; no old value is asked for.
        let set = unsafe {
            libc::syscall(libc::SYS_timer_settime, self.0, 0, std::ptr::from_ref(&spec), std::ptr::null_mut::<u8>())
        };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Whether it still runs: that of a thread that has ended does not.
    pub fn runs(&self) -> bool {
        // SAFETY: all zeroes is a valid value, which the kernel fills.
        unsafe {
            let mut now: libc::itimerspec = std::mem::zeroed();
            libc::syscall(libc::SYS_timer_gettime, self.0, &raw mut now) == 0
                && (now.it_value.tv_sec != 0 || now.it_value.tv_nsec != 0)
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: takes a number only.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.0) };
    }
}

//! Being scheduled before others, for as long as somebody waits for us.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// Keeps a CPU awake: one that sleeps deeply takes longer to begin than what somebody waits for takes there.
#[derive(Debug)]
struct Awake {
    /// Where our own thread was allowed before.
    before: libc::cpu_set_t,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// However it goes, it is not kept awake for longer.
const LONGEST: Duration = Duration::from_millis(20);

fn set_of(cpu: usize) -> libc::cpu_set_t {
    // SAFETY: all zeros are an empty set; the number was checked.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        set
    }
}

fn allow(set: &libc::cpu_set_t) -> bool {
    // SAFETY: the set lives through the call; 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) == 0 }
}

impl Awake {
    /// Goes to another CPU, and leaves a thread behind there that gives way to everybody.
    fn new(cpu: usize) -> Option<Self> {
        if cpu >= libc::CPU_SETSIZE as usize {
            return None;
        }
        // SAFETY: room for a set, and numbers below its size.
        let before = unsafe {
            let mut before: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut before) != 0 {
                return None;
            }
            let mut rest = before;
            libc::CPU_CLR(cpu, &mut rest);
            if libc::CPU_COUNT(&rest) == 0 || !libc::CPU_ISSET(cpu, &before) || !allow(&rest) {
                return None;
            }
            before
        };
        let (is_over, is_there) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (over, there) = (is_over.clone(), is_there.clone());
        let spin = move || {
            let none = libc::sched_param { sched_priority: 0 };
            // SAFETY: the structure lives through the call; 0 is the calling thread.
            let is_humble = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) == 0 };
            let is_ready = is_humble && allow(&set_of(cpu));
            there.store(true, Release);
            let begun = Instant::now();
            while is_ready && !over.load(Acquire) && begun.elapsed() < LONGEST {
                std::hint::spin_loop();
            }
        };
        let thread = std::thread::Builder::new().name("awake".to_owned()).spawn(spin).ok();
        let begun = Instant::now();
        while thread.is_some() && !is_there.load(Acquire) && begun.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        Some(Self { before, is_over, thread })
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.is_over.store(true, Release);
        allow(&self.before);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A thread's scheduling, put back when this is dropped.
#[derive(Debug)]
pub(crate) struct Hurry {
    _awake: Option<Awake>,
    before: Option<(i32, libc::sched_param)>,
    slack: libc::c_int,
}

impl Hurry {
    /// Gives the calling thread a real-time priority, where that is permitted, and keeps `cpu` awake, on which others
    /// will work for us.
    pub(crate) fn new(cpu: Option<usize>) -> Self {
        let _awake = cpu.and_then(Awake::new);
        let mut before = libc::sched_param { sched_priority: 0 };
        let wanted = libc::sched_param { sched_priority: 1 };
        // SAFETY: both structures live through the calls; 0 is the calling thread.
        unsafe {
            let policy = libc::sched_getscheduler(0);
            // Short naps are short, then, also where nothing else is permitted.
            let slack = libc::prctl(libc::PR_GET_TIMERSLACK);
            libc::prctl(libc::PR_SET_TIMERSLACK, 1);
            let is_done = policy == libc::SCHED_OTHER
                && libc::sched_getparam(0, &raw mut before) == 0
                && libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const wanted) == 0;
            Self { _awake, before: is_done.then_some((policy, before)), slack }
        }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            if let Some((policy, before)) = self.before {
                libc::sched_setscheduler(0, policy, &raw const before);
            }
            if self.slack > 0 {
                libc::prctl(libc::PR_SET_TIMERSLACK, self.slack);
            }
        }
    }
}

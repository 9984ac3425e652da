//! A program that deadlocks on purpose, for `tglass demo` to explain.
//!
//! Its locks are those of POSIX threads, which most programs use in the end: two threads each take one of
//! two mutexes and want the other, and more threads queue behind them.

use std::cell::UnsafeCell;
use std::io::Read;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// A `pthread_mutex_t` that is never destroyed.
struct PthreadMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the only access is by pthread_mutex_lock, which is made for being called by many threads.
unsafe impl Sync for PthreadMutex {}

impl PthreadMutex {
    const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    fn lock(&'static self) {
        // SAFETY: it was initialised by `new`, and is static: it neither moves nor ends.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    fn unlock(&'static self) {
        // SAFETY: as above; the caller has locked it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

static ACCOUNTS: PthreadMutex = PthreadMutex::new();
static LEDGER: PthreadMutex = PthreadMutex::new();

static BOTH_HOLD: Barrier = Barrier::new(3);

/// Takes money from one account to another, and then books it.
#[inline(never)]
fn transfer() {
    ACCOUNTS.lock();
    BOTH_HOLD.wait();
    LEDGER.lock();
    LEDGER.unlock();
    ACCOUNTS.unlock();
}

/// Goes through the books, and compares them with the accounts: in the other order.
#[inline(never)]
fn audit() {
    LEDGER.lock();
    BOTH_HOLD.wait();
    ACCOUNTS.lock();
    ACCOUNTS.unlock();
    LEDGER.unlock();
}

/// Looks an account up.
#[inline(never)]
fn balance() {
    ACCOUNTS.lock();
    ACCOUNTS.unlock();
}

/// Makes two threads deadlock, and others wait for them; then says `ready` and lives until its standard input
/// is closed, so that it cannot outlive whoever started it.
pub fn deadlock() -> std::io::Result<()> {
    let spawn = |name: &str, body: fn()| thread::Builder::new().name(name.to_owned()).spawn(body).map(drop);
    spawn("transfer", transfer)?;
    spawn("audit", audit)?;
    BOTH_HOLD.wait();
    for number in 1..=3 {
        spawn(&format!("worker-{number}"), balance)?;
    }
    spawn("idle", || thread::sleep(Duration::from_secs(3600)))?;
    // They are on their way into their locks; nothing tells when they are there but a look from outside.
    thread::sleep(Duration::from_millis(50));
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
    Ok(())
}

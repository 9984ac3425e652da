//! Two threads each take one of two mutexes and want the other, and more threads queue behind them.
//!
//! The locks are those of POSIX threads, which most programs use in the end.

use crate::posix::PthreadMutex;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

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

/// Makes two threads deadlock, and others wait for them.
pub fn deadlock(parent: u32) -> std::io::Result<()> {
    crate::posix::end_with_parent(parent);
    let spawn = |name: &str, body: fn()| thread::Builder::new().name(name.to_owned()).spawn(body).map(drop);
    spawn("transfer", transfer)?;
    spawn("audit", audit)?;
    BOTH_HOLD.wait();
    for number in 1..=3 {
        spawn(&format!("worker-{number}"), balance)?;
    }
    spawn("idle", || thread::sleep(Duration::from_secs(3600)))?;
    crate::stay()
}

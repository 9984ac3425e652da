//! Threads that do little but wait for one lock, because one of them keeps it while it writes to a slow disk.

use crate::posix::PthreadMutex;
use std::thread;
use std::time::Duration;

static CACHE: PthreadMutex = PthreadMutex::new();

/// Answers one request: a short look into the cache.
#[inline(never)]
fn look_up() {
    CACHE.lock();
    std::hint::black_box(());
    CACHE.unlock();
}

/// Writes the cache to a disk, which here is a sleep, and keeps the lock meanwhile.
#[inline(never)]
fn flush() {
    CACHE.lock();
    thread::sleep(Duration::from_millis(20));
    CACHE.unlock();
}

/// Makes four threads wait for a fifth, again and again.
pub fn contention(parent: u32) -> std::io::Result<()> {
    crate::posix::end_with_parent(parent);
    let spawn = |name: String, body: fn(), pause: u64| {
        let body = move || loop {
            body();
            thread::sleep(Duration::from_millis(pause));
        };
        thread::Builder::new().name(name).spawn(body).map(drop)
    };
    spawn("flusher".to_owned(), flush, 5)?;
    for number in 1..=4 {
        spawn(format!("request-{number}"), look_up, 1)?;
    }
    crate::stay()
}

//! Many tasks that wait: most to be notified, some for a mutex, some for a time.

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify};

static BEGUN: AtomicUsize = AtomicUsize::new(0);

async fn is_notified(end: Arc<Notify>) {
    BEGUN.fetch_add(1, Ordering::SeqCst);
    end.notified().await;
}

async fn locks(mutex: Arc<Mutex<u64>>) {
    BEGUN.fetch_add(1, Ordering::SeqCst);
    *mutex.lock().await += 1;
}

async fn sleeps() {
    BEGUN.fetch_add(1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(3600)).await;
}

fn main() {
    let number: usize = std::env::args().nth(1).and_then(|number| number.parse().ok()).expect("a number");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let (end, mutex) = (Arc::new(Notify::new()), Arc::new(Mutex::new(0)));
    let _held = runtime.block_on(mutex.clone().lock_owned());
    for index in 0..number {
        match index % 10 {
            0 => drop(runtime.spawn(locks(mutex.clone()))),
            1 => drop(runtime.spawn(sleeps())),
            _ => drop(runtime.spawn(is_notified(end.clone()))),
        }
    }
    while BEGUN.load(Ordering::SeqCst) < number {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(100));
    println!("ready {number}");
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

//! A pool of threads whose workers all wait for tasks that only they could run.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;

type Task = Box<dyn FnOnce() + Send>;

const WORKERS: usize = 4;

struct Pool {
    tasks: Sender<Task>,
}

impl Pool {
    fn start() -> io::Result<Self> {
        let (tasks, queue) = channel::<Task>();
        let queue = Arc::new(Mutex::new(queue));
        for number in 1..=WORKERS {
            let queue = queue.clone();
            thread::Builder::new().name(format!("pool-{number}")).spawn(move || work(&queue))?;
        }
        Ok(Self { tasks })
    }

    #[inline(never)]
    fn submit(&self, task: Task) {
        // Nobody ends the workers.
        let _ = self.tasks.send(task);
    }
}

/// Takes one task after the other.
#[inline(never)]
fn work(queue: &Mutex<Receiver<Task>>) {
    loop {
        let task = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match task {
            Ok(task) => task(),
            Err(_) => return,
        }
    }
}

/// Has one half of the order checked by the same pool, and waits for that.
#[inline(never)]
fn process_order(pool: &Pool) {
    let (done, result) = channel();
    pool.submit(Box::new(move || {
        let _ = done.send(());
    }));
    let _ = result.recv();
}

/// Fills a pool with tasks that wait for tasks behind them in the queue.
pub fn starvation(parent: u32) -> io::Result<()> {
    crate::posix::end_with_parent(parent);
    let pool = Arc::new(Pool::start()?);
    let all_began = Arc::new(Barrier::new(WORKERS));
    for _ in 0..WORKERS {
        let (within, all_began) = (pool.clone(), all_began.clone());
        pool.submit(Box::new(move || {
            all_began.wait();
            process_order(&within);
        }));
    }
    crate::stay()
}

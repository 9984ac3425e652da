//! The Rust interface. One test: a process has one profile.

mod common;

use common::have_perf;
use perf::{Options, Record, Sampler};
use profil::{Clock, Ended, Error, Profiler};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

#[inline(never)]
fn work() {
    for n in 0..3_000_000u64 {
        black_box(n);
    }
}

#[test]
fn profiles_belong_to_their_guards() {
    refusals();
    counts(Clock::Timers);
    if have_perf(testkit::part("the clock of perf")) {
        counts(Clock::Perf);
        samples_of_a_thread();
    }
}

fn refusals() {
    assert!(matches!(Profiler::builder().rate(0).start(), Err(Error::Rate(0))));
    assert!(matches!(Profiler::builder().rate(10_001).start(), Err(Error::Rate(10_001))));
    assert!(matches!(Profiler::builder().scale(1).start(), Err(Error::Layout(_))));
    assert!(matches!(Profiler::builder().cells(0).start(), Err(Error::Layout(_))));
    assert!(matches!(Profiler::builder().cells(u64::MAX).start(), Err(Error::Layout(_))));
}

fn counts(clock: Clock) {
    let profile = Profiler::builder().rate(1000).clock(clock).start().expect("a clock");
    while profile.stats().ticks < 50 {
        work();
    }
    let stats = profile.stats();
    assert_eq!((stats.clock, stats.ended, stats.rate), (Some(clock), None, 1000));
    profile.pause();
    let before = profile.histogram();
    (0..50).for_each(|_| work());
    let after = profile.histogram();
    assert_eq!(before.counts, after.counts);
    assert!(after.stats.paused);
    profile.resume();
    while profile.stats().ticks < after.stats.ticks + 10 {
        work();
    }
    let done = profile.stop();
    let sum: u64 = done.counts.iter().map(|count| u64::from(*count)).sum();
    assert_eq!(sum, done.stats.ticks);
    // Debug builds compute in other functions too, all of this program.
    assert_eq!(done.ticks_in(done.layout.region()), sum);
    assert!(done.stats.achieved_rate().is_some_and(|rate| rate > 10.0), "{:?}", done.stats);

    // A second profile takes the place of the first, which keeps its counts.
    let first = Profiler::builder().clock(clock).rate(1000).start().expect("a clock");
    while first.stats().ticks < 5 {
        work();
    }
    let second = Profiler::builder().clock(clock).rate(1000).start().expect("a clock");
    let kept = first.histogram().counts;
    while second.stats().ticks < 5 {
        work();
    }
    assert_eq!(first.histogram().counts, kept);
    drop(first);
    let seen = second.stats().ticks;
    while second.stats().ticks < seen + 5 {
        work();
    }
    assert_eq!(second.stats().ended, None::<Ended>);
}

/// The sampler under it, for one thread.
fn samples_of_a_thread() {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let end = &end;
        scope.spawn(move || {
            let tid = std::fs::read_link("/proc/thread-self").expect("a number");
            sender.send(tid.file_name().unwrap().to_str().unwrap().parse::<i32>().unwrap()).expect("a receiver");
            while !end.load(Ordering::Relaxed) {
                work();
            }
        });
        let tid = receiver.recv().expect("a thread");
        let options = Options { chain: Some(32), stack: Some(1024), ..Options::new(2000) };
        let mut sampler = Sampler::of_threads(&[tid], options).expect("perf events");
        let (mut samples, mut last) = (0, 0);
        testkit::eventually("the thread should be seen", || {
            sampler.drain(|record| {
                if let Record::Sample(sample) = record {
                    assert_eq!((sample.tid, sample.pid), (tid, std::process::id() as i32));
                    let registers = sample.registers.expect("a 64-bit program");
                    assert_eq!((sample.chain.first(), registers.ip), (Some(&sample.ip), sample.ip));
                    assert!(!sample.stack.is_empty() && sample.time > 0);
                    last = last.max(sample.time);
                    samples += 1;
                }
            });
            samples >= 100
        });
        sampler.disable().expect("an event of ours");
        sampler.drain(|_| {});
        let mut more = 0;
        (0..20).for_each(|_| work());
        sampler.drain(|_| more += 1);
        assert_eq!(more, 0);
        end.store(true, Ordering::Relaxed);
    });
}

//! Threads parked by the `parking_lot` crate. This program runs itself as the fixture.

use parking_lot::{Condvar, Mutex, RwLock};
use std::io::{Read, Write};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;
use testkit::{Fixture, Tool, task_state, thread, threads};

static MUTEX: Mutex<u32> = Mutex::new(0);
static RWLOCK: RwLock<u32> = RwLock::new(0);
static COND_MUTEX: Mutex<u32> = Mutex::new(0);
static COND: Condvar = Condvar::new();

/// Starts a thread and waits until it sleeps in a futex call: its id and the word.
fn waits(act: impl FnOnce() + Send + 'static) -> (i32, String) {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        let tid: i32 = own.file_name().unwrap().to_string_lossy().parse().unwrap();
        sender.send(tid).unwrap();
        drop(sender);
        act();
    });
    let tid = receiver.recv().unwrap();
    loop {
        let call = task_state(std::process::id() as i32, tid).unwrap().call;
        let mut words = call.split(' ');
        if words.next() == Some("202") {
            return (tid, words.next().unwrap_or_default().to_owned());
        }
        std::thread::yield_now();
    }
}

fn fixture() {
    let _mutex = MUTEX.lock();
    let _rwlock = RWLOCK.write();
    let place = |what: &dyn std::any::Any| std::ptr::from_ref(what).cast::<u8>() as usize;
    let told = [
        ("mutex", place(&MUTEX), false, waits(|| drop(MUTEX.lock()))),
        ("rwlock", place(&RWLOCK), false, waits(|| drop(RWLOCK.read()))),
        ("rwlock", place(&RWLOCK), false, waits(|| drop(RWLOCK.write()))),
        ("cond", place(&COND), false, waits(|| COND.wait(&mut COND_MUTEX.lock()))),
        (
            "mutex",
            place(&MUTEX),
            true,
            waits(|| {
                drop(MUTEX.try_lock_for(Duration::from_secs(1_000_000)));
            }),
        ),
    ];
    let lines: Vec<_> = (told.iter())
        .map(|(kind, at, timed, (lwp, word))| {
            format!(
                "{{\"lwp\":{lwp},\"kind\":\"{kind}\",\"address\":\"{at:#x}\",\"word\":\"{word}\",\"timed\":{timed}}}"
            )
        })
        .collect();
    println!("{{\"waiters\":[{}]}}\nready", lines.join(","));
    std::io::stdout().flush().unwrap();
    while std::io::stdin().read(&mut [0]).is_ok_and(|length| length > 0) {}
    std::process::exit(0);
}

/// A parked thread is told as one, by the word it sleeps on or, better, by the lock it waits for.
fn parked_threads() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("TG_PARKING_LOT_FIXTURE", "1");
    let fixture = Fixture::command(command).settled();
    let snapshot = Tool::new(env!("CARGO_BIN_EXE_tglass")).look("locks", &fixture.pid().to_string(), &["--all"]);
    let told = fixture.truth()["waiters"].as_array().unwrap();
    assert_eq!(told.len(), 5);
    for told in told {
        let wait = &thread(&snapshot, told["lwp"].as_i64().unwrap())["waits_for"];
        let is_word = wait["kind"] == "park" && wait["address"] == told["word"];
        let is_lock = (wait["kind"] == "park" || wait["kind"] == told["kind"]) && wait["address"] == told["address"];
        assert!(is_word || is_lock, "{told} waits for {wait}");
        assert_eq!(wait["timed"], told["timed"], "{told} waits for {wait}");
        let objects = snapshot["objects"].as_array().unwrap();
        let object = objects.iter().find(|object| object["address"] == wait["address"]).unwrap();
        assert_eq!(object["family"], "parking_lot", "{object:#}");
        // The lock does not say who holds it.
        for holder in object["holders"].as_array().unwrap() {
            assert!(holder["evidence"] == "inferred" || holder["lwp"] == fixture.pid(), "{object:#}");
        }
    }
    let waiting = threads(&snapshot).iter().filter(|thread| !thread["waits_for"].is_null()).count();
    assert_eq!(waiting, told.len(), "{snapshot:#}");
}

fn main() {
    if std::env::var_os("TG_PARKING_LOT_FIXTURE").is_some() {
        return fixture();
    }
    // What the harness would do with `--list` and a filter.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_chosen = words.is_empty() || words.iter().any(|word| "parked_threads".contains(word.as_str()));
    if std::env::args().any(|word| word == "--list") {
        println!("parked_threads: test");
    } else if is_chosen {
        parked_threads();
        println!("test parked_threads ... ok");
    }
}

//! Looks at a process whose threads come and go without pause: never a wrong pair, and never a
//! missing thread that was there all the time.

use testkit::{Build, Fixture, Log, Variant, address, eventually, task_state};
use threadglass::look::{Names, Scope, look};
use threadglass::model::ThreadState;
use threadglass::target::Live;
use threadglass::{Lwp, Pid};

/// Looks, in all.
const LOOKS: usize = 2000;
/// Looks through one handle before a new one is made: both ways must hold.
const PER_HANDLE: usize = 25;

#[test]
fn no_look_pairs_a_thread_with_anothers_lwp() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let program = Build::new("churn.c").variant(Variant::Default).path();
    let fixture = Fixture::start(&program, &[path.to_str().unwrap()]);
    let mut log = Log::open(&path);
    let idle: Vec<(u64, Lwp)> = fixture.truth()["idle"]
        .as_array()
        .unwrap()
        .iter()
        .map(|thread| (address(&thread["id"]), Lwp(thread["lwp"].as_i64().unwrap() as i32)))
        .collect();

    eventually("the idle threads should sleep", || {
        idle.iter().all(|(_, lwp)| task_state(fixture.pid(), lwp.0).is_some_and(|task| task.letter == 'S'))
    });
    let (mut pairs, mut unpaired, mut zombies) = (0, 0, 0);
    // A machine that is busy with others lets fewer threads live meanwhile: then there are more looks.
    for round in 0..10 * LOOKS / PER_HANDLE {
        if round * PER_HANDLE >= LOOKS && log.mark() > 1000 {
            break;
        }
        let live = Live::open(Pid(fixture.pid())).unwrap();
        for again in 0..PER_HANDLE {
            let mark = log.mark();
            let snapshot = look(&live, Scope::Threads, Names::None).unwrap();
            let which = round * PER_HANDLE + again;
            for (id, lwp) in &idle {
                let thread = snapshot.threads.iter().find(|thread| thread.lwp == Some(*lwp));
                let thread = thread.unwrap_or_else(|| panic!("look {which}: {lwp}, which never moved, is missing"));
                assert_eq!(thread.id.map(|id| id.0.0), Some(*id), "look {which}: {lwp}, which never moved");
                assert_eq!(thread.state, ThreadState::Sleep, "look {which}: {lwp} always sleeps");
            }
            for thread in &snapshot.threads {
                let (Some(id), Some(lwp)) = (thread.id, thread.lwp) else {
                    *(if thread.lwp.is_some() { &mut unpaired } else { &mut zombies }) += 1;
                    continue;
                };
                pairs += 1;
                let start = thread.start.map_or(0, |start| start.0);
                let entry = log.find(&id.0.to_string().into(), &lwp.0.into(), start, mark);
                assert!(entry.is_some(), "look {which}: {id} was never {lwp}, or did not start there: {thread:#?}");
            }
        }
    }
    eprintln!(
        "{LOOKS} looks, {} threads lived, {pairs} pairs, {unpaired} without an id, {zombies} zombies",
        log.mark()
    );
    assert!(log.mark() > 1000, "the threads of the fixture should come and go");
}

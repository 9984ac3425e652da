//! Where the memory of an injection is: always at one of the same few addresses.
//!
//! A tool can be killed after the program has mapped that memory and before there is a thread that would give it back;
//! and a thread that cannot make another one leaves the page of code that it runs in. At an address that is known, the
//! next tool finds what was left, and has the program map it anew in its place. So it does not grow with every try.

use super::room::Room;
use crate::memory::Memory;
use crate::proc::{KernelState, MapEntry, parse_maps, parse_stat};
use crate::sys::robust::robust_head;
use crate::sys::task::status_of;
use crate::target::{KernelFacts, Live, SchedCounters};
use crate::{Lwp, RemoteAddr};
use std::time::{Duration, Instant};

/// Far from where the kernel, the heap and programs without a base of their own put anything.
const FIRST: u64 = 0x2074_6700_0000;
/// More than the memory of an injection can be.
const STRIDE: u64 = 1 << 28;
const COUNT: u64 = 4;

/// What an injection has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leftover {
    pub(super) start: RemoteAddr,
    pub(super) size: u64,
    /// Whose it was; `None` if nothing but its code is left.
    nonce: Option<u64>,
}

/// Those of the addresses at which nothing is that is not ours, and how many bytes an injection has left there.
fn places(maps: &[MapEntry]) -> impl Iterator<Item = (RemoteAddr, u64)> {
    (0..COUNT).filter_map(|n| look(maps, RemoteAddr(FIRST + n * STRIDE)))
}

/// Those that are free.
pub(super) fn free(maps: &[MapEntry]) -> impl Iterator<Item = RemoteAddr> {
    places(maps).filter(|(_, left)| *left == 0).map(|(start, _)| start)
}

impl Leftover {
    fn read(live: &Live, maps: &[MapEntry]) -> Option<Self> {
        // A thread that has begun gives it back itself.
        let has_begun = |start| live.read_u32(Room::mail(start)).is_ok_and(|state| state != 0);
        let (start, size) = places(maps).find(|(start, left)| *left != 0 && !has_begun(*start))?;
        Some(Self { start, size, nonce: live.read_u64(Room::nonce(start)).ok() })
    }

    /// What is there, if nobody uses it. The thread of an injection that goes on would: one that the C library does not
    /// know, and which has no list of robust mutexes, as all others have but when they begin or end. And one that a tool
    /// has left may be about to.
    pub(super) fn find(live: &Live) -> Option<Self> {
        let found = Self::read(live, &maps_now(live)?)?;
        let begun = Instant::now();
        // Threads that are born later are not those of a tool that has gone.
        let mut suspects: Vec<_> = live.lwps().ok()?.into_iter().map(|lwp| (lwp, live.sched_counters(lwp))).collect();
        loop {
            suspects.retain(|(lwp, before)| may_use_it(live, *lwp, *before));
            if suspects.is_empty() {
                return Some(found);
            }
            if begun.elapsed() > PATIENCE {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether it is still what was found, now that we have stopped `victim`: nobody else has taken it, or is about to.
    /// Another tool that has a thread by now sees ours, too, and both leave it alone.
    pub(super) fn is_still_there(&self, live: &Live, victim: Lwp) -> bool {
        let is_untraced =
            |lwp: Lwp| lwp == victim || status_of(live.pid(), lwp).is_none_or(|status| status.tracer == 0);
        let is_ours_alone = || live.lwps().is_ok_and(|lwps| lwps.into_iter().all(is_untraced));
        is_ours_alone() && maps_now(live).and_then(|maps| Self::read(live, &maps)) == Some(*self)
    }
}

/// Whether a thread may be, or come to be, in the memory of an injection. `before` are its counters when that was found.
fn may_use_it(live: &Live, lwp: Lwp, before: Option<SchedCounters>) -> bool {
    // Threads that work for io_uring and its like, inside the kernel only.
    const WORKER: u64 = 0x10 | 0x4000;
    let text = std::fs::read(format!("/proc/{}/task/{lwp}/stat", live.pid())).unwrap_or_default();
    let Some(stat) = parse_stat(&text).filter(|stat| stat.flags & WORKER == 0) else { return false };
    // A tool that is killed lets its thread go with the call that it was to make, which maps this memory or begins a
    // thread in it, still to be made: until that thread has run. If it sleeps, it has.
    let has_run = match stat.state {
        KernelState::Zombie | KernelState::Dead => return false,
        KernelState::Sleeping | KernelState::DiskSleep => true,
        _ => before.is_some() && live.sched_counters(lwp).map(|now| now.run_ns) != before.map(|then| then.run_ns),
    };
    !has_run || robust_head(lwp).is_none()
}

/// How long a thread takes to begin, to end, or to get a CPU.
const PATIENCE: Duration = Duration::from_millis(50);

/// The maps of the process, read anew.
fn maps_now(live: &Live) -> Option<Vec<MapEntry>> {
    let text = std::fs::read(format!("/proc/{}/task/{}/maps", live.pid(), live.witness())).ok()?;
    Some(parse_maps(&text).0)
}

fn look(maps: &[MapEntry], start: RemoteAddr) -> Option<(RemoteAddr, u64)> {
    let mut here = maps.iter().filter(|map| map.end > start && map.start.0 < start.0 + STRIDE).peekable();
    let Some(first) = here.peek() else { return Some((start, 0)) };
    // Its code comes first. It is never writable and executable at once.
    if first.start != start || !first.exec {
        return None;
    }
    let mut end = start;
    for map in here {
        let is_ours = map.start == end
            && map.end.0 <= start.0 + STRIDE
            && !map.is_file()
            && !map.shared
            && !(map.exec && map.write);
        if !is_ours {
            return None;
        }
        end = map.end;
    }
    Some((start, end.0 - start.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(text: &str) -> Option<(RemoteAddr, u64)> {
        let text = format!("{text}7f0000000000-7f0000001000 r-xp 00000000 08:01 5 /lib/x.so\n");
        places(&parse_maps(text.as_bytes()).0).next()
    }

    #[test]
    fn what_was_left_is_told_from_what_is_not_ours() {
        let first = RemoteAddr(FIRST);
        assert_eq!(find_in(""), Some((first, 0)));
        assert_eq!(find_in("207467000000-207467001000 r-xp 00000000 00:00 0 \n"), Some((first, 4096)));
        let two =
            "207467000000-207467001000 r-xp 00000000 00:00 0 \n207467001000-207467040000 rw-p 00000000 00:00 0 \n";
        assert_eq!(find_in(two), Some((first, 0x40000)));
        let second = RemoteAddr(FIRST + STRIDE);
        for other in [
            "207467000000-207467001000 r-xp 00000000 08:01 7 /tmp/file\n",
            "207467000000-207467001000 r-xs 00000000 00:00 0 \n",
            "207467000000-207467001000 rwxp 00000000 00:00 0 \n",
            "207467000000-207467001000 rw-p 00000000 00:00 0 \n",
            "207467001000-207467002000 r-xp 00000000 00:00 0 \n",
            "207466fff000-207467002000 r-xp 00000000 00:00 0 \n",
            "207467000000-207467001000 r-xp 00000000 00:00 0 \n207467002000-207467003000 rw-p 00000000 00:00 0 \n",
        ] {
            assert_eq!(find_in(other), Some((second, 0)), "{other}");
        }
    }
}

//! Where the memory of an injection is: always at one of the same few addresses.
//!
//! A tool can be killed after the program has mapped that memory and before there is a thread that would give it back;
//! and a thread that cannot make another one leaves the page of code that it runs in. At an address that is known, the
//! next tool finds what was left, and has the program map it anew in its place. So it does not grow with every try.

use crate::proc::MapEntry;
use crate::{Lwp, RemoteAddr};
use std::collections::HashSet;

/// Far from where the kernel, the heap and programs without a base of their own put anything.
const FIRST: u64 = 0x2074_6700_0000;
/// More than the memory of an injection can be.
const STRIDE: u64 = 1 << 28;
const COUNT: u64 = 4;

/// One of the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing is there.
    Free(RemoteAddr),
    /// What an injection has left behind, and how long it is.
    Left(RemoteAddr, u64),
}

/// The first address at which something was left behind, or else the first that is free; `None` if other things are at
/// all of them.
pub(super) fn find(maps: &[MapEntry]) -> Option<Place> {
    let places = (0..COUNT).map(|n| RemoteAddr(FIRST + n * STRIDE));
    let seen: Vec<Place> = places.filter_map(|start| look(maps, start)).collect();
    let left = seen.iter().find(|place| matches!(place, Place::Left(..)));
    left.or(seen.first()).copied()
}

/// The first that is free.
pub(super) fn find_free(maps: &[MapEntry]) -> Option<Place> {
    let places = (0..COUNT).map(|n| RemoteAddr(FIRST + n * STRIDE));
    places.filter_map(|start| look(maps, start)).find(|place| matches!(place, Place::Free(_)))
}

fn look(maps: &[MapEntry], start: RemoteAddr) -> Option<Place> {
    let mut here = maps.iter().filter(|map| map.end > start && map.start.0 < start.0 + STRIDE).peekable();
    let Some(first) = here.peek() else { return Some(Place::Free(start)) };
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
    Some(Place::Left(start, end.0 - start.0))
}

/// Whether nobody can be using what was left: of the threads of the process, none is traced but `victim`, which we
/// have, and all are `known` to its C library. A thread of an injection that goes on is not, before it has made a real one.
pub(super) fn is_abandoned(tasks: &[(Lwp, i32)], victim: Lwp, known: &HashSet<Lwp>) -> bool {
    tasks.iter().all(|(lwp, tracer)| known.contains(lwp) && (*tracer == 0 || *lwp == victim))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::parse_maps;

    fn find_in(text: &str) -> Option<Place> {
        let text = format!("{text}7f0000000000-7f0000001000 r-xp 00000000 08:01 5 /lib/x.so\n");
        find(&parse_maps(text.as_bytes()).0)
    }

    #[test]
    fn what_was_left_is_told_from_what_is_not_ours() {
        let first = RemoteAddr(FIRST);
        assert_eq!(find_in(""), Some(Place::Free(first)));
        assert_eq!(find_in("207467000000-207467001000 r-xp 00000000 00:00 0 \n"), Some(Place::Left(first, 4096)));
        let two =
            "207467000000-207467001000 r-xp 00000000 00:00 0 \n207467001000-207467040000 rw-p 00000000 00:00 0 \n";
        assert_eq!(find_in(two), Some(Place::Left(first, 0x40000)));
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
            assert_eq!(find_in(other), Some(Place::Free(second)), "{other}");
        }
    }

    #[test]
    fn what_somebody_may_use_is_not_taken() {
        let known: HashSet<Lwp> = [Lwp(1), Lwp(2)].into();
        assert!(is_abandoned(&[(Lwp(1), 99), (Lwp(2), 0)], Lwp(1), &known));
        assert!(!is_abandoned(&[(Lwp(1), 99), (Lwp(2), 98)], Lwp(1), &known), "another tool is at it");
        assert!(!is_abandoned(&[(Lwp(1), 99), (Lwp(2), 0), (Lwp(3), 0)], Lwp(1), &known), "a thread that nobody knows");
    }
}

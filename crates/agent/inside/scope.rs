//! Where the loader would find the functions that objects which look among their own first have not called yet: in
//! themselves and in all that they need.

use crate::got;
use crate::objects::{self, Info};
use core::ffi::{CStr, c_char};

/// Objects at most. What is beyond counts as a stranger.
const MOST: usize = 64 * 64;

#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Unknown,
    No,
    Yes,
}

/// Objects by their place in the loader's list, which stands still meanwhile; and what was found in them.
pub struct Scope {
    members: [u64; MOST / 64],
    is_known: bool,
    verdicts: [Verdict; got::HOOKS],
}

impl Scope {
    pub fn new() -> Self {
        Self { members: [0; MOST / 64], is_known: false, verdicts: [Verdict::Unknown; got::HOOKS] }
    }

    /// Whether the loader would find the function that we lead on to, for certain, in the objects that `is_new` names
    /// and those that they need.
    pub fn finds(&mut self, number: usize, is_new: impl FnMut(&Info) -> bool) -> bool {
        if !self.is_known {
            self.fill(is_new);
            self.is_known = true;
        }
        if self.verdicts[number] == Verdict::Unknown {
            let (mut has_ours, mut has_other) = (false, false);
            self.for_each(|_, info| match info.function(got::name(number)) {
                0 => {}
                found if got::is_real(number, found) => has_ours = true,
                _ => has_other = true,
            });
            self.verdicts[number] = if has_ours && !has_other { Verdict::Yes } else { Verdict::No };
        }
        self.verdicts[number] == Verdict::Yes
    }

    fn for_each(&self, mut act: impl FnMut(usize, &Info)) {
        let mut place = 0;
        objects::for_each(|info| {
            if place < MOST && self.members[place / 64] & 1 << (place % 64) != 0 {
                act(place, info);
            }
            place += 1;
        });
    }

    /// Takes in the objects for which `is_one` holds; whether any were not in.
    fn add(&mut self, mut is_one: impl FnMut(&Info) -> bool) -> bool {
        let (mut place, mut has_grown) = (0, false);
        objects::for_each(|info| {
            if is_one(info) && place < MOST {
                let (word, bit) = (&mut self.members[place / 64], 1 << (place % 64));
                has_grown |= *word & bit == 0;
                *word |= bit;
            }
            place += 1;
        });
        has_grown
    }

    fn fill(&mut self, is_new: impl FnMut(&Info) -> bool) {
        const NEEDED: i64 = 1;
        let mut done = [0_u64; MOST / 64];
        let mut has_grown = self.add(is_new);
        while has_grown {
            has_grown = false;
            let mut next = Self { members: self.members, is_known: false, verdicts: self.verdicts };
            self.for_each(|place, info| {
                let (word, bit) = (&mut done[place / 64], 1 << (place % 64));
                if *word & bit != 0 {
                    return;
                }
                *word |= bit;
                for (_, offset) in info.entries().filter(|(tag, _)| *tag == NEEDED) {
                    // SAFETY: a string of the object, ended by a zero.
                    has_grown |= next.add(|other| unsafe { is_called(other, info.string(offset)) });
                }
            });
            self.members = next.members;
        }
    }
}

/// Whether an object is what another one needs under that name.
unsafe fn is_called(info: &Info, needed: *const c_char) -> bool {
    const SONAME: i64 = 14;
    // SAFETY: by the caller's promise, and the loader's own strings.
    unsafe {
        let needed = CStr::from_ptr(needed);
        let soname = info.entries().find(|(tag, _)| *tag == SONAME).map(|(_, offset)| info.string(offset));
        if soname.is_some_and(|soname| CStr::from_ptr(soname) == needed) {
            return true;
        }
        let path = if info.name.is_null() { c"" } else { CStr::from_ptr(info.name) }.to_bytes();
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        !needed.is_empty() && (needed.to_bytes() == path || needed.to_bytes() == file)
    }
}

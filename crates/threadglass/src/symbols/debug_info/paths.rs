//! Which member of a variable an address is.

use super::locks::subscript;
use super::types::{Shape, TypeMember};
use super::{EntryAt, Query};

/// How deep members lie in one another.
const MAX_DEPTH: usize = 48;

impl Query<'_> {
    /// The innermost part of a value of the type `at` that holds its byte `offset`, as it is written behind a
    /// variable, and how far into that part it is. A lock is not looked into, and nobody is told what lies
    /// before it in parts that have no name of their own.
    pub(super) fn path_at(&mut self, at: EntryAt, offset: u64) -> (String, u64) {
        let (mut at, mut offset, mut path) = (at, offset, String::new());
        let mut into_named = offset;
        for _ in 0..MAX_DEPTH {
            match self.step(at, offset) {
                Some((part, inner, segment)) => {
                    path += &segment;
                    (at, offset) = (part, inner);
                    if !segment.is_empty() {
                        into_named = offset;
                    }
                }
                None => break,
            }
        }
        let is_lock = self.type_at(at).is_some_and(|found| self.lock_of(&found).is_some());
        (path, if is_lock { offset } else { into_named })
    }

    /// One step inwards: the part's type, the offset in it, and how it is written.
    fn step(&mut self, at: EntryAt, offset: u64) -> Option<(EntryAt, u64, String)> {
        let found = self.type_at(at)?;
        if self.lock_of(&found).is_some() {
            return None;
        }
        match &found.shape {
            Shape::Alias(next) => Some((*next, offset, String::new())),
            Shape::Array(element, counts) => {
                let size = self.size_of(*element).filter(|size| *size > 0)?;
                Some((*element, offset % size, subscript(offset / size, counts)))
            }
            Shape::Struct(members) => {
                // Empty bases and members share their place with others: the one with bytes there counts.
                let member = members.iter().find(|member| self.holds(member, offset))?;
                let segment = self.shown_members(&found).segment(member);
                Some((member.of, offset - member.offset, segment))
            }
            Shape::Union(members) => {
                let members = self.union_members(&found, members);
                // Only what is told apart by a lock in just that place.
                let mut with = members.into_iter().filter(|member| {
                    let inner = offset.checked_sub(member.offset);
                    inner.is_some_and(|inner| self.locks_in(member.of).iter().any(|lock| lock.offset == inner))
                });
                let (member, None) = (with.next()?, with.next()) else { return None };
                let segment = self.shown_members(&found).segment(member);
                Some((member.of, offset - member.offset, segment))
            }
            Shape::Pointer(_) | Shape::Plain => None,
        }
    }

    fn holds(&mut self, member: &TypeMember, offset: u64) -> bool {
        let Some(inner) = offset.checked_sub(member.offset) else { return false };
        self.size_of(member.of).is_some_and(|size| inner < size)
    }
}

//! Which types are locks, and where they lie in others.

use super::types::{Shape, Type, TypeMember};
use super::{EntryAt, Language, Query};
use crate::model::{Family, SyncKind};
use crate::symbols::library_by_name;
use std::sync::Arc;

/// Locks in one type beyond these are not listed.
const MAX_LOCKS: usize = 8192;
/// Elements of an array that are looked into.
const MAX_ELEMENTS: u64 = 4096;
/// Maximum length of a path through members.
const MAX_PATH: usize = 1024;
/// How deep structures are looked into.
const MAX_DEPTH: usize = 24;

/// A lock in a type.
#[derive(Clone, Debug)]
pub(in crate::symbols) struct LockMember {
    pub(in crate::symbols) offset: u64,
    pub(in crate::symbols) kind: SyncKind,
    pub(in crate::symbols) family: Family,
    /// The members that lead to it, as they are written behind a variable: `.shards[3].mu`.
    pub(in crate::symbols) path: String,
    /// Whether something else may be in the same place.
    pub(in crate::symbols) in_union: bool,
    /// The structures around it, the innermost first, and where they begin.
    pub(in crate::symbols) around: Vec<(EntryAt, u64)>,
}

/// Which members of a structure are shown; the others are its author's affair alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShownMembers {
    All,
    /// Those of C++'s library.
    NotUnderscored,
    /// Those of Rust's library, and of others that are built like it.
    None,
}

impl ShownMembers {
    /// What is written for a member.
    pub(super) fn segment(self, member: &TypeMember) -> String {
        let Some(name) = member.name.as_deref().filter(|_| !member.is_base) else { return String::new() };
        match self {
            Self::None => String::new(),
            Self::NotUnderscored if name.starts_with('_') => String::new(),
            // Rust's tuples.
            _ => match name.strip_prefix("__").filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())) {
                Some(number) if !number.is_empty() => format!(".{number}"),
                _ => format!(".{name}"),
            },
        }
    }
}

impl Query<'_> {
    /// The lock that the type is, if it is one; `found` is the type `at` itself, not what it stands for.
    pub(super) fn lock_of(&mut self, found: &Type) -> Option<(SyncKind, Family)> {
        let name = found.name.as_deref()?;
        match found.shape {
            Shape::Alias(_) => self.source.lock_types.alias(name),
            Shape::Struct(_) if found.language == Language::Rust => {
                self.source.lock_types.in_rust(name, &mut || self.qualified_name(found.at))
            }
            _ => None,
        }
    }

    /// Which members of a structure are shown.
    pub(super) fn shown_members(&mut self, found: &Type) -> ShownMembers {
        let Some(name) = found.name.as_ref().and_then(|_| self.qualified_name(found.at)) else {
            return ShownMembers::All;
        };
        match found.language {
            Language::Rust if library_by_name(&name).is_some() => ShownMembers::None,
            Language::Other if name.starts_with("std::") || name.starts_with("__gnu_cxx::") => {
                ShownMembers::NotUnderscored
            }
            _ => ShownMembers::All,
        }
    }

    /// The members of a union that are looked into: all, but of Rust's cells for values that come later only
    /// the value.
    pub(super) fn union_members<'t>(&mut self, found: &'t Type, members: &'t [TypeMember]) -> Vec<&'t TypeMember> {
        let later = found.language == Language::Rust
            && found.name.as_deref().is_some_and(|name| name.starts_with("MaybeUninit<") || name.starts_with("Data<"));
        members.iter().filter(|member| !later || member.name.as_deref() == Some("value")).collect()
    }

    /// All locks in the type `at`, by offset.
    pub(super) fn locks_in(&mut self, at: EntryAt) -> Arc<Vec<LockMember>> {
        if let Some(known) = self.decoded.locks.get(&at) {
            return known.clone();
        }
        if self.decoded.open.len() >= MAX_DEPTH || !self.decoded.open.insert(at) {
            return Arc::default();
        }
        let found = if self.is_exhausted() { None } else { self.find_locks(at) }.unwrap_or_default();
        self.decoded.open.remove(&at);
        let bytes = |lock: &LockMember| lock.path.len() + size_of_val(lock) + size_of_val(lock.around.as_slice());
        self.grow(found.iter().map(bytes).sum::<usize>());
        let found = Arc::new(found);
        // Below the greatest depth nothing is remembered: a shorter way may lead deeper.
        if self.decoded.open.len() < MAX_DEPTH / 2 {
            self.decoded.locks.insert(at, found.clone());
        }
        found
    }

    fn find_locks(&mut self, at: EntryAt) -> Option<Vec<LockMember>> {
        let found = self.type_at(at)?;
        if let Some((kind, family)) = self.lock_of(&found) {
            let path = String::new();
            return Some(vec![LockMember { offset: 0, kind, family, path, in_union: false, around: Vec::new() }]);
        }
        let mut locks = Vec::new();
        match &found.shape {
            Shape::Alias(next) => return Some(self.locks_in(*next).to_vec()),
            Shape::Pointer(_) | Shape::Plain => {}
            Shape::Array(element, counts) => {
                let inner = self.locks_in(*element);
                if inner.is_empty() {
                    return Some(locks);
                }
                let size = self.size_of(*element)?;
                let count = counts.iter().try_fold(1u64, |all, count| all.checked_mul(*count))?.min(MAX_ELEMENTS);
                for index in 0..count {
                    let subscript = subscript(index, counts);
                    append(&mut locks, &inner, index.checked_mul(size)?, &subscript);
                    if locks.len() >= MAX_LOCKS {
                        break;
                    }
                }
            }
            Shape::Struct(members) => {
                let mut shown = None;
                for member in members {
                    let inner = self.locks_in(member.of);
                    if !inner.is_empty() {
                        let shown = *shown.get_or_insert_with(|| self.shown_members(&found));
                        append(&mut locks, &inner, member.offset, &shown.segment(member));
                    }
                }
                locks.iter_mut().for_each(|lock| lock.around.push((found.at, 0)));
            }
            Shape::Union(members) => {
                // Where two members have locks, nobody can tell which of them is there.
                let members = self.union_members(&found, members);
                let with: Vec<_> = members.iter().map(|member| (member, self.locks_in(member.of))).collect();
                let mut with = with.iter().filter(|(_, inner)| !inner.is_empty());
                if let (Some((member, inner)), None) = (with.next(), with.next()) {
                    let segment = self.shown_members(&found).segment(member);
                    append(&mut locks, inner, member.offset, &segment);
                    locks.iter_mut().for_each(|lock| lock.in_union = true);
                }
            }
        }
        Some(locks)
    }
}

/// Adds the locks of a part that begins at `offset` and is written as `segment`.
fn append(locks: &mut Vec<LockMember>, inner: &[LockMember], offset: u64, segment: &str) {
    let room = MAX_LOCKS.saturating_sub(locks.len());
    let short = |lock: &&LockMember| lock.path.len() + segment.len() <= MAX_PATH;
    locks.extend(inner.iter().filter(short).take(room).filter_map(|lock| {
        let around = lock.around.iter().map(|(at, start)| Some((*at, start.checked_add(offset)?)));
        Some(LockMember {
            offset: lock.offset.checked_add(offset)?,
            path: format!("{segment}{}", lock.path),
            around: around.collect::<Option<_>>()?,
            ..lock.clone()
        })
    }));
}

/// How the element `index` of an array is written: `[1][2]`.
pub(super) fn subscript(index: u64, counts: &[u64]) -> String {
    let mut rest = index;
    let mut parts = Vec::new();
    for (dimension, count) in counts.iter().enumerate().rev() {
        let count = (*count).max(1);
        let number = if dimension == 0 { rest } else { rest % count };
        parts.push(format!("[{number}]"));
        rest /= count;
    }
    parts.reverse();
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::subscript;

    #[test]
    fn elements_are_written_as_in_the_source() {
        assert_eq!(subscript(3, &[8]), "[3]");
        assert_eq!(subscript(7, &[4, 3]), "[2][1]");
        assert_eq!(subscript(9, &[0]), "[9]");
    }
}

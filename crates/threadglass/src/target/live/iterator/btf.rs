//! The kernel's description of its own types (BTF), as far as offsets of members need it.
//!
//! There are more than 100,000 types and a handful is wanted, so nothing is built up. Names are
//! searched for in the string section, and then compared as numbers in the one walk over all
//! records. That walk also notes where every 64th record begins, so any type can be found by its
//! number with a short walk.
//!
//! All numbers are checked, and work is bounded whatever the bytes say; what does not fit gives
//! `None`.

use crate::memory::u32_at;
use memchr::memmem;

/// Records between two noted positions.
const STRIDE: usize = 64;
/// How deep anonymous members, arrays and typedefs may nest.
const MAX_DEPTH: u32 = 16;
/// How many members are looked at in one search. `task_struct` has some 300.
const MAX_MEMBERS: usize = 20_000;

/// The kinds of types that are told apart here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypeKind {
    Int,
    Pointer,
    Array,
    Struct,
    Enum,
    /// typedef, const, volatile, restrict, type tag: another type with something said about it.
    Modifier,
    Function,
    Prototype,
    /// Known to the format, not of use here.
    Other,
}

/// A number of a type. Zero is `void`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TypeId(pub(super) u32);

/// Where a member lies in its structure, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) offset: u32,
    pub(super) size: u32,
}

struct TypeRecord<'a> {
    kind: TypeKind,
    name: u32,
    /// In a structure: whether members tell the size of bit fields.
    has_bit_sizes: bool,
    /// Size in bytes or the number of another type, by kind.
    size_or_type: u32,
    /// What follows the fixed part.
    items: &'a [u8],
}

/// BTF, with positions noted.
pub(super) struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where the types 1, 65, 129 .. begin.
    marks: Vec<u32>,
    count: usize,
}

impl<'a> TypeRecord<'a> {
    /// The record at `at`, and where the next one begins.
    fn decode(types: &'a [u8], at: usize) -> Option<(Self, usize)> {
        let (name, info, size_or_type) = (u32_at(types, at)?, u32_at(types, at + 4)?, u32_at(types, at + 8)?);
        let count = (info & 0xffff) as usize;
        let (kind, tail) = match info >> 24 & 0x1f {
            1 => (TypeKind::Int, 4),
            2 => (TypeKind::Pointer, 0),
            3 => (TypeKind::Array, 12),
            4 | 5 => (TypeKind::Struct, count * 12),
            6 => (TypeKind::Enum, count * 8),
            8..=11 | 18 => (TypeKind::Modifier, 0),
            12 => (TypeKind::Function, 0),
            13 => (TypeKind::Prototype, count * 8),
            7 | 16 => (TypeKind::Other, 0),
            14 | 17 => (TypeKind::Other, 4),
            15 => (TypeKind::Other, count * 12),
            19 => (TypeKind::Enum, count * 12),
            // A newer format: how long the record is cannot be known.
            _ => return None,
        };
        let items = types.get(at + 12..at + 12 + tail)?;
        Some((Self { kind, name, has_bit_sizes: info >> 31 == 1, size_or_type, items }, at + 12 + tail))
    }

    /// The words of each item, `N` at a time.
    fn items<const N: usize>(&self) -> impl Iterator<Item = [u32; N]> + 'a {
        let items = self.items;
        items.chunks_exact(4 * N).map(|item| std::array::from_fn(|i| u32_at(item, 4 * i).unwrap_or(0)))
    }
}

impl<'a> Btf<'a> {
    /// Checks the frame, and finds the first type of each kind and name that is wanted: the kernel
    /// takes the first, too. `None` when one is missing.
    pub(super) fn parse<const N: usize>(bytes: &'a [u8], wanted: [(TypeKind, &str); N]) -> Option<(Self, [TypeId; N])> {
        // Magic and version.
        bytes.strip_prefix(&[0x9f, 0xeb, 1])?;
        let body = bytes.get(u32_at(bytes, 4)? as usize..)?;
        let section = |at: usize| {
            let (from, len) = (u32_at(bytes, at)? as usize, u32_at(bytes, at + 4)? as usize);
            body.get(from..from.checked_add(len)?)
        };
        let (types, strings) = (section(8)?, section(16)?);
        let mut names = [0; N];
        for (number, (_, name)) in names.iter_mut().zip(wanted) {
            let pattern = [b"\0", name.as_bytes(), b"\0"].concat();
            *number = u32::try_from(memmem::find(strings, &pattern)? + 1).ok()?;
        }
        let (mut found, mut missing) = ([None; N], N);
        let (mut marks, mut at, mut count) = (Vec::with_capacity(types.len() / (24 * STRIDE)), 0, 0);
        while at < types.len() {
            if count % STRIDE == 0 {
                marks.push(u32::try_from(at).ok()?);
            }
            let (record, next) = TypeRecord::decode(types, at)?;
            count += 1;
            if missing > 0 && names.contains(&record.name) {
                for i in 0..N {
                    if found[i].is_none() && record.name == names[i] && record.kind == wanted[i].0 {
                        found[i] = Some(TypeId(u32::try_from(count).ok()?));
                        missing -= 1;
                    }
                }
            }
            at = next;
        }
        if missing > 0 {
            return None;
        }
        Some((Self { types, strings, marks, count }, found.map(|id| id.unwrap_or(TypeId(0)))))
    }

    fn get(&self, id: TypeId) -> Option<TypeRecord<'a>> {
        let index = (id.0 as usize).checked_sub(1).filter(|index| *index < self.count)?;
        let mut at = *self.marks.get(index / STRIDE)? as usize;
        for _ in 0..index % STRIDE {
            at = TypeRecord::decode(self.types, at)?.1;
        }
        Some(TypeRecord::decode(self.types, at)?.0)
    }

    /// The type behind typedefs and qualifiers.
    fn strip(&self, mut id: TypeId) -> Option<(TypeId, TypeRecord<'a>)> {
        for _ in 0..MAX_DEPTH {
            let found = self.get(id)?;
            if found.kind != TypeKind::Modifier {
                return Some((id, found));
            }
            id = TypeId(found.size_or_type);
        }
        None
    }

    fn is_named(&self, name: u32, wanted: &str) -> bool {
        let rest = self.strings.get(name as usize..).and_then(|rest| rest.strip_prefix(wanted.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The structure that parameter number `index` of `function` points to.
    pub(super) fn parameter(&self, function: TypeId, index: usize) -> Option<TypeId> {
        let function = self.get(function).filter(|found| found.kind == TypeKind::Function)?;
        let prototype = self.get(TypeId(function.size_or_type)).filter(|found| found.kind == TypeKind::Prototype)?;
        let [_, parameter] = prototype.items::<2>().nth(index)?;
        self.pointee(TypeId(parameter))
    }

    /// The structure that `id` points to.
    fn pointee(&self, id: TypeId) -> Option<TypeId> {
        let (_, pointer) = self.strip(id).filter(|(_, found)| found.kind == TypeKind::Pointer)?;
        let (id, _) = self.strip(TypeId(pointer.size_or_type)).filter(|(_, found)| found.kind == TypeKind::Struct)?;
        Some(id)
    }

    /// Whether `id` is a structure (or union) of that name.
    pub(super) fn is_struct(&self, id: TypeId, name: &str) -> bool {
        self.get(id).is_some_and(|found| found.kind == TypeKind::Struct && self.is_named(found.name, name))
    }

    /// The member that `path` leads to from structure `root`: each name is looked for in the type of
    /// the one before it.
    pub(super) fn member(&self, root: TypeId, path: &[&str]) -> Option<Member> {
        let (mut offset, mut id) = (0u32, root);
        for name in path {
            let (at, member) = self.find_member(id, name, MAX_DEPTH, &mut MAX_MEMBERS.clone())?;
            offset = offset.checked_add(at)?;
            id = member;
        }
        Some(Member { offset, size: self.size(id, MAX_DEPTH)? })
    }

    /// Whether the member `name` of `root` is a pointer to `target`.
    pub(super) fn points_to(&self, root: TypeId, name: &str, target: TypeId) -> bool {
        let member = self.find_member(root, name, MAX_DEPTH, &mut MAX_MEMBERS.clone());
        member.is_some_and(|(_, id)| self.pointee(id) == Some(target))
    }

    /// Offset and type of a member of `id`, or of an anonymous structure or union inside it.
    fn find_member(&self, id: TypeId, name: &str, depth: u32, budget: &mut usize) -> Option<(u32, TypeId)> {
        let (_, parent) = self.strip(id).filter(|(_, found)| found.kind == TypeKind::Struct)?;
        let depth = depth.checked_sub(1)?;
        for [member_name, member, place] in parent.items::<3>() {
            *budget = budget.checked_sub(1)?;
            let (bits, bit_size) = if parent.has_bit_sizes { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            let is_whole = bits % 8 == 0 && bit_size == 0;
            if member_name != 0 {
                if self.is_named(member_name, name) {
                    return is_whole.then_some((bits / 8, TypeId(member)));
                }
            } else if is_whole && let Some((inner, found)) = self.find_member(TypeId(member), name, depth, budget) {
                return Some(((bits / 8).checked_add(inner)?, found));
            }
        }
        None
    }

    fn size(&self, id: TypeId, depth: u32) -> Option<u32> {
        let (_, found) = self.strip(id)?;
        match found.kind {
            TypeKind::Int | TypeKind::Enum | TypeKind::Struct => Some(found.size_or_type),
            TypeKind::Pointer => Some(8),
            TypeKind::Array => {
                let [element, _, count] = found.items::<3>().next()?;
                self.size(TypeId(element), depth.checked_sub(1)?)?.checked_mul(count)
            }
            TypeKind::Modifier | TypeKind::Function | TypeKind::Prototype | TypeKind::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Writes BTF. Numbers of types are given by their order, from 1.
    #[derive(Default)]
    struct Writer {
        types: Vec<u8>,
        strings: Vec<u8>,
    }

    impl Writer {
        fn name(&mut self, name: &str) -> u32 {
            if name.is_empty() {
                return 0;
            }
            let at = self.strings.len() as u32;
            self.strings.extend(name.bytes().chain([0]));
            at
        }

        fn put(&mut self, name: &str, kind: u32, items: u32, size_or_type: u32, words: &[u32]) {
            let name = self.name(name);
            for word in [name, kind << 24 | items, size_or_type].iter().chain(words) {
                self.types.extend(word.to_le_bytes());
            }
        }

        /// A structure; members by name, type and offset in bits.
        fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) {
            let words: Vec<_> = members.iter().flat_map(|(name, id, bits)| [self.name(name), *id, *bits]).collect();
            self.put(name, 4, members.len() as u32, size, &words);
        }

        fn finish(self) -> Vec<u8> {
            let mut bytes = vec![0x9f, 0xeb, 1, 0];
            let lengths = (self.types.len() as u32, self.strings.len() as u32);
            for word in [24, 0, lengths.0, lengths.0, lengths.1] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(self.types);
            bytes.extend(self.strings);
            bytes
        }
    }

    /// A kernel in miniature: `outer` holds a number, an anonymous structure with an array behind a
    /// typedef, a pointer to itself and a bit field; `run` takes a pointer to it.
    fn sample() -> Vec<u8> {
        let mut writer = Writer { strings: vec![0], ..Writer::default() };
        writer.put("int", 1, 0, 4, &[32]); // 1
        writer.put("", 3, 0, 0, &[1, 1, 3]); // 2: int[3]
        writer.put("triple", 8, 0, 2, &[]); // 3: typedef
        writer.structure("", 16, &[("inner", 3, 0), ("last", 1, 96)]); // 4
        writer.put("", 2, 0, 6, &[]); // 5: pointer to outer
        writer.structure("outer", 40, &[("first", 1, 0), ("", 4, 32), ("link", 5, 192), ("odd", 1, 257)]); // 6
        writer.put("", 13, 1, 1, &[0, 5]); // 7: prototype
        writer.put("run", 12, 1, 7, &[]); // 8
        for _ in 0..200 {
            writer.put("", 10, 0, 1, &[]);
        }
        writer.structure("user", 48, &[("count", 1, 0), ("of", 6, 64)]); // 209
        writer.finish()
    }

    const WANTED: [(TypeKind, &str); 2] = [(TypeKind::Function, "run"), (TypeKind::Struct, "user")];

    #[test]
    fn members_are_found_through_anonymous_and_named_structures() {
        let bytes = sample();
        let (btf, [function, user]) = Btf::parse(&bytes, WANTED).unwrap();
        assert_eq!((function, user), (TypeId(8), TypeId(209)));
        let outer = btf.parameter(function, 0).unwrap();
        assert!(btf.is_struct(outer, "outer") && !btf.is_struct(outer, "oute") && !btf.is_struct(outer, "outer2"));
        assert_eq!(btf.member(outer, &["first"]), Some(Member { offset: 0, size: 4 }));
        assert_eq!(btf.member(outer, &["inner"]), Some(Member { offset: 4, size: 12 }));
        assert_eq!(btf.member(outer, &["last"]), Some(Member { offset: 16, size: 4 }));
        assert_eq!(btf.member(user, &["of", "last"]), Some(Member { offset: 24, size: 4 }));
        assert_eq!(btf.member(outer, &["odd"]), None, "does not begin at a byte");
        assert_eq!(btf.member(outer, &["las"]), None);
        assert_eq!(btf.member(outer, &["first", "first"]), None);
        assert!(btf.points_to(outer, "link", outer) && !btf.points_to(outer, "first", outer));
        assert_eq!(btf.parameter(function, 1), None);
        assert_eq!(btf.parameter(outer, 0), None);
        assert!(Btf::parse(&bytes, [(TypeKind::Struct, "run")]).is_none(), "of another kind");
        assert!(Btf::parse(&bytes, [(TypeKind::Struct, "none")]).is_none());
    }

    #[test]
    fn types_that_contain_themselves_come_to_an_end() {
        let mut writer = Writer { strings: vec![0], ..Writer::default() };
        // Each anonymous member is the structure itself: without a limit, the search would double
        // with every level.
        writer.structure("loop", 8, &[("", 1, 0), ("", 1, 0), ("", 2, 0), ("", 1, 0)]);
        writer.put("", 8, 0, 2, &[]);
        writer.put("", 3, 0, 0, &[3, 3, 2]);
        let bytes = writer.finish();
        let (btf, [id]) = Btf::parse(&bytes, [(TypeKind::Struct, "loop")]).unwrap();
        assert_eq!(btf.member(id, &["nothing"]), None);
        assert_eq!(btf.size(TypeId(2), MAX_DEPTH), None);
        assert_eq!(btf.size(TypeId(3), MAX_DEPTH), None);
    }

    proptest! {
        #[test]
        fn damaged_bytes_never_panic(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
                                     cut in any::<prop::sample::Index>(), is_cut in any::<bool>()) {
            let mut bytes = sample();
            // Most types are fillers: the damage goes to the rest.
            let interesting: Vec<usize> = (0..500).chain(bytes.len() - 120..bytes.len()).collect();
            for (at, byte) in damage {
                bytes[*at.get(&interesting)] = byte;
            }
            if is_cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Some((btf, [function, user])) = Btf::parse(&bytes, WANTED) {
                let _ = btf.member(user, &["of", "last"]);
                let _ = btf.member(user, &["count"]);
                if let Some(outer) = btf.parameter(function, 0) {
                    let _ = btf.points_to(outer, "link", outer);
                }
            }
        }
    }
}

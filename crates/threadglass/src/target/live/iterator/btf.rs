//! The kernel's description of its own types (BTF), as far as offsets of members need it.
//!
//! There are more than 100,000 types and a handful is wanted, so nothing is built up: one walk over
//! the records notes where every 64th begins, which finds any type by its number with a short walk.
//! A name is found by searching the string section for it, and then comparing numbers.
//!
//! All numbers are checked, and work is bounded whatever the bytes say; what does not fit gives
//! `None`.

use memchr::memmem;

/// Records between two noted positions.
const STRIDE: usize = 64;
/// How deep anonymous members, arrays and typedefs may nest.
const MAX_DEPTH: u32 = 16;
/// How many members are looked at in one search. `task_struct` has some 300.
const MAX_MEMBERS: usize = 20_000;

/// The kinds of types that are told apart here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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

struct Type<'a> {
    kind: Kind,
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

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

impl<'a> Type<'a> {
    /// The record at `at`, and where the next one begins.
    fn decode(types: &'a [u8], at: usize) -> Option<(Self, usize)> {
        let (name, info, size_or_type) = (u32_at(types, at)?, u32_at(types, at + 4)?, u32_at(types, at + 8)?);
        let count = (info & 0xffff) as usize;
        let (kind, tail) = match info >> 24 & 0x1f {
            1 => (Kind::Int, 4),
            2 => (Kind::Pointer, 0),
            3 => (Kind::Array, 12),
            4 | 5 => (Kind::Struct, count * 12),
            6 => (Kind::Enum, count * 8),
            8..=11 | 18 => (Kind::Modifier, 0),
            12 => (Kind::Function, 0),
            13 => (Kind::Prototype, count * 8),
            7 => (Kind::Other, 0),
            14 | 17 => (Kind::Other, 4),
            15 => (Kind::Other, count * 12),
            16 => (Kind::Other, 0),
            19 => (Kind::Enum, count * 12),
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
    /// Checks the frame and notes where types begin.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let magic_and_version = bytes.get(..3)?;
        if magic_and_version != [0x9f, 0xeb, 1] {
            return None;
        }
        let body = bytes.get(u32_at(bytes, 4)? as usize..)?;
        let section = |at: usize| {
            let (from, len) = (u32_at(bytes, at)? as usize, u32_at(bytes, at + 4)? as usize);
            body.get(from..from.checked_add(len)?)
        };
        let (types, strings) = (section(8)?, section(16)?);
        let (mut marks, mut at, mut count) = (Vec::with_capacity(types.len() / (24 * STRIDE)), 0, 0);
        while at < types.len() {
            if count % STRIDE == 0 {
                marks.push(u32::try_from(at).ok()?);
            }
            at = Type::decode(types, at)?.1;
            count += 1;
        }
        Some(Self { types, strings, marks, count })
    }

    fn get(&self, id: TypeId) -> Option<Type<'a>> {
        let index = (id.0 as usize).checked_sub(1).filter(|index| *index < self.count)?;
        let mut at = *self.marks.get(index / STRIDE)? as usize;
        for _ in 0..index % STRIDE {
            at = Type::decode(self.types, at)?.1;
        }
        Some(Type::decode(self.types, at)?.0)
    }

    /// The type behind typedefs and qualifiers.
    fn strip(&self, mut id: TypeId) -> Option<(TypeId, Type<'a>)> {
        for _ in 0..MAX_DEPTH {
            let found = self.get(id)?;
            if found.kind != Kind::Modifier {
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

    /// The first type of that kind and name, which is the one the kernel takes too.
    pub(super) fn find(&self, kind: Kind, name: &str) -> Option<TypeId> {
        let pattern = [b"\0", name.as_bytes(), b"\0"].concat();
        let wanted = u32::try_from(memmem::find(self.strings, &pattern)? + 1).ok()?;
        let (mut at, mut id) = (0, 0);
        while at < self.types.len() {
            let (found, next) = Type::decode(self.types, at)?;
            id += 1;
            if found.name == wanted && found.kind == kind {
                return Some(TypeId(id));
            }
            at = next;
        }
        None
    }

    /// The structure that parameter number `index` of `function` points to.
    pub(super) fn parameter(&self, function: TypeId, index: usize) -> Option<TypeId> {
        let function = self.get(function).filter(|found| found.kind == Kind::Function)?;
        let prototype = self.get(TypeId(function.size_or_type)).filter(|found| found.kind == Kind::Prototype)?;
        let [_, parameter] = prototype.items::<2>().nth(index)?;
        self.pointee(TypeId(parameter))
    }

    /// The structure that `id` points to.
    fn pointee(&self, id: TypeId) -> Option<TypeId> {
        let (_, pointer) = self.strip(id).filter(|(_, found)| found.kind == Kind::Pointer)?;
        let (id, _) = self.strip(TypeId(pointer.size_or_type)).filter(|(_, found)| found.kind == Kind::Struct)?;
        Some(id)
    }

    /// Whether `id` is a structure (or union) of that name.
    pub(super) fn is_struct(&self, id: TypeId, name: &str) -> bool {
        self.get(id).is_some_and(|found| found.kind == Kind::Struct && self.is_named(found.name, name))
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
        let (_, parent) = self.strip(id).filter(|(_, found)| found.kind == Kind::Struct)?;
        let depth = depth.checked_sub(1)?;
        for [member_name, member, place] in parent.items::<3>() {
            *budget = budget.checked_sub(1)?;
            let (bits, bit_size) = if parent.has_bit_sizes { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            let anonymous = member_name == 0;
            if !anonymous && !self.is_named(member_name, name) {
                continue;
            }
            if bits % 8 != 0 || bit_size != 0 {
                match anonymous {
                    true => continue,
                    false => return None,
                }
            }
            if !anonymous {
                return Some((bits / 8, TypeId(member)));
            }
            if let Some((inner, found)) = self.find_member(TypeId(member), name, depth, budget) {
                return Some(((bits / 8).checked_add(inner)?, found));
            }
        }
        None
    }

    fn size(&self, id: TypeId, depth: u32) -> Option<u32> {
        let (_, found) = self.strip(id)?;
        match found.kind {
            Kind::Int | Kind::Enum | Kind::Struct => Some(found.size_or_type),
            Kind::Pointer => Some(8),
            Kind::Array => {
                let [element, _, count] = found.items::<3>().next()?;
                self.size(TypeId(element), depth.checked_sub(1)?)?.checked_mul(count)
            }
            Kind::Modifier | Kind::Function | Kind::Prototype | Kind::Other => None,
        }
    }
}

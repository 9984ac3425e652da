//! What libjvm says of its own structures: a table of their members, which it exports for debuggers.

use crate::RemoteAddr;
use crate::memory::{Memory, read_each, u32_at, u64_at};
use std::collections::{BTreeSet, HashMap};

/// One entry: names of the type, the member and the member's type, whether that is static, and where it is.
const ENTRY: usize = 48;
const NAME: usize = 8;
const IS_STATIC: usize = 24;
const OFFSET: usize = 32;
const ADDRESS: usize = 40;
/// Entries that are read. HotSpot 17 has 801.
const MAX_ENTRIES: usize = 4096;
/// Bytes of a name that are compared.
const MAX_NAME: usize = 40;

/// Types whose members are of interest.
const TYPES: [&str; 7] =
    ["Abstract_VM_Version", "JavaThread", "OSThread", "ObjectMonitor", "Thread", "ThreadsList", "ThreadsSMRSupport"];

/// Members by their names: of static ones the address, of others the offset.
#[derive(Debug, Default)]
pub(super) struct VmStructs(HashMap<(String, String), u64>);

impl VmStructs {
    /// The table that the variable at `pointer` leads to.
    pub(super) fn read(memory: &dyn Memory, pointer: RemoteAddr) -> Option<Self> {
        let table = memory.read_addr(pointer).ok()?;
        let bytes = memory.read_up_to(table, MAX_ENTRIES * ENTRY).ok()?;
        let entries = bytes.chunks_exact(ENTRY).take_while(|entry| u64_at(entry, 0) != Some(0));
        let entries: Vec<&[u8]> = entries.collect();
        let types = names(memory, entries.iter().filter_map(|entry| u64_at(entry, 0)));
        let is_of_interest =
            |entry: &&&[u8]| u64_at(entry, 0).is_some_and(|at| types.get(&at).is_some_and(|it| TYPES.contains(&&**it)));
        let entries: Vec<&[u8]> = entries.iter().filter(is_of_interest).copied().collect();
        let members = names(memory, entries.iter().filter_map(|entry| u64_at(entry, NAME)));
        let member = |entry: &&[u8]| {
            let at = if u32_at(entry, IS_STATIC)? != 0 { ADDRESS } else { OFFSET };
            let (class, name) = (types.get(&u64_at(entry, 0)?)?, members.get(&u64_at(entry, NAME)?)?);
            Some(((class.clone(), name.clone()), u64_at(entry, at)?))
        };
        Some(Self(entries.iter().filter_map(member).collect()))
    }

    /// The member `name` of one of `types`: versions have moved some from one to another.
    pub(super) fn get(&self, types: &[&str], name: &str) -> Option<u64> {
        types.iter().find_map(|class| self.0.get(&((*class).to_owned(), name.to_owned())).copied())
    }
}

/// The names that begin at `places`.
fn names(memory: &dyn Memory, places: impl Iterator<Item = u64>) -> HashMap<u64, String> {
    let places: Vec<u64> = places.collect::<BTreeSet<u64>>().into_iter().collect();
    let read = read_each(memory, places.iter().map(|place| (RemoteAddr(*place), MAX_NAME)));
    let name = |bytes: Vec<u8>| {
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    };
    places.into_iter().zip(read).filter_map(|(place, bytes)| Some((place, name(bytes)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    const TABLE: u64 = 0x2000;
    const NAMES: u64 = 0x3000;

    fn entry(class: u64, name: u64, is_static: u64, offset: u64, address: u64) -> Vec<u8> {
        [class, name, NAMES, is_static, offset, address].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn memory(entries: &[Vec<u8>]) -> Bytes {
        let mut memory = Bytes::default();
        memory.map(RemoteAddr(0x1000), TABLE.to_le_bytes().to_vec());
        memory.map(RemoteAddr(TABLE), entries.concat());
        memory.map(RemoteAddr(NAMES), b"Other\0JavaThread\0_osthread\0_list\0unended".to_vec());
        memory
    }

    #[test]
    fn members_by_name() {
        let (other, class, member, list) = (NAMES, NAMES + 6, NAMES + 17, NAMES + 27);
        let all = [
            entry(other, member, 0, 1, 2),
            entry(class, member, 0, 24, 0),
            entry(class, list, 1, 0, 0x7000),
            entry(0, 0, 0, 0, 0),
            entry(class, list, 1, 0, 0x8000),
        ];
        let members = VmStructs::read(&memory(&all), RemoteAddr(0x1000)).unwrap();
        assert_eq!(members.get(&["Thread", "JavaThread"], "_osthread"), Some(24));
        assert_eq!(members.get(&["JavaThread"], "_list"), Some(0x7000), "behind the end is nothing");
        assert_eq!(members.get(&["Other"], "_osthread"), None);
    }

    #[test]
    fn tables_that_lie() {
        let bad = [entry(NAMES + 33, NAMES, 0, 1, 2), entry(u64::MAX, 7, 9, u64::MAX, 1), vec![1; 40]];
        let members = VmStructs::read(&memory(&bad), RemoteAddr(0x1000)).unwrap();
        assert_eq!(members.get(&["JavaThread"], "_osthread"), None);
        assert!(VmStructs::read(&memory(&bad), RemoteAddr(0x9000)).is_none());
    }
}

//! The tables of functions that tokio has for each kind of task. They are known by their shape, so symbols are not needed.

use crate::RemoteAddr;
use crate::elf::Image;
use crate::memory::u64_at;
use crate::proc::{MapEntry, map_at};
use crate::symbols::Objects;
use crate::target::{Module, Target};
use std::collections::HashMap;

/// Bytes of all objects that are searched.
const MAX_SEARCHED: usize = 64 << 20;
/// Of a program whose linker did not mark what is read-only after it was relocated.
const MAX_UNMARKED: usize = 16 << 20;
/// Kinds of tasks in one program.
const MAX_VTABLES: usize = 1 << 16;
/// Functions that a table begins with.
const FUNCTIONS: usize = 7;
/// Words of a table: those, and where the trailer, the scheduler and the id of a task are.
const WORDS: usize = FUNCTIONS + 3;
/// The header of a task, which is before everything else.
const HEADER: u64 = 32;
/// A task with a larger future would not fit on any stack.
const MAX_TASK: u64 = 64 << 20;

/// What is in one of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vtable {
    /// The function that polls the task.
    pub(super) poll: RemoteAddr,
    /// Where its links and its waker begin.
    pub(super) trailer: u64,
    /// Where the pointer to its scheduler is, if that is one.
    pub(super) scheduler: u64,
    /// Where its id is.
    pub(super) id: u64,
}

/// All of a target, by address.
#[derive(Debug, Default)]
pub(super) struct Vtables(HashMap<u64, Vtable>);

impl Vtables {
    /// Searches the objects of a target.
    pub(super) fn find(objects: &Objects<'_>) -> Self {
        let target = objects.target;
        let (mut found, mut left) = (HashMap::new(), MAX_SEARCHED);
        for object in objects.all().iter().filter(|object| !object.module.library().is_runtime()) {
            let Some(image) = object.image() else { continue };
            for (start, length) in places(target, object.module, image) {
                let length = length.min(left);
                left -= length;
                let Ok(bytes) = target.read_up_to(start, length) else { continue };
                let is_code = |word: u64| {
                    let addr = RemoteAddr(word);
                    object.module.contains(addr) && map_at(target.maps(), addr).is_some_and(|map| map.exec)
                };
                found.extend(tables_in(start, &bytes, &is_code).take(MAX_VTABLES));
                if found.len() >= MAX_VTABLES || target.limits().is_over() {
                    return Self(found);
                }
            }
        }
        Self(found)
    }

    /// The given ones.
    #[cfg(any(test, feature = "internals"))]
    pub(super) fn of(tables: impl IntoIterator<Item = (u64, Vtable)>) -> Self {
        Self(tables.into_iter().collect())
    }

    pub(super) fn at(&self, addr: u64) -> Option<&Vtable> {
        self.0.get(&addr)
    }

    /// Whether there is one in `module`.
    pub(super) fn is_in(&self, module: &Module) -> bool {
        self.0.keys().any(|at| module.contains(RemoteAddr(*at)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Where tables may be: in what is read-only once it is relocated.
fn places(target: &dyn Target, module: &Module, image: &Image) -> Vec<(RemoteAddr, usize)> {
    if let Some((start, length)) = image.relocated_read_only() {
        return vec![(start, usize::try_from(length).unwrap_or(0))];
    }
    if !target.is_program(module) {
        return Vec::new();
    }
    let is_data = |map: &&MapEntry| map.read && !map.exec && module.contains(map.start) && map.is_file();
    let mut left = MAX_UNMARKED;
    let take = |map: &MapEntry| {
        let length = usize::try_from(map.end.0.saturating_sub(map.start.0)).unwrap_or(0).min(left);
        left -= length;
        (map.start, length)
    };
    target.maps().iter().filter(is_data).map(take).collect()
}

/// The tables in `bytes`, which are at `start`.
pub(super) fn tables_in<'b>(
    start: RemoteAddr,
    bytes: &'b [u8],
    is_code: &'b dyn Fn(u64) -> bool,
) -> impl Iterator<Item = (u64, Vtable)> + 'b {
    let word = |index: usize| u64_at(bytes, index * 8);
    let last = (bytes.len() / 8).saturating_sub(WORDS - 1);
    (0..last).filter_map(move |index| {
        // Sizes are looked at first: most words are neither.
        let (trailer, scheduler, id) = (word(index + 7)?, word(index + 8)?, word(index + 9)?);
        if !(HEADER..=128).contains(&scheduler) || !(scheduler..=scheduler + 64).contains(&id) {
            return None;
        }
        if trailer <= id || trailer >= MAX_TASK || (trailer | scheduler | id) % 8 != 0 {
            return None;
        }
        let functions = (index..index + FUNCTIONS).map(word).collect::<Option<Vec<u64>>>()?;
        let is_table = functions.iter().all(|function| is_code(*function));
        let poll = RemoteAddr(functions[0]);
        is_table.then_some((start.0.checked_add(index as u64 * 8)?, Vtable { poll, trailer, scheduler, id }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_table_is_seven_functions_and_three_places() {
        let is_code = |word| (0x1000..0x2000).contains(&word);
        let code = 0x1230;
        let table = [0, code, code, code, code, code, code, code, 0x130, 0x20, 0x28, 0];
        let found: Vec<_> = tables_in(RemoteAddr(0x8000), &bytes(&table), &is_code).collect();
        let vtable = Vtable { poll: RemoteAddr(code), trailer: 0x130, scheduler: 0x20, id: 0x28 };
        assert_eq!(found, [(0x8008, vtable)]);
        for (index, word) in [(3, 0x3000), (8, 0x20), (9, 0x18), (10, 0x100), (8, 0x131), (8, !7)] {
            let mut table = table;
            table[index] = word;
            assert_eq!(tables_in(RemoteAddr(0x8000), &bytes(&table), &is_code).count(), 0, "{index} {word:#x}");
        }
        assert_eq!(tables_in(RemoteAddr(0), &bytes(&table[..10]), &is_code).count(), 0, "cut");
    }
}

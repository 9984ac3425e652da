//! Functions of a symbol table by their addresses. Going through the whole table is cheaper for a few addresses; who reads
//! code asks for thousands, one after the other.

use super::holds;
use super::object_file::{HeldBytes, RawSymbol, symbols};
use crate::limits::{Limits, Share};

/// Functions of one table that are put in order.
const MAX_FUNCTIONS: usize = 1 << 21;
/// Addresses at which functions begin that are asked whether they hold one.
const MAX_NESTED: usize = 256;

/// The functions of a table in the order of their addresses.
pub(super) struct ByAddress {
    functions: Vec<RawSymbol>,
    /// The furthest end of each one and of all before.
    reach: Vec<u64>,
    _share: Share,
}

impl ByAddress {
    /// `None` where the look has no room for it, or no time.
    pub(super) fn of(table: &HeldBytes, limits: &Limits) -> Option<Self> {
        let number = symbols(table).filter(RawSymbol::is_function).take(MAX_FUNCTIONS + 1).count();
        if number > MAX_FUNCTIONS || limits.is_over() {
            return None;
        }
        let share = limits.share((number * (size_of::<RawSymbol>() + size_of::<u64>())) as u64)?;
        let mut functions: Vec<RawSymbol> = symbols(table).filter(RawSymbol::is_function).collect();
        // Those with one address stay in the order of the table.
        functions.sort_by_key(|function| function.value);
        let mut furthest = 0;
        let end = |function: &RawSymbol| function.value.saturating_add(function.size.max(1));
        let reach = functions.iter().map(|function| {
            furthest = end(function).max(furthest);
            furthest
        });
        let reach = reach.collect();
        Some(Self { functions, reach, _share: share })
    }

    /// The functions that begin last of those that hold `addr`, in the order of the table, and others that begin there.
    /// `None` if too many would have to be asked.
    pub(super) fn around(&self, addr: u64) -> Option<&[RawSymbol]> {
        let mut end = self.functions.partition_point(|function| function.value <= addr);
        for _ in 0..MAX_NESTED {
            if end == 0 || self.reach[end - 1] <= addr {
                return Some(&[]);
            }
            let value = self.functions[end - 1].value;
            let begin = self.functions[..end].partition_point(|function| function.value < value);
            if self.functions[begin..end].iter().any(|function| holds(value, function.size, addr)) {
                return Some(&self.functions[begin..end]);
            }
            end = begin;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::elf::FileSymbols;
    use crate::limits::Limits;
    use std::fs::File;

    /// In order or not, the tables give the same functions.
    #[test]
    fn as_a_pass_over_the_table_finds_them() {
        let file = File::open("/proc/self/exe").unwrap();
        let symbols = FileSymbols::new(&file, &Limits::default());
        let addrs: Vec<u64> = (0..1_000_000).map(|number| number * 37).collect();
        let by_pass = symbols.functions_at(&addrs);
        assert!(by_pass.iter().flatten().count() > 1000, "functions are found");
        for _ in 0..100 {
            symbols.function_at(0);
        }
        assert!(symbols.is_in_order(), "asked often enough");
        let by_order = symbols.functions_at(&addrs);
        let differs = (0..addrs.len()).find(|index| by_pass[*index] != by_order[*index]);
        assert_eq!(differs.map(|index| (addrs[index], &by_pass[index], &by_order[index])), None);
    }
}

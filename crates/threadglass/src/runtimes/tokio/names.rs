//! Names of futures without debug information: by the functions that the poll of a task calls.

use crate::RemoteAddr;
use crate::arch::code::functions_named_in;
use crate::elf::demangle;
use crate::symbols::Objects;
use crate::target::Target;
use std::collections::HashSet;

/// How many calls lead from the poll of a task to its future: all of them are functions of tokio and of Rust's library.
const MAX_DEPTH: usize = 20;
/// Functions that are looked into for one name.
const MAX_FUNCTIONS: usize = 128;
/// What is read of one function.
const MAX_CODE: u64 = 8 << 10;

/// Libraries whose functions only pass a poll on.
const PASSING: [&str; 8] = ["tokio::", "core::", "std::", "alloc::", "<core::", "<alloc::", "<std::", "<tokio::"];

/// In the names of functions that may lead to the poll of a future.
const FOLLOWED: [&str; 7] = ["poll", "{{closure}}", "catch_unwind", "call_once", "do_call", "with_mut", "__rust_try"];

/// Names futures by symbols.
pub(super) struct Names<'n> {
    objects: &'n Objects<'n>,
}

impl<'n> Names<'n> {
    pub(super) fn new(objects: &'n Objects<'n>) -> Self {
        Self { objects }
    }

    /// The future that the function at `poll` polls: by the name of that function, or of the first one that is called
    /// from there and is of no library that only passes polls on.
    pub(super) fn future_of(&self, poll: RemoteAddr) -> Option<String> {
        let object = self.objects.at(poll)?;
        let name = |at: RemoteAddr| Some(demangle(&object.function_at(at).filter(|symbol| symbol.addr == at)?.name));
        if let Some(named) = name(poll).as_deref().and_then(future_in_name) {
            return Some(named);
        }
        let (mut open, mut seen, mut followed) = (vec![poll], HashSet::from([poll]), 0);
        for _ in 0..MAX_DEPTH {
            let mut next = Vec::new();
            for at in open {
                for call in self.calls(at) {
                    if followed >= MAX_FUNCTIONS || !seen.insert(call) {
                        continue;
                    }
                    let Some(name) = name(call) else { continue };
                    if is_future(&name) {
                        return Some(readable(&name));
                    }
                    if FOLLOWED.iter().any(|part| name.contains(part)) {
                        followed += 1;
                        next.push(call);
                    }
                }
            }
            open = next;
        }
        None
    }

    /// Where the function at `at` leads by calls and jumps, and functions that it gives to others to call.
    fn calls(&self, at: RemoteAddr) -> Vec<RemoteAddr> {
        let target: &dyn Target = self.objects.target;
        let Some(object) = self.objects.at(at) else { return Vec::new() };
        let size = object.function_at(at).map_or(0, |symbol| symbol.size).min(MAX_CODE);
        let Ok(code) = target.read_vec(at, usize::try_from(size).unwrap_or(0)) else { return Vec::new() };
        functions_named_in(&code, at.0).map(RemoteAddr).filter(|call| object.module.contains(*call)).collect()
    }
}

/// Whether `name` is the body of an async function or block of the program, or the poll of a future of its own.
fn is_future(name: &str) -> bool {
    let is_own = !PASSING.iter().any(|start| name.starts_with(start));
    is_own && (name.contains("{{closure}}") || name.contains("{closure#") || name.ends_with(">::poll"))
}

/// The future in `poll::<F, S>`, where symbols have what functions were made with.
fn future_in_name(name: &str) -> Option<String> {
    let rest = name.split_once("task::raw::poll::<").or_else(|| name.split_once("task::raw::poll<"))?.1;
    let (mut depth, mut end) = (0usize, None);
    for (at, letter) in rest.char_indices() {
        match letter {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' if depth > 0 => depth -= 1,
            ',' | '>' if depth == 0 => {
                end = Some(at);
                break;
            }
            _ => {}
        }
    }
    Some(readable(&rest[..end?]))
}

/// A name as people write it.
fn readable(name: &str) -> String {
    let name = name.strip_suffix("::{{closure}}").or_else(|| name.strip_suffix("::{closure#0}")).unwrap_or(name);
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn futures_are_found_in_the_names_of_new_symbols() {
        let name = "tokio::runtime::task::raw::poll::<app::run::<u8>::{closure#0}, alloc::sync::Arc<Handle>>";
        assert_eq!(future_in_name(name).as_deref(), Some("app::run::<u8>"));
        assert_eq!(future_in_name("tokio::runtime::task::raw::poll"), None);
    }

    #[test]
    fn only_what_is_of_the_program_is_a_future_of_it() {
        assert!(is_future("app::transfer::{{closure}}"));
        assert!(is_future("<app::Own as core::future::future::Future>::poll"));
        assert!(!is_future("tokio::runtime::task::core::Core<T,S>::poll::{{closure}}"));
        assert!(!is_future("app::transfer"));
    }
}

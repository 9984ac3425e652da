//! Names for addresses of code.

use crate::RemoteAddr;
use crate::elf::{FileSymbols, Image, Symbol};
use crate::target::Live;
use std::collections::HashMap;

/// Names addresses of one process. Symbol tables are read when the first address of their object is
/// asked for, and kept.
#[derive(Debug)]
pub struct Symbolizer<'a> {
    live: &'a Live,
    /// Functions of each object, by where it is loaded, sorted by address.
    objects: HashMap<RemoteAddr, Vec<Symbol>>,
}

impl<'a> Symbolizer<'a> {
    /// A symbolizer for `live`.
    pub fn new(live: &'a Live) -> Self {
        Self { live, objects: HashMap::new() }
    }

    /// Name of the function that holds `addr`, demangled; with `+0x..` when it is not its first byte,
    /// and as `module+0x..` when the object has no symbol there. `None` outside all objects.
    pub fn function_at(&mut self, addr: RemoteAddr) -> Option<String> {
        let live = self.live;
        let module = live.module_at(addr)?;
        let functions = self.objects.entry(module.base).or_insert_with(|| load(live, module));
        let name = match find(functions, addr) {
            Some(symbol) if symbol.addr == addr => demangle(&symbol.name),
            Some(symbol) => format!("{}+{:#x}", demangle(&symbol.name), addr.0 - symbol.addr.0),
            None => format!("{}+{:#x}", module.name(), addr.0 - module.base.0),
        };
        Some(name)
    }
}

fn load(live: &Live, module: &crate::target::Module) -> Vec<Symbol> {
    let Ok(mut image) = Image::load(live, module.base) else { return Vec::new() };
    let from_file = live.open_module(module).map(|file| FileSymbols::new(file).functions(image.bias()));
    let mut functions = match from_file {
        Some(functions) if !functions.is_empty() => functions,
        _ => {
            // No file to be had: the loaded image still names its exported functions.
            let _ = image.load_symbols(live);
            image.functions().collect()
        }
    };
    functions.sort_unstable_by_key(|symbol| symbol.addr);
    functions
}

/// The function that holds `addr`. One without a size holds only its first byte: anything more
/// would be a guess.
fn find(functions: &[Symbol], addr: RemoteAddr) -> Option<&Symbol> {
    let behind = functions.partition_point(|symbol| symbol.addr <= addr);
    functions[..behind]
        .iter()
        .rev()
        // Aliases and nested entries are few; an unbounded search back would be slow on large tables.
        .take(64)
        .find(|symbol| symbol.addr == addr || addr.0 - symbol.addr.0 < symbol.size)
}

/// A C++ or Rust name as its author wrote it; any other name unchanged.
pub fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(text) = symbol.demangle()
    {
        return text;
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_languages() {
        assert_eq!(demangle("_ZN3foo3barE"), "foo::bar");
        assert_eq!(demangle("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangle("worker"), "worker");
        assert_eq!(demangle("_Z"), "_Z");
    }

    #[test]
    fn an_address_past_a_functions_end_is_not_given_its_name() {
        let function = |addr, size| Symbol { name: format!("f{addr}"), addr: RemoteAddr(addr), size };
        let functions = [function(100, 10), function(200, 0)];
        assert_eq!(find(&functions, RemoteAddr(105)).map(|f| f.addr.0), Some(100));
        assert_eq!(find(&functions, RemoteAddr(110)), None);
        assert_eq!(find(&functions, RemoteAddr(200)).map(|f| f.addr.0), Some(200));
        assert_eq!(find(&functions, RemoteAddr(201)), None);
        assert_eq!(find(&functions, RemoteAddr(99)), None);
    }
}

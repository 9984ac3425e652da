//! Names for addresses of code and data.

mod data;
mod debug_file;
mod debug_info;
mod lines;
mod lock_types;
mod object_names;

pub use data::{DataNames, LockVariable};
pub use debug_info::FunctionAt;
pub(crate) use lines::Lines;
pub use lock_types::LockTypes;
pub(crate) use lock_types::NoLocks;
pub use object_names::{ObjectLock, ObjectNames};

use crate::RemoteAddr;
use crate::elf::{FileSymbols, Image, demangle};
use crate::target::{Module, Target};
use std::collections::HashMap;

/// Names addresses of one process. Objects are opened when the first address in them is asked for.
pub struct Symbolizer<'a> {
    target: &'a dyn Target,
    /// What is known of each object, by where it is loaded.
    objects: HashMap<RemoteAddr, Option<Object>>,
}

/// One object's symbols: those of its file, and those of its loaded image where no file can be had or
/// the file lacks the name.
#[derive(Debug)]
struct Object {
    image: Image,
    file: Option<FileSymbols>,
}

impl Object {
    fn open(target: &dyn Target, module: &Module) -> Option<Self> {
        let mut image = Image::load(target, module.base).ok()?;
        let file = target.open_module(module).map(|file| FileSymbols::new(file, target.limits()));
        if file.is_none() {
            let _ = image.load_symbols_within(target, target.limits());
        }
        Some(Self { image, file })
    }

    /// Name of the function that holds `addr`, and its first address.
    fn function_at(&self, addr: RemoteAddr) -> Option<(String, RemoteAddr)> {
        let bias = self.image.bias();
        let in_file = self.file.as_ref().and_then(|file| file.function_at(addr.0.wrapping_sub(bias)));
        match in_file {
            Some(symbol) => Some((symbol.name, symbol.addr.offset(bias))),
            None => self.image.function_at(addr).map(|symbol| (symbol.name, symbol.addr)),
        }
    }
}

impl<'a> Symbolizer<'a> {
    /// A symbolizer for `target`.
    pub fn new(target: &'a dyn Target) -> Self {
        Self { target, objects: HashMap::new() }
    }

    /// Name of the function that holds `addr`, demangled, and no more than that; `None` without a symbol.
    pub fn enclosing_function(&mut self, addr: RemoteAddr) -> Option<String> {
        let target = self.target;
        let _look = target.limits().begin();
        let module = target.module_at(addr)?;
        let object = self.objects.entry(module.base).or_insert_with(|| Object::open(target, module));
        object.as_ref()?.function_at(addr).map(|(name, _)| demangle(&name))
    }

    /// Name of the function that holds `addr`, demangled; with `+0x..` when it is not its first byte,
    /// and as `module+0x..` when the object has no symbol there. `None` outside all objects.
    pub fn function_at(&mut self, addr: RemoteAddr) -> Option<String> {
        let target = self.target;
        let _look = target.limits().begin();
        let module = target.module_at(addr)?;
        let object = self.objects.entry(module.base).or_insert_with(|| Object::open(target, module));
        Some(match object.as_ref().and_then(|object| object.function_at(addr)) {
            Some((name, start)) if start == addr => demangle(&name),
            Some((name, start)) => format!("{}+{:#x}", demangle(&name), addr.0 - start.0),
            None => format!("{}+{:#x}", module.name(), addr.0 - module.base.0),
        })
    }
}

//! Names for addresses of code and data.

mod data;
mod debug_file;
mod debug_info;
#[cfg(feature = "profile")]
mod jit;
mod library_names;
mod lock_types;
mod object_names;
mod objects;

pub use data::{DataNames, LockVariable};
#[cfg(test)]
pub(crate) use debug_info::Cases;
pub use debug_info::FunctionAt;
pub(crate) use debug_info::debug_section;
pub(crate) use debug_info::{FrameVariable, TypeAt, ValueMember, ValueType, VariablePlace};
#[cfg(feature = "profile")]
pub use jit::{JitFiles, JitFunction};
pub(crate) use library_names::library_by_name;
pub use lock_types::LockTypes;
pub use object_names::ObjectNames;
pub(crate) use objects::MappedObject;
pub use objects::Objects;
pub(crate) use objects::TypeQuestions;

use crate::RemoteAddr;
use crate::elf::demangle;
use std::sync::Arc;

/// Names addresses of the code of one process.
pub struct Symbolizer<'a> {
    objects: Arc<Objects<'a>>,
}

impl<'a> Symbolizer<'a> {
    /// A symbolizer for the code of `objects`.
    pub fn new(objects: &Arc<Objects<'a>>) -> Self {
        Self { objects: objects.clone() }
    }

    /// Name of the function that holds `addr`, demangled, and no more than that; `None` without a symbol.
    pub fn enclosing_function(&self, addr: RemoteAddr) -> Option<String> {
        let _look = self.objects.target.limits().begin();
        self.objects.at(addr)?.function_at(addr).map(|symbol| demangle(&symbol.name))
    }

    /// Name of the function that holds `addr`, demangled; with `+0x..` when it is not its first byte,
    /// and as `module+0x..` when the object has no symbol there. `None` outside all objects.
    pub fn function_at(&self, addr: RemoteAddr) -> Option<String> {
        let _look = self.objects.target.limits().begin();
        let object = self.objects.at(addr)?;
        Some(match object.function_at(addr) {
            Some(symbol) if symbol.addr == addr => demangle(&symbol.name),
            Some(symbol) => format!("{}+{:#x}", demangle(&symbol.name), addr.0 - symbol.addr.0),
            None => format!("{}+{:#x}", object.module.name(), addr.0 - object.module.base.0),
        })
    }
}

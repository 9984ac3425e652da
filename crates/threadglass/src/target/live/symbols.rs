//! Global symbols of a live process.

use super::Live;
use crate::RemoteAddr;
use crate::target::Symbols;
use crate::target::symbols::GlibcSymbols;

impl Symbols for Live {
    fn address_of(&self, name: &str) -> Option<RemoteAddr> {
        self.symbols.get_or_init(|| GlibcSymbols::load(self)).address_of(name)
    }
}

//! Which layout the condition variables of a target have.
//!
//! The version string does not tell: distributions took the change of 2.41 into 2.38 to 2.40 without
//! another number. So libc's own code is asked, which reads the count of waiters as the first thing that
//! `pthread_cond_signal` does.

use super::CondLayout;
use crate::arch::code::{first_call, first_member_read};
use crate::memory::Memory;
use crate::target::Symbols;

impl CondLayout {
    /// The layout in a target with these symbols, whose glibc calls itself `version`.
    pub fn discover(memory: &dyn Memory, symbols: &dyn Symbols, version: Option<&str>) -> Self {
        let minor =
            version.and_then(|version| version.strip_prefix("2.")?.split(['.', '-']).next()?.parse::<u32>().ok());
        match minor {
            Some(..=37) => Self::Old,
            Some(41..) => Self::New,
            _ => Self::by_code(memory, symbols).unwrap_or(Self::Unknown),
        }
    }

    fn by_code(memory: &dyn Memory, symbols: &dyn Symbols) -> Option<Self> {
        // There are two functions `pthread_cond_signal`, one for programs of another age; C11's passes its
        // argument on to the right one, first of all.
        let wrapper = symbols.address_of("cnd_signal")?;
        let signal = first_call(&memory.read_vec(wrapper, 24).ok()?, wrapper)?;
        match first_member_read(&memory.read_vec(signal, 64).ok()?)? {
            0x24 => Some(Self::Old),
            0x1c => Some(Self::New),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RemoteAddr;
    use crate::target::Bytes;

    #[test]
    fn the_code_tells_where_the_version_does_not() {
        for (offset, layout) in [(0x24, CondLayout::Old), (0x1c, CondLayout::New), (0x20, CondLayout::Unknown)] {
            let mut code = vec![0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08, 0xe8, 0x13, 0, 0, 0];
            code.resize(0x20, 0x90);
            code.extend([0x41, 0x57, 0x53, 0x8b, 0x5f, offset, 0x89, 0xd8]);
            code.resize(0x80, 0x90);
            let mut memory = Bytes::default();
            memory.map(RemoteAddr(0x1000), code);
            memory.name("cnd_signal", RemoteAddr(0x1000));
            let told = [
                (Some("2.39"), layout),
                (None, layout),
                (Some("2.31"), CondLayout::Old),
                (Some("2.43"), CondLayout::New),
            ];
            for (version, layout) in told {
                assert_eq!(CondLayout::discover(&memory, &memory, version), layout, "{version:?}");
            }
        }
    }
}

//! Samples in the kernel, and the names of its functions.

use crate::RemoteAddr;
use crate::model::{Evidence, Frame};
use crate::proc::kernel_functions;
use std::collections::HashMap;
use std::io::Read;

/// What code of the kernel itself is said to be in.
const MODULE: &str = "[kernel]";
/// Bytes of the kernel's list of symbols that are read: those of large kernels with all modules are some 30 MB.
const MAX_LIST: u64 = 256 << 20;

/// Frames for addresses in the kernel.
#[derive(Debug, Default)]
pub(super) struct KernelNames(HashMap<u64, Frame>);

impl KernelNames {
    /// Looks `addrs` up in the kernel's own list.
    pub(super) fn look_up(addrs: &[u64]) -> Self {
        if addrs.is_empty() {
            return Self::default();
        }
        let mut text = Vec::new();
        if let Ok(file) = std::fs::File::open("/proc/kallsyms") {
            let _ = file.take(MAX_LIST).read_to_end(&mut text);
        }
        let found = kernel_functions(&text, addrs);
        let frame = |(addr, function): (&u64, Option<crate::proc::KernelFunction>)| {
            let mut frame = Self::unnamed(*addr);
            if let Some(function) = function {
                frame.offset = Some(addr.saturating_sub(function.start));
                frame.module = function.module.or(frame.module);
                frame.function = Some(function.name);
            }
            (*addr, frame)
        };
        Self(addrs.iter().zip(found).map(frame).collect())
    }

    /// The frame at `addr`.
    pub(super) fn frame(&self, addr: u64) -> Frame {
        self.0.get(&addr).cloned().unwrap_or_else(|| Self::unnamed(addr))
    }

    /// Whether nothing has a name: the list has no addresses for us.
    pub(super) fn are_hidden(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(|frame| frame.function.is_none())
    }

    fn unnamed(addr: u64) -> Frame {
        let evidence = Evidence::Recorded;
        Frame { pc: RemoteAddr(addr), module: Some(MODULE.to_owned()), evidence, ..Frame::default() }
    }
}

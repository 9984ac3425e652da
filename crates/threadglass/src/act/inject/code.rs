//! What is needed of the program's C library: functions, and two short sequences of its code.

use super::InjectError;
use crate::RemoteAddr;
use crate::arch::code::{SIGNAL_RETURN, SYSCALL_RETURN};
use crate::elf::Image;
use crate::memory::Memory;
use crate::runtimes::glibc::{KeyLayout, Layout};
use crate::target::{Library, Live, Target};
use std::mem::offset_of;
use table::control::{KEYS, Mail};

/// Addresses in the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct LibcCode {
    /// Those that the mail has, each with its place there.
    pub(super) in_mail: [(usize, u64); 9],
    /// A system call and a return.
    pub(super) syscall_ret: RemoteAddr,
    /// The system call at the end of every signal handler.
    pub(super) sigreturn: RemoteAddr,
}

/// More code than any C library has.
const MOST: u64 = 16 << 20;

/// Whether keys and values are what they have always been: the stub counts on it.
fn are_pairs(keys: &KeyLayout) -> bool {
    let key = (keys.stride, keys.seq, keys.destructor);
    let value = (keys.data_stride, keys.data_seq, keys.data);
    (key, value) == ((16, 0, 8), (16, 0, 8)) && keys.per_block == u64::from(KEYS) && keys.count >= keys.per_block
}

/// Finds all of it.
pub(super) fn find(live: &Live, layout: &Layout) -> Result<LibcCode, InjectError> {
    let keys = layout.keys.filter(are_pairs).ok_or(InjectError::Missing("keys of thread-specific data"))?.table;
    let image = |any: &[Library]| {
        let module = live.modules().iter().find(|module| any.contains(&module.library()))?;
        Some((module, Image::with_symbols(live, module.base, live.limits()).ok()?))
    };
    let (module, libc) = image(&[Library::Libc, Library::PlainLibc]).ok_or(InjectError::NoGlibc)?;
    if libc.address_of(live, "gnu_get_libc_version").is_none() {
        return Err(InjectError::NoGlibc);
    }
    // Until 2.33 threads were a library of their own.
    let threads = image(&[Library::Threads]).map(|(_, image)| image);
    let in_threads = |name: &'static str| {
        let own = threads.as_ref().and_then(|image| image.address_of(live, name));
        own.or_else(|| libc.address_of(live, name)).ok_or(InjectError::Missing(name))
    };
    const NOW: u64 = 2;
    // How libc called itself: as if `dlopen` had been called.
    const OLD_NOW: u64 = NOW | 0x8000_0000;
    let loader = |open, symbol, mode| Some((libc.address_of(live, open)?, libc.address_of(live, symbol)?, mode));
    let (open, symbol, open_mode) = loader("dlopen", "dlsym", NOW)
        .or_else(|| loader("__libc_dlopen_mode", "__libc_dlsym", OLD_NOW))
        .ok_or(InjectError::Missing("dlopen"))?;
    let in_libc = |map: &&crate::proc::MapEntry| map.exec && map.read && module.contains(map.start);
    let text = live.maps().iter().find(in_libc).ok_or(InjectError::NoGlibc)?;
    let mut bytes = vec![0; (text.end.0 - text.start.0).min(MOST) as usize];
    live.read_exact(text.start, &mut bytes)?;
    let sequence = |wanted: &[u8], what| {
        let found = memchr::memmem::find(&bytes, wanted);
        found.map(|at| text.start.offset(at as u64)).ok_or(InjectError::Missing(what))
    };
    Ok(LibcCode {
        in_mail: [
            // Not in a program that has no threads library: it has no threads either.
            (offset_of!(Mail, create), in_threads("pthread_create")?.0),
            (offset_of!(Mail, attr_init), in_threads("pthread_attr_init")?.0),
            (offset_of!(Mail, set_stack_size), in_threads("pthread_attr_setstacksize")?.0),
            (offset_of!(Mail, set_detach_state), in_threads("pthread_attr_setdetachstate")?.0),
            (offset_of!(Mail, open), open.0),
            (offset_of!(Mail, open_mode), open_mode),
            (offset_of!(Mail, symbol), symbol.0),
            // Ends C++'s thread-local objects; null where libc does not have it.
            (offset_of!(Mail, end_objects), libc.address_of(live, "__call_tls_dtors").map_or(0, |at| at.0)),
            (offset_of!(Mail, keys), keys.0),
        ],
        syscall_ret: sequence(SYSCALL_RETURN, "a system call")?,
        sigreturn: sequence(SIGNAL_RETURN, "the return from signals")?,
    })
}

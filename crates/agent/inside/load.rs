//! Objects that the program loads later: their slots are patched before the program gets them.
//!
//! The loader looks at who calls it: a name without a slash is searched for where the caller's object says. So such a
//! call goes on to the loader as if we were not there, and a thread of ours looks after it; all others are made from
//! here, by assembly, since what an object does as it is loaded may unwind.

use crate::{attach, elf};
use core::arch::naked_asm;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering::*};

pub const COUNT: usize = 2;
pub static NAMES: [&CStr; COUNT] = [c"dlopen", c"dlmopen"];

static REALS: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

/// Finds the C library's functions, as far as it has them.
pub fn find() {
    for (real, name) in REALS.iter().zip(NAMES) {
        real.store(elf::next(name).map_or(0, |found| found.address), Relaxed);
    }
}

pub fn real(number: usize) -> usize {
    REALS[number].load(Relaxed)
}

pub fn entry(number: usize) -> usize {
    [open as *const () as usize, open_apart as *const () as usize][number]
}

/// Whether the loader does not care who asks for this file.
unsafe extern "C" fn is_plain(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    let (mut at, mut has_slash) = (path, false);
    // SAFETY: the program's string.
    unsafe {
        while at.read() != 0 {
            match at.read() as u8 {
                b'/' => has_slash = true,
                // Something the loader puts the caller's directory in place of.
                b'$' => return false,
                _ => {}
            }
            at = at.add(1);
        }
    }
    has_slash
}

unsafe extern "C" fn loading_elsewhere() {
    attach::look_again();
}

unsafe extern "C" fn loaded() {
    attach::look_now();
}

macro_rules! open {
    ($name:ident, $number:literal, $path:literal) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                concat!("mov rdi, ", $path),
                "call {is_plain}",
                "test al, al",
                "jz 2f",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call [rip + {reals} + 8 * {number}]",
                "mov [rsp], rax",
                "sub rsp, 16",
                ".cfi_adjust_cfa_offset 16",
                "call {loaded}",
                "add rsp, 16",
                ".cfi_adjust_cfa_offset -16",
                "pop rax",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                "2:",
                ".cfi_adjust_cfa_offset 24",
                "call {elsewhere}",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "jmp [rip + {reals} + 8 * {number}]",
                ".cfi_endproc",
                is_plain = sym is_plain,
                loaded = sym loaded,
                elsewhere = sym loading_elsewhere,
                reals = sym REALS,
                number = const $number,
            )
        }
    };
}
open!(open, 0, "rdi");
open!(open_apart, 1, "rsi");

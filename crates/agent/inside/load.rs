//! Objects that the program loads later: their slots are patched before the program gets them.
//!
//! In a program that was running that concerns all of them. In one that was started with the agent it concerns those
//! that look for functions among their own first (`RTLD_DEEPBIND`): all others find ours.
//!
//! The loader looks at who calls it: a name without a slash is searched for where the caller's object says. Where that
//! matters the call goes on to the loader as if we were not there, and the program's next `dlsym` patches, before it
//! goes on as well. All other calls are made from here, by assembly, since what an object does as it is loaded may
//! unwind.

use crate::memory::HEADER;
use crate::{attach, deep, objects, pending};
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicUsize, Ordering::*};
use table::state;

pub const COUNT: usize = 4;
pub static NAMES: [&CStr; COUNT] = [c"dlopen", c"dlmopen", c"dlsym", c"dlvsym"];

static REALS: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

/// Finds the C library's functions, as far as it has them.
pub fn find() {
    for (real, name) in REALS.iter().zip(NAMES) {
        real.store(objects::function(name), Relaxed);
    }
}

pub fn real(number: usize) -> usize {
    REALS[number].load(Relaxed)
}

pub fn entry(number: usize) -> usize {
    [open, open_apart, symbol, symbol_of_version].map(|entry: unsafe extern "C" fn()| entry as *const () as usize)
        [number]
}

/// Where a call goes on to. Before glibc 2.34 these functions are in a library of their own, which may have come late.
fn target(number: usize) -> usize {
    if real(number) == 0 {
        objects::find();
    }
    match real(number) {
        0 => none as *const () as usize,
        found => found,
    }
}

/// What a program gets that calls a function which it does not have.
unsafe extern "C" fn none() -> usize {
    0
}

/// Where a call goes on to, and whether we wait for its end.
#[repr(C)]
struct Plan {
    target: usize,
    is_awaited: usize,
}

unsafe extern "C" fn opening(path: *const c_char, flags: c_int, caller: usize, number: usize) -> Plan {
    const DEEPBIND: c_int = 8;
    // First of all: it finds what all others need, too.
    let target = target(number);
    let plan = |is_awaited: bool| Plan { target, is_awaited: usize::from(is_awaited) };
    if pending::is_any() {
        look();
    }
    if path.is_null() {
        return plan(false);
    }
    if attach::is_late() {
        // SAFETY: the program's string.
        if unsafe { is_plain(path, caller) } {
            return plan(true);
        }
        pending::enter();
        attach::look_again();
        return plan(false);
    }
    // Looks are of no use if nothing can be counted.
    if flags & DEEPBIND == 0 || HEADER.state.load(Acquire) == state::REFUSED || !deep::begin() {
        return plan(false);
    }
    // SAFETY: the program's string.
    plan(unsafe { is_plain(path, caller) })
}

unsafe extern "C" fn opened() {
    look();
}

unsafe extern "C" fn asked(number: usize) -> usize {
    let target = target(number);
    if pending::is_any() {
        look();
    }
    target
}

/// Patches what has come, of this thread and of others.
fn look() {
    if attach::is_late() {
        attach::look_now();
        pending::leave();
    } else {
        deep::look();
    }
}

/// Whether the loader does not care who asks for this file.
unsafe fn is_plain(path: *const c_char, caller: usize) -> bool {
    let (mut at, mut has_slash) = (path, false);
    // SAFETY: by the caller's promise, ended by a zero.
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
    has_slash || !says_where(caller)
}

/// Whether the object with that address says where to search, or one that may have loaded it does.
fn says_where(caller: usize) -> bool {
    const RPATH: i64 = 15;
    const RUNPATH: i64 = 29;
    const FLAGS_1: i64 = 0x6fff_fffb;
    const NODEFLIB: usize = 0x800;
    let (mut program, mut own, mut any) = (None, None, false);
    let is_done = objects::for_each(|info| {
        let (mut says, mut has_old) = (false, false);
        for (tag, value) in info.entries() {
            has_old |= tag == RPATH;
            says |= tag == RUNPATH || tag == FLAGS_1 && value & NODEFLIB != 0;
        }
        // The program's own old path holds for everybody.
        any |= has_old && program.is_some();
        if info.has(caller) {
            own = Some(says);
        }
        program.get_or_insert(says);
    });
    // What is in no object counts as the program.
    !is_done || any || own.or(program).unwrap_or(true)
}

macro_rules! open {
    ($name:ident, $number:literal $(, $arguments:literal)*) => {
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
                $($arguments,)*
                "mov rdx, [rsp + 24]",
                "mov ecx, {number}",
                "call {opening}",
                "mov r11, rax",
                "mov rax, rdx",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "test eax, eax",
                "jnz 2f",
                "jmp r11",
                "2:",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call r11",
                "mov [rsp], rax",
                "sub rsp, 16",
                ".cfi_adjust_cfa_offset 16",
                "call {opened}",
                "add rsp, 16",
                ".cfi_adjust_cfa_offset -16",
                "pop rax",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_endproc",
                opening = sym opening,
                opened = sym opened,
                number = const $number,
            )
        }
    };
}
open!(open, 0);
open!(open_apart, 1, "mov rdi, rsi", "mov esi, edx");

macro_rules! symbol {
    ($name:ident, $number:literal) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "cmp dword ptr [rip + {pending}], 0",
                "jne 2f",
                "mov r11, [rip + {reals} + 8 * {number}]",
                "test r11, r11",
                "jz 2f",
                "jmp r11",
                "2:",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "mov edi, {number}",
                "call {asked}",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "jmp rax",
                ".cfi_endproc",
                pending = sym pending::PLACES,
                reals = sym REALS,
                asked = sym asked,
                number = const $number,
            )
        }
    };
}
symbol!(symbol, 2);
symbol!(symbol_of_version, 3);

/// Stands in the C library's place in a program that was started with us. `dlmopen` does not: what is in a namespace of
/// its own has a C library of its own.
macro_rules! exported {
    ($($name:ident $target:ident;)*) => { $(
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(".cfi_startproc", "jmp {target}", ".cfi_endproc", target = sym $target)
        }
    )* };
}
exported! {
    dlopen open;
    dlsym symbol;
    dlvsym symbol_of_version;
}

//! The agent: lives inside a program and counts what it does with its locks.
//!
//! Rules of the house: nothing here allocates, locks, prints, unwinds or keeps thread-local data. What is called by
//! the program returns exactly what the C library would have returned, with `errno` as that left it. There is no
//! standard library in here: its symbols would bind the agent to the C library it was built with.
//!
//! No Rust frame is ever on the stack while the C library may cancel the thread: those calls are made by a few
//! lines of assembly (`waits.rs`), which unwind as C does.
#![no_std]
#![allow(clippy::missing_safety_doc)]

mod attach;
mod barrier;
mod clock;
mod deep;
mod elf;
mod functions;
mod got;
mod lease;
mod load;
mod memory;
mod mutex;
mod objects;
mod pending;
mod plain;
mod records;
mod rwlock;
mod scope;
mod sem;
mod setup;
mod spin;
mod stacks;
mod sys;
mod tally;
mod waits;
mod words;

/// Nothing in here panics; if it did, nothing could be done about it.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::abort()
}

// Named by the core library's unwind tables, and never called. Hidden: programs may have the real one.
core::arch::global_asm!(".globl rust_eh_personality", ".hidden rust_eh_personality", "rust_eh_personality:", "ud2");

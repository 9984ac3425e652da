//! `libc_db.so`: the interface of `<thread_db.h>` over the `<proc_service.h>` of the client.
//!
//! This crate is a table from contract to library call: what is known about threads is known in
//! `threadglass`. Here are the C types ([`abi`]), the client's routines ([`ps`]), the sessions that
//! clients hold ([`session`]), and one file for each group of functions.
//!
//! Every exported function, every imported routine and every callback is `C-unwind`: a debugger
//! written in C++ may throw through us. Nothing that another thread could wait for is held while
//! foreign code runs.

mod abi;
mod borrowers;
mod client;
mod events;
mod facts;
mod fork;
mod handles;
mod info;
mod iterate;
mod kernel;
mod lists;
mod picture;
mod ps;
mod registers;
mod session;
mod sessions;
mod stats;
mod stopping;
mod suspend;
mod sync;
mod tasks;
mod threads;
mod tls;
mod tsd;

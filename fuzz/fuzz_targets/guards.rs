//! Tables of landing pads, and code that is followed but never run.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::RemoteAddr;
use threadglass::internals::{Space, WantedLock, follow_bytes, landing_pad};
use threadglass::model::{Family, SyncKind};
use threadglass::target::Bytes;

fuzz_target!(|input: (u64, u64, Vec<u8>, Vec<u8>)| {
    let (at, pc, table, code) = input;
    let _ = landing_pad(&table, at, pc & !0xff, pc);
    let mut target = Bytes::default();
    let end = 0x1000 + code.len() as u64;
    target.map(RemoteAddr(0x1000), code);
    target.map(RemoteAddr(0x9000), table);
    let space = Space::new(&target, &[(RemoteAddr(0x1000), RemoteAddr(end))]);
    let lock = WantedLock { address: RemoteAddr(at), size: 4, kind: SyncKind::Mutex, family: Family::RustStd };
    follow_bytes(&space, RemoteAddr(0x1000), RemoteAddr(0x9000), &lock);
});

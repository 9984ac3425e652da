//! Synchronization objects of any bytes: what is called held has somebody or nobody, never a made-up owner.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::RemoteAddr;
use threadglass::internals::glibc::locks::{CondLayout, decode, size_of};
use threadglass::internals::{FutexWait, SyscallFile};
use threadglass::model::SyncKind;

fuzz_target!(|input: (i64, [u64; 6], Vec<u8>)| {
    let (number, args, bytes) = input;
    let call = SyscallFile::Inside { number, args, sp: RemoteAddr(0), pc: RemoteAddr(0) };
    if let Some(wait) = FutexWait::of(&call) {
        assert!(wait.word.0 == args[0]);
    }
    for kind in SyncKind::ALL {
        for layout in [CondLayout::Old, CondLayout::New, CondLayout::Unknown] {
            let Some(decoded) = decode(kind, &bytes, layout) else { continue };
            assert!(size_of(kind).is_some_and(|size| size <= bytes.len() && Some(size as u64) == decoded.size));
            assert!(decoded.owner_tid().is_none_or(|owner| owner.0 > 0 && decoded.state.is_held()));
        }
    }
});

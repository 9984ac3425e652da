//! The agent's table in a program's memory, of any bytes: reading ends, and makes nothing up that is not there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::RemoteAddr;
use threadglass::target::{Memory, ReadError, ReadErrorKind};
use threadglass::track::Agent;

/// Where the bytes are; the header is first.
const START: u64 = 0x1_0000;
/// The beginning of a header that is believed: magic, version and sizes.
const HEAD: [u32; 6] = [0x4741_4754, 0x0054_4e45, 2, 320, 64, 320];

struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn read_at(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<usize, ReadError> {
        let unmapped = ReadError { addr, len: buf.len(), kind: ReadErrorKind::Unmapped };
        let at = addr.0.checked_sub(START).and_then(|at| usize::try_from(at).ok());
        let rest = at.and_then(|at| self.0.get(at..)).filter(|rest| !rest.is_empty()).ok_or(unmapped)?;
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

fuzz_target!(|input: (bool, Vec<u8>)| {
    let (is_live, mut bytes) = input;
    for (word, at) in HEAD.iter().zip((0..).step_by(4)) {
        if let Some(place) = bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
    let memory = Bytes(bytes);
    let Ok(agent) = Agent::at(&memory, RemoteAddr(START), is_live) else { return };
    let objects = agent.objects(&memory);
    // Every object takes a unit of its own.
    assert!(objects.len() <= memory.0.len() / 64);
    for object in objects.into_iter().take(100) {
        assert!(object.address.0 < 1 << 48);
        if let Some(again) = agent.object(&memory, object.address) {
            assert_eq!(again.address, object.address);
        }
        let _ = object.clone().since(Some(&object));
    }
});

//! The agent's table in a program's memory, of any bytes: reading ends, and makes nothing up that is not there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use table::decode::{EXTRA_SIZE, HEADER_SIZE};
use table::{MAGIC, UNIT, VERSION, state};
use threadglass::RemoteAddr;
use threadglass::internals::Agent;
use threadglass::memory::{Memory, ReadError, ReadErrorKind};

/// Where the bytes are; the header is first.
const START: u64 = 0x1_0000;

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
    // The beginning of a header that is believed, and that it is ready: the rest is up to the input.
    let numbers = [VERSION, HEADER_SIZE as u32, UNIT as u32, EXTRA_SIZE as u32, state::READY];
    let mut head = MAGIC.to_vec();
    head.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    if bytes.len() < head.len() {
        return;
    }
    bytes[..head.len()].copy_from_slice(&head);
    let memory = Bytes(bytes);
    let Ok(agent) = Agent::at(&memory, RemoteAddr(START), is_live) else { return };
    let mut seen = 0;
    agent.each(&memory, &mut |_| {
        seen += 1;
        seen < 2
    });
    assert!(seen <= 2, "told to stop");
    let objects = agent.objects(&memory);
    assert_eq!(objects.len().min(2), seen);
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

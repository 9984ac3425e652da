//! Which release of Go made a program: its linker writes that into each.

use crate::RemoteAddr;
use crate::memory::{Memory, u64_at};

const MAGIC: &[u8] = b"\xff Go buildinf:";
/// The flag that says that the texts follow at once.
const IS_INLINE: u8 = 2;
const HEADER: usize = 32;
/// Versions are short; those of builds from sources name a commit and experiments.
const MAX_VERSION: u64 = 256;

/// The version in what is at `address`: `go1.22.10`.
pub(super) fn version_at(memory: &dyn Memory, address: RemoteAddr) -> Option<String> {
    let bytes = memory.read_up_to(address, HEADER + MAX_VERSION as usize + 2).ok()?;
    if !bytes.starts_with(MAGIC) {
        return None;
    }
    let text = match bytes.get(15)? & IS_INLINE {
        0 => {
            let header = memory.read_vec(RemoteAddr(u64_at(&bytes, 16)?), 16).ok()?;
            let length = u64_at(&header, 8).filter(|length| *length <= MAX_VERSION)?;
            memory.read_vec(RemoteAddr(u64_at(&header, 0)?), length as usize).ok()?
        }
        _ => inline_text(bytes.get(HEADER..)?)?.to_vec(),
    };
    String::from_utf8(text)
        .ok()
        .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '))
}

/// The text that begins with its length, seven bits a byte.
fn inline_text(bytes: &[u8]) -> Option<&[u8]> {
    let (mut length, mut at) = (0_usize, 0);
    loop {
        let byte = *bytes.get(at)?;
        length |= usize::from(byte & 0x7f) << (7 * at);
        at += 1;
        if byte & 0x80 == 0 {
            break;
        }
        if at == 2 {
            return None;
        }
    }
    bytes.get(at..at.checked_add(length)?)
}

/// The number behind `go1.` in a version.
pub(super) fn release_of(version: &str) -> Option<u32> {
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    // Builds from sources: `devel go1.28-0123456789 ..`.
    digits(&version[version.find("go1.")? + 4..]).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Bytes;

    #[test]
    fn versions() {
        let mut target = Bytes::default();
        let mut inline = [MAGIC, &[8, 2], &[0; 16], b"\x09go1.22.10\x00"].concat();
        target.map(RemoteAddr(0x1000), inline.clone());
        assert_eq!(version_at(&target, RemoteAddr(0x1000)).as_deref(), Some("go1.22.10"));
        inline[32] = 0xff;
        target.map(RemoteAddr(0x2000), inline);
        assert_eq!(version_at(&target, RemoteAddr(0x2000)), None);
        assert_eq!(release_of("go1.22.10"), Some(22));
        assert_eq!(release_of("go1.27rc1 X:nocoverageredesign"), Some(27));
        assert_eq!(release_of("devel go1.28-0a1b2c"), Some(28));
        assert_eq!(release_of("devel +0a1b2c"), None);
    }
}

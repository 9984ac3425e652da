//! Unix sockets, as the kernel's diagnosis tells of them.

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use std::os::fd::AsRawFd;

/// A unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnixSocket {
    pub(crate) is_listening: bool,
    /// The path or abstract name that it is bound to.
    pub(crate) name: Option<String>,
    /// The inode of the socket that it is connected to.
    pub(crate) peer: Option<u32>,
}

const HEADER: usize = 16;
const MESSAGE: usize = 16;

/// The unix socket with this inode, in our network namespace.
pub(crate) fn unix_socket(inode: u32) -> Option<UnixSocket> {
    let netlink =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag).ok()?;
    send(netlink.as_raw_fd(), &request(inode), MsgFlags::empty()).ok()?;
    let mut answer = [0; 4096];
    // One socket is asked for, so there is one answer, at once.
    let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT).ok()?;
    decode(answer.get(..length)?, inode)
}

/// Header (length, type, flags, number, pid), then family, protocol, states, inode, what to show, and no cookie.
fn request(inode: u32) -> Vec<u8> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const NLM_F_REQUEST: u16 = 1;
    const SHOW_NAME: u32 = 1;
    const SHOW_PEER: u32 = 4;
    let mut bytes = Vec::new();
    bytes.extend(((HEADER + 24) as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([libc::AF_UNIX as u8, 0, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(inode.to_ne_bytes());
    bytes.extend((SHOW_NAME | SHOW_PEER).to_ne_bytes());
    bytes.extend([0xff; 8]);
    bytes
}

fn decode(answer: &[u8], inode: u32) -> Option<UnixSocket> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const LISTEN: u8 = 10;
    const NAME: u16 = 0;
    const PEER: u16 = 2;
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let end = (word(0)? as usize).min(answer.len());
    if half(4)? != SOCK_DIAG_BY_FAMILY || word(HEADER + 4)? != inode {
        return None;
    }
    let mut found = UnixSocket { is_listening: *answer.get(HEADER + 2)? == LISTEN, ..UnixSocket::default() };
    let mut at = HEADER + MESSAGE;
    while at + 4 <= end {
        let length = usize::from(half(at)?);
        if length < 4 {
            break;
        }
        let value = answer.get(at + 4..at + length)?;
        match half(at + 2)? {
            NAME => found.name = name(value),
            PEER => found.peer = Some(u32::from_ne_bytes(value.try_into().ok()?)),
            _ => {}
        }
        at += length.next_multiple_of(4);
    }
    Some(found)
}

/// A path, or a name without one, which begins with a zero byte.
fn name(value: &[u8]) -> Option<String> {
    let (mark, rest) = match value.split_first()? {
        (0, rest) => ("@", rest),
        _ => ("", value),
    };
    let rest = rest.split(|byte| *byte == 0).next()?;
    (!rest.is_empty()).then(|| format!("{mark}{}", String::from_utf8_lossy(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    fn inode_of(socket: &UnixStream) -> u32 {
        std::fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap().ino() as u32
    }

    #[test]
    fn the_peer_of_a_socket() {
        let (one, other) = UnixStream::pair().unwrap();
        let Some(found) = unix_socket(inode_of(&one)) else {
            testkit::skip("the_peer_of_a_socket", "this kernel has no diagnosis of unix sockets");
            return;
        };
        assert_eq!(found, UnixSocket { is_listening: false, name: None, peer: Some(inode_of(&other)) });
        assert_eq!(unix_socket(u32::MAX - 1), None);
    }

    #[test]
    fn names_and_answers_that_are_cut() {
        assert_eq!(name(b"/run/x.sock\0").as_deref(), Some("/run/x.sock"));
        assert_eq!(name(b"\0bus\0").as_deref(), Some("@bus"));
        assert_eq!(name(b""), None);
        for length in 0..40 {
            assert_eq!(decode(&vec![0; length], 7), None);
        }
    }
}

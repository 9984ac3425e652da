//! Sockets, as the kernel's diagnosis tells of them.

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// A unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnixSocket {
    pub(crate) inode: u32,
    pub(crate) is_listening: bool,
    pub(crate) is_datagram: bool,
    /// The path or abstract name that it is bound to.
    pub(crate) name: Option<String>,
    /// The inode of the socket that it is connected to: 0 if no process has that one yet.
    pub(crate) peer: Option<u32>,
    /// Bytes that were received and not read; of a listening one, connections that were not accepted.
    pub(crate) unread: Option<u32>,
    /// Inodes of the sockets whose connection it has not accepted.
    pub(crate) pending: Vec<u32>,
}

/// When data was last sent and received over a TCP connection; `None` if never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpTimes {
    pub(crate) sent_ms_ago: Option<u32>,
    pub(crate) received_ms_ago: Option<u32>,
}

impl TcpTimes {
    /// Whether this side has spoken last; `None` if both did at one time, or none did yet.
    pub(crate) fn has_spoken_last(self) -> Option<bool> {
        match (self.sent_ms_ago, self.received_ms_ago) {
            (Some(sent), Some(received)) => (sent != received).then_some(sent < received),
            (None, None) => None,
            (sent, _) => Some(sent.is_some()),
        }
    }
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const LISTEN: u8 = 10;
const HEADER: usize = 16;
const UNIX_MESSAGE: usize = 16;
const INET_MESSAGE: usize = 72;
/// Answers that are read of a list of sockets.
const MAX_ANSWERS: usize = 1 << 12;

const SHOW_NAME: u32 = 1;
const SHOW_PEER: u32 = 4;
const SHOW_PENDING: u32 = 8;
const SHOW_QUEUES: u32 = 0x10;

/// The diagnosis of the sockets of one network namespace.
pub(crate) struct Diagnosis(OwnedFd);

impl Diagnosis {
    /// Of our own namespace.
    pub(crate) fn own() -> Option<Self> {
        let (family, kind) = (AddressFamily::Netlink, SockType::Raw);
        socket(family, kind, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag).ok().map(Self)
    }

    /// Of the namespace that `file` stands for. A thread of our own enters it for a moment: a socket stays in the namespace
    /// it was made in. `None` without the privilege.
    pub(crate) fn of_namespace(file: File) -> Option<Self> {
        let enter = move || setns(file, CloneFlags::CLONE_NEWNET).ok().and_then(|()| Self::own());
        std::thread::Builder::new().spawn(enter).ok()?.join().ok()?
    }

    /// The unix socket with this inode.
    pub(crate) fn unix_socket(&self, inode: u32) -> Option<UnixSocket> {
        let show = SHOW_NAME | SHOW_PEER | SHOW_QUEUES;
        self.send(NLM_F_REQUEST, &unix_request(u32::MAX, inode, show))?;
        // One socket is asked for, so there is one answer, at once.
        decode_unix(self.answer(&mut [0; 4096])?).filter(|found| found.inode == inode)
    }

    /// All unix sockets that listen, with the connections that they have not accepted.
    pub(crate) fn listening_unix_sockets(&self) -> Vec<UnixSocket> {
        self.unix_sockets(1 << LISTEN)
    }

    /// All unix sockets for datagrams that have a name.
    pub(crate) fn datagram_unix_sockets(&self) -> Vec<UnixSocket> {
        let mut found = self.unix_sockets(!(1 << LISTEN));
        found.retain(|socket| socket.is_datagram && socket.name.is_some());
        found
    }

    /// All unix sockets that are in one of these states.
    fn unix_sockets(&self, states: u32) -> Vec<UnixSocket> {
        let request = unix_request(states, 0, SHOW_NAME | SHOW_PENDING | SHOW_QUEUES);
        if self.send(NLM_F_REQUEST | NLM_F_DUMP, &request).is_none() {
            return Vec::new();
        }
        let mut found = Vec::new();
        let mut room = vec![0; 1 << 15];
        for _ in 0..MAX_ANSWERS {
            let Some(mut rest) = self.answer(&mut room) else { break };
            let mut is_last = rest.is_empty();
            while let Some(length) = number(rest, 0).map(|length| length as usize).filter(|it| *it >= HEADER) {
                is_last |= half(rest, 4) != Some(SOCK_DIAG_BY_FAMILY);
                found.extend(decode_unix(&rest[..length.min(rest.len())]));
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
            if is_last {
                break;
            }
        }
        found
    }

    /// When data was last sent and received over the connection from `local` to `remote`.
    pub(crate) fn tcp_times(&self, local: SocketAddr, remote: SocketAddr) -> Option<TcpTimes> {
        self.send(NLM_F_REQUEST, &tcp_request(local, remote))?;
        decode_tcp(self.answer(&mut [0; 4096])?)
    }

    fn send(&self, flags: u16, body: &[u8]) -> Option<()> {
        let mut bytes = Vec::new();
        bytes.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(body);
        send(self.0.as_raw_fd(), &bytes, MsgFlags::empty()).ok().map(drop)
    }

    fn answer<'a>(&self, room: &'a mut [u8]) -> Option<&'a [u8]> {
        let length = recv(self.0.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT).ok()?;
        room.get(..length)
    }
}

/// Family, protocol, states, inode, what to show, and no cookie.
fn unix_request(states: u32, inode: u32, show: u32) -> Vec<u8> {
    let mut bytes = vec![libc::AF_UNIX as u8, 0, 0, 0];
    bytes.extend([states, inode, show, u32::MAX, u32::MAX].iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

/// Family, protocol, what to add (the connection's counters), states, ports, addresses, any interface, and no cookie.
fn tcp_request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    const ADD_INFO: u8 = 1 << 1;
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut bytes = vec![family as u8, libc::IPPROTO_TCP as u8, ADD_INFO, 0];
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend([local.port(), remote.port()].iter().flat_map(|port| port.to_be_bytes()));
    for address in [local.ip(), remote.ip()] {
        match address {
            IpAddr::V4(address) => bytes.extend(address.octets().into_iter().chain([0; 12])),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    bytes.extend([0, u32::MAX, u32::MAX].iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The attributes of an answer whose own part ends at `from`: kind and value of each.
fn attributes(answer: &[u8], from: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let end = number(answer, 0).map_or(0, |length| length as usize).min(answer.len());
    let mut at = from;
    std::iter::from_fn(move || {
        let length = usize::from(half(answer, at)?);
        let value = answer.get(at + 4..at + length).filter(|_| at + length <= end)?;
        let kind = half(answer, at + 2)?;
        at += length.next_multiple_of(4);
        Some((kind, value))
    })
}

fn decode_unix(answer: &[u8]) -> Option<UnixSocket> {
    const NAME: u16 = 0;
    const PEER: u16 = 2;
    const PENDING: u16 = 3;
    const QUEUES: u16 = 4;
    if half(answer, 4)? != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let mut found = UnixSocket {
        inode: number(answer, HEADER + 4)?,
        is_datagram: i32::from(*answer.get(HEADER + 1)?) == libc::SOCK_DGRAM,
        is_listening: *answer.get(HEADER + 2)? == LISTEN,
        ..UnixSocket::default()
    };
    for (kind, value) in attributes(answer, HEADER + UNIX_MESSAGE) {
        match kind {
            NAME => found.name = unix_name(value),
            PEER => found.peer = number(value, 0),
            PENDING => found.pending = value.chunks_exact(4).filter_map(|word| number(word, 0)).collect(),
            QUEUES => found.unread = number(value, 0),
            _ => {}
        }
    }
    Some(found)
}

fn decode_tcp(answer: &[u8]) -> Option<TcpTimes> {
    const INFO: u16 = 2;
    /// Places in `struct tcp_info`.
    const LAST_SENT: usize = 44;
    const LAST_RECEIVED: usize = 52;
    const SEGMENTS_IN: usize = 152;
    const SEGMENTS_OUT: usize = 156;
    if half(answer, 4)? != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let (_, info) = attributes(answer, HEADER + INET_MESSAGE).find(|(kind, _)| *kind == INFO)?;
    // The times count from the beginning of the connection where there was no data yet.
    let time = |at, segments| number(info, at).filter(|_| number(info, segments) > Some(0));
    number(info, SEGMENTS_OUT)?;
    Some(TcpTimes { sent_ms_ago: time(LAST_SENT, SEGMENTS_OUT), received_ms_ago: time(LAST_RECEIVED, SEGMENTS_IN) })
}

/// A path, or a name without one, which begins with a zero byte.
pub(crate) fn unix_name(value: &[u8]) -> Option<String> {
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
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn inode_of(socket: &impl AsFd) -> u32 {
        std::fs::metadata(format!("/proc/self/fd/{}", socket.as_fd().as_raw_fd())).unwrap().ino() as u32
    }

    /// What the kernel says of a socket; `None` where it has no such diagnosis.
    fn ask(test: &str, inode: u32) -> Option<UnixSocket> {
        let found = Diagnosis::own().and_then(|diagnosis| diagnosis.unix_socket(inode));
        if found.is_none() {
            testkit::skip(test, "this kernel has no diagnosis of unix sockets");
        }
        found
    }

    #[test]
    fn the_peer_of_a_socket_and_what_is_unread() {
        let (one, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"hello").unwrap();
        let Some(found) = ask("the_peer_of_a_socket_and_what_is_unread", inode_of(&one)) else { return };
        assert_eq!((found.is_listening, found.is_datagram, &found.name), (false, false, &None));
        assert_eq!((found.peer, found.unread), (Some(inode_of(&other)), Some(5)));
        assert_eq!(Diagnosis::own().unwrap().unix_socket(u32::MAX - 1), None);
    }

    #[test]
    fn a_connection_that_nobody_has_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let Some(found) = ask("a_connection_that_nobody_has_accepted", inode_of(&client)) else { return };
        assert_eq!(found.peer, Some(0));
        let all = Diagnosis::own().unwrap().listening_unix_sockets();
        let ours = all.iter().find(|socket| socket.inode == inode_of(&listener)).expect("the listener");
        assert_eq!((ours.pending.as_slice(), ours.name.as_deref()), (&[inode_of(&client)][..], path.to_str()));
    }

    #[test]
    fn who_has_spoken_last() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"question").unwrap();
        server.read_exact(&mut [0; 8]).unwrap();
        let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let Some(times) = Diagnosis::own().and_then(|diagnosis| diagnosis.tcp_times(local, remote)) else {
            testkit::skip("who_has_spoken_last", "this kernel has no diagnosis of TCP sockets");
            return;
        };
        assert_eq!(times.has_spoken_last(), Some(true), "{times:?}");
        assert_eq!(times.received_ms_ago, None);
        let other = Diagnosis::own().unwrap().tcp_times(remote, local).expect("the other end");
        assert_eq!(other.has_spoken_last(), Some(false), "{other:?}");
    }

    #[test]
    fn names_and_answers_that_are_cut() {
        assert_eq!(unix_name(b"/run/x.sock\0").as_deref(), Some("/run/x.sock"));
        assert_eq!(unix_name(b"\0bus\0").as_deref(), Some("@bus"));
        assert_eq!(unix_name(b""), None);
        for length in 0..100 {
            assert_eq!(decode_unix(&vec![0; length]), None);
            assert_eq!(decode_tcp(&vec![0; length]), None);
            let mut bytes = vec![0xff; length];
            bytes.iter_mut().skip(4).zip(SOCK_DIAG_BY_FAMILY.to_ne_bytes()).for_each(|(byte, value)| *byte = value);
            let _ = (decode_unix(&bytes), decode_tcp(&bytes));
        }
    }
}

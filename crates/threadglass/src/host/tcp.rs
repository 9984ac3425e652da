//! The TCP and UDP sockets of a network namespace, as `/proc/PID/net` lists them.

use super::of_living;
use crate::Pid;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// One socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InetSocket {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) is_listening: bool,
    /// Whether the other side has not answered yet.
    pub(super) is_connecting: bool,
    pub(super) is_udp: bool,
    /// Bytes that were received and not read; of a listening one, connections that were not accepted.
    pub(super) unread: u64,
    /// Bytes that were sent and that the other side has not taken.
    pub(super) unsent: u64,
    /// 0 if no process has it.
    pub(super) inode: u64,
}

/// The sockets of one namespace.
#[derive(Default)]
pub(super) struct InetSockets {
    by_inode: HashMap<u64, InetSocket>,
    by_ends: HashMap<(bool, SocketAddr, SocketAddr), InetSocket>,
    open: Vec<InetSocket>,
}

impl InetSockets {
    /// The namespace that `pid` lives in.
    pub(super) fn of_process(pid: Pid) -> Self {
        let mut found = Self::default();
        for (name, is_udp) in [("tcp", false), ("tcp6", false), ("udp", true), ("udp6", true)] {
            let text = net_file(pid, name);
            text.lines().skip(1).filter_map(|line| parse(line, is_udp)).for_each(|socket| found.add(socket));
        }
        found
    }

    fn add(&mut self, socket: InetSocket) {
        if socket.inode != 0 {
            self.by_inode.insert(socket.inode, socket);
        }
        if socket.is_listening || !is_connected(&socket) {
            self.open.push(socket);
        } else {
            self.by_ends.insert((socket.is_udp, socket.local, socket.remote), socket);
        }
    }

    pub(super) fn find(&self, inode: u64) -> Option<InetSocket> {
        self.by_inode.get(&inode).copied()
    }

    /// The other end of the connection of `socket`.
    pub(super) fn other_end(&self, socket: &InetSocket) -> Option<InetSocket> {
        let other = self.by_ends.get(&(socket.is_udp, socket.remote, socket.local)).copied();
        // A server of datagrams is not connected to who asks.
        let server = || match self.open_at(socket.remote, true).as_slice() {
            [one] if socket.is_udp => Some(*one),
            _ => None,
        };
        other.or_else(server)
    }

    /// The sockets that listen at an address, or that take datagrams there: several may share it.
    pub(super) fn open_at(&self, address: SocketAddr, is_udp: bool) -> Vec<InetSocket> {
        let at = |socket: &&InetSocket| {
            let is_its = socket.local.ip() == address.ip() || socket.local.ip().is_unspecified();
            socket.is_udp == is_udp && socket.local.port() == address.port() && is_its
        };
        let mut found: Vec<InetSocket> = self.open.iter().filter(at).copied().collect();
        // Those that are bound to the very address come first.
        if found.iter().any(|socket| socket.local.ip() == address.ip()) {
            found.retain(|socket| socket.local.ip() == address.ip());
        }
        found
    }
}

fn net_file(pid: Pid, name: &str) -> String {
    of_living(pid, |task| std::fs::read_to_string(format!("{task}/net/{name}")).ok()).unwrap_or_default()
}

/// The addresses of the namespace that `pid` lives in.
pub(super) fn addresses_of(pid: Pid) -> HashSet<IpAddr> {
    let read = |name: &str| net_file(pid, name);
    let mut found: HashSet<IpAddr> = old_addresses(&read("fib_trie")).map(IpAddr::V4).collect();
    let new = read("if_inet6");
    let new = new.lines().filter_map(|line| u128::from_str_radix(line.split(' ').next()?, 16).ok());
    found.extend(new.map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))));
    found
}

/// Of the tree of routes: `|-- 10.0.0.1`, and in the next line `/32 host LOCAL`.
fn old_addresses(text: &str) -> impl Iterator<Item = Ipv4Addr> {
    let lines = text.lines().zip(text.lines().skip(1));
    lines
        .filter(|(_, next)| next.contains("/32 host LOCAL"))
        .filter_map(|(line, _)| line.rsplit(' ').next()?.parse().ok())
}

pub(super) fn is_connected(socket: &InetSocket) -> bool {
    socket.remote.port() != 0
}

/// `0: 0100007F:1538 0100007F:9CB0 01 00000000:00000000 00:00000000 00000000 0 0 1234 ..`
fn parse(line: &str, is_udp: bool) -> Option<InetSocket> {
    const LISTEN: &str = "0A";
    const SYN_SENT: &str = "02";
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(words.next()?)?, address(words.next()?)?);
    let state = words.next()?;
    let (unsent, unread) = words.next()?.split_once(':')?;
    let inode = words.nth(4)?.parse().ok()?;
    Some(InetSocket {
        local,
        remote,
        is_listening: state == LISTEN && !is_udp,
        is_connecting: state == SYN_SENT && !is_udp,
        is_udp,
        unread: u64::from_str_radix(unread, 16).ok()?,
        unsent: u64::from_str_radix(unsent, 16).ok()?,
        inode,
    })
}

/// The kernel's notation of an address and port: words of four bytes in the byte order of the machine. An old address in the
/// new notation is the old one.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_le_bytes());
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_connection() {
        let mut sockets = InetSockets::default();
        for line in [
            "0: 00000000:1538 00000000:0000 0A 00000000:00000001 00:00000000 00000000 0 0 7 1",
            // The server has the address in the new notation, and has not read 16 bytes.
            "1: 0000000000000000FFFF00000100007F:1538 0000000000000000FFFF00000100007F:9CB0 01 00000000:00000010 00:0 0 0 0 8 1",
            "2: 0100007F:9CB0 0100007F:1538 01 00000002:00000000 00:00000000 00000000 0 0 9 1",
        ] {
            sockets.add(parse(line, false).unwrap());
        }
        let client = sockets.find(9).unwrap();
        assert_eq!((client.unsent, client.local.to_string()), (2, "127.0.0.1:40112".to_owned()));
        let server = sockets.other_end(&client).unwrap();
        assert_eq!((server.inode, server.unread), (8, 16));
        assert_eq!(sockets.open_at(client.remote, false)[0].inode, 7);
        assert!(sockets.open_at(client.remote, true).is_empty());
        assert_eq!(address("00000000000000000000000001000000:0050").unwrap().to_string(), "[::1]:80");
        assert_eq!(address("01:0050"), None);
        assert_eq!(parse("sl local_address", false), None);
        let waiting = "3: 0100007F:9CB2 0100007F:1538 02 00000001:00000000 01:00000000 00000000 0 0 10 1";
        assert!(parse(waiting, false).unwrap().is_connecting && !client.is_connecting);
    }

    #[test]
    fn addresses_in_a_tree_of_routes() {
        let tree = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 10.0.0.0\n        \
            /24 link UNICAST\n        |-- 10.0.0.7\n           /32 host LOCAL\n        |-- 10.0.0.255\n           /32 link BROADCAST\n";
        assert_eq!(old_addresses(tree).collect::<Vec<_>>(), [Ipv4Addr::new(10, 0, 0, 7)]);
    }
}

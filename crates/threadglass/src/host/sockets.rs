//! What a socket is connected to, as far as that is on this machine.

use crate::Pid;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    /// What it is, in words: `TCP 127.0.0.1:40112 to 127.0.0.1:5432`.
    pub(crate) what: String,
    /// The socket at the other end as the kernel names it (`socket:[123]`), if it is on this machine.
    pub(crate) peer: Option<String>,
}

/// The sockets that were asked for.
#[derive(Default)]
pub(super) struct Sockets {
    /// Tables of TCP sockets, by the network namespace they are of.
    tables: RefCell<HashMap<PathBuf, Rc<[Vec<TcpLine>; 2]>>>,
    unix: RefCell<HashMap<u64, Option<Socket>>>,
}

impl Sockets {
    /// The socket that a descriptor of `pid` leads to: `file` is `socket:[inode]`.
    pub(super) fn find(&self, pid: Pid, file: &str) -> Option<Socket> {
        let inode: u64 = file.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        let namespace = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
        let read = || Rc::new(["tcp", "tcp6"].map(|name| read_table(pid, name)));
        let tables = self.tables.borrow_mut().entry(namespace.clone()).or_insert_with(read).clone();
        if let Some(found) = tcp(&*tables, inode) {
            return Some(found);
        }
        // The kernel tells of the unix sockets of our own namespace only.
        let is_ours = std::fs::read_link("/proc/self/ns/net").is_ok_and(|ours| ours == namespace);
        self.unix.borrow_mut().entry(inode).or_insert_with(|| is_ours.then(|| unix(inode)).flatten()).clone()
    }
}

/// One line of a table of TCP sockets.
struct TcpLine {
    local: String,
    remote: String,
    is_listening: bool,
    inode: u64,
}

fn read_table(pid: Pid, name: &str) -> Vec<TcpLine> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    text.lines().skip(1).filter_map(tcp_line).collect()
}

/// `0: 0100007F:1538 0100007F:9CB0 01 00000000:00000000 00:00000000 00000000 0 0 1234 ..`
fn tcp_line(line: &str) -> Option<TcpLine> {
    const LISTEN: &str = "0A";
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, remote, state, _, _, _, _, _, inode, ..] = words.as_slice() else { return None };
    Some(TcpLine {
        local: (*local).to_owned(),
        remote: (*remote).to_owned(),
        is_listening: *state == LISTEN,
        inode: inode.parse().ok()?,
    })
}

fn tcp(tables: &[Vec<TcpLine>], inode: u64) -> Option<Socket> {
    let all = || tables.iter().flatten();
    let own = all().find(|line| line.inode == inode)?;
    if own.is_listening {
        return Some(Socket { what: format!("TCP, listening on {}", address(&own.local)?), peer: None });
    }
    let mut others = all().filter(|line| line.inode != 0 && line.local == own.remote && line.remote == own.local);
    let peer = others.next().map(|line| format!("socket:[{}]", line.inode));
    Some(Socket { what: format!("TCP {} to {}", address(&own.local)?, address(&own.remote)?), peer })
}

/// The kernel's notation of an address and port: words of four bytes in the byte order of the machine.
fn address(text: &str) -> Option<String> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Vec<[u8; 4]> = (0..address.len() / 8)
        .filter_map(|word| u32::from_str_radix(address.get(8 * word..8 * word + 8)?, 16).ok().map(u32::to_le_bytes))
        .collect();
    match words.as_slice() {
        [word] => Some(format!("{}:{port}", std::net::Ipv4Addr::from(*word))),
        [_, _, _, _] => {
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(format!("[{}]:{port}", std::net::Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

/// A unix socket, by the kernel's diagnosis of sockets.
fn unix(inode: u64) -> Option<Socket> {
    let found = crate::sys::sock_diag::unix_socket(u32::try_from(inode).ok()?)?;
    let named = found.name.map(|name| format!(" {name}")).unwrap_or_default();
    let what = if found.is_listening { "unix socket, listening on" } else { "unix socket" };
    Some(Socket { what: format!("{what}{named}"), peer: found.peer.map(|peer| format!("socket:[{peer}]")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_connection() {
        let line = |text| tcp_line(text).unwrap();
        let table = vec![
            line("0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 7 1"),
            line("1: 0100007F:1538 0100007F:9CB0 01 00000000:00000000 00:00000000 00000000 0 0 8 1"),
            line("2: 0100007F:9CB0 0100007F:1538 01 00000000:00000000 00:00000000 00000000 0 0 9 1"),
        ];
        let tables = [table];
        let socket = |inode| tcp(&tables, inode).unwrap();
        assert_eq!(socket(7).what, "TCP, listening on 127.0.0.1:5432");
        assert_eq!(socket(9).what, "TCP 127.0.0.1:40112 to 127.0.0.1:5432");
        assert_eq!(socket(9).peer.as_deref(), Some("socket:[8]"));
        assert_eq!(address("00000000000000000000000001000000:0050").as_deref(), Some("[::1]:80"));
        assert_eq!(address("01:0050"), None);
        assert!(tcp_line("sl local_address").is_none());
    }
}

//! What a socket is connected to, as far as that is on this machine.

use super::tcp::{InetSocket, InetSockets, addresses_of, is_connected};
use super::{of_living, processes};
use crate::Pid;
use crate::sys::sock_diag::{Diagnosis, TcpTimes, UnixSocket};
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;

/// Namespaces that are searched for the other end of a connection.
const MAX_NAMESPACES: usize = 64;

/// What is at the other end of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OtherEnd {
    /// The socket with this inode.
    Socket(u64),
    /// The listening sockets with these inodes, none of which has accepted the connection.
    Listeners(Vec<u64>),
    /// Anybody who connects or sends.
    Anybody,
    /// None that was found on this machine.
    NotHere,
}

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    /// What it is, in words: `TCP 127.0.0.1:40112 to 127.0.0.1:5432`.
    pub(crate) what: String,
    pub(crate) other_end: OtherEnd,
    /// Bytes that were sent by way of it and that nobody at the other end has read, where that is known.
    pub(crate) unread_there: Option<u64>,
    /// When data was last sent and received.
    pub(crate) times: Option<TcpTimes>,
    /// Whether it carries datagrams: of those the kernel tells that some are unread, and not how many bytes.
    pub(crate) is_datagram: bool,
    /// Whether it was accepted by who listens at its address: then the other end is the one that asks.
    pub(crate) is_accepted: bool,
    /// Of one that is not connected yet: the connections that those who listen have not accepted.
    pub(crate) before: Option<u64>,
}

/// The sockets that were asked for.
#[derive(Default)]
pub(super) struct Sockets {
    namespaces: RefCell<HashMap<PathBuf, Rc<Namespace>>>,
    /// A process of each network namespace that was seen.
    all: OnceCell<Vec<(PathBuf, Pid)>>,
}

/// The sockets of one network namespace.
struct Namespace {
    inet: InetSockets,
    diagnosis: Option<Diagnosis>,
    listening: OnceCell<Vec<UnixSocket>>,
    /// A process that lives in it.
    member: Pid,
    addresses: OnceCell<HashSet<IpAddr>>,
}

impl Sockets {
    /// The socket that a descriptor of `pid` leads to: `link` is `socket:[inode]`.
    pub(super) fn find(&self, pid: Pid, link: &str) -> Option<Socket> {
        let inode: u64 = link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        let own = self.namespace(namespace_of(pid)?, pid);
        if let Some(socket) = own.inet.find(inode) {
            return Some(self.inet(&own, &socket));
        }
        own.unix(inode)
    }

    fn namespace(&self, name: PathBuf, pid: Pid) -> Rc<Namespace> {
        self.namespaces.borrow_mut().entry(name.clone()).or_insert_with(|| Rc::new(Namespace::read(&name, pid))).clone()
    }

    fn inet(&self, own: &Namespace, socket: &InetSocket) -> Socket {
        let protocol = if socket.is_udp { "UDP" } else { "TCP" };
        let is_accepted = !socket.is_udp && !own.inet.open_at(socket.local, false).is_empty();
        let of = |what, other_end| Socket { is_accepted, is_datagram: socket.is_udp, ..unconnected(what, other_end) };
        if !is_connected(socket) {
            let how = if socket.is_listening { "listening on" } else { "at" };
            return of(format!("{protocol}, {how} {}", socket.local), OtherEnd::Anybody);
        }
        let what = format!("{protocol} {} to {}", socket.local, socket.remote);
        if socket.is_connecting {
            let listeners = self.listening_at(own, socket);
            let before = listeners.iter().map(|listener| listener.unread).sum();
            let other_end = match listeners.is_empty() {
                true => OtherEnd::NotHere,
                false => OtherEnd::Listeners(listeners.iter().map(|listener| listener.inode).collect()),
            };
            return Socket { before: Some(before), ..of(what, other_end) };
        }
        let times = own.diagnosis.as_ref().filter(|_| !socket.is_udp);
        let times = times.and_then(|diagnosis| diagnosis.tcp_times(socket.local, socket.remote));
        let other = own.inet.other_end(socket).map(|other| (other, own.inet.open_at(socket.remote, false)));
        let Some((other, listeners)) = other.or_else(|| self.in_other_namespaces(socket)) else {
            let unread_there = Some(socket.unsent).filter(|_| !socket.is_udp);
            return Socket { times, unread_there, ..of(what, OtherEnd::NotHere) };
        };
        let unread_there = Some(socket.unsent + other.unread);
        let other_end = match (other.inode, listeners.is_empty()) {
            (0, false) => OtherEnd::Listeners(listeners.iter().map(|listener| listener.inode).collect()),
            (0, true) => OtherEnd::NotHere,
            (inode, _) => OtherEnd::Socket(inode),
        };
        Socket { times, unread_there, ..of(what, other_end) }
    }

    /// Who listens at the address that a socket wants to be connected to.
    fn listening_at(&self, own: &Namespace, socket: &InetSocket) -> Vec<InetSocket> {
        let to = socket.remote;
        let is_own = to.ip().is_loopback() || to.ip() == socket.local.ip() || own.has_address(to.ip());
        let of = |namespace: &Namespace| namespace.inet.open_at(to, false);
        if is_own {
            return of(own);
        }
        let others = self.all_namespaces().iter().map(|(name, pid)| self.namespace(name.clone(), *pid));
        others.filter(|other| other.has_address(to.ip())).map(|other| of(&other)).next().unwrap_or_default()
    }

    /// A socket of `pid` that waits to be connected to the unix socket `name`: there is no room in the queue of who listens.
    pub(super) fn connecting_to(&self, pid: Pid, name: &str) -> Option<Socket> {
        let own = self.namespace(namespace_of(pid)?, pid);
        let listening = own.listening();
        let mut found: Vec<&UnixSocket> = listening.iter().filter(|it| it.name.as_deref() == Some(name)).collect();
        // A path may be given from another directory than the one it was bound from.
        if found.is_empty() && !name.starts_with('@') {
            let last = |path: &str| path.rsplit('/').next().map(str::to_owned);
            let is_it = |it: &&UnixSocket| it.name.as_deref().and_then(last) == last(name);
            found = listening.iter().filter(is_it).collect();
        }
        // The path of one that listens no more may have been taken by another: only a full queue makes anybody wait.
        found.retain(|it| it.unread > Some(0));
        let other_end = match found.is_empty() {
            true => OtherEnd::NotHere,
            false => OtherEnd::Listeners(found.iter().map(|it| it.inode.into()).collect()),
        };
        let before = found.iter().filter_map(|it| it.unread).map(u64::from).sum();
        let what = format!("unix socket to {name}");
        Some(Socket { before: Some(before), ..unconnected(what, other_end) })
    }

    /// A socket of `pid` that waits for room at the unix socket `name`, which it sends a datagram to.
    pub(super) fn sending_to(&self, pid: Pid, name: &str) -> Option<Socket> {
        let own = self.namespace(namespace_of(pid)?, pid);
        let all = own.diagnosis.as_ref().map(Diagnosis::datagram_unix_sockets)?;
        let found: Vec<&UnixSocket> = all.iter().filter(|it| it.name.as_deref() == Some(name)).collect();
        let [one] = found.as_slice() else { return None };
        let unread_there = one.unread.map(u64::from);
        let what = format!("unix socket to {name}");
        Some(Socket { unread_there, is_datagram: true, ..unconnected(what, OtherEnd::Socket(one.inode.into())) })
    }

    /// The other end of a connection that leads to another namespace, as to a container, and who listens there.
    fn in_other_namespaces(&self, socket: &InetSocket) -> Option<(InetSocket, Vec<InetSocket>)> {
        if socket.remote.ip().is_loopback() {
            return None;
        }
        self.all_namespaces().iter().find_map(|(name, pid)| {
            let namespace = self.namespace(name.clone(), *pid);
            Some((namespace.inet.other_end(socket)?, namespace.inet.open_at(socket.remote, socket.is_udp)))
        })
    }

    fn all_namespaces(&self) -> &[(PathBuf, Pid)] {
        self.all.get_or_init(|| {
            let mut found: HashMap<PathBuf, Pid> = HashMap::new();
            for pid in processes() {
                if let Some(name) = namespace_of(pid).filter(|_| found.len() < MAX_NAMESPACES) {
                    found.entry(name).or_insert(pid);
                }
            }
            found.into_iter().collect()
        })
    }
}

fn unconnected(what: String, other_end: OtherEnd) -> Socket {
    let (unread_there, times, is_datagram, is_accepted, before) = Default::default();
    Socket { what, other_end, unread_there, times, is_datagram, is_accepted, before }
}

fn namespace_of(pid: Pid) -> Option<PathBuf> {
    of_living(pid, |task| std::fs::read_link(format!("{task}/ns/net")).ok())
}

impl Namespace {
    fn read(name: &PathBuf, pid: Pid) -> Self {
        let is_ours = namespace_of(Pid(std::process::id() as i32)).as_ref() == Some(name);
        let diagnosis = match is_ours {
            true => Diagnosis::own(),
            false => of_living(pid, |task| std::fs::File::open(format!("{task}/ns/net")).ok())
                .and_then(Diagnosis::of_namespace),
        };
        let (listening, addresses) = Default::default();
        Self { inet: InetSockets::of_process(pid), diagnosis, listening, member: pid, addresses }
    }

    fn unix(&self, inode: u64) -> Option<Socket> {
        let found = self.unix_socket(inode)?;
        let name = found.name.clone();
        let (mut what, mut unread_there) = ("unix socket".to_owned(), None);
        let other_end = match found.peer {
            _ if found.is_listening => {
                what += ", listening on";
                OtherEnd::Anybody
            }
            None => OtherEnd::Anybody,
            Some(0) => match self.listener_of(found.inode) {
                Some(listener) => {
                    what += &listener.name.as_ref().map(|name| format!(" to {name}")).unwrap_or_default();
                    OtherEnd::Listeners(vec![listener.inode.into()])
                }
                None => OtherEnd::NotHere,
            },
            Some(peer) => {
                let other = self.unix_socket(peer.into());
                unread_there = other.as_ref().and_then(|other| other.unread).map(u64::from);
                let name = other.and_then(|other| other.name);
                what += &name.map(|name| format!(" to {name}")).unwrap_or_default();
                OtherEnd::Socket(peer.into())
            }
        };
        // It has the name of the one that has accepted it.
        let is_accepted = name.is_some() && !found.is_datagram && found.peer.is_some();
        what += &name.map(|name| format!(" {name}")).unwrap_or_default();
        let is_datagram = found.is_datagram;
        Some(Socket { what, other_end, unread_there, times: None, is_datagram, is_accepted, before: None })
    }

    fn unix_socket(&self, inode: u64) -> Option<UnixSocket> {
        self.diagnosis.as_ref()?.unix_socket(u32::try_from(inode).ok()?)
    }

    /// The socket that has not accepted the connection of another one.
    fn listener_of(&self, inode: u32) -> Option<&UnixSocket> {
        self.listening().iter().find(|listener| listener.pending.contains(&inode))
    }

    fn listening(&self) -> &[UnixSocket] {
        let read = || self.diagnosis.as_ref().map(Diagnosis::listening_unix_sockets).unwrap_or_default();
        self.listening.get_or_init(read)
    }

    /// Whether an address is one of the namespace.
    fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.get_or_init(|| addresses_of(self.member)).contains(&address)
    }
}

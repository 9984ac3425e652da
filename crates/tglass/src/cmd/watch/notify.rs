//! Tells systemd that the watch is ready and alive, where it was started by that (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Who wants to know.
pub struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it must be told that we are alive, if so.
    every: Option<Duration>,
    told: Instant,
}

impl Notify {
    /// As the environment says.
    pub fn new() -> Self {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let limit = number("WATCHDOG_USEC").filter(|limit| is_us && *limit > 0);
        let socket = address().and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
        Self { socket, every: limit.map(|limit| Duration::from_micros(limit / 2)), told: Instant::now() }
    }

    fn tell(&mut self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            // Nothing can be done about it: the service manager will notice.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }

    pub fn ready(&mut self) {
        self.tell("READY=1");
    }

    /// A look was taken.
    pub fn alive(&mut self, status: &str) {
        self.told = Instant::now();
        self.tell(&format!("WATCHDOG=1\nSTATUS={}", status.replace('\n', " ")));
    }

    pub fn stopping(&mut self) {
        self.tell("STOPPING=1");
    }

    /// For how long it may be silent from now on.
    pub fn silence(&self) -> Duration {
        self.every.map_or(Duration::MAX, |every| every.saturating_sub(self.told.elapsed()))
    }

    /// Between two looks: nothing hangs, there is just nothing to do yet.
    pub fn waiting(&mut self) {
        self.told = Instant::now();
        self.tell("WATCHDOG=1");
    }
}

fn address() -> Option<SocketAddr> {
    let path = std::env::var_os("NOTIFY_SOCKET")?;
    match path.as_bytes().split_first()? {
        (b'@', name) => SocketAddr::from_abstract_name(name).ok(),
        (b'/', _) => SocketAddr::from_pathname(&path).ok(),
        _ => None,
    }
}

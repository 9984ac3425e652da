//! HTTP for whoever wants to know, bounded in everything: connections, time and size.
//!
//! One thread serves all connections; what takes long is done by a few others. There are never more than [`CONNECTIONS`]: when one
//! more comes, the oldest goes that has nothing to be answered yet, or does not take its answer. So thousands of clients that are
//! slow on purpose keep nobody out for long, and cost no more memory than those few.

use super::pages::{Answer, Pages};
use crate::cli::ListenAt;
use anyhow::{Context, Result, bail, ensure};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

/// Connections at a time.
const CONNECTIONS: usize = 64;
/// Requests at a time that take long: closer looks and profiles.
const LONG_ONES: usize = 4;
/// Time for a request to come, and for all of a connection.
const FOR_REQUEST: Duration = Duration::from_secs(10);
const FOR_ALL: Duration = Duration::from_secs(120);
/// Bytes of a request.
const REQUEST: usize = 16 << 10;
/// Header lines of a request.
const HEADERS: usize = 64;

/// Answers HTTP, until it is dropped.
pub struct Server {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    sockets: Vec<PathBuf>,
}

enum Listener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Server {
    /// Begins to listen; what cannot be listened at is said at once. `allow` is for addresses that others can reach.
    pub fn begin(at: &[ListenAt], allow: bool, pages: Arc<Pages>) -> Result<Option<Self>> {
        if at.is_empty() {
            return Ok(None);
        }
        let mut sockets = Vec::new();
        let mut listeners = Vec::new();
        for at in at {
            listeners.push(match at {
                ListenAt::Tcp(address) => {
                    ensure!(
                        allow || address.ip().is_loopback(),
                        "other machines could reach {address}, and would see what tglass sees (--allow does it anyway)"
                    );
                    let listener = std::net::TcpListener::bind(address);
                    let listener = listener.with_context(|| format!("cannot listen at {address}"))?;
                    listener.set_nonblocking(true)?;
                    Listener::Tcp(listener)
                }
                ListenAt::Unix(path) => {
                    let listener = bind_unix(path)?;
                    listener.set_nonblocking(true)?;
                    sockets.push(path.clone());
                    Listener::Unix(listener)
                }
            });
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(LONG_ONES)
            .thread_name("tg-pages")
            .build()
            .context("cannot serve HTTP")?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let serve = move || {
            runtime.block_on(async {
                let shared = Arc::new(Shared { pages, long_ones: AtomicUsize::new(0), is_open_to_all: allow });
                let connections = Arc::new(Mutex::new(Connections::default()));
                for listener in listeners {
                    tokio::spawn(accept(listener, shared.clone(), connections.clone()));
                }
                let _ = stopped.await;
            });
            // A profile that still runs does not keep us.
            runtime.shutdown_background();
        };
        let thread =
            std::thread::Builder::new().name("tg-http".to_owned()).spawn(serve).context("cannot serve HTTP")?;
        Ok(Some(Self { stop: Some(stop), thread: Some(thread), sockets }))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for path in &self.sockets {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Listens at a socket in the file system, which only our user may use. One that nobody listens at any more is replaced.
fn bind_unix(path: &Path) -> Result<std::os::unix::net::UnixListener> {
    use std::os::unix::fs::FileTypeExt;
    use std::os::unix::net::{UnixListener, UnixStream};
    if let Ok(about) = std::fs::symlink_metadata(path) {
        ensure!(about.file_type().is_socket(), "{} is there, and is no socket (choose another path)", path.display());
        if UnixStream::connect(path).is_ok() {
            bail!("somebody listens at {} already (choose another path)", path.display());
        }
        std::fs::remove_file(path).with_context(|| format!("cannot replace {}", path.display()))?;
    }
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    let only_us = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, only_us).with_context(|| format!("cannot protect {}", path.display()))?;
    Ok(listener)
}

struct Shared {
    pages: Arc<Pages>,
    long_ones: AtomicUsize,
    /// Whether requests may name us as they like.
    is_open_to_all: bool,
}

/// What is open, by age.
#[derive(Default)]
struct Connections {
    next: u64,
    open: BTreeMap<u64, Connection>,
}

struct Connection {
    task: AbortHandle,
    /// Whether it has asked something that is being answered: it has to wait for us, and not we for it.
    is_waiting: Arc<AtomicBool>,
}

impl Connections {
    /// Makes room for one more. `false` if all others wait for their answers.
    fn make_room(&mut self) -> bool {
        self.open.retain(|_, it| !it.task.is_finished());
        if self.open.len() < CONNECTIONS {
            return true;
        }
        let slow = self.open.iter().find(|(_, it)| !it.is_waiting.load(Ordering::Relaxed)).map(|(id, _)| *id);
        let Some(connection) = slow.and_then(|id| self.open.remove(&id)) else { return false };
        connection.task.abort();
        true
    }
}

async fn accept(listener: Listener, shared: Arc<Shared>, connections: Arc<Mutex<Connections>>) {
    match listener {
        Listener::Tcp(listener) => {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => begin(stream, true, &shared, &connections),
                    Err(_) => no_more(&connections).await,
                }
            }
        }
        Listener::Unix(listener) => {
            let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { return };
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => begin(stream, false, &shared, &connections),
                    Err(_) => no_more(&connections).await,
                }
            }
        }
    }
}

/// No more files can be opened: one goes, and the next one is taken after a pause.
async fn no_more(connections: &Mutex<Connections>) {
    lock(connections).make_room();
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn lock(connections: &Mutex<Connections>) -> std::sync::MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

fn begin<S>(stream: S, is_tcp: bool, shared: &Arc<Shared>, connections: &Mutex<Connections>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut connections = lock(connections);
    if !connections.make_room() {
        return;
    }
    let (shared, is_waiting) = (shared.clone(), Arc::new(AtomicBool::new(false)));
    let waits = is_waiting.clone();
    let serve = async move {
        // The permit for a long answer lives as long as the connection: what is not taken stays in memory.
        let permit = Arc::new(Mutex::new(None));
        let service = service_fn(|request| answer(request, is_tcp, shared.clone(), waits.clone(), permit.clone()));
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(FOR_REQUEST)
            .max_headers(HEADERS)
            .max_buf_size(REQUEST)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        // Who is too slow, or sends what is no HTTP, is left alone.
        let _ = tokio::time::timeout(FOR_ALL, connection).await;
    };
    let task = tokio::spawn(serve).abort_handle();
    let id = connections.next;
    connections.next += 1;
    connections.open.insert(id, Connection { task, is_waiting });
}

/// Counts an answer that takes long.
struct Permit(Arc<Shared>);

impl Permit {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let more = |count: usize| (count < LONG_ONES).then_some(count + 1);
        shared.long_ones.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(shared.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.long_ones.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn answer(
    request: Request<Incoming>,
    is_tcp: bool,
    shared: Arc<Shared>,
    is_waiting: Arc<AtomicBool>,
    permit: Arc<Mutex<Option<Arc<Permit>>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_head = request.method() == Method::HEAD;
    if !is_head && request.method() != Method::GET {
        return Ok(respond(Answer::refused(405, "only GET and HEAD are answered"), false));
    }
    // A page of the web must not read this by a name that it has made to lead here.
    if is_tcp && !shared.is_open_to_all && !names_address(&request) {
        return Ok(respond(Answer::refused(403, "the Host is neither an address nor localhost"), false));
    }
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    if let Some(answer) = shared.pages.quick(&path, &query) {
        return Ok(respond(answer, is_head));
    }
    let Some(taken) = Permit::take(&shared).map(Arc::new) else {
        return Ok(respond(Answer::refused(503, "other requests are being answered that take long; try again"), false));
    };
    if let Ok(mut permit) = permit.lock() {
        *permit = Some(taken.clone());
    }
    is_waiting.store(true, Ordering::Relaxed);
    let pages = shared.pages.clone();
    let work = tokio::task::spawn_blocking(move || {
        let answer = pages.long(&path, &query);
        // Not before: the client may be gone, and the work is not.
        drop(taken);
        answer
    });
    let answer = work.await.unwrap_or_else(|_| Answer::refused(500, "the answer failed"));
    is_waiting.store(false, Ordering::Relaxed);
    Ok(respond(answer, is_head))
}

/// Whether the request calls us by an address, or `localhost`.
fn names_address(request: &Request<Incoming>) -> bool {
    let Some(host) = request.headers().get(header::HOST) else { return true };
    host.to_str().is_ok_and(is_address)
}

fn is_address(host: &str) -> bool {
    let without_port = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    without_port == "localhost" || without_port.parse::<IpAddr>().is_ok()
}

fn respond(answer: Answer, is_head: bool) -> Response<Full<Bytes>> {
    let length = answer.body.len();
    let body = if is_head { Bytes::new() } else { Bytes::from(answer.body) };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(answer.kind));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_LENGTH, header::HeaderValue::from(length));
    if let Some(name) = answer.file.and_then(|name| format!("attachment; filename=\"{name}\"").parse().ok()) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn hosts() {
        for host in ["localhost", "localhost:9911", "127.0.0.1:9911", "127.0.0.1", "[::1]:9911", "[::1]"] {
            assert!(is_address(host), "{host}");
        }
        for host in ["evil.example", "evil.example:9911", "localhost.evil.example", "", "127.0.0.1.evil.example:80"] {
            assert!(!is_address(host), "{host}");
        }
    }
}

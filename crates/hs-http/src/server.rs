//! Listens, and answers.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use hs_engine::queue::ClientKey;
use hs_linux::LinuxError;
use hs_linux::sockets::listen_at;
use hs_serve::{Certificates, SlotLimits, Slots, TlsError};
use hs_units::ByteRange;
use hyper::body::{Bytes, Incoming};
use hyper::header::{HOST, HeaderValue, RETRY_AFTER};
use hyper::http::uri::Authority;
use hyper::{Request, Response, StatusCode};
use hyper_util::server::graceful::GracefulShutdown;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::activity::Answering;
use super::answer::{Answer, Content, HttpFile, HttpPage, answer, encoded};
use super::body::{self, Counted, FileBody, Source};
use super::buffers::{Buffers, Sending};
use super::connection::{Peer, accept};
use super::hidden::{Hidden, Refusal};
use super::listener::Listener;
use super::pacer::{Pacer, Rates};
use super::room::Room;

/// Reads of one file at once, each with a thread: a file whose medium hangs holds its own threads and no
/// other's.
const READS_OF_FILE: usize = 16;

/// Protocols that a client may choose from (ALPN).
const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// How a server proves who it is.
#[derive(Clone)]
pub struct HttpTls(pub(super) Arc<Certificates>);

impl HttpTls {
    /// As [`Certificates::load`].
    ///
    /// # Errors
    /// When a file cannot be read, or they do not belong together.
    pub fn load(directory: &Path, verify_peer: bool) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(Certificates::load(directory, verify_peer, PROTOCOLS)?)))
    }

    /// Reads the files again, for connections that come from now on.
    ///
    /// # Errors
    /// As [`HttpTls::load`]; then those that were read before still count.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.0.reload()
    }
}

/// One answer, for the access log.
#[derive(Clone, Debug)]
pub struct Access {
    /// Who asked; none is a process of this machine, by a socket in the file system.
    pub client: Option<IpAddr>,
    /// When.
    pub at: SystemTime,
    /// `METHOD PATH VERSION`.
    pub request: String,
    /// The range that was asked for, as the client wrote it.
    pub range: Option<String>,
    /// The status.
    pub status: u16,
    /// Bytes of content that were handed to the connection.
    pub sent_bytes: u64,
}

/// Who is told of answers.
pub type AccessLog = Arc<dyn Fn(&Access) + Send + Sync>;

/// Is told which bytes of which file, by its number, were handed to a connection.
pub type Sent = Arc<dyn Fn(usize, ByteRange) + Send + Sync>;

/// Limits of a server.
#[derive(Clone)]
pub struct HttpServeOptions {
    /// With TLS.
    pub tls: Option<HttpTls>,
    /// Connections at once. When there are as many, the client with the most of them loses one for the next.
    pub most_connections: usize,
    /// Connections at once of one client, an address or a /64 of IPv6. With the next it loses the one that is
    /// idle longest, or is turned away.
    pub most_connections_of_client: usize,
    /// Answers at once to one client; a client that asks for more is told to come back.
    pub most_answers_of_client: usize,
    /// Bytes of files that all answers together hold, read and not sent yet. Beyond that each client has a
    /// little.
    pub most_held_bytes: u64,
    /// How fast it may send.
    pub rates: Rates,
    /// How long a client may take from its connection, or its last answer, to the end of the next request's
    /// head.
    pub head_patience: Duration,
    /// How long a client may take nothing of its answers.
    pub answer_patience: Duration,
    /// How long answers may go on when the server ends.
    pub end_patience: Duration,
    /// Is told of each answer when it is over.
    pub access: Option<AccessLog>,
    /// Is told of the bytes of files as they are sent; called in the thread of the server.
    pub sent: Option<Sent>,
    /// Who may see anything at all: all clients when `None`.
    pub hidden: Option<Hidden>,
}

impl HttpServeOptions {
    /// For a few clients that ask for little, such as Prometheus or a browser.
    #[must_use]
    pub fn for_a_few() -> Self {
        Self {
            most_connections: 16,
            most_connections_of_client: 16,
            most_answers_of_client: 8,
            head_patience: Duration::from_secs(5),
            answer_patience: Duration::from_secs(5),
            end_patience: Duration::from_secs(1),
            ..Self::default()
        }
    }
}

impl Default for HttpServeOptions {
    fn default() -> Self {
        Self {
            tls: None,
            most_connections: 4096,
            most_connections_of_client: 256,
            most_answers_of_client: 64,
            most_held_bytes: 256 << 20,
            rates: Rates::default(),
            head_patience: Duration::from_secs(60),
            answer_patience: Duration::from_secs(60),
            end_patience: Duration::from_secs(5),
            access: None,
            sent: None,
            hidden: None,
        }
    }
}

/// What a server has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpStats {
    /// Connections that were accepted.
    pub connections: u64,
    /// Requests that were answered, or are.
    pub requests: u64,
    /// Bytes of content that were handed to connections.
    pub sent_bytes: u64,
    /// Bytes of files that all answers hold now.
    pub held_bytes: u64,
    /// Clients that are being answered now.
    pub clients: u64,
}

/// What all connections share.
pub(super) struct Shared {
    files: Vec<HttpFile>,
    /// Where the files' bytes come from.
    sources: Vec<Arc<Source>>,
    pages: Vec<HttpPage>,
    pub(super) options: HttpServeOptions,
    pub(super) connections: AtomicU64,
    /// Requests and bytes of each file, and of everything else.
    counts: Vec<Counts>,
    answering: Mutex<HashMap<ClientKey, usize>>,
    pacer: Arc<Pacer>,
    buffers: Arc<Buffers>,
    room: Arc<Room>,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    sent_bytes: AtomicU64,
}

/// A server at work. Dropping it ends it.
pub struct HttpServer {
    shared: Arc<Shared>,
    sockets: Vec<OwnedFd>,
    addresses: Vec<String>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Listens at these addresses, `HOST:PORT`, as [`listen_at`] does.
    ///
    /// # Errors
    /// When an address is taken or not to be had.
    pub fn listen(addresses: &[String]) -> Result<Vec<OwnedFd>, LinuxError> {
        let mut sockets = Vec::new();
        for address in addresses {
            sockets.extend(listen_at(address.as_str(), address)?.into_iter().map(OwnedFd::from));
        }
        Ok(sockets)
    }

    /// Serves `files` and `pages` at these listening sockets: of TCP, or in the file system.
    ///
    /// # Errors
    /// When two files have one name, or a thread cannot be started.
    pub fn start(
        files: Vec<HttpFile>,
        pages: Vec<HttpPage>,
        sockets: Vec<OwnedFd>,
        options: HttpServeOptions,
    ) -> Result<Self, LinuxError> {
        let failed = |source| LinuxError::Io { action: "start", path: "the HTTP server".into(), source };
        for (number, file) in files.iter().enumerate() {
            if files[..number].iter().any(|other| other.name == file.name) {
                return Err(failed(io::Error::other(format!("two files are called {}", file.name))));
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(READS_OF_FILE * files.len().max(1))
            .thread_name("hs-http-read")
            .build()
            .map_err(failed)?;
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for socket in &sockets {
            let _in_runtime = runtime.enter();
            let listener = Listener::of(socket.try_clone().map_err(failed)?).map_err(failed)?;
            addresses.push(listener.address().map_err(failed)?);
            listeners.push(listener);
        }
        let counts = (0..=files.len()).map(|_| Counts::default()).collect();
        let source = |file: &HttpFile| Source::new(Arc::clone(&file.store), READS_OF_FILE);
        let shared = Arc::new(Shared {
            sources: files.iter().map(source).collect(),
            files,
            pages,
            pacer: Pacer::new(options.rates),
            buffers: Buffers::new(),
            room: Room::new(options.most_held_bytes),
            options,
            connections: AtomicU64::new(0),
            counts,
            answering: Mutex::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("hs-http-serve".to_owned())
            .spawn(move || {
                runtime.block_on(serve(&serving, listeners, stopped));
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok(Self { shared, sockets, addresses, stop, thread: Some(thread) })
    }

    /// The listening sockets, for a supervisor to keep.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// Where a file is found, at each address.
    #[must_use]
    pub fn urls(&self, file: usize) -> Vec<String> {
        let scheme = if self.shared.options.tls.is_some() { "https" } else { "http" };
        let name = encoded(&self.shared.files[file].name);
        self.addresses.iter().map(|address| format!("{scheme}://{address}/{name}")).collect()
    }

    /// What it has done; of one file, or of all and of what was no file.
    #[must_use]
    pub fn stats(&self, file: Option<usize>) -> HttpStats {
        let sum = |of: fn(&Counts) -> &AtomicU64| match file {
            Some(file) => of(&self.shared.counts[file]).load(Relaxed),
            None => self.shared.counts.iter().map(|counts| of(counts).load(Relaxed)).sum(),
        };
        HttpStats {
            connections: self.shared.connections.load(Relaxed),
            requests: sum(|counts| &counts.requests),
            sent_bytes: sum(|counts| &counts.sent_bytes),
            held_bytes: self.shared.room.held_bytes(),
            clients: self.shared.answering.lock().len() as u64,
        }
    }

    /// Accepts no connection any more, and waits for the answers that are under way, within limits.
    pub fn stop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn serve(shared: &Arc<Shared>, listeners: Vec<Listener>, mut stopped: watch::Receiver<bool>) {
    let (all, client) = (shared.options.most_connections, shared.options.most_connections_of_client);
    let slots = Slots::new(SlotLimits { all, client });
    // Each listener waits with one for its next connection.
    let sockets = Arc::new(Semaphore::new(all.min(Semaphore::MAX_PERMITS / 2) + listeners.len()));
    let graceful = Arc::new(GracefulShutdown::new());
    tokio::spawn(Arc::clone(&shared.pacer).run());
    if shared.options.rates.together.is_none() {
        tokio::spawn(Arc::clone(&shared.buffers).keep());
    }
    let accepting: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            let (slots, sockets) = (Arc::clone(&slots), Arc::clone(&sockets));
            tokio::spawn(accept(Arc::clone(shared), listener, slots, sockets, Arc::clone(&graceful)))
        })
        .collect();
    // That the server is gone is as good as being told.
    let _ = stopped.wait_for(|stopped| *stopped).await;
    for accepting in accepting {
        accepting.abort();
        let _ = accepting.await;
    }
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = tokio::time::timeout(shared.options.end_patience, graceful.shutdown()).await;
    }
}

/// What a request asks for: behind the secret, where the server has one.
fn find<'r>(shared: &Shared, request: &'r Request<Incoming>) -> Result<&'r str, Refusal> {
    let path = request.uri().path();
    let Some(hidden) = &shared.options.hidden else { return Ok(path) };
    let mut hosts = request.headers().get_all(HOST).iter();
    let named = hosts.next().and_then(|host| host.to_str().ok());
    if hosts.next().is_some() {
        return Err(Refusal::Hosts);
    }
    // HTTP/2 has it in the address.
    hidden.find(named.or(request.uri().authority().map(Authority::as_str)), path)
}

/// The answer to one request of a client.
pub(super) fn respond(shared: &Arc<Shared>, peer: &Peer, request: &Request<Incoming>) -> Response<Counted> {
    let path = request.uri().path();
    let (query, headers) = (request.uri().query().unwrap_or_default(), request.headers());
    let mut answer = match find(shared, request) {
        Ok(path) => answer(&shared.files, &shared.pages, request.method(), path, query, headers),
        Err(refusal) => Answer::text(refusal.status(), refusal.to_string()),
    };
    let is_full = {
        let mut answering = shared.answering.lock();
        let of_client = answering.entry(peer.client).or_insert(0);
        *of_client += 1;
        *of_client > shared.options.most_answers_of_client
    };
    if is_full {
        answer = Answer::text(StatusCode::SERVICE_UNAVAILABLE, "too many requests at once\n".to_owned());
        answer.headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    let file = match answer.content {
        Content::File(number, _) => number,
        _ => shared.files.len(),
    };
    shared.counts[file].requests.fetch_add(1, Relaxed);
    let has_content = matches!(answer.content, Content::File(..));
    let position = match &answer.content {
        Content::File(_, range) => range.offset,
        _ => 0,
    };
    let ongoing = Ongoing {
        shared: Arc::clone(shared),
        _sending: has_content.then(|| shared.buffers.begin(&peer.connection)),
        answering: peer.activity.begin(),
        client: peer.client,
        file,
        position,
        access: Access {
            client: peer.address.map(|address| address.ip()),
            at: SystemTime::now(),
            // What is behind a '?' means nothing here, and might be a secret.
            request: format!("{} {path} {:?}", request.method(), request.version()),
            range: request.headers().get("range").and_then(|range| Some(range.to_str().ok()?.to_owned())),
            status: answer.status.as_u16(),
            sent_bytes: 0,
        },
    };
    let content = match answer.content {
        Content::Nothing => body::Content::Text(None),
        Content::Text(text) => body::Content::Text(Some(Bytes::from(text))),
        Content::File(number, range) => {
            let source = Arc::clone(&shared.sources[number]);
            let (pacer, room) = (Arc::clone(&shared.pacer), Arc::clone(&shared.room));
            body::Content::File(FileBody::new(source, range, pacer, room, peer.client))
        }
    };
    let mut response = Response::new(Counted { content, ongoing });
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}

/// An answer that is under way. When it is gone, the access log is told.
pub(super) struct Ongoing {
    shared: Arc<Shared>,
    _sending: Option<Sending>,
    answering: Answering,
    client: ClientKey,
    file: usize,
    /// Where in the file the next byte is.
    position: u64,
    access: Access,
}

impl Ongoing {
    /// The connection wants more of it, which is there or not.
    pub(super) fn polled(&mut self, is_there: bool) {
        self.answering.polled(is_there);
    }

    pub(super) fn sent(&mut self, bytes: u64) {
        self.access.sent_bytes += bytes;
        self.shared.buffers.sent(bytes);
        if let (Some(tell), true) = (&self.shared.options.sent, self.file < self.shared.files.len()) {
            tell(self.file, ByteRange::new(self.position, bytes));
        }
        self.position += bytes;
        self.shared.counts[self.file].sent_bytes.fetch_add(bytes, Relaxed);
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        let mut answering = self.shared.answering.lock();
        if let Some(of_client) = answering.get_mut(&self.client) {
            *of_client -= 1;
            if *of_client == 0 {
                answering.remove(&self.client);
            }
        }
        drop(answering);
        if let Some(tell) = &self.shared.options.access {
            tell(&self.access);
        }
    }
}

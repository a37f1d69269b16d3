//! Takes connections, and speaks HTTP on each for as long as it does something.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use hs_engine::queue::ClientKey;
use hs_serve::{Slots, address_key};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::activity::{Activity, Ended, Patience, Watched};
use super::body::Never;
use super::buffers::Connection;
use super::listener::{Listener, Stream};
use super::server::{HttpTls, Shared, respond};

/// The longest head of a request; the same is what waits of an answer until its client takes more.
const MOST_HEAD_BYTES: usize = 16 << 10;
/// Requests at once on a connection of HTTP/2.
const MOST_STREAMS: u32 = 64;
/// How long to wait when the system has no descriptors left, and a connection has to end first.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// All clients of a socket in the file system: its mode decides which processes may connect.
const OF_THIS_MACHINE: ClientKey = ClientKey(0);

/// The other side of a connection, and what it does.
#[derive(Clone)]
pub(super) struct Peer {
    /// None is a process of this machine.
    pub(super) address: Option<SocketAddr>,
    pub(super) client: ClientKey,
    pub(super) connection: Arc<Connection>,
    pub(super) activity: Arc<Activity>,
}

/// Takes connections, without an end: the next when there is a permit for its socket. One that has lost its
/// slot to another still has a socket, for a moment.
pub(super) async fn accept(
    shared: Arc<Shared>,
    listener: Listener,
    slots: Arc<Slots>,
    sockets: Arc<Semaphore>,
    graceful: Arc<GracefulShutdown>,
) {
    // It is never closed.
    while let Ok(socket_permit) = Arc::clone(&sockets).acquire_owned().await {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // A client that was gone at once, or no descriptors: neither is a reason to end.
                log::debug!("no connection could be accepted: {error}");
                if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
                    slots.make_room();
                }
                tokio::time::sleep(SHORTAGE_PAUSE).await;
                continue;
            }
        };
        shared.connections.fetch_add(1, Relaxed);
        let options = &shared.options;
        let patience = Patience { head: options.head_patience, answer: options.answer_patience };
        let name =
            address.map_or_else(|| "a process of this machine".to_owned(), |address| address.to_string());
        let socket = match rustix::io::dup(&stream) {
            Ok(socket) => Arc::new(socket),
            Err(error) => {
                log::debug!("{name}: {error}");
                slots.make_room();
                continue;
            }
        };
        let client = address.map_or(OF_THIS_MACHINE, |address| address_key(address.ip()));
        let activity = Activity::new(patience, Arc::clone(&socket));
        let Some(slot) = slots.take(client, activity.clone()) else {
            log::debug!("{name} is turned away: too many connections");
            continue;
        };
        let connection = Connection::new(socket, client);
        let peer = Peer { address, client, connection, activity };
        let (shared, watcher) = (Arc::clone(&shared), graceful.watcher());
        tokio::spawn(async move {
            // It goes last, when the connection's descriptors are closed.
            let _socket_permit = socket_permit;
            let activity = Arc::clone(&peer.activity);
            match until_end(converse(shared, stream, peer, watcher), &activity).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => log::debug!("{name}: {error}"),
                Err(ended) => {
                    log::debug!("{name} was hung up on: {ended}");
                    activity.hang_up();
                }
            }
            drop(slot);
        });
    }
}

/// Does the work unless the connection is to be ended before.
async fn until_end<F: Future>(work: F, activity: &Activity) -> Result<F::Output, Ended> {
    let (mut work, mut end) = (pin!(work), pin!(activity.end()));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => end.as_mut().poll(context).map(Err),
    })
    .await
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// HTTP/2 only where TLS has agreed on it: without TLS no client of ours speaks it, and the protocol need not
/// be guessed from the first bytes.
async fn converse(shared: Arc<Shared>, stream: Stream, peer: Peer, watcher: Watcher) -> Result<(), Failure> {
    let stream = Watched::new(stream, Arc::clone(&peer.activity));
    let tls = shared.options.tls.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(&shared, &peer, &request);
        async move { Ok::<_, Never>(response) }
    });
    let mut one = http1::Builder::new();
    // Time is `Activity`'s matter: the connection has no timers of its own.
    one.header_read_timeout(None).max_buf_size(MOST_HEAD_BYTES);
    let Some(HttpTls(certificates)) = tls else {
        return Ok(watcher.watch(one.serve_connection(TokioIo::new(stream), service)).await?);
    };
    let stream = TlsAcceptor::from(certificates.now()).accept(stream).await?;
    let is_two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = TokioIo::new(stream);
    if !is_two {
        return Ok(watcher.watch(one.serve_connection(stream, service)).await?);
    }
    let mut two = http2::Builder::new(TokioExecutor::new());
    two.timer(TokioTimer::new()).max_concurrent_streams(MOST_STREAMS);
    two.max_header_list_size(MOST_HEAD_BYTES as u32).max_send_buf_size(MOST_HEAD_BYTES);
    // Boxed: it is large, and most connections are none of HTTP/2.
    Ok(Box::pin(watcher.watch(two.serve_connection(stream, service))).await?)
}

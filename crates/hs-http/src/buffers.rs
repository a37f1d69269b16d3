//! How much may wait in the kernel for each client, where the server does not know the rate of its link.
//!
//! While several clients are sent something, [`Buffers`] bounds what is in flight to each of them, in all its
//! connections together: to what its share of the rate takes in a round trip and a moment more. A link that
//! could carry more is not left idle, since an answer that finds it empty is sent sooner, and the bound
//! follows the rate. Equal clients get more nearly the same by that. A client with many connections still
//! gets what TCP, which shares by connections, gives it: see docs/decisions/030-unknown-rate.md.
//!
//! The kernel keeps the bound: it is each connection's `SO_SNDBUF`, which counts bytes until they are
//! acknowledged. Who is alone has the kernel's own choice (`SO_BUF_LOCK`).

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hs_engine::queue::ClientKey;
use hs_linux::sockets;
use parking_lot::Mutex;
use rustix::net::sockopt;
use tokio::sync::Notify;

/// How often rates are measured and bounds set.
const TICK: Duration = Duration::from_millis(50);
/// The rate is the best of so many ticks: a second, in which a client that was held back for a moment has not
/// lost its share.
const REMEMBERED_TICKS: usize = 20;
/// How long the bytes of all clients together may queue before the link: much longer than timers and threads
/// are late.
const QUEUE: Duration = Duration::from_millis(20);
/// A connection has so much at least, or it would wait for acknowledgements of single packets. A client with
/// many connections has more than its part of the queue by that; then all clients are given as much.
const LEAST_BYTES: u64 = 16 << 10;
/// But the queue does not become longer than this for it, which is long for a person who waits, and less than
/// TCP alone would let it be.
const LONGEST_QUEUE: Duration = Duration::from_millis(250);

/// A connection of a client.
pub(super) struct Connection {
    socket: Arc<OwnedFd>,
    client: ClientKey,
    /// Answers that are under way on it.
    answers: Mutex<u32>,
}

/// The clients that are sent something now.
pub(super) struct Buffers {
    clients: Mutex<HashMap<ClientKey, Vec<Arc<Connection>>>>,
    sent_bytes: AtomicU64,
    changed: Notify,
}

impl Connection {
    /// A connection, by another descriptor than the one that is served.
    pub(super) fn new(socket: Arc<OwnedFd>, client: ClientKey) -> Arc<Self> {
        Arc::new(Self { socket, client, answers: Mutex::default() })
    }

    /// Lets so many bytes wait in the kernel; it counts twice as many, of which half are for its own.
    fn bound(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(1 << 30);
        // Beyond the system's limit only root may go.
        if sockopt::set_socket_send_buffer_size_force(&self.socket, bytes).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(&self.socket, bytes);
        }
    }
}

impl Buffers {
    /// No client is sent anything.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { clients: Mutex::default(), sent_bytes: AtomicU64::new(0), changed: Notify::new() })
    }

    /// So many bytes went to a client.
    pub(super) fn sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Relaxed);
    }

    /// An answer begins on this connection; it ends when what is returned is dropped.
    pub(super) fn begin(self: &Arc<Self>, connection: &Arc<Connection>) -> Sending {
        let mut answers = connection.answers.lock();
        *answers += 1;
        if *answers == 1 {
            self.clients.lock().entry(connection.client).or_default().push(Arc::clone(connection));
            self.changed.notify_one();
        }
        drop(answers);
        Sending { buffers: Arc::clone(self), connection: Arc::clone(connection) }
    }

    /// Sets bounds while several clients are sent something, without an end.
    pub(super) async fn keep(self: Arc<Self>) {
        loop {
            while self.clients.lock().len() < 2 {
                self.changed.notified().await;
            }
            self.keep_bounds().await;
            for connection in self.clients.lock().values().flatten() {
                sockets::unlock_buffers(&connection.socket);
            }
        }
    }

    /// Until one client at most is left.
    async fn keep_bounds(&self) {
        let mut rates = [0.0_f64; REMEMBERED_TICKS];
        for tick in 0_usize.. {
            let (before, began) = (self.sent_bytes.load(Relaxed), Instant::now());
            tokio::time::sleep(TICK).await;
            let sent = self.sent_bytes.load(Relaxed) - before;
            rates[tick % REMEMBERED_TICKS] = sent as f64 / began.elapsed().as_secs_f64();
            let rate = rates.iter().fold(0.0_f64, |most, rate| most.max(*rate));
            let clients = self.clients.lock();
            if clients.len() < 2 {
                return;
            }
            let share = rate / clients.len() as f64;
            let most = clients.values().map(Vec::len).max().unwrap_or_default();
            for connections in clients.values() {
                set_bounds(connections, share, most);
            }
        }
    }
}

/// Bounds what is on its way to one client, who may have so many bytes a second; the client with the most
/// connections has `most` of them.
fn set_bounds(connections: &[Arc<Connection>], bytes_per_s: f64, most: usize) {
    let round_trip = connections
        .iter()
        .filter_map(|connection| sockets::round_trip(&connection.socket))
        .min()
        .unwrap_or_default();
    let bytes = bound_bytes(bytes_per_s, round_trip, connections.len(), most);
    for connection in connections {
        connection.bound(bytes);
    }
}

/// What may be on its way on each of a client's connections.
fn bound_bytes(bytes_per_s: f64, round_trip: Duration, connections: usize, most: usize) -> u64 {
    // Twice, or a rate that is bounded by it could never grow.
    let wanted = bytes_per_s * (2 * round_trip + QUEUE).as_secs_f64();
    let as_others = (LEAST_BYTES as f64 * most as f64).min(bytes_per_s * LONGEST_QUEUE.as_secs_f64());
    ((wanted.max(as_others) / connections as f64) as u64).max(LEAST_BYTES)
}

/// An answer that is under way.
pub(super) struct Sending {
    buffers: Arc<Buffers>,
    connection: Arc<Connection>,
}

impl Drop for Sending {
    fn drop(&mut self) {
        let mut answers = self.connection.answers.lock();
        *answers -= 1;
        if *answers > 0 {
            return;
        }
        let mut clients = self.buffers.clients.lock();
        if let Some(connections) = clients.get_mut(&self.connection.client) {
            connections.retain(|other| !Arc::ptr_eq(other, &self.connection));
            if connections.is_empty() {
                clients.remove(&self.connection.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A connection of this client, and its other end.
    fn connection(client: [u8; 4]) -> (Arc<Connection>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let far = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (near, _) = listener.accept().expect("accepted");
        (Connection::new(Arc::new(near.into()), hs_serve::address_key(client.into())), far)
    }

    #[test]
    fn a_client_has_one_bound_however_many_connections_it_has() {
        let none = Duration::ZERO;
        assert_eq!(bound_bytes(5e6, none, 1, 4), 100_000);
        assert_eq!(4 * bound_bytes(5e6, none, 4, 4), 100_000);
        // A rate that fills the bound in a round trip can double.
        assert!(bound_bytes(5e6, Duration::from_millis(100), 1, 1) > 1_000_000);
        assert_eq!(bound_bytes(0.0, none, 1, 1), LEAST_BYTES);
    }

    #[test]
    fn one_connection_has_as_much_as_ten_with_the_least_that_there_is() {
        let (none, ten) = (Duration::ZERO, 10 * LEAST_BYTES);
        assert_eq!(10 * bound_bytes(6.25e6, none, 10, 10), ten);
        assert_eq!(bound_bytes(6.25e6, none, 1, 10), ten);
        // On a slow link that would be a queue of a second.
        assert_eq!(bound_bytes(160e3, none, 1, 10), 40_000);
    }

    #[test]
    fn the_kernel_keeps_the_bound() {
        let (one, _far) = connection([10, 0, 0, 1]);
        assert!(sockets::round_trip(&one.socket).is_some());
        one.bound(64 << 10);
        assert_eq!(sockopt::socket_send_buffer_size(&one.socket).expect("known"), 128 << 10);
        sockets::unlock_buffers(&one.socket);
    }

    #[test]
    fn only_connections_with_answers_count() {
        let buffers = Buffers::new();
        let clients = || buffers.clients.lock().values().map(Vec::len).collect::<Vec<_>>();
        let (one, _far) = connection([10, 0, 0, 1]);
        let (other, _other_far) = connection([10, 0, 0, 1]);
        let answers = [buffers.begin(&one), buffers.begin(&one), buffers.begin(&other)];
        assert_eq!(clients(), [2]);
        let (stranger, _stranger_far) = connection([10, 0, 0, 2]);
        let strange = buffers.begin(&stranger);
        assert_eq!(clients().len(), 2);
        let [first, second, third] = answers;
        drop(first);
        assert_eq!(clients().iter().sum::<usize>(), 3);
        drop((second, strange));
        assert_eq!(clients(), [1]);
        drop(third);
        assert!(clients().is_empty());
    }
}

//! Listens, and gives each client a thread.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use hs_linux::LinuxError;
use hs_serve::{Slot, SlotLimits, Slots};
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::address::{Listener, NbdListeners};
use super::client::Client;
use super::connection::{Connection, ForAll, Why};
use super::export::Export;
use super::outgoing::Outgoing;
use super::protocol::Security;
use super::room::Room;
use super::tls::NbdTls;

/// What reads under way may hold beyond what each connection has of its own. With 512 KiB for each of 256
/// connections, and 128 KiB for a thread and its buffers, that is 256 MiB.
const ROOM_BYTES: u64 = 96 << 20;
/// Threads of connections that have lost their slots and are not gone yet.
const MOST_LINGERING: usize = 64;
/// How long to wait before clients are accepted again when the process has no descriptors left.
const SHORTAGE_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Copies of answers that a connection needed in all, from which on free memory is looked for when it ends.
const WORTH_GIVING_BACK_BYTES: u64 = 4 << 20;
/// A connection's thread keeps its buffers on the heap. A request to a server needs more than 256 KiB where
/// nothing is optimized; what is not used takes no memory.
const STACK_BYTES: usize = 1 << 20;

/// The time limits of a server, and whether it uses TLS.
#[derive(Clone, Debug)]
pub struct NbdOptions {
    /// A client that has not chosen an export by then is disconnected.
    pub handshake_patience: Duration,
    /// How long a client that is done, or whose server ends, may take to read its last answers.
    pub end_patience: Duration,
    /// A client that takes nothing of its answers for so long is disconnected.
    pub read_patience: Duration,
    /// Connections at once. When there are as many, the client with the most of them loses one for the next.
    pub most_connections: usize,
    /// Connections at once of one client: an address, a /64 of IPv6, or a user of this machine. With the next
    /// it loses the one that is idle longest, or is turned away.
    pub most_connections_of_client: usize,
    /// With TLS.
    pub tls: Option<NbdTls>,
}

impl NbdOptions {
    pub(super) fn security(&self) -> Security {
        self.tls.as_ref().map_or(Security::Off, NbdTls::security)
    }
}

impl Default for NbdOptions {
    fn default() -> Self {
        Self {
            handshake_patience: Duration::from_secs(10),
            end_patience: Duration::from_secs(5),
            read_patience: Duration::from_secs(60),
            most_connections: 256,
            most_connections_of_client: 64,
            tls: None,
        }
    }
}

/// What a server has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NbdStats {
    /// Clients that have connected.
    pub connections: u64,
    /// Of these, those that are connected now.
    pub connected: u64,
    /// Reads that they asked for.
    pub reads: u64,
    /// Bytes sent to former and present clients.
    pub sent_bytes: u64,
}

/// An NBD server at work. Dropping it ends it: what was asked for is answered, and socket files are removed.
pub struct NbdServer {
    shared: Arc<Shared>,
    uris: Vec<Vec<String>>,
    listeners: Arc<[Listener]>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    common: ForAll,
    wake: OwnedFd,
    slots: Arc<Slots>,
    room: Arc<Room>,
    connected: Mutex<Connected>,
    changed: Condvar,
}

#[derive(Default)]
struct Connected {
    all: HashMap<u64, Arc<Outgoing>>,
    arrived: u64,
    /// Bytes that were sent to former clients.
    sent_bytes: u64,
}

impl NbdServer {
    /// Serves `exports`, of which there must be one, to the clients of `listeners`.
    ///
    /// # Errors
    /// When two exports have one name, or a thread cannot be started.
    pub fn start(
        exports: Vec<Export>,
        listeners: NbdListeners,
        options: NbdOptions,
    ) -> Result<Self, LinuxError> {
        check_names(&exports)?;
        let listeners: Arc<[Listener]> = listeners.0.into();
        listeners.iter().for_each(Listener::serves);
        let uris_of = |export: &Export| {
            listeners.iter().map(|listener| listener.uri(&export.name, options.tls.is_some())).collect()
        };
        let uris = exports.iter().map(uris_of).collect();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(LinuxError::io("make an event for", "the NBD server"))?;
        let (all, client) = (options.most_connections, options.most_connections_of_client);
        let shared = Arc::new(Shared {
            slots: Slots::new(SlotLimits { all, client }),
            room: Room::new(ROOM_BYTES),
            common: ForAll {
                infos: exports.iter().map(Export::info).collect(),
                exports: exports.into(),
                options,
                stop: Arc::default(),
                reads: Arc::default(),
            },
            wake,
            connected: Mutex::default(),
            changed: Condvar::new(),
        });
        let (own, watched) = (Arc::clone(&shared), Arc::clone(&listeners));
        let acceptor = std::thread::Builder::new()
            .name("nbd-accept".to_owned())
            .spawn(move || accept(&own, &watched))
            .map_err(LinuxError::io("start a thread for", "the NBD server"))?;
        Ok(Self { shared, uris, listeners, acceptor: Some(acceptor) })
    }

    /// The sockets that it listens on. A supervisor that holds a duplicate of every one of them keeps clients
    /// waiting, instead of being refused, when this process dies.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(|listener| listener.as_fd())
    }

    /// The addresses of an export as NBD programs take them, one for each socket that is listened on.
    #[must_use]
    pub fn uris(&self, export: usize) -> &[String] {
        self.uris.get(export).map_or(&[], Vec::as_slice)
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> NbdStats {
        let connected = self.shared.connected.lock();
        let sending: u64 = connected.all.values().map(|outgoing| outgoing.sent_bytes()).sum();
        NbdStats {
            connections: connected.arrived,
            connected: connected.all.len() as u64,
            reads: self.shared.common.reads.load(Relaxed),
            sent_bytes: connected.sent_bytes + sending,
        }
    }

    /// Takes no more clients and requests, and waits until what was asked for is answered, or the patience
    /// with clients that do not read it is at its end.
    pub fn stop(&mut self) {
        self.shared.common.stop.store(true, Relaxed);
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.listeners = Arc::default();
        let mut connected = self.shared.connected.lock();
        for outgoing in connected.all.values() {
            outgoing.nudge();
        }
        self.shared.changed.wait_while(&mut connected, |connected| !connected.all.is_empty());
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn check_names(exports: &[Export]) -> Result<(), LinuxError> {
    let bad = |value: &str, needed| {
        Err(LinuxError::Option { option: "export name", value: value.to_owned(), needed })
    };
    if exports.is_empty() {
        return bad("of nothing", "there must be at least one image");
    }
    for (number, export) in exports.iter().enumerate() {
        let name = &export.name;
        if name.is_empty() || name.len() > Export::MAX_NAME_BYTES || name.contains('\0') {
            return bad(name, "it must have 1 to 4096 bytes, none of them zero");
        }
        if exports[..number].iter().any(|other| other.name == *name) {
            return bad(name, "two images have it: name them apart with NAME=IMAGE");
        }
    }
    Ok(())
}

/// Takes clients until the server ends; then the sockets are closed.
fn accept(shared: &Arc<Shared>, listeners: &[Listener]) {
    let mut short = false;
    loop {
        let wake = PollFd::new(&shared.wake, PollFlags::IN);
        let watched =
            listeners.iter().map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        let mut events: Vec<PollFd<'_>> = std::iter::once(wake).chain(watched).collect();
        let outcome =
            if short { poll(&mut events[..1], Some(&SHORTAGE_PAUSE)) } else { poll(&mut events, None) };
        if shared.common.stop.load(Relaxed) {
            return;
        }
        if let Err(error) = outcome
            && error != Errno::INTR
        {
            return log::error!("no more NBD clients are taken: {error}");
        }
        short = false;
        for (listener, event) in listeners.iter().zip(&events[1..]) {
            if !event.revents().is_empty() {
                short |= !take(shared, listener);
            }
        }
    }
}

/// Takes one client; false when this machine has no room for more just now.
fn take(shared: &Arc<Shared>, listener: &Listener) -> bool {
    let (socket, client) = match listener.accept() {
        Ok(arrived) => arrived,
        // It was gone again, or another event has taken it.
        Err(error) => {
            let shortage = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
            let short = error.raw_os_error().is_some_and(|errno| shortage.contains(&errno));
            if short {
                log::error!("an NBD client cannot be taken: {error}");
                shared.slots.make_room();
            }
            return !short;
        }
    };
    if let Err(error) = serve(shared, socket, client) {
        log::error!("NBD client {client} cannot be served: {error}");
    }
    true
}

/// Gives a client its thread.
fn serve(shared: &Arc<Shared>, socket: OwnedFd, client: Client) -> std::io::Result<()> {
    let outgoing = Arc::new(Outgoing::new(socket, client.key(), Arc::clone(&shared.room))?);
    // Before the lock: it may end another connection, which takes its own.
    let most = shared.common.options.most_connections + MOST_LINGERING;
    // A client that finds no thread must not end another one's connection first.
    let has_thread = shared.connected.lock().all.len() < most;
    let slot = has_thread.then(|| shared.slots.take(client.key(), outgoing.clone())).flatten();
    let mut connected = shared.connected.lock();
    connected.arrived += 1;
    let Some(slot) = slot.filter(|_| connected.all.len() < most) else {
        log::warn!("NBD client {client} is turned away: too many are connected");
        return Ok(());
    };
    let number = connected.arrived;
    connected.all.insert(number, Arc::clone(&outgoing));
    drop(connected);
    let entry = Entry { shared: Arc::clone(shared), number, _slot: slot };
    let run = move || {
        log::info!("NBD client {client} has connected");
        match Connection::new(outgoing, &entry.shared.common, client.key()).run() {
            why @ (Why::Said(super::End::Done) | Why::HungUp | Why::Stopped | Why::Evicted) => {
                log::info!("NBD client {client} is gone: {why}");
            }
            why => log::warn!("NBD client {client} was disconnected: {why}"),
        }
    };
    // A thread that cannot start drops its entry.
    std::thread::Builder::new().name(format!("nbd-{number}")).stack_size(STACK_BYTES).spawn(run).map(drop)
}

/// A connection among the counted ones.
struct Entry {
    shared: Arc<Shared>,
    number: u64,
    _slot: Slot,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut connected = self.shared.connected.lock();
        let gone = connected.all.remove(&self.number);
        connected.sent_bytes += gone.as_ref().map_or(0, |outgoing| outgoing.sent_bytes());
        drop(connected);
        if let Some(outgoing) = gone {
            outgoing.close();
            // Clients that do not read leave holes in the heap, which the allocator would keep.
            if outgoing.copied_bytes() >= WORTH_GIVING_BACK_BYTES {
                hs_linux::give_back();
            }
        }
        self.shared.changed.notify_all();
    }
}

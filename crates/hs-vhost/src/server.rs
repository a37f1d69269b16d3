//! Listens, and gives each VMM a thread.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use hs_disk::ServedDisk;
use hs_keep::KeptDisk;
use hs_linux::sockets::peer_process;
use hs_linux::{LinuxError, SocketFile};
use hs_serve::user_key;
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::config::MOST_QUEUES;
use crate::connection::{self, Why};
use crate::request::ID_BYTES;
use crate::ring::{Common, Totals};
use crate::room::Room;

/// VMMs that are served at once. Each may have 8 MiB under way.
const MOST_CONNECTIONS: usize = 32;
/// How long to wait before VMMs are accepted again when the process has no descriptors left.
const SHORTAGE_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How VMMs are served.
#[derive(Clone, Copy, Debug)]
pub struct VhostOptions {
    /// Queues that a guest may have, 1 to [`MOST_QUEUES`]. Each that it uses takes a thread.
    pub queues: u16,
    /// A VMM that has said nothing by then is disconnected.
    pub silence_patience: Duration,
}

impl Default for VhostOptions {
    fn default() -> Self {
        Self { queues: 16, silence_patience: Duration::from_secs(10) }
    }
}

/// What a server has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostStats {
    /// VMMs that have connected.
    pub connections: u64,
    /// Of these, those that are connected now.
    pub connected: u64,
    /// Reads that their guests asked for.
    pub reads: u64,
    /// Bytes that these got.
    pub read_bytes: u64,
    /// Writes, and ranges that were discarded or zeroed.
    pub writes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
}

/// Shows a disk to guests as a virtio block device. Dropped, it ends: what was asked for and is not answered
/// is left to the next server.
pub struct VhostServer {
    shared: Arc<Shared>,
    socket: Arc<SocketFile>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    disk: Arc<ServedDisk>,
    kept: Option<Arc<KeptDisk>>,
    options: VhostOptions,
    /// Becomes readable, and stays so, when the server ends.
    stop: OwnedFd,
    connected: Mutex<Connected>,
    changed: Condvar,
    totals: Arc<Totals>,
}

#[derive(Default)]
struct Connected {
    /// Their connections, to hang up at the end.
    all: HashMap<u64, UnixStream>,
    arrived: u64,
}

impl VhostServer {
    /// Serves VMMs that connect to `socket`: the disk, or what is `kept` over it, to which a guest may write.
    ///
    /// # Errors
    /// When the number of queues is none, or a thread cannot be started.
    pub fn start(
        disk: Arc<ServedDisk>,
        kept: Option<Arc<KeptDisk>>,
        socket: SocketFile,
        options: VhostOptions,
    ) -> Result<Self, LinuxError> {
        if !(1..=MOST_QUEUES).contains(&options.queues) {
            return Err(LinuxError::Option {
                option: "number of queues",
                value: options.queues.to_string(),
                needed: "it must be 1 to 64",
            });
        }
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(LinuxError::io("make an event for", "the vhost-user server"))?;
        socket.serves();
        let socket = Arc::new(socket);
        let shared = Arc::new(Shared {
            disk,
            kept,
            options,
            stop,
            connected: Mutex::default(),
            changed: Condvar::new(),
            totals: Arc::default(),
        });
        let (own, watched) = (Arc::clone(&shared), Arc::clone(&socket));
        let acceptor = std::thread::Builder::new()
            .name("vhost-accept".to_owned())
            .spawn(move || accept(&own, &watched))
            .map_err(|source| LinuxError::Io {
                action: "start a thread for",
                path: "the vhost-user server".into(),
                source,
            })?;
        Ok(Self { shared, socket, acceptor: Some(acceptor) })
    }

    /// The socket that it listens on. A supervisor that holds a duplicate of it keeps VMMs waiting, instead
    /// of being refused, when this process dies.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Where VMMs find it.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.socket.path()
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> VhostStats {
        let connected = self.shared.connected.lock();
        VhostStats {
            connections: connected.arrived,
            connected: connected.all.len() as u64,
            reads: self.shared.totals.reads.load(Relaxed),
            read_bytes: self.shared.totals.bytes.load(Relaxed),
            writes: self.shared.totals.writes.load(Relaxed),
            written_bytes: self.shared.totals.written_bytes.load(Relaxed),
        }
    }

    /// Takes no more VMMs and requests, and waits until no guest's memory is touched any more.
    pub fn stop(&mut self) {
        let _ = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let mut connected = self.shared.connected.lock();
        for stream in connected.all.values() {
            // It may wait for the rest of a message.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.shared.changed.wait_while(&mut connected, |connected| !connected.all.is_empty());
    }
}

impl Drop for VhostServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Takes VMMs until the server ends.
fn accept(shared: &Arc<Shared>, socket: &SocketFile) {
    let mut short = false;
    loop {
        let mut watched = [
            PollFd::new(&shared.stop, PollFlags::IN),
            PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
        ];
        let outcome =
            if short { poll(&mut watched[..1], Some(&SHORTAGE_PAUSE)) } else { poll(&mut watched, None) };
        if let Err(error) = outcome
            && error != Errno::INTR
        {
            return log::error!("no more VMMs are taken: {error}");
        }
        if !watched[0].revents().is_empty() {
            return;
        }
        let arrived = if short { true } else { !watched[1].revents().is_empty() };
        short = false;
        if arrived {
            match socket.accept() {
                Ok(stream) => serve(shared, stream),
                Err(error) => {
                    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
                    short = matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM));
                    if short {
                        log::error!("a VMM cannot be taken: {error}");
                    }
                }
            }
        }
    }
}

/// Gives a VMM its thread.
fn serve(shared: &Arc<Shared>, stream: UnixStream) {
    let (peer, own) = match peer_process(&stream).and_then(|peer| Ok((peer, stream.try_clone()?))) {
        Ok(known) => known,
        Err(error) => return log::error!("a VMM cannot be served: {error}"),
    };
    let (user, process) = (peer.uid, peer.pid);
    let mut connected = shared.connected.lock();
    connected.arrived += 1;
    // Two kernels that write to one disk destroy its file system.
    let most = if shared.kept.is_some() { 1 } else { MOST_CONNECTIONS };
    if connected.all.len() >= most {
        return log::warn!("the VMM of process {process} is turned away: {most} may be connected at once");
    }
    let number = connected.arrived;
    connected.all.insert(number, own);
    drop(connected);
    let entry = Entry { shared: Arc::clone(shared), number };
    let run = move || {
        log::info!("a VMM has connected: process {process} of user {user}");
        let shared = &entry.shared;
        let common = Arc::new(Common {
            disk: Arc::clone(&shared.disk),
            kept: shared.kept.clone(),
            client: user_key(user),
            room: Room::default(),
            serial: serial(&shared.disk),
            totals: Arc::clone(&shared.totals),
        });
        shared.disk.open_connection(common.client);
        let options = shared.options;
        let client = common.client;
        match connection::run(stream, common, options.queues, &shared.stop, options.silence_patience) {
            why @ (Why::HungUp | Why::Stopped) => log::info!("the VMM of process {process} is gone: {why}"),
            why => log::warn!("the VMM of process {process} was disconnected: {why}"),
        }
        shared.disk.close_connection(client);
    };
    let started = std::thread::Builder::new().name(format!("vhost-{number}")).spawn(run);
    // A thread that cannot start drops its entry.
    if let Err(error) = started {
        log::error!("the VMM of process {process} cannot be served: {error}");
    }
}

/// The first digits of the image's digest: the same for each guest and each start.
fn serial(disk: &ServedDisk) -> [u8; ID_BYTES] {
    let mut serial = [0; ID_BYTES];
    let digest = disk.image().image_digest().to_string();
    for (to, from) in serial.iter_mut().zip(digest.bytes()) {
        *to = from;
    }
    serial
}

/// A connection among the counted ones.
struct Entry {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.connected.lock().all.remove(&self.number);
        self.shared.changed.notify_all();
    }
}

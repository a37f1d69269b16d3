//! The thread that hears of new VMMs and of the faults of all of them.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use hs_disk::{Deliver, ServedDisk, UseVisibility, parts};
use hs_linux::SocketFile;
use hs_linux::sockets::peer_process;
use hs_linux::userfault::Userfault;
use hs_units::{BLOCK_BYTES, BlockRange};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::{Deserialize, Serialize};

use crate::Regions;
use crate::client::Client;

/// A longer message is no list of regions.
const MESSAGE_BYTES: usize = 64 << 10;
/// VMMs that are served at once.
pub const MOST_CLIENTS: usize = 256;

/// A VMM, as a supervisor keeps it for the next server. Its descriptors are that of its faults and its
/// connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptClient {
    /// Its memory.
    pub regions: Regions,
    /// Its user.
    pub uid: u32,
}

/// Is told of each VMM that comes and goes, by a number of its own.
pub trait KeepClients: Send {
    /// It is served from now on.
    fn keep(&self, number: usize, client: &KeptClient, descriptors: [BorrowedFd<'_>; 2]);
    /// It is gone.
    fn forget(&self, number: usize);
}

/// Nothing is kept.
impl KeepClients for () {
    fn keep(&self, _: usize, _: &KeptClient, _: [BorrowedFd<'_>; 2]) {}
    fn forget(&self, _: usize) {}
}

type Clients = Arc<Mutex<Vec<Option<Arc<Client>>>>>;

/// Serves the memory of guests from a disk. Dropped, it serves no more.
pub struct UffdServer {
    clients: Clients,
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl UffdServer {
    /// Serves VMMs that connect to `listener`, and those that a server before this one has left, each under
    /// the number that it had.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        disk: Arc<ServedDisk>,
        listener: SocketFile,
        left: Vec<(usize, KeptClient, Vec<OwnedFd>)>,
        keeper: impl KeepClients + 'static,
    ) -> io::Result<Self> {
        listener.serves();
        let clients = Clients::default();
        for (number, KeptClient { regions, uid }, descriptors) in left {
            let Ok([faults, stream]) = <[OwnedFd; 2]>::try_from(descriptors) else { continue };
            let Ok(faults) = Userfault::of_another(faults) else { continue };
            let client = Client::new(stream.into(), faults, regions, uid);
            client.wake_all();
            let mut clients = clients.lock();
            if clients.len() <= number {
                clients.resize(number + 1, None);
            }
            clients[number] = Some(Arc::new(client));
        }
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let listening =
            Listening { disk, listener, clients: Arc::clone(&clients), end: Arc::clone(&end), keeper };
        let thread = std::thread::Builder::new().name("hs-uffd".to_owned()).spawn(move || listening.run())?;
        Ok(Self { clients, end, thread: Some(thread) })
    }

    /// Where hot blocks go: to all VMMs that are served when they come.
    #[must_use]
    pub fn deliver(&self) -> Arc<dyn Deliver> {
        Arc::new(ToClients(Arc::clone(&self.clients)))
    }
}

impl Drop for UffdServer {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Listening<K> {
    disk: Arc<ServedDisk>,
    listener: SocketFile,
    clients: Clients,
    end: Arc<OwnedFd>,
    keeper: K,
}

/// What one descriptor is polled for.
#[derive(Clone, Copy)]
enum Polled {
    End,
    Listener,
    /// The faults of a client, or the end of its connection.
    Faults(usize),
    Stream(usize),
}

impl<K: KeepClients> Listening<K> {
    fn run(self) {
        // VMMs that have connected and not said anything yet.
        let mut silent: Vec<UnixStream> = Vec::new();
        loop {
            let clients: Vec<(usize, Arc<Client>)> = {
                let clients = self.clients.lock();
                clients
                    .iter()
                    .enumerate()
                    .filter_map(|(n, client)| Some((n, Arc::clone(client.as_ref()?))))
                    .collect()
            };
            let mut kinds = vec![Polled::End, Polled::Listener];
            let mut polled =
                vec![PollFd::new(&*self.end, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
            for (number, client) in &clients {
                kinds.extend([Polled::Faults(*number), Polled::Stream(*number)]);
                polled.push(PollFd::from_borrowed_fd(client.faults.as_fd(), PollFlags::IN));
                polled.push(PollFd::new(&client.stream, PollFlags::RDHUP));
            }
            let first_silent = polled.len();
            polled.extend(silent.iter().map(|stream| PollFd::new(stream, PollFlags::IN)));
            match poll(&mut polled, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return log::error!("faults of guests are not heard any more: {errno}"),
            }
            let happened: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
            drop(polled);
            let said: Vec<bool> = happened[first_silent..].to_vec();
            let mut went = Vec::new();
            let mut connects = false;
            for (kind, _) in kinds.iter().zip(&happened).filter(|(_, happened)| **happened) {
                match *kind {
                    Polled::End => return,
                    Polled::Listener => connects = true,
                    Polled::Stream(number) => went.push(number),
                    Polled::Faults(number) => {
                        let client = clients.iter().find(|(other, _)| *other == number);
                        if let Some((_, client)) = client
                            && let Err(error) = client.handle(&self.disk)
                        {
                            log::debug!("a VMM is gone: {error}");
                            went.push(number);
                        }
                    }
                }
            }
            let mut said = said.into_iter();
            let (speaking, still): (Vec<_>, Vec<_>) =
                std::mem::take(&mut silent).into_iter().partition(|_| said.next().unwrap_or(false));
            silent = still;
            speaking.into_iter().for_each(|stream| self.welcome(stream));
            went.into_iter().for_each(|number| self.forget(number));
            if connects && let Ok(stream) = self.listener.accept() {
                if silent.len() >= MOST_CLIENTS {
                    silent.remove(0);
                }
                silent.push(stream);
            }
        }
    }

    /// Serves a VMM from now on, if it says what it must.
    fn welcome(&self, stream: UnixStream) {
        match self.understand(&stream) {
            Ok((faults, regions, uid)) => {
                let mut clients = self.clients.lock();
                let number = clients.iter().position(Option::is_none).unwrap_or(clients.len());
                if number >= MOST_CLIENTS {
                    return log::warn!("a VMM is refused: {MOST_CLIENTS} are served already");
                }
                let kept = KeptClient { regions: regions.clone(), uid };
                self.keeper.keep(number, &kept, [faults.as_fd(), stream.as_fd()]);
                if number == clients.len() {
                    clients.push(None);
                }
                clients[number] = Some(Arc::new(Client::new(stream, faults, regions, uid)));
            }
            Err(why) => log::warn!("a VMM is refused: {why}"),
        }
    }

    fn understand(&self, stream: &UnixStream) -> Result<(Userfault, Regions, u32), String> {
        let mut message = vec![0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(stream, &mut [IoSliceMut::new(&mut message)], &mut ancillary, flags)
            .map_err(|errno| errno.to_string())?;
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let descriptor = descriptor.ok_or("no descriptor came with its message")?;
        let disk_bytes = self.disk.image().disk_bytes();
        let regions =
            Regions::parse(&message[..received.bytes], disk_bytes).map_err(|error| error.to_string())?;
        let faults = Userfault::of_another(descriptor).map_err(|error| error.to_string())?;
        let uid = peer_process(stream).map_err(|error| error.to_string())?.uid;
        Ok((faults, regions, uid))
    }

    fn forget(&self, number: usize) {
        if self.clients.lock().get_mut(number).and_then(Option::take).is_some() {
            self.keeper.forget(number);
        }
    }
}

/// Pushes hot blocks into the memory of all VMMs.
struct ToClients(Clients);

impl Deliver for ToClients {
    fn visibility(&self) -> UseVisibility {
        UseVisibility::Hidden
    }

    fn comes_before_answers(&self) -> bool {
        true
    }

    fn deliver(&self, extents: &[BlockRange], raw: &[u8], left_out: &[Range<u32>]) -> bool {
        let clients: Vec<Arc<Client>> = self.0.lock().iter().flatten().cloned().collect();
        for (part, first) in parts(extents, left_out) {
            let at = (u64::from(first) * BLOCK_BYTES) as usize;
            let bytes = &raw[at..at + part.bytes() as usize];
            clients.iter().for_each(|client| client.push(part, bytes));
        }
        !clients.is_empty()
    }
}

//! A ring at work: its thread takes requests, and whichever thread brings the last bytes of one answers it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use hs_disk::ServedDisk;
use hs_engine::queue::ClientKey;
use hs_keep::KeptDisk;
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace};

use crate::call::Call;
use crate::chain::{Chain, Table};
use crate::inflight::InflightQueue;
use crate::memory::Space;
use crate::reading::{Reading, copy_to};
use crate::request::{ID_BYTES, Request, STATUS_OK, Target, Wish};
use crate::room::Room;
use crate::writing::Writing;

/// As for a connection of NBD: what is not used takes no memory.
const STACK_BYTES: usize = 1 << 20;
/// A ring that has become empty is looked at once more after this. A guest that QEMU before 8.1 translates
/// for one processor has no memory barriers (QEMU's commit c914d46d0a): it may find that a request needs no
/// kick while the ring's thread finds no request.
const LOOKS_AGAIN_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The guest is told of so many answers at once, where they come one behind the other.
const TOLD_AT_ONCE: u16 = 16;

/// What the rings of one connection share.
pub(crate) struct Common {
    pub(crate) disk: Arc<ServedDisk>,
    /// What is written to the disk, if guests may write.
    pub(crate) kept: Option<Arc<KeptDisk>>,
    pub(crate) client: ClientKey,
    pub(crate) room: Room,
    pub(crate) serial: [u8; ID_BYTES],
    pub(crate) totals: Arc<Totals>,
}

impl Common {
    /// The disk that requests are for.
    pub(crate) fn target(&self) -> Target {
        match &self.kept {
            Some(kept) => Target { bytes: kept.block_bytes(), is_writable: true },
            None => Target { bytes: self.disk.image().disk_bytes(), is_writable: false },
        }
    }
}

/// What was read and written by all clients of a server.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) reads: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
}

/// What a ring begins with.
pub(crate) struct Setup {
    pub(crate) number: usize,
    pub(crate) queue: Queue,
    pub(crate) inflight: Option<InflightQueue>,
    /// Requests that a server before this one has taken and not answered.
    pub(crate) left: Vec<u16>,
    pub(crate) memory: Space,
    pub(crate) call: Arc<Call>,
    pub(crate) kick: OwnedFd,
    /// A write is answered when it is on the medium.
    pub(crate) writes_last: bool,
}

/// A ring.
pub(crate) struct Ring {
    pub(crate) common: Arc<Common>,
    pub(crate) memory: Space,
    pub(crate) writes_last: bool,
    number: usize,
    table: Table,
    call: Arc<Call>,
    state: Mutex<QueueState>,
    drained: Condvar,
    /// Whether the guest's memory is still written. A connection that has ended may have a successor for the
    /// same guest, which answers what this one leaves.
    is_open: RwLock<bool>,
    /// Take no more requests.
    stops: AtomicBool,
    /// And do not wait for those that were taken.
    gives_up: AtomicBool,
    wake: OwnedFd,
}

struct QueueState {
    queue: Queue,
    inflight: Option<InflightQueue>,
    under_way: u16,
    /// The ring's thread takes one request after the other, and does not wait for anything.
    is_taking: bool,
    /// Answers of which the guest is to be told when it does not.
    untold: u16,
    /// What is wrong with chains is said once.
    has_complained: bool,
}

/// What no driver does, after which a ring is not served any more until it is set up again.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("its available ring: {0}")]
    Available(virtio_queue::Error),
    #[error("descriptor {0} is available, of {1}")]
    Head(u16, u16),
    #[error("it has more requests than descriptors")]
    TooMany,
    #[error("its kick is no event")]
    Kick,
}

impl Ring {
    /// The next request that is available.
    fn next(&self) -> Result<Option<u16>, Broken> {
        let memory = self.memory.memory();
        let mut state = self.state.lock();
        let QueueState { queue, inflight, under_way, .. } = &mut *state;
        let entries = queue.size();
        let next = queue.iter(&*memory).map_err(Broken::Available)?.next();
        let Some(head) = next.map(|chain| chain.head_index()) else { return Ok(None) };
        if head >= entries {
            return Err(Broken::Head(head, entries));
        }
        if *under_way >= entries {
            return Err(Broken::TooMany);
        }
        *under_way += 1;
        if let Some(inflight) = inflight {
            inflight.take(head);
        }
        state.is_taking = true;
        Ok(Some(head))
    }

    /// Takes all requests that are available; whether there was one.
    fn serve(self: &Arc<Self>) -> Result<bool, Broken> {
        let mut has_served = false;
        while !self.stops.load(Relaxed) {
            let set = |on: bool| {
                let (memory, mut state) = (self.memory.memory(), self.state.lock());
                let set = if on {
                    state.queue.enable_notification(&*memory)
                } else {
                    state.queue.disable_notification(&*memory).map(|()| true)
                };
                set.map_err(Broken::Available)
            };
            set(false)?;
            while !self.stops.load(Relaxed)
                && let Some(head) = self.next()?
            {
                self.answer(head);
                has_served = true;
            }
            self.rest();
            if !set(true)? {
                break;
            }
        }
        Ok(has_served)
    }

    /// The ring's thread is about to wait, so the guest is told of each answer at once.
    pub(crate) fn rest(&self) {
        let (is_open, mut state) = (self.is_open.read(), self.state.lock());
        state.is_taking = false;
        if *is_open {
            self.tell(&mut state);
        }
    }

    /// Interrupts the guest if it has not been told of all answers, and wants to be.
    fn tell(&self, state: &mut QueueState) {
        if std::mem::take(&mut state.untold) > 0
            && state.queue.needs_notification(&*self.memory.memory()).unwrap_or(true)
        {
            self.call.signal();
        }
    }

    fn answer(self: &Arc<Self>, head: u16) {
        let memory = self.memory.memory();
        let chain = match Chain::walk(&memory, self.table, head) {
            Ok(chain) => chain,
            Err(why) => {
                self.complain(&why);
                return self.complete(&self.is_open.read(), head, None, 0);
            }
        };
        let Some(request) = Request::parse(&memory, chain, self.common.target()) else {
            self.complain(&"there is no place for a status");
            return self.complete(&self.is_open.read(), head, None, 0);
        };
        drop(memory);
        match request.wish {
            Wish::Read { offset, bytes } => Reading::begin(self, head, request, offset, bytes),
            Wish::Write { .. } | Wish::Zero { .. } | Wish::Flush if self.common.kept.is_some() => {
                Writing::begin(self, head, &request);
            }
            wish => self.answer_at_once(head, &request, wish),
        }
    }

    fn answer_at_once(&self, head: u16, request: &Request, wish: Wish) {
        let is_open = self.is_open.read();
        let (status, written) = match wish {
            Wish::Id if *is_open => {
                let written = copy_to(&self.memory.memory(), &request.data, 0, &[&self.common.serial]);
                (STATUS_OK, written.unwrap_or(0))
            }
            Wish::Refused(status) => (status, 0),
            _ => (STATUS_OK, 0),
        };
        self.complete(&is_open, head, Some((request.status_at, status)), written);
    }

    fn complain(&self, why: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.state.lock().has_complained, true) {
            log::warn!("a guest's request in queue {} cannot be understood: {why}", self.number);
        }
    }

    /// The guest's memory, while it may be written.
    pub(crate) fn open(&self) -> RwLockReadGuard<'_, bool> {
        self.is_open.read()
    }

    /// A request is answered: the guest gets its buffers back.
    pub(crate) fn complete(
        &self,
        is_open: &bool,
        head: u16,
        status: Option<(GuestAddress, u8)>,
        written: u32,
    ) {
        let memory = self.memory.memory();
        let mut state = self.state.lock();
        let QueueState { queue, inflight, under_way, .. } = &mut *state;
        *under_way -= 1;
        if *is_open {
            let given = status.map(|(at, status)| memory.write_obj(status, at)).transpose();
            let used_bytes = written + u32::from(given.is_ok_and(|given| given.is_some()));
            if let Some(inflight) = inflight {
                inflight.answering(head);
            }
            if let Err(error) = queue.add_used(&*memory, head, used_bytes) {
                log::warn!("a guest's used ring cannot be written: {error}");
            }
            if let Some(inflight) = inflight {
                inflight.answered(head, queue.next_used());
            }
            state.untold += 1;
            // Under the lock: a thread that waits for the last request has the guest interrupted before.
            if !state.is_taking || state.untold >= TOLD_AT_ONCE {
                self.tell(&mut state);
            }
        }
        if state.under_way == 0 {
            self.drained.notify_all();
        }
    }

    /// A request is left to the next server.
    pub(crate) fn leave(&self) {
        let mut state = self.state.lock();
        state.under_way -= 1;
        if state.under_way == 0 {
            self.drained.notify_all();
        }
    }

    /// Whether no other request of this ring is under way.
    pub(crate) fn is_alone(&self) -> bool {
        self.state.lock().under_way == 1
    }

    /// Whether requests that were taken are not wanted any more.
    pub(crate) fn gives_up(&self) -> &AtomicBool {
        &self.gives_up
    }

    fn run(self: &Arc<Self>, kick: &OwnedFd, left: &[u16]) {
        for head in left {
            self.answer(*head);
        }
        let served = self.serve_kicks(kick);
        self.rest();
        if let Err(why) = served {
            log::warn!("queue {} of a guest is not served until it is reset: {why}", self.number);
        }
    }

    fn serve_kicks(self: &Arc<Self>, kick: &OwnedFd) -> Result<(), Broken> {
        let mut has_looked_again = false;
        loop {
            has_looked_again &= !self.serve()?;
            if self.stops.load(Relaxed) {
                return Ok(());
            }
            let mut watched = [PollFd::new(kick, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
            let patience = (!has_looked_again).then_some(&LOOKS_AGAIN_AFTER);
            match poll(&mut watched, patience) {
                Ok(0) => has_looked_again = true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    log::error!("a guest's kicks are not heard: {errno}");
                    return Err(Broken::Kick);
                }
            }
            if watched[0].revents().is_empty() {
                continue;
            }
            match rustix::io::read(kick, &mut [0_u8; 8]) {
                Ok(8) | Err(Errno::AGAIN | Errno::INTR) => {}
                _ => return Err(Broken::Kick),
            }
        }
    }
}

/// A ring and its thread.
pub(crate) struct Running {
    ring: Arc<Ring>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Serves a ring.
    pub(crate) fn start(common: &Arc<Common>, setup: Setup) -> io::Result<Self> {
        let Setup { number, queue, inflight, left, memory, call, kick, writes_last } = setup;
        let table = Table { at: GuestAddress(queue.desc_table()), size: queue.size() };
        let state = QueueState {
            queue,
            inflight,
            under_way: left.len() as u16,
            is_taking: false,
            untold: 0,
            has_complained: false,
        };
        let ring = Arc::new(Ring {
            common: Arc::clone(common),
            memory,
            writes_last,
            number,
            table,
            call,
            state: Mutex::new(state),
            drained: Condvar::new(),
            is_open: RwLock::new(true),
            stops: AtomicBool::new(false),
            gives_up: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let run = Arc::clone(&ring);
        let thread = std::thread::Builder::new()
            .name(format!("vhost-ring-{number}"))
            .stack_size(STACK_BYTES)
            .spawn(move || run.run(&kick, &left))?;
        Ok(Self { ring, thread: Some(thread) })
    }

    /// Takes no more requests, and waits until those that were taken are answered. Gives the place in the
    /// available ring at which to go on.
    pub(crate) fn stop(mut self) -> u16 {
        self.end_thread();
        let mut state = self.ring.state.lock();
        self.ring.drained.wait_while(&mut state, |state| state.under_way > 0);
        state.queue.next_avail()
    }

    fn end_thread(&mut self) {
        self.ring.stops.store(true, Relaxed);
        let _ = rustix::io::write(&self.ring.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    /// From here on the guest's memory is not touched.
    fn drop(&mut self) {
        *self.ring.is_open.write() = false;
        self.ring.gives_up.store(true, Relaxed);
        self.ring.common.room.nudge();
        self.end_thread();
    }
}

//! The sending half of a connection, used by all threads, and the limit of its unanswered requests.
//!
//! The thread that brings the last chunk of a read sends the answer itself when the socket takes it at once.
//! What the socket does not take is copied and left to the connection's own thread, so that a client that
//! does not read delays no other client. Bytes that were asked for and not sent yet are counted. The
//! connection takes no further request while there are many of them, or while there is no room for the
//! request beside other connections (see [`Room`]): this bounds the memory of all connections. A client that
//! takes nothing is recognized by the time that bytes wait for it.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hs_engine::queue::ClientKey;
use hs_linux::sockets::reached_bytes;
use hs_serve::{Occupant, PROGRESS_BYTES, Standing};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg, shutdown};

use super::room::{OWN_BYTES, Room};
use super::tls::TlsSession;
use super::wire::{Reply, errno};

/// Bytes asked for and not sent yet, for each connection.
pub(super) const HELD_BYTES: u64 = 8 << 20;
/// Requests not answered yet, for each connection.
const HELD_REQUESTS: usize = 256;
/// Buffers for one system call: the kernel takes 1024.
const SLICES: usize = 512;

/// The sending half of a connection.
pub(super) struct Outgoing {
    socket: OwnedFd,
    wake: Arc<OwnedFd>,
    client: ClientKey,
    room: Arc<Room>,
    state: Mutex<SendState>,
    sent_bytes: AtomicU64,
    copied_bytes: AtomicU64,
}

struct SendState {
    queue: VecDeque<Waiting>,
    held: Hold,
    /// Counts all changes that may let the connection's thread go on.
    changes: u64,
    asleep: Option<Until>,
    closed: bool,
    /// Its slot was given to another connection.
    evicted: bool,
    /// The time of the last request, answer or bytes taken.
    progress: Instant,
    /// Since when the socket is full and the client takes hardly anything, and how many bytes had reached it
    /// then.
    full_since: Option<Instant>,
    reached_bytes: u64,
    /// Seals what is sent, once the client has asked for it.
    tls: Option<Box<TlsSession>>,
}

impl SendState {
    fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            held: Hold::default(),
            changes: 0,
            asleep: None,
            closed: false,
            evicted: false,
            progress: Instant::now(),
            full_since: None,
            reached_bytes: 0,
            tls: None,
        }
    }
}

/// Bytes that the socket did not take yet.
struct Waiting {
    bytes: Vec<u8>,
    at: usize,
    hold: Hold,
}

/// A share of what a connection may have under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) bytes: u64,
    pub(super) requests: usize,
}

/// What wakes the connection's thread, beside input and a socket that takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Answers that the socket did not take, and calls of [`Outgoing::nudge`].
    Nudged,
    /// An answer that was sent, as well.
    Answered,
}

/// Whether the connection's thread may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sleep {
    /// Something has changed: look again.
    No,
    /// Until there is input, or something changes.
    Yes,
    /// The same, or until the socket takes more.
    UntilWritable,
}

impl Outgoing {
    pub(super) fn new(socket: OwnedFd, client: ClientKey, room: Arc<Room>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            socket,
            wake: Arc::new(wake),
            client,
            room,
            state: Mutex::new(SendState::new()),
            sent_bytes: AtomicU64::new(0),
            copied_bytes: AtomicU64::new(0),
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Becomes readable when the connection's thread should look again.
    pub(super) fn woken(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Bytes that the socket has taken.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Relaxed)
    }

    /// Bytes that the socket did not take at once, so that they were copied.
    pub(super) fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Relaxed)
    }

    pub(super) fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Whether a read of so many bytes, or a part of one, fits into the limits; then it is counted. Otherwise
    /// the connection's thread is woken when that has changed.
    pub(super) fn admit(&self, hold: Hold) -> bool {
        let mut state = self.state.lock();
        let held = state.held.bytes + hold.bytes;
        if state.held.requests + hold.requests > HELD_REQUESTS || held > HELD_BYTES {
            return false;
        }
        // The connection's own share is always available; bytes beyond it are taken from the pool as a whole.
        let [before, after] = [state.held.bytes, held].map(|held| held.saturating_sub(OWN_BYTES));
        if after > before && !self.room.take(self.client, after - before, &self.wake) {
            return false;
        }
        state.held.bytes = held;
        state.held.requests += hold.requests;
        state.progress = Instant::now();
        true
    }

    /// Whether the connection may take a further request.
    pub(super) fn listens(&self) -> bool {
        let held = self.state.lock().held;
        held.requests < HELD_REQUESTS
            && held.bytes <= HELD_BYTES
            && (held.bytes < OWN_BYTES || self.room.take(self.client, 0, &self.wake))
    }

    /// Counts requests and bytes that were not [admitted](Self::admit).
    pub(super) fn hold(&self, hold: Hold) {
        self.held(&mut self.state.lock(), hold);
    }

    fn held(&self, state: &mut SendState, hold: Hold) {
        let before = state.held.bytes;
        state.held.bytes += hold.bytes;
        state.held.requests += hold.requests;
        state.progress = Instant::now();
        self.room.moved(self.client, before, state.held.bytes);
    }

    /// What is under way.
    pub(super) fn under_way(&self) -> Hold {
        self.state.lock().held
    }

    /// When the time of the client to take some of the waiting bytes ends; it may be over.
    pub(super) fn unread_until(&self, patience: Duration) -> Option<Instant> {
        let mut state = self.state.lock();
        let since = state.full_since?;
        if since.elapsed() < patience {
            return Some(since + patience);
        }
        // A slow client takes some bytes, but the socket reports room only after many more.
        let reached = reached_bytes(&self.socket, self.sent_bytes());
        if reached < state.reached_bytes + PROGRESS_BYTES {
            return Some(since + patience);
        }
        let now = Instant::now();
        (state.full_since, state.reached_bytes, state.progress) = (Some(now), reached, now);
        Some(now + patience)
    }

    /// Whether another connection has got this one's place.
    pub(super) fn is_evicted(&self) -> bool {
        self.state.lock().evicted
    }

    /// Nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.state.lock().held == Hold::default()
    }

    /// Tells the connection's thread that something has changed.
    pub(super) fn nudge(&self) {
        let mut state = self.state.lock();
        self.changed(&mut state, Until::Nudged);
    }

    /// Sends bytes that are not counted.
    pub(super) fn say(&self, bytes: &[u8]) {
        let hold = Hold { bytes: bytes.len() as u64, requests: 0 };
        self.hold(hold);
        self.send(&mut self.state.lock(), bytes, &[], hold);
    }

    /// Answers a request that was let in with `hold`.
    pub(super) fn answer(&self, bytes: &[u8], hold: Hold) {
        self.send(&mut self.state.lock(), bytes, &[], hold);
    }

    /// What was held for a request is not needed any more.
    pub(super) fn release(&self, hold: Hold) {
        self.released(&mut self.state.lock(), hold);
    }

    /// From here on everything is sent and received under TLS.
    pub(super) fn secure(&self, session: TlsSession) {
        self.state.lock().tls = Some(Box::new(session));
    }

    /// The received plain bytes, and whether they were the last. Under TLS they are the contents of the
    /// records, and TLS's own answers are sent.
    pub(super) fn open<'a>(&self, bytes: &'a [u8]) -> Result<(Cow<'a, [u8]>, bool), rustls::Error> {
        let mut state = self.state.lock();
        let Some(tls) = &mut state.tls else { return Ok((bytes.into(), false)) };
        let (opened, outcome) = tls.open(bytes);
        if !opened.send.is_empty() {
            let hold = Hold { bytes: opened.send.len() as u64, requests: 0 };
            self.held(&mut state, hold);
            self.put(&mut state, &opened.send, &[], hold);
        }
        outcome.map(|()| (opened.plain.into(), opened.ended))
    }

    /// Sends bytes, sealed if there is TLS.
    fn send(&self, state: &mut SendState, head: &[u8], pieces: &[&[u8]], hold: Hold) {
        if state.closed {
            return self.released(state, hold);
        }
        match state.tls.as_mut().map(|tls| tls.seal(head, pieces)) {
            None => self.put(state, head, pieces, hold),
            Some(Ok(records)) => self.put(state, &records, &[], hold),
            Some(Err(error)) => {
                log::error!("an NBD answer cannot be encrypted: {error}");
                self.close_now(state);
                self.released(state, hold);
            }
        }
    }

    /// Sends what the socket takes at once and keeps a copy of the rest.
    fn put(&self, state: &mut SendState, head: &[u8], pieces: &[&[u8]], hold: Hold) {
        if state.closed {
            return self.released(state, hold);
        }
        let mut rest: Vec<&[u8]> = Vec::with_capacity(1 + pieces.len());
        rest.push(head);
        rest.extend(pieces);
        if state.queue.is_empty() {
            if let Err(error) = self.write(&mut rest) {
                log::debug!("an NBD client is gone: {error}");
                self.close_now(state);
                return self.released(state, hold);
            }
            if rest.is_empty() {
                return self.released(state, hold);
            }
        }
        if state.queue.is_empty() {
            state.full_since = Some(Instant::now());
            state.reached_bytes = reached_bytes(&self.socket, self.sent_bytes());
        }
        let bytes = rest.concat();
        self.copied_bytes.fetch_add(bytes.len() as u64, Relaxed);
        state.queue.push_back(Waiting { bytes, at: 0, hold });
        self.changed(state, Until::Nudged);
    }

    /// Writes until everything is written or the socket is full; `rest` is what is left.
    fn write(&self, rest: &mut Vec<&[u8]>) -> Result<(), Errno> {
        loop {
            let slices: Vec<IoSlice<'_>> =
                rest.iter().take(SLICES).map(|piece| IoSlice::new(piece)).collect();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let mut written = match sendmsg(&self.socket, &slices, &mut SendAncillaryBuffer::default(), flags)
            {
                Ok(written) => written,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            self.sent_bytes.fetch_add(written as u64, Relaxed);
            let mut whole = 0;
            for piece in rest.iter_mut() {
                if written < piece.len() {
                    *piece = &piece[written..];
                    break;
                }
                written -= piece.len();
                whole += 1;
            }
            rest.drain(..whole);
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Sends what waits, as far as the socket takes it.
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        while let Some(waiting) = state.queue.front_mut() {
            let mut rest = vec![&waiting.bytes[waiting.at..]];
            let outcome = self.write(&mut rest);
            let left = rest.first().map_or(0, |piece| piece.len());
            waiting.at = waiting.bytes.len() - left;
            if let Err(error) = outcome {
                log::debug!("an NBD client is gone: {error}");
                return self.close_now(&mut state);
            }
            if left > 0 {
                return;
            }
            if let Some(sent) = state.queue.pop_front() {
                self.released(&mut state, sent.hold);
            }
        }
        state.full_since = None;
    }

    /// Asks whether the connection's thread, which has seen `changes`, may sleep.
    pub(super) fn sleep(&self, changes: u64, until: Until) -> Sleep {
        let mut state = self.state.lock();
        if state.changes != changes {
            return Sleep::No;
        }
        state.asleep = Some(until);
        if state.queue.is_empty() { Sleep::Yes } else { Sleep::UntilWritable }
    }

    /// The connection's thread is awake again.
    pub(super) fn awake(&self) {
        self.state.lock().asleep = None;
        let mut count = [0; 8];
        // Empty when something else has woken it.
        let _ = rustix::io::read(&self.wake, &mut count);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Nothing is sent or received any more.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        // With this record the client can tell an end from an attacker who cuts the connection.
        if !state.closed
            && state.queue.is_empty()
            && let Some(Ok(end)) = state.tls.as_mut().map(|tls| tls.seal_end())
        {
            self.put(&mut state, &end, &[], Hold::default());
        }
        self.close_now(&mut state);
    }

    fn close_now(&self, state: &mut SendState) {
        state.closed = true;
        while let Some(waiting) = state.queue.pop_front() {
            self.released(state, waiting.hold);
        }
        // It fails when the other side was faster.
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.changed(state, Until::Nudged);
    }

    fn released(&self, state: &mut SendState, hold: Hold) {
        let before = state.held.bytes;
        state.held.bytes -= hold.bytes;
        state.held.requests -= hold.requests;
        state.progress = Instant::now();
        self.room.moved(self.client, before, state.held.bytes);
        self.changed(state, Until::Answered);
    }

    /// Counts a change, and wakes the connection's thread if it sleeps until such a one.
    fn changed(&self, state: &mut SendState, what: Until) {
        state.changes += 1;
        if state.asleep == Some(Until::Answered) || state.asleep == Some(what) {
            state.asleep = None;
            // It can only fail when the thread has been woken 2^64 times and has not looked.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

impl Occupant for Outgoing {
    fn standing(&self) -> Standing {
        let state = self.state.lock();
        Standing { is_idle: state.held == Hold::default(), since: state.progress }
    }

    fn evict(&self) {
        let mut state = self.state.lock();
        state.evicted = true;
        self.close_now(&mut state);
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.room.forget(&self.wake);
    }
}

/// A read whose parts are answered as they come; in their order, one after the other, if the reply is not
/// structured.
pub(super) struct Reading {
    outgoing: Arc<Outgoing>,
    reply: Reply,
    parts_left: AtomicU32,
    failed: AtomicBool,
}

impl Reading {
    /// A read in so many parts.
    pub(super) fn new(outgoing: &Arc<Outgoing>, reply: Reply, parts: u32) -> Arc<Self> {
        Arc::new(Self {
            outgoing: Arc::clone(outgoing),
            reply,
            parts_left: AtomicU32::new(parts),
            failed: false.into(),
        })
    }

    /// The duty to answer the part of `len` bytes from `offset` on, which was [admitted](Outgoing::admit).
    pub(super) fn part(self: &Arc<Self>, offset: u64, len: u32, first: bool) -> Part {
        Part { reading: Arc::clone(self), offset, len, first, answered: false }
    }

    /// All parts were answered: what is sent from now on comes behind them.
    pub(super) fn is_answered(&self) -> bool {
        self.parts_left.load(Relaxed) == 0
    }

    /// The client got an error instead of any data, so the other parts are not wanted.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }
}

/// The right, and the duty, to answer a part of a read. Dropped without an answer, it answers `EIO`.
pub(super) struct Part {
    reading: Arc<Reading>,
    offset: u64,
    len: u32,
    first: bool,
    answered: bool,
}

impl Part {
    /// Answers with the bytes in `pieces`, in order, or with an error of the protocol.
    pub(super) fn answer(mut self, result: Result<&[&[u8]], u32>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<&[&[u8]], u32>) {
        self.answered = true;
        let Reading { outgoing, reply, parts_left, failed } = &*self.reading;
        // Under one lock with the sending: the last part must also be sent last.
        let mut state = outgoing.state.lock();
        let last = parts_left.fetch_sub(1, Relaxed) == 1;
        let hold = Hold { bytes: self.len.into(), requests: usize::from(last) };
        match result {
            // The head of a simple reply is that of all its parts.
            Ok(pieces) if !reply.structured && !self.first => outgoing.send(&mut state, &[], pieces, hold),
            Ok(pieces) => {
                outgoing.send(&mut state, &reply.data(self.offset, self.len, last), pieces, hold);
            }
            Err(errno) if reply.structured => {
                outgoing.send(&mut state, &reply.error_at(errno, self.offset, last), &[], hold);
            }
            Err(errno) if self.first => {
                failed.store(true, Relaxed);
                outgoing.send(&mut state, &reply.error(errno), &[], Hold { requests: 1, ..hold });
            }
            // The client was told that it gets the bytes. Closing the connection is the only way left to
            // report the error.
            Err(_) => {
                log::warn!("an NBD client is disconnected: the rest of its read cannot be answered");
                outgoing.close_now(&mut state);
                outgoing.released(&mut state, Hold { requests: 1, ..hold });
            }
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.answered {
            self.send(Err(errno::EIO));
        }
    }
}

//! One client: its thread takes requests, hands them to the image's reader, and sends what could not be sent
//! at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Instant;

use hs_disk::Requester;
use hs_engine::queue::{Class, ClientKey};
use hs_units::ByteRange;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::export::{Export, ExportedDisk};
use super::outgoing::{HELD_BYTES, Hold, Outgoing, Reading, Sleep, Until};
use super::protocol::{End, Event, ExportInfo, Protocol, Request};
use super::room::OWN_BYTES;
use super::server::NbdOptions;
use super::wire::Reply;
use super::writing::Writing;

/// Longer reads are answered in parts, cut at multiples of this: what a connection may always hold.
const PART_BYTES: u64 = OWN_BYTES;
/// Of a CACHE request so much is under way at a time.
const CACHE_PART_BYTES: u64 = 1 << 20;
/// What one CACHE request brings at most: half of what the reader keeps by default, so that its end does not
/// push out its beginning.
const CACHE_BYTES: u64 = 16 << 20;
/// Extents in one answer about what is allocated, and bytes that the socket is asked for at once.
const EXTENTS: usize = 4096;
const INPUT_BYTES: usize = 64 << 10;

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum Why {
    #[error("{0}")]
    Said(#[from] End),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the client hung up")]
    HungUp,
    #[error("the client has chosen no export in time")]
    Handshake,
    #[error("the client does not read its answers")]
    Unread,
    #[error("its place was given to another client")]
    Evicted,
    #[error("the server ends")]
    Stopped,
}

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Input,
    Room,
}

/// What all connections of a server share.
pub(super) struct ForAll {
    pub(super) exports: Arc<[Export]>,
    pub(super) infos: Arc<[ExportInfo]>,
    pub(super) options: NbdOptions,
    /// The server ends.
    pub(super) stop: Arc<AtomicBool>,
    /// Counts reads.
    pub(super) reads: Arc<AtomicU64>,
}

pub(super) struct Connection {
    outgoing: Arc<Outgoing>,
    exports: Arc<[Export]>,
    stop: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    options: NbdOptions,
    protocol: Protocol,
    client: ClientKey,
    export: usize,
    /// The client's part of the export's medium, once it has chosen one.
    share: Option<Share>,
    began: Instant,
    /// A read of which parts have not been handed to the reader yet.
    reading: Option<Unread>,
    /// A write of which parts have not come yet.
    writing: Option<Arc<Writing>>,
    caching: VecDeque<CacheJob>,
    /// The caching part that is under way.
    cached: Arc<CacheLane>,
    /// No further requests are taken, and why; what was taken is answered until the given time.
    ending: Option<(Why, Instant)>,
}

struct Unread {
    reading: Arc<Reading>,
    client: ClientKey,
    next: u64,
    end: u64,
    step: u64,
    first: bool,
    /// Each part has to be sent before the next, and nothing else in between.
    in_turn: bool,
}

/// A connection's hold on its client's share of a medium.
struct Share {
    disk: ExportedDisk,
    client: ClientKey,
}

impl Share {
    fn new(disk: &ExportedDisk, client: ClientKey) -> Self {
        disk.open_connection(client);
        Self { disk: disk.clone(), client }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.disk.close_connection(self.client);
    }
}

struct CacheJob {
    reply: Reply,
    next: u64,
    end: u64,
}

/// At most one part of a CACHE request is under way, so that it never delays reads by more than that.
#[derive(Default)]
struct CacheLane {
    busy: AtomicBool,
    /// The error that the part ended with, or 0.
    errno: AtomicU32,
}

impl Connection {
    pub(super) fn new(outgoing: Arc<Outgoing>, common: &ForAll, client: ClientKey) -> Self {
        Self {
            outgoing,
            exports: Arc::clone(&common.exports),
            stop: Arc::clone(&common.stop),
            reads: Arc::clone(&common.reads),
            options: common.options.clone(),
            protocol: Protocol::new(Arc::clone(&common.infos), common.options.security()),
            client,
            export: 0,
            share: None,
            began: Instant::now(),
            reading: None,
            writing: None,
            caching: VecDeque::new(),
            cached: Arc::default(),
            ending: None,
        }
    }

    /// Serves the client until it or the server ends.
    pub(super) fn run(&mut self) -> Why {
        let mut input = vec![0; INPUT_BYTES];
        // Every client is greeted, also when this thread starts so late that the client's time is over.
        if let Some(greeting) = self.protocol.poll()
            && let Err(why) = self.handle(greeting)
        {
            return why;
        }
        loop {
            let seen = self.outgoing.changes();
            self.outgoing.flush();
            if self.stop.load(Relaxed) {
                self.end(Why::Stopped);
            }
            self.cache_on();
            let want = match self.work(&mut input) {
                Ok(want) => want,
                Err(why) => return why,
            };
            if self.outgoing.is_evicted() {
                return Why::Evicted;
            }
            if self.outgoing.is_closed() {
                return self.ending.take().map_or(Why::HungUp, |(why, _)| why);
            }
            if let Some((why, until)) = &self.ending {
                if self.outgoing.is_idle() && self.reading.is_none() {
                    return why.clone();
                }
                if Instant::now() >= *until {
                    return Why::Unread;
                }
            }
            if self.unread_until().is_some_and(|until| Instant::now() >= until) {
                return Why::Unread;
            }
            match self.wait(want, seen) {
                Ok(()) => {}
                Err(why) => return self.ending.take().map_or(why, |(first, _)| first),
            }
        }
    }

    fn end(&mut self, why: Why) {
        self.writing = None;
        self.ending.get_or_insert_with(|| (why, Instant::now() + self.options.end_patience));
    }

    /// When the client's time to take some of the waiting bytes ends.
    fn unread_until(&self) -> Option<Instant> {
        self.outgoing.unread_until(self.options.read_patience)
    }

    /// Goes on until that depends on something else.
    fn work(&mut self, input: &mut [u8]) -> Result<Want, Why> {
        loop {
            if let Some(unread) = &mut self.reading {
                if !unread.submit_next(&self.outgoing, &self.exports[self.export]) {
                    return Ok(Want::Room);
                }
                if unread.is_over() {
                    self.reading = None;
                }
                continue;
            }
            if self.ending.is_some() {
                return Ok(Want::Room);
            }
            if self.stop.load(Relaxed) {
                self.end(Why::Stopped);
                continue;
            }
            if !self.protocol.is_open() && self.began.elapsed() >= self.options.handshake_patience {
                return Err(Why::Handshake);
            }
            if !self.outgoing.listens() {
                return Ok(Want::Room);
            }
            if let Some(event) = self.protocol.poll() {
                self.handle(event)?;
                continue;
            }
            match recv(self.outgoing.socket(), &mut *input, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => self.end(Why::HungUp),
                Ok((_, length)) => {
                    let (said, was_last) = self.outgoing.open(&input[..length])?;
                    self.protocol.handle_bytes(&said);
                    if was_last {
                        self.end(Why::HungUp);
                    }
                }
                Err(Errno::AGAIN) => return Ok(Want::Input),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Why::HungUp),
            }
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), Why> {
        match event {
            Event::Send(bytes) => self.outgoing.say(&bytes),
            Event::StartTls => {
                if let Some(tls) = &self.options.tls {
                    self.outgoing.secure(tls.session()?);
                }
            }
            Event::Opened(export) => {
                self.export = export;
                self.share = Some(Share::new(&self.exports[export].disk, self.client));
                log::debug!("an NBD client opened '{}'", self.exports[export].name);
            }
            Event::Read { request, uncut } => {
                self.reads.fetch_add(1, Relaxed);
                self.reading = Some(Unread::new(&self.outgoing, request, uncut, self.client));
            }
            Event::Allocation { request, one } => self.tell_allocation(request, one),
            Event::Cache(Request { reply, offset, len }) => {
                self.outgoing.hold(Hold { bytes: 0, requests: 1 });
                let end = offset + u64::from(len).min(CACHE_BYTES);
                self.caching.push_back(CacheJob { reply, next: offset, end });
                self.cache_on();
            }
            Event::Write { request, offset, bytes, lasting } => self.write(request, offset, bytes, lasting),
            Event::Zero { request, zeroing, lasting } => {
                let range = ByteRange::new(request.offset, request.len.into());
                let part = Writing::whole(&self.outgoing, request.reply);
                let requester = Requester::waiting(self.client);
                let answer = move |result| part.answer(result);
                self.exports[self.export].disk.zero(requester, range, zeroing, lasting, answer);
            }
            Event::Flush(reply) => {
                let part = Writing::whole(&self.outgoing, reply);
                self.exports[self.export].disk.flush(move |result| part.answer(result));
            }
            Event::Ended(End::Done) => self.end(Why::Said(End::Done)),
            Event::Ended(end) => return Err(Why::Said(end)),
        }
        Ok(())
    }

    /// Hands a part of a write to the disk.
    fn write(&mut self, request: Request, offset: u64, bytes: Vec<u8>, lasting: bool) {
        let len = bytes.len() as u32;
        let is_last = offset + u64::from(len) == request.offset + u64::from(request.len);
        let writing = self.writing.take().unwrap_or_else(|| Writing::new(&self.outgoing, request.reply));
        let part = writing.part(len, is_last);
        if !is_last {
            self.writing = Some(writing);
        }
        let requester = Requester::waiting(self.client);
        let answer = move |result| part.answer(result);
        self.exports[self.export].disk.write(requester, offset, bytes, lasting, answer);
    }

    /// The index may have to be read for this, which holds this connection alone.
    fn tell_allocation(&self, request: Request, one: bool) {
        let Request { reply, offset, len } = request;
        let range = ByteRange::new(offset, len.into());
        let extents = if one { 1 } else { EXTENTS };
        let said = match self.exports[self.export].disk.allocation(range, extents) {
            Ok(extents) => reply.allocation(&extents),
            Err(errno) => reply.error(errno),
        };
        self.outgoing.say(&said);
    }

    /// Brings the next part of what is to be cached, unless one is under way.
    fn cache_on(&mut self) {
        while !self.cached.busy.load(Acquire)
            && let Some(job) = self.caching.front_mut()
        {
            let failed = self.cached.errno.swap(0, Relaxed);
            if failed != 0 || job.next >= job.end || self.ending.is_some() {
                let said = if failed == 0 { job.reply.done() } else { job.reply.error(failed) };
                self.outgoing.answer(&said, Hold { bytes: 0, requests: 1 });
                self.caching.pop_front();
                continue;
            }
            let len = part_bytes(job.next, job.end, CACHE_PART_BYTES);
            let offset = job.next;
            job.next += u64::from(len);
            self.cached.busy.store(true, Relaxed);
            let part = CachePart { lane: Arc::clone(&self.cached), outgoing: Arc::clone(&self.outgoing) };
            let requester = Requester { client: self.client, class: Class::Prefetch };
            self.exports[self.export].disk.submit(requester, offset, len, move |result| {
                if let Err(errno) = result {
                    part.lane.errno.store(errno, Relaxed);
                }
            });
        }
    }

    /// Waits for what may let this connection go on.
    fn wait(&self, want: Want, seen: u64) -> Result<(), Why> {
        let only_input = want == Want::Input && self.caching.is_empty();
        let until = if only_input { Until::Nudged } else { Until::Answered };
        let sleep = self.outgoing.sleep(seen, until);
        if sleep == Sleep::No {
            return Ok(());
        }
        let mut events = PollFlags::empty();
        if want == Want::Input {
            events |= PollFlags::IN;
        }
        if sleep == Sleep::UntilWritable {
            events |= PollFlags::OUT;
        }
        let mut watched = [
            PollFd::from_borrowed_fd(self.outgoing.socket(), events),
            PollFd::from_borrowed_fd(self.outgoing.woken(), PollFlags::IN),
        ];
        let until = match &self.ending {
            Some((_, until)) => Some(*until),
            None if self.protocol.is_open() => None,
            None => Some(self.began + self.options.handshake_patience),
        };
        let until = until.into_iter().chain(self.unread_until()).min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let outcome = poll(&mut watched, timeout.as_ref());
        let gone = watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        self.outgoing.awake();
        match outcome {
            Err(error) if error != Errno::INTR => {
                log::error!("an NBD connection cannot wait: {error}");
                Err(Why::HungUp)
            }
            // Bytes that the client sent before it closed the connection can still be read.
            _ if gone && want != Want::Input => Err(Why::HungUp),
            _ => Ok(()),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.outgoing.close();
    }
}

impl Unread {
    fn new(outgoing: &Arc<Outgoing>, request: Request, uncut: bool, client: ClientKey) -> Self {
        let Request { reply, offset, len } = request;
        let end = offset + u64::from(len);
        // A simple reply may only be cut by sending its parts one after the other, and an error in a later
        // part can only be reported by closing the connection. So the reply is sent whole where there is room
        // for that.
        let fits = u64::from(len) + outgoing.under_way().bytes <= HELD_BYTES / 4;
        let whole = if reply.structured { uncut } else { fits };
        let step = if whole { u64::MAX } else { PART_BYTES };
        let parts = (end - 1) / step - offset / step + 1;
        let reading = Reading::new(outgoing, reply, parts as u32);
        Self { reading, client, next: offset, end, step, first: true, in_turn: !whole && !reply.structured }
    }

    /// All parts are handed to the reader, and answered if nothing else may be sent before; or they are not
    /// wanted any more.
    fn is_over(&self) -> bool {
        let submitted = self.next == self.end;
        submitted && (!self.in_turn || self.reading.is_answered()) || self.reading.has_failed()
    }

    /// Hands the next part to the reader; false when there is no room for it.
    fn submit_next(&mut self, outgoing: &Outgoing, export: &Export) -> bool {
        if self.is_over() {
            return true;
        }
        if self.next == self.end {
            return false;
        }
        let requests = usize::from(!self.first);
        if self.in_turn && outgoing.under_way() != (Hold { bytes: 0, requests }) {
            return false;
        }
        let len = part_bytes(self.next, self.end, self.step);
        if !outgoing.admit(Hold { bytes: len.into(), requests: usize::from(self.first) }) {
            return false;
        }
        let part = self.reading.part(self.next, len, self.first);
        export
            .disk
            .submit(Requester::waiting(self.client), self.next, len, move |result| part.answer(result));
        self.next += u64::from(len);
        self.first = false;
        true
    }
}

/// Bytes from `next` up to `end`, or up to the next multiple of `step` if that comes first.
fn part_bytes(next: u64, end: u64, step: u64) -> u32 {
    let boundary = (next / step + 1).saturating_mul(step);
    (boundary.min(end) - next) as u32
}

/// A part of a CACHE request that is under way.
struct CachePart {
    lane: Arc<CacheLane>,
    outgoing: Arc<Outgoing>,
}

impl Drop for CachePart {
    fn drop(&mut self) {
        self.lane.busy.store(false, Release);
        self.outgoing.nudge();
    }
}

//! The engine's prefetch policy at work before a queue.

use std::ops::Range;

use hs_engine::queue::{Class, ClientKey, Direction};
use hs_engine::{ChunkSize, Late, Next, Prefetch, PrefetchConfig, RequestId};
use hs_units::{ByteRange, Nanos};

use crate::simulation::Io;

/// A hot region, at the front of the medium unless another place is given, and the policy that reads it
/// ahead.
///
/// What arrives is given to its readers at once, so that no budget runs out.
pub(crate) struct Stream {
    policy: Prefetch,
    chunk_bytes: u64,
    chunks: u32,
    /// Which of several clients it is for; the medium has a part for each.
    client: u64,
    /// Bytes of the medium before the hot region.
    before: u64,
    /// The medium hands out so much at a time; byte by byte when nothing is said.
    piece_bytes: Option<u64>,
    under_way: Vec<Part>,
    /// Planned times at which the policy is asked again.
    planned: Option<Nanos>,
}

/// A request of the policy.
struct Part {
    id: RequestId,
    request: usize,
    chunks: Range<u32>,
}

/// Tokens of [`Io::wake`] that belong to the stream: it may request more, a chunk has come, or the first
/// piece of a request.
const TURN: u64 = 1 << 63;
const ARRIVED: u64 = 1 << 62;
const FIRST_PIECE: u64 = 1 << 61;
/// Tokens have the client's number here.
const CLIENT_SHIFT: u32 = 48;
const CLIENT: u64 = 0xff << CLIENT_SHIFT;

impl Stream {
    /// A hot region of `chunks` chunks of `chunk_bytes` stored bytes; none is prefetched without a `config`.
    pub(crate) fn new(config: Option<PrefetchConfig>, chunks: u32, chunk_bytes: u64) -> Self {
        let stored_bytes = u32::try_from(chunk_bytes).expect("a chunk is small");
        let size = ChunkSize { stored_bytes, raw_bytes: stored_bytes * 2 };
        let sizes = if config.is_some() { vec![size; chunks as usize] } else { Vec::new() };
        let policy = Prefetch::new(config.unwrap_or_default(), sizes);
        Self {
            policy,
            chunk_bytes,
            chunks,
            client: 0,
            before: 0,
            piece_bytes: None,
            under_way: Vec::new(),
            planned: None,
        }
    }

    /// The same for one of up to 256 clients, each of which has its own hot region.
    pub(crate) fn of_client(self, client: u8) -> Self {
        let before = u64::from(client) * self.bytes();
        Self { client: client.into(), before, ..self }
    }

    /// The same on a medium that hands out pieces of this size, as served media do: a byte is reported only
    /// when the rest of its piece has come.
    pub(crate) fn in_pieces(self, piece_bytes: u64) -> Self {
        Self { piece_bytes: Some(piece_bytes), ..self }
    }

    /// A token of this client that is neither for its stream nor for a chunk.
    pub(crate) const fn token(&self) -> u64 {
        self.client << CLIENT_SHIFT
    }

    /// Which client a token means.
    pub(crate) const fn client_of(token: u64) -> usize {
        ((token & CLIENT) >> CLIENT_SHIFT) as usize
    }

    /// Chunks of the hot region.
    pub(crate) fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Bytes of the hot region.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.chunks) * self.chunk_bytes
    }

    /// The policy, to report demand to.
    pub(crate) const fn policy(&mut self) -> &mut Prefetch {
        &mut self.policy
    }

    /// Whether there is something left to read ahead.
    pub(crate) fn is_running(&self) -> bool {
        self.policy.ended().is_none()
    }

    /// Whether a chunk is in memory.
    pub(crate) fn has(&self, chunk: u32) -> bool {
        self.policy.ended() != Some(hs_engine::EndReason::Nothing) && self.policy.has_arrived(chunk)
    }

    /// Whether a reader of this chunk should wait for the stream.
    pub(crate) fn joins(&self, chunk: u32) -> bool {
        self.policy.ended() != Some(hs_engine::EndReason::Nothing) && self.policy.late(chunk) == Late::Join
    }

    /// Where a chunk lies on the medium.
    pub(crate) fn place(&self, chunk: u32) -> ByteRange {
        self.bytes_of(&(chunk..chunk + 1))
    }

    fn bytes_of(&self, chunks: &Range<u32>) -> ByteRange {
        let place = |chunk: u32| u64::from(chunk) * self.chunk_bytes;
        ByteRange::new(self.before + place(chunks.start), place(chunks.end) - place(chunks.start))
    }

    /// Makes the requests of the policy. Called after every report to the policy.
    pub(crate) fn turn(&mut self, io: &mut Io) {
        loop {
            match self.policy.poll(io.now()) {
                Next::Request(id, chunks) => {
                    let range = self.bytes_of(&chunks);
                    let request = io.request(Class::Prefetch, ClientKey(self.client), Direction::Read, range);
                    self.under_way.push(Part { id, request, chunks });
                }
                Next::WaitUntil(then) => {
                    if self.planned.is_none_or(|planned| then < planned || planned <= io.now()) {
                        self.planned = Some(then);
                        io.wake(then, TURN | self.token());
                    }
                    return;
                }
                Next::Wait | Next::Done(_) => return,
            }
        }
    }

    /// A reader waits for the stream: its requests become as urgent as that read.
    pub(crate) fn hurry(&self, io: &mut Io) {
        self.under_way.iter().for_each(|part| io.promote(part.request, Class::Demand));
    }

    /// The first byte of something came.
    pub(crate) fn handle_first_byte(&mut self, io: &mut Io, requests: &[usize]) {
        for part in self.under_way.iter().filter(|part| requests.contains(&part.request)) {
            let sent = io.sent_for(part.request);
            let (origin, len) = (sent.dispatch.range.offset, sent.dispatch.range.len);
            if let Some(piece_bytes) = self.piece_bytes {
                let first = self.place(part.chunks.start).offset - origin;
                let token = FIRST_PIECE | self.token() | part.request as u64;
                io.wake(sent.service.arrival((first + 1).next_multiple_of(piece_bytes), len), token);
            } else {
                self.policy.handle_first_byte(io.now(), part.id, 0);
            }
            for chunk in part.chunks.clone() {
                let end = self.place(chunk).end() - origin;
                let token = ARRIVED | self.token() | u64::from(chunk);
                io.wake(
                    sent.service.arrival(end.next_multiple_of(self.piece_bytes.unwrap_or(1)), len),
                    token,
                );
            }
        }
        self.turn(io);
    }

    /// The first piece of a request came, if that was not reported yet.
    fn handle_first_piece(&mut self, now: Nanos, request: usize) {
        let piece_bytes = self.piece_bytes.unwrap_or(0);
        if let Some(part) = self.under_way.iter().find(|part| part.request == request) {
            let bytes = self.bytes_of(&part.chunks).len.min(piece_bytes);
            self.policy.handle_first_byte(now, part.id, bytes);
        }
    }

    /// A planned time has come. Returns whether it was one of the stream's, and which chunk is there now.
    pub(crate) fn handle_wake(&mut self, io: &mut Io, token: u64) -> Option<Option<u32>> {
        if token & TURN != 0 {
            self.turn(io);
            return Some(None);
        }
        if token & FIRST_PIECE != 0 {
            self.handle_first_piece(io.now(), (token & !(FIRST_PIECE | CLIENT)) as usize);
            self.turn(io);
            return Some(None);
        }
        if token & ARRIVED == 0 {
            return None;
        }
        let chunk = (token & !(ARRIVED | CLIENT)) as u32;
        if let Some(part) = self.under_way.iter().find(|part| part.chunks.contains(&chunk)) {
            self.policy.handle_progress(io.now(), part.id, chunk);
        }
        self.policy.handle_arrived(chunk);
        self.policy.handle_released(chunk);
        self.turn(io);
        Some(Some(chunk))
    }

    /// A request has ended. Returns whether it was one of the stream's.
    pub(crate) fn handle_done(&mut self, io: &mut Io, request: usize) -> bool {
        // The only piece of a small request comes when that ends.
        self.handle_first_piece(io.now(), request);
        let Some(place) = self.under_way.iter().position(|part| part.request == request) else {
            return false;
        };
        let part = self.under_way.remove(place);
        for chunk in part.chunks.clone() {
            self.policy.handle_arrived(chunk);
            self.policy.handle_released(chunk);
        }
        let bytes = self.bytes_of(&part.chunks).len;
        self.policy.handle_finished(io.now(), part.id, Some(bytes));
        self.turn(io);
        true
    }
}

//! Brings a range of the file piece by piece, by as many requests as that takes.

use std::sync::Arc;

use bytes::Bytes;
use hs_store::StoreError;
use hs_units::ByteRange;
use tokio::sync::OwnedMutexGuard;

use super::HttpError;
use super::lanes::Lanes;
use super::line::Seat;
use super::patience::Tries;
use super::store::Remote;

/// Progress after which patience begins again. With less, a server that sends one byte at a time could block
/// a reader without a limit.
pub(super) const PROGRESS_BYTES: u64 = 64 << 10;

/// A range that is being read. It does nothing by itself: a thread that waits drives it, or the one that
/// drives all requests for which no thread waits. Dropping it leaves a shared response to the next reader.
pub(super) struct Reader {
    remote: Arc<Remote>,
    source: Source,
    /// Where in the file the next byte is.
    at: u64,
    end: u64,
}

/// Where the bytes come from.
enum Source {
    /// The lanes, for the request that has them.
    Lanes(Arc<Lanes>, Option<OwnedMutexGuard<()>>),
    /// Whatever is free when the first byte is needed; a stream may share a response.
    Undecided { is_stream: bool },
    /// A response, or one request after the other.
    Requests(Box<Requests>),
}

struct Requests {
    seat: Seat,
    tries: Tries,
    /// The server may have given up a response that was left open, which is not a fault of the network.
    was_parked: bool,
    /// Where patience began.
    came_until: u64,
    /// The response that was asked for last was shorter than that, and so short that it is no progress.
    fell_short: Option<HttpError>,
}

impl Reader {
    fn new(remote: Arc<Remote>, range: ByteRange, source: Source) -> Self {
        Self { remote, source, at: range.offset, end: range.end() }
    }

    /// For a read that only touches what may be streamed.
    pub(super) fn read(remote: Arc<Remote>, range: ByteRange) -> Self {
        Self::new(remote, range, Source::Undecided { is_stream: false })
    }

    /// For the next part of a stream.
    pub(super) fn stream(remote: Arc<Remote>, range: ByteRange, lanes: Option<Arc<Lanes>>) -> Self {
        let undecided = Source::Undecided { is_stream: true };
        Self::new(remote, range, lanes.map_or(undecided, |lanes| Source::Lanes(lanes, None)))
    }

    /// By separate requests.
    pub(super) fn alone(remote: Arc<Remote>, range: ByteRange) -> Self {
        let requests = Requests::new(&remote, Seat::alone(range.end()), range.offset);
        Self::new(remote, range, Source::Requests(Box::new(requests)))
    }

    /// The next piece; none at the end, or when the file is closed.
    pub(super) async fn next_while_open(&mut self) -> Result<Option<Bytes>, StoreError> {
        let (remote, rest) = (Arc::clone(&self.remote), ByteRange::new(self.at, self.end - self.at));
        let next = remote.transport().while_open(async { Ok(self.next().await) }).await;
        next.unwrap_or_else(|closed| Err(remote.given_up(rest, closed)))
    }

    /// The next piece; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        let range = ByteRange::new(self.at, self.end - self.at);
        if let Source::Lanes(lanes, turn) = &mut self.source {
            if turn.is_none() {
                *turn = Some(lanes.turn().await);
            }
            lanes.took(self.at);
            if let Some(piece) = lanes.piece(self.at, self.end).await {
                self.at += piece.len() as u64;
                return Ok(Some(piece));
            }
            self.source = Source::Undecided { is_stream: true };
        }
        if range.len == 0 {
            return Ok(None);
        }
        if let Source::Undecided { is_stream } = self.source {
            let seat = self.remote.line().seat(range, is_stream).await;
            self.source = Source::Requests(Box::new(Requests::new(&self.remote, seat, self.at)));
        }
        let Source::Requests(requests) = &mut self.source else { unreachable!("set above") };
        let piece = requests.next(&self.remote, self.at, self.end).await?;
        self.at += piece.len() as u64;
        Ok(Some(piece))
    }
}

impl Requests {
    fn new(remote: &Remote, seat: Seat, at: u64) -> Self {
        let was_parked = seat.flow.is_some();
        Self { seat, tries: remote.tries(), was_parked, came_until: at, fell_short: None }
    }

    /// The piece at `at`.
    async fn next(&mut self, remote: &Remote, at: u64, end: u64) -> Result<Bytes, StoreError> {
        loop {
            match self.bring(remote, at, end).await {
                Ok(Some(piece)) => return Ok(piece),
                Ok(None) => {}
                Err(_) if self.was_parked => {}
                Err(error) => {
                    self.fell_short = None;
                    if at - self.came_until >= PROGRESS_BYTES {
                        self.came_until = at;
                        self.tries = remote.tries();
                    }
                    remote.wait(&mut self.tries, ByteRange::new(at, end - at), error).await?;
                }
            }
            self.was_parked = false;
        }
    }

    /// Takes bytes of the response up to `end`; none at the response's own end. Makes a request when there is
    /// no response.
    async fn bring(&mut self, remote: &Remote, at: u64, end: u64) -> Result<Option<Bytes>, HttpError> {
        let mut flow = match self.seat.flow.take().filter(|flow| !flow.is_over()) {
            Some(flow) => flow,
            None => {
                if let Some(error) = self.fell_short.take() {
                    return Err(error);
                }
                let flow = remote.ask(at, self.seat.end).await?;
                self.fell_short = flow.falls_short_of(self.seat.end);
                flow
            }
        };
        let clock = remote.clock();
        while flow.at() < at {
            if flow.piece(at - flow.at(), clock).await?.is_none() {
                return Ok(None);
            }
        }
        let piece = flow.piece(end - at, clock).await?;
        self.seat.flow = Some(flow);
        Ok(piece)
    }
}

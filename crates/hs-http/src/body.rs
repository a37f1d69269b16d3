//! The bytes of an answer, on their way.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hs_engine::queue::ClientKey;
use hs_store::Store;
use hs_units::ByteRange;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::pacer::Pacer;
use super::room::{Held, Room};
use super::server::Ongoing;

/// What is sent.
pub(super) enum Content {
    /// Words, or nothing.
    Text(Option<Bytes>),
    /// Bytes of a file.
    File(FileBody),
}

/// Where the bytes of a file come from, for so many readers at once.
pub(super) struct Source {
    store: Arc<dyn Store>,
    readers: Arc<Semaphore>,
}

impl Source {
    pub(super) fn new(store: Arc<dyn Store>, most_readers: usize) -> Arc<Self> {
        Arc::new(Self { store, readers: Arc::new(Semaphore::new(most_readers)) })
    }

    /// Reads a piece, with the right to do so, which is given back when it is read, whether it is still
    /// wanted or not.
    fn read(&self, piece: Piece, right: OwnedSemaphorePermit) -> Reading {
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || {
            let _right = right;
            let mut bytes = vec![0; piece.range.len as usize];
            store.read_at(piece.range.offset, &mut bytes)?;
            Ok(Bytes::from_owner(Read { bytes, _held: piece.held }))
        })
    }
}

/// What is to be read, and the room for it.
struct Piece {
    range: ByteRange,
    held: Held,
}

/// A piece that was read. Its room is given back when nothing of it waits to be sent any more.
struct Read {
    bytes: Vec<u8>,
    _held: Held,
}

impl AsRef<[u8]> for Read {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A piece that is being read.
type Reading = JoinHandle<Result<Bytes, hs_store::StoreError>>;
/// A piece that waits for room.
type Roomless = Pin<Box<dyn Future<Output = Held> + Send>>;
/// A piece that waits until its file may be read.
type Queueing = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// Part of a file. One piece is read while the one before is sent.
pub(super) struct FileBody {
    source: Arc<Source>,
    rest: ByteRange,
    pacer: Arc<Pacer>,
    room: Arc<Room>,
    client: ClientKey,
    next: Next,
}

/// Where the next piece of a file is.
enum Next {
    /// It was not asked for.
    Unasked,
    /// Answers hold as much as they may.
    Roomless(Roomless),
    /// As many pieces of the file are read as may be.
    Queued(Option<Piece>, Queueing),
    /// It is read.
    Reading(Reading),
    /// It waits until the client may have it.
    Waiting(Bytes, Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// The body of an answer, which is counted until it is gone.
pub(super) struct Counted {
    pub(super) content: Content,
    pub(super) ongoing: Ongoing,
}

impl FileBody {
    pub(super) fn new(
        source: Arc<Source>,
        rest: ByteRange,
        pacer: Arc<Pacer>,
        room: Arc<Room>,
        client: ClientKey,
    ) -> Self {
        Self { source, rest, pacer, room, client, next: Next::Unasked }
    }

    fn ask_next(&mut self) {
        self.next = Next::Unasked;
        if self.rest.len == 0 {
            return;
        }
        let wanted = self.rest.len.min(self.pacer.piece_bytes());
        match self.room.take(self.client, wanted) {
            Some(held) => self.read_into(held),
            None => self.next = Next::Roomless(Box::pin(Arc::clone(&self.room).wait(self.client, wanted))),
        }
    }

    /// Reads as much as there is room for.
    fn read_into(&mut self, held: Held) {
        let range = ByteRange::new(self.rest.offset, held.bytes());
        self.rest = ByteRange::new(range.end(), self.rest.len - range.len);
        let (piece, readers) = (Piece { range, held }, Arc::clone(&self.source.readers));
        self.next = match Arc::clone(&readers).try_acquire_owned() {
            Ok(right) => Next::Reading(self.source.read(piece, right)),
            Err(_) => Next::Queued(Some(piece), Box::pin(readers.acquire_owned())),
        };
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, std::io::Error>>> {
        if matches!(self.next, Next::Unasked) {
            self.ask_next();
        }
        loop {
            match &mut self.next {
                Next::Unasked => return Poll::Ready(None),
                Next::Roomless(waiting) => {
                    let held = ready!(waiting.as_mut().poll(context));
                    self.read_into(held);
                }
                Next::Queued(piece, queueing) => {
                    match (ready!(queueing.as_mut().poll(context)), piece.take()) {
                        (Ok(right), Some(piece)) => self.next = Next::Reading(self.source.read(piece, right)),
                        (Ok(_), None) => self.next = Next::Unasked,
                        (Err(error), _) => return self.fail(std::io::Error::other(error)),
                    }
                }
                Next::Reading(reading) => match ready!(Pin::new(reading).poll(context)) {
                    Ok(Ok(bytes)) if self.pacer.is_limited() => {
                        let waits = Arc::clone(&self.pacer).wait(self.client, bytes.len() as u64);
                        self.next = Next::Waiting(bytes, Box::pin(waits));
                    }
                    Ok(Ok(bytes)) => {
                        self.ask_next();
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                    Ok(Err(error)) => {
                        log::error!("{}", error.with_causes());
                        return self.fail(std::io::Error::other(error));
                    }
                    Err(error) => return self.fail(std::io::Error::other(error)),
                },
                Next::Waiting(bytes, turn) => {
                    ready!(turn.as_mut().poll(context));
                    let bytes = std::mem::take(bytes);
                    self.ask_next();
                    return Poll::Ready(Some(Ok(bytes)));
                }
            }
        }
    }

    fn fail(&mut self, error: std::io::Error) -> Poll<Option<Result<Bytes, std::io::Error>>> {
        self.next = Next::Unasked;
        Poll::Ready(Some(Err(error)))
    }
}

impl Body for Counted {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = match &mut self.content {
            Content::Text(text) => Poll::Ready(text.take().map(Ok)),
            Content::File(file) => file.poll(context),
        };
        self.ongoing.polled(polled.is_ready());
        if let Poll::Ready(Some(Ok(bytes))) = &polled {
            self.ongoing.sent(bytes.len() as u64);
        }
        polled.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, Bytes::len) as u64),
            // Before the first piece is asked for, which is when it is looked at.
            Content::File(file) => match file.next {
                Next::Unasked => SizeHint::with_exact(file.rest.len),
                _ => SizeHint::default(),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Text(text) => text.is_none(),
            Content::File(file) => file.rest.len == 0 && matches!(file.next, Next::Unasked),
        }
    }
}

/// What an answer cannot fail with: it says so in its status.
pub(super) type Never = Infallible;

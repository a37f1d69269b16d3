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

use super::server::Ongoing;
use super::turns::Turns;

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

    /// Reads a piece, with the right to do so, which is given back when it is read, whether or not it is still wanted.
    fn read(&self, piece: ByteRange, right: OwnedSemaphorePermit) -> Reading {
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || {
            let _right = right;
            let mut bytes = vec![0; piece.len as usize];
            store.read_at(piece.offset, &mut bytes)?;
            Ok(Bytes::from(bytes))
        })
    }
}

/// A piece that is being read.
type Reading = JoinHandle<Result<Bytes, hs_store::StoreError>>;
/// A piece that waits until its file may be read.
type Queueing = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// Part of a file. One piece is read while the one before is sent.
pub(super) struct FileBody {
    source: Arc<Source>,
    rest: ByteRange,
    turns: Arc<Turns>,
    client: ClientKey,
    next: Next,
}

/// Where the next piece of a file is.
enum Next {
    /// It was not asked for.
    Unasked,
    /// As many pieces of the file are read as may be.
    Queued(ByteRange, Queueing),
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
    pub(super) fn new(source: Arc<Source>, rest: ByteRange, turns: Arc<Turns>, client: ClientKey) -> Self {
        Self { source, rest, turns, client, next: Next::Unasked }
    }

    fn read_next(&mut self) {
        self.next = Next::Unasked;
        if self.rest.len == 0 {
            return;
        }
        let piece = ByteRange::new(self.rest.offset, self.rest.len.min(self.turns.piece_bytes()));
        self.rest = ByteRange::new(piece.end(), self.rest.len - piece.len);
        let readers = Arc::clone(&self.source.readers);
        self.next = match Arc::clone(&readers).try_acquire_owned() {
            Ok(right) => Next::Reading(self.source.read(piece, right)),
            Err(_) => Next::Queued(piece, Box::pin(readers.acquire_owned())),
        };
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, std::io::Error>>> {
        if matches!(self.next, Next::Unasked) {
            self.read_next();
        }
        loop {
            match &mut self.next {
                Next::Unasked => return Poll::Ready(None),
                Next::Queued(piece, queueing) => {
                    let piece = *piece;
                    match ready!(queueing.as_mut().poll(context)) {
                        Ok(right) => self.next = Next::Reading(self.source.read(piece, right)),
                        Err(error) => return self.fail(std::io::Error::other(error)),
                    }
                }
                Next::Reading(reading) => match ready!(Pin::new(reading).poll(context)) {
                    Ok(Ok(bytes)) if self.turns.are_taken() => {
                        let waits = Arc::clone(&self.turns).wait(self.client, bytes.len() as u64);
                        self.next = Next::Waiting(bytes, Box::pin(waits));
                    }
                    Ok(Ok(bytes)) => {
                        self.read_next();
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
                    self.read_next();
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

//! The bytes of an answer, on their way.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hs_store::Store;
use hs_units::ByteRange;
use hyper::body::{Body, Bytes, Frame, SizeHint};
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

/// Part of a file. One piece is read while the one before is sent.
pub(super) struct FileBody {
    pub(super) store: Arc<dyn Store>,
    pub(super) rest: ByteRange,
    pub(super) turns: Arc<Turns>,
    pub(super) client: IpAddr,
    pub(super) next: Next,
}

/// Where the next piece of a file is.
pub(super) enum Next {
    /// Nobody has asked for it.
    Unasked,
    /// It is read.
    Reading(JoinHandle<Result<Bytes, hs_store::StoreError>>),
    /// It waits until the client may have it.
    Waiting(Bytes, Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// The body of an answer, which is counted until it is gone.
pub(super) struct Counted {
    pub(super) content: Content,
    pub(super) ongoing: Ongoing,
}

impl FileBody {
    pub(super) fn new(store: Arc<dyn Store>, rest: ByteRange, turns: Arc<Turns>, client: IpAddr) -> Self {
        Self { store, rest, turns, client, next: Next::Unasked }
    }

    fn read_next(&mut self) {
        self.next = Next::Unasked;
        if self.rest.len == 0 {
            return;
        }
        let piece = ByteRange::new(self.rest.offset, self.rest.len.min(self.turns.piece_bytes()));
        self.rest = ByteRange::new(piece.end(), self.rest.len - piece.len);
        let store = Arc::clone(&self.store);
        self.next = Next::Reading(tokio::task::spawn_blocking(move || {
            let mut bytes = vec![0; piece.len as usize];
            store.read_at(piece.offset, &mut bytes)?;
            Ok(Bytes::from(bytes))
        }));
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, std::io::Error>>> {
        if matches!(self.next, Next::Unasked) {
            self.read_next();
        }
        loop {
            match &mut self.next {
                Next::Unasked => return Poll::Ready(None),
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

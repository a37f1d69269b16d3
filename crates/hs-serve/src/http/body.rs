//! The bytes of an answer, on their way.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hs_store::Store;
use hs_units::ByteRange;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::task::JoinHandle;

use super::server::Ongoing;

/// Bytes read at once: as many as a stream of a file reads.
const PIECE_BYTES: u64 = 256 << 10;

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
    pub(super) reading: Option<JoinHandle<Result<Bytes, hs_store::StoreError>>>,
}

/// The body of an answer, which is counted until it is gone.
pub(super) struct Counted {
    pub(super) content: Content,
    pub(super) ongoing: Ongoing,
}

impl FileBody {
    fn read_next(&mut self) {
        if self.rest.len == 0 {
            return;
        }
        let piece = ByteRange::new(self.rest.offset, self.rest.len.min(PIECE_BYTES));
        self.rest = ByteRange::new(piece.end(), self.rest.len - piece.len);
        let store = Arc::clone(&self.store);
        self.reading = Some(tokio::task::spawn_blocking(move || {
            let mut bytes = vec![0; piece.len as usize];
            store.read_at(piece.offset, &mut bytes)?;
            Ok(Bytes::from(bytes))
        }));
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, std::io::Error>>> {
        if self.reading.is_none() {
            self.read_next();
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let read = match Pin::new(reading).poll(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(read) => read,
        };
        self.reading = None;
        match read {
            Ok(Ok(bytes)) => {
                self.read_next();
                Poll::Ready(Some(Ok(bytes)))
            }
            Ok(Err(error)) => {
                log::error!("{}", error.with_causes());
                Poll::Ready(Some(Err(std::io::Error::other(error))))
            }
            Err(error) => Poll::Ready(Some(Err(std::io::Error::other(error)))),
        }
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
            Content::File(file) => match file.reading {
                None => SizeHint::with_exact(file.rest.len),
                Some(_) => SizeHint::default(),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Text(text) => text.is_none(),
            Content::File(file) => file.rest.len == 0 && file.reading.is_none(),
        }
    }
}

/// What an answer cannot fail with: it says so in its status.
pub(super) type Never = Infallible;

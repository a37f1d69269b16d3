//! A response that is being read.

use std::future::poll_fn;

use bytes::Bytes;
use hs_units::{ByteRange, Nanos};

use super::HttpError;
use super::reader::PROGRESS_BYTES;
use super::transport::Body;
use hs_store::{Clock, InService};

/// A connection that brings less in [`FLOOR_SPAN`] counts as cut: a telephone line brings a hundred times as
/// much.
const FLOOR_BYTES: u64 = 30 << 10;
/// Time spent waiting for a response, after which its rate is looked at.
const FLOOR_SPAN: Nanos = Nanos::from_millis(30_000);

/// The bytes of one response, from [`at`](Self::at) on.
pub(super) struct Flow {
    body: Box<dyn Body>,
    /// Where in the file the next byte belongs.
    at: u64,
    /// Where in the file the response ends.
    end: u64,
    start: u64,
    /// What has come and is not taken yet.
    rest: Bytes,
    /// The piece that was returned last: a caller that broke off did not use all of it.
    last: Bytes,
    in_service: InService,
    /// Time spent waiting, and what came in it, since the rate was looked at last.
    waited: Nanos,
    came: u64,
}

impl Flow {
    pub(super) fn new(body: Box<dyn Body>, range: ByteRange, in_service: InService) -> Self {
        let (rest, last) = (Bytes::new(), Bytes::new());
        let (waited, came) = (Nanos::ZERO, 0);
        Self {
            body,
            at: range.offset,
            end: range.end(),
            start: range.offset,
            rest,
            last,
            in_service,
            waited,
            came,
        }
    }

    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    pub(super) const fn is_over(&self) -> bool {
        self.at == self.end
    }

    /// The error of a server that answers a request up to `end` with less, and with less than any progress.
    pub(super) fn falls_short_of(&self, end: u64) -> Option<HttpError> {
        let got = self.end - self.start;
        let is_short = self.end < end && got < PROGRESS_BYTES;
        is_short.then(|| HttpError::Cut { got, expected: end - self.start })
    }

    /// Goes back to `offset`, if that lies in the last piece, or is the current position.
    pub(super) fn rewind(&mut self, offset: u64) -> bool {
        let Some(back) = self.at.checked_sub(offset).filter(|back| *back <= self.last.len() as u64) else {
            return false;
        };
        if back != 0 {
            let again = self.last.slice(self.last.len() - back as usize..);
            // Seldom, and once a response: the piece that follows may have come already.
            self.rest =
                if self.rest.is_empty() { again } else { Bytes::from([again, self.rest.clone()].concat()) };
            self.at = offset;
        }
        true
    }

    /// The next `wanted` bytes, or all there are, without taking them.
    pub(super) async fn peek(&mut self, wanted: usize, clock: &dyn Clock) -> Result<&[u8], HttpError> {
        let wanted = (self.end - self.at).min(wanted as u64) as usize;
        while self.rest.len() < wanted {
            let piece = self.come(clock).await?;
            self.rest =
                if self.rest.is_empty() { piece } else { Bytes::from([self.rest.clone(), piece].concat()) };
        }
        Ok(&self.rest[..wanted])
    }

    /// The next bytes, `most` of them at most; nothing at the response's end.
    pub(super) async fn piece(&mut self, most: u64, clock: &dyn Clock) -> Result<Option<Bytes>, HttpError> {
        if self.is_over() {
            return Ok(None);
        }
        if self.rest.is_empty() {
            self.rest = self.come(clock).await?;
        }
        let take = most.min(self.end - self.at).min(self.rest.len() as u64);
        let piece = self.rest.split_to(take as usize);
        self.at += take;
        self.last = piece.clone();
        if self.is_over() && self.rest.is_empty() {
            // Only a body that was read to its end leaves a connection that can be used again.
            let _ = poll_fn(|context| self.body.poll_piece(context)).await;
        }
        Ok(Some(piece))
    }

    /// Waits for the next piece of the body.
    async fn come(&mut self, clock: &dyn Clock) -> Result<Bytes, HttpError> {
        let cut = HttpError::Cut { got: self.at - self.start, expected: self.end - self.start };
        self.check_rate()?;
        let asked = clock.now();
        let piece = poll_fn(|context| self.body.poll_piece(context)).await?.ok_or(cut)?;
        self.waited += clock.now().saturating_sub(asked);
        self.came += piece.len() as u64;
        self.in_service.deliver(piece.len() as u64);
        Ok(piece)
    }

    /// Only time spent waiting counts: a response that is not taken is not slow.
    fn check_rate(&mut self) -> Result<(), HttpError> {
        if self.waited < FLOOR_SPAN {
            return Ok(());
        }
        let (waited, bytes) = (std::mem::take(&mut self.waited), std::mem::take(&mut self.came));
        if bytes < FLOOR_BYTES { Err(HttpError::Slow { bytes, waited: waited.into() }) } else { Ok(()) }
    }
}

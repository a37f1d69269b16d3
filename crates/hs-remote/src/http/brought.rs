//! Answers that another process has brought: a request for the same bytes takes one of them, and every other
//! request goes to the server.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hs_store::Clock;
use hs_units::{ByteRange, Nanos};
use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::HttpError;
use super::transport::{Body, Pending, Reply, Request, Transport};

/// What a part of a body says of itself: RFC 9110, sections 8.6 and 14.4.
const CONTENT_RANGE: &str = "content-range";
const CONTENT_LENGTH: &str = "content-length";
const PIECE_BYTES: usize = 64 << 10;

/// The answer to a request for bytes of a file. Never printed: its address may have a signature.
pub(crate) struct BroughtAnswer {
    /// The bytes that were asked for.
    pub(crate) range: ByteRange,
    /// The status.
    pub(crate) status: u16,
    /// The fields of its head that are text.
    pub(crate) fields: Vec<(String, String)>,
    /// Where it came from, after redirects.
    pub(crate) url: Url,
    /// What followed.
    pub(crate) body: Bytes,
}

impl BroughtAnswer {
    /// The answer to a request for a part of it, where it began with the file's first byte.
    pub(crate) fn part(&self, range: ByteRange) -> Option<Self> {
        let (from, to) = (usize::try_from(range.offset).ok()?, usize::try_from(range.end()).ok()?);
        let (its, mut fields): (Vec<_>, Vec<_>) = (self.fields.iter().cloned())
            .partition(|(name, _)| [CONTENT_RANGE, CONTENT_LENGTH].contains(&name.as_str()));
        let said = its.iter().find(|(name, _)| name == CONTENT_RANGE).map(|(_, value)| value);
        let len = match (self.status, said) {
            (200, None) => self.body.len().to_string(),
            (206, Some(said)) => said.strip_prefix("bytes 0-")?.split_once('/')?.1.to_owned(),
            _ => return None,
        };
        if range.len == 0 || to > self.body.len() {
            return None;
        }
        let said = format!("bytes {from}-{}/{len}", to - 1);
        fields.push((CONTENT_RANGE.to_owned(), said));
        Some(Self { range, status: 206, fields, url: self.url.clone(), body: self.body.slice(from..to) })
    }

    fn reply(self) -> Reply {
        let field = |(name, value): &(String, String)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        };
        let headers: HeaderMap = self.fields.iter().filter_map(field).collect();
        Reply { status: self.status, headers, url: self.url, body: Box::new(BroughtBody(self.body)) }
    }
}

/// What follows the head, in pieces as a connection brings them: of a piece in which a reader breaks off,
/// only the next one can have the rest.
struct BroughtBody(Bytes);

impl Body for BroughtBody {
    fn poll_piece(&mut self, _context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, HttpError>> {
        let piece = self.0.split_to(self.0.len().min(PIECE_BYTES));
        Poll::Ready(Ok((!piece.is_empty()).then_some(piece)))
    }
}

/// A transport that has some answers already. Each is given once: what is asked for again is asked of the
/// server.
pub(crate) struct Brought {
    transport: Arc<dyn Transport>,
    answers: Mutex<Vec<BroughtAnswer>>,
}

impl Brought {
    /// All else is asked of `transport`.
    pub(crate) fn new(transport: Arc<dyn Transport>, answers: Vec<BroughtAnswer>) -> Self {
        Self { transport, answers: Mutex::new(answers) }
    }

    fn take(&self, request: &Request) -> Option<Reply> {
        let mut answers = self.answers.lock();
        let is_it = |answer: &BroughtAnswer| !request.only_head && answer.range == request.range;
        let at = answers.iter().position(is_it)?;
        Some(answers.swap_remove(at).reply())
    }
}

impl Transport for Brought {
    fn ask<'a>(&'a self, request: &'a Request) -> Pending<'a, Result<Reply, HttpError>> {
        match self.take(request) {
            Some(reply) => Box::pin(std::future::ready(Ok(reply))),
            None => self.transport.ask(request),
        }
    }

    fn drive(&self, future: Pin<&mut dyn Future<Output = ()>>) {
        self.transport.drive(future);
    }

    fn spawn(&self, future: Pending<'static, ()>) -> bool {
        self.transport.spawn(future)
    }

    fn apart(&self, work: Box<dyn FnOnce() + Send>) -> Pending<'static, ()> {
        self.transport.apart(work)
    }

    fn pause<'a>(&'a self, clock: &'a dyn Clock, until: Nanos) -> Pending<'a, ()> {
        self.transport.pause(clock, until)
    }

    fn close(&self) {
        self.transport.close();
    }

    fn closed(&self) -> Pending<'_, ()> {
        self.transport.closed()
    }
}

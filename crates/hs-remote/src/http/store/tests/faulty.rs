//! A server in memory, and what it may do wrong.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hs_units::{ByteRange, Nanos, Prng};
use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderName};

use crate::http::{Body, HttpError, Pending, Reply, Request, Transport};
use hs_store::virtual_clock::Virtual;

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mishap {
    /// The connection ends after this many bytes of the body.
    Cut(u64),
    /// The body ends well after this many bytes, though more were announced.
    Short(u64),
    /// No connection.
    NoConnection,
    /// The server's certificate is not trusted.
    Untrusted,
    /// It answers with this status, and perhaps when to come back.
    Status(u16, Option<u64>),
    /// It sends the whole file.
    Whole,
    /// It sends other bytes than were asked for, and says so.
    Elsewhere,
    /// It compresses what it sends.
    Compressed,
    /// It sends less than was asked for, and says so, as it may.
    Less(u64),
    /// It adds bytes that it did not announce.
    More,
    /// Each byte comes alone, so many milliseconds after the one before, and after so many the connection
    /// ends.
    Trickle(u64, u64),
}

/// A server of one file.
pub(super) struct Faulty {
    state: Mutex<ServedFile>,
}

struct ServedFile {
    bytes: Bytes,
    generation: u64,
    mishaps: VecDeque<Mishap>,
    seeded: Option<Prng>,
    seen: u64,
    clock: Option<Arc<Virtual>>,
}

impl Faulty {
    /// A server without faults until a test sets some.
    pub(super) fn new(bytes: Vec<u8>) -> Arc<Self> {
        let state = ServedFile {
            bytes: bytes.into(),
            generation: 1,
            mishaps: VecDeque::new(),
            seeded: None,
            seen: 0,
            clock: None,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// What a slow answer moves.
    pub(super) fn set_clock(&self, clock: &Arc<Virtual>) {
        self.state.lock().clock = Some(Arc::clone(clock));
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.state.lock().bytes.clone()
    }

    pub(super) fn seen(&self) -> u64 {
        self.state.lock().seen
    }

    /// Another file takes the place of this one.
    pub(super) fn replace(&self, bytes: Vec<u8>) {
        let mut state = self.state.lock();
        state.bytes = bytes.into();
        state.generation += 1;
    }

    /// Faults of the next requests, one each; a `Cut` also ends what is under way at its next piece.
    pub(super) fn mishaps(&self, mishaps: impl IntoIterator<Item = Mishap>) {
        self.state.lock().mishaps.extend(mishaps);
    }

    /// From now on about every other request goes wrong somehow.
    pub(super) fn misbehave(&self, seed: u64) {
        self.state.lock().seeded = Some(Prng::new(seed));
    }

    pub(super) fn behave(&self) {
        let mut state = self.state.lock();
        state.seeded = None;
        state.mishaps.clear();
    }
}

/// How bad a schedule is differs from seed to seed.
fn draw(prng: &mut Prng) -> Option<Mishap> {
    if prng.below(100) < 45 {
        return None;
    }
    let bytes = if prng.below(2) == 0 { prng.below(1_000) } else { prng.below(300_000) };
    Some(match prng.below(20) {
        0..=5 => Mishap::Cut(bytes),
        6 => Mishap::Short(bytes),
        7..=9 => Mishap::NoConnection,
        10 => Mishap::Status(500, None),
        11 => Mishap::Status(502, None),
        12 => Mishap::Status(429, Some(prng.below(90))),
        13 => Mishap::Status(503, Some(prng.below(20))),
        14 | 15 => Mishap::Elsewhere,
        16 => Mishap::Compressed,
        17 => Mishap::Less(1 + bytes),
        18 => Mishap::More,
        _ if prng.below(40) == 0 => Mishap::Status(404, None),
        _ => Mishap::Cut(0),
    })
}

fn headers(fields: &[(&'static str, String)]) -> HeaderMap {
    let field = |(name, value): &(&'static str, String)| {
        (HeaderName::from_static(name), value.parse().expect("a field's value"))
    };
    fields.iter().map(field).collect()
}

fn reply(request: &Request, status: u16, fields: &[(&'static str, String)], body: Pieces) -> Reply {
    Reply { status, headers: headers(fields), url: request.url.clone(), body: Box::new(body) }
}

impl Transport for Arc<Faulty> {
    fn ask<'a>(&'a self, request: &'a Request) -> Pending<'a, Result<Reply, HttpError>> {
        self.as_ref().ask(request)
    }
}

impl Transport for Faulty {
    fn ask<'a>(&'a self, request: &'a Request) -> Pending<'a, Result<Reply, HttpError>> {
        Box::pin(std::future::ready(self.answer(request)))
    }
}

impl Faulty {
    fn answer(&self, request: &Request) -> Result<Reply, HttpError> {
        let mut state = self.state.lock();
        state.seen += 1;
        let mishap = state.mishaps.pop_front().or_else(|| state.seeded.as_mut().and_then(draw));
        let tag = format!("\"{}\"", state.generation);
        let whole = state.bytes.clone();
        let len = whole.len() as u64;
        let clock = state.clock.clone();
        drop(state);
        let nothing = || Pieces::of(Bytes::new(), None);
        match mishap {
            Some(Mishap::NoConnection) => {
                return Err(HttpError::Connection { reason: "no connection".to_owned(), permanent: false });
            }
            Some(Mishap::Untrusted) => {
                return Err(HttpError::Connection { reason: "bad certificate".to_owned(), permanent: true });
            }
            Some(Mishap::Status(status, again)) => {
                let fields: Vec<_> =
                    again.map(|again| ("retry-after", again.to_string())).into_iter().collect();
                return Ok(reply(request, status, &fields, nothing()));
            }
            _ => {}
        }
        if request.if_match.as_ref().is_some_and(|wanted| *wanted != tag) {
            return Ok(reply(request, 412, &[("etag", tag)], nothing()));
        }
        if request.if_none_match.as_ref() == Some(&tag) {
            return Ok(reply(request, 304, &[("etag", tag)], nothing()));
        }
        if request.range.offset >= len {
            return Ok(reply(request, 416, &[("content-range", format!("bytes */{len}"))], nothing()));
        }
        if let Some(Mishap::Whole) = mishap {
            let fields = [("content-length", len.to_string()), ("etag", tag)];
            return Ok(reply(request, 200, &fields, Pieces::of(whole, None)));
        }
        let mut end = request.range.end().min(len);
        if let Some(Mishap::Less(most)) = mishap {
            end = end.min(request.range.offset + most);
        }
        let mut came = ByteRange::new(request.range.offset, end - request.range.offset);
        if let Some(Mishap::Elsewhere) = mishap {
            came.offset = came.offset.saturating_sub(1);
            came.len = came.len.saturating_sub(1).max(1);
        }
        let mut body = whole.slice(came.offset as usize..came.end() as usize);
        let mut fields = vec![
            ("content-range", format!("bytes {}-{}/{len}", came.offset, came.end() - 1)),
            ("content-length", came.len.to_string()),
            ("etag", tag),
        ];
        let mut cut = None;
        match mishap {
            Some(Mishap::Cut(after)) => cut = Some(after),
            Some(Mishap::Short(after)) => body = body.slice(..(after as usize).min(body.len())),
            Some(Mishap::Compressed) => fields.push(("content-encoding", "gzip".to_owned())),
            Some(Mishap::More) => body = Bytes::from([body, Bytes::from(vec![0xaa; 5_000])].concat()),
            _ => {}
        }
        let mut pieces = Pieces::of(body, cut);
        if let (Some(Mishap::Trickle(millis, bytes)), Some(clock)) = (mishap, clock) {
            pieces = Pieces {
                trickle: Some((clock, Nanos::from_millis(millis))),
                cut_after: Some(bytes),
                ..pieces
            };
        }
        Ok(reply(request, 206, &fields, pieces))
    }
}

/// A body in pieces of any size.
struct Pieces {
    rest: Bytes,
    cut_after: Option<u64>,
    next: u64,
    /// Pieces are bytes, each of which takes so long.
    trickle: Option<(Arc<Virtual>, Nanos)>,
}

impl Pieces {
    fn of(rest: Bytes, cut_after: Option<u64>) -> Self {
        Self { rest, cut_after, next: 1, trickle: None }
    }
}

impl Body for Pieces {
    fn poll_piece(&mut self, _context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, HttpError>> {
        Poll::Ready(self.piece())
    }
}

impl Pieces {
    fn piece(&mut self) -> Result<Option<Bytes>, HttpError> {
        let mut most = 1 + self.next * 7_919 % 65_536;
        self.next += 1;
        if let Some((clock, span)) = &self.trickle {
            clock.advance(*span);
            most = 1;
        }
        if let Some(left) = &mut self.cut_after {
            if *left == 0 {
                return Err(HttpError::Connection {
                    reason: "connection reset".to_owned(),
                    permanent: false,
                });
            }
            most = most.min(*left);
            *left -= most;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let most = (most as usize).min(self.rest.len());
        Ok(Some(self.rest.split_to(most)))
    }
}

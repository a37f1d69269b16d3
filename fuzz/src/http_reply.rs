//! Bytes as heads and bodies of a web server's answers, to a store that opens and reads a file there. The
//! first byte chooses the status; lines are fields; after an empty line comes the body. A line of "==" begins
//! the next answer; the last one is repeated.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hs_remote::http::{
    Body, HttpError, HttpOptions, HttpStore, Measure, Patience, Pending, RemoteAddress, Reply, Request,
    Transport,
};
use hs_store::{Clock, Store};
use hs_units::Nanos;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

const STATUSES: [u16; 8] = [206, 200, 304, 404, 412, 416, 429, 503];
/// A file of more than this is not read: its size is only claimed.
const READ_BYTES: u64 = 64 << 10;

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let server = Arc::new(Server { answers: Bytes::copy_from_slice(data), asked: AtomicUsize::new(0) });
    let address = RemoteAddress::parse("http://server.example/file").expect("an address");
    let patience = Patience { tries: 2, ..Patience::default() };
    let options = HttpOptions {
        patience,
        clock: Arc::new(Skipped::default()),
        seed: 1,
        opening_bytes: 4096,
        measure: Some(Measure { bytes: 8, length: |first| Some(first.len() as u64 * 100) }),
        ..HttpOptions::default()
    };
    let Ok(store) = HttpStore::open(Box::new(address), server, options) else { return false };
    let mut bytes = vec![0; store.len().min(READ_BYTES) as usize];
    let _ = store.read_at(0, &mut bytes);
    store.digests_decide();
    let middle = store.len() / 2;
    let mut few = vec![0; (store.len() - middle).min(100) as usize];
    let _ = store.read_at(middle, &mut few);
    true
}

/// Time passes only in pauses, which are over at once.
#[derive(Default)]
struct Skipped(AtomicU64);

impl Clock for Skipped {
    fn now(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, at: Nanos) {
        self.0.fetch_max(at.0, Ordering::Relaxed);
    }
}

struct Server {
    answers: Bytes,
    asked: AtomicUsize,
}

impl Transport for Server {
    fn ask<'a>(&'a self, request: &'a Request) -> Pending<'a, Result<Reply, HttpError>> {
        let text = &self.answers[..];
        let answers: Vec<&[u8]> = split(text, b"\n==\n");
        let number = self.asked.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
        let (status, rest) = answers[number].split_first().unwrap_or((&0, &[]));
        let parts = split(rest, b"\n\n");
        let mut headers = HeaderMap::new();
        for line in parts[0].split(|byte| *byte == b'\n') {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = (
                HeaderName::from_bytes(&line[..colon]),
                HeaderValue::from_bytes(line[colon + 1..].trim_ascii()),
            );
            if let (Ok(name), Ok(value)) = (name, value) {
                headers.append(name, value);
            }
        }
        let body = Bytes::copy_from_slice(parts.get(1).copied().unwrap_or_default());
        let status = STATUSES[usize::from(*status) % STATUSES.len()];
        let body = Box::new(Pieces(body));
        Box::pin(ready(Ok(Reply { status, headers, url: request.url.clone(), body })))
    }
}

/// The parts between `mark`, one at least.
fn split<'a>(bytes: &'a [u8], mark: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(mark.len()).position(|window| window == mark) {
        parts.push(&rest[..at]);
        rest = &rest[at + mark.len()..];
    }
    parts.push(rest);
    parts
}

struct Pieces(Bytes);

impl Body for Pieces {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, HttpError>> {
        let len = self.0.len().min(1000);
        Poll::Ready(Ok((len > 0).then(|| self.0.split_to(len))))
    }
}

//! One request over HTTP, as the store sees it: what tests replace.

use std::time::Duration;

use hs_units::ByteRange;
use reqwest::header::HeaderMap;
use url::Url;

use super::HttpError;

/// A request for bytes of a file.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where the file is.
    pub url: Url,
    /// Further headers for the server, such as a login. Secrets: nothing here is ever printed.
    pub headers: HeaderMap,
    /// The bytes that are wanted; not empty.
    pub range: ByteRange,
    /// Only when the file has this strong entity tag (`If-Match`).
    pub if_match: Option<String>,
    /// Only when the file has not this entity tag (`If-None-Match`).
    pub if_none_match: Option<String>,
}

/// How a server answered.
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// Where the answer came from, after redirects.
    pub url: Url,
    /// What follows.
    pub body: Box<dyn Body>,
}

/// The bytes of an answer, as they come. Dropping it ends the transfer.
pub trait Body: Send {
    /// Waits for the next piece; nothing at the end. Pieces are not empty.
    ///
    /// # Errors
    /// [`HttpError::Connection`] when the connection is cut, or nothing comes for too long.
    fn piece(&mut self) -> Result<Option<bytes::Bytes>, HttpError>;
}

/// What makes requests, on as many connections as there are requests at once.
pub trait Transport: Send + Sync {
    /// Makes a request and waits for the head of the answer, redirects followed.
    ///
    /// # Errors
    /// [`HttpError::Connection`] when there is none.
    fn ask(&self, request: &Request) -> Result<Reply, HttpError>;

    /// Ends all transfers: whatever is under way fails with [`HttpError::Closed`], and so does what follows.
    fn close(&self) {}
}

/// How long the network may be silent.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Until a connection is there, TLS included.
    pub connect: Duration,
    /// Between two pieces of an answer, and before its head.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::within(Duration::from_secs(60))
    }
}

impl Timeouts {
    /// Timeouts that leave a reader with this patience time to try several connections.
    #[must_use]
    pub fn within(patience: Duration) -> Self {
        let part = (patience / 4).clamp(Duration::from_millis(100), Duration::from_secs(15));
        Self { connect: part.min(Duration::from_secs(10)), stall: part }
    }
}

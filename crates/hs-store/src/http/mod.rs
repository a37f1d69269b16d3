//! A file on a web server, read by ranges: [`HttpStore`].
//!
//! ```text
//! read_at, stream ──► HttpStore ──► Line: may a response that is open already go on with this?
//!                        │            no: a request of its own
//!                        ├── Patience: again after a pause, from the byte that did not come
//!                        └── understand: is the answer what was asked for, and of the same file?
//!                              ▲
//!                        Transport (HttpClient; tests have their own)
//! ```
//!
//! - **Opening is a request for the first bytes**, which tells size and entity tag; whoever then reads from
//!   the start is given the same response.
//! - **A stream that was announced is one long response**
//!   ([`Store::expect_stream`](crate::Store::expect_stream)), taken piece by piece by whoever asks for the
//!   next range. While nobody does, TCP's window holds the server.
//! - **A stream that is most of the file is several responses at once**
//!   ([`Store::expect_most`](crate::Store::expect_most)): many servers and long ways give one connection less
//!   than the link has.
//! - **Every answer is checked** for status, range, length, and that the file is still the one that was
//!   opened (`If-Match` where the tag is a strong one). What is wrong for a moment is asked for again, from
//!   the byte that is missing, after pauses that double. No bytes of two files ever meet.
//!
//! What a server sends is otherwise believed: digests are the business of whoever knows them.

mod address;
mod authorities;
mod client;
mod error;
mod flow;
mod lanes;
mod line;
mod offline;
mod patience;
mod reply;
mod store;
mod transport;
mod tries;

pub use address::{Locate, Located, RemoteAddress};
pub(crate) use client::Answer;
pub use client::HttpClient;
pub use error::HttpError;
pub use offline::Offline;
pub use patience::Patience;
pub use reply::Version;
pub use store::{HttpOptions, HttpStore};
pub use transport::{Body, Reply, Request, Timeouts, Transport};
pub(crate) use tries::Tries;

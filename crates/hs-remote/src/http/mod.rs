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
//! - **Opening is a request for the first bytes**, which tells size and entity tag. A reader that then reads
//!   from the start gets the same response.
//! - **An announced stream is one long response** ([`Store::expect_stream`](hs_store::Store::expect_stream)),
//!   which the request for each next range continues. Between such requests TCP's window holds the server.
//! - **A stream that is most of the file is several responses at once**
//!   ([`Store::expect_most`](hs_store::Store::expect_most)): many servers and long distances give one
//!   connection less than the link has.
//! - **Every answer is checked** for status, range, length, and that the file is still the one that was
//!   opened (`If-Match` where the tag is a strong one). After a temporary error the request is made again,
//!   from the missing byte on, after pauses that double. Bytes of two files are never mixed.
//! - **Where digests decide** ([`HttpStore::digests_decide`]) tags and dates may differ between answers.
//! - **An address or a token that expires** is renewed by one request; the others under way wait for it.
//!
//! The content itself is not checked here: a layer above that knows the digests verifies it.

mod address;
mod authorities;
mod brought;
mod client;
mod current_address;
mod error;
mod flow;
mod lanes;
mod line;
mod marks;
mod offline;
mod patience;
mod proxies;
mod reader;
mod reply;
mod store;
mod transport;
mod tries;

pub use address::{Locate, Located, RemoteAddress};
pub(crate) use brought::{Brought, BroughtAnswer};
pub(crate) use client::Answer;
pub use client::HttpClient;
pub use error::HttpError;
pub use offline::Offline;
pub use patience::Patience;
pub use reply::Version;
pub use store::{HttpOptions, HttpStore, Measure};
pub use transport::{Body, Pending, Reply, Request, Timeouts, Transport};
pub(crate) use tries::Tries;

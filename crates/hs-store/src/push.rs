//! Sending an image to where others read it.

use std::io;
use std::ops::ControlFlow;

use crate::http::HttpError;

/// Told how many bytes of how many are there; `Break` ends the sending, and what was sent is given up.
pub type Pushing<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + Send + 'a;

/// What became of an image that was to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Bytes of the image that were sent; none when it was there already.
    pub sent_bytes: u64,
    /// A registry's name for it, which only it can have: the manifest's digest.
    pub digest: Option<String>,
}

/// Why an image could not be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// There is no way there, or it is refused.
    #[error("cannot send to {address}")]
    Refused {
        /// Where to, without secrets.
        address: String,
        /// What was said.
        source: HttpError,
    },
    /// Something else lies there.
    #[error("{address} is another object already (--replace replaces it)")]
    Taken {
        /// Where it was to lie.
        address: String,
    },
    /// Whoever sent it has given up.
    #[error("sending to {address} was interrupted; nothing of it is kept there")]
    Interrupted {
        /// Where to.
        address: String,
    },
}

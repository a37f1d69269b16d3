//! Sending an image to where others read it.

use std::io;
use std::ops::ControlFlow;

use crate::http::HttpError;

/// Called with the bytes that are there and the total; `Break` ends the sending. What was sent is kept for a
/// later process where it is noted, and removed elsewhere.
pub type Pushing<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + Send + 'a;

/// The result of sending an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Bytes of the image that were sent; none when it was there already.
    pub sent_bytes: u64,
    /// Bytes that an earlier process had sent before it was interrupted.
    pub resumed_bytes: u64,
    /// A registry's name for it, which only it can have: the manifest's digest.
    pub digest: Option<String>,
}

/// The result of giving up an interrupted upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// There was none that this machine knows of.
    Nothing,
    /// What had come is removed.
    Removed,
    /// The upload is given up. The store cannot be asked to remove what had come, and does so on its own.
    Forgotten,
}

/// What the user can do with a kept upload.
pub(crate) const KEPT: &str =
    "what has come is kept there: the same push goes on with it, push --abandon gives it up";

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
    /// The address cannot be reached, or it refuses.
    #[error("cannot send to {address}")]
    Refused {
        /// Where to, without secrets.
        address: String,
        /// The error of the request.
        source: HttpError,
    },
    /// Another object has the address.
    #[error("{address} already has another object (--replace replaces it)")]
    Taken {
        /// Where it was to lie.
        address: String,
    },
    /// The caller interrupted the sending.
    #[error("sending to {address} was interrupted; {}", if *.is_kept { KEPT } else { "nothing of it is kept there" })]
    Interrupted {
        /// Where to.
        address: String,
        /// Whether what was sent is kept there, for a later process.
        is_kept: bool,
    },
}

//! What each digest of an image is computed over.
//!
//! Chunks and logical windows use plain BLAKE3, so that `b3sum` can check them; everything else uses
//! BLAKE3's key derivation mode with a context of its own, so that bytes of one kind can never stand
//! for another kind.

use core::fmt;
use core::str::FromStr;

use hs_units::{Digest, ParseDigestError};

pub(crate) const IMAGE_CONTEXT: &str = "headstart 2026-11-21 draft 1 image digest";
pub(crate) const ROOT_CONTEXT: &str = "headstart 2026-11-21 draft 1 cold index root";
pub(crate) const LEAF_CONTEXT: &str = "headstart 2026-11-21 draft 1 cold index leaf";
pub(crate) const HOT_INDEX_CONTEXT: &str = "headstart 2026-11-21 draft 1 hot index";
pub(crate) const PACK_BACKING_CONTEXT: &str = "headstart 2026-11-28 draft 1 pack backing files";
pub(crate) const PACK_RUNS_CONTEXT: &str = "headstart 2026-11-28 draft 1 pack runs";
pub(crate) const UNREAD_DISK_CONTEXT: &str = "headstart 2026-11-28 draft 1 unread disk";
pub(crate) const HINTS_CONTEXT: &str = "headstart 2026-11-21 draft 1 hints";
pub(crate) const DISK_NODE_CONTEXT: &str = "headstart 2026-11-21 disk digest 1 node";
pub(crate) const DISK_ROOT_CONTEXT: &str = "headstart 2026-11-21 disk digest 1 root";

/// Plain BLAKE3.
pub(crate) fn plain(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// BLAKE3 in key derivation mode.
pub(crate) fn derived(context: &str, bytes: &[u8]) -> Digest {
    Digest(blake3::derive_key(context, bytes))
}

/// The digest of a chunk's *stored* bytes: plain BLAKE3.
#[must_use]
pub fn chunk_digest(stored: &[u8]) -> Digest {
    plain(stored)
}

/// The name of an image: the digest of its superblock without signature and checksum, and through the
/// digests in there of every byte of index, hints and chunks. Printed and parsed as `hs1-` and 64
/// hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ImageDigest(pub Digest);

impl fmt::Display for ImageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0)
    }
}

impl ImageDigest {
    /// What its text starts with.
    pub const PREFIX: &'static str = "hs1-";
}

/// Why a text is not an [`ImageDigest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an image digest is hs1- and 64 hexadecimal digits")]
pub struct ParseImageDigestError;

impl From<ParseDigestError> for ParseImageDigestError {
    fn from(_: ParseDigestError) -> Self {
        Self
    }
}

impl FromStr for ImageDigest {
    type Err = ParseImageDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix(Self::PREFIX).ok_or(ParseImageDigestError)?;
        Ok(Self(digits.parse()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_digest_text_round_trips() {
        let digest = ImageDigest(chunk_digest(b"abc"));
        assert!(digest.to_string().starts_with("hs1-6437b3ac38465133ffb63b75273a8db5"));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert!(digest.0.to_string().parse::<ImageDigest>().is_err());
        assert!("hs1-12".parse::<ImageDigest>().is_err());
    }
}

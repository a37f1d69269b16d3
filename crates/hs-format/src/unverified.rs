//! Bytes that came from a store, which nothing looks at before their digest is right.

use core::fmt;
use core::ops::Range;
use std::borrow::Cow;

use hs_units::Digest;

use crate::error::{FormatError, Part};

/// What bytes of an image must be: how many, and with which digest. A table that was verified says it of what
/// it refers to.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedBytes {
    pub(crate) part: Part,
    pub(crate) len: u64,
    pub(crate) digest: Digest,
    pub(crate) digest_of: fn(&[u8]) -> Digest,
}

impl ExpectedBytes {
    /// How many bytes there must be.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "whether there are none is not asked")]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Their digest.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }
}

/// Bytes of an image as a store, a cache or a network gave them. Their content can be reached in two ways,
/// both of which compute the digest first: [`Unverified::verify`] gives the bytes, and the `decode` of each
/// table gives the table. They can be counted, cut and shared without.
///
/// ```
/// use hs_format::{ChunkRef, Codec, Decompressor, Unverified};
///
/// let chunk = ChunkRef::of_stored(0, &[7; 4096], Codec::Store, 4096);
/// let came = Unverified::new(vec![7; 4096]);
/// let stored = came.verify(&chunk.expected())?;
/// assert_eq!(Decompressor::new().decompress(chunk.codec, &stored, chunk.raw_bytes)?, [7; 4096]);
///
/// let damaged = Unverified::new(vec![8; 4096]);
/// assert!(damaged.verify(&chunk.expected()).is_err());
/// # Ok::<(), hs_format::FormatError>(())
/// ```
///
/// Without a digest there is no way to the bytes. They cannot be decompressed:
///
/// ```compile_fail,E0308
/// use hs_format::{Codec, Decompressor, Unverified};
///
/// let came = Unverified::new(vec![7; 4096]);
/// let raw = Decompressor::new().decompress(Codec::Store, &came, 4096);
/// ```
///
/// They cannot be taken out, or be borrowed as bytes:
///
/// ```compile_fail,E0616
/// let came = hs_format::Unverified::new(vec![7; 4096]);
/// let served = came.0;
/// ```
///
/// ```compile_fail,E0608
/// let came = hs_format::Unverified::new(vec![7; 4096]);
/// let served = came[0];
/// ```
///
/// ```compile_fail,E0614
/// let came = hs_format::Unverified::new(vec![7; 4096]);
/// let served: Vec<u8> = *came;
/// ```
#[derive(Clone, Copy, Default)]
pub struct Unverified<T>(T);

impl<T> Unverified<T> {
    /// Marks what a store gave.
    pub const fn new(bytes: T) -> Self {
        Self(bytes)
    }

    /// The same bytes in another container, such as one that is shared.
    #[must_use]
    pub fn convert<U: From<T>>(self) -> Unverified<U> {
        Unverified(self.0.into())
    }
}

impl<T: AsRef<[u8]>> Unverified<T> {
    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// All of them, borrowed.
    #[must_use]
    pub fn as_slice(&self) -> Unverified<&[u8]> {
        Unverified(self.bytes())
    }

    /// Some of them, borrowed; `None` when there are not as many.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Unverified<&[u8]>> {
        self.bytes().get(range).map(Unverified)
    }

    /// The first `len` of them, or all where there are fewer, and the rest; borrowed.
    #[must_use]
    pub fn split_at(&self, len: usize) -> (Unverified<&[u8]>, Unverified<&[u8]>) {
        let (first, rest) = self.bytes().split_at(len.min(self.len()));
        (Unverified(first), Unverified(rest))
    }

    /// The bytes, if they are what is expected.
    ///
    /// # Errors
    /// [`FormatError::Size`] or [`FormatError::DigestMismatch`].
    pub fn verify(self, expected: &ExpectedBytes) -> Result<T, FormatError> {
        let &ExpectedBytes { part, len, digest, digest_of } = expected;
        let bytes = self.bytes();
        if bytes.len() as u64 != len {
            return Err(FormatError::Size { part, expected: len, found: bytes.len() as u64 });
        }
        let found = digest_of(bytes);
        if found != digest {
            return Err(FormatError::DigestMismatch { part, expected: digest, found });
        }
        Ok(self.0)
    }

    fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl<'a> Unverified<&'a [u8]> {
    /// For the superblock, whose digest is among its own bytes.
    pub(crate) const fn with_own_digest(self) -> &'a [u8] {
        self.0
    }
}

impl Unverified<Cow<'_, [u8]>> {
    /// The same bytes, copied if they were borrowed.
    #[must_use]
    pub fn into_owned(self) -> Unverified<Vec<u8>> {
        Unverified(self.0.into_owned())
    }
}

impl<T: AsRef<[u8]>> fmt::Debug for Unverified<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unverified({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use hs_units::ByteRange;

    use super::*;
    use crate::chunk::ChunkRef;
    use crate::codec::Codec;
    use crate::digest::chunk_digest;

    #[test]
    fn verify_names_both_digests() {
        let chunk = ChunkRef::of_stored(7, b"stored", Codec::Zstd, 4096);
        assert_eq!((chunk.expected().len(), chunk.expected().digest()), (6, chunk.digest));
        let verify = |bytes: &'static [u8]| Unverified::new(bytes).verify(&chunk.expected());
        assert_eq!(verify(b"stored"), Ok(&b"stored"[..]));
        let wrong = verify(b"storeb");
        assert!(
            matches!(&wrong, Err(FormatError::DigestMismatch { part: Part::Chunk { range }, expected, found })
            if *range == ByteRange::new(7, 6) && *expected == chunk.digest && *found == chunk_digest(b"storeb"))
        );
        let message = wrong.map_err(|error| error.to_string());
        assert!(message.is_err_and(|text| text.contains("7+6") && text.contains("expected digest")));
        assert!(matches!(verify(b"store"), Err(FormatError::Size { expected: 6, found: 5, .. })));
    }

    #[test]
    fn parts_are_cut_within_the_bytes() {
        let whole = Unverified::new(b"stored".to_vec());
        let chunk = ChunkRef::of_stored(0, b"or", Codec::Store, 4096);
        let part = whole.slice(2..4).expect("inside");
        assert_eq!(part.verify(&chunk.expected()), Ok(&b"or"[..]));
        assert!(whole.slice(5..7).is_none());
        assert_eq!((whole.len(), whole.is_empty()), (6, false));
    }

    #[test]
    fn debug_output_shows_no_content() {
        assert_eq!(format!("{:?}", Unverified::new("stored")), "Unverified(6 bytes)");
    }
}

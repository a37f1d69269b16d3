//! Codecs of stored chunks.

use core::fmt;

use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, DParameter};

use crate::error::{FormatError, Part};
use crate::limits::MAX_CHUNK_RAW_BYTES;

/// The bytes that every zstd chunk starts with: the frame magic and a frame header descriptor of
/// zero, that is no content size, no dictionary, no checksum (RFC 8878, section 3.1.1.1).
const FRAME_START: [u8; 5] = [0x28, 0xb5, 0x2f, 0xfd, 0x00];

/// log2 of [`MAX_CHUNK_RAW_BYTES`].
const MAX_WINDOW_LOG: u32 = MAX_CHUNK_RAW_BYTES.ilog2();

/// How a chunk's bytes are stored. Zero is no codec, so that an entry of zeros is never a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum Codec {
    /// As they are.
    Store = 1,
    /// One zstd frame (RFC 8878) of the shape that docs/FORMAT.md prescribes.
    Zstd = 2,
}

impl Codec {
    /// The number on disk.
    #[must_use]
    pub const fn to_u16(self) -> u16 {
        self as u16
    }

    /// The codec with this number on disk; `part` is where it stands, for the error.
    ///
    /// # Errors
    /// [`FormatError::UnknownCodec`].
    pub fn from_u16(number: u16, part: Part) -> Result<Self, FormatError> {
        match number {
            1 => Ok(Self::Store),
            2 => Ok(Self::Zstd),
            found => Err(FormatError::UnknownCodec { part, found }),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store => "store",
            Self::Zstd => "zstd",
        })
    }
}

/// Compresses chunks, one after another, with one reused context.
pub struct Compressor {
    zstd: Option<CCtx<'static>>,
}

impl Compressor {
    /// A compressor for `codec`; `level` is zstd's (negative is faster, up to 22) and is clamped to
    /// what zstd has. The same input, level and zstd version always give the same output.
    #[must_use]
    pub fn new(codec: Codec, level: i32) -> Self {
        let zstd = match codec {
            Codec::Store => None,
            Codec::Zstd => {
                let mut context = CCtx::create();
                for parameter in [
                    CParameter::CompressionLevel(level),
                    CParameter::ContentSizeFlag(false),
                    CParameter::ChecksumFlag(false),
                    CParameter::DictIdFlag(false),
                ] {
                    // These parameters exist in every zstd that the crate links, and a level is clamped.
                    context.set_parameter(parameter).expect("zstd knows its own parameters");
                }
                Some(context)
            }
        };
        Self { zstd }
    }

    /// Replaces `out` by the stored form of `raw` and tells the codec that it took: [`Codec::Store`]
    /// when compressing would not make it smaller.
    ///
    /// # Panics
    /// When `raw` is longer than [`MAX_CHUNK_RAW_BYTES`].
    pub fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Codec {
        assert!(raw.len() <= MAX_CHUNK_RAW_BYTES as usize, "a chunk of {} bytes is too large", raw.len());
        out.clear();
        if let Some(context) = &mut self.zstd {
            out.reserve(zstd_safe::compress_bound(raw.len()));
            if let Ok(stored_bytes) = context.compress2(out, raw)
                && stored_bytes < raw.len()
            {
                return Codec::Zstd;
            }
            out.clear();
        }
        out.extend_from_slice(raw);
        Codec::Store
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").field("zstd", &self.zstd.is_some()).finish()
    }
}

/// Decompresses chunks, one after another, with one reused context. Give it only bytes whose digest
/// was verified: a decoder is a large surface.
pub struct Decompressor {
    zstd: DCtx<'static>,
}

impl Decompressor {
    /// A decompressor for every codec.
    #[must_use]
    pub fn new() -> Self {
        let mut zstd = DCtx::create();
        // Decoding goes straight into a buffer of the expected size, so a frame can never claim more
        // memory than that; the parameter guards against a later change to streaming.
        zstd.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).expect("zstd knows its own parameters");
        Self { zstd }
    }

    /// Decodes `stored`, which must give exactly `raw_bytes`. Memory is bounded by these and the context.
    ///
    /// # Errors
    /// [`FormatError::RawSize`] when it gives less or more, [`FormatError::FrameHeader`] when the
    /// frame is not of the prescribed shape, [`FormatError::Decompress`] when it is damaged.
    pub fn decompress(
        &mut self,
        codec: Codec,
        stored: &[u8],
        raw_bytes: u32,
    ) -> Result<Vec<u8>, FormatError> {
        let expected = u64::from(raw_bytes);
        let size_is = |found: usize| {
            let found = found as u64;
            if found == expected { Ok(()) } else { Err(FormatError::RawSize { codec, expected, found }) }
        };
        match codec {
            Codec::Store => size_is(stored.len()).map(|()| stored.to_vec()),
            Codec::Zstd => {
                check_frame_header(stored)?;
                let damaged = |code| FormatError::Decompress {
                    codec,
                    expected_bytes: expected,
                    reason: zstd_safe::get_error_name(code),
                };
                let frame_bytes = zstd_safe::find_frame_compressed_size(stored).map_err(damaged)?;
                if frame_bytes != stored.len() {
                    let reason = "bytes after the frame";
                    return Err(FormatError::Decompress { codec, expected_bytes: expected, reason });
                }
                // Decoded into memory that nobody has cleared first: zstd says how much of it is filled.
                let mut raw = Vec::with_capacity(raw_bytes as usize);
                self.zstd.decompress(&mut raw, stored).map_err(damaged)?;
                size_is(raw.len()).map(|()| raw)
            }
        }
    }
}

impl Default for Decompressor {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

/// Checks the prescribed first bytes of a frame and its window size (RFC 8878, section 3.1.1.1.2).
fn check_frame_header(stored: &[u8]) -> Result<(), FormatError> {
    let mut found = [0; 6];
    let have = stored.len().min(found.len());
    found[..have].copy_from_slice(&stored[..have]);
    let base = 1_u64 << (10 + u32::from(found[5] >> 3));
    let window_bytes = base + base / 8 * u64::from(found[5] & 7);
    if have == found.len() && found[..5] == FRAME_START && window_bytes <= u64::from(MAX_CHUNK_RAW_BYTES) {
        Ok(())
    } else {
        Err(FormatError::FrameHeader { expected: FRAME_START, found })
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;

//! Codecs of stored chunks.

use core::fmt;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use lz4::block::{CompressionMode, compress_bound, compress_to_buffer, decompress_to_buffer};
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
    /// One LZ4 block, without a frame around it.
    Lz4 = 3,
    /// One zlib stream (RFC 1950).
    Zlib = 4,
    /// Blocks of another disk beside own ones: see [`Composed`](crate::Composed), which decodes it.
    Composed = 5,
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
            // R23
            1 => Ok(Self::Store),
            2 => Ok(Self::Zstd),
            3 => Ok(Self::Lz4),
            4 => Ok(Self::Zlib),
            5 => Ok(Self::Composed),
            found => Err(FormatError::UnknownCodec { part, found }),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store => "store",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Zlib => "zlib",
            Self::Composed => "composed",
        })
    }
}

/// Compresses chunks, one after another, with one reused context.
pub struct Compressor {
    context: Context,
}

enum Context {
    Store,
    Zstd(CCtx<'static>),
    Lz4(CompressionMode),
    Zlib(Compress),
}

impl Compressor {
    /// A compressor for `codec` at `level`, which is clamped to what the codec has: of zstd up to 22
    /// (negative is faster), of LZ4 0 for its fast compressor and 1 to 12 for its high compressor, of zlib 0
    /// to 9. The same input, level and library version always give the same output. What a composed chunk has
    /// itself is stored.
    #[must_use]
    pub fn new(codec: Codec, level: i32) -> Self {
        let context = match codec {
            Codec::Store | Codec::Composed => Context::Store,
            Codec::Zstd => Context::Zstd(zstd_context(level)),
            Codec::Lz4 if level <= 0 => Context::Lz4(CompressionMode::DEFAULT),
            Codec::Lz4 => Context::Lz4(CompressionMode::HIGHCOMPRESSION(level.min(12))),
            Codec::Zlib => {
                let level = Compression::new(level.clamp(0, 9).cast_unsigned());
                Context::Zlib(Compress::new(level, true))
            }
        };
        Self { context }
    }

    /// Replaces `out` by the stored form of `raw` and tells the codec that it took: [`Codec::Store`]
    /// when compressing would not make it smaller.
    ///
    /// # Panics
    /// When `raw` is longer than [`MAX_CHUNK_RAW_BYTES`].
    pub fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Codec {
        assert!(raw.len() <= MAX_CHUNK_RAW_BYTES as usize, "a chunk of {} bytes is too large", raw.len());
        out.clear();
        let (codec, is_whole) = match &mut self.context {
            Context::Store => (Codec::Store, false),
            Context::Zstd(context) => {
                out.reserve(zstd_safe::compress_bound(raw.len()));
                (Codec::Zstd, context.compress2(out, raw).is_ok())
            }
            Context::Lz4(mode) => (Codec::Lz4, compress_lz4(*mode, raw, out)),
            Context::Zlib(context) => (Codec::Zlib, compress_zlib(context, raw, out)),
        };
        if is_whole && out.len() < raw.len() {
            return codec;
        }
        out.clear();
        out.extend_from_slice(raw);
        Codec::Store
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codec = match self.context {
            Context::Store => Codec::Store,
            Context::Zstd(_) => Codec::Zstd,
            Context::Lz4(_) => Codec::Lz4,
            Context::Zlib(_) => Codec::Zlib,
        };
        f.debug_struct("Compressor").field("codec", &codec).finish()
    }
}

fn zstd_context(level: i32) -> CCtx<'static> {
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
    context
}

/// Whether all of `raw` is in `out` now.
fn compress_lz4(mode: CompressionMode, raw: &[u8], out: &mut Vec<u8>) -> bool {
    let Ok(bound) = compress_bound(raw.len()) else { return false };
    out.resize(bound, 0);
    let stored_bytes = compress_to_buffer(raw, Some(mode), false, out);
    out.truncate(*stored_bytes.as_ref().unwrap_or(&0));
    stored_bytes.is_ok()
}

/// Whether all of `raw` is in `out` now. It has room for as much as `raw`: more would not be kept.
fn compress_zlib(context: &mut Compress, raw: &[u8], out: &mut Vec<u8>) -> bool {
    context.reset();
    out.reserve(raw.len());
    matches!(context.compress_vec(raw, out, FlushCompress::Finish), Ok(Status::StreamEnd))
}

/// Decompresses chunks, one after another, with one reused context. Give it only bytes whose digest
/// was verified: a decoder is a large surface.
pub struct Decompressor {
    zstd: DCtx<'static>,
    zlib: Decompress,
    /// Memory for the next chunk.
    spare: Vec<u8>,
}

impl Decompressor {
    /// A decompressor for every codec.
    #[must_use]
    pub fn new() -> Self {
        let mut zstd = DCtx::create();
        // Decoding goes straight into a buffer of the expected size, so a frame can never claim more
        // memory than that; the parameter guards against a later change to streaming.
        zstd.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).expect("zstd knows its own parameters");
        Self { zstd, zlib: Decompress::new(true), spare: Vec::new() }
    }

    /// Takes back what [`decompress`](Self::decompress) gave, for the next chunk: it then needs no memory
    /// that was never touched, and decodes into what still lies in the processor's cache.
    pub fn reuse(&mut self, raw: Vec<u8>) {
        self.spare = raw;
    }

    /// Empty memory for so many bytes, and not for many more: what is decoded may be kept for long.
    fn room_for(&mut self, raw_bytes: usize) -> Vec<u8> {
        let mut spare = std::mem::take(&mut self.spare);
        if spare.capacity() < raw_bytes || spare.capacity() > raw_bytes + raw_bytes / 8 {
            return Vec::with_capacity(raw_bytes);
        }
        spare.clear();
        spare
    }

    /// Decodes `stored`, which must give exactly `raw_bytes`. Memory is bounded by these and the context.
    ///
    /// # Errors
    /// [`FormatError::RawSize`] when it gives less or more, [`FormatError::FrameHeader`] when the
    /// frame is not of the prescribed shape, [`FormatError::Decompress`] when it is damaged.
    /// [`FormatError::MisplacedComposed`] of a composed chunk, for which its base is needed.
    pub fn decompress(
        &mut self,
        codec: Codec,
        stored: &[u8],
        raw_bytes: u32,
    ) -> Result<Vec<u8>, FormatError> {
        let expected = u64::from(raw_bytes);
        // R26
        let size_is = |found: usize| {
            let found = found as u64;
            if found == expected { Ok(()) } else { Err(FormatError::RawSize { codec, expected, found }) }
        };
        let damaged =
            |reason: &'static str| FormatError::Decompress { codec, expected_bytes: expected, reason };
        match codec {
            Codec::Store => size_is(stored.len()).map(|()| stored.to_vec()),
            Codec::Composed => Err(FormatError::MisplacedComposed { part: Part::File }),
            Codec::Zstd => {
                // R27
                check_frame_header(stored)?;
                let named = |code| damaged(zstd_safe::get_error_name(code));
                if zstd_safe::find_frame_compressed_size(stored).map_err(named)? != stored.len() {
                    return Err(damaged("bytes after the frame"));
                }
                // Decoded into memory that was not cleared first: zstd reports how much of it is filled.
                let mut raw = self.room_for(raw_bytes as usize);
                self.zstd.decompress(&mut raw, stored).map_err(named)?;
                size_is(raw.len()).map(|()| raw)
            }
            Codec::Lz4 => {
                let room =
                    i32::try_from(raw_bytes).map_err(|_| damaged("more than an LZ4 block can hold"))?;
                let mut raw = vec![0; raw_bytes as usize];
                // R28
                // It takes all of `stored` or fails, so nothing can follow the block.
                let found = decompress_to_buffer(stored, Some(room), &mut raw)
                    .map_err(|_| damaged("not one LZ4 block of at most this size"))?;
                size_is(found).map(|()| raw)
            }
            Codec::Zlib => {
                // R29
                self.zlib.reset(true);
                let mut raw = self.room_for(raw_bytes as usize);
                match self.zlib.decompress_vec(stored, &mut raw, FlushDecompress::Finish) {
                    Ok(Status::StreamEnd) if self.zlib.total_in() != stored.len() as u64 => {
                        Err(damaged("bytes after the stream"))
                    }
                    Ok(Status::StreamEnd) => size_is(raw.len()).map(|()| raw),
                    Ok(_) if raw.len() < raw_bytes as usize => Err(damaged("the stream is cut short")),
                    Ok(_) => Err(damaged("a longer or an unfinished stream")),
                    Err(_) => Err(damaged("not a zlib stream without a dictionary")),
                }
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

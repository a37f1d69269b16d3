//! The cloop format, version 2, of KNOPPIX and its relatives: a disk cut into blocks of equal size, each a
//! zlib stream. No I/O here.
//!
//! ```text
//! 0              a shell script, padded with zeros to 128 bytes; its second line tells the version
//! 128            bytes of a block, 32 bits
//! 132            blocks, 32 bits
//! 136            blocks + 1 offsets of 64 bits, from the start of the file: block i lies between i and i + 1
//! 144 + 8 blocks the blocks
//! ```
//!
//! All numbers are big-endian. The layout is that of the kernel module's `compressed_loop.h`; Debian's
//! `create_compressed_fs` writes it as `V2.0`. Version 1 has offsets of 32 bits; in version 4 they carry
//! flags and may lie at the end of the file. Neither is read.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use hs_units::ByteRange;

/// Bytes before the offsets.
pub const HEADER_BYTES: usize = 136;

/// Bytes of a block as [`Header::encode`]'s callers write it, and as KNOPPIX does.
pub const BLOCK_BYTES: u32 = 64 << 10;

/// Smallest block: a sector.
const MIN_BLOCK_BYTES: u32 = 512;
/// Largest block: 4 MiB, of which one is in memory. The tools write 64 or 128 KiB.
const MAX_BLOCK_BYTES: u32 = 4 << 20;
/// What the image format can hold.
const MAX_DISK_BYTES: u64 = 16 << 40;

/// The script as `create_compressed_fs` writes it, which other programs know the format by.
const SCRIPT: &[u8] =
    b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop file=$0 && mount -r -t iso9660 /dev/cloop $1\nexit $?\n";
/// How every version begins.
const ANY_VERSION: &[u8] = b"#!/bin/sh\n#V";

/// What is wrong with a cloop file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloopFault {
    /// It does not begin as one.
    #[error("not a cloop file: expected '#!/bin/sh' and '#V2.0 Format' at its start")]
    NotCloop,
    /// Another version of the format.
    #[error("cloop version {found}: expected version 2 or 3; extract_compressed_fs may read it")]
    Version {
        /// The version that it says.
        found: char,
    },
    /// The file is shorter than its own tables.
    #[error("header and offsets: expected at least {expected} bytes in the file, found {found}")]
    Truncated {
        /// Bytes that they need.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// A number of the header is impossible.
    #[error("header: {field}: expected {rule}, found {found}")]
    Header {
        /// Which number.
        field: &'static str,
        /// What it must be.
        rule: &'static str,
        /// What it is.
        found: u64,
    },
    /// A block does not lie where a block can lie.
    #[error(
        "block {block}: expected it in bytes {space} of the file with 1 to {max_bytes} bytes, found {from} to {to}"
    )]
    Offset {
        /// Its number.
        block: u64,
        /// Where blocks lie.
        space: ByteRange,
        /// Longest that a stored block can be.
        max_bytes: u64,
        /// Where it begins.
        from: u64,
        /// Where it ends.
        to: u64,
    },
    /// A block inflates to another size.
    #[error("block {block} at bytes {range}: expected {expected} bytes, found {found}{more}", more = if *is_more { " and more" } else { "" })]
    BlockSize {
        /// Its number.
        block: u64,
        /// Where in the file.
        range: ByteRange,
        /// Bytes of a block.
        expected: u64,
        /// Bytes that it gave.
        found: u64,
        /// Whether it would have given more.
        is_more: bool,
    },
    /// A block is no zlib stream, or one with a wrong checksum.
    #[error(
        "block {block} at bytes {range}: expected a zlib stream of {expected} bytes, found damage after {found}"
    )]
    Damaged {
        /// Its number.
        block: u64,
        /// Where in the file.
        range: ByteRange,
        /// Bytes of a block.
        expected: u64,
        /// Bytes that it gave.
        found: u64,
    },
}

/// The numbers of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Raw bytes of each block.
    pub block_bytes: u32,
    /// Blocks in the file.
    pub blocks: u32,
}

impl Header {
    /// Whether `start`, the first bytes of a file, are those of a cloop file of any version.
    #[must_use]
    pub fn is_cloop(start: &[u8]) -> bool {
        start.starts_with(ANY_VERSION)
    }

    /// Reads and checks the header at the start of a file of `file_bytes`.
    ///
    /// # Errors
    /// When no disk can follow from it.
    pub fn parse(start: &[u8], file_bytes: u64) -> Result<Self, CloopFault> {
        if !Self::is_cloop(start) {
            return Err(CloopFault::NotCloop);
        }
        match start.get(ANY_VERSION.len()) {
            Some(b'2' | b'3') => {}
            Some(&found) => return Err(CloopFault::Version { found: char::from(found) }),
            None => return Err(CloopFault::NotCloop),
        }
        let cut = CloopFault::Truncated { expected: HEADER_BYTES as u64, found: file_bytes };
        let Some((numbers, _)) = start.get(128..).and_then(|rest| rest.split_first_chunk::<8>()) else {
            return Err(cut);
        };
        let [a, b, c, d, e, f, g, h] = *numbers;
        let header =
            Self { block_bytes: u32::from_be_bytes([a, b, c, d]), blocks: u32::from_be_bytes([e, f, g, h]) };
        header.check(file_bytes)?;
        Ok(header)
    }

    fn check(self, file_bytes: u64) -> Result<(), CloopFault> {
        let impossible =
            |field, rule, found: u64| Err::<(), CloopFault>(CloopFault::Header { field, rule, found });
        let size = self.block_bytes;
        if !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&size) || !size.is_multiple_of(MIN_BLOCK_BYTES) {
            impossible("bytes of a block", "a multiple of 512 from 512 to 4194304", size.into())?;
        }
        if self.blocks == 0 {
            impossible("blocks", "at least 1", 0)?;
        }
        if self.disk_bytes() > MAX_DISK_BYTES {
            impossible("bytes of the disk", "at most 16 TiB", self.disk_bytes())?;
        }
        let expected = self.data_offset();
        if expected > file_bytes {
            return Err(CloopFault::Truncated { expected, found: file_bytes });
        }
        Ok(())
    }

    /// The bytes of the header.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..SCRIPT.len()].copy_from_slice(SCRIPT);
        bytes[128..132].copy_from_slice(&self.block_bytes.to_be_bytes());
        bytes[132..].copy_from_slice(&self.blocks.to_be_bytes());
        bytes
    }

    /// Bytes of all blocks.
    #[must_use]
    pub const fn disk_bytes(self) -> u64 {
        self.block_bytes as u64 * self.blocks as u64
    }

    /// Where in the file the offset of block `block` lies; there is one more than there are blocks.
    #[must_use]
    pub const fn offset_of_offset(block: u64) -> u64 {
        HEADER_BYTES as u64 + 8 * block
    }

    /// Where the offsets end and blocks can begin.
    #[must_use]
    pub const fn data_offset(self) -> u64 {
        Self::offset_of_offset(self.blocks as u64 + 1)
    }

    /// Longest that a stored block can be: a little more than deflate ever makes of random bytes.
    const fn max_stored_bytes(self) -> u64 {
        self.block_bytes as u64 + self.block_bytes as u64 / 64 + 1024
    }

    /// Where block `block` lies in a file of `file_bytes`, from its offset and the next one.
    ///
    /// # Errors
    /// [`CloopFault::Offset`] when that is not after the offsets, in the file, and of a possible length.
    pub fn place(self, block: u64, offsets: [u64; 2], file_bytes: u64) -> Result<ByteRange, CloopFault> {
        let [from, to] = offsets;
        let is_inside = from >= self.data_offset() && to <= file_bytes;
        if is_inside && from < to && to - from <= self.max_stored_bytes() {
            return Ok(ByteRange::new(from, to - from));
        }
        let space = ByteRange::new(self.data_offset(), file_bytes.saturating_sub(self.data_offset()));
        Err(CloopFault::Offset { block, space, max_bytes: self.max_stored_bytes(), from, to })
    }
}

/// Inflates blocks, one after another.
#[derive(Debug)]
pub struct Inflater(Decompress);

impl Inflater {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// Replaces `raw` by the bytes of block `block`, stored as `stored` at `range` of the file. What follows
    /// the stream in `stored` is ignored, as other programs do.
    ///
    /// # Errors
    /// [`CloopFault::BlockSize`] or [`CloopFault::Damaged`].
    pub fn inflate(
        &mut self,
        header: Header,
        block: u64,
        range: ByteRange,
        stored: &[u8],
        raw: &mut Vec<u8>,
    ) -> Result<(), CloopFault> {
        let expected = u64::from(header.block_bytes);
        self.0.reset(true);
        raw.clear();
        raw.resize(header.block_bytes as usize, 0);
        let status = self.0.decompress(stored, raw, FlushDecompress::Finish);
        let found = self.0.total_out();
        match status {
            Ok(Status::StreamEnd) if found == expected => Ok(()),
            Ok(Status::StreamEnd) => {
                Err(CloopFault::BlockSize { block, range, expected, found, is_more: false })
            }
            Ok(_) if found == expected && self.0.total_in() < stored.len() as u64 => {
                Err(CloopFault::BlockSize { block, range, expected, found, is_more: true })
            }
            _ => Err(CloopFault::Damaged { block, range, expected, found }),
        }
    }
}

impl Default for Inflater {
    fn default() -> Self {
        Self::new()
    }
}

/// Deflates blocks at zlib's level 9, one after another.
#[derive(Debug)]
pub struct Deflater(Compress);

impl Deflater {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(Compress::new(Compression::best(), true))
    }

    /// The stored form of a block. It may be a little longer than the block itself.
    #[must_use]
    pub fn deflate(&mut self, raw: &[u8]) -> Vec<u8> {
        self.0.reset();
        // Room for the worst case: every 32 KiB of random bytes cost five more.
        let mut stored = Vec::with_capacity(raw.len() + raw.len() / 64 + 1024);
        let status = self.0.compress_vec(raw, &mut stored, FlushCompress::Finish);
        assert!(matches!(status, Ok(Status::StreamEnd)), "deflate ends where there is room");
        stored
    }
}

impl Default for Deflater {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header { block_bytes: 65_536, blocks: 3 };

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let bytes = HEADER.encode();
        assert_eq!(Header::parse(&bytes, 168), Ok(HEADER));
        assert_eq!(Header::parse(&bytes, 167), Err(CloopFault::Truncated { expected: 168, found: 167 }));
        for cut in 0..HEADER_BYTES {
            assert!(Header::parse(&bytes[..cut], cut as u64).is_err(), "{cut}");
        }
    }

    #[test]
    fn impossible_headers_are_refused() {
        for (block_bytes, blocks) in [(0, 1), (511, 1), (513, 1), (8 << 20, 1), (512, 0), (4 << 20, u32::MAX)]
        {
            let refused = Header::parse(&Header { block_bytes, blocks }.encode(), u64::MAX);
            assert!(
                matches!(refused, Err(CloopFault::Header { .. })),
                "{block_bytes} × {blocks}: {refused:?}"
            );
        }
        let mut other = HEADER.encode();
        other[12] = b'4';
        assert_eq!(Header::parse(&other, 999), Err(CloopFault::Version { found: '4' }));
        other[0] = b'!';
        assert_eq!(Header::parse(&other, 999), Err(CloopFault::NotCloop));
    }

    #[test]
    fn blocks_lie_after_the_offsets_in_order_and_in_the_file() {
        assert_eq!(HEADER.place(0, [168, 200], 200), Ok(ByteRange::new(168, 32)));
        for offsets in [[167, 200], [168, 201], [180, 180], [190, 180], [u64::MAX, 0]] {
            let refused = HEADER.place(0, offsets, 200);
            assert!(matches!(refused, Err(CloopFault::Offset { .. })), "{offsets:?}: {refused:?}");
        }
        assert!(HEADER.place(0, [168, 168 + 70_000], 1 << 20).is_err(), "longer than deflate can make it");
    }

    #[test]
    fn blocks_of_another_size_and_damaged_ones_are_told_apart() {
        let mut raw = vec![0; 65_536];
        hs_units::Prng::new(1).fill(&mut raw);
        let at = ByteRange::new(168, 1);
        let mut back = Vec::new();
        let mut inflater = Inflater::new();
        let stored = Deflater::new().deflate(&raw);
        assert!(stored.len() as u64 <= HEADER.max_stored_bytes());
        assert_eq!(inflater.inflate(HEADER, 0, at, &stored, &mut back), Ok(()));
        assert!(back == raw);
        for (len, is_more) in [(65_535, false), (65_537, true)] {
            raw.resize(len, 7);
            let stored = Deflater::new().deflate(&raw);
            let refused = inflater.inflate(HEADER, 5, at, &stored, &mut back);
            assert!(
                matches!(refused, Err(CloopFault::BlockSize { block: 5, expected: 65_536, is_more: found, .. })
                if found == is_more),
                "{len}: {refused:?}"
            );
        }
        for cut in [0, 1, 5, stored.len() - 1] {
            let refused = inflater.inflate(HEADER, 0, at, &stored[..cut], &mut back);
            assert!(matches!(refused, Err(CloopFault::Damaged { .. })), "{cut}: {refused:?}");
        }
    }
}

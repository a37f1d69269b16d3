//! cloop files; [`crate::cloop`] describes the format.

use hs_units::to_u32;

use super::clusters::{Encoding, Piece};
use super::{CLUSTER_BYTES, Layout};
use crate::BuildError;
use crate::cloop::{BLOCK_BYTES, Deflater, Header};
use crate::output::Output;

const _: () = assert!(BLOCK_BYTES as usize == CLUSTER_BYTES);

/// Offsets written at once. They lie before the blocks, but are known only after them.
const OFFSETS_AT_ONCE: usize = 8192;

/// A cloop file that grows.
pub(super) struct Cloop {
    output: Output,
    header: Header,
    /// Where the next block goes.
    at: u64,
    /// Offsets that are not written yet; the first of them is number `written`.
    offsets: Vec<u8>,
    written: u64,
    /// What a block of zeros is stored as.
    zero: Vec<u8>,
}

impl Cloop {
    pub(super) fn new(output: Output, disk_bytes: u64) -> Self {
        // A disk has at most 16 TiB, which are 2^28 blocks.
        let blocks = to_u32(disk_bytes.div_ceil(u64::from(BLOCK_BYTES)));
        let header = Header { block_bytes: BLOCK_BYTES, blocks };
        let zero = Deflater::new().deflate(&[0; CLUSTER_BYTES]);
        Self { output, header, at: header.data_offset(), offsets: Vec::new(), written: 0, zero }
    }

    fn push_offset(&mut self) -> Result<(), BuildError> {
        self.offsets.extend(self.at.to_be_bytes());
        if self.offsets.len() == 8 * OFFSETS_AT_ONCE { self.write_offsets() } else { Ok(()) }
    }

    fn write_offsets(&mut self) -> Result<(), BuildError> {
        self.output.write_at(Header::offset_of_offset(self.written), &self.offsets)?;
        self.written += self.offsets.len() as u64 / 8;
        self.offsets.clear();
        Ok(())
    }
}

impl Layout for Cloop {
    fn encoding(&self) -> Encoding {
        Encoding::Zlib
    }

    fn put(&mut self, piece: Piece) -> Result<(), BuildError> {
        self.push_offset()?;
        let stored = match &piece {
            Piece::Zero => &self.zero,
            Piece::Plain(bytes) | Piece::Packed(bytes) => bytes,
        };
        self.output.write_at(self.at, stored)?;
        self.at += stored.len() as u64;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(Output, u64), BuildError> {
        self.push_offset()?;
        self.write_offsets()?;
        self.output.write_at(0, &self.header.encode())?;
        Ok((self.output, self.at))
    }
}

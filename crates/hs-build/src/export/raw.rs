//! The disk, byte for byte.

use super::clusters::{Encoding, Piece};
use super::{CLUSTER_BYTES, Layout};
use crate::BuildError;
use crate::output::Output;

/// A raw disk with holes where clusters are zero.
pub(super) struct Raw {
    output: Output,
    disk_bytes: u64,
    at: u64,
}

impl Raw {
    pub(super) const fn new(output: Output, disk_bytes: u64) -> Self {
        Self { output, disk_bytes, at: 0 }
    }
}

impl Layout for Raw {
    fn encoding(&self) -> Encoding {
        Encoding::Plain
    }

    fn put(&mut self, piece: Piece) -> Result<(), BuildError> {
        if let Piece::Plain(bytes) | Piece::Packed(bytes) = &piece {
            self.output.write_at(self.at, bytes)?;
        }
        self.at += CLUSTER_BYTES as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(Output, u64), BuildError> {
        Ok((self.output, self.disk_bytes))
    }
}

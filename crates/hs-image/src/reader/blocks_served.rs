//! Which blocks of a chunk readers have.

use hs_units::BLOCK_BYTES;

/// The blocks of one chunk that were not read yet.
#[derive(Debug)]
pub(super) struct BlocksServed {
    served: Vec<u64>,
    unserved: u32,
}

impl BlocksServed {
    /// None of a chunk of so many bytes.
    pub(super) fn none_of(bytes: usize) -> Self {
        let blocks = (bytes as u64 / BLOCK_BYTES) as u32;
        Self { served: vec![0; blocks.div_ceil(64) as usize], unserved: blocks }
    }

    /// Notes that these bytes were handed over; whether that was the last of them.
    pub(super) fn serve(&mut self, from: u32, len: u32) -> bool {
        // A block that was read in part will be read again as a whole.
        let first = u64::from(from).div_ceil(BLOCK_BYTES);
        let end = u64::from(from + len) / BLOCK_BYTES;
        for block in first..end {
            let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
            if self.served[word] & bit == 0 {
                self.served[word] |= bit;
                self.unserved -= 1;
            }
        }
        self.unserved == 0
    }

    /// Bytes that were not read.
    pub(super) fn unserved_bytes(&self) -> u64 {
        u64::from(self.unserved) * BLOCK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_once_and_only_when_whole() {
        let mut blocks = BlocksServed::none_of(100 * 4096);
        assert!(!blocks.serve(0, 99 * 4096));
        assert!(!blocks.serve(0, 99 * 4096));
        assert_eq!(blocks.unserved_bytes(), 4096);
        assert!(!blocks.serve(99 * 4096, 4095) && !blocks.serve(99 * 4096 + 1, 4095));
        assert!(blocks.serve(98 * 4096 + 1, 2 * 4096 - 1));
    }
}

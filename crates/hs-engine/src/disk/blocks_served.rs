//! Which blocks of a chunk have been handed to a reader.

use hs_units::BLOCK_BYTES;

/// The blocks of one chunk that no reader has asked for yet.
#[derive(Debug, Default)]
pub(super) struct BlocksServed {
    served: Vec<u64>,
    unserved: u32,
}

impl BlocksServed {
    /// None of a chunk of so many bytes.
    pub(super) fn reset(&mut self, bytes: u32) {
        self.unserved = bytes.div_ceil(BLOCK_BYTES as u32);
        self.served.clear();
        self.served.resize(self.unserved.div_ceil(64) as usize, 0);
    }

    /// Bytes of the blocks that are left.
    pub(super) fn unserved_bytes(&self) -> u64 {
        u64::from(self.unserved) * BLOCK_BYTES
    }

    /// These bytes were handed over; whether no block is left. A block that was read in part will be read
    /// again as a whole.
    pub(super) fn serve(&mut self, from: u32, len: u32) -> bool {
        let first = u64::from(from).div_ceil(BLOCK_BYTES);
        let end = (u64::from(from) + u64::from(len)) / BLOCK_BYTES;
        for block in first..end {
            let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
            if let Some(served) = self.served.get_mut(word)
                && *served & bit == 0
            {
                *served |= bit;
                self.unserved = self.unserved.saturating_sub(1);
            }
        }
        self.unserved == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_once_and_only_when_whole() {
        let mut blocks = BlocksServed::default();
        blocks.reset(100 * 4096);
        assert!(!blocks.serve(0, 99 * 4096) && !blocks.serve(0, 99 * 4096));
        assert!(!blocks.serve(99 * 4096, 4095) && !blocks.serve(99 * 4096 + 1, 4095));
        assert!(blocks.serve(98 * 4096 + 1, 2 * 4096 - 1));
        blocks.reset(4096);
        assert!(!blocks.serve(1, 4095) && blocks.serve(0, 4096));
    }
}

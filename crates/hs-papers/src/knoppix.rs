//! A start of KNOPPIX from its CD, as Kitagawa and others describe it ("CD/DVD から起動する Linux の起動高速化", 2005).
//!
//! The paper does not say which blocks a start refers to in which order, only that the order is scattered.
//! The order here is that of a start that we recorded, of another Linux on another disk. docs/MEDIA.md shows
//! what other assumptions would give.

use hs_engine::queue::{MediumTraits, QueueConfig};
use hs_units::{ByteRange, Nanos, Prng};

/// "13 files of 50 MB, as much of the disc as the cloop file of KNOPPIX has" (section 3).
pub(crate) const FILE_BYTES: u64 = 13 * 50 * 1_000_000;

/// 1.8 GB in blocks of 64 KiB (section 2).
pub(crate) const BLOCKS: u64 = 1_800_000_000 / 65_536;

/// References of a start and their bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct References {
    /// The number of references.
    pub(crate) count: u64,
    /// The compressed bytes that they refer to.
    pub(crate) bytes: u64,
}

/// Of table 1, KNOPPIX 3.8.2.
pub(crate) const TABLE_1: References = References { count: 3_668, bytes: 68_156 * 1_024 };

/// Of table 2, KNOPPIX Edu 4.1.
pub(crate) const TABLE_2: References = References { count: 4_920, bytes: 95_972 * 1_024 };

impl References {
    /// Compressed bytes of one block, in the mean.
    pub(crate) fn block_bytes(self) -> u64 {
        self.bytes / self.count
    }
}

/// Time of the computer of table 2 between two references: it starts in 311 s (figure 4), of which 124 are
/// references.
pub(crate) fn think() -> Nanos {
    Nanos::from_secs_f64((311.0 - 124.056) / TABLE_2.count as f64)
}

/// The queue before a CD drive.
pub(crate) fn queue() -> QueueConfig {
    QueueConfig::for_medium(MediumTraits { rotational: true, overlaps: false, bytes_per_s: Some(2.5e6) })
}

/// From one block to the next: so many blocks on, or so much of the disk.
#[derive(Clone, Copy, Debug)]
enum Move {
    Near(i64),
    Far(f64),
}

/// How the recorded start moves over its disk in windows of 64 KiB, those that it reads for the first time.
fn recorded_moves() -> Vec<Move> {
    const WINDOWS: f64 = 6_720.0;
    let windows: Vec<i64> = include_str!("knoppix/boot-order.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .map(|window| window.parse().expect("a number"))
        .collect();
    let moves = windows.windows(2).map(|pair| match pair[1] - pair[0] {
        near @ -6..=6 => Move::Near(near),
        far => Move::Far(far as f64 / WINDOWS),
    });
    moves.collect()
}

/// Different blocks in an order that moves as the recorded start does: its moves, drawn at random.
pub(crate) fn scattered(seed: u64, count: u64) -> Vec<u64> {
    let moves = recorded_moves();
    let mut prng = Prng::new(seed);
    let mut referred = vec![false; BLOCKS as usize];
    let mut block = prng.below(BLOCKS);
    (0..count)
        .map(|_| {
            while referred[block as usize] {
                block = (block + 1) % BLOCKS;
            }
            referred[block as usize] = true;
            let now = block;
            let by = match moves[prng.below(moves.len() as u64) as usize] {
                Move::Near(blocks) => blocks,
                Move::Far(share) => (share * BLOCKS as f64) as i64,
            };
            // A move that would leave the disk goes the other way.
            let next = block as i64 + by;
            let next = if (0..BLOCKS as i64).contains(&next) { next } else { block as i64 - by };
            block = next.clamp(0, BLOCKS as i64 - 1) as u64;
            now
        })
        .collect()
}

/// Where the blocks of `order` lie in the file: all one after the other; those of `order` have `block_bytes`
/// each, the others as many as fill the file.
pub(crate) fn places(order: &[u64], block_bytes: u64) -> Vec<ByteRange> {
    let mut referred = vec![false; BLOCKS as usize];
    order.iter().for_each(|number| referred[*number as usize] = true);
    let different = referred.iter().filter(|referred| **referred).count() as u64;
    let other = (FILE_BYTES - different * block_bytes) / (BLOCKS - different);
    let mut end = 0;
    let begins: Vec<u64> = referred
        .iter()
        .map(|referred| {
            let begin = end;
            end += if *referred { block_bytes } else { other };
            begin
        })
        .collect();
    order.iter().map(|number| ByteRange::new(begins[*number as usize], block_bytes)).collect()
}

#[cfg(test)]
mod tests;

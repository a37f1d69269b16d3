//! Each block of an overlay against the sum that its record has.

use hs_units::{BLOCK_BYTES, ByteRange};

use crate::layout::{BLOCK, SEGMENT_BLOCKS, SEGMENT_BYTES, first_block, segment_of};
use crate::map::Content;
use crate::overlay::Overlay;
use crate::record::{Header, SUM_BYTES, sum};

/// Blocks that are named, at most.
const MOST_NAMED: usize = 1000;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Blocks that are what was written.
    pub whole: u64,
    /// Blocks that are not, or of which no record tells.
    pub damaged: u64,
    /// The first of these, by their numbers on the disk.
    pub named: Vec<u64>,
}

/// The sums of the blocks that a map refers to, by their places in the file.
#[derive(Debug)]
pub struct BlockSums {
    /// Runs in the order of the file: first block, blocks, and the number of the first one's sum.
    runs: Vec<(u64, u64, usize)>,
    sums: Vec<[u8; SUM_BYTES]>,
}

impl BlockSums {
    /// Whether the block of the file at `place` is what it was when its sum was taken.
    #[must_use]
    pub fn has(&self, place: u64, block: &[u8]) -> bool {
        let behind = self.runs.partition_point(|(first, ..)| *first <= place);
        let run = behind.checked_sub(1).map(|run| self.runs[run]);
        run.filter(|(first, blocks, _)| place - first < *blocks)
            .and_then(|(first, _, number)| self.sums.get(number + (place - first) as usize))
            .is_some_and(|expected| *expected == sum(block))
    }
}

/// Reads each segment that a map refers to once.
pub struct Checking<'a> {
    overlay: &'a Overlay,
    /// Runs of the file that are referred to, in its order: first block of the file, blocks, block of the
    /// disk.
    runs: Vec<(u64, u64, u64)>,
    next: usize,
    checked: Checked,
    /// Of each block of the runs, where they are wanted.
    sums: Option<Vec<[u8; SUM_BYTES]>>,
}

impl<'a> Checking<'a> {
    /// A check of this overlay, whose writes are all in its file.
    #[must_use]
    pub fn new(overlay: &'a Overlay) -> Self {
        let maps = overlay.snapshots.iter().map(|snapshot| &snapshot.map).chain([&overlay.map]);
        let mut runs = Vec::new();
        for (start, blocks, content) in maps.flat_map(crate::map::ExtentMap::iter) {
            if let Content::Data(place) = content {
                runs.push((place, blocks, start));
            }
        }
        runs.sort_unstable();
        runs.dedup();
        Self { overlay, runs, next: 0, checked: Checked::default(), sums: None }
    }

    /// The same, and the sums are kept: of one map ([`Overlay::keep_only`]), which has no place twice.
    #[must_use]
    pub fn keeping_sums(overlay: &'a Overlay) -> Self {
        Self { sums: Some(Vec::new()), ..Self::new(overlay) }
    }

    /// The range of the file that is needed next.
    #[must_use]
    pub fn poll(&self) -> Option<ByteRange> {
        let (place, ..) = self.runs.get(self.next)?;
        let segment = segment_of(*place)?;
        Some(ByteRange::new(first_block(segment) * BLOCK_BYTES, SEGMENT_BYTES))
    }

    /// Its bytes.
    pub fn handle_bytes(&mut self, found: &[u8]) {
        let Some(segment) = self.runs.get(self.next).and_then(|(place, ..)| segment_of(*place)) else {
            return;
        };
        let first = first_block(segment);
        let whole = whole_blocks(found, segment, self.overlay);
        let end =
            self.runs[self.next..].iter().take_while(|(place, ..)| *place < first + SEGMENT_BLOCKS).count();
        let runs = self.next..self.next + end;
        self.next = runs.end;
        for (place, blocks, start) in &self.runs[runs] {
            for block in 0..*blocks {
                let found = whole[(place + block - first) as usize];
                if let Some(sums) = &mut self.sums {
                    sums.push(found.unwrap_or_default());
                }
                if found.is_some() {
                    self.checked.whole += 1;
                    continue;
                }
                self.checked.damaged += 1;
                if self.checked.named.len() < MOST_NAMED {
                    self.checked.named.push(start + block);
                }
            }
        }
    }

    /// What was found.
    #[must_use]
    pub fn finish(self) -> Checked {
        self.checked
    }

    /// The same, and the sums that were kept.
    #[must_use]
    pub fn finish_with_sums(self) -> (Checked, BlockSums) {
        let mut number = 0;
        let numbered = |(place, blocks, _): &(u64, u64, u64)| {
            let first = number;
            number += *blocks as usize;
            (*place, *blocks, first)
        };
        let runs = self.runs.iter().map(numbered).collect();
        (self.checked, BlockSums { runs, sums: self.sums.unwrap_or_default() })
    }
}

/// The sums of the blocks of a segment that are what its records say. A record that is newer than all of the
/// overlay does not count: the segment was used again since its map was read.
pub(crate) fn whole_blocks(
    found: &[u8],
    segment: u32,
    overlay: &Overlay,
) -> [Option<[u8; SUM_BYTES]>; SEGMENT_BLOCKS as usize] {
    let mut whole = [None; SEGMENT_BLOCKS as usize];
    let mut at = 0;
    while let Some(bytes) = found.get(at * BLOCK..)
        && let Some(header) = Header::decode(bytes, first_block(segment) + at as u64, &overlay.identity)
        && header.sequence <= overlay.log.sequence
    {
        let data = bytes.get(header.blocks as usize * BLOCK..).unwrap_or_default();
        at += header.blocks as usize;
        for (number, block) in data.chunks_exact(BLOCK).take(header.data_blocks as usize).enumerate() {
            if let Some(whole) = whole.get_mut(at + number) {
                *whole = header.whole_sum(number as u64, block);
            }
        }
        at += header.data_blocks as usize;
    }
    whole
}

//! Each block of an overlay against the sum that its record has.

use hs_units::{BLOCK_BYTES, ByteRange};

use crate::layout::{BLOCK, SEGMENT_BLOCKS, SEGMENT_BYTES, first_block, segment_of};
use crate::map::Content;
use crate::overlay::Overlay;
use crate::record::Header;

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

/// Reads each segment that a map refers to once.
pub struct Checking<'a> {
    overlay: &'a Overlay,
    /// Runs of the file that are referred to, in its order: first block of the file, blocks, block of the
    /// disk.
    runs: Vec<(u64, u64, u64)>,
    next: usize,
    checked: Checked,
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
        Self { overlay, runs, next: 0, checked: Checked::default() }
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
                if whole[(place + block - first) as usize] {
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
}

/// Which blocks of a segment are what its records say.
pub(crate) fn whole_blocks(found: &[u8], segment: u32, overlay: &Overlay) -> [bool; SEGMENT_BLOCKS as usize] {
    let mut whole = [false; SEGMENT_BLOCKS as usize];
    let mut at = 0;
    while let Some(bytes) = found.get(at * BLOCK..)
        && let Some(header) = Header::decode(bytes, first_block(segment) + at as u64, &overlay.identity)
    {
        let data = bytes.get(header.blocks as usize * BLOCK..).unwrap_or_default();
        at += header.blocks as usize;
        for (number, block) in data.chunks_exact(BLOCK).take(header.data_blocks as usize).enumerate() {
            if let Some(whole) = whole.get_mut(at + number) {
                *whole = header.is_whole(number as u64, block);
            }
        }
        at += header.data_blocks as usize;
    }
    whole
}

//! Giving back the space of segments of which little is needed: that little is written again, and the segment
//! is free with the next map.

use hs_units::{BLOCK_BYTES, ByteRange};

use crate::check::whole_blocks;
use crate::error::Refusal;
use crate::layout::{BLOCK, SEGMENT_BLOCKS, SEGMENT_BYTES, first_block, segment_of};
use crate::map::Content;
use crate::overlay::{Overlay, Piece, Source};

/// Blocks beyond its data that a file may always take.
const SLACK_BLOCKS: u64 = (2 << 20) / BLOCK_BYTES;
/// A segment with more live blocks is not worth it.
const SPARSE_BLOCKS: u64 = SEGMENT_BLOCKS / 16 * 15;
/// Segments that are moved before a map is stored, at least, and as a part of all: what a file grows by
/// meanwhile.
const MOVED_SEGMENTS: usize = 4;
const MOVED_PART: usize = 32;
/// Free segments that keep their space while nothing is written.
const IDLE_FREE: usize = 2;

impl Overlay {
    /// Segments whose live blocks are to be moved, as ranges of the file: each is to be read and given to
    /// [`Overlay::handle_segment`], and a flush is to follow. With none the next job is to be asked for.
    /// `None` when the file is small enough: a tenth above its data where nothing else is to be done, three
    /// times that in the midst of writes.
    pub fn sparse(&mut self, is_idle: bool) -> Option<Vec<ByteRange>> {
        let is_due = std::mem::take(&mut self.may_move) || is_idle;
        if !is_due || !self.is_ready || !self.is_idle() || self.trouble().is_some() {
            return None;
        }
        let (space, live) = self.segments.space();
        let most = if is_idle { live + live / 10 } else { live * 3 } + SLACK_BLOCKS;
        let has_free = is_idle && self.can_punch && self.segments.free() > IDLE_FREE;
        if space <= most && !has_free {
            return None;
        }
        if self.log_blocks > 0 {
            // Which may give enough back.
            self.must_checkpoint = true;
            return Some(Vec::new());
        }
        if has_free {
            (self.kept_free, self.punch_due) = (IDLE_FREE, true);
            return Some(Vec::new());
        }
        let count = MOVED_SEGMENTS.max(self.segments.count() as usize / MOVED_PART);
        let segments = self.segments.sparsest(count, SPARSE_BLOCKS, &self.needed_segments());
        self.moving.clear();
        for (start, blocks, content) in self.map.iter() {
            if let Content::Data(place) = content
                && segment_of(place).is_some_and(|segment| segments.contains(&segment))
            {
                let source = Source::File(place * BLOCK_BYTES);
                self.moving.push(Piece { start, end: start + blocks, source });
            }
        }
        let range = |segment: &u32| ByteRange::new(first_block(*segment) * BLOCK_BYTES, SEGMENT_BYTES);
        (!segments.is_empty()).then(|| segments.iter().map(range).collect())
    }

    /// Takes what of a segment is still needed as if it was written to the disk again. Blocks that are not
    /// what was written stay where they are, and the segment with them.
    ///
    /// # Errors
    /// As for [`Overlay::handle_write`]: the rest stays where it is.
    pub fn handle_segment(&mut self, range: ByteRange, bytes: &[u8]) -> Result<(), Refusal> {
        let Some(segment) = segment_of(range.offset / BLOCK_BYTES) else { return Ok(()) };
        let whole = whole_blocks(bytes, segment, self);
        let mut found = Vec::new();
        for piece in &self.moving {
            let Source::File(place) = piece.source else { continue };
            if place < range.offset || place >= range.end() {
                continue;
            }
            self.lookup(piece.start, piece.end, &mut |now| {
                let place = place + (now.start - piece.start) * BLOCK_BYTES;
                // Else it was written anew meanwhile.
                if now.source == Source::File(place) {
                    found.push((now.start, now.end, (place - range.offset) as usize / BLOCK));
                }
            });
        }
        for (start, end, at) in found {
            let count = (end - start) as usize;
            let is_whole = whole.get(at..at + count).is_some_and(|blocks| blocks.iter().all(Option::is_some));
            match bytes.get(at * BLOCK..(at + count) * BLOCK).filter(|_| is_whole) {
                Some(bytes) => self.handle_write(start, bytes)?,
                None => self.segments.pin(segment),
            }
        }
        Ok(())
    }
}

//! Where each hot chunk is, and whether bringing them helps.

use std::ops::Range;

use super::ChunkSize;

/// Where a hot chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// Only on the medium.
    Medium,
    /// In a request of the stream.
    UnderWay,
    /// In memory, until its readers have it.
    Held,
    /// Delivered, or it came without the stream: no reader waits for it any more.
    Gone,
}

/// With fewer bytes than this, prefetch is not judged.
const MIN_JUDGED_BYTES: u64 = 8 << 20;

/// The hot chunks in their order.
#[derive(Debug)]
pub(super) struct Chunks {
    sizes: Vec<ChunkSize>,
    places: Vec<ChunkState>,
    /// Bytes of all chunks in the image.
    stored_bytes: u64,
    /// Decompressed bytes of chunks that are held.
    held_bytes: u64,
    /// Decompressed bytes of chunks that are under way.
    under_way_bytes: u64,
    /// Decompressed bytes that the stream has brought.
    brought_bytes: u64,
    /// Of these, bytes of chunks that were delivered to a reader that then did not have them.
    dropped_bytes: u64,
    is_dropped: Vec<bool>,
}

impl Chunks {
    pub(super) fn new(sizes: Vec<ChunkSize>) -> Self {
        let places = vec![ChunkState::Medium; sizes.len()];
        let is_dropped = vec![false; sizes.len()];
        let stored_bytes = sizes.iter().map(|size| u64::from(size.stored_bytes)).sum();
        Self {
            sizes,
            places,
            stored_bytes,
            held_bytes: 0,
            under_way_bytes: 0,
            brought_bytes: 0,
            dropped_bytes: 0,
            is_dropped,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.sizes.len() as u32
    }

    pub(super) fn size(&self, chunk: u32) -> ChunkSize {
        self.sizes[chunk as usize]
    }

    /// Bytes of all chunks in the image.
    pub(super) const fn all_stored(&self) -> u64 {
        self.stored_bytes
    }

    /// Bytes of these chunks in the image.
    pub(super) fn stored(&self, chunks: &Range<u32>) -> u64 {
        let sizes = &self.sizes[chunks.start as usize..chunks.end as usize];
        sizes.iter().map(|size| u64::from(size.stored_bytes)).sum()
    }

    /// Bytes that count against the budget.
    pub(super) const fn occupied_bytes(&self) -> u64 {
        self.held_bytes + self.under_way_bytes
    }

    pub(super) const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Whether it has come, by the stream or without it.
    pub(super) fn has_come(&self, chunk: u32) -> bool {
        matches!(self.places[chunk as usize], ChunkState::Held | ChunkState::Gone)
    }

    /// The first chunk from `from` on that has not come.
    pub(super) fn first_missing(&self, from: u32) -> u32 {
        (from..self.len()).find(|chunk| !self.has_come(*chunk)).unwrap_or(self.len())
    }

    pub(super) fn ask_for(&mut self, chunks: &Range<u32>) {
        for chunk in chunks.clone() {
            if self.places[chunk as usize] == ChunkState::Medium {
                self.places[chunk as usize] = ChunkState::UnderWay;
                self.under_way_bytes += self.raw(chunk);
            }
        }
    }

    /// The stream has brought it.
    pub(super) fn arrived(&mut self, chunk: u32) {
        let place = std::mem::replace(&mut self.places[chunk as usize], ChunkState::Held);
        if place == ChunkState::Held {
            return;
        }
        if place == ChunkState::UnderWay {
            self.under_way_bytes -= self.raw(chunk);
        }
        self.held_bytes += self.raw(chunk);
        self.brought_bytes += self.raw(chunk);
    }

    pub(super) fn released(&mut self, chunk: u32) {
        if self.places[chunk as usize] == ChunkState::Held {
            self.places[chunk as usize] = ChunkState::Gone;
            self.held_bytes -= self.raw(chunk);
        }
    }

    /// It has come without the stream. If it is under way as well, that counts when it arrives.
    pub(super) fn resident(&mut self, chunk: u32) {
        if self.places[chunk as usize] == ChunkState::Medium {
            self.places[chunk as usize] = ChunkState::Gone;
        }
    }

    /// Readers had it and need it again. That counts once.
    pub(super) fn dropped(&mut self, chunk: u32) {
        if !std::mem::replace(&mut self.is_dropped[chunk as usize], true) {
            self.dropped_bytes += self.raw(chunk);
        }
    }

    /// Whether most of what was brought was dropped by those that were to keep it.
    pub(super) const fn are_dropped(&self) -> bool {
        self.dropped_bytes >= MIN_JUDGED_BYTES && self.dropped_bytes > self.brought_bytes / 2
    }

    /// Whether most of what was brought is unused.
    pub(super) const fn are_unused(&self) -> bool {
        self.held_bytes >= MIN_JUDGED_BYTES && self.held_bytes > self.brought_bytes / 4 * 3
    }

    fn raw(&self, chunk: u32) -> u64 {
        self.size(chunk).raw_bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_is_a_stream_of_which_more_than_three_quarters_are_held() {
        let size = ChunkSize { stored_bytes: 1 << 19, raw_bytes: 1 << 20 };
        let mut chunks = Chunks::new(vec![size; 32]);
        (0..32).for_each(|chunk| chunks.arrived(chunk));
        (0..7).for_each(|chunk| chunks.released(chunk));
        assert!(chunks.are_unused());
        chunks.released(7);
        assert!(!chunks.are_unused());
    }
}

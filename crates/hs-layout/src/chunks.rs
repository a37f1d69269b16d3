//! Cutting an order of blocks into chunks.

use hs_trace::BlockSet;
use hs_units::{BLOCK_BYTES, BlockRange, Nanos};

use crate::order::Segment;
use crate::plan::{LayoutOptions, PlannedChunk};

/// Fills chunks with blocks in the order given. The first has `first_chunk_bytes`, each further one twice as
/// much up to `max_chunk_bytes`: a reader waits for the first, and large chunks compress better. A chunk
/// never spans two segments, so that a start that does not need a segment fetches no part of it. So the last
/// chunk of a segment may be smaller.
pub(crate) fn cut(segments: &[Segment], options: &LayoutOptions) -> Vec<PlannedChunk> {
    let mut chunks = Vec::new();
    let max_blocks = options.max_chunk_bytes / BLOCK_BYTES;
    let mut capacity = options.first_chunk_bytes / BLOCK_BYTES;
    for segment in segments {
        let mut filling = BlockSet::new();
        for run in segment {
            let mut rest = *run;
            while rest.count > 0 {
                let taken = BlockRange::new(rest.start, rest.count.min(capacity - filling.blocks()));
                filling.insert(taken, |_| {});
                rest = BlockRange::new(taken.end(), rest.count - taken.count);
                if filling.blocks() == capacity {
                    chunks.push(finish(&mut filling));
                    capacity = capacity.saturating_mul(2).min(max_blocks);
                }
            }
        }
        if !filling.is_empty() {
            chunks.push(finish(&mut filling));
        }
    }
    chunks
}

/// The set's runs are already what a chunk wants: by address, coalesced.
fn finish(filling: &mut BlockSet) -> PlannedChunk {
    PlannedChunk { extents: core::mem::take(filling).runs().collect(), needed: Nanos::ZERO }
}

//! Which file pages the chunks bring.

use hs_trace::{BlockSet, FileMap, Profile};

use crate::plan::{PlannedChunk, PlannedHint};

/// One hint for each run of consecutive pages of a file, or of consecutive blocks of no file, inside one
/// chunk, in the chunks' order. A block outside all files is metadata only if a profile that knows files
/// recorded it. Otherwise nothing is known about it, and it gets no hint.
pub(crate) fn hints(profiles: &[Profile], chunks: &[PlannedChunk]) -> Vec<PlannedHint> {
    let files = FileMap::new(profiles.iter().flat_map(|profile| &profile.files));
    if files.is_empty() {
        return Vec::new();
    }
    let knowing = profiles.iter().filter(|profile| !profile.files.is_empty());
    let known: BlockSet = knowing.flat_map(|profile| &profile.reads).map(|read| read.blocks).collect();
    let mut hints = Vec::new();
    for extent in chunks.iter().flat_map(|chunk| &chunk.extents) {
        for piece in files.split(*extent) {
            match piece.page_of {
                Some((file, page)) => {
                    hints.push(PlannedHint { blocks: piece.blocks, inode: file.inode, page })
                }
                None => known.split(piece.blocks, |blocks, is_known| {
                    if is_known {
                        hints.push(PlannedHint { blocks, inode: 0, page: blocks.start.0 });
                    }
                }),
            }
        }
    }
    hints
}

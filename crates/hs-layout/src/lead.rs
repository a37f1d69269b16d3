//! Moves metadata forward.

use hs_trace::FileMap;
use hs_units::{BLOCK_BYTES, BlockRange};

use crate::order::Segment;

/// Moves each run of metadata `lead_bytes` of hot data forward in the order of its segment, and leaves
/// everything else in its place. A program that warms caches by file must read a file's inode before it can
/// ask for the file's pages. If the inode came only just in time, so would the pages, and the reader would
/// already wait for them. Without knowledge of files there is nothing to move.
pub(crate) fn advance(segment: Segment, files: &FileMap<'_>, lead_bytes: u64) -> Segment {
    if files.is_empty() || lead_bytes == 0 {
        return segment;
    }
    let lead_blocks = lead_bytes / BLOCK_BYTES;
    let mut at = 0;
    let mut pieces: Vec<(u64, BlockRange)> = Vec::with_capacity(segment.len());
    for piece in segment.into_iter().flat_map(|run| files.split(run)) {
        let due = if piece.page_of.is_some() { at } else { u64::saturating_sub(at, lead_blocks) };
        at += piece.blocks.count;
        pieces.push((due, piece.blocks));
    }
    pieces.sort_by_key(|(due, _)| *due);
    pieces.into_iter().map(|(_, blocks)| blocks).collect()
}

#[cfg(test)]
mod tests {
    use hs_trace::{FileRun, FileUse};
    use hs_units::Lba;

    use super::*;

    fn run(start: u64, count: u64) -> BlockRange {
        BlockRange::new(Lba(start), count)
    }

    #[test]
    fn metadata_comes_earlier_by_the_lead_and_files_keep_their_order() {
        let runs = vec![FileRun { page: 0, blocks: run(100, 50) }];
        let file = FileUse { path: "/a".to_owned(), inode: 12, runs };
        let files = FileMap::new([&file]);
        let order = vec![run(100, 10), run(110, 10), run(5, 1), run(120, 10), run(6, 1)];
        let led = advance(order.clone(), &files, 10 * BLOCK_BYTES);
        assert_eq!(led, [run(100, 10), run(110, 10), run(5, 1), run(120, 10), run(6, 1)]);
        let led = advance(order.clone(), &files, 15 * BLOCK_BYTES);
        assert_eq!(led, [run(100, 10), run(5, 1), run(110, 10), run(6, 1), run(120, 10)]);
        assert_eq!(advance(order.clone(), &files, 0), order);
        assert_eq!(advance(order.clone(), &FileMap::new([]), 1 << 20), order);
    }

    #[test]
    fn without_a_lead_or_files_no_run_is_cut() {
        let runs = vec![FileRun { page: 0, blocks: run(100, 50) }];
        let file = FileUse { path: "/a".to_owned(), inode: 12, runs };
        // A run that begins before the file and ends in it.
        let order = vec![run(90, 20), run(5, 1)];
        assert_eq!(advance(order.clone(), &FileMap::new([&file]), 0), order);
        assert_eq!(advance(order.clone(), &FileMap::new([]), 4096), order);
    }
}

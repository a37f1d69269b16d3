//! The hot region that an image has already, as the record of a start.

use std::collections::{BTreeMap, BTreeSet};

use hs_image::Image;
use hs_layout::{LayoutPlan, PlannedChunk, PlannedHint};
use hs_trace::{FileRun, FileUse, Profile, Read};
use hs_units::{BlockRange, Nanos};

use crate::source::Moves;

/// A start that reads the hot blocks of the image in their order, by the times and the files that the image
/// knows; `None` without a hot region.
pub(crate) fn start(image: &Image) -> Option<Profile> {
    let mut reads = Vec::new();
    for chunk in 0..image.hot_chunk_count() {
        let at = image.hot_needed(chunk);
        let extents = image.hot_extents(chunk).iter();
        reads.extend(extents.map(|extent| Read { at, blocks: *extent, cost: Nanos::ZERO }));
    }
    let mut runs: BTreeMap<u64, Vec<FileRun>> = BTreeMap::new();
    for hint in image.hints().filter(|hint| hint.inode != 0) {
        let blocks = BlockRange::new(hint.lba, hint.blocks.into());
        runs.entry(hint.inode).or_default().push(FileRun { page: hint.page.into(), blocks });
    }
    let file = |(inode, runs)| FileUse { path: format!("/{inode}"), inode, runs };
    (!reads.is_empty()).then(|| Profile {
        disk_digest: image.disk_digest(),
        disk_bytes: image.disk_bytes(),
        ready: image.own_time(),
        reads,
        files: runs.into_iter().map(file).collect(),
        ..Profile::default()
    })
}

/// The hot region as a plan, and the number that each of its chunks has. It is as it is, or with blocks where
/// `moves` says that they are now, without those that are gone.
pub(crate) fn plan(image: &Image, moves: Option<&Moves>) -> (LayoutPlan, Vec<u32>) {
    let moved = |extent: BlockRange| moves.map_or_else(|| vec![extent], |moves| moves.of(extent));
    let mut seen = BTreeSet::new();
    let (mut chunks, mut numbers) = (Vec::new(), Vec::new());
    for number in 0..image.hot_chunk_count() {
        let mut extents: Vec<BlockRange> = Vec::new();
        for block in image.hot_extents(number).iter().copied().flat_map(moved).flat_map(BlockRange::blocks) {
            // R21: what two blocks became is hot once.
            if moves.is_some() && !seen.insert(block) {
                continue;
            }
            match extents.last_mut() {
                Some(last) if last.start.0 + last.count == block.0 => last.count += 1,
                _ => extents.push(BlockRange::new(block, 1)),
            }
        }
        if !extents.is_empty() {
            chunks.push(PlannedChunk { extents, needed: image.hot_needed(number) });
            numbers.push(number);
        }
    }
    let hints = image.hints().flat_map(|hint| {
        let before = BlockRange::new(hint.lba, hint.blocks.into());
        let mut page = hint.page.into();
        moved(before).into_iter().map(move |blocks| {
            let planned = PlannedHint { blocks, inode: hint.inode, page };
            page += blocks.count;
            planned
        })
    });
    let hints = hints.collect();
    let blocks = chunks.iter().map(PlannedChunk::blocks).sum();
    (LayoutPlan { chunks, hints, blocks }, numbers)
}

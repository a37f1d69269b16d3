//! The hot region that an image has already, as the record of a start.

use std::collections::BTreeMap;

use hs_image::Image;
use hs_trace::{FileRun, FileUse, Profile, Read};
use hs_units::{BlockRange, Nanos};

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

//! Finding blocks in an image by what they hold.

use std::collections::HashSet;

use hs_format::Decompressor;
use hs_image::{Image, ImageError, Progress};
use hs_trace::{BlockDigest, Places, Profile, RecordedBlocks};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, to_usize};

/// Addresses remembered of one block; a block that is everywhere says nothing of where it belongs.
const MAX_PLACES: usize = 64;

/// Where the disk of `image` has the blocks that `profile` recorded on another one: one pass over the disk,
/// and memory for the profile's runs and for what its blocks hold, each once.
///
/// # Errors
/// When a window cannot be read or is damaged.
pub fn find_blocks(
    image: &Image,
    profile: &Profile,
    progress: &dyn Fn(Progress),
) -> Result<Places, ImageError> {
    let recorded = RecordedBlocks::new(profile);
    let wanted: HashSet<BlockDigest> = profile.digests.iter().copied().collect();
    let zeroes = BlockDigest::of(&[]);
    let mut places = Places::default();
    let mut tools = Decompressor::new();
    let window_blocks = image.window_bytes() / BLOCK_BYTES;
    for window in 0..image.superblock().windows() {
        let first = window * window_blocks;
        let raw = image.load_window(window, &mut tools)?;
        let blocks = u64::from(image.superblock().window_raw_bytes(window)).div_ceil(BLOCK_BYTES);
        for number in 0..blocks {
            let at = Lba(first + number);
            let digest = raw.as_ref().map_or(zeroes, |raw| {
                let from = to_usize(number * BLOCK_BYTES);
                BlockDigest::of(&raw[from..raw.len().min(from + to_usize(BLOCK_BYTES))])
            });
            if !wanted.contains(&digest) {
                continue;
            }
            if recorded.digest(at) == Some(digest) {
                places.same.insert(BlockRange::new(at, 1), |_| {});
            }
            let elsewhere = places.elsewhere.entry(digest).or_default();
            if elsewhere.len() < MAX_PLACES {
                elsewhere.push(at);
            }
        }
        let done_bytes = (first + blocks) * BLOCK_BYTES;
        progress(Progress {
            stage: "looking for the profile's blocks",
            done_bytes,
            total_bytes: image.disk_bytes(),
        });
    }
    Ok(places)
}

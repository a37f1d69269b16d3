//! A reader of whole images in memory, as plain as can be, and fail closed.

use hs_format::limits::{DISK_DIGEST_WINDOW_BYTES, SUPERBLOCK_BYTES};
use hs_format::*;
use hs_units::{BLOCK_BYTES, ByteRange};

fn slice(image: &[u8], range: ByteRange) -> Result<&[u8], FormatError> {
    let found = image.len() as u64;
    let short =
        FormatError::Size { part: Part::File, expected: range.offset.saturating_add(range.len), found };
    if range.fits_in(found) { Ok(&image[range.offset as usize..range.end() as usize]) } else { Err(short) }
}

fn decode_chunk(
    image: &[u8],
    place: ByteRange,
    chunk: &ChunkRef,
    decompressor: &mut Decompressor,
) -> Result<Vec<u8>, FormatError> {
    let stored = Unverified::new(slice(image, place)?).verify(&chunk.expected())?;
    decompressor.decompress(chunk.codec, stored, chunk.raw_bytes)
}

/// The whole disk, from the cold region; then every hot block must be the same as there.
pub(crate) fn read_image(image: &[u8]) -> Result<Vec<u8>, FormatError> {
    let superblock =
        Superblock::decode(Unverified::new(slice(image, ByteRange::new(0, SUPERBLOCK_BYTES as u64))?))?;
    superblock.check_file(image.len() as u64)?;
    let mut decompressor = Decompressor::new();
    let disk = read_cold(image, &superblock, &mut decompressor)?;
    for segment in &superblock.hot {
        let index = HotIndex::decode(Unverified::new(slice(image, segment.index)?), segment, &superblock)?;
        Hints::decode(Unverified::new(slice(image, segment.hints)?), segment, &superblock)?;
        for (number, hot) in index.chunks.iter().enumerate() {
            let raw = decode_chunk(image, segment.in_file(hot.chunk.range), &hot.chunk, &mut decompressor)?;
            let mut rest = raw.as_slice();
            for run in index.runs_of(number as u32) {
                let (blocks, others) = rest.split_at((run.blocks() * BLOCK_BYTES) as usize);
                rest = others;
                // R60: what is stale is passed over.
                let HotRun::Disk(run) = run else { continue };
                let cold = &disk[run.start.byte_offset() as usize..run.end().byte_offset() as usize];
                assert_eq!(blocks, cold, "hot copy of {run}");
            }
        }
    }
    let mut hasher = DiskHasher::new(superblock.disk_bytes);
    disk.chunks(DISK_DIGEST_WINDOW_BYTES).for_each(|window| hasher.update_window(window));
    assert_eq!(hasher.finish(), superblock.disk_digest);
    Ok(disk)
}

fn read_cold(
    image: &[u8],
    superblock: &Superblock,
    decompressor: &mut Decompressor,
) -> Result<Vec<u8>, FormatError> {
    let cold = &superblock.cold;
    let root = ColdRoot::decode(Unverified::new(slice(image, cold.in_file(cold.root))?), superblock)?;
    let (mut disk, mut coverage) = (Vec::new(), ColdCoverage::new());
    for (number, leaf_ref) in root.leaves.iter().enumerate() {
        let number = number as u64;
        if leaf_ref.is_zero() {
            let first = number * u64::from(cold.windows_per_leaf);
            for window in first..first + u64::from(superblock.geometry().leaf_windows(number)) {
                disk.resize(disk.len() + superblock.window_raw_bytes(window) as usize, 0);
            }
            continue;
        }
        let leaf = ColdLeaf::decode(
            Unverified::new(slice(image, cold.in_file(leaf_ref.range))?),
            number,
            leaf_ref,
            superblock,
        )?;
        coverage.add(&leaf);
        for (i, window) in leaf.windows().enumerate() {
            let number = number * u64::from(cold.windows_per_leaf) + i as u64;
            match window {
                WindowRef::Zero => disk.resize(disk.len() + superblock.window_raw_bytes(number) as usize, 0),
                WindowRef::Chunk(chunk) => {
                    assert_eq!(chunk.raw_bytes, superblock.window_raw_bytes(number));
                    disk.extend(decode_chunk(image, cold.in_file(chunk.range), &chunk, decompressor)?);
                }
            }
        }
    }
    coverage.finish(superblock)?;
    Ok(disk)
}

//! Proving what an image holds.

use std::collections::HashSet;

use hs_format::limits::DISK_DIGEST_WINDOW_BYTES;
use hs_format::{Decompressor, DiskHasher, Superblock};
use hs_units::{BLOCK_BYTES, BlockRange, Lba};

use crate::optimize::Blocks;
use crate::output::Progress;
use crate::source::Source;
use crate::{Image, ImageError, SUPERBLOCK_BYTES};

/// What was proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// Bytes of the disk, all of which agree with the disk digest.
    pub disk_bytes: u64,
    /// Distinct cold chunks that agree with their digests.
    pub cold_chunks: u64,
    /// Hot chunks that agree with their digests, and whose blocks equal the cold copies.
    pub hot_chunks: u32,
    /// Bytes compared with another disk.
    pub compared_bytes: u64,
}

/// Checks every byte of an image: each chunk against its digest, the disk against the disk digest,
/// hot copies against cold ones, the mirror against the superblock; with `against`, also every block
/// against another disk.
///
/// # Errors
/// The first thing that is wrong, saying where.
pub fn verify(
    image: &Image,
    against: Option<(&Source, &str)>,
    progress: &dyn Fn(Progress),
) -> Result<VerifyReport, ImageError> {
    check_mirror(image)?;
    let mut report =
        VerifyReport { disk_bytes: image.disk_bytes(), cold_chunks: 0, hot_chunks: 0, compared_bytes: 0 };
    check_cold(image, against, &mut report, progress)?;
    check_hot(image, &mut report)?;
    Ok(report)
}

fn check_mirror(image: &Image) -> Result<(), ImageError> {
    let store = image.store();
    for offset in [0, store.len() - SUPERBLOCK_BYTES] {
        let mut bytes = vec![0; SUPERBLOCK_BYTES as usize];
        store.read_at(offset, &mut bytes)?;
        let range = hs_units::ByteRange::new(offset, SUPERBLOCK_BYTES);
        let format = |source| ImageError::Format { path: image.name().to_owned(), range, source };
        let found = Superblock::decode(&bytes).map_err(format)?;
        if found != *image.superblock() {
            let (expected, found) = (image.image_digest().0, found.image_digest().0);
            let part = hs_format::Part::Superblock;
            return Err(format(hs_format::FormatError::DigestMismatch { part, expected, found }));
        }
    }
    Ok(())
}

fn check_cold(
    image: &Image,
    against: Option<(&Source, &str)>,
    report: &mut VerifyReport,
    progress: &dyn Fn(Progress),
) -> Result<(), ImageError> {
    let disk_bytes = image.disk_bytes();
    if let Some((other, name)) = against.filter(|(other, _)| other.bytes() != disk_bytes) {
        let shorter = Lba::containing(other.bytes().min(disk_bytes));
        return Err(differs(image, name, BlockRange::new(shorter, other.bytes().abs_diff(disk_bytes) / BLOCK_BYTES)));
    }
    let mut tools = Decompressor::new();
    let mut hasher = DiskHasher::new(disk_bytes);
    let mut seen = HashSet::new();
    let mut partial = Vec::with_capacity(DISK_DIGEST_WINDOW_BYTES);
    let mut theirs = Vec::new();
    for window in 0..image.superblock().windows() {
        let at = window * image.window_bytes();
        let len = u64::from(image.superblock().window_raw_bytes(window));
        if let hs_format::WindowRef::Chunk(chunk) = image.window(window)? {
            seen.insert(chunk.range.offset);
        }
        let raw = image.load_window(window, &mut tools)?.unwrap_or_else(|| vec![0; len as usize]);
        if let Some((other, name)) = against {
            theirs.resize(raw.len(), 0);
            other.read_at(at, &mut theirs)?;
            if let Some(blocks) = first_difference(at, &raw, &theirs) {
                return Err(differs(image, name, blocks));
            }
            report.compared_bytes += len;
        }
        let mut rest = &raw[..];
        while !rest.is_empty() {
            let take = (hasher.next_window_bytes() - partial.len()).min(rest.len());
            partial.extend_from_slice(&rest[..take]);
            rest = &rest[take..];
            if partial.len() == hasher.next_window_bytes() {
                hasher.update_window(&partial);
                partial.clear();
            }
        }
        progress(Progress { stage: "verifying", done_bytes: at + len, total_bytes: disk_bytes });
    }
    report.cold_chunks = seen.len() as u64;
    let (expected, found) = (image.disk_digest(), hasher.finish());
    if expected != found {
        return Err(ImageError::WrongDisk { path: image.name().to_owned(), expected, found });
    }
    Ok(())
}

fn check_hot(image: &Image, report: &mut VerifyReport) -> Result<(), ImageError> {
    let mut tools = Decompressor::new();
    let mut cold = Blocks::new(image);
    for chunk in 0..image.hot_chunk_count() {
        let raw = image.load_hot(chunk, &mut tools)?;
        let blocks = image.hot_extents(chunk).iter().flat_map(|extent| extent.blocks());
        for (lba, copy) in blocks.zip(raw.chunks_exact(BLOCK_BYTES as usize)) {
            if cold.block(lba)? != copy {
                return Err(differs(image, "the cold copy of a hot block", BlockRange::new(lba, 1)));
            }
        }
        report.hot_chunks += 1;
    }
    Ok(())
}

fn first_difference(at: u64, ours: &[u8], theirs: &[u8]) -> Option<BlockRange> {
    let unequal = |pair: &(&[u8], &[u8])| pair.0 != pair.1;
    let block = BLOCK_BYTES as usize;
    let first = ours.chunks(block).zip(theirs.chunks(block)).position(|pair| unequal(&pair))?;
    let run = ours[first * block..].chunks(block).zip(theirs[first * block..].chunks(block)).take_while(unequal);
    Some(BlockRange::new(Lba(Lba::containing(at).0 + first as u64), run.count() as u64))
}

fn differs(image: &Image, against: &str, blocks: BlockRange) -> ImageError {
    ImageError::Differs { path: image.name().to_owned(), against: against.to_owned(), blocks }
}

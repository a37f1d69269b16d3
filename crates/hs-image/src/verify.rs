//! Proving what an image holds.

use std::error::Error;

use hs_format::limits::DISK_DIGEST_WINDOW_BYTES;
use hs_format::{ColdCoverage, Decompressor, DiskHasher, FormatError, Part, Superblock};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, to_usize};

use crate::cold::{in_file, read};
use crate::{Blocks, Image, ImageError, Progress, SUPERBLOCK_BYTES};

const DIGEST_WINDOW: u64 = DISK_DIGEST_WINDOW_BYTES as u64;

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

/// Another disk, which the disk of an image is compared with.
pub trait ComparedDisk {
    /// Its size.
    fn bytes(&self) -> u64;

    /// Fills `buf` with its bytes from `offset` on.
    ///
    /// # Errors
    /// When they cannot be read; the text says of which file.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// Checks every byte of an image: each chunk against its digest, the disk against the disk digest,
/// hot copies against cold ones, the mirror against the superblock, the padding for zeros, and that each
/// byte of the cold region belongs to one chunk or table; with `against`, also every block against another
/// disk.
///
/// # Errors
/// The first thing that is wrong, saying where.
pub fn verify(
    image: &Image,
    against: Option<(&dyn ComparedDisk, &str)>,
    progress: &dyn Fn(Progress),
) -> Result<VerifyReport, ImageError> {
    check_mirror(image)?;
    check_padding(image)?;
    verify_content(image, against, progress)
}

/// The same without what is never served: the mirror and the padding. So it needs no more of an image than a
/// cache has of one that was read as a whole.
///
/// # Errors
/// The first thing that is wrong, saying where.
pub fn verify_content(
    image: &Image,
    against: Option<(&dyn ComparedDisk, &str)>,
    progress: &dyn Fn(Progress),
) -> Result<VerifyReport, ImageError> {
    if let Some(fault) = image.hot_fault() {
        return Err(fault.clone());
    }
    check_coverage(image)?;
    let mut report = VerifyReport {
        disk_bytes: image.disk_bytes(),
        cold_chunks: image.superblock().cold.distinct_chunks,
        hot_chunks: 0,
        compared_bytes: 0,
    };
    check_cold(image, against, &mut report, progress)?;
    check_hot(image, &mut report)?;
    Ok(report)
}

fn check_mirror(image: &Image) -> Result<(), ImageError> {
    let store = image.store();
    for offset in [0, store.len() - SUPERBLOCK_BYTES] {
        let at = ByteRange::new(offset, SUPERBLOCK_BYTES);
        let bytes = read(store, at)?;
        let format = in_file(store, at);
        let found = match Superblock::decode(bytes.as_slice()) {
            Ok(found) => found,
            Err(fault) => return Err(format(fault)),
        };
        if found != *image.superblock() {
            let (expected, found) = (image.image_digest().0, found.image_digest().0);
            let part = Part::Superblock;
            return Err(format(FormatError::DigestMismatch { part, expected, found }));
        }
    }
    Ok(())
}

/// Between two regions there may be a few bytes to align the second one. No reader looks at them, so nothing
/// may hide there.
fn check_padding(image: &Image) -> Result<(), ImageError> {
    let superblock = image.superblock();
    // R4
    let mut regions = vec![superblock.cold.range, superblock.mirror()];
    regions.extend(superblock.hot.iter().map(hs_format::HotSegment::range));
    regions.sort_unstable();
    let mut before = SUPERBLOCK_BYTES;
    for region in regions {
        let gap = ByteRange::new(before, region.offset.saturating_sub(before));
        let mut padding = vec![0; to_usize(gap.len)];
        image.store().read_at(gap.offset, &mut padding)?;
        if let Some(at) = padding.iter().position(|&byte| byte != 0) {
            let (offset, found) = (gap.offset + at as u64, padding[at]);
            let fault = FormatError::ReservedNotZero { part: Part::File, offset, found };
            return Err(in_file(image.store(), gap)(fault));
        }
        before = region.end();
    }
    Ok(())
}

fn check_coverage(image: &Image) -> Result<(), ImageError> {
    let mut coverage = ColdCoverage::new();
    for leaf in 0..image.superblock().leaf_count() {
        if let Some(leaf) = image.leaf(leaf)? {
            coverage.add(&leaf);
        }
    }
    // R16
    coverage.finish(image.superblock()).map_err(in_file(image.store(), image.superblock().cold.range))
}

fn check_cold(
    image: &Image,
    against: Option<(&dyn ComparedDisk, &str)>,
    report: &mut VerifyReport,
    progress: &dyn Fn(Progress),
) -> Result<(), ImageError> {
    let disk_bytes = image.disk_bytes();
    if let Some((other, name)) = against.filter(|(other, _)| other.bytes() != disk_bytes) {
        let shorter = Lba::containing(other.bytes().min(disk_bytes));
        return Err(differs(
            image,
            name,
            BlockRange::new(shorter, other.bytes().abs_diff(disk_bytes) / BLOCK_BYTES),
        ));
    }
    let mut tools = Decompressor::new();
    let mut hasher = DiskHasher::new(disk_bytes);
    let mut partial = Vec::with_capacity(DISK_DIGEST_WINDOW_BYTES);
    let mut theirs = Vec::new();
    for window in 0..image.superblock().windows() {
        let at = window * image.window_bytes();
        let len = u64::from(image.superblock().window_raw_bytes(window));
        let raw = match image.load_window(window, &mut tools)? {
            Some(raw) => raw,
            None if against.is_none() && partial.is_empty() && len.is_multiple_of(DIGEST_WINDOW) => {
                hasher.zero_windows(len / DIGEST_WINDOW);
                continue;
            }
            None => vec![0; to_usize(len)],
        };
        if let Some((other, name)) = against {
            theirs.resize(raw.len(), 0);
            other.read_at(at, &mut theirs).map_err(|error| ImageError::ComparedDisk(error.into()))?;
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
        for (lba, copy) in blocks.zip(raw.chunks_exact(to_usize(BLOCK_BYTES))) {
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
    let block = to_usize(BLOCK_BYTES);
    let first = ours.chunks(block).zip(theirs.chunks(block)).position(|pair| unequal(&pair))?;
    let run =
        ours[first * block..].chunks(block).zip(theirs[first * block..].chunks(block)).take_while(unequal);
    Some(BlockRange::new(Lba(Lba::containing(at).0 + first as u64), run.count() as u64))
}

fn differs(image: &Image, against: &str, blocks: BlockRange) -> ImageError {
    ImageError::Differs { path: image.name().to_owned(), against: against.to_owned(), blocks }
}

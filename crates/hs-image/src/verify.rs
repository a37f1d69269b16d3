//! Proving what an image holds.

use std::collections::BTreeSet;
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
    /// Distinct cold chunks. Without a fault all of them agree with their digests.
    pub cold_chunks: u64,
    /// Hot chunks. Without a fault all of them agree with their digests, and their blocks equal the cold
    /// copies.
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

/// Takes each fault that is found; what it returns as an error ends the verification.
pub type FaultSink<'a> = &'a mut dyn FnMut(ImageError) -> Result<(), ImageError>;

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
    verify_all(image, against, &mut Err, progress)
}

/// The same for all parts: what is wrong goes to `faults`, and the next part is checked.
///
/// # Errors
/// What `faults` returns, and the first difference from another disk.
pub fn verify_all(
    image: &Image,
    against: Option<(&dyn ComparedDisk, &str)>,
    faults: FaultSink<'_>,
    progress: &dyn Fn(Progress),
) -> Result<VerifyReport, ImageError> {
    check_mirror(image).or_else(&mut *faults)?;
    check_padding(image).or_else(&mut *faults)?;
    verify_content(image, against, faults, progress)
}

/// The same without what is never served: the mirror and the padding. So it needs no more of an image than a
/// cache has of one that was read as a whole.
///
/// # Errors
/// What `faults` returns, and the first difference from another disk.
pub fn verify_content(
    image: &Image,
    against: Option<(&dyn ComparedDisk, &str)>,
    faults: FaultSink<'_>,
    progress: &dyn Fn(Progress),
) -> Result<VerifyReport, ImageError> {
    if let Some(fault) = image.hot_fault() {
        faults(fault.clone())?;
    }
    let damaged_leaves = check_coverage(image, faults)?;
    let mut report = VerifyReport {
        disk_bytes: image.disk_bytes(),
        cold_chunks: image.superblock().cold.distinct_chunks,
        hot_chunks: 0,
        compared_bytes: 0,
    };
    let is_whole = check_cold(image, against, &damaged_leaves, &mut report, faults, progress)?;
    check_hot(image, is_whole, &mut report, faults)?;
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

/// Gives the leaves that cannot be read.
fn check_coverage(image: &Image, faults: FaultSink<'_>) -> Result<BTreeSet<u64>, ImageError> {
    let (mut coverage, mut damaged) = (ColdCoverage::new(), BTreeSet::new());
    for number in 0..image.superblock().leaf_count() {
        match image.leaf(number) {
            Ok(leaf) => leaf.iter().for_each(|leaf| coverage.add(leaf)),
            Err(fault) => {
                faults(fault)?;
                damaged.insert(number);
            }
        }
    }
    if damaged.is_empty() {
        // R16
        let covered = coverage.finish(image.superblock());
        covered.map_err(in_file(image.store(), image.superblock().cold.range)).or_else(faults)?;
    }
    Ok(damaged)
}

/// Whether all windows could be read.
fn check_cold(
    image: &Image,
    against: Option<(&dyn ComparedDisk, &str)>,
    damaged_leaves: &BTreeSet<u64>,
    report: &mut VerifyReport,
    faults: FaultSink<'_>,
    progress: &dyn Fn(Progress),
) -> Result<bool, ImageError> {
    let disk_bytes = image.disk_bytes();
    if let Some((other, name)) = against.filter(|(other, _)| other.bytes() != disk_bytes) {
        let (path, against, found) = (image.name().to_owned(), name.to_owned(), other.bytes());
        return Err(ImageError::OtherLength { path, against, disk_bytes, found });
    }
    let mut tools = Decompressor::new();
    let mut hasher = DiskHasher::new(disk_bytes);
    let mut partial = Vec::with_capacity(DISK_DIGEST_WINDOW_BYTES);
    let mut theirs = Vec::new();
    let mut is_whole = damaged_leaves.is_empty();
    for window in 0..image.superblock().windows() {
        // The leaf's fault is known.
        if damaged_leaves.contains(&(window / u64::from(image.superblock().cold.windows_per_leaf))) {
            continue;
        }
        let at = window * image.window_bytes();
        let len = u64::from(image.superblock().window_raw_bytes(window));
        let loaded = match load_checked(image, window, ByteRange::new(at, len), &mut tools) {
            Ok(loaded) => loaded,
            Err(fault) => {
                faults(fault)?;
                is_whole = false;
                continue;
            }
        };
        let raw = match loaded {
            Some(raw) => raw,
            None if is_whole
                && against.is_none()
                && partial.is_empty()
                && len.is_multiple_of(DIGEST_WINDOW) =>
            {
                hasher.zero_windows(len / DIGEST_WINDOW);
                continue;
            }
            None => vec![0; to_usize(len)],
        };
        let exact = image.exact_bytes().saturating_sub(at).min(raw.len() as u64);
        // R37
        if raw[to_usize(exact)..].iter().any(|byte| *byte != 0) {
            let fault = FormatError::BytesBehindDisk { exact_bytes: image.exact_bytes() };
            faults(in_file(image.store(), ByteRange::new(0, SUPERBLOCK_BYTES))(fault))?;
        }
        if let Some((other, name)) = against {
            theirs.resize(raw.len(), 0);
            other.read_at(at, &mut theirs).map_err(|error| ImageError::ComparedDisk(error.into()))?;
            if let Some(blocks) = first_difference(at, &raw, &theirs) {
                return Err(differs(image, name, blocks));
            }
            report.compared_bytes += len;
        }
        // Without one window there is no digest of the disk.
        let mut rest = if is_whole { &raw[..] } else { &[] };
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
    // Of a disk that was not read there is no digest.
    if is_whole && !image.superblock().features.is_unread() {
        let (expected, found) = (image.disk_digest(), hasher.finish());
        if expected != found {
            faults(ImageError::WrongDisk { path: image.name().to_owned(), expected, found })?;
        }
    }
    Ok(is_whole)
}

/// The bytes of a window, none where it is zero. A pack's are zero on the disk that it is for, too, which no
/// other read asks.
fn load_checked(
    image: &Image,
    window: u64,
    range: ByteRange,
    tools: &mut Decompressor,
) -> Result<Option<Vec<u8>>, ImageError> {
    let loaded = image.load_window(window, tools)?;
    let Some(pack) = image.pack().filter(|_| loaded.is_none()) else { return Ok(loaded) };
    let mut bytes = vec![0; to_usize(range.len)];
    pack.read_disk(range.offset, &mut bytes)?;
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let (path, disk) = (image.name().to_owned(), pack.base_name().to_owned());
    Err(ImageError::ChangedZeros { path, window, disk })
}

/// Blocks of windows that cannot be read have nothing to be compared with.
fn check_hot(
    image: &Image,
    is_cold_whole: bool,
    report: &mut VerifyReport,
    faults: FaultSink<'_>,
) -> Result<(), ImageError> {
    let mut tools = Decompressor::new();
    let mut cold = Blocks::new(image);
    for chunk in 0..image.hot_chunk_count() {
        // R57: nothing can be said of a chunk that another image has. The base was told to lack it.
        if image.is_borrowed(chunk) && !image.is_lent(chunk) {
            continue;
        }
        report.hot_chunks += 1;
        let raw = match image.load_hot(chunk, &mut tools).map(|loaded| loaded.raw) {
            Ok(raw) => raw,
            Err(fault) => {
                faults(fault)?;
                continue;
            }
        };
        let blocks = image.hot_extents(chunk).iter().flat_map(|extent| extent.blocks());
        for (lba, copy) in blocks.zip(raw.chunks_exact(to_usize(BLOCK_BYTES))) {
            match cold.block(lba) {
                Ok(block) if block == copy => {}
                Err(_) if !is_cold_whole => {}
                Ok(_) => {
                    faults(differs(image, "the cold copy of a hot block", BlockRange::new(lba, 1)))?;
                    break;
                }
                Err(fault) => return Err(fault),
            }
        }
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

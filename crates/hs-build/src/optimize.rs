//! Adding a hot region that profiles ordered.
//!
//! The cold region is copied byte for byte: its offsets are relative to its own start, so nothing
//! in it changes. Only the hot blocks are compressed, once more, in the order of the plan.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use hs_device::Medium;
use hs_format::limits::MAX_HINTS_BYTES;
use hs_format::{
    ChunkRef, Codec, Compressor, Decompressor, Hint, Hints, HotIndex, HotIndexBuilder, HotRun, HotSegment,
    Superblock,
};
use hs_layout::{Combine, LayoutOptions, LayoutPlan, Placement, PlacementCosts, plan};
use hs_trace::{BlockDigest, Profile, RecordedBlocks};
use hs_units::{BLOCK_BYTES, ByteRange, Digest, Lba, Nanos, to_u32, to_usize};

use hs_image::{Blocks, Image, LoadedChunk, Progress, SUPERBLOCK_BYTES};

use crate::BuildError;
use crate::build::{format_error, write_superblock};
use crate::carried::{self, Carried, CarriedPlan};
use crate::earlier;
use crate::output::{Output, Readers};
use crate::pack::PackedDisk;
use crate::source::Moves;

/// Hints beyond what the format holds are left out: the first ones matter most, and all are optional.
const MOST_HINTS: usize = MAX_HINTS_BYTES as usize / HINT_BYTES;
/// Bytes of a hint in the file (docs/FORMAT.md).
const HINT_BYTES: usize = 20;

/// Where the hot region lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotPlacement {
    /// There.
    At(Placement),
    /// Where this medium delivers it soonest, by its model; in front if it has none.
    FastestOn(Medium),
}

/// How to store the hot region.
#[derive(Clone, Copy, Debug)]
pub struct OptimizeOptions {
    /// How hot chunks are sized.
    pub layout: LayoutOptions,
    /// Where the hot region lies.
    pub place: HotPlacement,
    /// Whether the hot region that the image has is dropped; else its blocks stay hot.
    pub replaces: bool,
    /// How hot chunks are stored.
    pub codec: Codec,
    /// The codec's level.
    pub level: i32,
    /// Threads that compress.
    pub threads: NonZeroUsize,
}

impl Default for OptimizeOptions {
    fn default() -> Self {
        Self {
            layout: LayoutOptions::default(),
            place: HotPlacement::At(Placement::Front),
            replaces: false,
            codec: Codec::Zstd,
            level: 19,
            threads: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// What was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptimizeReport {
    /// Bytes of the image file.
    pub image_bytes: u64,
    /// Uncompressed bytes of the hot blocks.
    pub hot_bytes: u64,
    /// Of these, what the image had before.
    pub kept_bytes: u64,
    /// Bytes of the hot region in the file: index, hints and chunks.
    pub hot_compressed_bytes: u64,
    /// Where the hot region begins in the file.
    pub hot_offset: u64,
    /// What its place costs, by an estimate of its size, where the medium is modelled.
    pub placement: Option<PlacementCosts>,
    /// Of these, index and hints.
    pub hot_table_bytes: u64,
    /// Hot chunks.
    pub chunks: u32,
    /// Runs of blocks.
    pub extents: u64,
    /// Names the content; the same as before.
    pub disk_digest: Digest,
    /// Names the file.
    pub image_digest: hs_format::ImageDigest,
}

/// Writes to `output` the image with the hot region that `profiles` ask for. The blocks of a hot region that
/// it had stay hot, unless the options say otherwise. Where the image is a `file`, its cold region is shared
/// with it if the file system can.
///
/// # Errors
/// When a profile is of another disk, the image is damaged or the output cannot be written.
pub fn optimize(
    image: &Image,
    file: Option<&Path>,
    profiles: &[Profile],
    output: &Path,
    options: &OptimizeOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<OptimizeReport, BuildError> {
    for profile in profiles {
        profile.check_disk(image.disk_digest(), image.disk_bytes())?;
    }
    let earlier = earlier::start(image).filter(|_| !options.replaces);
    let kept_bytes = earlier.as_ref().map_or(0, |start| start.distinct_blocks() * BLOCK_BYTES);
    let (profiles, layout) = beside(earlier, profiles, options.layout);
    let hot = HotContent { plan: plan(&profiles, &layout)?, profiles: &profiles, carried: None };
    let report = write(image, file, &hot, output, options, progress)?;
    Ok(OptimizeReport { kept_bytes, ..report })
}

/// Writes to `output` the image with the hot region of `before`, an image of another disk, whose blocks are
/// now where `moves` says: its order stays, and each chunk of which the disk of `image` has most is copied as
/// it is stored.
///
/// # Errors
/// When the image is damaged or the output cannot be written.
pub(crate) fn carry(
    image: &Image,
    file: Option<&Path>,
    before: &Image,
    moves: Option<&Moves>,
    output: &Path,
    options: &OptimizeOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<OptimizeReport, BuildError> {
    let profiles: Vec<_> = earlier::start(before).into_iter().collect();
    let base = image.base().map(|base| base.image().disk_digest());
    let is_base = base.is_some_and(|base| base == before.disk_digest());
    let CarriedPlan { plan, chunks } = carried::plan(image, before, moves, is_base)?;
    let hot = HotContent { plan, profiles: &profiles, carried: Some((before, chunks)) };
    write(image, file, &hot, output, options, progress)
}

/// What a hot region is made of.
struct HotContent<'a> {
    plan: LayoutPlan,
    profiles: &'a [Profile],
    /// An earlier image, and for each chunk of the plan what it is there, if it comes from there.
    carried: Option<(&'a Image, Vec<Option<Carried>>)>,
}

impl HotContent<'_> {
    /// What a chunk is in an earlier image.
    fn carried(&self, number: usize) -> Option<(&Image, &Carried)> {
        let (image, chunks) = self.carried.as_ref()?;
        Some((*image, chunks[number].as_ref()?))
    }

    /// What its chunks are to decode to.
    fn runs(&self, number: usize) -> Vec<HotRun> {
        let of_disk = || self.plan.chunks[number].extents.iter().copied().map(HotRun::Disk).collect();
        self.carried(number).map_or_else(of_disk, |(_, carried)| carried.runs.clone())
    }
}

fn write(
    image: &Image,
    file: Option<&Path>,
    hot: &HotContent<'_>,
    output: &Path,
    options: &OptimizeOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<OptimizeReport, BuildError> {
    let plan = &hot.plan;
    let pack = image.pack();
    let create = if pack.is_some() { Output::create_pack } else { Output::create };
    let mut output = create(output, Readers::of(file))?;
    let mut superblock = image.superblock().clone();
    superblock.hot.clear();
    superblock.features = superblock.features.of_borrowed(false).of_stale(false);
    // A signature covers the file that it was made for.
    superblock.signature = None;
    output.write(&[0; to_usize(SUPERBLOCK_BYTES)])?;
    let mut report = OptimizeReport {
        image_bytes: 0,
        hot_bytes: plan.blocks * BLOCK_BYTES,
        kept_bytes: 0,
        hot_compressed_bytes: 0,
        hot_offset: 0,
        placement: None,
        hot_table_bytes: 0,
        chunks: to_u32(plan.chunks.len() as u64),
        extents: plan.stats().extents,
        disk_digest: superblock.disk_digest,
        image_digest: superblock.image_digest(),
    };
    let placement = match options.place {
        HotPlacement::At(placement) => placement,
        HotPlacement::FastestOn(medium) => {
            report.placement = costs(image, plan, medium)?;
            report.placement.map_or(Placement::Front, |costs| costs.best())
        }
    };
    if placement == Placement::End {
        copy_cold(image, file, &mut superblock, &mut output)?;
    }
    if !plan.chunks.is_empty() {
        let (segment, borrows, has_stale) = write_hot(image, hot, &mut output, options, progress)?;
        superblock.features = superblock.features.of_borrowed(borrows).of_stale(has_stale);
        report.hot_compressed_bytes = segment.range().len;
        report.hot_offset = segment.index.offset;
        report.hot_table_bytes = segment.index.len + segment.hints.len;
        superblock.hot.push(segment);
    }
    if placement == Placement::Front {
        copy_cold(image, file, &mut superblock, &mut output)?;
    }
    superblock.image_bytes = output.position() + SUPERBLOCK_BYTES;
    write_superblock(&mut output, &superblock)?;
    report.image_bytes = superblock.image_bytes;
    if let Some(pack) = pack {
        let disk = PackedDisk::of(pack)?;
        report.image_bytes = crate::pack::finish(&mut output, &superblock, &disk, pack.runs()?)?;
    }
    report.image_digest = superblock.image_digest();
    output.finish()?;
    Ok(report)
}

/// The starts that the hot region is for: an earlier one first, whose order stays.
fn beside(
    earlier: Option<Profile>,
    profiles: &[Profile],
    layout: LayoutOptions,
) -> (Cow<'_, [Profile]>, LayoutOptions) {
    let Some(earlier) = earlier else { return (profiles.into(), layout) };
    let combine = match layout.combine {
        Combine::Runs => Combine::RunsBesideFirst,
        other => other,
    };
    let starts = std::iter::once(earlier).chain(profiles.iter().cloned());
    (starts.collect(), LayoutOptions { combine, ..layout })
}

/// What the places of the plan's hot region cost. Its size is an estimate, since it is not packed yet: that
/// it compresses as the cold region does.
fn costs(image: &Image, plan: &LayoutPlan, medium: Medium) -> Result<Option<PlacementCosts>, BuildError> {
    let cold = &image.superblock().cold;
    let raw_bytes = u128::from(cold.distinct_chunks * image.window_bytes());
    let hot_raw_bytes = plan.blocks * BLOCK_BYTES;
    let estimated = (u128::from(hot_raw_bytes) * u128::from(cold.range.len)).checked_div(raw_bytes);
    let hot_bytes =
        estimated.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(u64::MAX).min(hot_raw_bytes);
    PlacementCosts::new(medium, SUPERBLOCK_BYTES, hot_bytes, cold.range.len).map_err(BuildError::Medium)
}

/// Copies the cold region to the current position.
fn copy_cold(
    image: &Image,
    file: Option<&Path>,
    superblock: &mut Superblock,
    output: &mut Output,
) -> Result<(), BuildError> {
    let old = superblock.cold.range;
    superblock.cold.range.offset = output.position();
    let tables = match image.pack() {
        Some(pack) => {
            let elsewhere = pack.header().chunk_bytes + pack.header().leaf_bytes();
            output.skip(elsewhere);
            ByteRange::new(old.offset + elsewhere, old.len - elsewhere)
        }
        None => old,
    };
    if let Some(path) = file.filter(|_| image.pack().is_none()) {
        let file = File::open(path).map_err(BuildError::io(path, "open"))?;
        return output.copy_from(&file, old.offset, old.len);
    }
    let mut written = Ok(());
    image.store().stream(tables, &mut |piece| {
        written = output.write(piece);
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written
}

/// Hot chunks that the image of the base has: they need not be stored once more.
fn lent(image: &Image) -> HashSet<Digest> {
    let chunks_of = |base: &Image| -> HashSet<Digest> {
        (0..base.hot_chunk_count()).map(|number| base.hot_chunk(number).0.digest).collect()
    };
    image.base().map_or_else(HashSet::new, |base| chunks_of(base.image()))
}

/// Writes index, hints and chunks at the current position; gives whether some chunks are borrowed, and
/// whether some have stale blocks.
fn write_hot(
    image: &Image,
    hot: &HotContent<'_>,
    output: &mut Output,
    options: &OptimizeOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(HotSegment, bool, bool), BuildError> {
    let HotContent { plan, profiles, .. } = hot;
    let start = output.position();
    let name = output.path().to_owned();
    let hints = Hints(plan.hints.iter().filter_map(hint).take(MOST_HINTS).collect());
    // The tables' sizes follow from the plan alone, so the chunks can be written first.
    let table_bytes = placeholder_index(hot, image, &name)?.encode().len() + hints.encode().len();
    output.seek(start + table_bytes as u64)?;
    let mut index = HotIndexBuilder::new();
    let mut done_blocks = 0;
    let (lent, mut borrows) = (lent(image), false);
    pack_in_order(image, hot, options, &mut |number, chunk, stored| {
        let (planned, is_borrowed) = (&plan.chunks[number], lent.contains(&chunk.digest));
        borrows |= is_borrowed;
        if !is_borrowed {
            output.write(stored)?;
        }
        index.push_runs(chunk, &hot.runs(number), is_borrowed);
        index.needed_by(milliseconds(planned.needed));
        done_blocks += planned.blocks();
        progress(Progress {
            stage: "packing the hot region",
            done_bytes: done_blocks * BLOCK_BYTES,
            total_bytes: plan.blocks * BLOCK_BYTES,
        });
        Ok(())
    })?;
    let end = output.position();
    let index = index.finish(image.superblock().disk_blocks()).map_err(format_error(&name))?;
    // Zero where nothing is known.
    let own_times = profiles.iter().map(Profile::own_time).filter(|time| *time > Nanos::ZERO);
    let own_time = own_times.min().unwrap_or_default();
    let segment =
        HotSegment { own_ms: milliseconds(own_time), ..HotSegment::placed_at(start, &index, &hints) };
    output.seek(start)?;
    output.write(&index.encode())?;
    output.write(&hints.encode())?;
    output.seek(end)?;
    Ok((segment, borrows, index.has_stale()))
}

/// A time as the format has it.
fn milliseconds(time: Nanos) -> u32 {
    u32::try_from(time.0 / 1_000_000).unwrap_or(u32::MAX)
}

/// The hint as the format has it; none for pages beyond 16 TiB of a file, which it cannot name.
fn hint(planned: &hs_layout::PlannedHint) -> Option<Hint> {
    let end = planned.page.checked_add(planned.blocks.count)?;
    (end <= 1 << 32).then_some(())?;
    Some(Hint {
        lba: planned.blocks.start,
        inode: planned.inode,
        page: u32::try_from(planned.page).ok()?,
        blocks: u32::try_from(planned.blocks.count).ok()?,
    })
}

/// An index of the plan's shape, whose encoding is as long as the real one's will be.
fn placeholder_index(hot: &HotContent<'_>, image: &Image, name: &Path) -> Result<HotIndex, BuildError> {
    let mut index = HotIndexBuilder::new();
    for number in 0..hot.plan.chunks.len() {
        let runs = hot.runs(number);
        let bytes = runs.iter().map(HotRun::blocks).sum::<u64>() * BLOCK_BYTES;
        // One that does not fit is refused by `finish`.
        let raw_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let chunk = ChunkRef::of_stored(0, &[0], Codec::Zstd, raw_bytes);
        index.push_runs(chunk, &runs, false);
    }
    index.finish(image.superblock().disk_blocks()).map_err(format_error(name))
}

struct Gathered {
    number: usize,
    raw: Vec<u8>,
    /// The same, stored already.
    carried: Option<LoadedChunk>,
}

struct Packed {
    number: usize,
    chunk: ChunkRef,
    stored: Vec<u8>,
}

/// Takes the number of a chunk of the plan, what it became, and its stored bytes.
type WriteChunk<'a> = dyn FnMut(usize, ChunkRef, &[u8]) -> Result<(), BuildError> + 'a;

fn pack_in_order(
    image: &Image,
    hot: &HotContent<'_>,
    options: &OptimizeOptions,
    sink: &mut WriteChunk<'_>,
) -> Result<(), BuildError> {
    let threads = options.threads.get();
    let (gathered_tx, gathered_rx) = bounded::<Gathered>(threads * 2);
    let (packed_tx, packed_rx) = bounded::<Packed>(threads * 4);
    thread::scope(|scope| {
        let gather = scope.spawn(move || gather_chunks(image, hot, &gathered_tx));
        for _ in 0..threads {
            let (gathered_rx, packed_tx) = (gathered_rx.clone(), packed_tx.clone());
            scope.spawn(move || pack_chunks(options, &gathered_rx, &packed_tx));
        }
        drop((gathered_rx, packed_tx));
        let mut write = || {
            let mut waiting = BTreeMap::new();
            let mut next = 0;
            for packed in &packed_rx {
                waiting.insert(packed.number, packed);
                while let Some(packed) = waiting.remove(&next) {
                    sink(next, packed.chunk, &packed.stored)?;
                    next += 1;
                }
            }
            Ok(())
        };
        let written = write();
        drop(packed_rx);
        let gathered = gather.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        gathered.and(written)
    })
}

fn gather_chunks(image: &Image, hot: &HotContent<'_>, out: &Sender<Gathered>) -> Result<(), BuildError> {
    let recorded: Vec<_> = hot.profiles.iter().map(RecordedBlocks::new).collect();
    let (mut windows, mut tools) = (Blocks::new(image), Decompressor::new());
    for (number, chunk) in hot.plan.chunks.iter().enumerate() {
        if let Some((image, carried)) = hot.carried(number) {
            let carried = Some(image.load_whole_hot(carried.number, &mut tools)?);
            if out.send(Gathered { number, raw: Vec::new(), carried }).is_err() {
                break;
            }
            continue;
        }
        let mut raw = Vec::with_capacity(to_usize(chunk.blocks() * BLOCK_BYTES));
        for lba in chunk.extents.iter().flat_map(|extent| extent.blocks()) {
            let block = windows.block(lba)?;
            for expected in recorded.iter().filter_map(|recorded| recorded.digest(lba)) {
                check_block(lba, expected, block)?;
            }
            raw.extend_from_slice(block);
        }
        if out.send(Gathered { number, raw, carried: None }).is_err() {
            break;
        }
    }
    Ok(())
}

fn check_block(lba: Lba, expected: BlockDigest, block: &[u8]) -> Result<(), BuildError> {
    let found = BlockDigest::of(block);
    if found == expected {
        return Ok(());
    }
    let hex = |digest: BlockDigest| digest.0.iter().map(|byte| format!("{byte:02x}")).collect();
    Err(BuildError::BlockDiffers { lba: lba.0, expected: hex(expected), found: hex(found) })
}

fn pack_chunks(options: &OptimizeOptions, gathered: &Receiver<Gathered>, out: &Sender<Packed>) {
    let mut compressor = Compressor::new(options.codec, options.level);
    for Gathered { number, raw, carried } in gathered {
        let (chunk, stored) = match carried {
            Some(LoadedChunk { chunk, stored, .. }) => (chunk, stored),
            None => {
                let mut stored = Vec::new();
                let codec = compressor.compress(&raw, &mut stored);
                (ChunkRef::of_stored(0, &stored, codec, to_u32(raw.len() as u64)), stored)
            }
        };
        if out.send(Packed { number, chunk, stored }).is_err() {
            break;
        }
    }
}

//! Storing a disk in cold windows.
//!
//! One thread reads, one for each core compresses and hashes, and the calling thread writes in the
//! order of the disk, so that the same input gives the same bytes whatever the machine does. At most
//! a few units for each core are in memory.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use hs_format::limits::{DEFAULT_WINDOWS_PER_LEAF, DISK_DIGEST_WINDOW_BYTES};
use hs_format::{
    BaseRef, ChunkRef, Codec, ColdGeometry, ColdTables, Compressor, DiskHasher, Features, FormatError,
    PackRuns, Superblock, WindowRef, leaf_digest,
};
use hs_image::{LoadedChunk, Progress, SUPERBLOCK_BYTES};
use hs_units::{BLOCK_BYTES, ByteRange, Digest, to_u32, to_usize};

use crate::output::{Output, Readers, UnnamedFile};
use crate::pack::PackedDisk;
use crate::source::Source;
use crate::{BaseBlocks, BuildError};

/// The smallest and the largest cold window that is built; it is a power of two.
pub const WINDOW_BYTES: std::ops::RangeInclusive<u64> = BLOCK_BYTES..=4 << 20;

/// The level of zstd at which a disk is stored when nothing else is asked for. An image is less than a tenth
/// larger than squashfs at zstd 15, and level 13, the next that is smaller by more than half a per cent,
/// takes four times as long (bench/build_speed.py).
pub const DEFAULT_LEVEL: i32 = 9;

/// How to store a disk.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Bytes of a cold window: a power of two from 4 KiB to 4 MiB.
    pub window_bytes: u64,
    /// How chunks are stored.
    pub codec: Codec,
    /// The codec's level.
    pub level: i32,
    /// Threads that compress.
    pub threads: NonZeroUsize,
    /// The disk of another image: what it has too is not stored. The image can then be read only with that
    /// one.
    pub base: Option<Arc<BaseBlocks>>,
    /// Whether only the owner of the image may read it.
    pub is_private: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            window_bytes: 128 << 10,
            codec: Codec::Zstd,
            level: DEFAULT_LEVEL,
            threads: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            base: None,
            is_private: false,
        }
    }
}

/// What was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildReport {
    /// Bytes of the disk, in whole blocks.
    pub disk_bytes: u64,
    /// Bytes of the disk as it is.
    pub exact_bytes: u64,
    /// Bytes of the image file.
    pub image_bytes: u64,
    /// Windows that hold only zeros.
    pub zero_windows: u64,
    /// Windows whose chunk another window has too.
    pub shared_windows: u64,
    /// Windows that take blocks from the base.
    pub composed_windows: u64,
    /// Chunks stored.
    pub chunks: u64,
    /// Names the content.
    pub disk_digest: Digest,
    /// Names the file.
    pub image_digest: hs_format::ImageDigest,
}

/// Stores `source` as an image without a hot region at `output`, which appears when it is complete.
///
/// # Errors
/// When an option is impossible, the source cannot be read or the output cannot be written.
pub fn build(
    source: &Source,
    output: &Path,
    options: &BuildOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<BuildReport, BuildError> {
    let (output, report) = write_image(source, output, options, None, progress)?;
    output.finish()?;
    Ok(report)
}

/// As [`build`], but what is written never appears: it is gone with what is returned. It takes room where
/// `place` would, beside it.
///
/// # Errors
/// As those of [`build`].
pub fn build_unnamed(
    source: &Source,
    place: &Path,
    options: &BuildOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(UnnamedFile, BuildReport), BuildError> {
    let (output, report) = write_image(source, place, options, None, progress)?;
    Ok((output.into_unnamed(), report))
}

/// Writes the image, or, with `pack`, the pack that makes it with the disk's own file.
pub(crate) fn write_image(
    source: &Source,
    output: &Path,
    options: &BuildOptions,
    pack: Option<&PackedDisk>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Output, BuildReport), BuildError> {
    let window_bytes = options.window_bytes;
    if !window_bytes.is_power_of_two() || !WINDOW_BYTES.contains(&window_bytes) {
        let rule = "a window is a power of two from 4K to 4M";
        return Err(BuildError::Option { option: "window", value: window_bytes.to_string(), rule });
    }
    if source.like().is_some_and(|(image, _)| image.window_bytes() != window_bytes) {
        let rule = "a disk that is laid out like that of an image has its windows";
        return Err(BuildError::Option { option: "window", value: window_bytes.to_string(), rule });
    }
    let geometry = ColdGeometry {
        disk_bytes: source.bytes(),
        window_blocks: to_u32(window_bytes / BLOCK_BYTES),
        windows_per_leaf: DEFAULT_WINDOWS_PER_LEAF,
    };
    let readers = if options.is_private { Readers::Owner } else { Readers::Usual };
    let create = if pack.is_some() { Output::create_pack } else { Output::create };
    let mut output = create(output, readers)?;
    output.write(&[0; to_usize(SUPERBLOCK_BYTES)])?;
    let ranges = source.data_ranges()?;
    let layout =
        Units { disk_bytes: source.bytes(), unit_bytes: window_bytes.max(DISK_DIGEST_WINDOW_BYTES as u64) };
    let data_units = layout.with_data(&ranges);
    let base = options.base.as_ref().map(|blocks| blocks.base()).or_else(|| source.base());
    let mut writer = Writer::new(output, geometry, layout, base)?;
    writer.table_blocks = source.table_blocks();
    writer.report.exact_bytes = source.file_bytes();
    writer.pack = pack.map(|disk| (disk, PackRuns::new(geometry.disk_bytes, to_u32(window_bytes))));
    compress_all(source, options, layout, &data_units, &mut |unit, done| {
        progress(Progress {
            stage: "compressing",
            done_bytes: done * layout.unit_bytes,
            total_bytes: data_units.len() as u64 * layout.unit_bytes,
        });
        writer.push(unit)
    })?;
    source.verify_unchanged()?;
    writer.finish()
}

/// The disk cut into units of work: whole windows and whole windows of the disk digest.
#[derive(Clone, Copy)]
struct Units {
    disk_bytes: u64,
    unit_bytes: u64,
}

impl Units {
    fn range(&self, unit: u64) -> ByteRange {
        let offset = unit * self.unit_bytes;
        ByteRange::new(offset, self.unit_bytes.min(self.disk_bytes - offset))
    }

    /// Units that may hold anything but zeros.
    fn with_data(&self, ranges: &[ByteRange]) -> Vec<u64> {
        let mut units = Vec::new();
        for range in ranges.iter().filter(|range| range.len > 0) {
            let first = range.offset / self.unit_bytes;
            let last = (range.end() - 1) / self.unit_bytes;
            let start = units.last().map_or(first, |last: &u64| first.max(last + 1));
            units.extend(start..=last);
        }
        units
    }
}

/// A unit as it was read.
struct Read {
    unit: u64,
    raw: Vec<u8>,
    /// See [`Source::read_unit`].
    chunks: Vec<Option<LoadedChunk>>,
}

/// A unit, compressed and hashed.
struct Packed {
    unit: u64,
    leaves: Vec<Digest>,
    windows: Vec<PackedWindow>,
}

enum PackedWindow {
    Zero,
    Data { stored: Vec<u8>, chunk: ChunkRef },
}

/// Runs the pipeline; `sink` gets the units in order, with how many it has got.
fn compress_all(
    source: &Source,
    options: &BuildOptions,
    layout: Units,
    units: &[u64],
    sink: &mut dyn FnMut(Packed, u64) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let threads = options.threads.get();
    // Bounds the memory: what is read ahead, being compressed, and waiting for its turn to be written.
    let (token_tx, token_rx) = bounded::<()>(threads * 8);
    let (read_tx, read_rx) = bounded::<Read>(threads * 2);
    let (packed_tx, packed_rx) = bounded::<Packed>(threads * 8);
    thread::scope(|scope| {
        let reader = scope.spawn(move || read_units(source, layout, units, &token_tx, &read_tx));
        for _ in 0..threads {
            let (read_rx, packed_tx) = (read_rx.clone(), packed_tx.clone());
            scope.spawn(move || pack_units(options, &read_rx, &packed_tx));
        }
        drop((read_rx, packed_tx));
        let written = in_order(units, &packed_rx, &token_rx, sink);
        // Lets the other threads end when the sink failed.
        drop((packed_rx, token_rx));
        let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        read.and(written)
    })
}

fn read_units(
    source: &Source,
    layout: Units,
    units: &[u64],
    tokens: &Sender<()>,
    out: &Sender<Read>,
) -> Result<(), BuildError> {
    for &unit in units {
        let (raw, chunks) = source.read_unit(layout.range(unit))?;
        if tokens.send(()).is_err() || out.send(Read { unit, raw, chunks }).is_err() {
            break;
        }
    }
    Ok(())
}

fn pack_units(options: &BuildOptions, units: &Receiver<Read>, out: &Sender<Packed>) {
    let mut compressor = Compressor::new(options.codec, options.level);
    let mut stored = Vec::new();
    for Read { unit, raw, mut chunks } in units {
        let leaves = raw.chunks(DISK_DIGEST_WINDOW_BYTES).map(leaf_digest).collect();
        let mut pack = |(number, window): (usize, &[u8])| {
            if is_zero(window) {
                return PackedWindow::Zero;
            }
            let kept = chunks.get_mut(number).and_then(Option::take);
            if let Some(LoadedChunk { chunk, stored, .. }) = kept.filter(|_| options.base.is_none()) {
                return PackedWindow::Data { stored, chunk };
            }
            let mut codec = Codec::Composed;
            match options.base.as_ref().and_then(|base| base.compose(window, &mut compressor)) {
                // Compressing it would not make it smaller by much, and takes long.
                Some((composed, true)) => stored = composed,
                composed => {
                    codec = compressor.compress(window, &mut stored);
                    let composed = composed.filter(|(composed, _)| composed.len() < stored.len());
                    if let Some((composed, _)) = composed {
                        (codec, stored) = (Codec::Composed, composed);
                    }
                }
            }
            let chunk = ChunkRef::of_stored(0, &stored, codec, to_u32(window.len() as u64));
            PackedWindow::Data { stored: stored.clone(), chunk }
        };
        let windows = raw.chunks(to_usize(options.window_bytes)).enumerate().map(&mut pack).collect();
        if out.send(Packed { unit, leaves, windows }).is_err() {
            break;
        }
    }
}

/// Whether every byte is zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, tail) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && tail.iter().all(|&byte| byte == 0)
}

fn in_order(
    units: &[u64],
    packed: &Receiver<Packed>,
    tokens: &Receiver<()>,
    sink: &mut dyn FnMut(Packed, u64) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let mut waiting = BTreeMap::new();
    let mut done = 0_u64;
    let mut expected = units.iter();
    let mut next = expected.next();
    for unit in packed {
        waiting.insert(unit.unit, unit);
        while let Some(unit) = next.and_then(|unit| waiting.remove(unit)) {
            done += 1;
            sink(unit, done)?;
            let _ = tokens.try_recv();
            next = expected.next();
        }
    }
    Ok(())
}

/// Writes chunks in order and collects the index.
struct Writer<'a> {
    output: Output,
    layout: Units,
    geometry: ColdGeometry,
    tables: ColdTables,
    hasher: DiskHasher,
    known: HashMap<Digest, ChunkRef>,
    next_unit: u64,
    base: Option<BaseRef>,
    /// See [`Source::table_blocks`].
    table_blocks: u64,
    /// Of a pack: the disk whose windows the chunks are, and which of them.
    pack: Option<(&'a PackedDisk, PackRuns)>,
    report: BuildReport,
}

impl Writer<'_> {
    fn new(
        output: Output,
        geometry: ColdGeometry,
        layout: Units,
        base: Option<BaseRef>,
    ) -> Result<Self, BuildError> {
        let tables = ColdTables::new(geometry).map_err(format_error(output.path()))?;
        let report = BuildReport {
            disk_bytes: geometry.disk_bytes,
            exact_bytes: geometry.disk_bytes,
            image_bytes: 0,
            zero_windows: 0,
            shared_windows: 0,
            composed_windows: 0,
            chunks: 0,
            disk_digest: Digest::default(),
            image_digest: hs_format::ImageDigest(Digest::default()),
        };
        let hasher = DiskHasher::new(geometry.disk_bytes);
        let known = HashMap::new();
        Ok(Self {
            output,
            layout,
            geometry,
            tables,
            hasher,
            known,
            next_unit: 0,
            base,
            table_blocks: 0,
            pack: None,
            report,
        })
    }

    fn push(&mut self, unit: Packed) -> Result<(), BuildError> {
        self.skip_to(unit.unit);
        self.next_unit += 1;
        unit.leaves.into_iter().for_each(|leaf| self.hasher.push_leaf(leaf));
        for window in unit.windows {
            let PackedWindow::Data { stored, mut chunk } = window else {
                self.report.zero_windows += 1;
                self.tables.push(WindowRef::Zero);
                continue;
            };
            if let Some((_, runs)) = &mut self.pack {
                runs.push(self.report.zero_windows + self.report.chunks, 1);
                chunk.range.offset = self.output.position() - SUPERBLOCK_BYTES;
                self.output.skip(chunk.range.len);
                self.report.chunks += 1;
                self.tables.push(WindowRef::Chunk(chunk));
                continue;
            }
            self.report.composed_windows += u64::from(chunk.codec == Codec::Composed);
            let is_same =
                |known: &&ChunkRef| (known.raw_bytes, known.codec) == (chunk.raw_bytes, chunk.codec);
            if let Some(known) = self.known.get(&chunk.digest).filter(is_same) {
                self.report.shared_windows += 1;
                self.tables.push(WindowRef::Chunk(*known));
                continue;
            }
            chunk.range.offset = self.output.position() - SUPERBLOCK_BYTES;
            self.output.write(&stored)?;
            self.known.insert(chunk.digest, chunk);
            self.report.chunks += 1;
            self.tables.push(WindowRef::Chunk(chunk));
        }
        Ok(())
    }

    /// Everything before `unit` that has not been written is holes.
    fn skip_to(&mut self, unit: u64) {
        let from = self.next_unit * self.layout.unit_bytes;
        let to = (unit * self.layout.unit_bytes).min(self.geometry.disk_bytes);
        if to > from {
            self.hasher.zero_windows((to - from).div_ceil(DISK_DIGEST_WINDOW_BYTES as u64));
            let windows = (to - from).div_ceil(self.geometry.window_bytes());
            (0..windows).for_each(|_| self.tables.push(WindowRef::Zero));
            self.report.zero_windows += windows;
        }
        self.next_unit = unit;
    }

    fn finish(mut self) -> Result<(Output, BuildReport), BuildError> {
        self.skip_to(self.geometry.disk_bytes.div_ceil(self.layout.unit_bytes));
        let cold_at = SUPERBLOCK_BYTES;
        let tables = self
            .tables
            .finish(self.output.position() - cold_at, self.report.chunks)
            .map_err(format_error(self.output.path()))?;
        self.output.write(&tables.bytes)?;
        // Without a window that needs it, the image does not either.
        let base = self.base.filter(|_| self.report.composed_windows > 0);
        let superblock = Superblock {
            features: Features::of_base(base.as_ref())
                .of_tables(self.table_blocks)
                .of_disk(self.report.exact_bytes),
            disk_bytes: self.geometry.disk_bytes,
            image_bytes: self.output.position() + SUPERBLOCK_BYTES,
            disk_digest: self.hasher.finish(),
            cold: tables.placed_at(cold_at),
            hot: Vec::new(),
            base,
            signature: None,
        };
        write_superblock(&mut self.output, &superblock)?;
        self.report.image_bytes = superblock.image_bytes;
        if let Some((disk, runs)) = &self.pack {
            self.report.image_bytes = crate::pack::finish(&mut self.output, &superblock, disk, runs)?;
        }
        self.report.disk_digest = superblock.disk_digest;
        self.report.image_digest = superblock.image_digest();
        Ok((self.output, self.report))
    }
}

/// Writes the mirror at the current position, which is the end, then the superblock itself.
///
/// # Errors
/// When no reader would accept the image, or it cannot be written.
pub(crate) fn write_superblock(output: &mut Output, superblock: &Superblock) -> Result<(), BuildError> {
    superblock.check_file(superblock.image_bytes).map_err(format_error(output.path()))?;
    let bytes = superblock.encode();
    output.write(&bytes)?;
    output.seek(0)?;
    output.write(&bytes)
}

pub(crate) fn format_error(path: &Path) -> impl FnOnce(FormatError) -> BuildError {
    let path = path.to_owned();
    move |fault| BuildError::Format { path, fault: Box::new(fault) }
}

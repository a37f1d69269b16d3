//! Packs: images whose cold chunks are the windows of a disk in another file.

use std::path::Path;

use hs_format::limits::{
    DEFAULT_WINDOW_BLOCKS, DEFAULT_WINDOWS_PER_LEAF, MAX_BACKING_SAMPLES, MAX_WINDOW_BLOCKS,
};
use hs_format::{
    BackingFile, BaseKind, BaseRef, ChunkRef, Codec, ColdGeometry, ColdTables, Features, PackHeader,
    PackRuns, PackTrust, Sample, Superblock, WindowRef, chunk_digest,
};
use hs_image::{PackStore, Progress, SUPERBLOCK_BYTES};
use hs_store::{Store, StoreError};
use hs_units::{BLOCK_BYTES, ByteRange, Digest, Prng, to_u32, to_usize};

use crate::build::{format_error, write_image, write_superblock};
use crate::output::{Output, Readers, UnnamedFile};
use crate::source::Source;
use crate::{BuildError, BuildOptions, BuildReport};

/// Samples of the file that holds the disk, of each file behind it, and bytes of each.
const SAMPLES: u64 = 32;
const BACKING_SAMPLES: u64 = MAX_BACKING_SAMPLES as u64;
const SAMPLE_BYTES: u64 = 4096;
/// Windows of a disk that is not read are larger where they would be more than this: what is kept of them is
/// 48 bytes each while the pack is made.
const MOST_UNREAD_WINDOWS: u64 = 1 << 20;

/// The file that holds the disk of a pack, as the pack describes it.
#[derive(Clone, Debug)]
pub struct PackedDisk {
    /// How it holds the disk.
    pub kind: BaseKind,
    /// What is known of it.
    pub trust: PackTrust,
    /// Its name without a folder; empty where it has none.
    pub name: String,
    /// Its size.
    pub file_bytes: u64,
    /// When it was modified, in nanoseconds since 1970; 0 where that is not known.
    pub modified_ns: u64,
    /// Samples of it.
    pub samples: Vec<Sample>,
    /// The files behind it, in their order.
    pub backing: Vec<BackingFile>,
}

impl PackedDisk {
    /// What a pack says.
    ///
    /// # Errors
    /// When its table of backing files cannot be read or is damaged.
    pub fn of(pack: &PackStore) -> Result<Self, StoreError> {
        let PackHeader { kind, trust, name, file_bytes, modified_ns, samples, .. } = pack.header().clone();
        Ok(Self { kind, trust, name, file_bytes, modified_ns, samples, backing: pack.backing()? })
    }

    fn header(&self, disk_bytes: u64, window_bytes: u32, runs: &PackRuns) -> PackHeader {
        let Self { kind, trust, name, file_bytes, modified_ns, samples, .. } = self.clone();
        PackHeader {
            kind,
            trust,
            name,
            file_bytes,
            modified_ns,
            samples,
            disk_bytes,
            window_bytes,
            head_bytes: 0,
            chunk_bytes: runs.chunk_bytes(),
            tail_bytes: 0,
            run_count: to_u32(runs.len() as u64),
            runs_digest: runs.encode().1,
            backing_count: to_u32(self.backing.len() as u64),
            backing_digest: BackingFile::encode_all(&self.backing).1,
        }
    }
}

/// Samples of a file: its beginning, its end, and places between them that are the same for each length.
///
/// # Errors
/// When the file cannot be read.
pub fn samples(file: &dyn Store) -> Result<Vec<Sample>, BuildError> {
    sampled(file, SAMPLES)
}

/// The same of a file behind another one: fewer.
///
/// # Errors
/// When the file cannot be read.
pub fn backing_samples(file: &dyn Store) -> Result<Vec<Sample>, BuildError> {
    sampled(file, BACKING_SAMPLES)
}

fn sampled(file: &dyn Store, count: u64) -> Result<Vec<Sample>, BuildError> {
    let len = SAMPLE_BYTES.min(file.len());
    let last = file.len() - len;
    let mut prng = Prng::new(file.len());
    let mut places: Vec<u64> = (0..count - 2).map(|_| prng.below(last + 1)).collect();
    places.extend([0, last]);
    places.sort_unstable();
    places.dedup();
    let sample = |offset| {
        let mut bytes = vec![0; to_usize(len)];
        file.read_at(offset, &mut bytes)?;
        Ok(Sample { range: ByteRange::new(offset, len), digest: chunk_digest(&bytes) })
    };
    places.into_iter().map(sample).collect()
}

/// What a pack is made of.
#[derive(Clone, Copy, Debug)]
pub enum PackFrom<'a> {
    /// A disk, all of which is read.
    Disk(&'a Source),
    /// A disk of so many bytes, which is not read.
    Unread {
        /// Its size.
        exact_bytes: u64,
    },
}

/// Writes a pack without a hot region at `output`, which appears when it is complete.
///
/// # Errors
/// As those of [`crate::build()`].
pub fn pack(
    from: &PackFrom<'_>,
    disk: &PackedDisk,
    output: &Path,
    options: &BuildOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<BuildReport, BuildError> {
    let (output, report) = write(from, disk, output, options, progress)?;
    output.finish()?;
    Ok(report)
}

/// The same in a file that never appears; see [`crate::build_unnamed`].
///
/// # Errors
/// As those of [`pack`].
pub fn pack_unnamed(
    from: &PackFrom<'_>,
    disk: &PackedDisk,
    place: &Path,
    options: &BuildOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(UnnamedFile, BuildReport), BuildError> {
    let (output, report) = write(from, disk, place, options, progress)?;
    Ok((output.into_unnamed(), report))
}

fn write(
    from: &PackFrom<'_>,
    disk: &PackedDisk,
    place: &Path,
    options: &BuildOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Output, BuildReport), BuildError> {
    match from {
        PackFrom::Disk(source) => {
            let options = BuildOptions { codec: Codec::Store, base: None, ..options.clone() };
            write_image(source, place, &options, Some(disk), progress)
        }
        PackFrom::Unread { exact_bytes } => write_unread(*exact_bytes, disk, place),
    }
}

fn write_unread(
    exact_bytes: u64,
    disk: &PackedDisk,
    place: &Path,
) -> Result<(Output, BuildReport), BuildError> {
    let disk_bytes = exact_bytes.next_multiple_of(BLOCK_BYTES);
    let mut window_blocks = DEFAULT_WINDOW_BLOCKS;
    while disk_bytes / (u64::from(window_blocks) * BLOCK_BYTES) > MOST_UNREAD_WINDOWS
        && window_blocks < MAX_WINDOW_BLOCKS
    {
        window_blocks *= 2;
    }
    let geometry = ColdGeometry { disk_bytes, window_blocks, windows_per_leaf: DEFAULT_WINDOWS_PER_LEAF };
    let mut output = Output::create_pack(place, Readers::Usual)?;
    output.write(&[0; to_usize(SUPERBLOCK_BYTES)])?;
    let mut tables = ColdTables::new(geometry).map_err(format_error(place))?;
    for window in 0..geometry.windows() {
        let raw_bytes = geometry.window_raw_bytes(window);
        let range = ByteRange::new(window * geometry.window_bytes(), raw_bytes.into());
        let chunk = ChunkRef { range, raw_bytes, codec: Codec::Store, digest: Digest::default() };
        tables.push(WindowRef::Chunk(chunk));
    }
    let tables = tables.finish(disk_bytes, geometry.windows()).map_err(format_error(place))?;
    let mut runs = PackRuns::new(disk_bytes, to_u32(geometry.window_bytes()));
    runs.push(0, geometry.windows());
    let header = disk.header(disk_bytes, to_u32(geometry.window_bytes()), &runs);
    output.skip(disk_bytes + header.leaf_bytes());
    // The leaves follow from the disk's size.
    output.write(&tables.bytes[to_usize(header.leaf_bytes())..])?;
    let superblock = Superblock {
        features: Features::of_base(None::<&BaseRef>).of_unread().of_disk(exact_bytes),
        disk_bytes,
        image_bytes: output.position() + SUPERBLOCK_BYTES,
        disk_digest: header.unread_digest(),
        cold: tables.placed_at(SUPERBLOCK_BYTES),
        hot: Vec::new(),
        base: None,
        signature: None,
    };
    write_superblock(&mut output, &superblock)?;
    let report = BuildReport {
        disk_bytes,
        exact_bytes,
        image_bytes: finish(&mut output, &superblock, disk, &runs)?,
        zero_windows: 0,
        shared_windows: 0,
        composed_windows: 0,
        chunks: geometry.windows(),
        disk_digest: superblock.disk_digest,
        image_digest: superblock.image_digest(),
    };
    Ok((output, report))
}

/// Writes the table of runs behind the image that was written, and the header before it. Gives the bytes of
/// the pack.
pub(crate) fn finish(
    output: &mut Output,
    superblock: &Superblock,
    disk: &PackedDisk,
    runs: &PackRuns,
) -> Result<u64, BuildError> {
    let path = output.path().to_owned();
    let window_bytes = to_u32(superblock.geometry().window_bytes());
    let mut header = disk.header(superblock.disk_bytes, window_bytes, runs);
    let skipped = output.skipped();
    // Without a window there is nothing between.
    let has_windows = skipped.len > 0;
    header.head_bytes = if has_windows { skipped.offset } else { superblock.mirror().offset };
    header.tail_bytes = superblock.image_bytes - header.head_bytes - skipped.len;
    header.check().map_err(format_error(&path))?;
    output.write_at(header.runs_range().offset, &runs.encode().0)?;
    output.write_at(header.backing_range().offset, &BackingFile::encode_all(&disk.backing).0)?;
    output.write_at(0, &header.encode())?;
    Ok(header.pack_bytes())
}

//! The disk that all contenders of a story hold, and the headstart images of it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, bail};
use hs_build::source::{Source, SourceOptions};
use hs_build::{BuildOptions, OptimizeOptions, OptimizeReport};
use hs_start::progress;
use hs_trace::Profile;

use super::cache::Cache;
use super::root::{BOOT as BOOT_ROOT, PROGRAM, RESUME as RESUME_ROOT, Root};
use super::steps::Steps;
use hs_output::show::Bar;
use hs_start::open::open_image;

/// squashfs's default zstd level, used for the images as well, so that sizes compare.
pub(super) const LEVEL: i32 = 15;
/// Bytes copied or compared at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The files of a story's disk, by their names in the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files {
    /// What it is made from.
    pub(super) root: &'static Root,
    /// Free space in its file system.
    pub(super) free_bytes: u64,
    /// The root as an ext4 file system.
    pub(super) raw: &'static str,
    /// The image without a hot region.
    pub(super) plain: &'static str,
    /// The image with one.
    pub(super) fast: &'static str,
}

/// Of the program that starts.
pub(super) const START: Files =
    Files { root: &PROGRAM, free_bytes: 0, raw: "root.raw", plain: "root.hsi", fast: "fast.hsi" };
/// Of the system that boots, whose services would find a disk without free space full.
pub(super) const BOOT: Files = Files {
    root: &BOOT_ROOT,
    free_bytes: 64 << 20,
    raw: "boot.raw",
    plain: "boot.hsi",
    fast: "boot-fast.hsi",
};
/// Of the system whose guest is saved.
pub(super) const RESUME: Files = Files {
    root: &RESUME_ROOT,
    free_bytes: 64 << 20,
    raw: "resume-disk.raw",
    plain: "resume-disk.hsi",
    fast: "resume-disk-fast.hsi",
};

/// How the image without a hot region is made.
pub(super) fn plain_options() -> BuildOptions {
    BuildOptions { level: LEVEL, ..BuildOptions::default() }
}

/// The stamp of the disk `files` of the root with `root_stamp`. It names this very program, since another
/// build may make other disks.
pub(super) fn stamp(files: &Files, root_stamp: &str) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("find this program")?;
    let metadata = program.metadata().with_context(|| format!("look at {}", program.display()))?;
    let modified =
        metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let (bytes, nanos) = (metadata.len(), modified.as_nanos());
    let free_bytes = files.free_bytes;
    Ok(format!("{free_bytes} bytes free, by a headstart of {bytes} bytes and {nanos} ns\n{root_stamp}"))
}

/// As [`stamp`], for an image of that disk.
pub(super) fn image_stamp(disk_stamp: &str, options: &BuildOptions) -> String {
    let BuildOptions { codec, level, window_bytes, .. } = options;
    format!("{codec:?}:{level} in {window_bytes}\n{disk_stamp}")
}

/// Makes the raw disk from the root, by the source that `build` uses, so that all contenders hold the
/// same bytes.
pub(super) fn make_raw(cache: &Cache, files: &Files, stamp: &str, bar: &Bar) -> anyhow::Result<()> {
    let options = SourceOptions { free_bytes: files.free_bytes, ..SourceOptions::default() };
    let show = |progress| hs_start::progress::of_source(bar, progress);
    let source = Source::open(&cache.path(files.root.name), &options, &show)?;
    let draft = cache.draft(files.raw);
    let context = || format!("write {}", draft.display());
    let raw = File::create(&draft).with_context(context)?;
    raw.set_len(source.bytes()).with_context(context)?;
    let mut piece = vec![0; PIECE_BYTES];
    for range in source.data_ranges()? {
        for offset in (range.offset..range.end()).step_by(PIECE_BYTES) {
            let piece = &mut piece[..PIECE_BYTES.min((range.end() - offset) as usize)];
            source.read_at(offset, piece)?;
            raw.write_all_at(piece, offset).with_context(context)?;
        }
    }
    cache.keep(files.raw, stamp)
}

/// Makes the image `name` from the raw disk of `files`, unless it is kept.
pub(super) fn make_image(
    cache: &Cache,
    files: &Files,
    name: &str,
    stamp: &str,
    options: &BuildOptions,
    bar: &Bar,
) -> anyhow::Result<()> {
    let stamp = image_stamp(stamp, options);
    if cache.has(name, &stamp) {
        return Ok(());
    }
    let source = Source::open(&cache.path(files.raw), &SourceOptions::default(), &|_| {})?;
    hs_build::build(&source, &cache.draft(name), options, &|progress| progress::of_image(bar, progress))?;
    cache.keep(name, &stamp)
}

/// Everything that a story's disk goes through: made, recorded, optimized, and compared. Gives the recorded
/// start and the seconds that optimizing took.
pub(super) fn make_all(
    cache: &Cache,
    files: &Files,
    make_disks: impl FnOnce() -> anyhow::Result<()>,
    record: impl FnOnce() -> anyhow::Result<Profile>,
    steps: &mut Steps,
    bar: &Bar,
) -> anyhow::Result<(Profile, f64)> {
    make_disks()?;
    steps.end("disks_s");
    let profile = record()?;
    steps.end("record_s");
    optimize(cache, files, &profile, bar)?;
    let optimize_s = steps.end("optimize_s");
    check_cold_is_unchanged(cache, files)?;
    Ok((profile, optimize_s))
}

/// Adds the hot region that `profile` asks for.
fn optimize(cache: &Cache, files: &Files, profile: &Profile, bar: &Bar) -> anyhow::Result<OptimizeReport> {
    let path = cache.path(files.plain);
    let image = open_image(&path)?;
    let profiles = std::slice::from_ref(profile);
    let options = OptimizeOptions::default();
    let draft = cache.draft(files.fast);
    let report = hs_build::optimize(&image, Some(&path), profiles, &draft, &options, &|progress| {
        progress::of_image(bar, progress)
    })?;
    cache.keep(files.fast, &report.image_digest.to_string())?;
    Ok(report)
}

/// Fails unless the cold regions of the image with and without a hot region are the same bytes.
fn check_cold_is_unchanged(cache: &Cache, files: &Files) -> anyhow::Result<()> {
    let (plain, fast) = (files.plain, files.fast);
    let (mut one, mut other) = (ColdRegion::open(cache.path(plain))?, ColdRegion::open(cache.path(fast))?);
    let same_size = one.bytes == other.bytes;
    let mut at = 0;
    while same_size && at < one.bytes {
        let len = PIECE_BYTES.min((one.bytes - at) as usize);
        if one.read(at, len)? != other.read(at, len)? {
            break;
        }
        at += len as u64;
    }
    if !same_size || at < one.bytes {
        bail!(
            "optimizing changed the cold region at byte {at}; compare {plain} and {fast} in {}",
            cache.dir().display()
        );
    }
    Ok(())
}

struct ColdRegion {
    path: PathBuf,
    file: File,
    offset: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

impl ColdRegion {
    fn open(path: PathBuf) -> anyhow::Result<Self> {
        let range = open_image(&path)?.superblock().cold.range;
        let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
        Ok(Self { path, file, offset: range.offset, bytes: range.len, buffer: vec![0; PIECE_BYTES] })
    }

    fn read(&mut self, at: u64, len: usize) -> anyhow::Result<&[u8]> {
        let piece = &mut self.buffer[..len];
        let read = self.file.read_exact_at(piece, self.offset + at);
        read.with_context(|| format!("read {}", self.path.display()))?;
        Ok(piece)
    }
}

/// Brings a file into the page cache, so that its real medium does not show.
pub(super) fn read_into_cache(path: &Path) -> anyhow::Result<()> {
    let context = || format!("read {}", path.display());
    let mut file = File::open(path).with_context(context)?;
    std::io::copy(&mut file, &mut std::io::sink()).with_context(context)?;
    Ok(())
}

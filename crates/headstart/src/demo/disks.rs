//! The disk that all contenders hold, and the headstart images of it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, bail};
use hs_image::source::{Source, SourceOptions};
use hs_image::{BuildOptions, OptimizeOptions, OptimizeReport};
use hs_trace::Profile;

use super::cache::Cache;
use super::{LEVEL, root};
use crate::commands::open_image;
use crate::show::Bar;

/// The root as an ext4 file system.
pub(super) const RAW: &str = "root.raw";
/// The image without a hot region.
pub(super) const PLAIN: &str = "root.hsi";
/// The image with one.
pub(super) const FAST: &str = "fast.hsi";

/// Bytes copied or compared at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What says how raw disk and image are made of the root with `root_stamp`: by this very program, since
/// another build of it may make others.
pub(super) fn stamp(root_stamp: &str) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("find this program")?;
    let metadata = program.metadata().with_context(|| format!("look at {}", program.display()))?;
    let modified =
        metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let (bytes, nanos) = (metadata.len(), modified.as_nanos());
    Ok(format!("zstd:{LEVEL} by a headstart of {bytes} bytes and {nanos} ns\n{root_stamp}"))
}

/// Makes the raw disk from the root, by the source that `build` uses, so that all contenders hold the
/// same bytes.
pub(super) fn make_raw(cache: &Cache, stamp: &str, bar: &Bar) -> anyhow::Result<()> {
    let options = SourceOptions { scratch_dir: Some(cache.unfinished()), ..SourceOptions::default() };
    let show = |progress| crate::commands::build::show_source(bar, progress);
    let source = Source::open(&cache.path(root::NAME), &options, &show)?;
    let draft = cache.draft(RAW);
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
    cache.keep(RAW, stamp)
}

/// Makes the image from the raw disk.
pub(super) fn make_image(cache: &Cache, stamp: &str, bar: &Bar) -> anyhow::Result<()> {
    let source = Source::open(&cache.path(RAW), &SourceOptions::default(), &|_| {})?;
    let options = BuildOptions { level: LEVEL, ..BuildOptions::default() };
    hs_image::build(&source, &cache.draft(PLAIN), &options, &|progress| bar.update(progress))?;
    cache.keep(PLAIN, stamp)
}

/// Adds the hot region that `profile` asks for.
pub(super) fn optimize(cache: &Cache, profile: &Profile, bar: &Bar) -> anyhow::Result<OptimizeReport> {
    let path = cache.path(PLAIN);
    let image = open_image(&path)?;
    let profiles = std::slice::from_ref(profile);
    let options = OptimizeOptions::default();
    let draft = cache.draft(FAST);
    let report =
        hs_image::optimize(&image, &path, profiles, &draft, &options, &|progress| bar.update(progress))?;
    cache.keep(FAST, &report.image_digest.to_string())?;
    Ok(report)
}

/// Fails unless the cold regions of the image with and without a hot region are the same bytes.
pub(super) fn check_cold_is_unchanged(cache: &Cache) -> anyhow::Result<()> {
    let (mut one, mut other) = (ColdRegion::open(cache.path(PLAIN))?, ColdRegion::open(cache.path(FAST))?);
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
            "optimising changed the cold region at byte {at}; compare {PLAIN} and {FAST} in {}",
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

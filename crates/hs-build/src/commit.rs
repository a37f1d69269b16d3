//! A new image of a disk that was changed, or of a tree that is laid out like it.

use std::path::Path;
use std::sync::Arc;

use hs_image::{Image, Progress, ReadBase};
use hs_layout::Placement;
use hs_store::FileStore;

use crate::optimize::carry;
use crate::source::{DiskChanges, Moves, Source};
use crate::{
    BaseBlocks, BuildError, BuildOptions, BuildReport, HotPlacement, OptimizeOptions, OptimizeReport,
};

/// Writes to `output` the image of the disk of `image` with what was written over it. What did not change is
/// copied as it is stored, or taken from the old disk as the base of the new one where that `is_delta`; the
/// hot region keeps its order. Of the options the window is that of the image.
///
/// # Errors
/// When the image or the changes cannot be read, the output cannot be written, or, of a delta, the image has
/// a base itself.
pub fn commit(
    image: &Arc<Image>,
    changes: DiskChanges,
    is_delta: bool,
    output: &Path,
    build: &BuildOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(BuildReport, Option<OptimizeReport>), BuildError> {
    let source = Source::open_changed(Arc::clone(image), changes)?;
    let mut build = BuildOptions { window_bytes: image.window_bytes(), ..build.clone() };
    if is_delta {
        build.base = Some(Arc::new(BaseBlocks::read(image, build.threads, progress)?));
    }
    if image.hot_chunk_count() == 0 {
        return Ok((crate::build(&source, output, &build, progress)?, None));
    }
    let bases = (is_delta, &build);
    let (cold, hot) = with_hot_region(&source, image, None, bases, output, progress)?;
    Ok((cold, Some(hot)))
}

/// Writes to `output` the image of a tree that is laid out like the disk of an image: see
/// [`SourceOptions::like`](crate::source::SourceOptions::like). Chunks of that which are the same are copied
/// as they are stored, and its hot region keeps its order.
///
/// # Errors
/// When the source or that image cannot be read, the output cannot be written, or windows have another size
/// than those of that image.
///
/// # Panics
/// When the source is not laid out so.
pub fn build_like(
    source: &Source,
    output: &Path,
    build: &BuildOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(BuildReport, Option<OptimizeReport>), BuildError> {
    let (image, moves) = source.like().expect("a source that is like an image");
    if image.hot_chunk_count() == 0 {
        return Ok((crate::build(source, output, build, progress)?, None));
    }
    let bases = (build.base.is_some(), build);
    let (cold, hot) = with_hot_region(source, image, Some(moves), bases, output, progress)?;
    Ok((cold, Some(hot)))
}

/// Writes an image with the hot region of `image`, by way of a file without a name. `image` is the base of
/// the new one where that is a delta.
fn with_hot_region(
    source: &Source,
    image: &Arc<Image>,
    moves: Option<&Moves>,
    (is_delta, build): (bool, &BuildOptions),
    output: &Path,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(BuildReport, OptimizeReport), BuildError> {
    let (cold_file, cold) = crate::build_unnamed(source, output, build, progress)?;
    let store = FileStore::open(cold_file.path())?;
    let new = Image::open(Arc::new(store))?;
    if is_delta {
        new.use_base(Arc::new(ReadBase::new(Arc::clone(image))))?;
    } else if let Some(base) = image.base() {
        new.use_base(Arc::clone(base))?;
    }
    let hot = image.superblock().hot.first().map_or(0, |segment| segment.index.offset);
    let is_front = hot < image.superblock().cold.range.offset;
    let place = HotPlacement::At(if is_front { Placement::Front } else { Placement::End });
    let options = OptimizeOptions { place, threads: build.threads, ..OptimizeOptions::default() };
    let hot = carry(&new, Some(cold_file.path()), image, moves, output, &options, progress)?;
    Ok((cold, hot))
}

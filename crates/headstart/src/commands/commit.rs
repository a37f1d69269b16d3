//! `headstart commit`

use std::path::Path;
use std::sync::Arc;

use hs_build::BuildOptions;
use hs_build::source::{DiskChanges, ReadChanges};
use hs_image::Image;
use hs_keep::{KeepFile, OpenedAs, SnapshotFile};
use hs_output::show::Bar;
use hs_overlay::Content;
use hs_start::open::open_image;
use hs_start::progress;
use hs_units::{BLOCK_BYTES, BlockRange, Lba};

use super::sign::sign_output;
use super::{build, overlay};
use crate::cli::Commit;

/// Makes an image of a disk and what was written to it.
pub(crate) fn run(args: &Commit, quiet: bool) -> anyhow::Result<()> {
    let image = Arc::new(open_image(&args.image)?);
    let changes = match &args.snapshot {
        Some(name) => of_snapshot(&image, &args.overlay, name)?,
        None => of_now(&image, &args.overlay)?,
    };
    let (codec, level) = (args.codec.codec, args.codec.level);
    let options = BuildOptions { codec, level, ..BuildOptions::default() };
    let bar = Bar::new(quiet);
    let show = |progress| progress::of_image(&bar, progress);
    let (cold, hot) = hs_build::commit(&image, changes, args.delta, &args.output, &options, &show)?;
    drop(bar);
    let digest = hot.map_or(cold.image_digest, |hot| hot.image_digest);
    sign_output(digest, &args.output, args.signed.sign.as_deref())?;
    build::print(&args.output, args.json, &cold, hot.as_ref().map(|hot| (hot, None)), Vec::new(), 0)
}

/// What the file has now. No other process uses it meanwhile.
fn of_now(image: &Image, path: &Path) -> anyhow::Result<DiskChanges> {
    let file = KeepFile::open(path, OpenedAs::ReadOnly, KeepFile::PATIENCE)?;
    let kept = file.overlay(Some((image.disk_digest(), image.disk_bytes())), false)?;
    overlay::refuse_damaged(path, file.check(&kept)?)?;
    Ok(changes(path, kept.extents(), Box::new(move |offset, bytes| file.read(offset, bytes))))
}

/// What it had when a snapshot was taken. A server may be writing to it.
fn of_snapshot(image: &Image, path: &Path, name: &str) -> anyhow::Result<DiskChanges> {
    let disk = (image.disk_digest(), image.disk_bytes());
    let (snapshot, checked) = SnapshotFile::open(path, name, disk)?;
    overlay::refuse_damaged(path, checked)?;
    let snapshot = Arc::new(snapshot);
    let read = Arc::clone(&snapshot);
    Ok(changes(path, snapshot.extents(), Box::new(move |offset, bytes| read.read(offset, bytes))))
}

fn changes(
    path: &Path,
    extents: impl Iterator<Item = (u64, u64, Content)>,
    read: ReadChanges,
) -> DiskChanges {
    let extent = |(start, blocks, content)| {
        let place = if let Content::Data(place) = content { Some(place * BLOCK_BYTES) } else { None };
        (BlockRange::new(Lba(start), blocks), place)
    };
    DiskChanges { path: path.to_owned(), extents: extents.map(extent).collect(), read }
}

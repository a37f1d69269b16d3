//! `headstart commit`

use std::sync::Arc;

use anyhow::Context;
use hs_build::BuildOptions;
use hs_build::source::DiskChanges;
use hs_keep::{KeepFile, OpenedAs};
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
    let path = &args.overlay;
    let file = KeepFile::open(path, OpenedAs::ReadOnly, KeepFile::PATIENCE)?;
    let mut kept = file.overlay(Some((image.disk_digest(), image.disk_bytes())), false)?;
    if let Some(name) = &args.snapshot {
        kept.revert(name).with_context(|| path.display().to_string())?;
    }
    overlay::refuse_damaged(path, &file.check(&kept)?)?;
    let extent = |(start, blocks, content)| {
        let place = if let Content::Data(place) = content { Some(place * BLOCK_BYTES) } else { None };
        (BlockRange::new(Lba(start), blocks), place)
    };
    let extents = kept.extents().map(extent).collect();
    let changes = DiskChanges {
        path: path.clone(),
        extents,
        read: Box::new(move |offset, bytes| file.read(offset, bytes)),
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

//! `--fill` of the servers of disks.

use std::sync::Arc;

use anyhow::bail;
use hs_serve::{BackgroundFill, ServedDisk};
use hs_start::image::ImageSource;
use hs_start::remote::CacheFolder;
use hs_units::ByteSize;

/// Begins to fill the cache, if the user asks for it.
pub(super) fn start(
    is_wanted: bool,
    image: &ImageSource,
    disk: &Arc<ServedDisk>,
) -> anyhow::Result<Option<BackgroundFill>> {
    if !is_wanted {
        return Ok(None);
    }
    let shown = image.display();
    if image.file().is_some() {
        bail!("--fill: {shown} is a file: only what lies elsewhere is kept");
    }
    let Some(folder) = CacheFolder::of(image.remote.disk_cache.as_deref()) else {
        bail!("--fill needs the cache on disk, and there is none");
    };
    let [needed, limit] = [disk.image().superblock().image_bytes, folder.limit_bytes()];
    if needed > limit {
        let [needed, limit] = [needed, limit].map(ByteSize);
        bail!("--fill: {shown} has {needed}, and the cache may take {limit} (`headstart cache limit`)");
    }
    Ok(Some(BackgroundFill::start(disk)?))
}

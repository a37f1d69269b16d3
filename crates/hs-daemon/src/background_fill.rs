//! `--fill` of the servers of disks.

use std::sync::Arc;

use hs_serve::{BackgroundFill, ServedDisk};
use hs_units::ByteSize;

use hs_start::image::ImageSource;
use hs_start::remote::CacheFolder;

/// Whether the whole image is to come into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fill {
    /// Only what is read comes.
    #[default]
    Never,
    /// It is an error where it cannot.
    Always,
    /// Where there is a cache with room for it.
    WherePossible,
}

/// Begins to fill the cache, if the user asks for it.
pub(super) fn start(
    fill: Fill,
    image: &ImageSource,
    disk: &Arc<ServedDisk>,
) -> anyhow::Result<Option<BackgroundFill>> {
    if fill == Fill::Never {
        return Ok(None);
    }
    match obstacle(image, disk.image().superblock().image_bytes) {
        None => Ok(Some(BackgroundFill::start(disk)?)),
        Some(obstacle) if fill == Fill::WherePossible => {
            log::info!("{obstacle}");
            Ok(None)
        }
        Some(obstacle) => Err(anyhow::Error::msg(obstacle)),
    }
}

/// Why an image of so many bytes cannot come into the cache.
fn obstacle(image: &ImageSource, image_bytes: u64) -> Option<String> {
    let shown = image.display();
    if image.file().is_some() {
        return Some(format!("--fill: {shown} is a file: only what lies elsewhere is kept"));
    }
    let Some(folder) = CacheFolder::of(image.remote.disk_cache.as_deref()) else {
        return Some("--fill needs the cache on disk, and there is none".to_owned());
    };
    let [needed, limit] = [image_bytes, folder.limit_bytes()];
    (needed > limit).then(|| {
        let [needed, limit] = [needed, limit].map(ByteSize);
        format!("--fill: {shown} has {needed}, and the cache may take {limit} (`headstart cache limit`)")
    })
}

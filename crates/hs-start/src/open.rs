//! Opens images and profiles for commands.

use std::fs::File;
use std::io::{Read, Seek};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_device::Medium;
use hs_image::{FileKind, Image};
use hs_trace::{Profile, ProfileHead, limits};

use crate::base;
use crate::channel;
use crate::image::ImageSource;
use crate::location::ImagePlace;
use crate::medium::{self, Damage};
use crate::pack;
use crate::remote::{self, Purpose};

/// Opens an image on its real medium.
pub fn open_image(image: impl Into<ImageSource>) -> anyhow::Result<Image> {
    let image = channel::resolve(&image.into())?;
    let mut on_medium = match &image.image.place {
        ImagePlace::File(_) => medium::open(&image, &Medium::None, &Damage::default())?,
        ImagePlace::Remote(address) => {
            pack::resolved_remote(remote::open(&image, address, Purpose::Look)?, &image)?
        }
    };
    on_medium.image.base = base::looked_at(&image);
    Ok(Image::open_as(on_medium.store, &on_medium.image)?)
}

/// Whether the cache on disk has every chunk of an image from elsewhere. No request is made.
///
/// # Errors
/// When the cache does not have what opens the image.
pub fn is_kept(image: &ImageSource) -> anyhow::Result<bool> {
    let mut image = image.clone();
    image.remote.offline = true;
    let image = open_image(&image)?;
    // Nothing is asked for: the first chunk that is missing ends it.
    Ok(hs_image::fill_cache(&image, 1, &mut |_| ControlFlow::Break(()))?.is_complete)
}

/// Reads the profile at `path`.
pub fn read_profile(path: &Path) -> anyhow::Result<Profile> {
    // No more than a profile has.
    let bytes = profile_bytes(path, limits::MAX_FILE_BYTES + 1)?;
    Profile::decode(&bytes).with_context(|| format!("{} is not a usable profile", path.display()))
}

/// Reads what the profile at `path` is of.
pub fn read_profile_head(path: &Path) -> anyhow::Result<ProfileHead> {
    let bytes = profile_bytes(path, ProfileHead::BYTES as u64)?;
    ProfileHead::decode(&bytes).with_context(|| format!("{} is not a usable profile", path.display()))
}

/// Reads what several profiles are of.
pub fn read_profile_heads(paths: &[PathBuf]) -> anyhow::Result<Vec<ProfileHead>> {
    paths.iter().map(|path| read_profile_head(path)).collect()
}

/// The first bytes of a profile.
fn profile_bytes(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let context = || format!("read {}", path.display());
    let mut file = File::open(path).with_context(context)?;
    let kind = file_kind(&file).with_context(context)?;
    if kind != FileKind::Profile {
        bail!("{}: this is {kind}, not a profile: `headstart profile` records one", path.display());
    }
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.take(most).read_to_end(&mut bytes)).with_context(context)?;
    Ok(bytes)
}

/// The kind of a file by its first bytes.
pub fn file_kind(file: &File) -> std::io::Result<FileKind> {
    let mut start = Vec::new();
    file.take(FileKind::NEEDED_BYTES as u64).read_to_end(&mut start)?;
    Ok(FileKind::of(&start))
}

/// Reads several profiles.
pub fn read_profiles(paths: &[PathBuf]) -> anyhow::Result<Vec<Profile>> {
    paths.iter().map(|path| read_profile(path)).collect()
}

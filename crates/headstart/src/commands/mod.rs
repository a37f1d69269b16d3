//! One file a command.

pub(crate) mod attach;
mod background_fill;
pub(crate) mod boot;
pub(crate) mod build;
pub(crate) mod disk_cache;
pub(crate) mod docs;
pub(crate) mod export;
mod fill_cache;
pub(crate) mod fit;
pub(crate) mod hydrate;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod lab;
pub(crate) mod mount;
mod named_image;
pub(crate) mod optimize;
pub(crate) mod profile;
pub(crate) mod push;
pub(crate) mod run;
pub(crate) mod serve;
mod serve_http;
pub(crate) mod sign;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod verify;

use std::path::{Path, PathBuf};

use anyhow::Context;
use hs_device::Medium;
use hs_image::Image;
use hs_trace::Profile;

use crate::channel;
use crate::cli::image::ImageArg;
use crate::location::Place;
use crate::medium::{self, Damage};
use crate::remote::{self, Purpose};

/// Opens an image on its real medium.
pub(crate) fn open_image(image: impl Into<ImageArg>) -> anyhow::Result<Image> {
    let image = channel::resolve(&image.into())?;
    let on_medium = match &image.image.place {
        Place::File(_) => medium::open(&image, &Medium::None, &Damage::default())?,
        Place::Remote(address) => remote::open(&image, address, Purpose::Look)?,
    };
    Ok(Image::open_as(on_medium.store, &on_medium.image)?)
}

/// Reads the profile at `path`.
pub(crate) fn read_profile(path: &Path) -> anyhow::Result<Profile> {
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    Profile::decode(&bytes).with_context(|| format!("{} is not a usable profile", path.display()))
}

/// Reads several profiles.
pub(crate) fn read_profiles(paths: &[PathBuf]) -> anyhow::Result<Vec<Profile>> {
    paths.iter().map(|path| read_profile(path)).collect()
}

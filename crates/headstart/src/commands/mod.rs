//! One file a command.

pub(crate) mod attach;
mod background_fill;
pub(crate) mod boot;
pub(crate) mod build;
pub(crate) mod completions;
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
mod mounted;
mod named_image;
pub(crate) mod optimize;
pub(crate) mod profile;
pub(crate) mod push;
pub(crate) mod run;
pub(crate) mod serve;
mod serve_http;
pub(crate) mod sign;
mod source;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod verify;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_device::Medium;
use hs_image::{FileKind, Image};
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
    let file = File::open(path).with_context(|| format!("read {}", path.display()))?;
    let kind = file_kind(&file).with_context(|| format!("read {}", path.display()))?;
    if kind != FileKind::Profile {
        bail!("{}: this is {kind}, not a profile: `headstart profile` records one", path.display());
    }
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    Profile::decode(&bytes).with_context(|| format!("{} is not a usable profile", path.display()))
}

/// The kind of a file by its first bytes.
pub(crate) fn file_kind(file: &File) -> std::io::Result<FileKind> {
    let mut start = Vec::new();
    file.take(FileKind::NEEDED_BYTES as u64).read_to_end(&mut start)?;
    Ok(FileKind::of(&start))
}

/// Refuses an output whose folder is missing, before the work begins.
pub(crate) fn check_output(path: &Path) -> anyhow::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        bail!("{} cannot be written: there is no directory {}", path.display(), folder.display());
    }
    Ok(())
}

/// Reads several profiles.
pub(crate) fn read_profiles(paths: &[PathBuf]) -> anyhow::Result<Vec<Profile>> {
    paths.iter().map(|path| read_profile(path)).collect()
}

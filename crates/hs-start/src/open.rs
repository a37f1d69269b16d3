//! Opens images and profiles for commands.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_device::Medium;
use hs_image::{FileKind, Image};
use hs_trace::Profile;

use crate::base;
use crate::channel;
use crate::image::ImageSource;
use crate::location::ImagePlace;
use crate::medium::{self, Damage};
use crate::remote::{self, Purpose};

/// Opens an image on its real medium.
pub fn open_image(image: impl Into<ImageSource>) -> anyhow::Result<Image> {
    let image = channel::resolve(&image.into())?;
    let mut on_medium = match &image.image.place {
        ImagePlace::File(_) => medium::open(&image, &Medium::None, &Damage::default())?,
        ImagePlace::Remote(address) => remote::open(&image, address, Purpose::Look)?,
    };
    on_medium.image.base = base::looked_at(&image);
    Ok(Image::open_as(on_medium.store, &on_medium.image)?)
}

/// Reads the profile at `path`.
pub fn read_profile(path: &Path) -> anyhow::Result<Profile> {
    let file = File::open(path).with_context(|| format!("read {}", path.display()))?;
    let kind = file_kind(&file).with_context(|| format!("read {}", path.display()))?;
    if kind != FileKind::Profile {
        bail!("{}: this is {kind}, not a profile: `headstart profile` records one", path.display());
    }
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    Profile::decode(&bytes).with_context(|| format!("{} is not a usable profile", path.display()))
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

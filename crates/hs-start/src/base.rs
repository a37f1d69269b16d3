//! The base of an image: another image, whose disk has some of its blocks (`--base`).

use std::sync::Arc;

use hs_device::Medium;
use hs_image::{BaseDisk, ImageError, ReadBase, UseBase};
use hs_serve::{Prefetching, ServedDisk};

use crate::image::ImageSource;
use crate::medium::{self, Damage};
use crate::{open, start};

/// The base of an image whose disk is served from this medium: a served disk on the same one.
pub(crate) fn served(image: &ImageSource, medium: &Medium) -> UseBase {
    let medium = *medium;
    of(image, move |base| {
        let on_medium = medium::open(base, &medium, &Damage::default())?;
        let config = start::config(base, Prefetching::Off, None, &medium)?;
        let mut options = on_medium.config(&config).disk_options();
        // One that has a base itself is opened, and then refused as what it is.
        options.image.base = UseBase::Later;
        Ok(ServedDisk::open(on_medium.store, &options, None)?)
    })
}

/// The base of an image that a command reads.
pub(crate) fn looked_at(image: &ImageSource) -> UseBase {
    of(image, |base| Ok(Arc::new(ReadBase::new(open::open_image(base)?))))
}

fn of(
    image: &ImageSource,
    open: impl Fn(&ImageSource) -> anyhow::Result<Arc<dyn BaseDisk>> + Send + Sync + 'static,
) -> UseBase {
    let Some(base) = image.base() else { return UseBase::Nothing };
    let path = image.display().to_string();
    UseBase::Open(Arc::new(move || {
        open(&base).map_err(|error| ImageError::NoBase { path: path.clone(), reason: format!("{error:#}") })
    }))
}

//! The image that a server began with: the next server, after it died, must show that one and no other,
//! whatever an address or a channel means by then.

use std::ffi::OsStr;

use hs_image::ImageDigest;
use hs_service::handover::{HandedOver, Supervisor};

use crate::channel;
use crate::image::ImageSource;

fn name(number: usize) -> String {
    format!("image-{number}")
}

/// Image number `number` of this server: what the server before it had, or else what its word means now.
pub fn recall(kept: &mut HandedOver, number: usize, image: &ImageSource) -> anyhow::Result<ImageSource> {
    match kept.take::<String>(&name(number))? {
        Some((word, _)) => ImageSource::parse(OsStr::new(&word), &image.remote),
        None => channel::resolve(image),
    }
}

/// Notes what it is. A file is its own business: it stays what it was when it was opened.
pub fn keep(
    supervisor: &Supervisor,
    number: usize,
    image: &ImageSource,
    digest: ImageDigest,
) -> anyhow::Result<()> {
    match image.image.whole_address() {
        Some(address) => supervisor.keep(&name(number), format!("{address}#{digest}"), std::iter::empty()),
        None => Ok(()),
    }
}

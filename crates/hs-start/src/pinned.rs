//! The image that a server began with: the next server, after it died, must show that one and no other,
//! whatever a path, an address or a channel means by then.

use std::ffi::OsStr;

use hs_image::ImageDigest;

use crate::channel;
use crate::image::ImageSource;
use crate::location::{ImageLocation, Trust};
use hs_service::handover::{HandedOver, Supervisor};

fn name(number: usize) -> String {
    format!("image-{number}")
}

/// Image number `number` of this server: what the server before it had, or else what its word means now. A
/// file of another image, which has replaced that one, is refused when it is opened.
pub fn recall(kept: &mut HandedOver, number: usize, image: &ImageSource) -> anyhow::Result<ImageSource> {
    let Some((word, _)) = kept.take::<String>(&name(number))? else { return channel::resolve(image) };
    if image.file().is_none() {
        return ImageSource::parse(OsStr::new(&word), &image.remote);
    }
    let trust = Some(Trust::Name(word.parse()?));
    let location = ImageLocation { place: image.image.place.clone(), trust };
    Ok(ImageSource { image: location, remote: image.remote.clone() })
}

/// Notes what it is: its address and name, or the name where the next server finds the path in its arguments.
pub fn keep(
    supervisor: &Supervisor,
    number: usize,
    image: &ImageSource,
    digest: ImageDigest,
) -> anyhow::Result<()> {
    let word = match image.image.whole_address() {
        Some(address) => format!("{address}#{digest}"),
        None => digest.to_string(),
    };
    supervisor.keep(&name(number), word, std::iter::empty())
}

//! What lies on a disk that is to boot.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, bail};
use hs_build::ext4::ReadDisk;
use hs_build::first_linked_file;
use hs_format::limits::SUPERBLOCK_BYTES;
use hs_image::{Blocks, Image};
use hs_linux::Volume;
use hs_store::{FileStore, Retry, Store};
use hs_units::ByteRange;

use crate::image::ImageSource;
use crate::open::open_image;

/// What every image begins with.
const IMAGE_MAGIC: &[u8] = b"HSIMAGE\0";
/// What every pack begins with, which is an image with its disk.
const PACK_MAGIC: &[u8] = b"HSPACK\0\0";

/// Whether a disk is an image, and its root as far as that is known before it is served: the file system of
/// the whole disk, or of the partition that is named.
///
/// # Errors
/// When it cannot be read, or has no file system that is known.
pub fn identify(disk: &ImageSource, partition: Option<&str>) -> anyhow::Result<(bool, Option<Volume>)> {
    let is_image = is_image(disk)?;
    Ok((is_image, root(disk, is_image, partition)?))
}

/// Whether the file begins as images do; where that cannot be read, whether its end does, where they have the
/// same once more.
///
/// # Errors
/// When it cannot be read.
pub fn is_image(image: &ImageSource) -> anyhow::Result<bool> {
    // Only images can be remote or have a trusted key.
    let Some(path) = image.file().filter(|_| image.image.trust.is_none()) else { return Ok(true) };
    let store = Retry::new(FileStore::open(path)?);
    let Some(mirror) = store.len().checked_sub(SUPERBLOCK_BYTES as u64) else { return Ok(false) };
    let mut magic = [0; IMAGE_MAGIC.len()];
    if store.read_at(0, &mut magic).is_err() {
        store.read_at(mirror, &mut magic)?;
    }
    Ok(magic == *IMAGE_MAGIC || magic == *PACK_MAGIC)
}

/// The first programs of a system, as kernels, initramfs-tools and dracut look for them. They would also
/// start a shell, which is never ready.
const INITS: [&str; 6] =
    ["/sbin/init", "/etc/init", "/bin/init", "/init", "/usr/lib/systemd/systemd", "/lib/systemd/systemd"];

/// Fails when an ext4 in `range` of a disk that is a file of this machine has no init. A disk that cannot be
/// read says so when it is served.
///
/// # Errors
/// As it says.
pub fn check_has_init(disk: &ImageSource, is_image: bool, range: ByteRange) -> anyhow::Result<()> {
    let Some(path) = disk.file() else { return Ok(()) };
    let found = if is_image {
        let image = open_image(disk)?;
        let mut blocks = Blocks::new(&image);
        first_linked_file(&mut ReadDisk::part(range, |at, into| blocks.read_at(at, into)), &INITS)
    } else {
        let file = File::open(path)?;
        first_linked_file(&mut ReadDisk::part(range, |at, into| file.read_exact_at(into, at)), &INITS)
    };
    match found {
        Ok(None) => bail!(
            "{} has no init, so nothing starts in a guest (looked for {}): build it from a system with an \
             init, such as the package systemd-sysv, name another first program by --init, or start one \
             program with `headstart run`",
            disk.display(),
            INITS.join(", ")
        ),
        Ok(Some(_)) => Ok(()),
        Err(error) => {
            log::debug!("{}: its init was not looked for: {error}", disk.display());
            Ok(())
        }
    }
}

/// The root in the disk. A remote image is examined when it is served, so that it is opened only once.
fn root(disk: &ImageSource, is_image: bool, partition: Option<&str>) -> anyhow::Result<Option<Volume>> {
    let Some(path) = disk.file() else { return Ok(None) };
    if is_image {
        return Ok(Some(root_in(&open_image(disk)?, partition)?));
    }
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let bytes = FileStore::open(path)?.len();
    Ok(Some(Volume::find(path, bytes, partition, |at, into| file.read_exact_at(into, at))?))
}

/// The root in the disk of an image.
pub(super) fn root_in(image: &Image, partition: Option<&str>) -> anyhow::Result<Volume> {
    let mut blocks = Blocks::new(image);
    let read_at = |offset: u64, bytes: &mut [u8]| blocks.read_at(offset, bytes);
    Ok(Volume::find(Path::new(image.name()), image.exact_bytes(), partition, read_at)?)
}

//! The base of an image: the disk of another one, which holds some of its blocks.

use std::fmt;
use std::sync::Arc;

use hs_format::BaseRef;
use hs_units::{ByteRange, Lba};
use parking_lot::Mutex;

use crate::windows::Windows;
use crate::{Image, ImageError};

/// Decompressed windows of a base that [`ReadBase`] keeps in memory.
const CACHE_BYTES: u64 = 32 << 20;

/// Reads a disk on behalf of an image of which it is the base.
pub trait BaseDisk: Send + Sync {
    /// The image whose disk it is.
    fn image(&self) -> &Image;

    /// Fills each buffer, which is whole blocks, with what lies at its place. All are verified.
    ///
    /// # Errors
    /// When one of them cannot be had. What the buffers hold then has no meaning.
    fn read(&self, runs: &mut [(Lba, &mut [u8])]) -> Result<(), ImageError>;

    /// The image that it is the base of is no longer needed: reads that wait fail.
    fn close(&self);
}

/// Opens the base that an image names.
pub type OpenBase = Arc<dyn Fn() -> Result<Arc<dyn BaseDisk>, ImageError> + Send + Sync>;

/// Where an image gets its base from, if it has one.
#[derive(Clone, Default)]
pub enum UseBase {
    /// There is none: windows that need it cannot be read.
    #[default]
    Nothing,
    /// It is opened with the image, where that has one.
    Open(OpenBase),
    /// It is given later, to [`Image::use_base`].
    Later,
}

impl fmt::Debug for UseBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Open(_) => "Open",
            Self::Later => "Later",
        })
    }
}

/// A base that is read directly, for commands that read an image once.
pub struct ReadBase {
    image: Arc<Image>,
    windows: Mutex<Windows>,
}

impl ReadBase {
    /// The disk of this image.
    #[must_use]
    pub fn new(image: impl Into<Arc<Image>>) -> Self {
        let image = image.into();
        let windows = Mutex::new(Windows::new(&image, CACHE_BYTES));
        Self { image, windows }
    }
}

impl BaseDisk for ReadBase {
    fn image(&self) -> &Image {
        &self.image
    }

    fn read(&self, runs: &mut [(Lba, &mut [u8])]) -> Result<(), ImageError> {
        let mut windows = self.windows.lock();
        for (lba, buffer) in runs {
            let range = ByteRange::new(lba.byte_offset(), buffer.len() as u64);
            let disk_bytes = self.image.disk_bytes();
            if !range.fits_in(disk_bytes) {
                return Err(ImageError::OutsideDisk { range, disk_bytes });
            }
            windows.read(&self.image, range.offset, buffer)?;
        }
        Ok(())
    }

    fn close(&self) {
        self.image.store().close();
    }
}

/// Refuses a disk that is not the base that `image` names.
pub(crate) fn check_base(image: &Image, named: &BaseRef, found: &Image) -> Result<(), ImageError> {
    let (path, base) = (image.name().to_owned(), found.name().to_owned());
    // R34
    if found.superblock().base.is_some() {
        return Err(ImageError::BaseOfBase { path, base });
    }
    let is_same = (found.disk_digest(), found.disk_bytes()) == (named.disk_digest, named.disk_bytes);
    if is_same {
        return Ok(());
    }
    let found = BaseRef { disk_digest: found.disk_digest(), disk_bytes: found.disk_bytes() };
    Err(ImageError::OtherBase { path, base, expected: Box::new(*named), found: Box::new(found) })
}

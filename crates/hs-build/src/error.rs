//! What can go wrong while an image is built or its disk is converted, and where.

use std::io;
use std::path::PathBuf;

use hs_device::MediumError;
use hs_format::FormatError;
use hs_image::ImageError;
use hs_layout::LayoutError;
use hs_store::StoreError;
use hs_trace::TraceError;

use crate::source::SourceError;

/// An image could not be built, or its disk not be converted. The text says everything, causes included, so
/// that a line of a log is complete; `source()` is none, so that nothing is said twice.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// An image that exists could not be read.
    #[error("{0}")]
    Image(ImageError),
    /// The source failed.
    #[error("{0}")]
    Source(Box<SourceError>),
    /// A profile cannot be used.
    #[error("{0}")]
    Profile(TraceError),
    /// No layout follows from the profiles.
    #[error("{0}")]
    Layout(LayoutError),
    /// The image does not fit on the medium that it is made for.
    #[error("{0}")]
    Medium(MediumError),
    /// No reader would accept the image.
    #[error("{path}: {fault}", path = path.display())]
    Format {
        /// The output.
        path: PathBuf,
        /// Which rule it breaks.
        fault: Box<FormatError>,
    },
    /// The base has a base itself.
    #[error("{path} cannot be a base: some of its own blocks lie on another disk")]
    BaseOfBase {
        /// The image.
        path: String,
    },
    /// The profile was made from other content, although the disk digest agrees.
    #[error("block {lba}: the profile recorded digest {expected}, the image holds {found}")]
    BlockDiffers {
        /// The block.
        lba: u64,
        /// Digest in the profile, hexadecimal.
        expected: String,
        /// Digest of the block in the image, hexadecimal.
        found: String,
    },
    /// A file could not be written or read.
    #[error("{path}: {what}: {cause}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// The output is something that must not be replaced.
    #[error("{path}: it is {kind}; an image is written to a regular file", path = path.display())]
    NotAFile {
        /// The output.
        path: PathBuf,
        /// What it is, with its article.
        kind: &'static str,
    },
    /// The output is a file that is read.
    #[error("{path}: this is read, and would be replaced: choose another name", path = path.display())]
    IsRead {
        /// The output.
        path: PathBuf,
    },
    /// An option has no meaning.
    #[error("{option}: {value} is not possible: {rule}")]
    Option {
        /// Which option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
}

impl BuildError {
    pub(crate) fn io(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Io { path, what, cause }
    }
}

impl From<ImageError> for BuildError {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

impl From<StoreError> for BuildError {
    fn from(error: StoreError) -> Self {
        Self::Image(error.into())
    }
}

impl From<SourceError> for BuildError {
    fn from(error: SourceError) -> Self {
        Self::Source(Box::new(error))
    }
}

impl From<TraceError> for BuildError {
    fn from(error: TraceError) -> Self {
        Self::Profile(error)
    }
}

impl From<LayoutError> for BuildError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

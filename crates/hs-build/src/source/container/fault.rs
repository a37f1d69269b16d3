//! What is wrong with a container's image.

use std::fmt;
use std::io;

use super::super::SourceError;

/// What is wrong with a container's image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerFault {
    /// It is none.
    #[error("this is no container's image: neither index.json nor manifest.json is in it")]
    NoImage,
    /// A document cannot be understood.
    #[error("its {what} is damaged: {reason}")]
    Document {
        /// Which.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A document is larger than any should be.
    #[error("its {what} has {bytes} bytes; {most_bytes} are the most")]
    LargeDocument {
        /// Which.
        what: &'static str,
        /// As it says.
        bytes: u64,
        /// What is allowed.
        most_bytes: u64,
    },
    /// No image has this name.
    #[error("no image is called {name:?}; there {known}")]
    NoName {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Known,
    },
    /// Several images, and no name was asked for.
    #[error("there are several images: add the name of one after a colon; there {known}")]
    SeveralImages {
        /// Their names.
        known: Known,
    },
    /// No image is for this platform.
    #[error("no image is for {wanted}; there {known}; --platform chooses another one")]
    NoPlatform {
        /// What was asked for.
        wanted: String,
        /// What there is.
        known: Known,
    },
    /// An image for another system.
    #[error("this is an image for {os:?}; only those for Linux have a root that can be taken")]
    NotLinux {
        /// The system.
        os: String,
    },
    /// Lists of images in one another.
    #[error("lists of images are nested more than {most} deep")]
    Nested {
        /// What is allowed.
        most: u32,
    },
    /// A digest of another kind.
    #[error("{digest:?} is no digest that is known: sha256 and 64 digits")]
    UnknownDigest {
        /// As it is written.
        digest: String,
    },
    /// A blob that is not there.
    #[error("the blob {name} is missing; the image may be incomplete")]
    Missing {
        /// Its digest or path.
        name: String,
    },
    /// A blob is another one.
    #[error("{name} is damaged: its digest is {found}, not {expected}")]
    Digest {
        /// Its digest or path.
        name: String,
        /// As it should be.
        expected: String,
        /// As it is.
        found: String,
    },
    /// A blob has another size.
    #[error("the blob {name} has more or fewer than the {expected} bytes that it should have")]
    Size {
        /// Its digest.
        name: String,
        /// As it should be.
        expected: u64,
    },
    /// A blob could not be read.
    #[error("cannot read the blob {name}: {error}")]
    Read {
        /// Its digest or path.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// A layer of another kind than files in a tar archive.
    #[error(
        "a layer is {media_type:?}, not a tar archive, plain or packed with gzip or zstd{}",
        hint(media_type)
    )]
    LayerType {
        /// What it is.
        media_type: String,
    },
    /// The lists of layers differ.
    #[error("it has {layers} layers, but digests of {digests}")]
    Layers {
        /// Layers in the manifest.
        layers: usize,
        /// Digests in the configuration.
        digests: usize,
    },
    /// A layer cannot be taken.
    #[error("{0}")]
    Layer(Box<SourceError>),
}

/// Names or platforms that there are.
#[derive(Debug)]
pub struct Known(Vec<String>);

/// More are not shown.
const MOST_SHOWN: usize = 12;

impl From<Vec<String>> for Known {
    fn from(known: Vec<String>) -> Self {
        Self(known)
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<&str> = self.0.iter().take(MOST_SHOWN).map(String::as_str).collect();
        match self.0.len() {
            0 => f.write_str("is none with a name"),
            1 => write!(f, "is {}", shown[0]),
            2..=MOST_SHOWN => write!(f, "are {}", shown.join(", ")),
            more => write!(f, "are {} and {} more", shown.join(", "), more - MOST_SHOWN),
        }
    }
}

fn hint(media_type: &str) -> &'static str {
    if media_type.contains("encrypted") {
        "; decrypt the image first"
    } else if media_type.contains("headstart") {
        "; this is a headstart image already, which `run` and other commands take by its address"
    } else {
        ""
    }
}

//! What can go wrong with an image, and where.

use std::path::PathBuf;
use std::sync::Arc;

use hs_format::{BaseRef, FileKind, FormatError, ImageDigest, Part};
use hs_store::StoreError;
use hs_units::{BlockRange, ByteRange, Digest};

/// An image could not be opened or read. The text says everything, causes included, so that a
/// line of a log is complete; `source()` is none, so that nothing is said twice.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum ImageError {
    /// The bytes could not be had.
    #[error("{}", .0.with_causes())]
    Store(Arc<StoreError>),
    /// The bytes are not what the format or a digest says.
    #[error("{path}{}", in_its_place(*range, fault))]
    Format {
        /// The image.
        path: String,
        /// Where in the image file.
        range: ByteRange,
        /// What was expected and found.
        fault: Box<FormatError>,
    },
    /// The file is something else than an image.
    #[error("{path}: this is {kind}, not a headstart image{}", what_to_do(path, *kind))]
    NotAnImage {
        /// The file.
        path: String,
        /// What it is.
        kind: FileKind,
    },
    /// A chunk is damaged.
    #[error("{path}: {chunk} at bytes {range}: {fault}")]
    Chunk {
        /// The image.
        path: String,
        /// Which chunk, such as "cold window 17" or "hot chunk 3".
        chunk: String,
        /// Where in the image file.
        range: ByteRange,
        /// What was expected and found.
        fault: Box<FormatError>,
    },
    /// A read past the end of the disk.
    #[error("read of bytes {range} of a disk of {disk_bytes} bytes")]
    OutsideDisk {
        /// What was asked for.
        range: ByteRange,
        /// Size of the disk.
        disk_bytes: u64,
    },
    /// The store has not answered for as long as a reader may wait.
    #[error("no answer from {path} for {:.0?}{}", waited, trouble)]
    NoAnswer {
        /// The image.
        path: String,
        /// [`Image::trouble`](crate::Image::trouble).
        trouble: String,
        /// How long the read waited.
        waited: std::time::Duration,
    },
    /// The thread that was to bring the bytes made a mistake.
    #[error("{path}: the thread that was to bring this has panicked, see above")]
    Panicked {
        /// The image.
        path: String,
    },
    /// The reader is being shut down.
    #[error("the image is being closed")]
    Closed,
    /// A file could not be written or read.
    #[error("{path}: {what}: {cause}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        cause: Arc<std::io::Error>,
    },
    /// The disk is not the one that it should be.
    #[error("{path}: expected disk digest {expected}, found {found}")]
    WrongDisk {
        /// The image.
        path: String,
        /// What the superblock or the caller says.
        expected: Digest,
        /// What the content gives.
        found: Digest,
    },
    /// The image is not the one that was asked for by its name.
    #[error("{path}: it is another image: expected {expected}, found {found}")]
    WrongName {
        /// The image.
        path: String,
        /// The name that it must have.
        expected: ImageDigest,
        /// The name that it has.
        found: ImageDigest,
    },
    /// Blocks of the image lie on the disk of another one, which was not given.
    #[error(
        "{path}: some of its blocks lie on another disk: it needs the image with disk digest {}: give it by \
         --base", base.disk_digest
    )]
    NeedsBase {
        /// The image.
        path: String,
        /// The disk that it needs.
        base: BaseRef,
    },
    /// The base that was given is another disk.
    #[error(
        "{path} needs the disk {} of {} bytes, and {base} is the disk {} of {} bytes: give the image with the \
         first by --base", expected.disk_digest, expected.disk_bytes, found.disk_digest, found.disk_bytes
    )]
    OtherBase {
        /// The image.
        path: String,
        /// The image that was given as its base.
        base: String,
        /// The disk that it needs.
        expected: Box<BaseRef>,
        /// The disk that was given.
        found: Box<BaseRef>,
    },
    /// The base that was given has a base itself.
    #[error("{base} cannot be the base of {path}: some of its own blocks lie on another disk")]
    BaseOfBase {
        /// The image.
        path: String,
        /// The image that was given as its base.
        base: String,
    },
    /// The base could not be opened.
    #[error("{path}: its base cannot be opened: {reason}")]
    NoBase {
        /// The image.
        path: String,
        /// Why not.
        reason: String,
    },
    /// The disk that a pack is for is no longer what it was, or another one.
    #[error(
        "{path}: {chunk} is not what {disk} had when it was packed ({fault}): its reads fail; `headstart pack` \
         makes a new pack of the disk as it is"
    )]
    ChangedDisk {
        /// The pack.
        path: String,
        /// Which chunk.
        chunk: String,
        /// The file that holds the disk.
        disk: String,
        /// What was expected and found.
        fault: Box<FormatError>,
    },
    /// The disk that a pack is for has something where it had nothing.
    #[error(
        "{path}: window {window} of {disk} was zero when it was packed, and is not any more: its reads give zeros; \
         `headstart pack` makes a new pack of the disk as it is"
    )]
    ChangedZeros {
        /// The pack.
        path: String,
        /// Which window.
        window: u64,
        /// The file that holds the disk.
        disk: String,
    },
    /// Windows have no digests, and the image is not that of a pack which says so.
    #[error(
        "{path}: its cold windows have no digests, which only a pack of a disk that was not read may have"
    )]
    Unread {
        /// The image.
        path: String,
    },
    /// Blocks could not be had from the base.
    #[error("{path}: {chunk} at bytes {range} has blocks of {base}, which cannot be read: {cause}")]
    Base {
        /// The image.
        path: String,
        /// Which chunk, such as "cold window 17".
        chunk: String,
        /// Where in the image file.
        range: ByteRange,
        /// The image whose disk is the base.
        base: String,
        /// Why its blocks cannot be had.
        cause: Box<ImageError>,
    },
    /// The base has other blocks than those that the image was built with.
    #[error(
        "{path}: {chunk} at bytes {range} has blocks of {base}, which has others than its disk digest says: {fault}"
    )]
    BaseContent {
        /// The image.
        path: String,
        /// Which chunk, such as "cold window 17".
        chunk: String,
        /// Where in the image file.
        range: ByteRange,
        /// The image whose disk is the base.
        base: String,
        /// What was expected and found.
        fault: Box<FormatError>,
    },
    /// The disk that an image is compared with could not be read.
    #[error("{0}")]
    ComparedDisk(Arc<dyn std::error::Error + Send + Sync>),
    /// The disk that an image is compared with is longer or shorter.
    #[error("{path}: its disk has {disk_bytes} bytes, {against} has {found}")]
    OtherLength {
        /// The image.
        path: String,
        /// The raw disk.
        against: String,
        /// Size of the image's disk.
        disk_bytes: u64,
        /// Size of the raw disk.
        found: u64,
    },
    /// A raw disk differs from the image.
    #[error("{path}: first difference from {against} in blocks {blocks}")]
    Differs {
        /// The image.
        path: String,
        /// The raw disk.
        against: String,
        /// Where they differ first.
        blocks: BlockRange,
    },
}

impl ImageError {
    /// Whether it only says that the program ends.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed)
            || matches!(self, Self::Store(error) if matches!(**error, StoreError::Closed { .. }))
            || matches!(self, Self::Base { cause, .. } if cause.is_closed())
    }

    /// Whether bytes could not be had, or are not those that were written; not that they break a rule.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Store(_) => true,
            Self::Format { fault, .. } | Self::Chunk { fault, .. } => {
                matches!(**fault, FormatError::DigestMismatch { .. })
            }
            _ => false,
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Io { path, what, cause: Arc::new(cause) }
    }
}

/// A fault and where it is; a file that is cut short is so as a whole.
fn in_its_place(range: ByteRange, fault: &FormatError) -> String {
    match fault {
        FormatError::Size { part: Part::File, expected, found } if found < expected => {
            format!(
                " is truncated: {found} of its {expected} bytes are there; copy it again from where it came"
            )
        }
        fault => format!(": bytes {range}: {fault}"),
    }
}

/// What a person who gave this file as an image may have meant.
fn what_to_do(path: &str, kind: FileKind) -> String {
    match kind {
        FileKind::Disk(_) | FileKind::Partitioned => format!(
            ": `headstart build {path} -o IMAGE` makes an image of it, `headstart run --raw` runs it as \
             it is"
        ),
        FileKind::Pack => ": its disk is needed as well".to_owned(),
        FileKind::Profile => format!(": `headstart optimize IMAGE --profile {path}` uses it"),
        FileKind::Overlay => format!(": `headstart commit IMAGE {path}` makes one of it and of its disk"),
        FileKind::Cloop => format!(": `headstart import {path} -o IMAGE` makes an image of the disk in it"),
        FileKind::Qcow2 | FileKind::VirtualDisk => {
            format!(": `headstart build {path} -o IMAGE` makes an image of the disk in it")
        }
        FileKind::Tar => format!(": `headstart build {path} -o IMAGE` makes an image of the files in it"),
        FileKind::Compressed("gzip" | "xz" | "zstd") => format!(
            ": `headstart build {path} -o IMAGE` makes an image of the files in it if it is a tar archive; \
             else unpack it first"
        ),
        FileKind::Compressed(_) | FileKind::Zip => {
            ": unpack it, then `headstart build` an image of the disk or the directory".to_owned()
        }
        FileKind::Text if path.ends_with(".minisig") => {
            format!(": `headstart serve --channel {path}` serves a signature beside images")
        }
        _ => String::new(),
    }
}

impl From<StoreError> for ImageError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

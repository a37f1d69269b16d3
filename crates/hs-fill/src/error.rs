//! Why a file cannot fill itself.

use std::io;
use std::path::PathBuf;

use hs_format::ImageDigest;
use hs_image::ImageError;
use hs_linux::LinuxError;
use hs_units::Digest;

/// What is wrong with the file, or with the machine, and what to try.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FillError {
    /// The image cannot be opened or read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The table of mounts cannot be read.
    #[error(transparent)]
    Linux(#[from] LinuxError),
    /// The kernel has no pre-content events.
    #[error(
        "this kernel does not ask before a file is read (fanotify's FAN_PRE_ACCESS, Linux 6.14 or newer): a file cannot \
         fill itself here; use `mount`, `serve` or `export`"
    )]
    KernelLacksEvents {
        /// What it said.
        source: io::Error,
    },
    /// Not root.
    #[error("a file that fills itself needs root (CAP_SYS_ADMIN): run with sudo")]
    NeedsRoot,
    /// The file system has no pre-content events.
    #[error(
        "{} lies on a file system of type {kind:#x}: only files on ext4, XFS and btrfs can fill themselves",
        path.display()
    )]
    FileSystem {
        /// The file.
        path: PathBuf,
        /// `f_type` of statfs(2).
        kind: u64,
    },
    /// Nothing can be written there.
    #[error("{} lies on a file system that is mounted read-only", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// There is a file that is none of ours.
    #[error(
        "{} is not a self-filling file: give the name of one, or of a file that does not exist yet",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is of another disk.
    #[error("{} is filled from another disk: choose another name", path.display())]
    OtherDisk {
        /// The file.
        path: PathBuf,
    },
    /// The file was begun from an image of another name, which only claims to be of the same disk.
    #[error(
        "{} was begun from the image {begun}; {found} claims to hold the same disk, which nothing has proved: \
         go on with the former, or remove the file and {}",
        path.display(), super::sidecar_path(path).display()
    )]
    OtherImage {
        /// The file.
        path: PathBuf,
        /// The image that it was begun from.
        begun: ImageDigest,
        /// The other one.
        found: ImageDigest,
    },
    /// The file holds another disk than its image claims.
    #[error(
        "{} holds all that its image has, and that is the disk {found}, not the one that the image claims: \
         `headstart verify` refuses such an image",
        path.display()
    )]
    Contradicted {
        /// The file.
        path: PathBuf,
        /// The digest of what it holds.
        found: Digest,
    },
    /// A program has written to the file.
    #[error(
        "{} was changed by another program, so it is not the disk of the image any more and is not filled further: \
         it stays as it is; attach the image under another name",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A process fills it.
    #[error("{} is attached already", path.display())]
    Attached {
        /// The file.
        path: PathBuf,
    },
    /// The kernel does not ask when the file is read through this.
    #[error(
        "{} is in use by {user}, which reads it without asking: it would see zeros; take that down first, and hydrate \
         the file before it is used so",
        path.display()
    )]
    UncoveredUse {
        /// The file.
        path: PathBuf,
        /// A loop device, or a mount.
        user: String,
    },
    /// The image is not the one that the file was made for, any more.
    #[error("{image} is another image than when {} was attached", path.display())]
    ImageChanged {
        /// The image.
        image: String,
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The action, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl FillError {
    /// For `map_err`: what was being done to which file.
    pub(super) fn io<E: Into<io::Error>>(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source: source.into() }
    }
}

//! Everything that can go wrong in showing a disk over FUSE, as one type.

use std::io;
use std::path::PathBuf;

use hs_image::ImageError;
use hs_keep::KeepError;
use hs_linux::LinuxError;

/// What failed, where, and what to try. Variants carry the data; the message is for a person.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FuseError {
    /// The kernel, or the machine's set-up, refused.
    #[error(transparent)]
    Linux(#[from] LinuxError),
    /// The image cannot be opened or read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Changes cannot be kept in the file.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// `/dev/fuse` does not exist.
    #[error(
        "{} is missing: load the module (modprobe fuse), or, in a container, pass the device in (--device /dev/fuse)",
        path.display()
    )]
    FuseMissing {
        /// The device that was looked for.
        path: PathBuf,
    },
    /// `/dev/fuse` exists but cannot be opened or used.
    #[error(
        "cannot use {}: {source}; let your user open it (the rules of the package fuse3 do), or run as root",
        path.display()
    )]
    FuseDevice {
        /// The device.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Not root, and the setuid helper that mounts for other users is not installed.
    #[error("fusermount3 was not found: install the package fuse3, or run as root")]
    FusermountMissing,
    /// The helper refused.
    #[error("fusermount3 could not act on {}: {message}", target.display())]
    Fusermount {
        /// The mount point.
        target: PathBuf,
        /// What it printed.
        message: String,
    },
    /// The kernel speaks a FUSE protocol older than this program needs.
    #[error("this kernel speaks FUSE {major}.{minor}; at least 7.31 (Linux 5.2) is needed")]
    FuseTooOld {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
    },
    /// The kernel's first message was not the one the protocol begins with.
    #[error("the FUSE session of {} did not begin with INIT: {detail}", target.display())]
    Handshake {
        /// The mount point.
        target: PathBuf,
        /// What was received instead.
        detail: String,
    },
}

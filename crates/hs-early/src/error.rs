//! What can go wrong.

use std::path::PathBuf;

use hs_accelerate::ListError;
use hs_linux::LinuxError;
use hs_observe::NotObserved;

/// Why a start is not recorded, or not accelerated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EarlyError {
    /// The file system cannot be helped.
    #[error("{} is {what}: only ext4, XFS and btrfs are recorded, where they are mounted themselves", path.display())]
    FileSystem {
        /// Where it is mounted.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// The path is inside of a file system.
    #[error("{} is not a mount point: name the folder on which the file system is mounted", path.display())]
    NotMounted {
        /// The path.
        path: PathBuf,
    },
    /// Another user could have written the list.
    #[error("{} is not believed: {fault}; remove it", path.display())]
    NotTrusted {
        /// The list.
        path: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The list is damaged.
    #[error("{} is ignored: {source}; a recording makes it anew", path.display())]
    List {
        /// The list.
        path: PathBuf,
        /// What is wrong with it.
        source: ListError,
    },
    /// The list is of another file system.
    #[error("{} is of another file system or subvolume, and not used: name another list, or remove it", path.display())]
    OfAnother {
        /// The list.
        path: PathBuf,
    },
    /// The kernel does not say which pages come.
    #[error("what a start reads is not seen: {0}")]
    NotObserved(#[from] NotObserved),
    /// A file, a folder, a mount.
    #[error(transparent)]
    Linux(#[from] LinuxError),
}

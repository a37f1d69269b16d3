//! Why nothing was laid anew.

use std::path::PathBuf;

use hs_linux::{LinuxError, LockHolder};
use hs_units::ByteSize;

/// What failed, where, and what to try.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelocateError {
    /// The mount point or its device cannot be used.
    #[error(transparent)]
    Linux(#[from] LinuxError),
    /// Nothing is mounted there.
    #[error("{} is not a mount point: give the directory on which the file system is mounted", path.display())]
    NotMounted {
        /// The directory.
        path: PathBuf,
    },
    /// Another file system than ext4.
    #[error("{} holds {found}, whose blocks cannot be laid anew: {advice}", path.display())]
    NotExt4 {
        /// The mount point.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// It is mounted read-only.
    #[error("{} is mounted read-only: remount it for writing (mount -o remount,rw {})", path.display(), path.display())]
    ReadOnly {
        /// The mount point.
        path: PathBuf,
    },
    /// Its superblock says that something is wrong.
    #[error("the file system at {} has errors: check it first (e2fsck -f {})", path.display(), device.display())]
    HasErrors {
        /// The mount point.
        path: PathBuf,
        /// Its device.
        device: PathBuf,
    },
    /// It lacks what is needed.
    #[error("the file system at {} {lack}", path.display())]
    Unsuitable {
        /// The mount point.
        path: PathBuf,
        /// What it lacks or has, and what to do.
        lack: &'static str,
    },
    /// A medium without moving parts.
    #[error(
        "{} does not turn (queue/rotational is 0): order of blocks makes no difference to flash, and the writes wear \
         it; --force lays them anew nevertheless",
        device.display()
    )]
    NotRotational {
        /// The device.
        device: PathBuf,
    },
    /// Its blocks are shared with a snapshot, or are those of a pool.
    #[error(
        "{} has a snapshot, is one, or lies in a thin pool (LVM): each block that moves takes room there, and a full \
         one is lost; --force lays them anew nevertheless",
        device.display()
    )]
    SharedBlocks {
        /// The device.
        device: PathBuf,
    },
    /// There is too little free space.
    #[error(
        "{} has too little free space: the blocks take {} and {} must stay free, {} are free: delete something first",
        path.display(), ByteSize(*needed_bytes), ByteSize(*margin_bytes), ByteSize(*free_bytes)
    )]
    FullDisk {
        /// The mount point.
        path: PathBuf,
        /// What the moved blocks take.
        needed_bytes: u64,
        /// What must stay free.
        margin_bytes: u64,
        /// What is free.
        free_bytes: u64,
    },
    /// Another process does the same.
    #[error("another headstart lays blocks of {} anew{}: wait until it is done", path.display(), told(holder.as_ref()))]
    AlreadyRuns {
        /// The mount point.
        path: PathBuf,
        /// Which process.
        holder: Option<LockHolder>,
    },
    /// The list cannot be followed.
    #[error("the list has {count} runs, more than {most}: record a shorter start")]
    ListTooLong {
        /// How many.
        count: usize,
        /// The most.
        most: usize,
    },
    /// It takes root.
    #[error("laying blocks anew needs root: run with sudo")]
    NeedsRoot,
}

fn told(holder: Option<&LockHolder>) -> String {
    holder.map_or_else(String::new, |holder| format!(", {holder}"))
}

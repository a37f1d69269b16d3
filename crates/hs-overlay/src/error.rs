//! Why a file is no overlay, and why a write is refused.

use hs_units::Digest;

/// Why a file cannot be used as the overlay of a disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverlayError {
    /// Another kind of file, or one whose both beginnings are damaged.
    #[error("it is no overlay: neither of its first two blocks begins as one with a right checksum")]
    NotAnOverlay,
    /// Of a newer version of this program.
    #[error(
        "it is an overlay of version {found}, and this program knows version {known}: use a newer headstart"
    )]
    Version {
        /// In the file.
        found: u32,
        /// Here.
        known: u32,
    },
    /// It belongs to another disk.
    #[error(
        "it belongs to another disk: expected the disk digest {expected} ({expected_bytes} bytes), found {found} \
         ({found_bytes} bytes); use it with the image that it was begun with, or name another file"
    )]
    OtherDisk {
        /// Of the disk that it is to be used with.
        expected: Digest,
        /// Its bytes.
        expected_bytes: u64,
        /// Of the disk that it belongs to.
        found: Digest,
        /// Its bytes.
        found_bytes: u64,
    },
    /// A part that a crash cannot have damaged is not as it was written.
    #[error("it is damaged: {part} {why}; nothing of it can be read: restore the file from a copy")]
    Damaged {
        /// Where.
        part: DamagedPart,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More than this program accepts.
    #[error("{what}: {found} is more than {limit}, which this program accepts")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// In the file.
        found: u64,
        /// Here.
        limit: u64,
    },
    /// No snapshot of this name.
    #[error("it has no snapshot '{name}'")]
    NoSuchSnapshot {
        /// What was asked for.
        name: String,
    },
    /// A name that cannot be given.
    #[error("a snapshot cannot be called '{}': {why}", name.escape_debug())]
    SnapshotName {
        /// What was asked for.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// A part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamagedPart {
    /// A slot of the superblock: its fields.
    Superblock,
    /// The stored map.
    Checkpoint,
    /// The records behind it.
    Log,
}

impl std::fmt::Display for DamagedPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Superblock => "its superblock",
            Self::Checkpoint => "its map",
            Self::Log => "its log",
        })
    }
}

/// Why a write is not taken now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Too much is gathered: again when a job has ended.
    #[error("too many writes wait for the overlay's file")]
    Full,
    /// Space has to be taken first: see `Overlay::space_needed`.
    #[error("the overlay's file needs more space first")]
    NeedsSpace,
    /// Nothing is written any more since something failed.
    #[error("the overlay is read-only since a write of its file failed")]
    ReadOnly,
    /// Not a range of whole blocks of the disk.
    #[error("the range is not of whole blocks of the disk")]
    OutsideDisk,
}

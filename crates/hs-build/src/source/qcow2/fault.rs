//! What is wrong with a qcow2 file.

use std::io;

use hs_units::ByteSize;

/// What is wrong with a qcow2 file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Qcow2Fault {
    /// The header is damaged.
    #[error("its qcow2 header is damaged: {0}")]
    Header(&'static str),
    /// A version that is not known.
    #[error("it is qcow2 of version {version}; 2 and 3 are known")]
    Version {
        /// As it says.
        version: u64,
    },
    /// Something that is not read.
    #[error("it has {0}, which is not read; `qemu-img convert -O raw` makes a raw disk of it")]
    Feature(&'static str),
    /// It says of itself that it is damaged.
    #[error("it says of itself that it is damaged; `qemu-img check -r all` may mend it")]
    Corrupt,
    /// A disk that is too large.
    #[error("it has a disk of {}, which is too large", ByteSize(*bytes))]
    LargeDisk {
        /// As it says.
        bytes: u64,
    },
    /// Something lies behind the end of the file.
    #[error("{what} at {offset} lies behind the end of the file; it may be cut short")]
    OutOfFile {
        /// What.
        what: &'static str,
        /// Where.
        offset: u64,
    },
    /// Two parts of the disk have one table.
    #[error("its first table names the table at {offset} twice")]
    SharedTable {
        /// Where it lies.
        offset: u64,
    },
    /// Two parts of the disk have the same bytes of the file.
    #[error("its tables name the cluster at {offset} twice")]
    SharedCluster {
        /// Where it lies.
        offset: u64,
    },
    /// The same, where it is known of none which.
    #[error("its tables name more clusters than its {file_bytes} bytes have: they name some of them twice")]
    SharedClusters {
        /// Bytes of the file.
        file_bytes: u64,
    },
    /// A compressed cluster that does not unpack.
    #[error("the compressed cluster at {offset} is damaged")]
    Cluster {
        /// Where it lies in the file.
        offset: u64,
    },
    /// It could not be read.
    #[error("a read of {bytes} bytes at {offset} failed: {error}")]
    Read {
        /// Where.
        offset: u64,
        /// How much.
        bytes: u64,
        /// Why.
        error: io::Error,
    },
    /// A backing file that is not opened without being asked for.
    #[error(
        "its backing file is {name:?}, which does not lie in the same folder; --follow-backing opens it \
         nevertheless, which a stranger's file must not be allowed"
    )]
    Outside {
        /// Its name.
        name: String,
    },
    /// A backing file of another kind.
    #[error(
        "its backing file is {name:?}, {kind}: only raw and qcow2 files are read; `qemu-img convert -O raw` \
        makes a raw disk of it"
    )]
    BackingKind {
        /// Its name.
        name: String,
        /// What it is.
        kind: String,
    },
    /// A backing file that cannot be opened.
    #[error("its backing file {name:?} cannot be opened: {error}")]
    Backing {
        /// Its name.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// A backing file in another folder.
    #[error(
        "its backing file is {name:?}: files of a packed disk lie in one folder, and are named without it; \
         `qemu-img rebase -u` names it anew, `qemu-img convert -O qcow2` makes one file of both"
    )]
    Elsewhere {
        /// Its name.
        name: String,
    },
    /// Backing files that lead back.
    #[error("its backing file {name:?} leads back to a file before it")]
    Cycle {
        /// Its name.
        name: String,
    },
    /// Too many backing files.
    #[error("more than {most} backing files lie behind it")]
    Depth {
        /// The most.
        most: usize,
    },
}

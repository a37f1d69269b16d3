//! Why a source could not be opened or read.

use std::io;
use std::path::PathBuf;

use hs_format::FileKind;
use hs_image::ImageError;
use hs_store::StoreError;
use hs_units::ByteSize;
use hs_volumes::ChoiceError;

use super::archive_fault::ArchiveFault;
use super::container::ContainerFault;
use super::qcow2::Qcow2Fault;
use super::virtual_disk::VirtualDiskFault;
use crate::cloop::CloopFault;

/// Why a source could not be opened or read. Variants carry data; the text says what failed, where,
/// and what to try.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The path exists and is none of a directory, a regular file and a block device.
    #[error(
        "{}: a source is a directory, a file or a block device; this is a {kind} (- reads an archive from standard \
         input)",
        path.display()
    )]
    NotASource {
        /// The path as given.
        path: PathBuf,
        /// What it is instead, such as `socket`.
        kind: &'static str,
    },
    /// The raw image or block device has no bytes.
    #[error("{}: the disk image is empty", path.display())]
    Empty {
        /// The path as given.
        path: PathBuf,
    },
    /// A file, directory, link or attribute could not be read.
    #[error("{}: cannot read it: {error}{}", path.display(), permission_hint(error))]
    Unreadable {
        /// What could not be read.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Reading the opened disk failed.
    #[error("{}: read of {len} bytes at {offset} failed: {error}", path.display())]
    Read {
        /// The source.
        path: PathBuf,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A cloop file is not one, or is damaged.
    #[error("{}: {fault}", path.display())]
    Cloop {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        fault: Box<CloopFault>,
    },
    /// The bytes of a cloop file could not be had.
    #[error("{}: cannot read it: {}", path.display(), error.with_causes())]
    CloopRead {
        /// The file.
        path: PathBuf,
        /// Why.
        error: Box<StoreError>,
    },
    /// The disk of an image could not be read.
    #[error("{0}")]
    Image(Box<ImageError>),
    /// A partition was chosen that cannot be had.
    #[error("{}: {choice}", path.display())]
    Partition {
        /// The source.
        path: PathBuf,
        /// What is wrong with the choice.
        choice: ChoiceError,
    },
    /// An archive, or one of its entries, cannot be taken.
    #[error("{}: {}{fault}", path.display(), entry.as_ref().map(|entry| format!("{entry}: ")).unwrap_or_default())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// The name of the entry.
        entry: Option<String>,
        /// What is wrong.
        fault: Box<ArchiveFault>,
    },
    /// A container's image cannot be taken.
    #[error("{}: {fault}", path.display())]
    Container {
        /// The image.
        path: PathBuf,
        /// What is wrong.
        fault: Box<ContainerFault>,
    },
    /// A qcow2 file, or one behind it, cannot be taken.
    #[error("{}: {fault}", path.display())]
    Qcow2 {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: Box<Qcow2Fault>,
    },
    /// A file of another virtual machine's disk cannot be taken.
    #[error("{}: {fault}", path.display())]
    VirtualDisk {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: Box<VirtualDiskFault>,
    },
    /// It is no disk that a pack could be for.
    #[error("{}: a pack is for a raw disk or a qcow2 file; this is {kind}", path.display())]
    NoDisk {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// A read was asked for that does not lie within the disk.
    #[error("{}: a read of {len} bytes at {offset} goes past the end of the disk, {bytes}", path.display())]
    OutOfRange {
        /// The source.
        path: PathBuf,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Logical size of the disk.
        bytes: u64,
    },
    /// The source changed while it was being read, so what was read never existed as a whole.
    #[error("{}: it changed while it was being read; stop what writes to it, or build from a snapshot or copy",
        path.display())]
    Changed {
        /// What changed.
        path: PathBuf,
    },
    /// A directory of the tree is the mount point of a file system that the kernel invents.
    #[error(
        "{}: this is the kernel's {file_system}, not files; unmount it, or build from a bind mount \
         without sub-mounts (mount --bind)",
        path.display()
    )]
    KernelFileSystem {
        /// The mount point.
        path: PathBuf,
        /// Its type, such as `proc`.
        file_system: &'static str,
    },
    /// A folder of a disk has two names.
    #[error(
        "{}: this folder has another name too, so the disk is damaged; check a copy of it (fsck)",
        path.display()
    )]
    FolderTwice {
        /// One of them.
        path: PathBuf,
    },
    /// The image to be written lies in the tree that it shall hold.
    #[error("{}: the output lies inside the source directory {}; write it somewhere else",
        output.display(), directory.display())]
    OutputInside {
        /// The image to be written.
        output: PathBuf,
        /// The source.
        directory: PathBuf,
    },
    /// Something in the tree cannot be kept in an ext4 file system.
    #[error("{}: ext4 cannot hold it: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What is too large or of the wrong kind.
        reason: String,
    },
    /// The disk of the image that the file system shall be like cannot be taken for that.
    #[error("{}: nothing can be laid out like its disk: {reason}", path.display())]
    NotLike {
        /// The image.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// More free space than such a file system can have.
    #[error("{} of free space is too much: {} is the most", ByteSize(*bytes), ByteSize(*most_bytes))]
    TooMuchFree {
        /// Bytes that were asked for.
        bytes: u64,
        /// The most that can be had.
        most_bytes: u64,
    },
    /// The volume label is longer than ext4's 16 bytes.
    #[error("the volume label '{label}' has {} bytes; ext4 has room for 16", label.len())]
    LabelTooLong {
        /// The label as given.
        label: String,
    },
}

/// The next step for the most frequent cause of an unreadable file.
fn permission_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run as a user who may read it (root, for a system's root)",
        _ => "",
    }
}

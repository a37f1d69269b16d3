//! Sources: what an image is built from, opened as one logical disk.
//!
//! A regular file or a block device is the disk, byte for byte, whatever it holds. A directory becomes an
//! ext4 file system whose blocks are made when they are read, so that equal trees give equal bytes wherever
//! and whenever they are built; see the `tree_disk` module for how. A tar archive becomes what the directory
//! would that it is unpacked to. A cloop file gives the disk that was compressed into it.

mod access_list;
mod archive;
mod archive_bytes;
mod archive_fault;
mod assembly;
mod changed;
mod cloop;
mod container;
mod contents;
mod entries;
mod error;
mod file_data;
mod folders;
mod in_folder;
#[doc(hidden)]
pub mod libraries;
mod like;
mod part;
#[doc(hidden)]
pub mod qcow2;
mod raw;
mod records;
mod stored_disk;
mod tar;
mod tree;
mod tree_disk;
#[doc(hidden)]
pub mod virtual_disk;
mod xattrs;

use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hs_format::{BaseKind, BaseRef, FileKind};
use hs_image::{ComparedDisk, Image, LoadedChunk};
use hs_store::Store;
use hs_units::{BLOCK_BYTES, ByteRange, to_usize};

use archive::{Archive, Unpacked};
pub use archive_fault::ArchiveFault;
use changed::ChangedDisk;
pub use changed::{DiskChanges, ReadChanges};
use cloop::CloopDisk;
use container::Chosen;
pub use container::{Blob, Blobs, ContainerFault, Known, Platform, ResolvedImage, chain_ids};
pub use error::SourceError;
pub(crate) use like::Moves;
use qcow2::Qcow2Disk;
pub use qcow2::Qcow2Fault;
use raw::RawDisk;
pub use stored_disk::{OpenBeside, StoredDisk};
use tree_disk::TreeDisk;
use virtual_disk::VirtualDisk;
pub use virtual_disk::VirtualDiskFault;

/// What a [`Source`] was opened from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SourceKind {
    /// A regular file, taken as a raw disk.
    RawFile,
    /// A block device.
    BlockDevice,
    /// A directory, made into an ext4 file system.
    Directory,
    /// A cloop file, inflated block by block.
    Cloop,
    /// A qcow2 file, with its backing files.
    Qcow2,
    /// A VMDK, VDI, VHD or VHDX file.
    VirtualDisk,
    /// A tar archive, made into an ext4 file system.
    Archive,
    /// The layers of a container's image, made into an ext4 file system.
    Container,
    /// The disk of an image, with what was written over it.
    Image,
}

/// The most bytes that a packed archive may have when it is unpacked, where nothing else is said.
pub const UNPACK_LIMIT_BYTES: u64 = 256 << 30;

/// How a directory or an archive becomes a file system. A raw image heeds none of it.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// Free bytes for files, beyond what the tree needs, up to 16 TiB; inodes are added in proportion.
    pub free_bytes: u64,
    /// Volume label, at most 16 bytes.
    pub volume_label: Option<String>,
    /// File system UUID. Without one it is derived from the tree's names, attributes and data, so that equal
    /// trees have equal UUIDs and different trees different ones.
    pub uuid: Option<[u8; 16]>,
    /// The image that will be written; a source directory that contains it is refused.
    pub output: Option<PathBuf>,
    /// Take a file as a raw disk whatever it contains.
    pub raw: bool,
    /// Open backing files that a qcow2 file names wherever they lie, and not only in its own folder.
    pub follow_backing: bool,
    /// The directory is the root of a disk, which may be damaged, or of a stranger.
    pub of_disk: bool,
    /// Take a directory or an archive as a tree of files although it is a container's image.
    pub tree: bool,
    /// The platform of a container's image; this machine's when not given.
    pub platform: Option<Platform>,
    /// The lowest layers of a container's image that are taken; all when not given.
    pub layers: Option<usize>,
    /// The folder for what of an archive must be kept while the image is built; that of temporary files when
    /// not given.
    pub keep_in: Option<PathBuf>,
    /// The most bytes that a packed archive may have when it is unpacked.
    pub unpack_limit_bytes: u64,
    /// The image of an earlier state of the tree: what is the same keeps its place on the disk. Its own
    /// windows must then be those of the new image.
    pub like: Option<Arc<Image>>,
    /// Paths of files, from the root, whose data comes before that of all others and in this order. Those
    /// that the tree has not are ignored, and all where it is laid out like an image.
    pub first_files: Vec<String>,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            free_bytes: 0,
            volume_label: None,
            uuid: None,
            output: None,
            raw: false,
            follow_backing: false,
            of_disk: false,
            tree: false,
            platform: None,
            layers: None,
            keep_in: None,
            unpack_limit_bytes: UNPACK_LIMIT_BYTES,
            like: None,
            first_files: Vec::new(),
        }
    }
}

impl SourceOptions {
    fn kept_in(&self) -> PathBuf {
        self.keep_in.clone().unwrap_or_else(std::env::temp_dir)
    }
}

/// How far [`Source::open`] has come with a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SourceProgress {
    /// The directory is being walked and read; totals so far.
    Scanning {
        /// Files, directories and other entries seen.
        entries: u64,
        /// Bytes of files read.
        bytes: u64,
    },
    /// An archive is being read; totals so far.
    Unpacking {
        /// Entries seen.
        entries: u64,
        /// Bytes of files that had to be kept.
        bytes: u64,
    },
}

#[derive(Debug)]
enum Disk {
    Raw(RawDisk),
    Tree(Box<TreeDisk>),
    Cloop(CloopDisk),
    Qcow2(Qcow2Disk),
    Virtual(VirtualDisk),
    Stored(StoredDisk),
    Changed(Box<ChangedDisk>),
}

impl Disk {
    fn bytes(&self) -> u64 {
        match self {
            Self::Raw(disk) => disk.bytes(),
            Self::Tree(disk) => disk.bytes(),
            Self::Cloop(disk) => disk.bytes(),
            Self::Qcow2(disk) => disk.bytes(),
            Self::Virtual(disk) => disk.disk_bytes().next_multiple_of(BLOCK_BYTES),
            Self::Stored(disk) => disk.bytes(),
            Self::Changed(disk) => disk.bytes(),
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        match self {
            Self::Raw(disk) => disk.read_at(offset, buf),
            Self::Tree(disk) => disk.read_at(offset, buf),
            Self::Cloop(disk) => disk.read_at(offset, buf),
            Self::Qcow2(disk) => disk.read_at(offset, buf),
            Self::Virtual(disk) => disk.read_at(offset, buf),
            Self::Stored(disk) => disk.read_at(offset, buf),
            Self::Changed(disk) => disk.read_at(offset, buf),
        }
    }
}

/// A logical disk, opened and ready to be read from any thread.
#[derive(Debug)]
pub struct Source {
    disk: Disk,
    kind: SourceKind,
    content: FileKind,
    /// The partition that is the whole of it.
    part: Option<ByteRange>,
    kept_bytes: u64,
    /// Bytes of the disk as it is, where they are not whole blocks.
    shown_bytes: Option<u64>,
}

impl Source {
    /// Opens the raw image, block device, directory or archive at `path`: which of them it is, its first
    /// bytes say. A tree is read here once, to find what is zeros, and again where the disk is read.
    ///
    /// # Errors
    /// Every [`SourceError`] but the ones of single reads.
    pub fn open(
        path: &Path,
        options: &SourceOptions,
        progress: &dyn Fn(SourceProgress),
    ) -> Result<Self, SourceError> {
        let metadata = std::fs::metadata(path)
            .map_err(|error| SourceError::Unreadable { path: path.to_owned(), error })?;
        let (disk, kind) = if metadata.is_dir() {
            if !options.tree && container::is_layout(path) {
                return Self::open_layout(path, None, options, progress);
            }
            let disk = TreeDisk::open(path, options, progress)?;
            (Disk::Tree(Box::new(disk)), SourceKind::Directory)
        } else if metadata.is_file()
            && !options.raw
            && let Some(archive) = archive::open_file(path)?
        {
            return Self::of_archive(archive, None, options, progress);
        } else if metadata.is_file() && !options.raw && qcow2::is_qcow2(path) {
            (Disk::Qcow2(Qcow2Disk::open(path, options.follow_backing)?), SourceKind::Qcow2)
        } else if metadata.is_file()
            && !options.raw
            && let Some(disk) = VirtualDisk::open(path)?
        {
            (Disk::Virtual(disk), SourceKind::VirtualDisk)
        } else {
            let (disk, kind) = RawDisk::open(path)?;
            (Disk::Raw(disk), kind)
        };
        Self::of(disk, kind)
    }

    /// Opens an archive that comes from a stream, which `shown` names. The contents of its files are kept in
    /// a file without a name.
    ///
    /// # Errors
    /// [`SourceError::Archive`] when it is none or is damaged.
    pub fn open_stream(
        stream: Box<dyn Read>,
        shown: &Path,
        options: &SourceOptions,
        progress: &dyn Fn(SourceProgress),
    ) -> Result<Self, SourceError> {
        Self::of_archive(archive::open_stream(stream, shown)?, None, options, progress)
    }

    /// Opens a container's image in an archive: a layout, or what `docker save` wrote. `name` is that of the
    /// image, where there are several.
    ///
    /// # Errors
    /// [`SourceError::Container`], [`SourceError::Archive`].
    pub fn open_image_archive(
        path: &Path,
        name: Option<&str>,
        options: &SourceOptions,
        progress: &dyn Fn(SourceProgress),
    ) -> Result<Self, SourceError> {
        let archive = archive::open_file(path)?.ok_or_else(|| no_archive(path))?;
        Self::of_archive(archive, Some(name), options, progress)
    }

    /// Opens a container's image in a folder that is a layout. `name` is that of the image, where there are
    /// several.
    ///
    /// # Errors
    /// [`SourceError::Container`], [`SourceError::Archive`].
    pub fn open_layout(
        folder: &Path,
        name: Option<&str>,
        options: &SourceOptions,
        progress: &dyn Fn(SourceProgress),
    ) -> Result<Self, SourceError> {
        tree_disk::check(options)?;
        if let (Some(output), Ok(blobs)) = (&options.output, folder.join("blobs").canonicalize()) {
            tree_disk::refuse_output_inside(&blobs, output)?;
        }
        let chosen = Chosen { name, shown: folder, options, progress };
        Self::of_image(container::of_folder(folder, &chosen)?, &chosen)
    }

    /// Opens a container's image by its blobs and the manifest that leads to them, which may be a list of
    /// images. `shown` names it in messages.
    ///
    /// # Errors
    /// [`SourceError::Container`], [`SourceError::Archive`].
    pub fn open_blobs(
        blobs: &mut dyn Blobs,
        manifest: &[u8],
        shown: &Path,
        options: &SourceOptions,
        progress: &dyn Fn(SourceProgress),
    ) -> Result<Self, SourceError> {
        tree_disk::check(options)?;
        let chosen = Chosen { name: None, shown, options, progress };
        Self::of_image(container::unpack(container::From::Blobs(blobs, manifest), &chosen)?, &chosen)
    }

    /// `image` is the name of the image that the archive must be of; none where it may be one.
    fn of_archive(
        archive: Archive,
        image: Option<Option<&str>>,
        options: &SourceOptions,
        progress: &dyn Fn(SourceProgress),
    ) -> Result<Self, SourceError> {
        tree_disk::check(options)?;
        let shown = archive.shown().to_owned();
        let unpacked = archive.unpack(options, progress)?;
        let chosen = Chosen { name: image.flatten(), shown: &shown, options, progress };
        let form = container::form_of(&unpacked.tree);
        match (form, image) {
            (Some(form), _) if image.is_some() || !options.tree => {
                Self::of_image(container::of_archive(&unpacked, form, &chosen)?, &chosen)
            }
            (_, Some(_)) => Err(container::no_image(&shown)),
            (_, None) => Self::of_unpacked(unpacked, SourceKind::Archive, &chosen),
        }
    }

    fn of_image(unpacked: Unpacked, chosen: &Chosen<'_>) -> Result<Self, SourceError> {
        Self::of_unpacked(unpacked, SourceKind::Container, chosen)
    }

    fn of_unpacked(unpacked: Unpacked, kind: SourceKind, chosen: &Chosen<'_>) -> Result<Self, SourceError> {
        let (disk, kept_bytes) = unpacked.plan(chosen.shown, chosen.options, chosen.progress)?;
        Ok(Self { kept_bytes, ..Self::of(Disk::Tree(Box::new(disk)), kind)? })
    }

    /// Bytes of an archive's files that are kept in a file without a name as long as this is open.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Opens the disk that a cloop file holds. A damaged block is an error of the read that needs it.
    ///
    /// # Errors
    /// [`SourceError::Cloop`] when header, offsets or first blocks are damaged, [`SourceError::CloopRead`].
    pub fn open_cloop(file: Box<dyn Store>) -> Result<Self, SourceError> {
        Self::of(Disk::Cloop(CloopDisk::open(file)?), SourceKind::Cloop)
    }

    /// The disk in a store.
    ///
    /// # Errors
    /// When its first bytes cannot be read.
    pub fn of_stored(disk: StoredDisk) -> Result<Self, SourceError> {
        let kind = match disk.kind() {
            BaseKind::Raw => SourceKind::RawFile,
            BaseKind::Qcow2 => SourceKind::Qcow2,
        };
        Self::of(Disk::Stored(disk), kind)
    }

    /// Opens the disk of an image with what was written over it.
    ///
    /// # Errors
    /// When its first or last block cannot be read.
    pub fn open_changed(image: Arc<Image>, changes: DiskChanges) -> Result<Self, SourceError> {
        let disk = ChangedDisk::new(image, changes);
        let shown_bytes = Some(disk.file_bytes()?);
        Ok(Self { shown_bytes, ..Self::of(Disk::Changed(Box::new(disk)), SourceKind::Image)? })
    }

    fn of(disk: Disk, kind: SourceKind) -> Result<Self, SourceError> {
        let mut start = vec![0; to_usize(disk.bytes().min(FileKind::NEEDED_BYTES as u64))];
        disk.read_at(0, &mut start)?;
        Ok(Self { disk, kind, content: FileKind::of(&start), part: None, kept_bytes: 0, shown_bytes: None })
    }

    /// Logical size in bytes, a multiple of [`hs_units::BLOCK_BYTES`]. The bytes by which a raw file is
    /// shorter read as zeros.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.file_bytes().next_multiple_of(BLOCK_BYTES)
    }

    /// Bytes of a raw file or of a partition as it is, before they are rounded up; of anything else,
    /// [`Source::bytes`].
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        match (&self.part, &self.disk) {
            (Some(part), _) => part.len,
            (None, Disk::Raw(disk)) => disk.file_bytes(),
            (None, Disk::Qcow2(disk)) => disk.disk_bytes(),
            (None, Disk::Virtual(disk)) => disk.disk_bytes(),
            (None, Disk::Stored(disk)) => disk.exact_bytes(),
            (None, other) => self.shown_bytes.unwrap_or_else(|| other.bytes()),
        }
    }

    /// How many blocks at the disk's start hold the tables of its file system, and behind them libraries that
    /// many of its programs need; zero if that is not known.
    #[must_use]
    pub fn table_blocks(&self) -> u64 {
        match &self.disk {
            Disk::Tree(disk) => disk.table_blocks(),
            Disk::Changed(disk) => disk.table_blocks(),
            Disk::Raw(_) | Disk::Cloop(_) | Disk::Qcow2(_) | Disk::Virtual(_) | Disk::Stored(_) => 0,
        }
    }

    /// Whether its files lie where they do in [`SourceOptions::like`].
    #[must_use]
    pub fn is_like_earlier(&self) -> bool {
        self.like().is_some()
    }

    /// The image that its disk is like, and where the content of that is.
    pub(crate) fn like(&self) -> Option<(&Arc<Image>, &Moves)> {
        let Disk::Tree(disk) = &self.disk else { return None };
        disk.like().map(|like| (like.image(), like.moves()))
    }

    /// The disk that some of its chunks have blocks of: see [`Source::read_unit`].
    pub(crate) fn base(&self) -> Option<BaseRef> {
        match &self.disk {
            Disk::Changed(disk) => disk.base(),
            _ => None,
        }
    }

    /// Whole windows of the disk, and the chunk of each, without raw bytes, where it is stored already: in
    /// windows of the image that it comes from.
    ///
    /// # Errors
    /// As [`Source::read_at`].
    pub(crate) fn read_unit(
        &self,
        range: ByteRange,
    ) -> Result<(Vec<u8>, Vec<Option<LoadedChunk>>), SourceError> {
        let (mut raw, mut chunks) = (vec![0; to_usize(range.len)], Vec::new());
        match &self.disk {
            Disk::Changed(disk) => {
                disk.read_windows(range.offset, &mut raw, &mut |chunk| chunks.push(chunk))?;
            }
            Disk::Tree(disk) if self.part.is_none() => {
                disk.read_at(range.offset, &mut raw)?;
                chunks = disk.chunks_of(range.offset, &raw)?;
            }
            _ => self.read_at(range.offset, &mut raw)?,
        }
        Ok((raw, chunks))
    }

    /// Fills `buf` with the disk's bytes from `offset`.
    ///
    /// # Errors
    /// [`SourceError::OutOfRange`] when the range does not lie in the disk, [`SourceError::Changed`] when the
    /// file was cut short since it was opened, [`SourceError::Read`] otherwise.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        match self.part {
            Some(part) => self.read_part(part, offset, buf),
            None => self.disk.read_at(offset, buf),
        }
    }

    /// The ranges that may hold anything but zeros: ascending, disjoint, in whole blocks. What lies between
    /// them is holes. The whole disk, as one range, where the file system or device knows no holes.
    ///
    /// # Errors
    /// [`SourceError::Read`].
    pub fn data_ranges(&self) -> Result<Vec<ByteRange>, SourceError> {
        let ranges = match &self.disk {
            Disk::Raw(disk) => disk.data_ranges()?,
            Disk::Tree(disk) => disk.data_ranges(),
            Disk::Cloop(disk) => vec![ByteRange::new(0, disk.bytes())],
            Disk::Qcow2(disk) => disk.data_ranges()?,
            Disk::Virtual(disk) => disk.data_ranges(),
            Disk::Stored(disk) => disk.data_ranges()?,
            Disk::Changed(disk) => disk.data_ranges()?,
        };
        Ok(self.part.map_or_else(|| ranges.clone(), |part| part::cut(&ranges, part)))
    }

    /// To be called after the last read: fails when a raw file, or anything in a directory, was written to
    /// since it was opened. A block device cannot be checked.
    ///
    /// # Errors
    /// [`SourceError::Changed`], or [`SourceError::Unreadable`] when its state cannot be asked for.
    pub fn verify_unchanged(&self) -> Result<(), SourceError> {
        match &self.disk {
            Disk::Raw(disk) => disk.verify_unchanged(),
            Disk::Tree(disk) => disk.verify_unchanged(),
            // Blocks that changed no longer agree with their checksums.
            Disk::Cloop(_) => Ok(()),
            // Each chunk has its digest, and the file of changes is locked.
            Disk::Changed(_) => Ok(()),
            // What is read of it later is verified.
            Disk::Stored(_) => Ok(()),
            Disk::Qcow2(disk) => disk.verify_unchanged(),
            Disk::Virtual(disk) => disk.verify_unchanged(),
        }
    }

    /// What it was opened from.
    #[must_use]
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// What the disk's first bytes say: a raw disk is taken as it is, whatever it holds.
    #[must_use]
    pub fn content(&self) -> FileKind {
        self.content
    }
}

fn no_archive(path: &Path) -> SourceError {
    SourceError::Archive { path: path.to_owned(), entry: None, fault: Box::new(ArchiveFault::NoArchive) }
}

impl ComparedDisk for Source {
    fn bytes(&self) -> u64 {
        Source::bytes(self)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(Source::read_at(self, offset, buf)?)
    }
}

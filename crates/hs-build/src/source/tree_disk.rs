//! A tree of files becomes an ext4 file system, which is read as a disk and never stored.
//!
//! 1. Walk and read the tree: what it holds, which blocks of its files are zeros, and a digest
//!    ([`assembly`]). A directory is walked by [`tree`]; what archives hold comes from [`entries`].
//! 2. Give everything its place ([`hs_ext4`]).
//! 3. Make each block when it is read: from the layout, or from the file that it belongs to.
//!
//! Equal trees (names, types, permissions, owners, modification times, link targets, device numbers,
//! attributes and data) give equal bytes, wherever they lie: no inode number, `readdir` order, access or
//! change time, hole or path of the source reaches the output.
//!
//! [`assembly`]: super::assembly
//! [`entries`]: super::entries
//! [`tree`]: super::tree

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hs_ext4::{Layout, LayoutOptions, NodeId, Plan, RunContent};
use hs_image::LoadedChunk;
use hs_units::{BLOCK_BYTES, ByteRange, to_usize};
use parking_lot::Mutex;

use super::assembly::Assembled;
use super::folders::FolderFiles;
use super::like::{self, LikeDisk};
use super::tree::Tree;
use super::{SourceError, SourceOptions, SourceProgress};

/// As much as ext4 has with block numbers of 32 bits. Of far more, the first group would not even hold the
/// descriptors of all.
const MOST_FREE_BYTES: u64 = 16 << 40;
/// Bytes of ext4's volume label.
const LABEL_BYTES: usize = 16;
/// One free inode for so many free bytes, as mke2fs does it.
const FREE_BYTES_PER_INODE: u64 = 16_384;
/// Large files begin where a cold window of the usual size does, so that windows with equal files are equal.
const CHUNK_BLOCKS: u32 = 32;

/// The files of a planned tree.
pub(super) trait TreeFiles: Send + std::fmt::Debug {
    /// Fills `buf` with a part of a file, which lies within its size.
    fn read_at(&mut self, plan: &Plan, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<(), SourceError>;

    /// Fails with the first entry that is no longer as it was when the tree was planned.
    fn verify_unchanged(&mut self, plan: &Plan) -> Result<(), SourceError>;
}

/// A tree that is ready to be laid out.
pub(super) struct PlannedTree {
    pub(super) assembled: Assembled,
    pub(super) files: Box<dyn TreeFiles>,
}

/// The file system of a tree.
#[derive(Debug)]
pub(super) struct TreeDisk {
    layout: Layout,
    early_blocks: u64,
    /// The disk that it is laid out like.
    like: Option<LikeDisk>,
    path: PathBuf,
    files: Mutex<Box<dyn TreeFiles>>,
}

impl TreeDisk {
    /// Plans the file system of the directory at `path`.
    pub(super) fn open(
        path: &Path,
        options: &SourceOptions,
        progress: &dyn Fn(SourceProgress),
    ) -> Result<Self, SourceError> {
        check(options)?;
        let root =
            path.canonicalize().map_err(|error| SourceError::Unreadable { path: path.to_owned(), error })?;
        if let Some(output) = &options.output {
            refuse_output_inside(&root, output)?;
        }
        let Tree { assembled, folders } =
            Tree::scan(&root, options.like.is_some(), options.of_disk, progress)?;
        let tree = PlannedTree { assembled, files: Box::new(FolderFiles::new(folders)) };
        Self::of(&root, path, tree, options)
    }

    /// Plans the file system of a tree. Paths in errors begin with `root`; `path` names the tree itself.
    pub(super) fn of(
        root: &Path,
        path: &Path,
        tree: PlannedTree,
        options: &SourceOptions,
    ) -> Result<Self, SourceError> {
        let Assembled { plan, digest, contents, common } = tree.assembled;
        let label = options.volume_label.as_deref().unwrap_or_default();
        let mut layout = LayoutOptions {
            uuid: options.uuid.unwrap_or_else(|| derived_uuid(digest)),
            label: [0; LABEL_BYTES],
            free_bytes: options.free_bytes,
            free_inodes: options.free_bytes / FREE_BYTES_PER_INODE,
            chunk_blocks: CHUNK_BLOCKS,
        };
        layout.label[..label.len()].copy_from_slice(label.as_bytes());
        let (layout, like) = match &options.like {
            Some(image) => like::lay_out(plan, &contents, image, &layout)?,
            None => {
                let mut first = common.clone();
                first.extend(nodes_of(&plan, &options.first_files));
                (plan.lay_out(&first, &layout), None)
            }
        };
        let layout = layout.map_err(|error| SourceError::Unsupported {
            path: root.join(OsStr::from_bytes(error.path())),
            reason: error.to_string(),
        })?;
        let early_blocks = match &like {
            // What did not change lies where it was.
            Some(like) => like.image().superblock().features.table_blocks().min(layout.blocks()),
            None => {
                let places = common.iter().filter_map(|&node| layout.place(node));
                places.map(|(first, blocks)| first + blocks).max().unwrap_or_default()
            }
        };
        let early_blocks = early_blocks.max(layout.metadata_blocks());
        Ok(Self { layout, early_blocks, like, path: path.to_owned(), files: Mutex::new(tree.files) })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.layout.blocks() * BLOCK_BYTES
    }

    /// Blocks at the start with the tables, and behind them the libraries that many programs need.
    pub(super) const fn table_blocks(&self) -> u64 {
        self.early_blocks
    }

    /// Fills `buf` from `offset`.
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let (len, bytes) = (buf.len() as u64, self.bytes());
        if !ByteRange::new(offset, len).fits_in(bytes) {
            return Err(SourceError::OutOfRange { path: self.path.clone(), offset, len, bytes });
        }
        let (mut at, mut rest) = (offset, buf);
        let mut block = [0; to_usize(BLOCK_BYTES)];
        while !rest.is_empty() {
            let (number, within) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
            let run = self.layout.run_at(number);
            let blocks = if run.content == RunContent::Metadata { 1 } else { run.blocks };
            let here = to_usize((blocks * BLOCK_BYTES - within).min(rest.len() as u64));
            let (piece, later) = rest.split_at_mut(here);
            match run.content {
                RunContent::Zeros => piece.fill(0),
                RunContent::Metadata => {
                    self.layout.write_metadata(number, &mut block);
                    piece.copy_from_slice(&block[to_usize(within)..][..here]);
                }
                RunContent::Earlier => {
                    self.like.as_ref().expect("a disk that it is like").read_at(at, piece)?;
                }
                RunContent::Data { file, offset } => self.read_file(file, offset + within, piece)?,
            }
            rest = later;
            at += here as u64;
        }
        Ok(())
    }

    /// The disk that it is laid out like.
    pub(super) const fn like(&self) -> Option<&LikeDisk> {
        self.like.as_ref()
    }

    /// The chunks of windows with these bytes, from `offset` on, as [`LikeDisk::chunk_of`] gives them.
    pub(super) fn chunks_of(&self, offset: u64, raw: &[u8]) -> Result<Vec<Option<LoadedChunk>>, SourceError> {
        let Some(like) = &self.like else { return Ok(Vec::new()) };
        let window_bytes = like.image().window_bytes();
        let windows = (0..).zip(raw.chunks(to_usize(window_bytes)));
        windows.map(|(number, window)| like.chunk_of(offset + number * window_bytes, window)).collect()
    }

    /// Reads a part of a file; behind its end are zeros.
    fn read_file(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let plan = self.layout.plan();
        let stored = to_usize(plan.bytes(node).saturating_sub(offset).min(buf.len() as u64));
        let (stored, padding) = buf.split_at_mut(stored);
        padding.fill(0);
        if stored.is_empty() { Ok(()) } else { self.files.lock().read_at(plan, node, offset, stored) }
    }

    /// What may hold anything but zeros, in whole blocks.
    pub(super) fn data_ranges(&self) -> Vec<ByteRange> {
        let mut ranges: Vec<ByteRange> = Vec::new();
        for run in self.layout.runs().filter(|run| run.content != RunContent::Zeros) {
            let (offset, len) = (run.first * BLOCK_BYTES, run.blocks * BLOCK_BYTES);
            match ranges.last_mut() {
                Some(last) if last.end() == offset => last.len += len,
                _ => ranges.push(ByteRange::new(offset, len)),
            }
        }
        ranges
    }

    /// Fails with the first entry that is no longer as it was walked.
    pub(super) fn verify_unchanged(&self) -> Result<(), SourceError> {
        self.files.lock().verify_unchanged(self.layout.plan())
    }
}

/// Refuses options that no file system can have, before a tree is read.
pub(super) fn check(options: &SourceOptions) -> Result<(), SourceError> {
    if options.free_bytes > MOST_FREE_BYTES {
        return Err(SourceError::TooMuchFree { bytes: options.free_bytes, most_bytes: MOST_FREE_BYTES });
    }
    let label = options.volume_label.as_deref().unwrap_or_default();
    if label.len() > LABEL_BYTES || label.contains('\0') {
        return Err(SourceError::LabelTooLong { label: label.to_owned() });
    }
    Ok(())
}

/// The output must not be read as part of its own source.
pub(super) fn refuse_output_inside(root: &Path, output: &Path) -> Result<(), SourceError> {
    let parent = match output.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    // An output directory that does not exist is reported where the output is created.
    match parent.canonicalize() {
        Ok(parent) if parent.starts_with(root) => {
            Err(SourceError::OutputInside { output: output.to_owned(), directory: root.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The nodes that have these paths as one of their names, in their order.
fn nodes_of(plan: &Plan, paths: &[String]) -> Vec<NodeId> {
    if paths.is_empty() {
        return Vec::new();
    }
    // Backwards, so that the first of equal paths counts.
    let ranks = paths.iter().enumerate().rev();
    let wanted: HashMap<&[u8], usize> =
        ranks.map(|(rank, path)| (path.trim_start_matches('/').as_bytes(), rank)).collect();
    let names = plan.names();
    let mut found: Vec<(usize, NodeId)> =
        names.filter_map(|(node, path)| Some((*wanted.get(&path[..])?, node))).collect();
    found.sort_unstable();
    // A file may have been read by two of its names.
    let mut seen = BTreeSet::new();
    found.into_iter().map(|(_, node)| node).filter(|node| seen.insert(*node)).collect()
}

/// A UUID of version 8 (RFC 9562, section 5.8: the content is the maker's own matter) from the tree's digest.
fn derived_uuid(digest: blake3::Hash) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&digest.as_bytes()[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

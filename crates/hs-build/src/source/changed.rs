//! The disk of an image with what was written over it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hs_format::{BaseRef, Decompressor};
use hs_image::{Image, LoadedChunk};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, to_usize};
use parking_lot::Mutex;

use super::SourceError;

/// Reads bytes of the file of changes from an offset on.
pub type ReadChanges = Box<dyn Fn(u64, &mut [u8]) -> io::Result<()> + Send + Sync>;

/// What was written over a disk.
pub struct DiskChanges {
    /// The file, for messages.
    pub path: PathBuf,
    /// Runs of blocks in the order of the disk, which do not overlap, and the byte of the file from which on
    /// their content lies: none where they are zero.
    pub extents: Vec<(BlockRange, Option<u64>)>,
    /// Reads that file.
    pub read: ReadChanges,
}

impl DiskChanges {
    /// The runs that touch some bytes of the disk.
    fn touching(&self, range: ByteRange) -> &[(BlockRange, Option<u64>)] {
        let from = self.extents.partition_point(|(blocks, _)| byte_range(*blocks).end() <= range.offset);
        let touching = self.extents[from..].iter();
        let count = touching.take_while(|(blocks, _)| blocks.start.byte_offset() < range.end()).count();
        &self.extents[from..from + count]
    }
}

const fn byte_range(blocks: BlockRange) -> ByteRange {
    ByteRange::new(blocks.start.byte_offset(), blocks.count * BLOCK_BYTES)
}

/// The disk of an image, changed. Windows without changes have their chunk.
pub(super) struct ChangedDisk {
    image: Arc<Image>,
    changes: DiskChanges,
    tools: Mutex<Decompressor>,
}

impl std::fmt::Debug for ChangedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangedDisk").field("image", &self.image).finish_non_exhaustive()
    }
}

impl ChangedDisk {
    pub(super) fn new(image: Arc<Image>, changes: DiskChanges) -> Self {
        Self { image, changes, tools: Mutex::new(Decompressor::new()) }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.image.disk_bytes()
    }

    /// The length that the image's disk shows, unless something was written behind it.
    pub(super) fn file_bytes(&self) -> Result<u64, SourceError> {
        let shown = self.image.exact_bytes();
        let mut behind = vec![0; to_usize(self.bytes() - shown)];
        self.read_at(shown, &mut behind)?;
        Ok(if behind.iter().all(|byte| *byte == 0) { shown } else { self.bytes() })
    }

    pub(super) fn table_blocks(&self) -> u64 {
        self.image.superblock().features.table_blocks()
    }

    /// The disk that chunks of this one have blocks of.
    pub(super) fn base(&self) -> Option<BaseRef> {
        self.image.superblock().base
    }

    pub(super) fn data_ranges(&self) -> Result<Vec<ByteRange>, SourceError> {
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < self.bytes() {
            let rest = ByteRange::new(at, self.bytes() - at);
            for found in self.image.allocation(rest, usize::MAX).map_err(image)? {
                if !found.zero {
                    ranges.push(ByteRange::new(at, found.len));
                }
                at += found.len;
            }
        }
        let written = self.changes.extents.iter().filter(|(_, place)| place.is_some());
        ranges.extend(written.map(|(blocks, _)| byte_range(*blocks)));
        ranges.sort_unstable_by_key(|range| range.offset);
        Ok(ranges)
    }

    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        self.read_windows(offset, buf, &mut |_| {})
    }

    /// Fills `buf` with the disk's bytes from `offset`; `each` gets the chunk of each window of them in turn,
    /// without its raw bytes, where it has one that is not changed.
    pub(super) fn read_windows(
        &self,
        offset: u64,
        buf: &mut [u8],
        each: &mut dyn FnMut(Option<LoadedChunk>),
    ) -> Result<(), SourceError> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let window_bytes = self.image.window_bytes();
            let (window, from) = (at / window_bytes, at % window_bytes);
            let (now, later) = rest.split_at_mut(rest.len().min(to_usize(window_bytes - from)));
            let range = ByteRange::new(at, now.len() as u64);
            let mut loaded = self.image.load_chunk(window, &mut self.tools.lock()).map_err(image)?;
            match &mut loaded {
                Some(chunk) => {
                    now.copy_from_slice(&chunk.raw[to_usize(from)..][..now.len()]);
                    chunk.raw = Vec::new();
                }
                None => now.fill(0),
            }
            let changes = self.changes.touching(range);
            for (blocks, place) in changes {
                self.change(range, byte_range(*blocks), *place, now)?;
            }
            // Windows of a disk that was not read have no digests, and no chunks that could be kept.
            each(loaded.filter(|loaded| changes.is_empty() && loaded.chunk.has_digest()));
            at = range.end();
            rest = later;
        }
        Ok(())
    }

    /// Puts the part of a run that lies in `range` over its bytes.
    fn change(
        &self,
        range: ByteRange,
        run: ByteRange,
        place: Option<u64>,
        bytes: &mut [u8],
    ) -> Result<(), SourceError> {
        let (start, end) = (run.offset.max(range.offset), run.end().min(range.end()));
        let part = &mut bytes[to_usize(start - range.offset)..to_usize(end - range.offset)];
        let Some(place) = place else {
            part.fill(0);
            return Ok(());
        };
        let (offset, len) = (place + (start - run.offset), end - start);
        (self.changes.read)(offset, part).map_err(|error| {
            let path = self.changes.path.clone();
            SourceError::Read { path, offset, len, error }
        })
    }
}

fn image(error: hs_image::ImageError) -> SourceError {
    SourceError::Image(Box::new(error))
}

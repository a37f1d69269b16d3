//! Reads the data of the tree's files once before the file system is made: to count the blocks that are
//! not zeros, which is what `mkfs.ext4 -d` stores, and to hash them.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use hs_units::{BLOCK_BYTES, to_usize};
use rustix::fs::{OFlags, SeekFrom};

use super::SourceError;
use super::tree::unreadable;

/// What a file needs in the file system.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct UsedBlocks {
    /// Blocks that are not all zeros.
    pub(super) blocks: u64,
    /// Runs of consecutive such blocks.
    pub(super) runs: u64,
}

/// Reads files one after the other with one buffer and one digest of all their data.
pub(super) struct FileReader {
    buffer: Vec<u8>,
    data: blake3::Hasher,
    bytes: u64,
}

const BLOCK: usize = to_usize(BLOCK_BYTES);
const ZEROS: [u8; BLOCK] = [0; BLOCK];

impl FileReader {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; 256 * BLOCK], data: blake3::Hasher::new(), bytes: 0 }
    }

    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The digest of the blocks that are not zeros of all files read, in order. Which blocks they are is in
    /// the `runs` digest given to [`FileReader::read`], so the two together name the content, however its
    /// zeros are stored.
    pub(super) fn digest(&self) -> blake3::Hash {
        self.data.finalize()
    }

    /// Reads the file at `path`, which has `file_bytes`, and adds its runs of blocks to `runs`.
    pub(super) fn read(
        &mut self,
        path: &Path,
        file_bytes: u64,
        runs: &mut blake3::Hasher,
    ) -> Result<UsedBlocks, SourceError> {
        // The path may have become a FIFO or a link since it was looked at.
        let file = File::options()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(path)
            .map_err(|error| unreadable(path, error))?;
        let mut run = Runs { hasher: runs, used: UsedBlocks::default(), next: None, start: 0 };
        let mut position = 0;
        while let Some((start, end)) = next_data(&file, position, file_bytes) {
            // Holes of file systems with smaller blocks may start within a block.
            let start = (start - start % BLOCK_BYTES).max(position);
            let end = end.next_multiple_of(BLOCK_BYTES).min(file_bytes);
            self.read_range(&file, path, start..end, &mut run)?;
            position = end;
        }
        Ok(run.finish())
    }

    fn read_range(
        &mut self,
        file: &File,
        path: &Path,
        range: std::ops::Range<u64>,
        run: &mut Runs<'_>,
    ) -> Result<(), SourceError> {
        let mut position = range.start;
        while position < range.end {
            let len = to_usize((range.end - position).min(self.buffer.len() as u64));
            let buffer = &mut self.buffer[..len];
            file.read_exact_at(buffer, position).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => SourceError::Changed { path: path.to_owned() },
                _ => SourceError::Unreadable { path: path.to_owned(), error },
            })?;
            self.bytes += len as u64;
            // Neighbouring blocks are hashed in one call, which is several times quicker.
            let mut unhashed = 0;
            for (index, block) in buffer.chunks(BLOCK).enumerate() {
                if *block == ZEROS[..block.len()] {
                    self.data.update(&buffer[unhashed..index * BLOCK]);
                    unhashed = index * BLOCK + block.len();
                } else {
                    run.add(position / BLOCK_BYTES + index as u64);
                }
            }
            self.data.update(&buffer[unhashed..]);
            position += len as u64;
        }
        Ok(())
    }
}

/// The next range with data at or after `position`; the whole rest where the file system knows no holes.
fn next_data(file: &File, position: u64, file_bytes: u64) -> Option<(u64, u64)> {
    if position >= file_bytes {
        return None;
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(position)) {
        Ok(start) if start < file_bytes => start,
        Ok(_) | Err(rustix::io::Errno::NXIO) => return None,
        Err(_) => return Some((position, file_bytes)),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(file_bytes);
    Some((start, end.clamp(start + 1, file_bytes)))
}

/// Joins the blocks of one file to runs.
struct Runs<'a> {
    hasher: &'a mut blake3::Hasher,
    used: UsedBlocks,
    start: u64,
    /// The block after the run under way.
    next: Option<u64>,
}

impl Runs<'_> {
    fn add(&mut self, block: u64) {
        if self.next != Some(block) {
            self.end_run();
            self.start = block;
            self.used.runs += 1;
        }
        self.used.blocks += 1;
        self.next = Some(block + 1);
    }

    fn end_run(&mut self) {
        if let Some(end) = self.next.take() {
            self.hasher.update(&self.start.to_le_bytes()).update(&end.to_le_bytes());
        }
    }

    fn finish(mut self) -> UsedBlocks {
        self.end_run();
        // No run ends at 0, so this ends the list.
        self.hasher.update(&[0; 16]);
        self.used
    }
}

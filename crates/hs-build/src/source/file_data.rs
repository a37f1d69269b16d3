//! Reads the data of the tree's files once before the file system is made: to find the blocks that are not
//! zeros, which is what is stored, and to hash them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use hs_ext4::DataRun;
use hs_units::{BLOCK_BYTES, to_u32, to_usize};
use rustix::fs::SeekFrom;

use super::libraries;
use super::like::ContentDigest;

/// The bytes of one file.
pub(super) trait Content {
    /// The next range with data at or after `position` in a file of `file_bytes`; nothing when only holes
    /// follow.
    fn next_data(&self, position: u64, file_bytes: u64) -> Option<(u64, u64)>;

    /// Fills `buf` from `offset`. A file that is shorter is an unexpected end.
    fn read_part(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Content for File {
    fn next_data(&self, position: u64, file_bytes: u64) -> Option<(u64, u64)> {
        next_data(self, position, file_bytes)
    }

    fn read_part(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buf, offset)
    }
}

/// Reads files one after the other with one buffer and one digest of all their data.
pub(super) struct FileReader {
    buffer: Vec<u8>,
    data: blake3::Hasher,
    /// That of the file which is being read.
    content: Option<blake3::Hasher>,
    bytes: u64,
    is_elf: bool,
}

const BLOCK: usize = to_usize(BLOCK_BYTES);
const ZEROS: [u8; BLOCK] = [0; BLOCK];

impl FileReader {
    /// Each file gets a digest of its own, if `has_contents`.
    pub(super) fn new(has_contents: bool) -> Self {
        let content = has_contents.then(blake3::Hasher::new);
        Self { buffer: vec![0; 256 * BLOCK], data: blake3::Hasher::new(), content, bytes: 0, is_elf: false }
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

    /// Whether the file that was read last begins as programs and libraries do.
    pub(super) const fn is_elf(&self) -> bool {
        self.is_elf
    }

    /// The digest of the file that was read last, if it has blocks that are not zeros.
    pub(super) fn content(&mut self) -> Option<ContentDigest> {
        let content = self.content.as_mut().filter(|content| content.count() > 0)?;
        let digest = content.finalize();
        content.reset();
        Some(digest)
    }

    /// Reads a file of `file_bytes`, and gives its runs of blocks, which are added to `names` too. A file
    /// that is shorter is an unexpected end.
    pub(super) fn read(
        &mut self,
        file: &dyn Content,
        file_bytes: u64,
        names: &mut blake3::Hasher,
    ) -> io::Result<Vec<DataRun>> {
        let mut runs = Vec::new();
        let mut position = 0;
        self.is_elf = false;
        while let Some((start, end)) = file.next_data(position, file_bytes) {
            // Holes of file systems with smaller blocks may start within a block.
            let start = (start - start % BLOCK_BYTES).max(position);
            let end = end.next_multiple_of(BLOCK_BYTES).min(file_bytes);
            self.read_range(file, start..end, &mut runs)?;
            position = end;
        }
        for run in &runs {
            names.update(&run.first.to_le_bytes()).update(&run.blocks.to_le_bytes());
        }
        // No run has no blocks, so this ends the list.
        names.update(&[0; 8]);
        Ok(runs)
    }

    fn read_range(
        &mut self,
        file: &dyn Content,
        range: std::ops::Range<u64>,
        runs: &mut Vec<DataRun>,
    ) -> io::Result<()> {
        let mut position = range.start;
        while position < range.end {
            let len = to_usize((range.end - position).min(self.buffer.len() as u64));
            let buffer = &mut self.buffer[..len];
            file.read_part(buffer, position)?;
            self.bytes += len as u64;
            self.is_elf |= position == 0 && buffer.starts_with(libraries::MAGIC);
            // Neighbouring blocks are hashed in one call, which is several times quicker.
            let mut unhashed = 0;
            for (index, block) in buffer.chunks(BLOCK).enumerate() {
                if *block == ZEROS[..block.len()] {
                    hash(&mut self.data, self.content.as_mut(), &buffer[unhashed..index * BLOCK]);
                    unhashed = index * BLOCK + block.len();
                } else {
                    add(runs, to_u32(position / BLOCK_BYTES + index as u64));
                }
            }
            hash(&mut self.data, self.content.as_mut(), &buffer[unhashed..]);
            position += len as u64;
        }
        Ok(())
    }
}

/// Adds neighbouring blocks, of which the last may end early, to the digest of all data and to that of their
/// file, where it is filled up.
fn hash(data: &mut blake3::Hasher, content: Option<&mut blake3::Hasher>, blocks: &[u8]) {
    data.update(blocks);
    if let Some(content) = content {
        content.update(blocks).update(&ZEROS[..blocks.len().next_multiple_of(BLOCK) - blocks.len()]);
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

/// Adds a block to the last run, or as a run of its own.
fn add(runs: &mut Vec<DataRun>, block: u32) {
    match runs.last_mut() {
        Some(run) if run.first + run.blocks == block => run.blocks += 1,
        _ => runs.push(DataRun { first: block, blocks: 1 }),
    }
}

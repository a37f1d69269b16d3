//! The record of one start.

use std::collections::HashSet;

use hs_units::{BLOCK_BYTES, BlockRange, Digest, Lba, Nanos};

use crate::error::{FileFault, Limit, ReadFault, TraceError};
use crate::{BlockSet, FileMap, ProfileHead, limits};

/// Kernel read-ahead on the device that was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadAhead {
    /// Switched off: the reads are exactly what was asked for.
    #[default]
    Off,
    /// On, with a window of this many KiB.
    Kernel {
        /// The window, as in `queue/read_ahead_kb`.
        kib: u32,
    },
}

/// One demand read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// When it arrived, since the first moment of recording.
    pub at: Nanos,
    /// What it asked for; at least one block.
    pub blocks: BlockRange,
    /// From its arrival until it was answered.
    pub cost: Nanos,
}

/// The first 16 bytes of the BLAKE3 digest of one block: enough to find a block again elsewhere. It does not
/// protect against blocks that are made to collide on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BlockDigest(pub [u8; 16]);

impl BlockDigest {
    /// The digest of `block`, at most [`BLOCK_BYTES`] bytes. A shorter one, which only the end of a
    /// disk can be, counts as filled up with zeros.
    ///
    /// # Panics
    /// When `block` is longer than a block.
    #[must_use]
    pub fn of(block: &[u8]) -> Self {
        const ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
        assert!(block.len() <= ZEROS.len(), "a block has {BLOCK_BYTES} bytes at most");
        let mut hasher = blake3::Hasher::new();
        hasher.update(block).update(&ZEROS[block.len()..]);
        let mut digest = [0; 16];
        digest.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(digest)
    }
}

/// A run of file pages that lie in consecutive blocks; a page is as large as a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRun {
    /// Number of the first page in its file.
    pub page: u64,
    /// Where the pages lie; at least one block.
    pub blocks: BlockRange,
}

/// A file of which the start used blocks, with all of its blocks: those that were not read only show how long
/// the file is and where the rest of it lies. Older recordings name only what was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileUse {
    /// Absolute path inside the file system; no `..`, no NUL.
    pub path: String,
    /// Inode number inside the file system; never zero.
    pub inode: u64,
    /// Its pages, in any order.
    pub runs: Vec<FileRun>,
}

/// The record of one start. The recorder sets the fields directly; [`Profile::validate`] states the rules
/// between them, and both [`Profile::encode`] and [`Profile::decode`] enforce these.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// Digest of the disk that was read; names the content, whatever the image's layout.
    pub disk_digest: Digest,
    /// Size of that disk.
    pub disk_bytes: u64,
    /// The command of the start, as a user would type it.
    pub command: String,
    /// What the image lay on, by name.
    pub medium: String,
    /// Kernel read-ahead during the recording.
    pub read_ahead: ReadAhead,
    /// When the program was ready, since the first moment of recording; `None` when that is not known.
    pub ready: Option<Nanos>,
    /// When the recording ended, since its first moment.
    pub ended: Nanos,
    /// Every demand read, in order of arrival.
    pub reads: Vec<Read>,
    /// One for each distinct block, in the order of [`Profile::first_access`].
    pub digests: Vec<BlockDigest>,
    /// Which file pages the recorded blocks are; empty when unknown.
    pub files: Vec<FileUse>,
}

impl Profile {
    /// The blocks read, each where it was first read, as runs: the pieces of each read that no
    /// earlier read had touched, ascending within one read.
    #[must_use]
    pub fn first_access_runs(&self) -> Vec<BlockRange> {
        let mut seen = BlockSet::new();
        let mut runs = Vec::new();
        for read in &self.reads {
            seen.insert(read.blocks, |run| runs.push(run));
        }
        runs
    }

    /// The distinct blocks in the order in which they were first read.
    #[must_use]
    pub fn first_access(&self) -> Vec<Lba> {
        self.first_access_runs().into_iter().flat_map(BlockRange::blocks).collect()
    }

    /// The distinct blocks as a set.
    #[must_use]
    pub fn block_set(&self) -> BlockSet {
        self.reads.iter().map(|read| read.blocks).collect()
    }

    /// The distinct blocks as maximal runs, by address.
    #[must_use]
    pub fn extents(&self) -> Vec<BlockRange> {
        self.block_set().runs().collect()
    }

    /// The paths of the files that the start read of, in the order of their first reads. Files that are only
    /// named are not among them.
    #[must_use]
    pub fn files_in_first_access(&self) -> Vec<&str> {
        let owners = FileMap::new(&self.files);
        let (mut seen, mut paths) = (HashSet::new(), Vec::new());
        for run in self.first_access_runs() {
            let read = owners.split(run).into_iter().filter_map(|piece| piece.page_of);
            paths.extend(read.map(|(file, _)| file.path.as_str()).filter(|path| seen.insert(*path)));
        }
        paths
    }

    /// How many distinct blocks were read.
    #[must_use]
    pub fn distinct_blocks(&self) -> u64 {
        self.block_set().blocks()
    }

    /// For each read, the program's own time until it asked: the time since the first moment of recording
    /// without the time during which at least one earlier read was under way. This is the time that a
    /// prefetcher has when storage costs nothing. Deadlines come from it (docs/decisions/006-late-reads.md),
    /// not from raw time stamps, which contain the waits that prefetching removes.
    ///
    /// One pass suffices, since reads are in order of arrival: the part of the union of service intervals
    /// behind a read's arrival is one piece, up to the latest answer so far.
    #[must_use]
    pub fn think_times(&self) -> Vec<Nanos> {
        let mut busy = Nanos::ZERO;
        let mut busy_until = Nanos::ZERO;
        self.reads
            .iter()
            .map(|read| {
                let ahead = busy_until.saturating_sub(read.at);
                let waited = busy.saturating_sub(ahead);
                let answered = read.at + read.cost;
                if answered > busy_until {
                    busy += answered.saturating_sub(busy_until.max(read.at));
                    busy_until = answered;
                }
                read.at.saturating_sub(waited)
            })
            .collect()
    }

    /// The program's own time until it was ready, or until the end of a recording that does not know that: as
    /// in [`Self::think_times`], without what it waited for storage.
    #[must_use]
    pub fn own_time(&self) -> Nanos {
        let end = self.ready.unwrap_or(self.ended);
        let (mut waited, mut busy_until) = (Nanos::ZERO, Nanos::ZERO);
        for read in self.reads.iter().take_while(|read| read.at < end) {
            let answered = (read.at + read.cost).min(end);
            waited += answered.saturating_sub(busy_until.max(read.at));
            busy_until = busy_until.max(answered);
        }
        end.saturating_sub(waited)
    }

    /// Whether this profile was recorded on the disk with this `digest` and size.
    ///
    /// # Errors
    /// [`TraceError::WrongDisk`] when it was another, [`TraceError::WrongDiskSize`] when only the
    /// size differs.
    pub fn check_disk(&self, digest: Digest, bytes: u64) -> Result<(), TraceError> {
        ProfileHead::from(self).check_disk(digest, bytes)
    }

    /// Checks the rules between the fields and the [`limits`]: reads sorted by arrival, not empty
    /// and inside the disk; a digest for each distinct block; ready not after the end; files with
    /// plain absolute paths, an inode number, and runs inside the disk.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(&self) -> Result<(), TraceError> {
        at_most(Limit::DiskBytes, self.disk_bytes, limits::MAX_DISK_BYTES)?;
        at_most(Limit::CommandBytes, self.command.len() as u64, limits::MAX_COMMAND_BYTES)?;
        at_most(Limit::MediumBytes, self.medium.len() as u64, limits::MAX_MEDIUM_BYTES)?;
        at_most(Limit::Nanos, self.ended.0, limits::MAX_NANOS.0)?;
        if let Some(ready) = self.ready.filter(|ready| *ready > self.ended) {
            return Err(TraceError::ReadyAfterEnd { ready_ns: ready.0, ended_ns: self.ended.0 });
        }
        self.validate_reads()?;
        self.validate_files()
    }

    fn validate_reads(&self) -> Result<(), TraceError> {
        at_most(Limit::Reads, self.reads.len() as u64, limits::MAX_READS)?;
        let mut previous = Nanos::ZERO;
        for (index, read) in self.reads.iter().enumerate() {
            at_most(Limit::Nanos, read.at.0, limits::MAX_NANOS.0)?;
            at_most(Limit::Nanos, read.cost.0, limits::MAX_NANOS.0)?;
            let fault = |fault| Err(TraceError::BadRead { index, fault });
            if read.blocks.count == 0 {
                return fault(ReadFault::Empty);
            }
            if !fits(read.blocks, self.disk_bytes) {
                return fault(ReadFault::OutsideDisk);
            }
            if read.at < previous {
                return fault(ReadFault::Unsorted);
            }
            previous = read.at;
        }
        let (expected, found) = (self.distinct_blocks(), self.digests.len() as u64);
        at_most(Limit::Digests, expected, limits::MAX_DIGESTS)?;
        if expected == found { Ok(()) } else { Err(TraceError::DigestCount { expected, found }) }
    }

    fn validate_files(&self) -> Result<(), TraceError> {
        at_most(Limit::Files, self.files.len() as u64, limits::MAX_FILES)?;
        let runs = self.files.iter().map(|file| file.runs.len() as u64).sum();
        at_most(Limit::Runs, runs, limits::MAX_RUNS)?;
        for (index, file) in self.files.iter().enumerate() {
            at_most(Limit::PathBytes, file.path.len() as u64, limits::MAX_PATH_BYTES)?;
            if let Some(fault) = file_fault(file, self.disk_bytes) {
                return Err(TraceError::BadFile { index, fault });
            }
        }
        Ok(())
    }
}

fn file_fault(file: &FileUse, disk_bytes: u64) -> Option<FileFault> {
    let path = &file.path;
    if !path.starts_with('/') || path.contains('\0') || path.split('/').any(|name| name == "..") {
        return Some(FileFault::Path);
    }
    if file.inode == 0 {
        return Some(FileFault::Inode);
    }
    file.runs.iter().find_map(|run| {
        if run.blocks.count == 0 {
            Some(FileFault::EmptyRun)
        } else if !fits(run.blocks, disk_bytes) {
            Some(FileFault::OutsideDisk)
        } else if run.page.checked_add(run.blocks.count).is_none_or(|end| end > limits::MAX_PAGES) {
            Some(FileFault::Page)
        } else {
            None
        }
    })
}

fn fits(blocks: BlockRange, disk_bytes: u64) -> bool {
    let disk_blocks = disk_bytes.div_ceil(BLOCK_BYTES);
    blocks.start.0.checked_add(blocks.count).is_some_and(|end| end <= disk_blocks)
}

pub(crate) fn at_most(what: Limit, found: u64, limit: u64) -> Result<(), TraceError> {
    if found <= limit { Ok(()) } else { Err(TraceError::OverLimit { what, limit, found }) }
}

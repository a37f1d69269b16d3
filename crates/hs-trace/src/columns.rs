//! The sections before compression: columns of numbers and texts. `docs/PROFILE.md` draws them.

use hs_units::{BlockRange, Lba, Nanos};

use crate::error::{Section, Syntax, TraceError};
use crate::profile::{BlockDigest, FileRun, FileUse, Profile, Read};
use crate::varint;

/// The fewest bytes that a read, a file and a run can take; a count that the bytes at hand
/// cannot hold is refused before anything is allocated for it.
const MIN_READ_BYTES: usize = 4;
const MIN_FILE_BYTES: usize = 4;
const MIN_RUN_BYTES: usize = 3;

pub(crate) fn put_text(profile: &Profile) -> Vec<u8> {
    let mut out = Vec::new();
    for text in [&profile.command, &profile.medium] {
        varint::put(&mut out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
    }
    out
}

pub(crate) fn put_reads(reads: &[Read]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = Nanos::ZERO;
    for read in reads {
        varint::put(&mut out, (read.at - at).0);
        at = read.at;
    }
    put_starts(&mut out, reads.iter().map(|read| read.blocks));
    reads.iter().for_each(|read| varint::put(&mut out, read.blocks.count - 1));
    reads.iter().for_each(|read| varint::put(&mut out, read.cost.0));
    out
}

pub(crate) fn put_digests(digests: &[BlockDigest]) -> Vec<u8> {
    digests.iter().flat_map(|digest| digest.0).collect()
}

pub(crate) fn put_files(files: &[FileUse]) -> Vec<u8> {
    let mut out = Vec::new();
    files.iter().for_each(|file| varint::put(&mut out, file.inode));
    files.iter().for_each(|file| varint::put(&mut out, file.runs.len() as u64));
    files.iter().for_each(|file| varint::put(&mut out, file.path.len() as u64));
    files.iter().for_each(|file| out.extend_from_slice(file.path.as_bytes()));
    let runs = || files.iter().flat_map(|file| &file.runs).map(|run| run.blocks);
    put_starts(&mut out, runs());
    runs().for_each(|blocks| varint::put(&mut out, blocks.count - 1));
    for file in files {
        let mut page = 0;
        for run in &file.runs {
            varint::put_step(&mut out, page, run.page);
            page = run.page + run.blocks.count;
        }
    }
    out
}

/// Each start as a step from the end of the run before it.
fn put_starts(out: &mut Vec<u8>, runs: impl Iterator<Item = BlockRange>) {
    let mut end = 0;
    for run in runs {
        varint::put_step(out, end, run.start.0);
        end = run.end().0;
    }
}

pub(crate) fn take_text(raw: &[u8]) -> Result<(String, String), TraceError> {
    let mut cursor = Cursor::new(Section::Text, raw);
    let mut text = || {
        let len = cursor.number()?;
        cursor.text(len)
    };
    let (command, medium) = (text()?, text()?);
    cursor.end()?;
    Ok((command, medium))
}

pub(crate) fn take_reads(raw: &[u8], count: usize) -> Result<Vec<Read>, TraceError> {
    let mut cursor = Cursor::new(Section::Reads, raw);
    cursor.expect_at_least(count, MIN_READ_BYTES)?;
    let mut reads = Vec::with_capacity(count);
    let mut at = 0_u64;
    for _ in 0..count {
        let step = cursor.number()?;
        at = at.checked_add(step).ok_or_else(|| cursor.fault(Syntax::Range))?;
        reads.push(Read { at: Nanos(at), blocks: BlockRange::new(Lba(0), 0), cost: Nanos::ZERO });
    }
    cursor.runs(&mut reads, |read| &mut read.blocks)?;
    for read in &mut reads {
        read.cost = Nanos(cursor.number()?);
    }
    cursor.end()?;
    Ok(reads)
}

pub(crate) fn take_digests(raw: &[u8], count: usize) -> Result<Vec<BlockDigest>, TraceError> {
    let (digests, rest) = raw.as_chunks::<16>();
    let offset = raw.len();
    let fault = |syntax| TraceError::SectionSyntax { section: Section::Digests, offset, syntax };
    match digests.len().cmp(&count) {
        core::cmp::Ordering::Less => Err(fault(Syntax::Short)),
        core::cmp::Ordering::Equal if rest.is_empty() => {
            Ok(digests.iter().map(|d| BlockDigest(*d)).collect())
        }
        _ => Err(fault(Syntax::Long)),
    }
}

/// How many files and, all together, how many runs.
#[derive(Clone, Copy)]
pub(crate) struct FileCounts {
    pub(crate) files: usize,
    pub(crate) runs: usize,
}

pub(crate) fn take_files(raw: &[u8], counts: FileCounts) -> Result<Vec<FileUse>, TraceError> {
    let mut cursor = Cursor::new(Section::Files, raw);
    cursor.expect_at_least(counts.files, MIN_FILE_BYTES)?;
    cursor.expect_at_least(counts.runs, MIN_RUN_BYTES)?;
    let inodes = cursor.numbers(counts.files)?;
    let run_counts = cursor.numbers(counts.files)?;
    let path_lens = cursor.numbers(counts.files)?;
    let sum = run_counts.iter().try_fold(0_u64, |sum, n| sum.checked_add(*n));
    if sum != Some(counts.runs as u64) {
        return Err(cursor.fault(Syntax::Range));
    }
    let mut files = Vec::with_capacity(counts.files);
    for (inode, path_len) in inodes.into_iter().zip(path_lens) {
        files.push(FileUse { path: cursor.text(path_len)?, inode, runs: Vec::new() });
    }
    let mut runs = vec![BlockRange::new(Lba(0), 0); counts.runs];
    cursor.runs(&mut runs, |run| run)?;
    let mut runs = runs.into_iter();
    for (file, run_count) in files.iter_mut().zip(run_counts) {
        let mut page = 0_u64;
        // The sum above bounds each count by the number of runs.
        file.runs.reserve_exact(run_count as usize);
        for blocks in runs.by_ref().take(run_count as usize) {
            let first = cursor.step(page)?;
            page = first.checked_add(blocks.count).ok_or_else(|| cursor.fault(Syntax::Range))?;
            file.runs.push(FileRun { page: first, blocks });
        }
    }
    cursor.end()?;
    Ok(files)
}

/// A place in a section's bytes; its errors say which section and where.
struct Cursor<'a> {
    section: Section,
    raw: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    const fn new(section: Section, raw: &'a [u8]) -> Self {
        Self { section, raw, rest: raw }
    }

    fn fault(&self, syntax: Syntax) -> TraceError {
        TraceError::SectionSyntax { section: self.section, offset: self.raw.len() - self.rest.len(), syntax }
    }

    /// Refuses a count that the bytes left cannot hold.
    fn expect_at_least(&self, count: usize, bytes_each: usize) -> Result<(), TraceError> {
        if count <= self.rest.len() / bytes_each { Ok(()) } else { Err(self.fault(Syntax::Short)) }
    }

    fn number(&mut self) -> Result<u64, TraceError> {
        varint::take(&mut self.rest).map_err(|syntax| self.fault(syntax))
    }

    fn numbers(&mut self, count: usize) -> Result<Vec<u64>, TraceError> {
        (0..count).map(|_| self.number()).collect()
    }

    fn step(&mut self, from: u64) -> Result<u64, TraceError> {
        varint::take_step(&mut self.rest, from).map_err(|syntax| self.fault(syntax))
    }

    fn text(&mut self, len: u64) -> Result<String, TraceError> {
        let bytes = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let (text, rest) = bytes.ok_or_else(|| self.fault(Syntax::Short))?;
        let text = core::str::from_utf8(text).map_err(|_| self.fault(Syntax::Utf8))?;
        self.rest = rest;
        Ok(text.to_owned())
    }

    /// Two columns, starts and then counts, into the block range of each item.
    ///
    /// The starts are steps from the end of the run before, which needs the second column, so they are kept
    /// as steps until then.
    fn runs<T>(
        &mut self,
        items: &mut [T],
        blocks: impl Fn(&mut T) -> &mut BlockRange,
    ) -> Result<(), TraceError> {
        let mut steps = Self { section: self.section, raw: self.raw, rest: self.rest };
        for _ in 0..items.len() {
            self.number()?;
        }
        let mut end = 0_u64;
        for item in items {
            let count = self.number()?.checked_add(1).ok_or_else(|| self.fault(Syntax::Range))?;
            let start = steps.step(end)?;
            end = start.checked_add(count).ok_or_else(|| steps.fault(Syntax::Range))?;
            *blocks(item) = BlockRange::new(Lba(start), count);
        }
        Ok(())
    }

    fn end(&self) -> Result<(), TraceError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.fault(Syntax::Long)) }
    }
}

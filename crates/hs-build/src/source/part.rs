//! A partition of a source, which then is all of it.

use std::path::Path;

use hs_format::FileKind;
use hs_units::{BLOCK_BYTES, ByteRange, to_usize};
use hs_volumes::{Contents, Reader, examine};

use super::{Source, SourceError};

impl Source {
    /// What the disk holds: file systems and partitions.
    ///
    /// # Errors
    /// Those of [`Source::read_at`].
    pub fn contents(&self) -> Result<Contents, SourceError> {
        let mut read = |offset: u64, bytes: &mut [u8]| self.read_at(offset, bytes);
        examine(&mut Reader::new(self.file_bytes(), &mut read))
    }

    /// The partition that `word` names, as a source of its own; `path` is the disk's name in errors. See
    /// [`hs_volumes::Table::choose`].
    ///
    /// # Errors
    /// [`SourceError::Partition`], and those of [`Source::read_at`].
    pub fn partition(mut self, path: &Path, word: &str) -> Result<Self, SourceError> {
        let contents = self.contents()?;
        let chosen = contents.choose(word);
        let chosen = chosen.map_err(|choice| SourceError::Partition { path: path.to_owned(), choice })?;
        self.part = Some(chosen.range);
        let mut start = vec![0; to_usize(self.bytes().min(FileKind::NEEDED_BYTES as u64))];
        self.read_at(0, &mut start)?;
        self.content = FileKind::of(&start);
        Ok(self)
    }

    /// Fills `buf` from `offset` of the part; behind its end are zeros.
    pub(super) fn read_part(&self, part: ByteRange, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let stored = to_usize(part.len.saturating_sub(offset).min(buf.len() as u64));
        let (stored, padding) = buf.split_at_mut(stored);
        padding.fill(0);
        // The part lies on the disk, so an offset beyond the part gives no bytes to read.
        if stored.is_empty() { Ok(()) } else { self.disk.read_at(part.offset + offset, stored) }
    }
}

/// What of the disk's ranges lies in the part, counted from its start and widened to whole blocks.
pub(super) fn cut(ranges: &[ByteRange], part: ByteRange) -> Vec<ByteRange> {
    let mut found: Vec<ByteRange> = Vec::new();
    for range in ranges {
        let (start, end) = (range.offset.max(part.offset), range.end().min(part.end()));
        if start >= end {
            continue;
        }
        let (start, end) = (start - part.offset, (end - part.offset).next_multiple_of(BLOCK_BYTES));
        let start = start - start % BLOCK_BYTES;
        match found.last_mut() {
            Some(last) if last.end() >= start => last.len = last.len.max(end - last.offset),
            _ => found.push(ByteRange::new(start, end - start)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_from_the_start_of_the_part() {
        let part = ByteRange::new(512 * 63, 10_000);
        let ranges =
            [(0, 4096), (32_000, 512), (33_000, 4096), (36_000, 100), (41_000, 90_000), (1 << 20, 1)];
        let ranges = ranges.map(|(offset, len)| ByteRange::new(offset, len));
        assert_eq!(cut(&ranges, part), [ByteRange::new(0, 12_288)]);
        assert_eq!(cut(&ranges[..1], part), []);
        let all = [ByteRange::new(0, 1 << 30)];
        assert_eq!(cut(&all, part), [ByteRange::new(0, 12_288)]);
    }
}

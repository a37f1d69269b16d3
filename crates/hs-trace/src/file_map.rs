//! Which file a block belongs to.

use hs_units::{BlockRange, Lba};

use crate::{BlockSet, FileUse};

/// A run of blocks that are consecutive pages of one file, or of no known file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilePiece<'a> {
    /// The blocks.
    pub blocks: BlockRange,
    /// The file and the page that the first block is; `None` when no file is known for it.
    pub page_of: Option<(&'a FileUse, u64)>,
}

/// From blocks to files and pages; built once, used often.
#[derive(Clone, Debug, Default)]
pub struct FileMap<'a> {
    /// Disjoint, ascending, every one with a file.
    pieces: Vec<FilePiece<'a>>,
}

impl<'a> FileMap<'a> {
    /// The map of `files`. Where two claim a block (clones share them), the earlier one gets it.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = &'a FileUse>) -> Self {
        let mut taken = BlockSet::new();
        let mut pieces = Vec::new();
        for file in files {
            for run in &file.runs {
                taken.insert(run.blocks, |blocks| {
                    let page = run.page + (blocks.start.0 - run.blocks.start.0);
                    pieces.push(FilePiece { blocks, page_of: Some((file, page)) });
                });
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.blocks.start);
        Self { pieces }
    }

    /// Whether no file is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The file that holds `lba` and the page of it that `lba` is.
    #[must_use]
    pub fn locate(&self, lba: Lba) -> Option<(&'a FileUse, u64)> {
        let after = self.pieces.partition_point(|piece| piece.blocks.start <= lba);
        let piece = self.pieces[..after].last().filter(|piece| piece.blocks.contains(lba))?;
        piece.page_of.map(|(file, page)| (file, page + (lba.0 - piece.blocks.start.0)))
    }

    /// `range` cut into pieces of one file each, ascending, as long as they can be.
    #[must_use]
    pub fn split(&self, range: BlockRange) -> Vec<FilePiece<'a>> {
        let mut found: Vec<FilePiece<'a>> = Vec::new();
        let mut push = |start: u64, end: u64, page_of: Option<(&'a FileUse, u64)>| {
            if start == end {
                return;
            }
            if let Some(last) = found.last_mut()
                && let (Some((file, page)), Some((next, next_page))) = (last.page_of, page_of)
                && file.inode == next.inode
                && page + last.blocks.count == next_page
            {
                last.blocks.count += end - start;
                return;
            }
            found.push(FilePiece { blocks: BlockRange::new(Lba(start), end - start), page_of });
        };
        let range_end = range.end().0;
        let mut at = range.start.0;
        let first = self.pieces.partition_point(|piece| piece.blocks.end().0 <= at);
        for piece in self.pieces[first..].iter().take_while(|piece| piece.blocks.start.0 < range_end) {
            let start = piece.blocks.start.0.max(at);
            let end = piece.blocks.end().0.min(range_end);
            push(at, start, None);
            let page_of = piece.page_of.map(|(file, page)| (file, page + (start - piece.blocks.start.0)));
            push(start, end, page_of);
            at = end;
        }
        push(at, range_end, None);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileRun;

    fn file(path: &str, inode: u64, runs: &[(u64, u64, u64)]) -> FileUse {
        let run = |&(page, start, count)| FileRun { page, blocks: BlockRange::new(Lba(start), count) };
        FileUse { path: path.to_owned(), inode, runs: runs.iter().map(run).collect() }
    }

    #[test]
    fn blocks_find_their_pages_and_the_earlier_file_wins() {
        let files = [file("/a", 7, &[(4, 10, 3), (7, 13, 2)]), file("/b", 8, &[(0, 14, 4)])];
        let map = FileMap::new(&files);
        let at = |lba| map.locate(Lba(lba)).map(|(file, page)| (file.path.as_str(), page));
        assert_eq!(at(9), None);
        assert_eq!(at(10), Some(("/a", 4)));
        assert_eq!(at(14), Some(("/a", 8)));
        assert_eq!(at(15), Some(("/b", 1)));
        assert_eq!(at(18), None);
    }

    #[test]
    fn a_split_covers_the_range_and_joins_what_continues() {
        let files = [file("/a", 7, &[(4, 10, 3), (7, 13, 2)]), file("/b", 8, &[(0, 20, 4)])];
        let map = FileMap::new(&files);
        let cut: Vec<_> = map
            .split(BlockRange::new(Lba(8), 14))
            .into_iter()
            .map(|p| (p.blocks.start.0, p.blocks.count, p.page_of.map(|(file, page)| (file.inode, page))))
            .collect();
        assert_eq!(cut, [(8, 2, None), (10, 5, Some((7, 4))), (15, 5, None), (20, 2, Some((8, 0)))]);
        assert!(map.split(BlockRange::new(Lba(11), 0)).is_empty());
    }
}

//! Which file pages the blocks of a disk are, for the kernel reads ahead in files, not in what they lie on.

use std::collections::BTreeMap;
use std::ops::Range;

use hs_trace::{FileMap, FileUse, Profile};
use hs_units::{BlockRange, Lba};

/// A file of the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct File {
    /// From its pages to blocks: the end of each run and its first block, by its first page.
    runs: BTreeMap<u64, (u64, u64)>,
    /// Pages that it has.
    pub(crate) pages: u64,
    /// Whether programs map it into memory, where its pages come by faults.
    pub(crate) mapped: bool,
    /// Which of them are executed, where that is known.
    pub(crate) code: Range<u64>,
}

/// A piece of consecutive blocks: of a file, or of the disk's own metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageRun {
    /// The file's number.
    pub(crate) file: Option<usize>,
    /// The first of its pages; the block where it is no file's.
    pub(crate) page: u64,
    /// How many.
    pub(crate) pages: u64,
}

/// All files of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    files: Vec<File>,
    /// By first block: the end, the file, its page.
    places: BTreeMap<u64, (u64, usize, u64)>,
    /// Where inodes lie.
    tables: Vec<BlockRange>,
}

impl Files {
    /// The files of `profile`, when it knows them as wholes and not only what was read of them: a recording
    /// of a program does since it names all blocks of a file (docs/PROFILE.md, section 3). One of a guest
    /// names none.
    #[must_use]
    pub fn recorded(profile: &Profile) -> Option<Self> {
        let read = profile.block_set();
        let beyond = |blocks: BlockRange| {
            let mut beyond = false;
            read.split(blocks, |_, inside| beyond |= !inside);
            beyond
        };
        if !profile.files.iter().flat_map(|file| &file.runs).any(|run| beyond(run.blocks)) {
            return None;
        }
        let map = FileMap::new(&profile.files);
        let mut places = BTreeMap::new();
        let files = profile.files.iter().enumerate().map(|(number, file)| {
            let mut runs = BTreeMap::new();
            for run in &file.runs {
                // Blocks that an earlier file has as well are cached once here; the kernel would have them
                // twice.
                let mut page = run.page;
                for piece in map.split(run.blocks) {
                    let (first, end) = (piece.blocks.start.0, piece.blocks.end().0);
                    if piece.page_of.is_some_and(|(owner, _)| std::ptr::eq(owner, file)) {
                        places.insert(first, (end, number, page));
                    }
                    runs.insert(page, (page + piece.blocks.count, first));
                    page += piece.blocks.count;
                }
            }
            let pages = runs.values().map(|(end, _)| *end).max().unwrap_or_default();
            File { runs, pages, mapped: is_mapped(file), code: 0..0 }
        });
        let files = files.collect();
        Some(Self { files, places, tables: Vec::new() })
    }

    /// With the places of inode tables, where they are known.
    #[must_use]
    pub fn with_inode_tables(self, tables: Vec<BlockRange>) -> Self {
        Self { tables, ..self }
    }

    /// With the pages that are executed, of each file that is mapped: `code` says which they are by the
    /// file's first block.
    #[must_use]
    pub fn with_code(mut self, mut code: impl FnMut(Lba) -> Option<Range<u64>>) -> Self {
        for file in self.files.iter_mut().filter(|file| file.mapped) {
            let first = file.runs.get(&0).map(|(_, block)| Lba(*block));
            file.code = first.and_then(&mut code).unwrap_or(0..0);
        }
        self
    }

    /// The inode table that holds `block`.
    pub(crate) fn inode_table(&self, block: u64) -> Option<BlockRange> {
        self.tables.iter().copied().find(|table| table.contains(Lba(block)))
    }

    pub(crate) fn all(&self) -> &[File] {
        &self.files
    }

    /// What `block` is the first of, up to `end` at most.
    pub(crate) fn locate(&self, block: u64, end: u64) -> PageRun {
        let before = self.places.range(..=block).next_back();
        if let Some((first, (run_end, file, page))) = before.filter(|(_, (run_end, ..))| block < *run_end) {
            let pages = end.min(*run_end) - block;
            return PageRun { file: Some(*file), page: page + (block - first), pages };
        }
        let next = self.places.range(block..).next().map_or(end, |(next, _)| end.min(*next));
        PageRun { file: None, page: block, pages: next - block }
    }

    /// Blocks of some pages of a file, in the order of the pages; holes have none.
    pub(crate) fn blocks(&self, file: usize, pages: Range<u64>) -> Vec<BlockRange> {
        let runs = &self.files[file].runs;
        let from = runs.range(..=pages.start).next_back().map_or(pages.start, |(first, _)| *first);
        runs.range(from..pages.end)
            .filter_map(|(first, (end, block))| {
                let (start, end) = (pages.start.max(*first), pages.end.min(*end));
                (start < end).then(|| BlockRange::new(Lba(block + (start - first)), end - start))
            })
            .collect()
    }
}

/// Whether a file is one that programs map: programs themselves, libraries, and what glibc has of a language.
/// All others are read. A recording does not say how a page was asked for, so this goes by names, as they are
/// in every distribution.
fn is_mapped(file: &FileUse) -> bool {
    let mut parts = file.path.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let folder = parts.next().unwrap_or_default();
    name.ends_with(".so")
        || name.contains(".so.")
        || file.path.contains("/locale/")
        || matches!(folder, "bin" | "sbin")
}

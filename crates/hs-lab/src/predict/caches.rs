//! The kernel's page caches before a disk: one of each file, and one of the disk's own blocks.

use std::ops::Range;

use hs_units::BlockRange;

use super::files::{Files, PageRun};
use super::page_cache::{PageCache, PageState};

/// All of them.
pub(crate) struct Caches<'a> {
    disk: PageCache,
    files: Vec<PageCache>,
    known: Option<&'a Files>,
    inode_ahead: u64,
}

/// A request of one of the caches: its pages, and the blocks that hold them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) file: Option<usize>,
    pub(crate) pages: Range<u64>,
    pub(crate) blocks: Vec<BlockRange>,
}

impl<'a> Caches<'a> {
    /// Empty ones of a disk of `blocks`, in which the kernel reads `ahead` pages ahead. Where files are known
    /// it does so in them; of the disk itself, file systems then read their metadata block by block, but for
    /// inode tables: `inode_ahead` blocks.
    pub(crate) fn new(blocks: u64, ahead: u64, known: Option<&'a Files>, inode_ahead: u64) -> Self {
        let files = known.map_or(&[][..], Files::all);
        Self {
            inode_ahead,
            disk: match known {
                Some(_) => PageCache::told(blocks, inode_ahead + 1),
                None => PageCache::new(blocks, ahead),
            },
            files: files.iter().map(|file| PageCache::new(file.pages, ahead)).collect(),
            known,
        }
    }

    /// What these blocks are, as far as one piece goes.
    pub(crate) fn locate(&self, block: u64, end: u64) -> PageRun {
        match self.known {
            Some(files) => files.locate(block, end),
            None => PageRun { file: None, page: block, pages: end - block },
        }
    }

    fn of(&mut self, file: Option<usize>) -> &mut PageCache {
        match file {
            Some(file) => &mut self.files[file],
            None => &mut self.disk,
        }
    }

    /// Looks for the first page of `place`.
    pub(crate) fn find(&mut self, place: PageRun) -> PageState {
        self.of(place.file).find(place.page)
    }

    /// The first page of `place` is missing: which to read, from where on marked.
    pub(crate) fn miss(&mut self, place: PageRun) -> (Range<u64>, Option<u64>) {
        if let Some(inodes) = self.inodes(place) {
            return (inodes, None);
        }
        let code = self.faults(place);
        let cache = self.of(place.file);
        match code {
            Some(code) => cache.fault(place.page, &code),
            None => cache.miss(place.page, place.pages),
        }
    }

    /// The first page of `place` is there or coming: which to read ahead of it.
    pub(crate) fn hit(&mut self, place: PageRun) -> Option<(Range<u64>, Option<u64>)> {
        let by_fault = self.faults(place).is_some();
        let cache = self.of(place.file);
        // A fault asks for as many as are read ahead at most (`do_async_mmap_readahead`).
        let wanted = if by_fault { cache.most_ahead() } else { place.pages };
        cache.hit(place.page, wanted)
    }

    /// Where the block holds inodes, those that are read with it (`__ext4_get_inode_loc` of fs/ext4/inode.c:
    /// from a multiple of `inode_readahead_blks` on so many and one more, within the table).
    fn inodes(&self, place: PageRun) -> Option<Range<u64>> {
        let table =
            self.known?.inode_table(place.page).filter(|_| place.file.is_none() && self.inode_ahead > 1)?;
        let first = (place.page / self.inode_ahead * self.inode_ahead).max(table.start.0);
        Some(first..(first + self.inode_ahead + 1).min(table.end().0))
    }

    /// Where the page is asked for by a fault, the pages of its file that are executed. The first page of a
    /// program or a library is read before it is mapped.
    fn faults(&self, place: PageRun) -> Option<Range<u64>> {
        let file = &self.known?.all()[place.file.filter(|_| place.page > 0)?];
        file.mapped.then(|| file.code.clone())
    }

    /// A call has read all of `place`.
    pub(crate) fn read(&mut self, place: PageRun) {
        self.of(place.file).read_until(place.page + place.pages);
    }

    /// Requests for what is missing of some pages, numbered from `first` on.
    pub(crate) fn ask(
        &mut self,
        file: Option<usize>,
        pages: Range<u64>,
        mark: Option<u64>,
        first: u64,
    ) -> Vec<Wanted> {
        let runs = self.of(file).ask(pages, mark, first);
        let blocks = |pages: &Range<u64>| match (file, self.known) {
            (Some(file), Some(files)) => files.blocks(file, pages.clone()),
            _ => vec![BlockRange::new(hs_units::Lba(pages.start), pages.end - pages.start)],
        };
        runs.into_iter().map(|pages| Wanted { file, blocks: blocks(&pages), pages }).collect()
    }

    /// Request `request` has brought its pages.
    pub(crate) fn arrived(&mut self, wanted: Wanted, request: u64) {
        self.of(wanted.file).arrived(wanted.pages, request);
    }

    /// Blocks were put here by another component.
    pub(crate) fn put(&mut self, mut block: u64, end: u64) {
        while block < end {
            let place = self.locate(block, end);
            self.of(place.file).put(place.page..place.page + place.pages);
            block += place.pages;
        }
    }
}

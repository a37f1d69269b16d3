//! The kernel's page cache before the disk, and its read-ahead.
//!
//! As `mm/readahead.c` and `mm/filemap.c` of Linux 6.18 do it: `page_cache_sync_ra` where a page is missing,
//! `page_cache_async_ra` where a page is met that was marked when it was read ahead. Large folios, congestion
//! and memory pressure are not modelled.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
struct Page {
    /// The request that brings it; `None` when it has come.
    coming: Option<u64>,
    /// Reading it makes the kernel read ahead.
    marked: bool,
}

/// Pages of one file, and the state of the one descriptor through which it is read (`struct file_ra_state`).
#[derive(Debug)]
pub(crate) struct PageCache {
    pages: BTreeMap<u64, Page>,
    /// Pages of the file.
    end: u64,
    /// Most pages that are read ahead; zero reads page by page.
    max: u64,
    /// Most pages of one request.
    longest: u64,
    start: u64,
    size: u64,
    async_size: u64,
    previous: Option<u64>,
    /// Faults that found nothing, less those that did (`mmap_miss`).
    faults: u64,
}

/// Faults in vain after which the kernel reads no more around them (`MMAP_LOTSAMISS`).
const FAULTS_IN_VAIN: u64 = 100;

/// What a page is found to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageState {
    /// It is there.
    There,
    /// This request brings it.
    Coming(u64),
    /// It was not requested.
    Missing,
}

impl PageCache {
    /// An empty one, of a file of `end` pages.
    pub(crate) const fn new(end: u64, max: u64) -> Self {
        let longest = if max == 0 { 1 } else { max };
        Self {
            pages: BTreeMap::new(),
            end,
            max,
            longest,
            start: 0,
            size: 0,
            async_size: 0,
            previous: None,
            faults: 0,
        }
    }

    /// One without the kernel's read-ahead; pages come only by advice, at most this many at once.
    pub(crate) fn told(end: u64, longest: u64) -> Self {
        Self { longest, ..Self::new(end, 0) }
    }

    /// Looks for a page.
    pub(crate) fn find(&self, page: u64) -> PageState {
        match self.pages.get(&page) {
            None => PageState::Missing,
            Some(Page { coming: None, .. }) => PageState::There,
            Some(Page { coming: Some(request), .. }) => PageState::Coming(*request),
        }
    }

    /// Request `request` has brought its pages.
    pub(crate) fn arrived(&mut self, pages: Range<u64>, request: u64) {
        for (_, page) in self.pages.range_mut(pages) {
            if page.coming == Some(request) {
                page.coming = None;
            }
        }
    }

    /// Pages were put here by another component, except those that are on their way.
    pub(crate) fn put(&mut self, pages: Range<u64>) {
        for page in pages {
            self.pages.entry(page).or_insert(Page { coming: None, marked: false });
        }
    }

    /// Most pages that are read ahead.
    pub(crate) const fn most_ahead(&self) -> u64 {
        self.max
    }

    /// A call has read everything before `page`.
    pub(crate) const fn read_until(&mut self, page: u64) {
        self.previous = Some(page);
    }

    /// `page` is missing, and `wanted` pages from there on are requested. Returns which to read, and from
    /// where on they are marked.
    pub(crate) fn miss(&mut self, page: u64, wanted: u64) -> (Range<u64>, Option<u64>) {
        if self.max == 0 {
            return (page..page + 1, None);
        }
        let max = self.max;
        let sequential = self.previous.is_some_and(|previous| page == previous || page == previous + 1);
        if page == 0 || wanted > max || sequential {
            self.start = page;
            self.size = first_size(wanted, max);
            self.async_size = if self.size > wanted { self.size - wanted } else { self.size / 2 };
        } else {
            let before = self.cached_before(page);
            if before <= wanted {
                // A small random read: as it is, and the state stays.
                return (page..(page + wanted).min(self.end), None);
            }
            let from_the_beginning = before == page;
            let run = if from_the_beginning { before * 2 } else { before };
            self.start = page;
            self.size = (run + wanted).min(max);
            self.async_size = 1;
        }
        // The next window follows at once when this one is used up.
        if self.async_size == self.size {
            self.size = (self.size + self.next_size()).min(max.max(self.size));
        }
        self.window()
    }

    /// A fault finds `page` missing. Returns which to read, and from where on they are marked
    /// (`do_sync_mmap_readahead`). The page lies in the middle of what is read. Of the executed pages `code`,
    /// those from the page on are read, and nothing is marked (since Linux 6.17).
    pub(crate) fn fault(&mut self, page: u64, code: &Range<u64>) -> (Range<u64>, Option<u64>) {
        self.faults = (self.faults + 1).min(10 * FAULTS_IN_VAIN);
        if self.max == 0 || self.faults > FAULTS_IN_VAIN {
            return (page..page + 1, None);
        }
        if code.contains(&page) {
            (self.start, self.size, self.async_size) = (page, self.max.min(code.end - page), 0);
            return (page..page + self.size, None);
        }
        self.start = page.saturating_sub(self.max / 2);
        self.size = self.max;
        self.async_size = self.max / 4;
        self.window()
    }

    /// A read of `wanted` pages comes to `page`, which is there or coming: which to read ahead of it.
    pub(crate) fn hit(&mut self, page: u64, wanted: u64) -> Option<(Range<u64>, Option<u64>)> {
        let found = self.pages.get_mut(&page)?;
        self.faults = self.faults.saturating_sub(1);
        if !std::mem::take(&mut found.marked) || self.max == 0 {
            return None;
        }
        if page == self.start + self.size - self.async_size {
            self.start += self.size;
            self.size = self.next_size();
            self.async_size = self.size;
            return Some(self.window());
        }
        let next = (page + 1..=page + self.max).find(|next| !self.pages.contains_key(next))?;
        self.start = next;
        self.size = next - page + wanted;
        self.size = self.next_size();
        self.async_size = self.size;
        Some(self.window())
    }

    /// Requests for what is missing of `pages`, numbered from `first` on, where none is longer than requests
    /// may be.
    pub(crate) fn ask(&mut self, pages: Range<u64>, mark: Option<u64>, first: u64) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for page in pages.start..pages.end.min(self.end) {
            if self.pages.contains_key(&page) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == page && run.end - run.start < self.longest => run.end += 1,
                _ => runs.push(page..page + 1),
            }
            let request = first + runs.len() as u64 - 1;
            self.pages.insert(page, Page { coming: Some(request), marked: mark == Some(page) });
        }
        runs
    }

    fn window(&self) -> (Range<u64>, Option<u64>) {
        (self.start..self.start + self.size, Some(self.start + self.size - self.async_size))
    }

    fn next_size(&self) -> u64 {
        match self.size {
            size if size < self.max / 16 => size * 4,
            size if size <= self.max / 2 => size * 2,
            _ => self.max,
        }
    }

    /// Pages directly before `page` that are cached, as far as the kernel looks.
    fn cached_before(&self, page: u64) -> u64 {
        let first = page.saturating_sub(self.max);
        (first..page).rev().take_while(|before| self.pages.contains_key(before)).count() as u64
    }
}

fn first_size(wanted: u64, max: u64) -> u64 {
    match wanted.next_power_of_two() {
        size if size <= max / 32 => size * 4,
        size if size <= max / 4 => size * 2,
        _ => max,
    }
}

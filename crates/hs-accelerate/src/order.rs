//! In which order, and in which requests, the pages of a list are asked for.

use crate::device_kind::DeviceKind;
use crate::list::{ListedRun, PageList};

/// Pages of a request at most (256 KiB). The kernel cuts what it is asked for at a device's largest request,
/// which is hardly ever smaller.
pub const MAX_REQUEST_PAGES: u32 = 64;
/// The same where requests are served one by one: a program's read waits for it.
const SHORT_REQUEST_PAGES: u32 = 32;
/// Where heads move, so many pages (64 MiB) are sorted by place at a time. What comes later must not wait
/// until the whole disk was crossed.
const SORTED_PAGES: u64 = 16 << 10;

/// A gap that is read over where heads move (128 KiB, a millisecond of a disk's rate).
const GAP_PAGES: u64 = 32;

/// One request: consecutive pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest {
    /// The place of the file in the list; `None`: the device.
    pub file: Option<u32>,
    /// The first page.
    pub page: u64,
    /// How many.
    pub pages: u32,
    /// When they were first used, in milliseconds from the beginning.
    pub at_ms: u32,
}

/// The requests for a list, in order, for at most `budget_pages` pages.
///
/// Where heads move they go by place, metadata first: opening a file whose inode was not read yet is a seek
/// of its own. Elsewhere they go by time, and metadata comes earlier by itself.
#[must_use]
pub fn requests(list: &PageList, kind: DeviceKind, budget_pages: u64) -> Vec<PageRequest> {
    let mut left = budget_pages;
    let within = |run: &&ListedRun| {
        let fits = u64::from(run.pages) <= left;
        left -= if fits { u64::from(run.pages) } else { 0 };
        fits
    };
    let mut runs: Vec<ListedRun> = list.runs.iter().filter(within).copied().collect();
    if kind == DeviceKind::Moves {
        sort_by_place(&mut runs);
        runs = without_gaps(&runs);
    }
    let most = if kind == DeviceKind::OneByOne { SHORT_REQUEST_PAGES } else { MAX_REQUEST_PAGES };
    runs.iter().flat_map(|run| cut(run, most)).collect()
}

fn sort_by_place(runs: &mut [ListedRun]) {
    let mut rest = runs;
    while !rest.is_empty() {
        let mut pages = 0;
        let mut fits = |run: &ListedRun| {
            let fits = pages < SORTED_PAGES;
            pages += u64::from(run.pages);
            fits
        };
        let count = rest.iter().take_while(|run| fits(run)).count();
        let (part, others) = rest.split_at_mut(count);
        part.sort_by_key(|run| (run.file.is_some(), run.place, run.file, run.page));
        rest = others;
    }
}

/// Joins runs whose gap in the file is as small as that on the device: to read it costs less than to go on
/// behind it when the disk has turned past.
fn without_gaps(runs: &[ListedRun]) -> Vec<ListedRun> {
    let mut joined: Vec<ListedRun> = Vec::with_capacity(runs.len());
    for run in runs {
        let last = joined.last_mut().filter(|last| {
            let end = last.page + u64::from(last.pages);
            let gap = run.page.checked_sub(end);
            let follows =
                last.place != 0 && run.place.wrapping_sub(last.place) == run.page.wrapping_sub(last.page);
            last.file == run.file && follows && gap.is_some_and(|gap| gap <= GAP_PAGES)
        });
        match last {
            Some(last) => {
                last.pages = (run.page + u64::from(run.pages) - last.page) as u32;
                last.at_ms = last.at_ms.min(run.at_ms);
            }
            None => joined.push(*run),
        }
    }
    joined
}

fn cut(run: &ListedRun, most: u32) -> impl Iterator<Item = PageRequest> {
    let run = *run;
    (0..run.pages).step_by(most as usize).map(move |from| PageRequest {
        file: run.file,
        page: run.page + u64::from(from),
        pages: most.min(run.pages - from),
        at_ms: run.at_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::FsIdentity;

    fn run(file: Option<u32>, page: u64, pages: u32, place: u64, at_ms: u32) -> ListedRun {
        ListedRun { file, page, pages, place, at_ms, unused_starts: 0 }
    }

    fn list(runs: Vec<ListedRun>) -> PageList {
        PageList { runs, ..PageList::empty(FsIdentity { uuid: [0; 16], subvolume: 0 }) }
    }

    fn places(list: &PageList, kind: DeviceKind, budget_pages: u64) -> Vec<(Option<u32>, u64, u32)> {
        let asked = requests(list, kind, budget_pages);
        asked.iter().map(|request| (request.file, request.page, request.pages)).collect()
    }

    #[test]
    fn order_is_by_time_or_by_place() {
        let list = list(vec![
            run(Some(0), 0, 1, 900, 1),
            run(None, 700, 1, 700, 2),
            run(Some(1), 5, 100, 100, 3),
            run(None, 50, 1, 50, 4),
        ]);
        let by_time = [(Some(0), 0, 1), (None, 700, 1), (Some(1), 5, 64), (Some(1), 69, 36), (None, 50, 1)];
        assert_eq!(places(&list, DeviceKind::Overlaps, u64::MAX), by_time);
        let by_place = [(None, 50, 1), (None, 700, 1), (Some(1), 5, 64), (Some(1), 69, 36), (Some(0), 0, 1)];
        assert_eq!(places(&list, DeviceKind::Moves, u64::MAX), by_place);
        let one_by_one = places(&list, DeviceKind::OneByOne, u64::MAX);
        assert_eq!(
            one_by_one[2..6],
            [(Some(1), 5, 32), (Some(1), 37, 32), (Some(1), 69, 32), (Some(1), 101, 4)]
        );
        // What does not fit is left out, and what comes behind it may.
        assert_eq!(places(&list, DeviceKind::Overlaps, 3), [(Some(0), 0, 1), (None, 700, 1), (None, 50, 1)]);
    }

    #[test]
    fn small_gaps_are_read_over_where_heads_move() {
        let list = list(vec![
            run(Some(0), 10, 2, 110, 1),
            run(Some(0), 12 + GAP_PAGES, 1, 112 + GAP_PAGES, 2),
            run(Some(0), 300, 1, 150, 3),
            run(Some(1), 301, 1, 151, 4),
        ]);
        let with_gaps = [(Some(0), 10, 3 + GAP_PAGES as u32), (Some(0), 300, 1), (Some(1), 301, 1)];
        assert_eq!(places(&list, DeviceKind::Moves, u64::MAX), with_gaps);
        assert_eq!(places(&list, DeviceKind::Overlaps, u64::MAX).len(), 4);
    }

    #[test]
    fn only_a_part_is_sorted_at_a_time() {
        let part = SORTED_PAGES as u32;
        let list = list(vec![run(None, 99, part, 99, 1), run(None, 50, 1, 50, 2), run(None, 3, 1, 3, 3)]);
        let asked = places(&list, DeviceKind::Moves, u64::MAX);
        assert_eq!(asked[0], (None, 99, MAX_REQUEST_PAGES));
        assert_eq!(asked[asked.len() - 2..], [(None, 3, 1), (None, 50, 1)]);
    }
}

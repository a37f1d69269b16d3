//! A new recording is taken into the list, and what is not used any more goes.

use std::collections::BTreeMap;

use crate::list::{ListedFile, ListedRun, PageList};

/// Starts without a use after which a page goes.
pub const MAX_UNUSED_STARTS: u8 = 3;
/// Pages of a list at most (4 GiB): the ones that are used first stay.
pub const MAX_LISTED_PAGES: u64 = 1 << 20;
/// Neighbours that are first used so far apart are runs of their own.
const TOGETHER_MS: u32 = 200;

/// A page that came into the page cache during a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedPage {
    /// The place of its file in the recording's files; `None`: a page of the device.
    pub file: Option<u32>,
    /// The page.
    pub page: u64,
    /// Where it lies on the device; zero: not known.
    pub place: u64,
    /// Milliseconds from the beginning to its coming.
    pub at_ms: u32,
    /// A program used it. The others came by read-ahead.
    pub is_used: bool,
    /// It came because this list asked for it: then its time says nothing.
    pub was_asked: bool,
}

/// What is known of a page.
#[derive(Clone, Copy)]
struct Known {
    place: u64,
    at_ms: u32,
    unused_starts: u8,
}

/// By file (its place in the new list's files plus one, the device is zero) and page.
type Pages = BTreeMap<(u32, u64), Known>;

impl PageList {
    /// Takes in the recording of one more start: `pages`, of which each comes once, of `files`.
    ///
    /// `was_there` says of a file's number and a page that was listed before whether it was in memory when
    /// the start began: then it could not come, and that it did not tells nothing of its use. Gives how many
    /// there were.
    pub fn merge(
        &mut self,
        files: Vec<ListedFile>,
        pages: &[RecordedPage],
        mut was_there: impl FnMut(Option<u32>, u64) -> bool,
    ) -> u64 {
        let mut known = self.known(1);
        let mut there = 0;
        for (&(file, page), known) in &mut known {
            if was_there(file.checked_sub(1), page) {
                known.unused_starts -= 1;
                there += 1;
            }
        }
        let places = self.take_files(files);
        for page in pages.iter().filter(|page| page.is_used) {
            let file = match page.file {
                None => 0,
                Some(file) => places[file as usize] + 1,
            };
            let new = Known { place: page.place, at_ms: page.at_ms, unused_starts: 0 };
            let old = known.entry((file, page.page)).or_insert(new);
            let at_ms = if page.was_asked { old.at_ms } else { page.at_ms };
            let place = if page.place == 0 { old.place } else { page.place };
            *old = Known { place, at_ms, unused_starts: 0 };
        }
        known.retain(|_, page| page.unused_starts < MAX_UNUSED_STARTS);
        self.runs = runs_of(&known);
        limit(&mut self.runs);
        self.starts = self.starts.saturating_add(1);
        self.drop_unused_files();
        there
    }

    /// Takes new places of pages on the device: `place_of` is asked with a file's number and a page. It gives
    /// zero for a page that has none, and nothing for one whose place stays as it is. What is listed, and
    /// when it was first used, stays. Gives whether anything is new.
    pub fn take_places(&mut self, mut place_of: impl FnMut(u32, u64) -> Option<u64>) -> bool {
        let mut known = self.known(0);
        let mut is_new = false;
        for (&(file, page), known) in &mut known {
            let place = file.checked_sub(1).and_then(|file| place_of(file, page)).unwrap_or(known.place);
            is_new |= place != known.place;
            known.place = place;
        }
        if is_new {
            self.runs = runs_of(&known);
        }
        is_new
    }

    /// Page by page, `starts` starts later.
    fn known(&self, starts: u8) -> Pages {
        let mut known: Pages = BTreeMap::new();
        for run in &self.runs {
            for at in 0..u64::from(run.pages) {
                let place = if run.place == 0 { 0 } else { run.place + at };
                let unused_starts = run.unused_starts.saturating_add(starts);
                let page = Known { place, at_ms: run.at_ms, unused_starts };
                known.insert((run.file.map_or(0, |file| file + 1), run.page + at), page);
            }
        }
        known
    }

    /// Adds files that are new, and gives the place of each one in the list.
    fn take_files(&mut self, files: Vec<ListedFile>) -> Vec<u32> {
        let mut by_identity: BTreeMap<_, u32> =
            self.files.iter().zip(0..).map(|(file, at)| (file.identity.clone(), at)).collect();
        let mut places = Vec::with_capacity(files.len());
        for file in files {
            let next = self.files.len() as u32;
            let place = *by_identity.entry(file.identity.clone()).or_insert(next);
            match self.files.get_mut(place as usize) {
                // It may have been renamed.
                Some(old) => *old = file,
                None => self.files.push(file),
            }
            places.push(place);
        }
        places
    }

    fn drop_unused_files(&mut self) {
        let mut used = vec![false; self.files.len()];
        self.runs.iter().filter_map(|run| run.file).for_each(|file| used[file as usize] = true);
        let mut next = 0;
        let places: Vec<u32> = used
            .iter()
            .map(|used| {
                next += u32::from(*used);
                next.saturating_sub(1)
            })
            .collect();
        let mut used = used.iter();
        self.files.retain(|_| used.next().is_some_and(|used| *used));
        for run in &mut self.runs {
            run.file = run.file.map(|file| places[file as usize]);
        }
    }
}

/// Runs of neighbours, in the order of first use.
fn runs_of(pages: &Pages) -> Vec<ListedRun> {
    let mut runs: Vec<ListedRun> = Vec::new();
    for (&(file, page), known) in pages {
        let file = file.checked_sub(1);
        let joins = runs.last().is_some_and(|run| {
            let next_place = if run.place == 0 { 0 } else { run.place + u64::from(run.pages) };
            run.file == file
                && run.page + u64::from(run.pages) == page
                && next_place == known.place
                && run.unused_starts == known.unused_starts
                && run.at_ms.abs_diff(known.at_ms) <= TOGETHER_MS
                && run.pages < u32::MAX
        });
        match runs.last_mut().filter(|_| joins) {
            Some(run) => {
                run.pages += 1;
                run.at_ms = run.at_ms.min(known.at_ms);
            }
            None => runs.push(ListedRun {
                file,
                page,
                pages: 1,
                place: known.place,
                at_ms: known.at_ms,
                unused_starts: known.unused_starts,
            }),
        }
    }
    runs.sort_by_key(|run| run.at_ms);
    runs
}

fn limit(runs: &mut Vec<ListedRun>) {
    let mut left = MAX_LISTED_PAGES;
    runs.retain(|run| {
        let fits = u64::from(run.pages) <= left;
        left -= if fits { u64::from(run.pages) } else { 0 };
        fits
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{FileIdentity, FsIdentity};

    fn file(name: &str) -> ListedFile {
        let identity = FileIdentity { kind: 1, handle: name.as_bytes().to_vec() };
        ListedFile { identity, inode: 7, path: format!("/{name}") }
    }

    fn used(file: Option<u32>, page: u64, at_ms: u32) -> RecordedPage {
        let place = if file.is_none() { page } else { 0 };
        RecordedPage { file, page, place, at_ms, is_used: true, was_asked: false }
    }

    /// Takes in a start of a machine that was just switched on.
    fn cold(list: &mut PageList, files: Vec<ListedFile>, pages: &[RecordedPage]) {
        assert_eq!(list.merge(files, pages, |_, _| false), 0);
    }

    fn empty() -> PageList {
        PageList::empty(FsIdentity { uuid: [1; 16], subvolume: 0 })
    }

    fn shown(list: &PageList) -> Vec<(&str, u64, u32, u32, u8)> {
        let name = |run: &ListedRun| run.file.map_or("device", |file| &list.files[file as usize].path);
        list.runs.iter().map(|run| (name(run), run.page, run.pages, run.at_ms, run.unused_starts)).collect()
    }

    #[test]
    fn neighbours_become_runs_by_first_use_and_read_ahead_is_left_out() {
        let mut list = empty();
        let read_ahead = RecordedPage { is_used: false, ..used(Some(0), 12, 30) };
        let pages = [used(Some(0), 10, 30), used(Some(0), 11, 31), read_ahead, used(None, 5, 2)];
        cold(&mut list, vec![file("a")], &pages);
        assert_eq!(shown(&list), [("device", 5, 1, 2, 0), ("/a", 10, 2, 30, 0)]);
        assert_eq!((list.starts, list.pages()), (1, 3));
        // Neighbours that are used much later are apart.
        cold(&mut list, vec![file("a")], &[used(Some(0), 12, 30 + TOGETHER_MS + 1)]);
        assert_eq!(list.runs.last().map(|run| (run.page, run.pages)), Some((12, 1)));
    }

    #[test]
    fn what_is_not_used_goes_and_its_file_with_it() {
        let mut list = empty();
        cold(&mut list, vec![file("a"), file("b")], &[used(Some(0), 1, 1), used(Some(1), 2, 2)]);
        for unused in 1..MAX_UNUSED_STARTS {
            cold(&mut list, vec![file("b")], &[used(Some(0), 2, 2)]);
            assert_eq!(shown(&list), [("/a", 1, 1, 1, unused), ("/b", 2, 1, 2, 0)]);
        }
        cold(&mut list, vec![file("b")], &[used(Some(0), 2, 2)]);
        assert_eq!(shown(&list), [("/b", 2, 1, 2, 0)]);
        assert_eq!(list.files.len(), 1);
        // Once more used, it is as new.
        let mut again = empty();
        cold(&mut again, vec![file("a")], &[used(Some(0), 1, 1)]);
        cold(&mut again, Vec::new(), &[]);
        cold(&mut again, vec![file("a")], &[used(Some(0), 1, 1)]);
        assert_eq!(shown(&again), [("/a", 1, 1, 1, 0)]);
    }

    #[test]
    fn what_was_in_memory_before_stays_and_the_rest_goes() {
        let mut list = empty();
        let pages = [used(Some(0), 1, 1), used(Some(1), 2, 2), used(None, 5, 3), used(None, 9, 4)];
        cold(&mut list, vec![file("a"), file("b")], &pages);
        for _ in 0..2 * MAX_UNUSED_STARTS {
            let there =
                list.merge(Vec::new(), &[], |file, page| [(Some(0), 1), (None, 9)].contains(&(file, page)));
            assert_eq!(there, 2);
        }
        assert_eq!(shown(&list), [("/a", 1, 1, 1, 0), ("device", 9, 1, 4, 0)]);
        // From memory it goes as before.
        cold(&mut list, Vec::new(), &[]);
        assert_eq!(shown(&list), [("/a", 1, 1, 1, 1), ("device", 9, 1, 4, 1)]);
    }

    #[test]
    fn pages_that_were_asked_keep_their_time_and_renamed_files_their_pages() {
        let mut list = empty();
        cold(&mut list, vec![file("a")], &[used(Some(0), 1, 500)]);
        let asked = RecordedPage { was_asked: true, ..used(Some(0), 1, 3) };
        let renamed = ListedFile { path: "/new".to_owned(), ..file("a") };
        cold(&mut list, vec![renamed], &[asked]);
        assert_eq!(shown(&list), [("/new", 1, 1, 500, 0)]);
    }

    #[test]
    fn new_places_cut_and_join_runs_and_change_nothing_else() {
        let mut list = empty();
        let at = |page, place, at_ms| RecordedPage { place, ..used(Some(0), page, at_ms) };
        cold(&mut list, vec![file("a")], &[at(4, 70, 9), at(5, 71, 9), at(6, 30, 9), used(None, 8, 1)]);
        assert_eq!(shown(&list), [("device", 8, 1, 1, 0), ("/a", 4, 2, 9, 0), ("/a", 6, 1, 9, 0)]);
        let old = list.clone();
        assert!(
            !list.take_places(|_, _| None)
                && !list.take_places(|_, page| Some([70, 71, 30][page as usize - 4]))
        );
        assert_eq!(list, old);
        // One piece, but for a page that stays unknown; metadata stays where it is.
        assert!(list.take_places(|_, page| Some(500 + page)));
        assert_eq!(shown(&list), [("device", 8, 1, 1, 0), ("/a", 4, 3, 9, 0)]);
        assert_eq!((list.runs[0].place, list.runs[1].place), (8, 504));
        assert!(list.take_places(|_, page| Some(if page == 5 { 0 } else { 500 + page })));
        assert_eq!(list.runs.iter().map(|run| run.place).collect::<Vec<_>>(), [8, 504, 0, 506]);
        assert_eq!((list.starts, list.pages()), (1, 4));
    }

    #[test]
    fn the_first_pages_stay_when_there_are_too_many() {
        let run = |at_ms, pages| ListedRun { file: None, page: 0, pages, place: 0, at_ms, unused_starts: 0 };
        let most = MAX_LISTED_PAGES as u32;
        let mut runs = vec![run(1, most - 1), run(2, 2), run(3, 1), run(4, 1)];
        limit(&mut runs);
        assert_eq!(runs.iter().map(|run| run.at_ms).collect::<Vec<_>>(), [1, 3]);
    }
}

//! Which pages of a file move: all, or the recorded ones as long as the file stays in few pieces. No I/O.

use crate::layout::{FileLayout, PageRun, Piece};

/// A file gets at most one more fragment for each 8 MiB: a seek of 10 ms beside the 70 ms that a hard disk
/// needs to read them.
pub const PAGES_PER_FRAGMENT: u64 = (8 << 20) / 4096;
/// A file of so many pages moves as a whole: its other pages are a gap that is passed without a seek
/// ([`NEAR_BYTES`](crate::NEAR_BYTES)).
const SMALL_PAGES: u64 = crate::NEAR_BYTES / 4096;
/// So does a larger one of which at least half is recorded,
const MOST_OF_IT: u64 = 2;
/// or an eighth, where no fragment is allowed. It is also the least share of what moves with filled gaps.
const ENOUGH_OF_IT: u64 = 8;

/// What moves of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Runs of pages, ascending and disjoint, each to a place of its own. One run of all pages for a file
    /// that moves as a whole; none where the recorded pages alone would leave it in too many fragments.
    pub runs: Vec<PageRun>,
    /// How many fragments more the file may still get.
    pub spare_fragments: u64,
}

/// Chooses for a file that lies so, of which these runs are recorded, in any order.
#[must_use]
pub fn choose(layout: &FileLayout, recorded: &[PageRun]) -> Choice {
    let size = layout.pages();
    let recorded = merged(layout, recorded);
    let wanted: u64 = recorded.iter().map(|run| run.pages).sum();
    let most = layout.fragments() + size / PAGES_PER_FRAGMENT;
    if wanted == 0 {
        return Choice { runs: Vec::new(), spare_fragments: 0 };
    }
    let may_be_cut = size >= PAGES_PER_FRAGMENT;
    let is_enough = |share: u64| wanted.saturating_mul(share) >= size;
    if size <= SMALL_PAGES || is_enough(MOST_OF_IT) || (!may_be_cut && is_enough(ENOUGH_OF_IT)) {
        let all = PageRun { first: 0, pages: u64::MAX };
        return Choice { runs: vec![all], spare_fragments: most - 1 };
    }
    // A run in the middle of a fragment makes two more, one at an end makes one.
    let allowed = most - layout.fragments();
    for count in [allowed / 2 + 1, allowed / 2] {
        let runs = joined_to(&recorded, count as usize);
        let moved: Vec<_> = runs.iter().enumerate().map(|(index, run)| elsewhere(*run, index)).collect();
        let fragments = layout.with_moved(&moved).fragments();
        let moved_pages: u64 = runs.iter().map(|run| run.pages).sum();
        let is_enough = wanted.saturating_mul(ENOUGH_OF_IT) >= moved_pages;
        if !runs.is_empty() && fragments <= most && is_enough {
            return Choice { runs, spare_fragments: most - fragments };
        }
    }
    Choice { runs: Vec::new(), spare_fragments: 0 }
}

/// The recorded pages that have a place, ascending and disjoint.
fn merged(layout: &FileLayout, recorded: &[PageRun]) -> Vec<PageRun> {
    let mut sorted = recorded.to_vec();
    sorted.sort_unstable_by_key(|run| run.first);
    let mut runs: Vec<PageRun> = Vec::new();
    let mut at = 0;
    for run in sorted {
        for piece in layout.inside(PageRun::between(run.first.max(at), run.end())) {
            match runs.last_mut().filter(|last| last.end() == piece.pages.first) {
                Some(last) => last.pages += piece.pages.pages,
                None => runs.push(piece.pages),
            }
        }
        at = at.max(run.end());
    }
    runs
}

/// `runs` with the smallest gaps filled, until there are `count`.
fn joined_to(runs: &[PageRun], count: usize) -> Vec<PageRun> {
    if count == 0 {
        return Vec::new();
    }
    let gap = |index: &usize| runs[index + 1].first - runs[*index].end();
    let mut widest: Vec<usize> = (0..runs.len().saturating_sub(1)).collect();
    widest.sort_by_key(|index| std::cmp::Reverse(gap(index)));
    widest.truncate(count - 1);
    widest.sort_unstable();
    widest.push(runs.len() - 1);
    let mut from = 0;
    let mut joined = Vec::with_capacity(widest.len());
    for last in widest {
        joined.push(PageRun::between(runs[from].first, runs[last].end()));
        from = last + 1;
    }
    joined
}

/// A place that continues nothing.
fn elsewhere(run: PageRun, index: usize) -> Piece {
    Piece { pages: run, place: (1 << 62) + ((index as u64) << 32) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one_piece(pages: u64) -> FileLayout {
        FileLayout::new([Piece { pages: PageRun { first: 0, pages }, place: 4096 }])
    }

    fn runs(layout: &FileLayout, recorded: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let recorded: Vec<_> = recorded.iter().map(|&(first, pages)| PageRun { first, pages }).collect();
        choose(layout, &recorded).runs.iter().map(|run| (run.first, run.pages)).collect()
    }

    #[test]
    fn small_files_move_whole_and_large_ones_by_their_size() {
        let whole = [(0, u64::MAX)];
        assert_eq!(runs(&one_piece(128), &[(5, 1)]), whole);
        assert_eq!(runs(&one_piece(129), &[(5, 1)]), [], "no fragment is allowed");
        assert_eq!(runs(&one_piece(1024), &[(5, 128)]), whole, "an eighth of a file below 8 MiB");
        assert_eq!(runs(&one_piece(40_000), &[(5, 20_000)]), whole, "half of a large one");
        assert_eq!(runs(&one_piece(2048), &[(0, 9)]), [(0, 9)], "one fragment more, at its beginning");
        assert_eq!(runs(&one_piece(2048), &[(1, 9)]), [], "two, in its middle");
        assert_eq!(runs(&one_piece(4096), &[(1, 9)]), [(1, 9)]);
        assert_eq!(
            runs(&one_piece(4096), &[(1, 9), (20, 1), (4000, 50)]),
            [],
            "one run would be mostly gaps"
        );
    }

    #[test]
    fn near_runs_become_one() {
        assert_eq!(runs(&one_piece(4096), &[(90, 2), (1, 9), (20, 1), (5, 8)]), [(1, 91)]);
        let two = runs(&one_piece(3 * 4096), &[(9000, 2), (1, 9), (20, 1), (5000, 8)]);
        assert_eq!(two, [(1, 20), (5000, 8), (9000, 2)]);
    }

    #[test]
    fn pages_without_a_place_are_not_chosen() {
        assert_eq!(runs(&FileLayout::default(), &[(0, 5)]), []);
        assert_eq!(runs(&one_piece(5), &[(7, u64::MAX), (u64::MAX, u64::MAX)]), []);
    }

    proptest! {
        /// However a file lies and whatever was recorded, it gets no more fragments than the bound says.
        #[test]
        fn the_bound_of_fragments_holds(
            lengths in prop::collection::vec((1_u64..3000, any::<bool>()), 1..12),
            recorded in prop::collection::vec((0_u64..20_000, 1_u64..400), 0..40),
        ) {
            let (mut page, mut place) = (0, 1 << 40);
            let layout = FileLayout::new(lengths.iter().map(|&(pages, follows)| {
                place += if follows { 0 } else { 1 << 30 };
                let piece = Piece { pages: PageRun { first: page, pages }, place };
                (page, place) = (page + pages, place + pages * 4096);
                piece
            }).collect::<Vec<_>>());
            let recorded: Vec<_> =
                recorded.iter().map(|&(first, pages)| PageRun { first, pages }).collect();
            let choice = choose(&layout, &recorded);
            let moved: Vec<_> =
                choice.runs.iter().enumerate().map(|(index, run)| elsewhere(*run, index)).collect();
            let after = layout.with_moved(&moved).fragments();
            prop_assert!(after + choice.spare_fragments
                <= layout.fragments() + layout.pages() / PAGES_PER_FRAGMENT + u64::from(moved.is_empty()) * after);
            prop_assert!(choice.runs.windows(2).all(|pair| pair[0].end() <= pair[1].first));
        }
    }
}

use hs_units::Prng;
use proptest::prelude::*;

use super::*;
use crate::choose::PAGES_PER_FRAGMENT;

fn file(pieces: &[(u64, u64, u64)]) -> PlannedFile {
    PlannedFile { layout: space(pieces), can_move: true }
}

fn space(pieces: &[(u64, u64, u64)]) -> FileLayout {
    let piece = |&(first, pages, block): &(u64, u64, u64)| Piece {
        pages: PageRun { first, pages },
        place: block * BLOCK_BYTES,
    };
    FileLayout::new(pieces.iter().map(piece))
}

fn wanted(runs: &[(usize, u64, u64)]) -> Vec<Wanted> {
    runs.iter().map(|&(file, first, pages)| Wanted { file, pages: PageRun { first, pages } }).collect()
}

fn shown(placed: &[Placed]) -> Vec<(usize, u64, u64, u64)> {
    placed.iter().map(|run| (run.file, run.pages.first, run.pages.pages, run.donor_page)).collect()
}

#[test]
fn read_ahead_brings_windows_and_each_page_once() {
    let files = [file(&[(0, 50, 100)]), file(&[(5, 3, 10), (100, 1, 90)])];
    let wanted = wanted(&[(0, 33, 1), (1, 7, 1), (0, 20, 14), (1, 0, 200), (0, 60, 5), (1, 0, u64::MAX)]);
    let read = with_read_ahead(&files, &wanted);
    let read: Vec<_> = read.iter().map(|run| (run.file, run.pages.first, run.pages.pages)).collect();
    assert_eq!(read, [(0, 32, 18), (1, 0, 32), (0, 0, 32), (1, 32, 69)]);
}

#[test]
fn runs_lie_in_the_order_of_first_access() {
    let files = [file(&[(0, 2, 50), (2, 2, 90)]), file(&[(0, 3, 10)]), file(&[(0, 1, 70)])];
    let wanted = wanted(&[(1, 2, 1), (0, 0, 1), (1, 0, 1), (2, 0, 1), (0, 3, 1)]);
    let plan = Plan::new(&files, &wanted);
    assert_eq!(plan.pages(&files), 8);
    let (placed, no_room) = plan.place(&files, &space(&[(0, 8, 1000)]));
    assert_eq!(shown(&placed), [(1, 0, 3, 0), (0, 0, 2, 3), (0, 2, 2, 5), (2, 0, 1, 7)]);
    assert_eq!(no_room, []);
    let after = layouts_after(&files, &placed);
    assert!(after.iter().all(|layout| layout.fragments() == 1));
    assert_eq!(plan.at_best(&files, &wanted).seeks, scatter(&after, &wanted).seeks);
}

#[test]
fn a_file_that_cannot_move_stays_and_counts() {
    let files = [file(&[(0, 1, 1000)]), PlannedFile { can_move: false, ..file(&[(0, 1, 5000)]) }];
    let wanted = wanted(&[(0, 0, 1), (1, 0, 1)]);
    let plan = Plan::new(&files, &wanted);
    assert_eq!((plan.pages(&files), plan.would_fragment.as_slice()), (1, [].as_slice()));
    assert_eq!(plan.at_best(&files, &wanted).seeks, 2);
}

#[test]
fn small_files_are_not_cut_where_the_space_is() {
    let files = [file(&[(0, 3, 10)]), file(&[(0, 3, 30)]), file(&[(0, 9, 50)])];
    let wanted = wanted(&[(0, 0, 3), (1, 0, 3), (2, 0, 9)]);
    let plan = Plan::new(&files, &wanted);
    let (placed, no_room) = plan.place(&files, &space(&[(0, 4, 100), (4, 4, 200), (8, 7, 300)]));
    assert_eq!(shown(&placed), [(0, 0, 3, 0), (1, 0, 3, 4)]);
    assert_eq!(no_room, [2], "it would be in two pieces, and was in one");
    let (placed, no_room) = plan.place(&files, &FileLayout::default());
    assert!(placed.is_empty() && no_room == [0, 1, 2]);
}

#[test]
fn a_file_in_pieces_may_be_cut() {
    let files = [file(&[(0, 5, 10), (5, 5, 90)])];
    let wanted = wanted(&[(0, 0, 10)]);
    let (placed, no_room) = Plan::new(&files, &wanted).place(&files, &space(&[(0, 4, 100), (4, 7, 200)]));
    assert_eq!(shown(&placed), [(0, 0, 4, 0), (0, 4, 1, 4), (0, 5, 5, 5)]);
    assert_eq!(no_room, []);
    assert_eq!(layouts_after(&files, &placed)[0].fragments(), 2);
}

proptest! {
    /// Against files of random pieces and spaces of random pieces: no page is lost or laid on another, all that
    /// is placed lies in the space, and no file gets more fragments than its bound.
    #[test]
    fn whatever_is_planned_is_sound(seed in any::<u64>(), files in 1_usize..9, runs in 0_usize..30) {
        let mut prng = Prng::new(seed);
        let mut block = 1;
        let files: Vec<_> = (0..files)
            .map(|_| {
                let (mut page, mut pieces) = (0, Vec::new());
                for _ in 0..=prng.below(4) {
                    let most = if prng.below(4) == 0 { 5000 } else { 40 };
                    let pages = 1 + prng.below(most);
                    pieces.push((page + prng.below(2), pages, block));
                    (page, block) = (page + pages + 1, block + pages + 1 + prng.below(300));
                }
                PlannedFile { can_move: prng.below(8) > 0, ..file(&pieces) }
            })
            .collect();
        let wanted: Vec<_> = (0..runs)
            .map(|_| {
                let pages = PageRun { first: prng.below(6000), pages: 1 + prng.below(60) };
                Wanted { file: prng.below(files.len() as u64) as usize, pages }
            })
            .collect();
        let plan = Plan::new(&files, &wanted);
        let (mut page, mut pieces) = (0, Vec::new());
        while page < plan.pages(&files) + prng.below(100) {
            let pages = 1 + prng.below(4000);
            pieces.push((page, pages, 1_000_000 + 2 * page));
            page += pages;
        }
        let space = space(&pieces);
        let (placed, _) = plan.place(&files, &space);
        let mut last = 0;
        for run in &placed {
            prop_assert!(run.donor_page >= last, "one behind the other");
            last = run.donor_page + run.pages.pages;
            let there: Vec<_> = space.inside(PageRun { first: run.donor_page, ..run.pages }).collect();
            prop_assert_eq!(there.len(), 1);
            prop_assert_eq!((there[0].place, there[0].pages.pages), (run.place, run.pages.pages));
            prop_assert!(files[run.file].can_move);
        }
        for (file, after) in files.iter().zip(layouts_after(&files, &placed)) {
            prop_assert_eq!(file.layout.pages(), after.pages());
            let most = file.layout.fragments() + file.layout.pages() / PAGES_PER_FRAGMENT;
            prop_assert!(after.fragments() <= most.max(1), "{} > {}", after.fragments(), most);
        }
    }
}

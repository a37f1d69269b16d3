//! From recorded runs to moves, and from moves to places in reserved space. No I/O.

use hs_accelerate::Scatter;
use hs_trace::BlockSet;
use hs_units::{BLOCK_BYTES, BlockRange, Lba};

use crate::choose::choose;
use crate::layout::{FileLayout, PageRun, Piece};

/// The kernel's usual read-ahead, 128 KiB: it reads so much around a page that is mapped, and from one that
/// is read on.
const READ_AHEAD_PAGES: u64 = 32;
/// Behind every device: the place of a layout that is only thought of.
const THOUGHT_OF: u64 = 1 << 60;

/// A file of the list.
#[derive(Clone, Debug)]
pub struct PlannedFile {
    /// Where it lies.
    pub layout: FileLayout,
    /// Whether its blocks can change their places.
    pub can_move: bool,
}

/// A recorded run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The file's number in the list of files.
    pub file: usize,
    /// Its pages.
    pub pages: PageRun,
}

/// What a kernel reads from the disk where `wanted` are the first accesses of a start: each with the window
/// of 128 KiB around it, and each page once.
#[must_use]
pub fn with_read_ahead(files: &[PlannedFile], wanted: &[Wanted]) -> Vec<Wanted> {
    let mut seen: Vec<BlockSet> = files.iter().map(|_| BlockSet::new()).collect();
    let mut read = Vec::with_capacity(wanted.len());
    for run in wanted {
        let last = files[run.file].layout.pieces().last();
        let file_end = last.map_or(0, |piece| piece.pages.end());
        let first = run.pages.first / READ_AHEAD_PAGES * READ_AHEAD_PAGES;
        let end = run.pages.end().min(file_end).next_multiple_of(READ_AHEAD_PAGES).min(file_end);
        // The set is one of numbers; here they are pages.
        let pages = BlockRange::new(Lba(first), end.saturating_sub(first));
        seen[run.file].insert(pages, |new| {
            read.push(Wanted { file: run.file, pages: PageRun { first: new.start.0, pages: new.count } });
        });
    }
    read
}

/// What moves, in order of first access.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    moves: Vec<Wanted>,
    /// For each file: how many fragments more it may get.
    spare: Vec<u64>,
    /// Files that would get too many fragments, and stay.
    pub would_fragment: Vec<usize>,
}

/// Pages of a file and the pages of the reserved space that they move to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The file's number.
    pub file: usize,
    /// Its pages, all of which have a place.
    pub pages: PageRun,
    /// The first page in the file that reserves the space.
    pub donor_page: u64,
    /// The byte of the device that they move to.
    pub place: u64,
}

impl Plan {
    /// What pays to move of `files` so that `wanted`, in the order of first access, lie one behind the
    /// other.
    #[must_use]
    pub fn new(files: &[PlannedFile], wanted: &[Wanted]) -> Self {
        let mut recorded = vec![Vec::new(); files.len()];
        for run in wanted {
            recorded[run.file].push(run.pages);
        }
        let mut plan = Self { moves: Vec::new(), spare: vec![0; files.len()], would_fragment: Vec::new() };
        let mut chosen: Vec<Vec<PageRun>> = Vec::with_capacity(files.len());
        for (file, runs) in files.iter().zip(&recorded) {
            let choice = choose(&file.layout, if file.can_move { runs } else { &[] });
            if file.can_move && choice.runs.is_empty() && file.layout.pages() > 0 {
                plan.would_fragment.push(chosen.len());
            }
            plan.spare[chosen.len()] = choice.spare_fragments;
            chosen.push(choice.runs);
        }
        // The first wanted page of a chosen run brings all of it.
        for run in wanted {
            let of_file = &mut chosen[run.file];
            of_file.retain(|pages| {
                let is_met = pages.both(&run.pages).is_some();
                if is_met {
                    plan.moves.push(Wanted { file: run.file, pages: *pages });
                }
                !is_met
            });
        }
        plan
    }

    /// How many pages move.
    #[must_use]
    pub fn pages(&self, files: &[PlannedFile]) -> u64 {
        let inside = |run: &Wanted| -> u64 {
            files[run.file].layout.inside(run.pages).map(|piece| piece.pages.pages).sum()
        };
        self.moves.iter().map(inside).sum()
    }

    /// Gives each move its place in the reserved space, whose pieces are ascending in its file. Also gives
    /// the files for which there is no room without too many fragments.
    #[must_use]
    pub fn place(&self, files: &[PlannedFile], space: &FileLayout) -> (Vec<Placed>, Vec<usize>) {
        let mut spare = self.spare.clone();
        let mut cursor = Cursor { pieces: space.pieces(), used: 0 };
        let (mut placed, mut no_room) = (Vec::new(), Vec::new());
        for run in &self.moves {
            let layout = &files[run.file].layout;
            let pages = layout.inside(run.pages).map(|piece| piece.pages.pages).sum();
            let Some(cuts) = cursor.make_room(pages, spare[run.file]) else {
                no_room.push(run.file);
                continue;
            };
            spare[run.file] -= cuts;
            for piece in layout.inside(run.pages) {
                cursor.take(run.file, piece.pages, &mut placed);
            }
        }
        (placed, no_room)
    }

    /// How scattered the list would be if all of it could be laid into one piece.
    #[must_use]
    pub fn at_best(&self, files: &[PlannedFile], wanted: &[Wanted]) -> Scatter {
        let pages = PageRun { first: 0, pages: self.pages(files) };
        let space = FileLayout::new([Piece { pages, place: THOUGHT_OF }]);
        scatter(&layouts_after(files, &self.place(files, &space).0), wanted)
    }
}

/// Where the next pages go in the reserved space.
struct Cursor<'a> {
    pieces: &'a [Piece],
    /// Pages of the first piece that are taken.
    used: u64,
}

impl Cursor<'_> {
    fn left(&self) -> u64 {
        self.pieces.first().map_or(0, |piece| piece.pages.pages - self.used)
    }

    /// Goes to where so many pages fit with at most so many cuts; gives how many there are.
    fn make_room(&mut self, pages: u64, most_cuts: u64) -> Option<u64> {
        if pages <= self.left() {
            return Some(0);
        }
        // The rest of a piece stays empty if the next one holds all.
        if let [_, next, ..] = self.pieces
            && pages <= next.pages.pages
        {
            (self.pieces, self.used) = (&self.pieces[1..], 0);
            return Some(0);
        }
        let (mut room, mut cuts) = (self.left(), 0);
        for piece in self.pieces.iter().skip(1) {
            cuts += u64::from(room > 0);
            room += piece.pages.pages;
            if cuts > most_cuts {
                return None;
            }
            if room >= pages {
                return Some(cuts);
            }
        }
        None
    }

    fn take(&mut self, file: usize, mut pages: PageRun, placed: &mut Vec<Placed>) {
        while pages.pages > 0
            && let Some(piece) = self.pieces.first()
        {
            let count = pages.pages.min(self.left());
            if count > 0 {
                placed.push(Placed {
                    file,
                    pages: PageRun { first: pages.first, pages: count },
                    donor_page: piece.pages.first + self.used,
                    place: piece.place + self.used * BLOCK_BYTES,
                });
            }
            self.used += count;
            pages = PageRun { first: pages.first + count, pages: pages.pages - count };
            if self.left() == 0 {
                (self.pieces, self.used) = (&self.pieces[1..], 0);
            }
        }
    }
}

/// Where the files lie after the moves.
#[must_use]
pub fn layouts_after(files: &[PlannedFile], placed: &[Placed]) -> Vec<FileLayout> {
    let mut moved = vec![Vec::new(); files.len()];
    for run in placed {
        moved[run.file].push(Piece { pages: run.pages, place: run.place });
    }
    let after = |(file, pieces): (&PlannedFile, &mut Vec<Piece>)| {
        pieces.sort_unstable_by_key(|piece| piece.pages.first);
        file.layout.with_moved(pieces)
    };
    files.iter().zip(&mut moved).map(after).collect()
}

/// How scattered the list is when files lie so.
#[must_use]
pub fn scatter<'a>(layouts: impl IntoIterator<Item = &'a FileLayout>, wanted: &[Wanted]) -> Scatter {
    let layouts: Vec<_> = layouts.into_iter().collect();
    Scatter::of(wanted.iter().flat_map(|run| layouts[run.file].places(run.pages)))
}

#[cfg(test)]
mod tests;

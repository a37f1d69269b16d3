//! Where the pages of one file lie. No I/O.

use hs_units::{BLOCK_BYTES, ByteRange};

/// Consecutive pages of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRun {
    /// The first page; pages have 4096 bytes.
    pub first: u64,
    /// How many.
    pub pages: u64,
}

impl PageRun {
    /// The page behind the last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.pages)
    }

    pub(crate) fn between(first: u64, end: u64) -> Self {
        Self { first, pages: end.saturating_sub(first) }
    }

    /// The part that both have.
    pub(crate) fn both(&self, other: &Self) -> Option<Self> {
        let (first, end) = (self.first.max(other.first), self.end().min(other.end()));
        (first < end).then(|| Self::between(first, end))
    }
}

/// Consecutive pages of a file that lie in one piece on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The pages.
    pub pages: PageRun,
    /// The first byte on the device.
    pub place: u64,
}

/// The pages of a file that have a place: ascending and disjoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileLayout {
    pieces: Vec<Piece>,
}

impl FileLayout {
    /// Of pieces in ascending order; those that continue one another become one.
    #[must_use]
    pub fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let mut joined: Vec<Piece> = Vec::new();
        for piece in pieces.into_iter().filter(|piece| piece.pages.pages > 0) {
            match joined.last_mut() {
                Some(last) if continues(last, &piece) => last.pages.pages += piece.pages.pages,
                _ => joined.push(piece),
            }
        }
        Self { pieces: joined }
    }

    /// The pieces.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// How many pages have a place.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.pages.pages).sum()
    }

    /// How many pieces a reader of the whole file meets.
    #[must_use]
    pub fn fragments(&self) -> u64 {
        let starts = self.pieces.windows(2).filter(|pair| end_of(&pair[0]) != pair[1].place);
        self.pieces.len().min(1) as u64 + starts.count() as u64
    }

    /// The pieces inside of `run`, cut to it.
    pub fn inside(&self, run: PageRun) -> impl Iterator<Item = Piece> + '_ {
        let from = self.pieces.partition_point(|piece| piece.pages.end() <= run.first);
        self.pieces[from..].iter().map_while(move |piece| {
            let pages = piece.pages.both(&run)?;
            Some(Piece { pages, place: piece.place + (pages.first - piece.pages.first) * BLOCK_BYTES })
        })
    }

    /// Where the pages of `run` lie, in their order.
    pub fn places(&self, run: PageRun) -> impl Iterator<Item = ByteRange> + '_ {
        self.inside(run).map(|piece| ByteRange::new(piece.place, piece.pages.pages * BLOCK_BYTES))
    }

    /// The layout after these pieces were moved: ascending and disjoint, each with its new place.
    #[must_use]
    pub fn with_moved(&self, moved: &[Piece]) -> Self {
        let mut pieces = Vec::with_capacity(self.pieces.len() + 2 * moved.len());
        let mut at = 0;
        for piece in moved {
            pieces.extend(self.inside(PageRun::between(at, piece.pages.first)));
            pieces.push(*piece);
            at = piece.pages.end();
        }
        pieces.extend(self.inside(PageRun::between(at, u64::MAX)));
        Self::new(pieces)
    }
}

fn end_of(piece: &Piece) -> u64 {
    piece.place.saturating_add(piece.pages.pages.saturating_mul(BLOCK_BYTES))
}

fn continues(before: &Piece, piece: &Piece) -> bool {
    before.pages.end() == piece.pages.first && end_of(before) == piece.place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(first: u64, pages: u64, block: u64) -> Piece {
        Piece { pages: PageRun { first, pages }, place: block * BLOCK_BYTES }
    }

    #[test]
    fn pieces_join_and_holes_are_no_fragments() {
        let layout = FileLayout::new([piece(0, 2, 10), piece(2, 3, 12), piece(8, 1, 15), piece(9, 1, 40)]);
        assert_eq!(layout.pieces(), [piece(0, 5, 10), piece(8, 1, 15), piece(9, 1, 40)]);
        assert_eq!((layout.pages(), layout.fragments()), (7, 2));
        assert_eq!(FileLayout::default().fragments(), 0);
    }

    #[test]
    fn a_run_is_cut_where_the_file_is() {
        let layout = FileLayout::new([piece(0, 5, 10), piece(8, 4, 40)]);
        let inside: Vec<_> = layout.inside(PageRun { first: 3, pages: 6 }).collect();
        assert_eq!(inside, [piece(3, 2, 13), piece(8, 1, 40)]);
        assert_eq!(layout.inside(PageRun { first: 5, pages: 3 }).count(), 0);
        assert_eq!(layout.places(PageRun { first: 0, pages: u64::MAX }).count(), 2);
    }

    #[test]
    fn what_moved_is_elsewhere_and_the_rest_is_not() {
        let layout = FileLayout::new([piece(0, 10, 100)]);
        let moved = layout.with_moved(&[piece(2, 3, 7), piece(9, 1, 10)]);
        assert_eq!(moved.pieces(), [piece(0, 2, 100), piece(2, 3, 7), piece(5, 4, 105), piece(9, 1, 10)]);
        assert_eq!(moved.pages(), layout.pages());
    }
}

//! A table's bytes, in which no row may be longer than memory should be: a quote that is never closed makes
//! one row of a whole file.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// Bytes that one row may have, the reader's buffer included.
const MOST_ROW_BYTES: u64 = 1 << 20;

/// Reads a table up to a bound that [`RowBound::move_behind`] moves.
pub(super) struct Rows<R> {
    inner: R,
    given: u64,
    bound: Rc<Cell<u64>>,
}

/// Where the reading of [`Rows`] has to stop.
pub(super) struct RowBound(Rc<Cell<u64>>);

/// The table that `inner` reads, and its bound.
pub(super) fn bounded<R: Read>(inner: R) -> (Rows<R>, RowBound) {
    let bound = Rc::new(Cell::new(MOST_ROW_BYTES));
    (Rows { inner, given: 0, bound: Rc::clone(&bound) }, RowBound(bound))
}

impl RowBound {
    /// A row began at this byte, and was read.
    pub(super) fn move_behind(&self, byte: u64) {
        self.0.set(byte.saturating_add(2 * MOST_ROW_BYTES));
    }
}

impl<R: Read> Read for Rows<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given > self.bound.get() {
            let message = format!("a row has more than {MOST_ROW_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let bytes = self.inner.read(buffer)?;
        self.given += bytes as u64;
        Ok(bytes)
    }
}

//! What a medium could not read is tried again.
//!
//! A disc with scratches, dust or age may read a sector at the third try that it could not read at the first.
//! So [`Retry`] repeats a request from where it broke off: what has come is not read twice, and each bad
//! place of a large request gets its own tries. A place that stays unreadable is an error that begins there;
//! the caller can go on behind it.
//!
//! - A place gets [`Retry::RETRIES`] further tries. The operating system and the drive have already made
//!   their own, so more of ours change little and cost seconds each.
//! - A place that was given up is remembered, and gets one try from then on: a reader that repeats the
//!   request must not wait each time. It is forgotten when a try succeeds.
//! - After [`Retry::GONE`] places in a row, without a byte read between them, the medium counts as gone, and
//!   every place gets one try until one succeeds.
//!
//! Only [`StoreError::Read`] is tried again: a store that is too short does not grow.
//!
//! `Retry` lies around [`Count`](crate::Count), so that the medium counts every try.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hs_units::{BLOCK_BYTES, ByteRange};
use parking_lot::Mutex;

use crate::{Filter, Layer, Sink, Store, StoreError};

/// The most places that are remembered: a disc with more is not worth reading further.
const MAX_PLACES: usize = 1 << 16;
/// The most recovered places that are logged; a longer list helps no reader.
const MAX_TOLD: usize = 256;

/// What a [`Retry`] layer had to do, up to some moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RetrySnapshot {
    /// Requests that were made because one before them failed.
    pub retries: u64,
    /// Requests that failed for good.
    pub errors: u64,
    /// The message of the first of these, causes included.
    pub first_error: Option<String>,
}

/// Counts that a [`Retry`] layer keeps; they outlive it.
#[derive(Debug, Default)]
pub struct RetryCounters {
    retries: AtomicU64,
    errors: AtomicU64,
    /// Places given up since the last byte that came.
    failed_in_a_row: AtomicU64,
    places: Mutex<Places>,
}

/// Blocks of the store in which a request broke off.
#[derive(Debug, Default)]
struct Places {
    unreadable: BTreeSet<u64>,
    /// Those that were read in the end and were logged.
    told: BTreeSet<u64>,
    first_error: Option<String>,
}

impl RetryCounters {
    /// The counts so far.
    #[must_use]
    pub fn snapshot(&self) -> RetrySnapshot {
        RetrySnapshot {
            retries: self.retries.load(Relaxed),
            errors: self.errors.load(Relaxed),
            first_error: self.places.lock().first_error.clone(),
        }
    }

    /// Further tries that a failed request for `range` gets.
    fn tries(&self, range: ByteRange) -> u32 {
        let gone = self.failed_in_a_row.load(Relaxed) >= Retry::<()>::GONE;
        let given_up = || self.places.lock().unreadable.range(blocks(range)).next().is_some();
        if gone || given_up() { 0 } else { Retry::<()>::RETRIES }
    }

    fn came(&self, range: ByteRange) {
        self.failed_in_a_row.store(0, Relaxed);
        let mut places = self.places.lock();
        let healed: Vec<u64> = places.unreadable.range(blocks(range)).copied().collect();
        for block in healed {
            places.unreadable.remove(&block);
        }
    }

    /// A place was read at last; true the first time.
    fn recovered(&self, at: u64) -> bool {
        let mut places = self.places.lock();
        places.told.len() < MAX_TOLD && places.told.insert(at / BLOCK_BYTES)
    }

    /// A request is made again.
    pub fn tried_again(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// A request failed for good, at this byte if that is known.
    pub fn gave_up(&self, at: Option<u64>, error: &StoreError) {
        self.errors.fetch_add(1, Relaxed);
        self.failed_in_a_row.fetch_add(1, Relaxed);
        let mut places = self.places.lock();
        if let Some(at) = at.filter(|_| places.unreadable.len() < MAX_PLACES) {
            places.unreadable.insert(at / BLOCK_BYTES);
        }
        places.first_error.get_or_insert_with(|| error.with_causes());
    }
}

/// The blocks that a range touches.
fn blocks(range: ByteRange) -> std::ops::Range<u64> {
    range.offset / BLOCK_BYTES..range.end().div_ceil(BLOCK_BYTES)
}

/// A store whose failed requests are made again.
pub type Retry<S> = Layer<Retrying, S>;

/// What [`Retry`] does with requests.
#[derive(Debug, Default)]
pub struct Retrying {
    counters: Arc<RetryCounters>,
}

impl<S> Retry<S> {
    /// Further tries for a place that could not be read. They come after the drive's own and the kernel's
    /// (five for a disk, `SD_MAX_RETRIES`), and on a real drive each takes seconds.
    pub const RETRIES: u32 = 3;
    /// This many failed places in a row make a medium that is gone: as many as there are chunks in a reader's
    /// largest request for windows that it was not asked for.
    pub const GONE: u64 = 8;
}

impl<S: Store> Retry<S> {
    /// Wraps `inner`, with further tries.
    #[must_use]
    pub fn new(inner: S) -> Self {
        Self::around(inner, Retrying::default())
    }

    /// The counters, to keep and to read while the store is in use.
    #[must_use]
    pub fn counters(&self) -> Arc<RetryCounters> {
        Arc::clone(&self.filter.counters)
    }
}

impl Retrying {
    /// Repeats the request for `rest`. Its first byte is unreadable if that is `known`; otherwise any byte
    /// may be.
    fn again(
        &self,
        next: &dyn Store,
        mut rest: ByteRange,
        mut known: bool,
        mut error: StoreError,
        sink: &mut Sink<'_>,
    ) -> Result<(), StoreError> {
        let end = rest.end();
        let mut left = self.counters.tries(if known { ByteRange::new(rest.offset, 1) } else { rest });
        while matches!(error, StoreError::Read { .. }) {
            if left == 0 {
                self.counters.gave_up(known.then_some(rest.offset), &error);
                return Err(error);
            }
            left -= 1;
            self.counters.tried_again();
            let mut came = 0;
            let result = next.stream(rest, &mut |piece| {
                came += piece.len() as u64;
                sink(piece)
            });
            if came > 0 {
                self.counters.came(ByteRange::new(rest.offset, came));
                if (known || result.is_ok()) && self.counters.recovered(rest.offset) {
                    let tries = Retry::<()>::RETRIES + 1 - left;
                    log::warn!("{}: bytes {rest} could be read at try {tries}", next.name());
                }
                rest = ByteRange::new(rest.offset + came, end - rest.offset - came);
            }
            let Err(again) = result else { return Ok(()) };
            error = again;
            let tries = self.counters.tries(ByteRange::new(rest.offset, 1));
            // A read does not report where it failed: if not where it began, it was here.
            left = if known && came > 0 { tries } else { left.min(tries) };
            known = true;
        }
        Err(error)
    }
}

impl Filter for Retrying {
    fn read_at(&self, next: &dyn Store, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let range = ByteRange::new(offset, buf.len() as u64);
        let Err(error) = next.read_at(offset, buf) else {
            self.counters.came(range);
            return Ok(());
        };
        let mut filled = 0;
        self.again(next, range, false, error, &mut |piece| {
            buf[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
            ControlFlow::Continue(())
        })
    }

    fn stream(&self, next: &dyn Store, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        let mut came = 0;
        let result = next.stream(range, &mut |piece| {
            came += piece.len() as u64;
            sink(piece)
        });
        if came > 0 {
            self.counters.came(ByteRange::new(range.offset, came));
        }
        let Err(error) = result else { return Ok(()) };
        self.again(next, ByteRange::new(range.offset + came, range.len - came), true, error, sink)
    }
}

#[cfg(test)]
mod tests;

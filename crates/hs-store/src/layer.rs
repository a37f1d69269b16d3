//! How a layer is written.
//!
//! A layer changes one thing about the store that it wraps. That change is a [`Filter`], which gets each
//! request with the store below as `next`; [`Layer`] makes a store of both. So a filter is as small as what
//! it changes: what it is not asked about is passed on here, once for all layers.

use hs_units::ByteRange;

use crate::{Sink, Store, StoreError};

/// What a layer does with requests. They lie in the store and are not empty.
pub trait Filter: Send + Sync {
    /// As [`Store::read_at`].
    ///
    /// # Errors
    /// Those of `next`, and those that the filter adds.
    fn read_at(&self, next: &dyn Store, offset: u64, buf: &mut [u8]) -> Result<(), StoreError>;

    /// As [`Store::stream`].
    ///
    /// # Errors
    /// Those of `next`, and those that the filter adds.
    fn stream(&self, next: &dyn Store, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError>;

    /// The store is being closed; `next` is closed afterwards.
    fn close(&self) {}
}

/// A store with a filter around it.
#[derive(Debug)]
pub struct Layer<F, S> {
    pub(crate) filter: F,
    inner: S,
}

impl<F, S> Layer<F, S> {
    /// Puts `filter` around `inner`.
    pub const fn around(inner: S, filter: F) -> Self {
        Self { filter, inner }
    }
}

impl<F: Filter, S: Store> Store for Layer<F, S> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        StoreError::check_range(self, ByteRange::new(offset, buf.len() as u64))?;
        if buf.is_empty() { Ok(()) } else { self.filter.read_at(&self.inner, offset, buf) }
    }

    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        StoreError::check_range(self, range)?;
        if range.len == 0 { Ok(()) } else { self.filter.stream(&self.inner, range, sink) }
    }

    fn expect_stream(&self, range: ByteRange) {
        self.inner.expect_stream(range);
    }

    fn expect_most(&self, range: ByteRange) {
        self.inner.expect_most(range);
    }

    fn trouble(&self) -> Option<String> {
        self.inner.trouble()
    }

    fn close(&self) {
        self.filter.close();
        self.inner.close();
    }
}

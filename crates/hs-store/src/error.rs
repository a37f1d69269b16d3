//! What can go wrong with a store.

use std::io;

use hs_device::MediumError;
use hs_units::ByteRange;

use crate::Store;

/// What can go wrong with a store. `path` is the store's [`name`](Store::name). What the system said
/// is the error's `source()`, not repeated in its text: print the whole chain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store could not be opened.
    #[error("cannot open {path}")]
    Open {
        /// What was to be opened.
        path: String,
        /// Why it could not be.
        source: io::Error,
    },

    /// The path is neither a regular file nor a block device.
    #[error("cannot read {path}: it is {kind}, neither a regular file nor a block device")]
    NotAFile {
        /// What was to be opened.
        path: String,
        /// What it is, with its article.
        kind: &'static str,
    },

    /// The store cannot lie on the medium that was to be emulated.
    #[error("cannot put {path} on the emulated medium")]
    Medium {
        /// The store.
        path: String,
        /// Why it cannot.
        source: MediumError,
    },

    /// Bytes were asked for that the store does not have.
    #[error("{path} is too short: {len} bytes at offset {offset} were asked for, it has {available} bytes")]
    Short {
        /// The store.
        path: String,
        /// First byte that was asked for.
        offset: u64,
        /// Bytes that were asked for.
        len: u64,
        /// Size of the store, as far as it can be read.
        available: u64,
    },

    /// The store was closed: reads under way have no reader any more.
    #[error("{path} is being closed")]
    Closed {
        /// The store.
        path: String,
    },

    /// The medium failed.
    #[error("cannot read {len} bytes at offset {offset} of {path}")]
    Read {
        /// The store.
        path: String,
        /// First byte that was asked for.
        offset: u64,
        /// Bytes that were asked for.
        len: u64,
        /// What the medium said.
        source: io::Error,
    },
}

impl StoreError {
    /// Refuses a range that does not lie in `store`. Layers and backends call this before they
    /// calculate with the end of a range, so that no sum of theirs overflows.
    ///
    /// # Errors
    /// [`StoreError::Short`] when `range` reaches beyond the store's end.
    pub fn check_range<S: Store + ?Sized>(store: &S, range: ByteRange) -> Result<(), Self> {
        if range.fits_in(store.len()) { Ok(()) } else { Err(Self::short(store.name(), range, store.len())) }
    }

    /// The text, followed by what the system said.
    #[must_use]
    pub fn with_causes(&self) -> String {
        let causes = std::iter::successors(std::error::Error::source(self), |cause| cause.source());
        causes.fold(self.to_string(), |text, cause| format!("{text}: {cause}"))
    }

    /// `range` of the store called `name`, which ends after `available` bytes.
    #[must_use]
    pub fn short(name: &str, range: ByteRange, available: u64) -> Self {
        Self::Short { path: name.to_owned(), offset: range.offset, len: range.len, available }
    }

    /// `range` of the store called `name` failed with `source`.
    #[must_use]
    pub fn read(name: &str, range: ByteRange, source: io::Error) -> Self {
        Self::Read { path: name.to_owned(), offset: range.offset, len: range.len, source }
    }
}

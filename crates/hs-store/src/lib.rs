//! Random-access bytes, and layers over them.
//!
//! A [`Store`] is what an image lies in: some bytes with a length and a name. It knows nothing of
//! chunks or digests. Backends hold bytes; layers wrap any store, are stores themselves, and
//! change one thing each. A stack is written from the outside in:
//!
//! ```
//! use std::sync::Arc;
//! use hs_device::Medium;
//! use hs_store::{Count, Emulate, FileStore, Retry, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::current_exe()?;
//! let medium = Medium::parse("none")?;
//! let count = Count::new(Emulate::new(FileStore::open(&path)?, &medium)?);
//! let counters = count.counters();
//! let store: Arc<dyn Store> = Arc::new(Retry::new(count));
//!
//! let mut magic = [0; 4];
//! store.read_at(0, &mut magic)?;
//! assert_eq!(counters.snapshot().bytes, 4);
//! # Ok(()) }
//! ```
//!
//! | part | kind | what it does |
//! | --- | --- | --- |
//! | [`FileStore`] | backend | a regular file or a block device |
//! | [`MemoryStore`] | backend | a vector of bytes |
//! | [`Emulate`] | layer | takes as long as another medium would |
//! | [`Count`] | layer | counts requests, bytes, seeks and busy time |
//! | [`Retry`] | layer | asks again for what the medium could not read |
//! | [`Fault`] | layer | damages, fails or delays chosen places |
//!
//! A layer is written as a [`Filter`]. Beside them, [`DiskCache`] keeps on disk what was fetched, by digest.

#![forbid(unsafe_code)]

mod clock;
#[cfg(any(test, feature = "testing"))]
pub mod contract;
mod count;
mod disk_cache;
mod emulate;
mod error;
mod fault;
mod file;
mod layer;
mod memory;
mod open_file;
mod retry;
mod shown_device;
#[cfg(any(test, feature = "testing"))]
pub mod virtual_clock;

use std::ops::ControlFlow;
use std::sync::Arc;

use hs_units::ByteRange;

pub use clock::{Clock, Monotonic};
pub use count::{Count, Counters, InService, Snapshot};
pub use disk_cache::{DiskCache, DiskCacheCounts, DiskCacheUsage};
pub use emulate::Emulate;
pub use error::StoreError;
pub use fault::{Fault, FaultKind, Rule};
pub use file::FileStore;
pub use layer::{Filter, Layer};
pub use memory::MemoryStore;
pub use retry::{Retry, RetryCounters, RetrySnapshot};
pub use shown_device::ShownDevice;

/// Takes the pieces of a stream, in order; `Break` asks for no more.
pub type Sink<'a> = dyn FnMut(&[u8]) -> ControlFlow<()> + 'a;

/// Takes what a request brings that was [begun](Store::begin): its pieces, as a [`Sink`] does, and then how
/// it ended. The calls come one after another, from any thread, and must not wait: other requests go on with
/// the same thread.
///
/// A completion that is dropped without [`done`](Self::done) belonged to a request that was lost, because the
/// store panicked or the program ends.
pub trait Completion: Send {
    /// Takes the next piece; `Break` asks for no more.
    fn piece(&mut self, piece: &[u8]) -> ControlFlow<()>;

    /// The request is over, as [`Store::stream`] would have returned.
    fn done(self: Box<Self>, result: Result<(), StoreError>);
}

/// Bytes that can be read anywhere, by several threads at once.
///
/// The length is fixed while the store is open. A call is *one* request on the medium, however it
/// is carried out; one of no bytes is not a request and does nothing.
pub trait Store: Send + Sync {
    /// Size in bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What to call the store in messages: a path or an address.
    fn name(&self) -> &str;

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`StoreError::Short`] when the bytes are not all there, [`StoreError::Read`] when the
    /// medium fails. The contents of `buf` are then unspecified.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError>;

    /// Hands consecutive pieces of `range` to `sink` as they arrive: none empty, of any size, all
    /// of `range` together. One request on the medium. When `sink` breaks, the stream ends early
    /// and without an error, and the rest is not read.
    ///
    /// # Errors
    /// As for [`read_at`](Self::read_at). Pieces from before the fault may have been handed out,
    /// except that a range that does not lie in the store hands out none.
    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError>;

    /// Whether [`begin`](Self::begin) returns at once, and the calling thread does not carry the request out.
    fn can_begin(&self) -> bool {
        false
    }

    /// Begins what [`stream`](Self::stream) does; `completion` gets what comes. Many requests may be under
    /// way without a thread for each. A store that cannot do that carries the request out before it returns.
    fn begin(&self, range: ByteRange, mut completion: Box<dyn Completion>) {
        let result = self.stream(range, &mut |piece| completion.piece(piece));
        completion.done(result);
    }

    /// Announces that `range` is going to be streamed in order, by several calls of [`stream`](Self::stream).
    /// A store to which each request costs a round trip may bring it all with one.
    fn expect_stream(&self, _range: ByteRange) {}

    /// The same for a stream that is most of what will ever be read from the store: several requests at once
    /// for parts of it take the medium from no other reader.
    fn expect_most(&self, range: ByteRange) {
        self.expect_stream(range);
    }

    /// Why what is asked for has not come yet, where the store asks again by itself.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Closes the store, because the program ends: requests under way and later ones fail with
    /// [`StoreError::Closed`] where the medium can be left at any moment. A disk of this machine cannot; but
    /// a wait for one that is gone ends.
    fn close(&self) {}
}

/// Forwards every method to what the pointer points at.
macro_rules! store_through_pointer {
    ($($pointer:ty),*) => {$(
        impl<S: Store + ?Sized> Store for $pointer {
            fn len(&self) -> u64 {
                (**self).len()
            }
            fn is_empty(&self) -> bool {
                (**self).is_empty()
            }
            fn name(&self) -> &str {
                (**self).name()
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
                (**self).read_at(offset, buf)
            }
            fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
                (**self).stream(range, sink)
            }
            fn can_begin(&self) -> bool {
                (**self).can_begin()
            }
            fn begin(&self, range: ByteRange, completion: Box<dyn Completion>) {
                (**self).begin(range, completion);
            }
            fn expect_stream(&self, range: ByteRange) {
                (**self).expect_stream(range);
            }
            fn expect_most(&self, range: ByteRange) {
                (**self).expect_most(range);
            }
            fn trouble(&self) -> Option<String> {
                (**self).trouble()
            }
            fn close(&self) {
                (**self).close();
            }
        }
    )*};
}

store_through_pointer!(&S, Box<S>, Arc<S>);

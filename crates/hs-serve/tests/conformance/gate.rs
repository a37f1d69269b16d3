//! A medium that does not answer before it is told to, so that a test knows what waits.

use hs_store::{FileStore, Sink, Store, StoreError};
use hs_units::ByteRange;
use parking_lot::{Condvar, Mutex};

/// A store of which one place cannot be read until it is opened.
pub(crate) struct Gate {
    inner: FileStore,
    place: ByteRange,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn new(inner: FileStore, place: ByteRange) -> Self {
        Self { inner, place, open: Mutex::new(false), opened: Condvar::new() }
    }

    /// Whoever waits for the place gets it, and whoever asks later.
    fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }

    /// Opens it when that is dropped, also by a test that fails: or nobody would end who waits for the place.
    pub(crate) fn opens_in_the_end(&self) -> Opens<'_> {
        Opens(self)
    }

    fn wait(&self, range: ByteRange) {
        if range.offset < self.place.end() && self.place.offset < range.end() {
            self.opened.wait_while(&mut self.open.lock(), |open| !*open);
        }
    }
}

pub(crate) struct Opens<'a>(&'a Gate);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Store for Gate {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        self.wait(ByteRange::new(offset, buf.len() as u64));
        self.inner.read_at(offset, buf)
    }
    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        self.wait(range);
        self.inner.stream(range, sink)
    }
}

//! A medium that does not answer before it is told to, so that a test knows what waits and depends on no
//! time.

use std::sync::Arc;

use hs_store::{FileStore, Sink, Store, StoreError};
use hs_units::ByteRange;
use parking_lot::{Condvar, Mutex};

/// A store of which some places cannot be read while they are shut.
pub struct Gates {
    inner: FileStore,
    places: Vec<ByteRange>,
    state: Mutex<Vec<Gate>>,
    changed: Condvar,
}

#[derive(Clone, Default)]
struct Gate {
    is_open: bool,
    waiting: usize,
}

impl Gates {
    /// All of these places are shut.
    pub fn new(inner: FileStore, places: &[ByteRange]) -> Arc<Self> {
        let state = Mutex::new(vec![Gate::default(); places.len()]);
        Arc::new(Self { inner, places: places.to_vec(), state, changed: Condvar::new() })
    }

    /// Answers the reads that wait for the place with this number, and later ones.
    pub fn open(&self, number: usize) {
        self.state.lock()[number].is_open = true;
        self.changed.notify_all();
    }

    /// Reads of it wait from now on.
    pub fn shut(&self, number: usize) {
        self.state.lock()[number].is_open = false;
    }

    /// How many wait for it.
    pub fn waiting(&self, number: usize) -> usize {
        self.state.lock()[number].waiting
    }

    /// Opens them all when the result is dropped, also by a test that fails: otherwise waiting threads would
    /// not end.
    pub fn open_at_end(self: &Arc<Self>) -> OpenAtEnd {
        OpenAtEnd(Arc::clone(self))
    }

    fn wait(&self, range: ByteRange) {
        for (number, place) in self.places.iter().enumerate() {
            if range.offset < place.end() && place.offset < range.end() {
                let mut state = self.state.lock();
                state[number].waiting += 1;
                self.changed.wait_while(&mut state, |state| !state[number].is_open);
                state[number].waiting -= 1;
            }
        }
    }
}

/// Opens all gates when it is dropped.
pub struct OpenAtEnd(Arc<Gates>);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        (0..self.0.places.len()).for_each(|number| self.0.open(number));
    }
}

impl Store for Gates {
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

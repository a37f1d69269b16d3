//! A remote file for which no requests may be made.

use hs_units::ByteRange;

use super::HttpError;
use hs_store::{Sink, Store, StoreError};

/// A file whose size is known, and of which every read fails: the layer above has the bytes in a cache, or
/// not at all.
#[derive(Clone, Debug)]
pub struct Offline {
    name: String,
    len: u64,
}

impl Offline {
    /// The file called `name`, of `len` bytes.
    #[must_use]
    pub const fn new(name: String, len: u64) -> Self {
        Self { name, len }
    }

    fn refuse(&self, range: ByteRange) -> Result<(), StoreError> {
        StoreError::check_range(self, range)?;
        if range.len == 0 {
            Ok(())
        } else {
            Err(StoreError::read(&self.name, range, HttpError::Offline.into_io()))
        }
    }
}

impl Store for Offline {
    fn len(&self) -> u64 {
        self.len
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        self.refuse(ByteRange::new(offset, buf.len() as u64))
    }

    fn stream(&self, range: ByteRange, _sink: &mut Sink<'_>) -> Result<(), StoreError> {
        self.refuse(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_read_of_bytes_fails_and_says_why() {
        let store = Offline::new("far away".to_owned(), 100);
        assert_eq!((store.len(), store.name()), (100, "far away"));
        let read = store.read_at(10, &mut [0; 5]).expect_err("offline").with_causes();
        assert!(read.contains("offset 10 of far away") && read.contains("--offline"), "{read}");
        let range = ByteRange::new(0, 100);
        let stream = store.stream(range, &mut |_| panic!("bytes")).expect_err("offline");
        assert!(matches!(stream, StoreError::Read { offset: 0, len: 100, .. }));
        store.read_at(100, &mut []).expect("nothing is asked for");
        assert!(matches!(store.read_at(100, &mut [0]), Err(StoreError::Short { .. })));
    }
}

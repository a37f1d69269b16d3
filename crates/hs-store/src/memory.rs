//! Bytes in memory.
//!
//! [`MemoryStore`] is a store as good as any, with no medium under it: for images small enough to
//! be held, for what was downloaded whole, and for tests of what is above.

use std::ops::ControlFlow;

use hs_units::ByteRange;

use crate::{Sink, Store, StoreError};

/// A vector of bytes as a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryStore {
    name: String,
    bytes: Vec<u8>,
}

impl MemoryStore {
    /// Bytes handed to a sink at once, as [`FileStore`](crate::FileStore) does.
    const PIECE_BYTES: usize = 256 << 10;

    /// The store of `bytes`, called "memory".
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { name: "memory".to_owned(), bytes }
    }

    /// The same bytes under another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The bytes of `range`, which may lie anywhere.
    fn slice(&self, range: ByteRange) -> Result<&[u8], StoreError> {
        StoreError::check_range(self, range)?;
        // The range lies in a vector, so its ends are addresses and fit.
        Ok(&self.bytes[range.offset as usize..range.end() as usize])
    }
}

impl Store for MemoryStore {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        buf.copy_from_slice(self.slice(ByteRange::new(offset, buf.len() as u64))?);
        Ok(())
    }

    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        for piece in self.slice(range)?.chunks(Self::PIECE_BYTES) {
            if let ControlFlow::Break(()) = sink(piece) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_the_contract() {
        crate::contract::check(MemoryStore::new, 1 << 20);
    }

    #[test]
    fn errors_carry_the_name() {
        let store = MemoryStore::new(vec![1; 10]).named("ten ones");
        let error = store.read_at(8, &mut [0; 4]).expect_err("too long");
        assert_eq!(
            error.to_string(),
            "ten ones is too short: 4 bytes at offset 8 were asked for, it has 10 bytes"
        );
    }
}

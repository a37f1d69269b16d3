//! What every store keeps, checked against the plain bytes that it holds.

use std::ops::ControlFlow;

use hs_units::{ByteRange, Prng};

use crate::{Store, StoreError};

/// Some bytes that repeat nowhere.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Prng::new(seed).fill(&mut bytes);
    bytes
}

/// Everything that `stream` hands out.
pub fn collect(store: &dyn Store, range: ByteRange) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    store.stream(range, &mut |piece| {
        bytes.extend_from_slice(piece);
        ControlFlow::Continue(())
    })?;
    Ok(bytes)
}

/// Checks the store that `make` makes of `len` bytes; also an empty one.
pub fn check<S: Store>(make: impl Fn(Vec<u8>) -> S, len: usize) {
    let model = noise(len, 1);
    check_filled(&make(model.clone()), &model);

    let empty = make(Vec::new());
    assert!(empty.is_empty());
    assert!(empty.read_at(0, &mut []).is_ok());
    assert!(matches!(empty.read_at(0, &mut [0]), Err(StoreError::Short { available: 0, .. })));
}

/// Checks a store of these bytes, which are some.
pub fn check_filled(store: &dyn Store, model: &[u8]) {
    let len = model.len();
    assert_eq!(store.len(), len as u64);
    assert!(!store.is_empty() && !store.name().is_empty());

    let mut prng = Prng::new(2);
    for _ in 0..200 {
        let offset = prng.below(len as u64 + 1);
        let count =
            prng.below(len as u64 - offset + 1).min(if prng.below(2) == 0 { 5_000 } else { u64::MAX });
        check_range(store, model, ByteRange::new(offset, count));
    }
    check_range(store, model, ByteRange::new(0, len as u64));
    check_outside(store);
    check_break(store, model);
}

fn check_range(store: &dyn Store, model: &[u8], range: ByteRange) {
    let expected = &model[range.offset as usize..range.end() as usize];
    let mut buf = vec![0; expected.len()];
    store.read_at(range.offset, &mut buf).expect("in the store");
    assert!(buf == expected, "read_at {range}");
    let mut at = 0;
    store
        .stream(range, &mut |piece| {
            assert!(!piece.is_empty(), "an empty piece at {at} of {range}");
            assert!(expected[at..].starts_with(piece), "stream {range} at {at}");
            at += piece.len();
            ControlFlow::Continue(())
        })
        .expect("in the store");
    assert_eq!(at, expected.len(), "stream {range}");
}

fn check_outside(store: &dyn Store) {
    let end = store.len();
    for range in [
        ByteRange::new(end, 1),
        ByteRange::new(end - 1, 2),
        ByteRange::new(end + 1, 0),
        ByteRange::new(u64::MAX, 1),
        ByteRange::new(u64::MAX, 0),
    ] {
        let read = store.read_at(range.offset, &mut vec![0; range.len as usize]);
        assert!(matches!(read, Err(StoreError::Short { .. })), "read_at {range}");
        let stream = store.stream(range, &mut |_| panic!("bytes of {range}"));
        assert!(matches!(stream, Err(StoreError::Short { .. })), "stream {range}");
    }
    let all_of_it = store.stream(ByteRange::new(1, u64::MAX), &mut |_| panic!("bytes beyond the end"));
    assert!(matches!(all_of_it, Err(StoreError::Short { .. })));
}

fn check_break(store: &dyn Store, model: &[u8]) {
    let mut got = Vec::new();
    store
        .stream(ByteRange::new(0, store.len()), &mut |piece| {
            assert!(got.is_empty(), "a piece after the break");
            got.extend_from_slice(piece);
            ControlFlow::Break(())
        })
        .expect("a break is no error");
    assert!(!got.is_empty() && model.starts_with(&got));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Filter, Layer, MemoryStore, Sink};

    /// It goes on when its reader has enough.
    struct Stubborn;

    impl Filter for Stubborn {
        fn read_at(&self, next: &dyn Store, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
            next.read_at(offset, buf)
        }

        fn stream(&self, next: &dyn Store, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
            next.stream(range, &mut |piece| {
                for part in piece.chunks(100) {
                    let _ = sink(part);
                }
                ControlFlow::Continue(())
            })
        }
    }

    #[test]
    #[should_panic(expected = "a piece after the break")]
    fn a_store_that_does_not_end_is_found_out() {
        check(|bytes| Layer::around(MemoryStore::new(bytes), Stubborn), 1000);
    }
}

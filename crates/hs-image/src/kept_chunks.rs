//! Chunks and tables from the cache on disk, or from the store and then into the cache.
//!
//! Only verified bytes go into the cache, and what comes out of it is unverified again.

use std::ops::ControlFlow;

use bytes::Bytes;
use hs_format::{ChunkRef, ExpectedBytes, FormatError, Unverified};
use hs_store::{DiskCache, Store, StoreError};
use hs_units::{ByteRange, Digest, to_u32, to_usize};

use crate::cold::{in_file, read};
use crate::splitter::ChunkSplitter;
use crate::{ImageError, StreamEvent};

/// A chunk and where in the file its stored bytes lie.
#[derive(Clone, Copy, Debug)]
pub struct ChunkPlace {
    /// The chunk.
    pub chunk: ChunkRef,
    /// Its bytes in the file.
    pub at: ByteRange,
}

impl ChunkPlace {
    /// From the cache; nothing when it is damaged there.
    pub(crate) fn kept(&self, cache: &DiskCache) -> Option<Unverified<Vec<u8>>> {
        kept(cache, &self.chunk.expected())
    }

    /// Into the cache, if they are right; if they are not, decoding reports it.
    fn keep(&self, cache: &DiskCache, stored: Unverified<&[u8]>) {
        if let Ok(stored) = stored.verify(&self.chunk.expected()) {
            cache.put(&self.chunk.digest, Bytes::copy_from_slice(stored));
        }
    }
}

/// What the cache has of these bytes. They are verified here only so that the store is asked for damaged
/// ones; what uses them verifies them again.
pub(crate) fn kept(cache: &DiskCache, expected: &ExpectedBytes) -> Option<Unverified<Vec<u8>>> {
    let stored = Unverified::new(cache.get(&expected.digest(), expected.len())?);
    if stored.as_slice().verify(expected).is_err() {
        cache.spoiled(&expected.digest());
        return None;
    }
    Some(stored)
}

/// The stored bytes of a chunk.
pub(crate) fn one(
    store: &dyn Store,
    cache: Option<&DiskCache>,
    place: ChunkPlace,
) -> Result<Unverified<Vec<u8>>, ImageError> {
    if let Some(stored) = cache.and_then(|cache| place.kept(cache)) {
        return Ok(stored);
    }
    let stored = read(store, place.at)?;
    if let Some(cache) = cache {
        place.keep(cache, stored.as_slice());
    }
    Ok(stored)
}

/// Hands over the stored bytes of chunks that lie one after another, by their places in `places`: with one
/// request to the store for each run that the cache does not have.
pub(crate) fn stream(
    store: &dyn Store,
    cache: Option<&DiskCache>,
    places: &[ChunkPlace],
    sink: &mut dyn FnMut(StreamEvent<'_>) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let mut next = 0;
    while next < places.len() {
        if let Some(stored) = cache.and_then(|cache| places[next].kept(cache)) {
            if sink(StreamEvent::FirstBytes(stored.len() as u64)).is_break()
                || sink(StreamEvent::Chunk(to_u32(next as u64), stored.convert())).is_break()
            {
                return Ok(());
            }
            next += 1;
            continue;
        }
        let has = |place: &ChunkPlace| cache.is_some_and(|cache| cache.has(&place.chunk.digest));
        let more = places[next + 1..].iter().take_while(|place| !has(place)).count();
        let end = next + 1 + more;
        if fetch(store, &places[..end], next, sink)?.is_break() {
            return Ok(());
        }
        next = end;
    }
    Ok(())
}

/// One request for the places from `first` on.
fn fetch(
    store: &dyn Store,
    places: &[ChunkPlace],
    first: usize,
    sink: &mut dyn FnMut(StreamEvent<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, StoreError> {
    let (start, end) = (places[first].at.offset, places[places.len() - 1].at.end());
    let mut cutter = Cutter::new(to_u32(first as u64));
    let mut flow = ControlFlow::Continue(());
    store.stream(ByteRange::new(start, end - start), &mut |piece| {
        flow = cutter.push(piece, places, sink);
        flow
    })?;
    Ok(flow)
}

/// Cuts what a request brings into chunks.
pub(crate) struct Cutter {
    splitter: ChunkSplitter,
    is_first: bool,
}

impl Cutter {
    /// For a request that begins with the place of this number.
    pub(crate) const fn new(first: u32) -> Self {
        Self { splitter: ChunkSplitter::new(first), is_first: true }
    }

    /// Takes the next bytes.
    pub(crate) fn push(
        &mut self,
        piece: &[u8],
        places: &[ChunkPlace],
        sink: &mut dyn FnMut(StreamEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if std::mem::take(&mut self.is_first) {
            sink(StreamEvent::FirstBytes(piece.len() as u64))?;
        }
        let stored_bytes = |number: u32| to_usize(places[number as usize].at.len);
        self.splitter
            .push(piece, stored_bytes, &mut |number, stored| sink(StreamEvent::Chunk(number, stored)))
    }
}

/// A table that is verified and parsed by `decode`. It is kept under `digest`, as `encode` writes it: a table
/// has one encoding.
pub(crate) fn table<T>(
    store: &dyn Store,
    cache: Option<&DiskCache>,
    digest: &Digest,
    at: ByteRange,
    decode: impl Fn(Unverified<&[u8]>) -> Result<T, FormatError>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> Result<T, ImageError> {
    if let Some((cache, bytes)) = cache.and_then(|cache| Some((cache, cache.get(digest, at.len)?))) {
        match decode(Unverified::new(&bytes)) {
            Ok(table) => return Ok(table),
            Err(_) => cache.spoiled(digest),
        }
    }
    let bytes = read(store, at)?;
    let table = decode(bytes.as_slice()).map_err(in_file(store, at))?;
    if let Some(cache) = cache {
        cache.put(digest, encode(&table).into());
    }
    Ok(table)
}

//! Requests for chunks and pages that are begun and bring what they bring later, without a thread for each.

use std::ops::ControlFlow;
use std::sync::Arc;

use hs_format::Unverified;
use hs_store::{Completion, Store, StoreError};
use hs_units::{ByteRange, to_u32};

use crate::cold::index_range;
use crate::kept_chunks::{ChunkPlace, Cutter};
use crate::{Image, ImageError, IndexPage, StoredPage, StreamEvent};

/// Takes what a request brings that was begun. The calls come one after another, from any thread, and must
/// not wait. One that is dropped without [`done`](Self::done) belonged to a request that was lost.
pub trait ChunkReceiver: Send {
    /// Takes what has come; `Break` asks for no more.
    fn event(&mut self, event: StreamEvent<'_>) -> ControlFlow<()>;

    /// The request is over, as [`Image::stream_chunks`] would have returned.
    fn done(self: Box<Self>, result: Result<(), ImageError>);
}

/// Takes a page of the index; otherwise as [`ChunkReceiver`].
pub trait PageReceiver: Send {
    /// The first of its bytes have come, so many.
    fn first_bytes(&mut self, bytes: u64);

    /// The request is over, as [`Image::fetch_page`] would have returned.
    fn done(self: Box<Self>, result: Result<StoredPage, ImageError>);
}

impl Image {
    /// Whether [`Image::begin_chunks`] and [`Image::begin_page`] return at once.
    #[must_use]
    pub fn can_begin(&self) -> bool {
        self.store().can_begin()
    }

    /// Begins what [`Image::stream_chunks`] does, with one request to the store for all the places, whatever
    /// the cache on disk has.
    pub fn begin_chunks(&self, places: Vec<ChunkPlace>, receiver: Box<dyn ChunkReceiver>) {
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            receiver.done(Ok(()));
            return;
        };
        let (at, range) = (first.at, ByteRange::new(first.at.offset, last.at.end() - first.at.offset));
        let chunks = Box::new(Chunks { cutter: Cutter::new(0), places, receiver });
        let Some(store) = self.borrowed_store(at) else { return self.store().begin(range, chunks) };
        // It has requests to two stores, one after another: a thread waits for them. Where there is none,
        // the request is lost, which the receiver is told.
        let begun = std::thread::Builder::new().name("hs-borrow".to_owned());
        if let Err(error) = begun.spawn(move || store.begin(range, chunks)) {
            log::warn!("{}: start a thread: {error}", self.name());
        }
    }

    /// Begins what [`Image::fetch_page`] does, whatever the cache on disk has.
    pub fn begin_page(&self, page: &IndexPage, receiver: Box<dyn PageReceiver>) {
        let (_, at) = self.page_place(page);
        if *page == IndexPage::Root && self.reads_whole_index() {
            let store = Arc::clone(self.store());
            Page::begin(&**self.store(), index_range(self.superblock()), Some((store, at)), receiver);
        } else {
            Page::begin(&**self.store(), at, None, receiver);
        }
    }
}

/// Cuts what comes into chunks.
struct Chunks {
    cutter: Cutter,
    places: Vec<ChunkPlace>,
    receiver: Box<dyn ChunkReceiver>,
}

impl Completion for Chunks {
    fn piece(&mut self, piece: &[u8]) -> ControlFlow<()> {
        let receiver = &mut self.receiver;
        self.cutter.push(piece, &self.places, &mut |event| receiver.event(event))
    }

    fn done(self: Box<Self>, result: Result<(), StoreError>) {
        self.receiver.done(result.map_err(ImageError::from));
    }
}

/// Collects a page.
struct Page {
    bytes: Vec<u8>,
    /// Of a root that comes with all leaves: where it lies alone. One place of the index that cannot be read
    /// must not take the rest with it.
    alone: Option<(Arc<dyn Store>, ByteRange)>,
    receiver: Box<dyn PageReceiver>,
}

impl Page {
    fn begin(
        store: &dyn Store,
        range: ByteRange,
        alone: Option<(Arc<dyn Store>, ByteRange)>,
        receiver: Box<dyn PageReceiver>,
    ) {
        let bytes = Vec::with_capacity(to_u32(range.len) as usize);
        store.begin(range, Box::new(Self { bytes, alone, receiver }));
    }
}

impl Completion for Page {
    fn piece(&mut self, piece: &[u8]) -> ControlFlow<()> {
        if self.bytes.is_empty() {
            self.receiver.first_bytes(piece.len() as u64);
        }
        self.bytes.extend_from_slice(piece);
        ControlFlow::Continue(())
    }

    fn done(self: Box<Self>, result: Result<(), StoreError>) {
        let Self { bytes, alone, receiver } = *self;
        let bytes = Unverified::new(bytes).convert();
        match (result.map_err(ImageError::from), alone) {
            (Ok(()), None) => receiver.done(Ok(StoredPage::Alone(bytes))),
            (Ok(()), Some(_)) => receiver.done(Ok(StoredPage::Whole(bytes))),
            (Err(error), Some((store, at))) if !error.is_closed() => {
                log::debug!("{error}; the index is read page by page");
                Self::begin(&*store, at, None, receiver);
            }
            (Err(error), _) => receiver.done(Err(error)),
        }
    }
}

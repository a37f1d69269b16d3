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

/// Takes a page of the index when it has come. Dropped unused, it belonged to a request that was lost.
pub type PageReceiver = Box<dyn FnOnce(Result<StoredPage, ImageError>) + Send>;

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
        let range = ByteRange::new(first.at.offset, last.at.end() - first.at.offset);
        self.store().begin(range, Box::new(Chunks { cutter: Cutter::new(0), places, receiver }));
    }

    /// Begins what [`Image::fetch_page`] does, whatever the cache on disk has.
    pub fn begin_page(&self, page: &IndexPage, receiver: PageReceiver) {
        let superblock = self.superblock();
        let index = index_range(superblock);
        let (_, at) = self.page_place(page);
        if *page != IndexPage::Root || !self.reads_whole_index() {
            begin_bytes(&**self.store(), at, Box::new(|page| receiver(page.map(alone))));
            return;
        }
        let store = Arc::clone(self.store());
        let whole = move |whole: Result<Vec<u8>, ImageError>| match whole {
            Ok(bytes) => receiver(Ok(StoredPage::Whole(Unverified::new(bytes).convert()))),
            // One place of the index that cannot be read must not take the rest with it.
            Err(error) if !error.is_closed() => {
                log::debug!("{error}; the index is read page by page");
                begin_bytes(&*store, at, Box::new(|page| receiver(page.map(alone))));
            }
            Err(error) => receiver(Err(error)),
        };
        begin_bytes(&**self.store(), index, Box::new(whole));
    }
}

fn alone(bytes: Vec<u8>) -> StoredPage {
    StoredPage::Alone(Unverified::new(bytes).convert())
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
        self.cutter.push(piece, &self.places, None, &mut |event| receiver.event(event))
    }

    fn done(self: Box<Self>, result: Result<(), StoreError>) {
        self.receiver.done(result.map_err(ImageError::from));
    }
}

type BytesReceiver = Box<dyn FnOnce(Result<Vec<u8>, ImageError>) + Send>;

/// Collects what comes.
struct Collected {
    bytes: Vec<u8>,
    receiver: BytesReceiver,
}

fn begin_bytes(store: &dyn Store, range: ByteRange, receiver: BytesReceiver) {
    let bytes = Vec::with_capacity(to_u32(range.len) as usize);
    store.begin(range, Box::new(Collected { bytes, receiver }));
}

impl Completion for Collected {
    fn piece(&mut self, piece: &[u8]) -> ControlFlow<()> {
        self.bytes.extend_from_slice(piece);
        ControlFlow::Continue(())
    }

    fn done(self: Box<Self>, result: Result<(), StoreError>) {
        let Self { bytes, receiver } = *self;
        receiver(result.map(|()| bytes).map_err(ImageError::from));
    }
}

//! Opening an image and beginning its prefetch with one request.
//!
//! Superblock, hot tables and hot chunks lie one after another (DESIGN decision 4). One request
//! from byte 0 brings them all: as soon as the tables have come the image is open, while the same
//! request goes on with the chunks. An image without a hot region ends the request after its
//! superblock; one whose hot region lies elsewhere, because its medium is faster there, goes on with a
//! second request.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Sender, bounded};
use hs_format::{ChunkRef, Superblock, Unverified};
use hs_store::{Completion, Store, StoreError};
use hs_units::{ByteRange, to_u32, to_usize};
use parking_lot::Mutex;

use crate::cold::in_file;
use crate::hot_map::HotMap;
use crate::kept_chunks::ChunkPlace;
use crate::splitter::ChunkSplitter;
use crate::{Image, ImageError, OpenOptions, SUPERBLOCK_BYTES, Stored};

/// The rest of the opening request.
#[derive(Debug)]
pub struct Head {
    /// The hot chunks, from the first, that the request brings.
    pub chunks: u32,
    /// When the request was made.
    pub asked: Instant,
    /// When its first bytes came.
    pub first_byte: Instant,
    /// How many these were.
    pub first_bytes: u64,
    /// Bytes that it brings before those of the chunks.
    pub bytes_before: u64,
    rest: Arc<Mutex<Rest>>,
}

/// Called with one message after the other, by the thread of the request; `Break` asks for no more. The last
/// one is [`HeadMessage::Finished`].
pub type HeadReceiver = Box<dyn FnMut(HeadMessage) -> ControlFlow<()> + Send>;

/// What the request still brings.
enum Rest {
    /// It waits: no more than the limit of the request.
    Waiting(Vec<HeadMessage>),
    Received(HeadReceiver),
    /// Nothing is wanted any more.
    Over,
}

impl std::fmt::Debug for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Waiting(_) => "Waiting",
            Self::Received(_) => "Received",
            Self::Over => "Over",
        })
    }
}

impl Rest {
    fn push(&mut self, message: HeadMessage) -> ControlFlow<()> {
        let is_last = matches!(message, HeadMessage::Finished(_));
        match self {
            Self::Waiting(messages) => {
                messages.push(message);
                return ControlFlow::Continue(());
            }
            Self::Received(receiver) => {
                if receiver(message).is_continue() && !is_last {
                    return ControlFlow::Continue(());
                }
            }
            Self::Over => {}
        }
        *self = Self::Over;
        ControlFlow::Break(())
    }
}

/// What the opening request brings after the tables.
#[derive(Debug)]
pub enum HeadMessage {
    /// The stored bytes of a hot chunk.
    Chunk(u32, Stored),
    /// The request ended, having brought so many bytes.
    Finished(Result<u64, ImageError>),
}

/// The request that goes on when the tables have come.
#[derive(Clone, Copy)]
struct Begun {
    chunks: u32,
    asked: Instant,
    first_byte: Instant,
    first_bytes: u64,
    bytes_before: u64,
}

impl Begun {
    /// One that brings no chunks.
    fn nothing(asked: Instant) -> Self {
        Self { chunks: 0, asked, first_byte: Instant::now(), first_bytes: 0, bytes_before: 0 }
    }

    fn head(self, rest: Arc<Mutex<Rest>>) -> Head {
        let Self { chunks, asked, first_byte, first_bytes, bytes_before } = self;
        Head { chunks, asked, first_byte, first_bytes, bytes_before, rest }
    }
}

enum Opened {
    Tables { superblock: Box<Superblock>, hot: Option<HotMap>, head: Begun },
    Failed(ImageError),
}

impl Head {
    pub(crate) fn open(
        store: Arc<dyn Store>,
        limit_bytes: u64,
        options: &OpenOptions,
    ) -> Result<(Image, Self), ImageError> {
        let rest = Arc::new(Mutex::new(Rest::Waiting(Vec::new())));
        if let Some(superblock) = options.kept_superblock(&*store) {
            let image = Image::with_superblock(store, superblock, false, options)?;
            return Ok((image, Begun::nothing(Instant::now()).head(rest)));
        }
        let (opened, opened_rx) = bounded(1);
        let asked = Instant::now();
        let parser = Box::new(Parser {
            store: Arc::clone(&store),
            limit_bytes: limit_bytes.max(SUPERBLOCK_BYTES),
            options: options.clone(),
            opened,
            rest: Arc::clone(&rest),
            collected: Vec::new(),
            superblock: None,
            stage: Stage::Tables,
            origin: 0,
            asked,
            first: None,
            bytes: 0,
            has_ended: false,
        });
        if store.can_begin() {
            parser.begin();
        } else {
            thread::Builder::new()
                .name("hs-open".to_owned())
                .spawn(move || parser.begin())
                .map_err(ImageError::io(store.name(), "start a thread"))?;
        }
        match opened_rx.recv() {
            Ok(Opened::Tables { superblock, hot: Some(hot), head }) => {
                options.opened(&superblock);
                Ok((Image::assemble(store, *superblock, false, hot, options)?, head.head(rest)))
            }
            Ok(Opened::Tables { superblock, hot: None, head }) => {
                Ok((Image::with_superblock(store, *superblock, false, options)?, head.head(rest)))
            }
            Ok(Opened::Failed(error @ ImageError::WrongName { .. })) => Err(error),
            // Piece by piece more of it may be had: the superblock has a mirror, and it goes without a hot
            // region.
            Ok(Opened::Failed(error)) => {
                log::debug!("{error}; it is read piece by piece");
                Ok((Image::open_as(store, options)?, Begun::nothing(asked).head(rest)))
            }
            Err(_) => Err(ImageError::Closed),
        }
    }

    /// Hands over what has come, and from now on what comes.
    pub fn receive(self, receiver: HeadReceiver) {
        let mut rest = self.rest.lock();
        let Rest::Waiting(messages) = std::mem::replace(&mut *rest, Rest::Received(receiver)) else { return };
        for message in messages {
            if rest.push(message).is_break() {
                return;
            }
        }
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        let mut rest = self.rest.lock();
        if matches!(*rest, Rest::Waiting(_)) {
            *rest = Rest::Over;
        }
    }
}

/// Where the request's bytes belong.
enum Stage {
    /// Collecting superblock and tables.
    Tables,
    /// The tables lie at this place, which this request does not come to.
    Elsewhere(u64),
    /// Cutting chunks; stops before this one.
    Chunks { splitter: ChunkSplitter, places: Vec<ChunkPlace>, end: u32 },
}

struct Parser {
    store: Arc<dyn Store>,
    limit_bytes: u64,
    options: OpenOptions,
    opened: Sender<Opened>,
    rest: Arc<Mutex<Rest>>,
    /// Bytes of the request so far, until the tables are complete.
    collected: Vec<u8>,
    superblock: Option<Superblock>,
    stage: Stage,
    /// Where in the file the request began.
    origin: u64,
    asked: Instant,
    /// When the first bytes came, and how many.
    first: Option<(Instant, u64)>,
    bytes: u64,
    has_ended: bool,
}

impl Completion for Parser {
    fn piece(&mut self, piece: &[u8]) -> ControlFlow<()> {
        self.push(piece)
    }

    fn done(mut self: Box<Self>, result: Result<(), StoreError>) {
        if let (Ok(()), Stage::Elsewhere(origin)) = (&result, &self.stage) {
            let origin = *origin;
            self.begin_again(origin);
            self.begin();
            return;
        }
        self.ended(result.is_err());
        let outcome = result.map(|()| self.bytes).map_err(ImageError::from);
        if let Err(error) = &outcome {
            // Only the first message on this channel counts; when the image is open this one is not read.
            let _ = self.opened.try_send(Opened::Failed(error.clone()));
        }
        self.finish(outcome);
    }
}

impl Drop for Parser {
    /// The store has lost the request.
    fn drop(&mut self) {
        self.finish(Ok(self.bytes));
    }
}

impl Parser {
    /// Where in the file the request ends at the latest.
    const fn limit(&self) -> u64 {
        self.origin.saturating_add(self.limit_bytes)
    }

    fn begin(self: Box<Self>) {
        let end = self.limit().min(self.store.len());
        let range = ByteRange::new(self.origin, end.saturating_sub(self.origin));
        let store = Arc::clone(&self.store);
        store.begin(range, self);
    }

    fn finish(&mut self, outcome: Result<u64, ImageError>) {
        if !std::mem::replace(&mut self.has_ended, true) {
            let _ = self.rest.lock().push(HeadMessage::Finished(outcome));
        }
    }

    /// The next request is for the tables, which lie at `origin`.
    fn begin_again(&mut self, origin: u64) {
        self.collected.clear();
        self.stage = Stage::Tables;
        self.origin = origin;
        self.asked = Instant::now();
        self.first = None;
        self.bytes = 0;
    }

    fn push(&mut self, piece: &[u8]) -> ControlFlow<()> {
        self.first.get_or_insert_with(|| (Instant::now(), piece.len() as u64));
        self.bytes += piece.len() as u64;
        match &mut self.stage {
            Stage::Elsewhere(_) => ControlFlow::Break(()),
            Stage::Chunks { .. } => self.push_chunks(piece),
            Stage::Tables => {
                self.collected.extend_from_slice(piece);
                self.push_tables()
            }
        }
    }

    fn push_tables(&mut self) -> ControlFlow<()> {
        if self.superblock.is_none() {
            if self.collected.len() < to_usize(SUPERBLOCK_BYTES) {
                return ControlFlow::Continue(());
            }
            let checked = Superblock::decode(Unverified::new(&self.collected[..to_usize(SUPERBLOCK_BYTES)]))
                .and_then(|superblock| superblock.check_file(self.store.len()).map(|()| superblock));
            match checked {
                Ok(superblock) => {
                    if let Err(error) = self.options.check(self.store.name(), &superblock) {
                        return self.fail(error);
                    }
                    self.superblock = Some(superblock);
                }
                Err(error) => {
                    let range = ByteRange::new(0, SUPERBLOCK_BYTES);
                    return self.fail(in_file(&*self.store, range)(error));
                }
            }
        }
        let superblock = self.superblock.as_ref().expect("set above");
        let [segment] = superblock.hot[..] else {
            self.announce(None, 0, 0);
            return ControlFlow::Break(());
        };
        let tables = ByteRange::new(segment.index.offset, segment.chunks.offset - segment.index.offset);
        let follows = if self.origin == 0 { SUPERBLOCK_BYTES } else { self.origin };
        if tables.offset != follows {
            self.stage = Stage::Elsewhere(tables.offset);
            return ControlFlow::Break(());
        }
        if tables.end() >= self.limit() {
            self.announce(None, 0, 0);
            return ControlFlow::Break(());
        }
        let (from, tables_end) = (to_usize(follows - self.origin), to_usize(tables.end() - self.origin));
        if self.collected.len() < tables_end {
            self.collected.reserve_exact(tables_end - self.collected.len());
            return ControlFlow::Continue(());
        }
        let wanted = to_usize(segment.index.len + segment.hints.len);
        let tables_bytes = Unverified::new(&self.collected[from..from + wanted]);
        match Image::decode_tables(superblock, 0, tables_bytes) {
            Ok(decoded) => {
                if let Some(cache) = &self.options.cache {
                    cache.put(&segment.index_digest, Image::encode_tables(&decoded).into());
                }
                let (index, hints) = decoded;
                let place = |chunk: ChunkRef| ChunkPlace {
                    at: ByteRange::new(segment.chunks.offset + chunk.range.offset, chunk.range.len),
                    chunk,
                };
                let places: Vec<ChunkPlace> = index.chunks.iter().map(|entry| place(entry.chunk)).collect();
                let fits = |place: &&ChunkPlace| place.at.end() <= self.limit();
                // Of an image that borrows chunks they are not one run of the file.
                let borrows = superblock.features.borrows();
                let end = if borrows { 0 } else { to_u32(places.iter().take_while(fits).count() as u64) };
                let mut hot = HotMap::new(superblock);
                hot.push(segment, index, hints);
                self.announce(Some(hot), end, tables_end as u64);
                self.stage = Stage::Chunks { splitter: ChunkSplitter::new(0), places, end };
            }
            Err(error) => return self.fail(in_file(&*self.store, tables)(error)),
        }
        let rest = self.collected.split_off(tables_end);
        self.push_chunks(&rest)
    }

    fn push_chunks(&mut self, piece: &[u8]) -> ControlFlow<()> {
        let Stage::Chunks { splitter, places, end } = &mut self.stage else { return ControlFlow::Break(()) };
        if *end == 0 {
            return ControlFlow::Break(());
        }
        let (rest, end) = (&self.rest, *end);
        let stored_bytes = |chunk: u32| to_usize(places[(chunk as usize).min(places.len() - 1)].at.len);
        splitter.push(piece, stored_bytes, &mut |chunk, stored| {
            rest.lock().push(HeadMessage::Chunk(chunk, stored.into_owned().convert()))?;
            if chunk + 1 == end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    fn announce(&mut self, hot: Option<HotMap>, chunks: u32, bytes_before: u64) {
        let superblock = Box::new(self.superblock.clone().expect("the superblock comes before its tables"));
        let (first_byte, first_bytes) = self.first.unwrap_or_else(|| (Instant::now(), 0));
        let head = Begun { chunks, asked: self.asked, first_byte, first_bytes, bytes_before };
        let _ = self.opened.send(Opened::Tables { superblock, hot, head });
    }

    fn fail(&mut self, error: ImageError) -> ControlFlow<()> {
        let _ = self.opened.send(Opened::Failed(error));
        ControlFlow::Break(())
    }

    /// The request is over: the thread that waits for the tables must not hang.
    fn ended(&mut self, has_failed: bool) {
        if !has_failed && matches!(self.stage, Stage::Tables) {
            let range = ByteRange::new(self.origin, self.bytes);
            let found = self.collected.len() as u64;
            let error = hs_format::FormatError::Size {
                part: hs_format::Part::File,
                expected: SUPERBLOCK_BYTES,
                found,
            };
            let _ = self.opened.try_send(Opened::Failed(in_file(&*self.store, range)(error)));
        }
    }
}

//! An opened image: where everything lies, and single chunks, verified.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hs_format::{
    BaseRef, ChunkRef, Codec, Composed, Decompressor, FileKind, FormatError, Hint, Hints, HotIndex, HotRun,
    ImageDigest, Part, Superblock, Unverified, WindowRef,
};
use hs_store::{DiskCache, Store};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Digest, Lba, Nanos, to_u32, to_usize};

use crate::base::check_base;
use crate::borrowed::{BorrowedHot, Lender};
use crate::cold::{ColdIndex, read};
use crate::hot_map::{HotMap, HotPlace};
use crate::kept_chunks::{self, ChunkPlace};
use crate::{BaseDisk, Head, ImageError, OpenOptions, PackStore, SUPERBLOCK_BYTES, UseBase};

/// What [`Image::stream_chunks`] hands over.
#[derive(Debug)]
pub enum StreamEvent<'a> {
    /// The first bytes came, so many of them.
    FirstBytes(u64),
    /// All stored bytes of this chunk came.
    Chunk(u32, Unverified<Cow<'a, [u8]>>),
}

/// A chunk, decompressed and as it is stored; both are verified.
#[derive(Clone, Debug)]
pub struct LoadedChunk {
    /// Its entry in the table.
    pub chunk: ChunkRef,
    /// The blocks that it holds.
    pub raw: Vec<u8>,
    /// Its bytes in the file.
    pub stored: Vec<u8>,
}

/// The bytes of a chunk or a page as they are stored, shared without a copy.
pub type Stored = Unverified<Bytes>;

/// An opened image.
///
/// What it returns is verified, or [`Unverified`].
pub struct Image {
    store: Arc<dyn Store>,
    superblock: Superblock,
    from_mirror: bool,
    hot: HotMap,
    /// Why a part of the hot region is not used.
    hot_fault: Option<ImageError>,
    cold: ColdIndex,
    cache: Option<Arc<DiskCache>>,
    /// The disk that some of its blocks lie on, once it is known.
    base: OnceLock<Arc<dyn BaseDisk>>,
    /// Its hot chunks, where some are those of the base's image.
    borrowed: Option<Arc<BorrowedHot>>,
    /// The pack that is its store, if it is one.
    pack: Option<Arc<PackStore>>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("name", &self.store.name()).finish_non_exhaustive()
    }
}

impl Image {
    /// Opens the image in `store`: reads the superblock, or its mirror when it is damaged or unreadable, and
    /// the tables of every hot segment. A segment whose tables are damaged or unreadable is left out, with a
    /// warning: all that it holds has a cold copy. The cold index is read when it is first needed.
    ///
    /// # Errors
    /// When neither superblock is one, or a table breaks a rule of the format.
    pub fn open(store: Arc<dyn Store>) -> Result<Self, ImageError> {
        Self::open_as(store, &OpenOptions::default())
    }

    /// The same, with a name that it must have, and a cache of what is read.
    ///
    /// # Errors
    /// As [`Image::open`], and [`ImageError::WrongName`] before anything but the superblock is looked at.
    pub fn open_as(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Self, ImageError> {
        let (superblock, from_mirror) = match options.kept_superblock(&*store) {
            Some(superblock) => (superblock, false),
            None => {
                let first = ByteRange::new(0, SUPERBLOCK_BYTES.min(store.len()));
                let (superblock, from_mirror) = match read(&*store, first) {
                    Ok(bytes) => Self::read_superblock(&*store, bytes.as_slice())?,
                    Err(error) => (Self::read_mirror(&*store, &error)?.ok_or(error)?, true),
                };
                options.check(store.name(), &superblock)?;
                (superblock, from_mirror)
            }
        };
        Self::with_superblock(store, superblock, from_mirror, options)
    }

    /// Opens the image with one request that goes on into the hot region: see [`Head`].
    ///
    /// # Errors
    /// As [`Image::open_as`].
    pub fn open_streaming(
        store: Arc<dyn Store>,
        limit_bytes: u64,
        options: &OpenOptions,
    ) -> Result<(Self, Head), ImageError> {
        Head::open(store, limit_bytes, options)
    }

    pub(crate) fn with_superblock(
        store: Arc<dyn Store>,
        superblock: Superblock,
        from_mirror: bool,
        options: &OpenOptions,
    ) -> Result<Self, ImageError> {
        let mut hot = HotMap::new(&superblock);
        let mut hot_fault = None;
        for (number, segment) in superblock.hot.iter().enumerate() {
            let at = ByteRange::new(segment.index.offset, segment.index.len + segment.hints.len);
            let decode = |bytes: Unverified<&[u8]>| Self::decode_tables(&superblock, number, bytes);
            let (cache, digest) = (options.cache.as_deref(), &segment.index_digest);
            let tables = kept_chunks::table(&*store, cache, digest, at, decode, Self::encode_tables);
            match tables {
                Ok((index, hints)) => hot.push(*segment, index, hints),
                Err(error) if error.is_damage() => {
                    log::warn!("{error}; the image is used without its hot region");
                    hot_fault.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        options.opened(&superblock);
        let mut image = Self::assemble(store, superblock, from_mirror, hot, options)?;
        image.hot_fault = hot_fault;
        Ok(image)
    }

    pub(crate) fn assemble(
        store: Arc<dyn Store>,
        superblock: Superblock,
        from_mirror: bool,
        hot: HotMap,
        options: &OpenOptions,
    ) -> Result<Self, ImageError> {
        let cold = ColdIndex::new(&superblock, options.cache.clone());
        let (cache, base, pack) = (options.cache.clone(), OnceLock::new(), options.pack.clone());
        // R48
        if superblock.features.is_unread() != pack.as_ref().is_some_and(|pack| pack.is_sampled()) {
            return Err(ImageError::Unread { path: store.name().to_owned() });
        }
        if let Some(pack) = &pack {
            let fault = pack.header().check_image(&superblock);
            fault.map_err(crate::cold::in_file(&*store, ByteRange::new(0, SUPERBLOCK_BYTES)))?;
        }
        let borrowed = hot.sources().map(|(start, sources)| {
            Arc::new(BorrowedHot::new(Arc::clone(&store), start, sources.into_iter()))
        });
        let hot_fault = None;
        let image =
            Self { store, superblock, from_mirror, hot, hot_fault, cold, cache, base, borrowed, pack };
        if let (Some(_), UseBase::Open(open)) = (image.superblock.base, &options.base) {
            image.use_base(open()?)?;
        }
        Ok(image)
    }

    /// Takes the disk that some blocks of this image lie on. An image without a base needs none.
    ///
    /// # Errors
    /// [`ImageError::OtherBase`] and [`ImageError::BaseOfBase`] when it is not the one that the image names.
    pub fn use_base(&self, base: Arc<dyn BaseDisk>) -> Result<(), ImageError> {
        if let Some(named) = &self.superblock.base {
            check_base(self, named, base.image())?;
            if let Some(borrowed) = &self.borrowed {
                let lender = Lender::of(base.image());
                borrowed.lend(lender);
                self.tell_missing(base.image().name());
            }
            self.base.get_or_init(|| base);
        }
        Ok(())
    }

    /// A base's image may be another one of the same disk.
    fn tell_missing(&self, base: &str) {
        let is_missing = |chunk: &u32| self.is_borrowed(*chunk) && !self.is_lent(*chunk);
        let missing = (0..self.hot_chunk_count()).filter(is_missing).count();
        if missing > 0 {
            log::warn!(
                "{}: {base} has not {missing} of the hot chunks that it borrows: their cold copies are read",
                self.name()
            );
        }
    }

    /// Whether a hot chunk is one of the base's image.
    ///
    /// # Panics
    /// When there is no such chunk.
    #[must_use]
    pub fn is_borrowed(&self, chunk: u32) -> bool {
        self.hot.chunk(chunk).0.is_borrowed
    }

    /// Whether a borrowed chunk can be had: the base's image is known and has it.
    ///
    /// # Panics
    /// When there is no such chunk.
    #[must_use]
    pub fn is_lent(&self, chunk: u32) -> bool {
        let entry = self.hot.chunk(chunk).0.chunk;
        self.borrowed.as_ref().is_some_and(|hot| hot.is_lent(&entry.digest, entry.range.len))
    }

    /// What has the bytes at a place of a chunk.
    fn store_of(&self, at: ByteRange) -> &dyn Store {
        match &self.borrowed {
            Some(hot) if at.offset >= hot.start() => &**hot,
            _ => &*self.store,
        }
    }

    /// The same for a request that goes on by itself; none where the image's own store has them.
    pub(crate) fn borrowed_store(&self, at: ByteRange) -> Option<Arc<dyn Store>> {
        let hot = self.borrowed.as_ref().filter(|hot| at.offset >= hot.start())?;
        Some(Arc::clone(hot) as Arc<dyn Store>)
    }

    /// The disk that some blocks lie on, if the image has one and it is known.
    #[must_use]
    pub fn base(&self) -> Option<&Arc<dyn BaseDisk>> {
        self.base.get()
    }

    /// Whether some blocks lie on another disk that is not known.
    ///
    /// # Errors
    /// [`ImageError::NeedsBase`] says which disk.
    pub fn check_has_base(&self) -> Result<(), ImageError> {
        match self.superblock.base {
            Some(named) if self.base().is_none() => Err(self.needs_base(named)),
            _ => Ok(()),
        }
    }

    fn needs_base(&self, base: BaseRef) -> ImageError {
        ImageError::NeedsBase { path: self.name().to_owned(), base }
    }

    /// The superblock that `first` holds, else the mirror at the end of the file.
    pub(crate) fn read_superblock(
        store: &dyn Store,
        first: Unverified<&[u8]>,
    ) -> Result<(Superblock, bool), ImageError> {
        let error = match check_superblock(store, first) {
            Ok(superblock) => return Ok((superblock, false)),
            Err(error) => error,
        };
        let at = ByteRange::new(0, first.len() as u64);
        let report =
            |fault| ImageError::Format { path: store.name().to_owned(), range: at, fault: Box::new(fault) };
        // A file that never was an image, or a newer one, says so; only damage is worth the mirror.
        let foreign =
            matches!(error, FormatError::UnsupportedVersion { .. } | FormatError::UnknownFeatures { .. });
        if foreign {
            return Err(report(error));
        }
        match Self::read_mirror(store, &error)? {
            Some(superblock) => Ok((superblock, true)),
            None => Err(Self::not_an_image(store).unwrap_or_else(|| report(error))),
        }
    }

    /// What to say of a file that begins as no image does.
    fn not_an_image(store: &dyn Store) -> Option<ImageError> {
        let mut start = vec![0; to_usize(store.len().min(FileKind::NEEDED_BYTES as u64))];
        store.read_at(0, &mut start).ok()?;
        match FileKind::of(&start) {
            // What has a damaged start says so byte by byte.
            FileKind::Image | FileKind::Unknown => None,
            kind => Some(ImageError::NotAnImage { path: store.name().to_owned(), kind }),
        }
    }

    /// The superblock's mirror at the end of the file, if it is one, in place of one that cannot be used.
    fn read_mirror(
        store: &dyn Store,
        reason: &dyn std::fmt::Display,
    ) -> Result<Option<Superblock>, ImageError> {
        if store.len() < 2 * SUPERBLOCK_BYTES {
            return Ok(None);
        }
        let last = read(store, ByteRange::new(store.len() - SUPERBLOCK_BYTES, SUPERBLOCK_BYTES))?;
        let mirror = check_superblock(store, last.as_slice()).ok();
        if mirror.is_some() {
            log::warn!(
                "{}: the superblock is damaged ({reason}); its mirror at the end is used",
                store.name()
            );
        }
        Ok(mirror)
    }

    /// Index and hints of segment number `segment` from the bytes of both.
    pub(crate) fn decode_tables(
        superblock: &Superblock,
        segment: usize,
        bytes: Unverified<&[u8]>,
    ) -> Result<(HotIndex, Hints), FormatError> {
        let segment = &superblock.hot[segment];
        let (index, hints) = bytes.split_at(to_usize(segment.index.len));
        Ok((HotIndex::decode(index, segment, superblock)?, Hints::decode(hints, segment, superblock)?))
    }

    /// The bytes of both, which are kept under the digest of the index.
    pub(crate) fn encode_tables((index, hints): &(HotIndex, Hints)) -> Vec<u8> {
        [index.encode(), hints.encode()].concat()
    }

    /// Where the bytes come from.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Why what is asked for has not come yet: text behind the image's name, or none.
    #[must_use]
    pub fn trouble(&self) -> String {
        self.store.trouble().map_or_else(String::new, |trouble| format!(" ({trouble})"))
    }

    /// The pack that it is made of, if it is.
    #[must_use]
    pub const fn pack(&self) -> Option<&Arc<PackStore>> {
        self.pack.as_ref()
    }

    /// The image's path, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        self.store.name()
    }

    /// The verified superblock.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Whether the superblock at the start was damaged and its mirror was used.
    #[must_use]
    pub const fn from_mirror(&self) -> bool {
        self.from_mirror
    }

    /// Why a part of the hot region is not used, if it is not.
    #[must_use]
    pub const fn hot_fault(&self) -> Option<&ImageError> {
        self.hot_fault.as_ref()
    }

    /// Bytes of the disk as it was built, and as it is shown; see [`Superblock::exact_bytes`].
    #[must_use]
    pub const fn exact_bytes(&self) -> u64 {
        self.superblock.exact_bytes()
    }

    /// Bytes of the disk in whole blocks, as they are stored.
    #[must_use]
    pub const fn disk_bytes(&self) -> u64 {
        self.superblock.disk_bytes
    }

    /// Names the content.
    #[must_use]
    pub const fn disk_digest(&self) -> Digest {
        self.superblock.disk_digest
    }

    /// Names the file.
    #[must_use]
    pub fn image_digest(&self) -> ImageDigest {
        self.superblock.image_digest()
    }

    /// Chunks in all hot segments.
    #[must_use]
    pub fn hot_chunk_count(&self) -> u32 {
        self.hot.chunk_count()
    }

    /// A hot chunk's entry and its place in the file.
    ///
    /// # Panics
    /// When there is no such chunk.
    #[must_use]
    pub fn hot_chunk(&self, chunk: u32) -> (ChunkRef, ByteRange) {
        let (entry, at) = self.hot.chunk(chunk);
        (entry.chunk, at)
    }

    /// The recorded program's own time until it asked for something in a hot chunk, without what it waited
    /// for storage; zero of all chunks where nothing is known.
    ///
    /// # Panics
    /// When there is no such chunk.
    #[must_use]
    pub fn hot_needed(&self, chunk: u32) -> Nanos {
        Nanos::from_millis(self.hot.chunk(chunk).0.needed_ms.into())
    }

    /// The recorded program's own time until it was ready, without what it waited for storage; `None` where
    /// it is not known. Of several hot segments, which are those of several programs, the shortest.
    #[must_use]
    pub fn own_time(&self) -> Option<Nanos> {
        let known = self.superblock.hot.iter().map(|segment| segment.own_ms).filter(|own_ms| *own_ms > 0);
        known.min().map(|own_ms| Nanos::from_millis(own_ms.into()))
    }

    /// The runs of blocks that a hot chunk holds, in the order of its raw bytes.
    ///
    /// # Panics
    /// When there is no such chunk.
    #[must_use]
    pub fn hot_extents(&self, chunk: u32) -> &[BlockRange] {
        self.hot.extents(chunk)
    }

    /// What a hot chunk decodes to: its runs of blocks, and between them blocks that are none of the disk,
    /// which [`Self::decode_hot`] and [`Self::load_hot`] leave out.
    ///
    /// # Panics
    /// When there is no such chunk.
    #[must_use]
    pub fn hot_runs(&self, chunk: u32) -> Vec<HotRun> {
        self.hot.runs(chunk)
    }

    /// Bytes of the blocks of the disk that a hot chunk holds.
    ///
    /// # Panics
    /// When there is no such chunk.
    #[must_use]
    pub fn hot_bytes(&self, chunk: u32) -> u32 {
        let hot = self.hot.chunk(chunk).0;
        hot.chunk.raw_bytes - hot.stale_blocks * to_u32(BLOCK_BYTES)
    }

    /// Which file pages the hot blocks are, in first-access order.
    pub fn hints(&self) -> impl Iterator<Item = Hint> + '_ {
        self.hot.hints()
    }

    /// Where a block lies in the hot region.
    #[must_use]
    pub fn hot_place(&self, lba: Lba) -> Option<HotPlace> {
        self.hot.lookup(lba)
    }

    /// The first hot block after `lba`.
    #[must_use]
    pub fn next_hot_after(&self, lba: Lba) -> Option<Lba> {
        self.hot.next_hot_after(lba)
    }

    /// Bytes of a full cold window.
    #[must_use]
    pub const fn window_bytes(&self) -> u64 {
        self.superblock.cold.window_blocks as u64 * BLOCK_BYTES
    }

    /// Bytes of the cold index in memory, its root excepted.
    #[must_use]
    pub fn kept_index_bytes(&self) -> u64 {
        self.cold.kept_bytes()
    }

    /// The window's place; reads what is missing of the index.
    ///
    /// # Errors
    /// When the index cannot be read or is damaged.
    pub fn window(&self, window: u64) -> Result<WindowRef, ImageError> {
        self.cold.window(&*self.store, &self.superblock, window)
    }

    /// A leaf of the cold index; `None` when all its windows are zero.
    pub(crate) fn leaf(&self, leaf: u64) -> Result<Option<Arc<hs_format::ColdLeaf>>, ImageError> {
        self.cold.leaf(&*self.store, &self.superblock, leaf)
    }

    /// Where in the file a cold chunk lies.
    #[must_use]
    pub const fn cold_range(&self, chunk: &ChunkRef) -> ByteRange {
        ByteRange::new(self.superblock.cold.range.offset + chunk.range.offset, chunk.range.len)
    }

    /// The decompressed bytes of a cold window; `None` when they are all zero.
    ///
    /// # Errors
    /// When they cannot be read, or are not what their digest says.
    pub fn load_window(&self, window: u64, tools: &mut Decompressor) -> Result<Option<Vec<u8>>, ImageError> {
        Ok(self.load_chunk(window, tools)?.map(|loaded| loaded.raw))
    }

    /// The chunk of a cold window; `None` when all its bytes are zero.
    ///
    /// # Errors
    /// As [`Image::load_window`].
    pub fn load_chunk(
        &self,
        window: u64,
        tools: &mut Decompressor,
    ) -> Result<Option<LoadedChunk>, ImageError> {
        let WindowRef::Chunk(chunk) = self.window(window)? else { return Ok(None) };
        let at = self.cold_range(&chunk);
        let stored = self.stored(ChunkPlace { chunk, at })?;
        let (raw, stored) = self.decode(&chunk, stored, tools, at, || format!("cold window {window}"))?;
        Ok(Some(LoadedChunk { chunk, raw, stored }))
    }

    /// The decompressed bytes of a cold window from its stored bytes. These are kept in the cache on disk.
    ///
    /// # Errors
    /// When they are not what the chunk's digest says.
    pub fn decode_cold(
        &self,
        window: u64,
        chunk: &ChunkRef,
        stored: Stored,
        tools: &mut Decompressor,
    ) -> Result<Vec<u8>, ImageError> {
        let which = || format!("cold window {window}");
        let (raw, verified) = self.decode(chunk, stored, tools, self.cold_range(chunk), which)?;
        if let Some(cache) = &self.cache {
            cache.put(&chunk.digest, verified);
        }
        Ok(raw)
    }

    /// Keeps the stored bytes of a chunk that was never decompressed in the cache on disk, if there is one
    /// and they are right.
    pub fn keep(&self, chunk: &ChunkRef, stored: Stored) {
        if let Some(cache) = &self.cache
            && !cache.has(&chunk.digest)
            && let Ok(verified) = stored.verify(&chunk.expected())
        {
            cache.put(&chunk.digest, verified);
        }
    }

    /// Reads chunks that lie one after another in the file; each is handed over, by its place in `places`, as
    /// soon as its last byte has come. The cache on disk gives what it has; it gets the others when they are
    /// decompressed, or by [`Image::keep`].
    ///
    /// # Errors
    /// When the store fails.
    pub fn stream_chunks(
        &self,
        places: &[ChunkPlace],
        sink: &mut dyn FnMut(StreamEvent<'_>) -> ControlFlow<()>,
    ) -> Result<(), ImageError> {
        let Some(first) = places.first() else { return Ok(()) };
        kept_chunks::stream(self.store_of(first.at), self.cache.as_deref(), places, sink)?;
        Ok(())
    }

    /// The cache on disk.
    pub(crate) fn disk_cache(&self) -> Option<&DiskCache> {
        self.cache.as_deref()
    }

    /// Whether the cache on disk has a chunk, as far as its name tells; where there is no cache it has none.
    #[must_use]
    pub fn is_kept(&self, chunk: &ChunkRef) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.has(&chunk.digest))
    }

    /// Whether the cache on disk has all of a chunk, by the length of its entry, or by its bytes.
    pub(crate) fn is_whole_in_cache(&self, place: &ChunkPlace, verifies: bool) -> bool {
        self.cache.as_deref().is_some_and(|cache| {
            if verifies {
                place.kept(cache).is_some()
            } else {
                cache.has_whole(&place.chunk.digest, place.at.len)
            }
        })
    }

    /// The stored bytes of a chunk.
    fn stored(&self, place: ChunkPlace) -> Result<Unverified<Vec<u8>>, ImageError> {
        kept_chunks::one(self.store_of(place.at), self.cache.as_deref(), place)
    }

    /// Says that the hot chunks from `first` on will be streamed in order.
    pub fn expect_hot_stream(&self, first: u32) {
        if first < self.hot_chunk_count() && self.borrowed.is_none() {
            let end = self.hot.contiguous_end(first);
            let range = self.hot_range(first..end);
            // What is hot is there once more in the cold region, so nearly everything is hot where this is as
            // long as that.
            if range.len >= self.superblock.cold.range.len / 4 * 3 {
                self.store.expect_most(range);
            } else {
                self.store.expect_stream(range);
            }
        }
    }

    /// A hot chunk, read with a request of its own.
    ///
    /// # Errors
    /// When its bytes cannot be read, or are not what their digest says.
    pub fn load_hot(&self, number: u32, tools: &mut Decompressor) -> Result<LoadedChunk, ImageError> {
        let loaded = self.load_whole_hot(number, tools)?;
        Ok(LoadedChunk { raw: self.without_stale(number, loaded.raw), ..loaded })
    }

    /// The same with the blocks that are none of the disk: see [`Self::hot_runs`].
    ///
    /// # Errors
    /// As of [`Self::load_hot`].
    pub fn load_whole_hot(&self, number: u32, tools: &mut Decompressor) -> Result<LoadedChunk, ImageError> {
        let (chunk, at) = self.hot_chunk(number);
        let stored = self.stored(ChunkPlace { chunk, at })?;
        let (raw, stored) = self.decode(&chunk, stored, tools, at, || format!("hot chunk {number}"))?;
        Ok(LoadedChunk { chunk, raw, stored })
    }

    /// The decompressed bytes of a hot chunk whose stored bytes came by a stream. They are verified here, and
    /// here alone: so it is here that they are kept in the cache on disk.
    ///
    /// # Errors
    /// When they are not what the chunk's digest says.
    pub fn decode_hot(
        &self,
        chunk: u32,
        stored: Stored,
        tools: &mut Decompressor,
    ) -> Result<Vec<u8>, ImageError> {
        let (entry, at) = self.hot.chunk(chunk);
        let which = || format!("hot chunk {chunk}");
        let (raw, verified) = self.decode(&entry.chunk, stored, tools, at, which)?;
        if let Some(cache) = &self.cache {
            cache.put(&entry.chunk.digest, verified);
        }
        Ok(self.without_stale(chunk, raw))
    }

    /// Of the bytes of a hot chunk those that are of the disk: R60.
    fn without_stale(&self, chunk: u32, mut raw: Vec<u8>) -> Vec<u8> {
        if self.hot.chunk(chunk).0.stale_blocks == 0 {
            return raw;
        }
        let (mut from, mut to) = (0, 0);
        for run in self.hot.runs(chunk) {
            let end = from + to_usize(run.blocks() * BLOCK_BYTES);
            if matches!(run, HotRun::Disk(_)) {
                raw.copy_within(from..end, to);
                to += end - from;
            }
            from = end;
        }
        raw.truncate(to);
        raw
    }

    /// The decompressed bytes of a chunk, and the stored ones. Every byte of a disk that is served has come
    /// through here. A composed chunk waits for the medium of the base.
    fn decode<T: AsRef<[u8]>>(
        &self,
        chunk: &ChunkRef,
        stored: Unverified<T>,
        tools: &mut Decompressor,
        range: ByteRange,
        which: impl Fn() -> String,
    ) -> Result<(Vec<u8>, T), ImageError> {
        let damaged = |fault| {
            let (path, chunk, fault) = (self.name().to_owned(), which(), Box::new(fault));
            let cold = self.superblock.cold.range;
            let is_cold = range.offset >= cold.offset && range.end() <= cold.end();
            match self.pack.as_ref().filter(|_| is_cold) {
                Some(pack) => {
                    ImageError::ChangedDisk { path, chunk, disk: pack.base_name().to_owned(), fault }
                }
                None => ImageError::Chunk { path, chunk, range, fault },
            }
        };
        let stored = stored.verify(&chunk.expected()).map_err(damaged)?;
        if chunk.codec != Codec::Composed {
            let raw = tools.decompress(chunk.codec, stored.as_ref(), chunk.raw_bytes).map_err(damaged)?;
            return Ok((raw, stored));
        }
        let misplaced = FormatError::MisplacedComposed { part: Part::Chunk { range: chunk.range } };
        let named = self.superblock.base.ok_or(misplaced).map_err(damaged)?;
        let composed = Composed::decode(chunk, stored.as_ref(), &named).map_err(damaged)?;
        let base = self.base().ok_or_else(|| self.needs_base(named))?;
        let mut raw = vec![0; chunk.raw_bytes as usize];
        composed.own_into(tools, &mut raw).map_err(damaged)?;
        let names = || (self.name().to_owned(), which(), base.image().name().to_owned());
        read_base(&**base, &composed, &mut raw).map_err(|cause| {
            let ((path, chunk, base), cause) = (names(), Box::new(cause));
            ImageError::Base { path, chunk, range, base, cause }
        })?;
        composed.check(&raw).map_err(|fault| {
            let ((path, chunk, base), fault) = (names(), Box::new(fault));
            ImageError::BaseContent { path, chunk, range, base, fault }
        })?;
        Ok((raw, stored))
    }

    /// The bytes of the file that hold these contiguous hot chunks.
    pub(crate) fn hot_range(&self, chunks: Range<u32>) -> ByteRange {
        let first = self.hot.chunk(chunks.start).1;
        let last = self.hot.chunk(chunks.end - 1).1;
        ByteRange::new(first.offset, last.end() - first.offset)
    }
}

/// Fills in the blocks of a window that lie on its base.
fn read_base(base: &dyn BaseDisk, composed: &Composed<'_>, mut window: &mut [u8]) -> Result<(), ImageError> {
    let mut at = 0;
    let mut runs = Vec::new();
    for run in composed.base_runs() {
        let from = u64::from(run.block_in_window) * BLOCK_BYTES;
        let (_, rest) = window.split_at_mut(to_usize(from - at));
        let (buffer, rest) = rest.split_at_mut(to_usize(run.blocks.bytes()));
        runs.push((run.blocks.start, buffer));
        (window, at) = (rest, from + run.blocks.bytes());
    }
    base.read(&mut runs)
}

fn check_superblock(store: &dyn Store, bytes: Unverified<&[u8]>) -> Result<Superblock, FormatError> {
    let superblock = Superblock::decode(bytes)?;
    superblock.check_file(store.len())?;
    Ok(superblock)
}

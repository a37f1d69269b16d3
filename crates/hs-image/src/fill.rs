//! Bringing an image into the cache on disk, as far as it is not there.

use std::ops::ControlFlow;

use bytes::Bytes;
use hs_format::{ChunkRef, FormatError, Unverified, WindowRef};
use hs_units::ByteRange;

use crate::cold::in_file;
use crate::kept_chunks::ChunkPlace;
use crate::{Image, ImageError, Progress, StreamEvent};

/// What filling found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillReport {
    /// Bytes of chunks that were fetched.
    pub fetched_bytes: u64,
    /// Bytes of chunks that were there.
    pub kept_bytes: u64,
    /// Whether all of the image's chunks were gone through.
    pub is_complete: bool,
}

/// Fetches every chunk that the cache does not have, or has damaged, one [`MissingRuns::next`] after the
/// other, each with a request of `request_bytes` at most or one chunk. `between` is asked before every
/// request: it may wait, or end the filling.
///
/// # Errors
/// When the index or a chunk cannot be read. Chunks are verified; a wrong one is not kept, and an error.
pub fn fill_cache(
    image: &Image,
    request_bytes: u64,
    between: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<FillReport, ImageError> {
    let (mut missing, mut fetched_bytes) = (MissingRuns::verifying(image), 0);
    while let Some(run) = missing.next(request_bytes)? {
        let done_bytes = fetched_bytes + missing.kept_bytes();
        let total_bytes = image.superblock().image_bytes;
        let progress = Progress { stage: "filling the cache", done_bytes, total_bytes };
        if between(progress).is_break() {
            return Ok(FillReport { fetched_bytes, kept_bytes: missing.kept_bytes(), is_complete: false });
        }
        run.fetch(image, &mut || {})?;
        fetched_bytes += run.range().len;
    }
    Ok(FillReport { fetched_bytes, kept_bytes: missing.kept_bytes(), is_complete: true })
}

/// Goes through an image's chunks for those that its cache on disk does not have: the hot ones first, and in
/// the order in which they lie in the file.
pub struct MissingRuns<'a> {
    image: &'a Image,
    /// The hot chunk and the window that come next.
    hot: u32,
    window: u64,
    /// Where the last cold chunk ends.
    cold_until: u64,
    /// A chunk that did not go with those before it.
    left: Option<ChunkPlace>,
    kept_bytes: u64,
    /// Whether chunks that are there are read.
    verifies: bool,
}

impl<'a> MissingRuns<'a> {
    /// Begins at the first chunk. A chunk is there when the cache has an entry of its name and length.
    #[must_use]
    pub const fn new(image: &'a Image) -> Self {
        Self { image, hot: 0, window: 0, cold_until: 0, left: None, kept_bytes: 0, verifies: false }
    }

    /// The same, but each entry is read, and one that is damaged is missing.
    #[must_use]
    pub const fn verifying(image: &'a Image) -> Self {
        Self { verifies: true, ..Self::new(image) }
    }

    /// Bytes of chunks that were found in the cache.
    #[must_use]
    pub const fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// The next chunks that are missing and lie one after another, `most_bytes` of them at most or one chunk.
    /// `None` at the end.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn next(&mut self, most_bytes: u64) -> Result<Option<MissingRun>, ImageError> {
        let (mut places, mut bytes) = (Vec::<ChunkPlace>::new(), 0);
        while let Some(place) = self.next_place()? {
            if self.image.is_whole_in_cache(&place, self.verifies) {
                self.kept_bytes += place.at.len;
                continue;
            }
            let goes_on = places.last().is_none_or(|last| last.at.end() == place.at.offset);
            if !places.is_empty() && (!goes_on || bytes + place.at.len > most_bytes) {
                self.left = Some(place);
                break;
            }
            bytes += place.at.len;
            places.push(place);
        }
        Ok((!places.is_empty()).then_some(MissingRun(places)))
    }

    fn next_place(&mut self) -> Result<Option<ChunkPlace>, ImageError> {
        if let Some(left) = self.left.take() {
            return Ok(Some(left));
        }
        while self.hot < self.image.hot_chunk_count() {
            self.hot += 1;
            // Those of the base's image come with that.
            if !self.image.is_borrowed(self.hot - 1) {
                let (chunk, at) = self.image.hot_chunk(self.hot - 1);
                return Ok(Some(ChunkPlace { chunk, at }));
            }
        }
        while self.window < self.image.superblock().windows() {
            let window = self.image.window(self.window)?;
            self.window += 1;
            let WindowRef::Chunk(chunk) = window else { continue };
            let at = self.image.cold_range(&chunk);
            // Windows that are equal share a chunk, which has been gone through.
            if at.offset >= self.cold_until {
                self.cold_until = at.end();
                return Ok(Some(ChunkPlace { chunk, at }));
            }
        }
        Ok(None)
    }
}

/// Chunks that lie one after another in the file, of which the cache on disk has none. There is at least one.
#[derive(Debug)]
pub struct MissingRun(Vec<ChunkPlace>);

impl MissingRun {
    /// Its bytes in the file.
    #[must_use]
    pub fn range(&self) -> ByteRange {
        let (first, last) = (self.0[0].at, self.0[self.0.len() - 1].at);
        ByteRange::new(first.offset, last.end() - first.offset)
    }

    /// Fetches it into the cache, with one request. `begins` is called when its first bytes come.
    ///
    /// # Errors
    /// When a chunk cannot be read. Chunks are verified; a wrong one is not kept, and an error.
    pub fn fetch(&self, image: &Image, begins: &mut dyn FnMut()) -> Result<(), ImageError> {
        let mut fault = None;
        image.stream_chunks(&self.0, &mut |event| {
            let (number, stored) = match event {
                StreamEvent::FirstBytes(_) => {
                    begins();
                    return ControlFlow::Continue(());
                }
                StreamEvent::Chunk(number, stored) => (number, stored),
            };
            let ChunkPlace { chunk, at } = &self.0[number as usize];
            match keep(image, chunk, stored.into_owned().convert()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(wrong) => {
                    fault = Some((*at, wrong));
                    ControlFlow::Break(())
                }
            }
        })?;
        fault.map_or(Ok(()), |(at, fault)| Err(in_file(&**image.store(), at)(fault)))
    }
}

fn keep(image: &Image, chunk: &ChunkRef, stored: Unverified<Bytes>) -> Result<(), FormatError> {
    let verified = stored.verify(&chunk.expected())?;
    if let Some(cache) = image.disk_cache() {
        cache.put(&chunk.digest, verified);
    }
    Ok(())
}

//! Bringing an image into the cache on disk, as far as it is not there.

use std::ops::ControlFlow;

use hs_format::WindowRef;

use crate::cold::in_file;
use crate::kept_chunks::ChunkPlace;
use crate::{Image, ImageError, Progress};

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

/// Fetches every chunk that the cache does not have, the hot ones first, with one request at a time, of
/// `request_bytes` at most or one chunk, and in the order in which they lie in the file. `between` is asked
/// before every request: it may wait, it may end the filling, and it says how many bytes the requests after
/// this one may have.
///
/// # Errors
/// When the index or a chunk cannot be read. Chunks are verified; a wrong one is not kept, and an error.
pub fn fill_cache(
    image: &Image,
    request_bytes: u64,
    between: &mut dyn FnMut(Progress) -> ControlFlow<(), u64>,
) -> Result<FillReport, ImageError> {
    // Those of the base's image come with that.
    let own = (0..image.hot_chunk_count()).filter(|number| !image.is_borrowed(*number));
    let hot = own.map(|number| {
        let (chunk, at) = image.hot_chunk(number);
        ChunkPlace { chunk, at }
    });
    let mut filling = Filling {
        image,
        request_bytes,
        run: Vec::new(),
        run_bytes: 0,
        report: FillReport::default(),
        total_bytes: image.superblock().image_bytes,
    };
    for place in hot {
        if filling.add(place, between)?.is_break() {
            return Ok(filling.report);
        }
    }
    let mut until = 0;
    for window in 0..image.superblock().windows() {
        let WindowRef::Chunk(chunk) = image.window(window)? else { continue };
        let at = image.cold_range(&chunk);
        // Windows that are equal share a chunk, which has been gone through.
        if at.offset < until {
            continue;
        }
        until = at.end();
        if filling.add(ChunkPlace { chunk, at }, between)?.is_break() {
            return Ok(filling.report);
        }
    }
    filling.report.is_complete = filling.fetch(between)?.is_continue();
    Ok(filling.report)
}

/// Chunks that lie one after another and are to be fetched with the next request.
struct Filling<'a> {
    image: &'a Image,
    request_bytes: u64,
    run: Vec<ChunkPlace>,
    run_bytes: u64,
    report: FillReport,
    total_bytes: u64,
}

impl Filling<'_> {
    /// Notes a chunk, if it is missing; fetches those before it, if it does not go with them.
    fn add(
        &mut self,
        place: ChunkPlace,
        between: &mut dyn FnMut(Progress) -> ControlFlow<(), u64>,
    ) -> Result<ControlFlow<()>, ImageError> {
        if self.image.is_kept(&place.chunk) {
            self.report.kept_bytes += place.at.len;
            return Ok(ControlFlow::Continue(()));
        }
        let goes_on = self.run.last().is_some_and(|last| last.at.end() == place.at.offset);
        if (!goes_on || self.run_bytes + place.at.len > self.request_bytes) && self.fetch(between)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
        self.run_bytes += place.at.len;
        self.run.push(place);
        Ok(ControlFlow::Continue(()))
    }

    fn fetch(
        &mut self,
        between: &mut dyn FnMut(Progress) -> ControlFlow<(), u64>,
    ) -> Result<ControlFlow<()>, ImageError> {
        let run = std::mem::take(&mut self.run);
        self.run_bytes = 0;
        if run.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let done_bytes = self.report.fetched_bytes + self.report.kept_bytes;
        let progress = Progress { stage: "filling the cache", done_bytes, total_bytes: self.total_bytes };
        let ControlFlow::Continue(request_bytes) = between(progress) else {
            return Ok(ControlFlow::Break(()));
        };
        self.request_bytes = request_bytes;
        let mut fault = None;
        self.image.stream_places(&run, &mut |number, stored| {
            let place = &run[number as usize];
            match stored.verify(&place.chunk.expected()) {
                Ok(stored) => self.report.fetched_bytes += stored.len() as u64,
                Err(wrong) => fault = Some((place.at, wrong)),
            }
            if fault.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        match fault {
            None => Ok(ControlFlow::Continue(())),
            Some((at, fault)) => Err(in_file(&**self.image.store(), at)(fault)),
        }
    }
}

//! What has to be done after the lock: answers are sent, bytes are freed, and the log gets its lines.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hs_format::Decompressor;
use hs_image::ImageError;

use crate::bytes::{Bytes, Freed, StoredChunk};
use crate::disk::Shared;
use crate::figures::DemandEvent;
use crate::jobs::FetchJob;

/// Called once with the bytes asked for, in order, in any number of pieces.
pub(crate) type Answer = Box<dyn FnOnce(Result<&[&[u8]], &ImageError>) + Send>;

/// A part of an answer.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    pub(crate) from: u32,
    pub(crate) len: u32,
}

/// A read that is answered with its bytes.
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    pub(crate) pieces: Vec<Piece>,
    /// Its cost is not known before it was sent.
    pub(crate) event: DemandEvent,
}

/// What one or several polls of the engine have left to be done.
#[derive(Default)]
pub(crate) struct Outcomes {
    /// Requests to begin at the store.
    pub(crate) begun: Vec<FetchJob>,
    pub(crate) answered: Vec<Answered>,
    pub(crate) failed: Vec<(Answer, ImageError)>,
    pub(crate) freed: Vec<Freed>,
    pub(crate) lines: Vec<(log::Level, String)>,
    /// The disk ends: nothing is put into the cache on disk any more.
    pub(crate) is_last: bool,
}

impl Outcomes {
    /// Does it, without the lock. A decoder uses the memory of what is freed again.
    pub(crate) fn finish(self, shared: &Arc<Shared>, tools: Option<&mut Decompressor>) {
        self.begun.into_iter().for_each(|job| shared.begin(job));
        for (level, line) in self.lines {
            log::log!(level, "{line}");
        }
        // A mistake of one front end costs no other its answer, and no worker its life.
        for answered in self.answered {
            let _ = catch_unwind(AssertUnwindSafe(|| answered.send(shared)));
        }
        for (answer, error) in self.failed {
            let _ = catch_unwind(AssertUnwindSafe(|| answer(Err(&error))));
        }
        let mut raw = self.freed.into_iter().filter_map(|freed| match freed {
            Freed::Raw(bytes) => Bytes::into_inner(bytes),
            Freed::Stored(StoredChunk::Blocks { chunk, bytes, .. }) => {
                // Most have been decompressed, and are in the cache on disk already.
                if !self.is_last {
                    shared.image.keep(&chunk, bytes);
                }
                None
            }
            Freed::Stored(StoredChunk::Page(..)) => None,
        });
        match tools {
            Some(tools) => raw.for_each(|bytes| tools.reuse(bytes)),
            None => raw.by_ref().for_each(drop),
        }
    }
}

impl Answered {
    fn send(self, shared: &Shared) {
        let Self { answer, pieces, mut event } = self;
        let slices: Vec<&[u8]> = pieces
            .iter()
            .map(|piece| {
                let from = piece.from as usize;
                &piece.bytes[from..from + piece.len as usize]
            })
            .collect();
        answer(Ok(&slices));
        if let Some(watch) = &shared.watch {
            event.cost = shared.now().saturating_sub(event.at);
            event.at = event.at.saturating_sub(shared.opened);
            watch.demand(&event);
        }
    }
}

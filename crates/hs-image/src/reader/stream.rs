//! The interface between the stream of hot chunks and the reader.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hs_engine::queue::{Class, ClientKey};
use hs_format::Decompressor;
use hs_units::ByteRange;

use super::jobs::Turn;
use super::memory::Key;
use super::{Asker, Bytes, Reader};
use crate::{ImageError, Stored};

/// The permit of a thread that reads the medium itself: of the stream, or of a fill.
pub struct StreamTurn<'a> {
    turn: Turn<'a>,
}

impl StreamTurn<'_> {
    /// The next turn may begin, although the stream is not done with what it got: it waits for something else
    /// than the medium.
    pub fn end(&self) {
        self.turn.end();
    }
}

impl Reader {
    /// Takes a hot chunk that the stream brought: verifies and decompresses it on this thread, and answers
    /// the reads that wait for it, after `gate` has returned. Returns its bytes, or `None` when it was in
    /// memory already.
    ///
    /// # Errors
    /// When the chunk is not what its digest says; its readers then get the cold copies.
    pub fn supply_hot(
        &self,
        chunk: u32,
        stored: Stored,
        tools: &mut Decompressor,
        gate: impl FnOnce(),
    ) -> Result<Option<Bytes>, ImageError> {
        self.supply_hot_after(chunk, stored, tools, gate, |_, _| {})
    }

    /// As [`Reader::supply_hot`]; `first` is called before waiting reads are answered, with the bytes and
    /// with the blocks of the chunk (counted from its first; not in order) that waiting reads have asked for.
    /// From then on reads of other blocks are answered at once.
    ///
    /// # Errors
    /// As [`Reader::supply_hot`].
    pub fn supply_hot_after(
        &self,
        chunk: u32,
        stored: Stored,
        tools: &mut Decompressor,
        gate: impl FnOnce(),
        first: impl FnOnce(&Bytes, Vec<Range<u32>>),
    ) -> Result<Option<Bytes>, ImageError> {
        let shared = &self.shared;
        {
            let memory = shared.memory.lock();
            if memory.has(Key::Hot(chunk)) || memory.is_handed_over(chunk) {
                return Ok(None);
            }
        }
        match shared.image.decode_hot(chunk, &stored, tools) {
            Ok(raw) => {
                let bytes = Arc::new(raw);
                shared.memory.lock().keep_hot(chunk, shared.image.hot_chunk(chunk).0, stored);
                gate();
                shared.counters.prefetch_bytes.fetch_add(bytes.len() as u64, Relaxed);
                shared.publish_after(Key::Hot(chunk), &bytes, true, |waited_for| first(&bytes, waited_for));
                Ok(Some(bytes))
            }
            Err(error) => {
                shared.failed(Key::Hot(chunk), &error);
                Err(error)
            }
        }
    }

    /// Waits for a turn to read these hot chunks from the medium, which others may want as well; it lasts
    /// until what is returned is dropped. `None` when the caller `gives_up` before, which is looked at after
    /// [`Reader::wake_stream`], or when the reader ends.
    pub fn stream_turn(&self, chunks: Range<u32>, gives_up: impl Fn() -> bool) -> Option<StreamTurn<'_>> {
        let shared = &self.shared;
        let waited_for = {
            let memory = shared.memory.lock();
            let joined =
                |chunk: &u32| memory.is_joined(Key::Hot(*chunk)) && !shared.policy.is_expected(*chunk);
            chunks.clone().any(|chunk| joined(&chunk))
        };
        let class = if waited_for { Class::Demand } else { Class::Prefetch };
        let first = shared.image.hot_chunk(chunks.start).1;
        let last = shared.image.hot_chunk(chunks.end.max(chunks.start + 1) - 1).1;
        // As for hot chunks that are asked for one by one, one byte is missing.
        let range = ByteRange::new(first.offset, last.end().saturating_sub(first.offset + 1));
        let turn = shared.jobs.enter(Asker { client: ClientKey::NOBODY, class }, range, gives_up)?;
        Some(StreamTurn { turn })
    }

    /// Waits for a permit to fetch about this range of the file as background fill, after all that was asked
    /// for. Otherwise as [`Reader::stream_turn`].
    pub fn fill_turn(&self, range: ByteRange, gives_up: impl Fn() -> bool) -> Option<StreamTurn<'_>> {
        let nobody = Asker { client: ClientKey::NOBODY, class: Class::Fill };
        let turn = self.shared.jobs.enter(nobody, range, gives_up)?;
        Some(StreamTurn { turn })
    }

    /// Threads that wait in [`Reader::stream_turn`] or [`Reader::fill_turn`] check whether to give up.
    pub fn wake_stream(&self) {
        self.shared.jobs.wake_guests();
    }

    /// The stream continues without a hot chunk that it could not read: its readers get the cold copies.
    pub fn fail_hot(&self, chunk: u32, error: &ImageError) {
        if !self.shared.memory.lock().has(Key::Hot(chunk)) {
            self.shared.failed(Key::Hot(chunk), error);
        }
    }

    /// The stream ends without having brought everything: the chunks of reads that joined it are fetched on
    /// demand.
    pub fn stream_ended(&self) {
        let orphans = self.shared.memory.lock().orphans();
        for key in orphans {
            self.shared.load(Asker::SOMEBODY, key);
        }
    }

    /// The stream stalls: the chunks of reads that joined it so far are fetched on demand.
    pub fn stream_pauses(&self) {
        let waiting = self.shared.memory.lock().take_joined();
        for key in waiting {
            self.shared.load(Asker::SOMEBODY, key);
        }
    }

    /// One block of a hot chunk is not given to the kernel: a read of it is a use of the chunk. It waits in
    /// memory until then, wherever the rest of the chunk goes. A chunk has one marker at most, and all
    /// together are bounded.
    ///
    /// False, and nothing is marked, when the chunk `has_come` and has left again: a read of its block would
    /// wait for the medium.
    #[must_use]
    pub fn mark(&self, chunk: u32, block_in_chunk: u32, has_come: bool) -> bool {
        self.shared.memory.lock().mark(chunk, block_in_chunk, has_come)
    }

    /// Forgets a hot chunk that lies where its readers look for it first.
    pub fn forget_hot(&self, chunk: u32) {
        if self.shared.memory.lock().forget(chunk) {
            self.shared.policy.released(chunk);
        }
    }

    /// Lets a hot chunk go to the cache: its readers probably have what they need of it.
    pub fn release_hot(&self, chunk: u32) {
        if self.shared.memory.lock().release(chunk) {
            self.shared.policy.released(chunk);
        }
    }
}

//! Workers: each does one job after the other, and reports it under the lock under which it takes the next.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hs_engine::disk::{ChunkKey, Damage, DecoderId, Delivered, Worker};
use hs_format::Decompressor;
use hs_image::{DecodedPage, ImageError};
use parking_lot::MutexGuard;

use crate::bytes::{Bytes, StoredChunk};
use crate::disk::Shared;
use crate::jobs::{DecodeJob, DeliverJob, Job};
use crate::outcomes::Outcomes;
use crate::state::DiskState;

/// A chunk that was verified and decompressed.
enum Decoded {
    Blocks(Bytes),
    Page(DecodedPage),
}

impl Shared {
    /// A worker, until the disk is done.
    pub(crate) fn work(self: &Arc<Self>) {
        let mut tools = Decompressor::new();
        let mut next = self.wait_for_job(true);
        while let Some(job) = next {
            let (outcomes, following) = self.do_job(job, &mut tools);
            outcomes.finish(self, Some(&mut tools));
            next = following.or_else(|| self.wait_for_job(false));
        }
    }

    /// Waits until there is something to do; `None` when there will be nothing more. A thread `is_new` that
    /// was started for a job.
    fn wait_for_job(&self, is_new: bool) -> Option<Job> {
        let mut state = self.lock();
        if is_new {
            state.waking = state.waking.saturating_sub(1);
        }
        loop {
            if let Some(job) = state.jobs.take(None) {
                return Some(job);
            }
            if state.is_done {
                state.workers -= 1;
                return None;
            }
            state.idle += 1;
            self.work.wait(&mut state);
            state.locks += 1;
            state.idle -= 1;
            state.waking = state.waking.saturating_sub(1);
        }
    }

    fn do_job(self: &Arc<Self>, job: Job, tools: &mut Decompressor) -> (Outcomes, Option<Job>) {
        match job {
            Job::Fetch(job) => self.fetch(job, tools),
            Job::Decode(job) => self.decode(job, tools),
            Job::Deliver(decoder, job) => self.deliver(&job, Worker::Decoder(decoder)),
        }
    }

    /// Polls the engine after a report, wakes other workers for what there is to do, and takes the next job.
    pub(crate) fn go_on(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, DiskState>,
        decoder: Option<DecoderId>,
    ) -> (Outcomes, Option<Job>) {
        let mut outcomes = Outcomes::default();
        state.pump(self.now(), &mut outcomes);
        let job = state.jobs.take(decoder);
        self.wake_others(&mut state);
        (outcomes, job)
    }

    fn decode(self: &Arc<Self>, job: DecodeJob, tools: &mut Decompressor) -> (Outcomes, Option<Job>) {
        let decoder = job.decoder;
        let state = self.decode_one(job, tools);
        self.go_on(state, Some(decoder))
    }

    /// Verifies and decompresses a chunk amid other work, and answers the reads that waited for it.
    pub(crate) fn decode_at_once(self: &Arc<Self>, job: DecodeJob, tools: &mut Decompressor) {
        let mut outcomes = Outcomes::default();
        {
            let mut state = self.decode_one(job, tools);
            state.pump(self.now(), &mut outcomes);
            self.wake_others(&mut state);
        }
        outcomes.finish(self, Some(tools));
    }

    fn decode_one(&self, job: DecodeJob, tools: &mut Decompressor) -> MutexGuard<'_, DiskState> {
        let DecodeJob { key, decoder, stored } = job;
        let decoded = catch_unwind(AssertUnwindSafe(|| self.decompress(key, &stored, tools)));
        drop(stored);
        let mut state = self.lock();
        let now = self.now();
        match decoded {
            Ok(Ok(decoded)) => {
                match decoded {
                    Decoded::Blocks(raw) if !state.is_shut_down => state.bytes.put_raw(key, raw),
                    Decoded::Page(page) if !state.is_shut_down => {
                        state.engine.map_mut().pages.put(page);
                    }
                    Decoded::Blocks(_) | Decoded::Page(_) => {}
                }
                state.engine.handle_decoded(now, key, Ok(()));
            }
            Ok(Err(error)) => {
                self.note_failure(&mut state, key, &error);
                state.engine.handle_decoded(now, key, Err(Damage));
            }
            // Its reads fail, or get cold copies; this thread goes on.
            Err(_) => {
                *tools = Decompressor::new();
                let error = ImageError::Panicked { path: self.image.name().to_owned() };
                self.note_failure(&mut state, key, &error);
                state.engine.handle_worker_lost(now, Worker::Decoder(decoder));
                state.engine.handle_worker_restarted(now, Worker::Decoder(decoder));
            }
        }
        state
    }

    fn decompress(
        &self,
        key: ChunkKey,
        stored: &StoredChunk,
        tools: &mut Decompressor,
    ) -> Result<Decoded, ImageError> {
        match (stored, key) {
            (StoredChunk::Page(page, stored), _) => self.image.decode_page(page, stored).map(Decoded::Page),
            (StoredChunk::Blocks { bytes, from_stream, .. }, ChunkKey::Hot(chunk)) => {
                let raw = self.image.decode_hot(chunk, bytes.clone(), tools)?;
                if *from_stream {
                    self.warmer.wait(chunk);
                }
                Ok(Decoded::Blocks(Arc::new(raw)))
            }
            (StoredChunk::Blocks { chunk, bytes, .. }, ChunkKey::Cold(window)) => {
                let raw = self.image.decode_cold(window, chunk, bytes.clone(), tools)?;
                Ok(Decoded::Blocks(Arc::new(raw)))
            }
            (StoredChunk::Blocks { .. }, ChunkKey::Page(_)) => Err(ImageError::Closed),
        }
    }

    /// Remembers why a chunk could not be had. Readers of a hot one get the cold copies, so it is logged
    /// here; others are logged when a read fails.
    pub(crate) fn note_failure(&self, state: &mut DiskState, key: ChunkKey, error: &ImageError) {
        state.errors.note(key, error);
        if matches!(key, ChunkKey::Hot(_)) && !state.is_shut_down {
            let line = state.errors.line(key, error, &self.image);
            state.lines.push(line);
        }
    }

    /// The thread that does nothing but deliver, until the disk is done.
    pub(crate) fn deliver_all(self: &Arc<Self>) {
        loop {
            let job = {
                let mut state = self.lock();
                loop {
                    if let Some(job) = state.jobs.delivery.take() {
                        break job;
                    }
                    if state.is_done {
                        return;
                    }
                    self.delivery.wait(&mut state);
                    state.locks += 1;
                }
            };
            let (outcomes, job) = self.deliver(&job, Worker::DeliveryThread);
            debug_assert!(job.is_none(), "it takes no other jobs");
            outcomes.finish(self, None);
        }
    }

    fn deliver(self: &Arc<Self>, job: &DeliverJob, by: Worker) -> (Outcomes, Option<Job>) {
        let extents = self.image.hot_extents(job.chunk);
        let deliver = self.lock().deliver.clone();
        let give = || deliver.is_some_and(|deliver| deliver.deliver(extents, &job.raw, &job.left_out));
        let given = catch_unwind(AssertUnwindSafe(give));
        let mut state = self.lock();
        let now = self.now();
        match given {
            Ok(taken) => {
                let delivered = if taken { Delivered::Taken } else { Delivered::Refused };
                state.engine.handle_delivered(now, job.key, delivered);
            }
            Err(_) => {
                state.engine.handle_worker_lost(now, by);
                state.engine.handle_worker_restarted(now, by);
            }
        }
        match by {
            Worker::Decoder(decoder) => self.go_on(state, Some(decoder)),
            Worker::DeliveryThread | Worker::Fetcher(_) => {
                let mut outcomes = Outcomes::default();
                state.pump(now, &mut outcomes);
                self.wake_others(&mut state);
                (outcomes, None)
            }
        }
    }
}

//! What the shell reports to the engine. Each input changes the state and returns at once; what is to be done
//! then comes out of [`DiskEngine::poll`].

use hs_units::{ByteRange, MemorySample, Nanos};

use super::DiskEngine;
use super::action::{Damage, DecoderId, Delivered, FetchId, PermitId, ReadId, Why, Worker};
use super::chunk_table::Stage;
use super::decoders::Decoder;
use super::image_map::{ChunkKey, ImageMap};
use super::reads::{Progress, Requester};
use crate::queue::ClientKey;

impl<M: ImageMap> DiskEngine<M> {
    /// A client has one more connection: all that it has have one share of the medium.
    pub fn open_connection(&mut self, client: ClientKey) {
        self.queue.open_connection(client);
    }

    /// A client has one connection less.
    pub fn close_connection(&mut self, client: ClientKey) {
        self.queue.close_connection(client);
    }

    /// A read comes. The shell notes who is to be answered, by the id, before it polls.
    pub fn handle_read(&mut self, now: Nanos, requester: Requester, range: ByteRange) -> ReadId {
        let read = self.reads.begin(now, requester, range);
        let id = self.reads.id(read);
        let why = if self.shut_down {
            Some(Why::Shutdown)
        } else {
            (!range.fits_in(self.map.disk_bytes())).then_some(Why::OutsideDisk)
        };
        if let Some(why) = why {
            self.reads.slab[read].progress = Progress::Failing(why);
            self.reads.outcomes.push_back(id);
            self.stats.failed_reads += 1;
        } else {
            self.submit(now, read);
        }
        id
    }

    /// A read is not wanted any more. False when its answer has been polled, or it has ended: then nothing
    /// changes; otherwise it gets no answer.
    pub fn handle_cancel(&mut self, now: Nanos, read: ReadId) -> bool {
        self.cancel(now, read)
    }

    /// The request that opened the image, made at `asked`, brings the first `chunks` hot chunks as well, as
    /// many as the prefetch has room for, after `bytes_before` other bytes: it is a fetch like others from
    /// now on. To be called before everything else.
    pub fn handle_opening(&mut self, asked: Nanos, chunks: u32, bytes_before: u64) -> Option<FetchId> {
        if !self.streams() || chunks == 0 {
            return None;
        }
        let id = self.prefetch.handle_head(asked, chunks, bytes_before);
        let index = self.fetches.begin(asked, None);
        self.open_run(index, id, 0..chunks);
        Some(self.fetches.id(index))
    }

    /// The first bytes of a fetch have come: media hand out pieces.
    pub fn handle_first_byte(&mut self, now: Nanos, fetch: FetchId, bytes: u64) {
        if !self.fetches.is_live(fetch) {
            return;
        }
        self.fetches.slab[fetch.index].first.get_or_insert((now, bytes));
        for (id, _) in &self.fetches.slab[fetch.index].streams {
            self.prefetch.handle_first_byte(now, *id, bytes);
            self.prefetch_changed = true;
        }
    }

    /// A chunk of a fetch has come, not verified; of a fetch's first one, with so many bytes. Whether the
    /// shell is to keep its bytes, as [`Form::Stored`](super::Form::Stored).
    #[must_use]
    pub fn handle_stored(&mut self, now: Nanos, fetch: FetchId, key: ChunkKey, bytes: u64) -> bool {
        self.fetches.is_live(fetch) && self.take_stored(now, fetch, key, bytes)
    }

    /// A fetch is over. What has not come by then does not come: it is a fault, unless the fetch was
    /// cancelled.
    pub fn handle_fetch_done(&mut self, now: Nanos, fetch: FetchId) {
        if self.fetches.is_live(fetch) {
            self.end_fetch(now, fetch.index, Why::Store);
        }
    }

    /// A chunk was decompressed and is kept as [`Form::Raw`](super::Form::Raw), or is not what its digest
    /// says.
    pub fn handle_decoded(&mut self, now: Nanos, key: ChunkKey, result: Result<(), Damage>) {
        let Some(slot) = self.table.find(key) else { return };
        if let Stage::Decoding { decoder } = self.table[slot].stage {
            self.take_decoded(now, slot, decoder, result);
        }
    }

    /// A delivery is over.
    pub fn handle_delivered(&mut self, _now: Nanos, key: ChunkKey, delivered: Delivered) {
        if let Some(slot) = self.table.find(key) {
            self.end_delivery(slot, delivered);
        }
    }

    /// A hot chunk will now be asked for only because it is to come, by a reader that is in no hurry: such
    /// reads join the stream however far ahead it is, and speak neither for it nor against it.
    pub fn handle_expected(&mut self, chunk: u32) {
        if let Some(expected) = self.expected.get_mut(chunk as usize) {
            *expected = true;
        }
    }

    /// Whether a block of a hot chunk should be left out where the chunk is delivered by another way than
    /// [`Action::Deliver`](super::Action::Deliver): then [`DiskEngine::handle_left_out`] follows if one can
    /// be.
    pub fn wants_tripwire(&mut self, now: Nanos, chunk: u32) -> bool {
        self.streams() && self.prefetch.handle_delivery(now, chunk)
    }

    /// A block of a hot chunk is left out elsewhere: a read of it is a use of the chunk. It waits in memory
    /// from when the chunk comes until it is asked for. False, and nothing is noted, when the chunk has come
    /// and has left again, since a read of the block would wait for the medium, or when it has a tripwire.
    pub fn handle_left_out(&mut self, chunk: u32, block: u32) -> bool {
        let slot = self.table.find(ChunkKey::Hot(chunk));
        let raw = slot.filter(|slot| self.table[*slot].stage == Stage::Raw);
        let was_delivered = slot.is_some_and(|slot| self.table[slot].stage == Stage::Delivered);
        let has_left = raw.is_none() && (self.prefetch.has_arrived(chunk) || was_delivered);
        if self.shut_down || has_left || !self.tripwires.place(chunk, block, &mut self.dropped_wires) {
            return false;
        }
        if let Some(slot) = raw {
            self.fill_tripwire(slot, chunk);
        }
        self.prefetch.handle_tripwire(chunk);
        self.prefetch_changed = true;
        true
    }

    /// Asks for a permit to read about this range of the image, for a reader of the medium beside this engine
    /// that is in no hurry: [`Action::Grant`](super::Action::Grant) gives it. Background fill is the least
    /// urgent class.
    pub fn handle_permit(&mut self, now: Nanos, range: ByteRange) -> PermitId {
        self.ask_permit(now, range)
    }

    /// A permit is given back, or not wanted any more.
    pub fn handle_permit_done(&mut self, now: Nanos, permit: PermitId) {
        self.end_permit(now, permit);
    }

    /// The readers of a hot chunk probably have what they need of it: it need not be held for them.
    pub fn handle_released(&mut self, _now: Nanos, chunk: u32) {
        if let Some(slot) = self.table.find(ChunkKey::Hot(chunk)) {
            self.release_held(slot);
        }
    }

    /// How memory is.
    pub fn handle_memory(&mut self, _now: Nanos, sample: &MemorySample) {
        if self.shut_down {
            return;
        }
        let own_bytes = self.held_bytes + self.filled.bytes();
        let budget = self.prefetch_memory.handle_sample(sample, own_bytes);
        self.prefetch.handle_budget(budget);
        if self.prefetch_memory.is_short() {
            self.prefetch.handle_short_memory();
            self.stop_background();
        }
        self.shrink_filled(budget.saturating_sub(self.held_bytes));
        self.prefetch_changed = true;
        let own_bytes = self.cache.usage().bytes;
        if let Some(memory) = &mut self.cache_memory {
            let budget = memory.handle_sample(sample, own_bytes);
            self.resize_cache(budget);
        }
    }

    /// The cache may hold so much from now on.
    pub fn set_cache_budget(&mut self, bytes: u64) {
        if !self.shut_down {
            self.resize_cache(bytes);
        }
    }

    /// A read that waits for longer fails from now on.
    pub const fn set_read_timeout(&mut self, timeout: Option<Nanos>) {
        self.config.read_timeout = timeout;
        self.read_timeout = timeout;
    }

    /// A worker broke down at what it was at.
    pub fn handle_worker_lost(&mut self, now: Nanos, worker: Worker) {
        match worker {
            Worker::Fetcher(fetch) if self.fetches.is_live(fetch) => {
                self.end_fetch(now, fetch.index, Why::WorkerLost);
            }
            Worker::Fetcher(_) => {}
            Worker::Decoder(decoder) => self.lose_decoder(now, decoder),
            Worker::DeliveryThread => {
                self.deliveries.thread_lost = true;
                if let Some(slot) = self.deliveries.by_thread {
                    self.end_delivery(slot, Delivered::Refused);
                }
            }
        }
    }

    /// A worker that was lost is there again.
    pub fn handle_worker_restarted(&mut self, _now: Nanos, worker: Worker) {
        match worker {
            Worker::Decoder(decoder) if self.decoders.get(decoder) == Some(Decoder::Lost) => {
                self.decoders.set(decoder, Decoder::Free);
            }
            Worker::DeliveryThread => self.deliveries.thread_lost = false,
            Worker::Decoder(_) | Worker::Fetcher(_) => {}
        }
    }

    fn lose_decoder(&mut self, now: Nanos, decoder: DecoderId) {
        match self.decoders.get(decoder) {
            Some(Decoder::Decoding(slot)) => {
                self.decoders.set(decoder, Decoder::Lost);
                if self.shut_down {
                    self.table[slot].stage = Stage::Stored;
                    return self.settle(slot);
                }
                self.table[slot].early = false;
                let why = Why::WorkerLost(self.table[slot].key);
                self.lose_stored(now, slot, why);
            }
            Some(Decoder::Delivering) => {
                if let Some((slot, _)) = self.deliveries.by_decoder {
                    self.end_delivery(slot, Delivered::Refused);
                }
                self.decoders.set(decoder, Decoder::Lost);
            }
            Some(Decoder::Free) => self.decoders.set(decoder, Decoder::Lost),
            Some(Decoder::Lost) | None => {}
        }
    }

    /// The disk ends: every read that waits fails, and nothing new begins. What is under way is still to be
    /// reported.
    pub fn handle_shutdown(&mut self, now: Nanos) {
        if !self.shut_down {
            self.shut_down(now);
        }
    }
}

//! The prefetch of a served disk: its beginning, its reports, and the threads that watch it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use hs_engine::disk::{DeliveryConfig, UseVisibility};
use hs_engine::{EndReason, Prefetch};
use hs_image::ImageError;
use hs_units::{BlockRange, Nanos};

use crate::deliver::Deliver;
use crate::disk::{ServedDisk, Shared};
use crate::streamed::Streamed;
use crate::warmer_place::WarmerPlace;

impl ServedDisk {
    /// Begins the prefetch; `deliver` is where its blocks go beyond this process's memory.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn begin_prefetch(&self, deliver: Option<Arc<dyn Deliver>>) -> Result<(), ImageError> {
        let shared = &self.shared;
        if deliver.is_some() {
            shared.spawn("hs-deliver", Shared::deliver_all)?;
        }
        let head = self.head.lock().take();
        if shared.options.prefetch.is_some() {
            shared.image.expect_hot_stream(head.as_ref().map_or(0, |(_, head)| head.chunks));
        }
        let delivery =
            deliver.as_ref().map(|deliver| DeliveryConfig { before_answers: deliver.comes_before_answers() });
        let is_hidden = deliver.as_ref().is_some_and(|deliver| deliver.visibility() == UseVisibility::Hidden);
        shared.change(|state, now| {
            state.deliver = deliver;
            if is_hidden {
                state.engine.handle_use_hidden();
            }
            state.engine.begin_prefetch(delivery);
            if let Some((id, head)) = &head {
                let first_byte = head.first_byte.saturating_duration_since(shared.began).into();
                state.stream_log.begin(first_byte);
                state.engine.handle_first_byte(now.min(first_byte), *id, head.first_bytes);
            }
        });
        if let Some((id, head)) = head {
            shared.take_head(id, head);
        }
        // The clock looks at the system's memory as long as the prefetch lasts.
        shared.clock.notify_all();
        Ok(())
    }

    /// An earlier start from this image has read these blocks, the first of them first: what of them lies
    /// outside the hot region comes behind the reads. Returns how many windows that is.
    #[must_use]
    pub fn learn(&self, blocks: Vec<BlockRange>) -> u64 {
        let mut windows = 0;
        self.shared.change(|state, _| windows = state.engine.handle_learned(blocks));
        windows
    }

    /// Makes no more requests for the prefetch.
    pub fn stop_prefetch(&self) {
        let head = self.head.lock().take();
        self.shared.change(|state, now| {
            state.engine.stop_prefetch();
            // It has not begun: reads that wait for the rest of the opening request fetch for themselves.
            if let Some((id, _)) = head {
                state.end_fetch(now, id);
            }
        });
    }

    /// Waits until everything that the prefetch wanted has been read, decompressed and delivered.
    pub fn wait_prefetch(&self) {
        let mut state = self.shared.lock();
        while !state.engine.is_stream_settled() && !state.is_done {
            state.watchers += 1;
            self.shared.watched.wait(&mut state);
            state.watchers -= 1;
        }
    }

    /// Waits until `condition` holds of the prefetch or the prefetch has ended.
    pub fn wait_until(&self, mut condition: impl FnMut(&Prefetch) -> bool) {
        let mut state = self.shared.lock();
        while state.engine.prefetch().ended().is_none() && !condition(state.engine.prefetch()) {
            state.watchers += 1;
            self.shared.watched.wait(&mut state);
            state.watchers -= 1;
        }
    }

    /// Whether `condition` holds of the prefetch or the prefetch has ended.
    #[must_use]
    pub fn is(&self, condition: impl Fn(&Prefetch) -> bool) -> bool {
        let state = self.shared.lock();
        state.engine.prefetch().ended().is_some() || condition(state.engine.prefetch())
    }

    /// Announces reads of this chunk's blocks that can wait, such as those of the warmer of a page cache:
    /// these reads join the stream however far ahead it is.
    pub fn expect(&self, chunk: u32) {
        self.shared.lock().engine.handle_expected(chunk);
    }

    /// Whether a report of use would change what the prefetch does: cheap, unlike [`ServedDisk::used`].
    #[must_use]
    pub fn asks_for_use(&self) -> bool {
        self.shared.asks_for_use.load(Relaxed)
    }

    /// A program used a hot chunk that had come, by another way than a read of this disk.
    pub fn used(&self) {
        self.shared.change(|state, _| state.engine.handle_used());
    }

    /// From now on unused chunks and misses do not lower the confidence in the profile.
    pub fn hide_use(&self) {
        self.shared.change(|state, _| state.engine.handle_use_hidden());
    }

    /// Whether a block of a hot chunk should be left out when the chunk is delivered by others. Readers then
    /// find the chunk without the server, and only a request for the missing block shows use. See
    /// [`ServedDisk::leave_out`].
    #[must_use]
    pub fn wants_tripwire(&self, chunk: u32) -> bool {
        let now = self.shared.now();
        self.shared.lock().engine.wants_tripwire(now, chunk)
    }

    /// Notes that a block of this chunk is left out, as [`ServedDisk::wants_tripwire`] wants; false when the
    /// chunk has left again.
    #[must_use]
    pub fn leave_out(&self, chunk: u32, block_in_chunk: u32) -> bool {
        let mut is_noted = false;
        self.shared.change(|state, _| is_noted = state.engine.handle_left_out(chunk, block_in_chunk));
        is_noted
    }

    /// Lets a hot chunk go to the cache: its readers probably have what they need of it.
    pub fn release(&self, chunk: u32) {
        self.shared.change(|state, now| state.engine.handle_released(now, chunk));
    }

    /// Whether the stream makes no requests because its chunks are not used and other reads wait for the
    /// medium.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.shared.lock().engine.prefetch().is_throttled()
    }

    /// Notes where the warmer is now.
    pub fn set_warmer(&self, place: WarmerPlace) {
        self.shared.warmer.set(place);
    }

    /// Has the warmer of page caches end: what it warms is not used any more.
    pub fn end_warming(&self) {
        self.shared.warmer.end();
        self.wake();
    }

    /// Whether the warmer is to end.
    #[must_use]
    pub fn warming_is_over(&self) -> bool {
        self.shared.warmer.is_over()
    }

    /// Hot chunks that have come, and how many there are to come in all.
    #[must_use]
    pub fn progress(&self) -> (u32, u32) {
        let state = self.shared.lock();
        let arrivals = state.engine.arrivals();
        (arrivals.iter().flatten().count() as u32, arrivals.len() as u32)
    }

    /// Why the prefetch ended, once it has.
    #[must_use]
    pub fn ended(&self) -> Option<EndReason> {
        self.shared.lock().engine.prefetch().ended()
    }

    /// When each chunk was verified and decompressed, since [`ServedDisk::began`]; `None` for those that did
    /// not come by the stream.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Option<Nanos>> {
        self.shared.lock().engine.arrivals().to_vec()
    }

    /// The stream's least lead over need, in seconds: negative when a chunk came too late; `None` when the
    /// image has no deadlines.
    #[must_use]
    pub fn least_slack_s(&self) -> Option<f64> {
        self.shared.lock().engine.prefetch().least_slack_s()
    }

    /// The chunks that came by the stream after the profile says that they were needed, ascending.
    #[must_use]
    pub fn overdue_chunks(&self) -> Vec<u32> {
        self.shared.lock().engine.prefetch().overdue().map(|(chunk, _)| chunk).collect()
    }

    /// Uncompressed bytes of the overdue chunks.
    #[must_use]
    pub fn overdue_bytes(&self) -> u64 {
        self.shared.lock().engine.prefetch().overdue().map(|(_, bytes)| u64::from(bytes)).sum()
    }

    /// How fast the hot chunks came from the medium until now.
    #[must_use]
    pub fn streamed(&self) -> Streamed {
        self.shared.lock().stream_log.streamed()
    }

    /// When the image was asked for.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.shared.began
    }
}

//! The questions of the readers of hot chunks to the prefetch, and their reports.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use hs_engine::{EndReason, Late};
use hs_image::HotPolicy;

use super::Driver;

impl HotPolicy for Driver {
    fn join(&self, chunk: u32) -> bool {
        if !self.is_enabled() {
            return false;
        }
        let mut engine = self.engine.lock();
        let expected = self.expected[chunk as usize].load(Relaxed);
        if !expected {
            engine.handle_wanted(self.now(), chunk);
            // A stream that waits for a deadline goes on at once.
            self.wake();
        }
        let comes = engine.ended().is_none_or(EndReason::is_complete);
        let joins = engine.late(chunk) == Late::Join
            || (expected && comes && !engine.has_arrived(chunk) && !engine.stands_still());
        if !joins {
            let (front, now) = (engine.front(), self.now());
            log::debug!("{now}: hot chunk {chunk} is fetched out of turn; the stream is at {front}");
        }
        joins
    }

    fn is_expected(&self, chunk: u32) -> bool {
        self.expected.get(chunk as usize).is_some_and(|expected| expected.load(Relaxed))
    }

    fn marker_asked(&self, chunk: u32) {
        if let Some(expected) = self.expected.get(chunk as usize) {
            expected.store(false, Relaxed);
        }
    }

    fn used(&self) {
        // Nearly every read of a start comes here, so the engine gets a report only while it has doubts.
        if self.asks_for_use() {
            let mut engine = self.engine.lock();
            engine.handle_used();
            self.asks_for_use.store(engine.has_doubts(), Relaxed);
            drop(engine);
            self.wake();
        }
    }

    fn miss(&self) {
        let mut engine = self.engine.lock();
        engine.handle_miss(self.now());
        self.asks_for_use.store(engine.has_doubts(), Relaxed);
    }

    fn miss_answered(&self) {
        self.engine.lock().handle_miss_answered(self.now());
        self.wake();
    }

    fn fetched(&self, asked: Instant, came: Instant, bytes: u64) {
        self.engine.lock().handle_fetched(self.at(asked), self.at(came), bytes);
    }

    fn most_neighbour_bytes(&self) -> Option<u64> {
        self.engine.lock().most_neighbour_bytes()
    }

    fn arrived(&self, chunk: u32) {
        let now = self.now();
        self.arrived_at.lock()[chunk as usize] = Some(now);
        let mut engine = self.engine.lock();
        engine.handle_arrived(chunk);
        self.stirred(&engine);
    }

    fn released(&self, chunk: u32) {
        let mut engine = self.engine.lock();
        engine.handle_released(chunk);
        self.memory.give_back_when_over(&engine);
        self.stirred(&engine);
    }

    fn resident(&self, chunk: u32) {
        if self.is_enabled() {
            self.engine.lock().handle_resident(chunk);
            self.wake();
        }
    }

    fn dropped(&self, chunk: u32) {
        if self.is_enabled() {
            self.engine.lock().handle_dropped(chunk);
            self.wake();
        }
    }
}

//! What has to hold between two calls.

use std::collections::BTreeMap;

use super::DiskEngine;
use super::action::ReadId;
use super::chunk_table::{Chunk, Stage, Waiter};
use super::image_map::ImageMap;
use super::reads::{Progress, Source};

impl<M: ImageMap> DiskEngine<M> {
    /// Asserts what has to hold between two calls; looks at everything. For tests.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn check(&self) {
        let (mut raw, mut stored, mut held, mut cached) = (0, 0, 0, 0);
        let pins = self.count_pins();
        for slot in 0..self.table.end() {
            let Some(chunk) = self.table.get(slot) else { continue };
            let key = chunk.key;
            assert!(self.table.find(key) == Some(slot), "{key:?} is not found");
            raw += if chunk.stage == Stage::Raw { u64::from(chunk.raw_bytes) } else { 0 };
            stored += if chunk.stored { chunk.place.len } else { 0 };
            held += if chunk.held { u64::from(chunk.raw_bytes) } else { 0 };
            cached += u64::from(chunk.raw_cached) + u64::from(chunk.stored_cached);
            assert_eq!(
                chunk.pins,
                pins.get(&slot).copied().unwrap_or(0),
                "{key:?} is pinned by what needs it"
            );
            self.check_bytes(chunk);
            self.check_stage(slot, chunk);
        }
        assert_eq!(
            (raw, stored, held),
            (self.raw_bytes, self.stored_bytes, self.held_bytes),
            "bytes are counted"
        );
        assert_eq!(cached, self.cache.usage().entries, "the cache and the table agree");
        let budget = self.config.prefetch.map_or(0, |limits| limits.budget_bytes);
        let largest =
            (0..self.map.hot_chunks()).map(|chunk| u64::from(self.map.hot_chunk(chunk).raw_bytes)).max();
        assert!(held <= budget.max(largest.unwrap_or(0)), "{held} bytes wait for their readers");
        self.check_reads();
    }

    fn count_pins(&self) -> BTreeMap<u32, u32> {
        let mut pins = BTreeMap::new();
        let mut pin = |slot| *pins.entry(slot).or_default() += 1;
        for index in 0..self.reads.slab.end() {
            let spans = self.reads.slab.get(index).into_iter().flat_map(|read| &read.spans);
            spans
                .filter(|span| span.found && matches!(span.source, Source::Chunk(_)))
                .for_each(|span| pin(span.slot));
        }
        let deliveries = &self.deliveries;
        deliveries.waiting.iter().copied().for_each(&mut pin);
        deliveries.by_thread.into_iter().for_each(&mut pin);
        deliveries.by_decoder.iter().for_each(|(slot, _)| pin(*slot));
        pins
    }

    fn check_bytes(&self, chunk: &Chunk) {
        let key = chunk.key;
        let is_needed = chunk.raw_cached || chunk.held || chunk.pins > 0;
        assert_eq!(chunk.stage == Stage::Raw, is_needed, "{key:?} is raw as long as something needs it");
        let waits = chunk.decode_ticket != 0 || matches!(chunk.stage, Stage::Decoding { .. });
        assert_eq!(
            chunk.stored,
            chunk.stored_cached || chunk.filled || waits,
            "{key:?} is stored as long as something needs it"
        );
        assert!(chunk.stored || chunk.stage != Stage::Stored, "{key:?} is stored");
        assert!(chunk.decode_ticket == 0 || chunk.stage == Stage::Stored, "{key:?} waits for a decoder");
    }

    fn check_stage(&self, slot: u32, chunk: &Chunk) {
        let key = chunk.key;
        match chunk.stage {
            Stage::Absent | Stage::Raw | Stage::Delivered | Stage::Failed { .. } => {
                assert!(!chunk.is_awaited(), "{key:?} is awaited, and nothing brings it");
            }
            Stage::Stored => {
                let comes = chunk.decode_ticket != 0;
                assert!(comes || !chunk.is_awaited(), "{key:?} is awaited, and is not decompressed");
            }
            Stage::Joined => {
                assert!(!self.prefetch_over, "{key:?} waits for a stream that is over");
                assert!(
                    self.joined
                        .iter()
                        .any(|joined| self.table.find(super::ChunkKey::Hot(*joined)) == Some(slot))
                );
            }
            Stage::AwaitsIndex { page } => {
                assert!(self.table[page].dependents.contains(&slot), "{key:?} waits for a page");
            }
            Stage::Queued { request } => {
                let request = self.fetches.requests.get(request).expect("it is in the queue");
                assert!(request.ticket.is_some() && request.purpose.is_some(), "{key:?} is in the queue");
            }
            Stage::InFlight { fetch } => {
                let fetch = self.fetches.slab.get(fetch).expect("it is under way");
                let brings = fetch.chunks.iter().filter(|member| member.owned && !member.came);
                assert_eq!(
                    brings.filter(|member| member.slot == slot).count(),
                    1,
                    "{key:?} is under way once"
                );
            }
            Stage::Decoding { .. } => {}
        }
    }

    fn check_reads(&self) {
        for index in 0..self.reads.slab.end() {
            let Some(read) = self.reads.slab.get(index) else { continue };
            let id = ReadId { index, generation: self.reads.slab.generation(index) };
            let missing = read.spans.iter().filter(|span| !span.found).count() as u32;
            match read.progress {
                Progress::Waiting => {
                    assert!(missing > 0 && missing == read.missing, "{id:?} waits for something")
                }
                Progress::Ready | Progress::Held => assert!(missing == 0, "{id:?} has everything"),
                Progress::Failing(_) => {
                    assert!(read.spans.is_empty(), "{id:?} has nothing");
                    continue;
                }
            }
            let mut at = read.range().offset;
            for (number, span) in (0..).zip(&read.spans) {
                at += u64::from(span.len);
                let waiter = Waiter { read: id, span: number };
                assert!(
                    span.found || self.table[span.slot].waiters.contains(&waiter),
                    "{id:?} is waited for"
                );
            }
            assert_eq!(at, read.range().end(), "{id:?} is cut without a gap");
        }
    }
}

//! Decoders and deliveries of a world, and what goes wrong with them.

use hs_engine::disk::{ChunkKey, Damage, DecoderId, Delivered, Deliverer, Form, ReadId, Worker};

use super::super::image::{Image, raw_bytes};
use super::super::trouble::Trouble;
use super::{Event, World};

/// A delivery that is under way, and the read for which it waits.
pub(super) struct Delivery {
    key: ChunkKey,
    by: Deliverer,
    pub(super) until: Option<ReadId>,
}

/// The delivery thread among the workers.
const DELIVERY_THREAD: u32 = u32::MAX;

impl World {
    pub(super) fn decode(&mut self, key: ChunkKey, decoder: u32) {
        self.holds(self.shell.has(key, Form::Stored));
        self.must(!self.lost.contains(&decoder), || format!("decoder {decoder} is lost"));
        let before = self.decoding.insert(decoder, key);
        self.must(before.is_none(), || format!("decoder {decoder} is busy"));
        self.unattended.push(decoder);
        self.attend();
    }

    /// Threads take up what the engine has begun, as far as there are threads that do not wait for a reader.
    fn attend(&mut self) {
        let delivering = self.deliveries.values().filter(|delivery| delivery.by != Deliverer::Thread).count();
        let busy = self.decoding.len() - self.unattended.len() + delivering;
        let free = (self.config.decoders as usize).saturating_sub(busy);
        for _ in 0..free.min(self.unattended.len()) {
            let decoder = self.unattended.remove(0);
            self.plan_within(2_000_000, Event::Decoded(decoder));
        }
    }

    pub(super) fn decoded(&mut self, decoder: u32) {
        let key = self.decoding.remove(&decoder).expect("a chunk is decompressed once");
        if Trouble::happens(self.trouble.breaks_down, &mut self.prng) {
            self.faulty.insert(key);
            self.lose(decoder);
            return self.attend();
        }
        let damaged = self.trouble.is_rotten(key) || Trouble::happens(self.trouble.damaged, &mut self.prng);
        let bytes = raw_bytes(self.engine.engine.map(), key);
        if damaged {
            self.faulty.insert(key);
            self.seen.damaged += 1;
        }
        if let (ChunkKey::Page(page), false) = (key, damaged) {
            self.engine.engine.map_mut().pages.insert(page);
        }
        let result = if damaged { Err(Damage) } else { Ok(()) };
        let is_kept = self.engine.handle_decoded(self.now, key, result);
        if is_kept && !self.is_shut_down {
            let result = self.shell.keep(key, Form::Raw, bytes);
            self.holds(result);
            if damaged {
                self.shell.note_damage(key);
            }
        }
        self.attend();
    }

    /// A worker breaks down. Most are there again soon.
    fn lose(&mut self, number: u32) {
        self.seen.lost_workers += 1;
        self.lost.insert(number);
        self.engine.engine.handle_worker_lost(self.now, worker(number));
        if self.prng.below(2) == 0 {
            self.lost.remove(&number);
            self.engine.engine.handle_worker_restarted(self.now, worker(number));
        } else {
            self.plan_within(50_000_000, Event::Restart(number));
        }
    }

    pub(super) fn deliver(&mut self, key: ChunkKey, by: Deliverer, tripwire: Option<u32>) {
        self.holds(self.shell.has(key, Form::Raw));
        self.must(self.deliveries.values().all(|other| other.key != key), || {
            format!("{key:?} is delivered twice")
        });
        let by_decoder = |by: Deliverer| by != Deliverer::Thread;
        let is_alone = self.deliveries.values().all(|other| by_decoder(other.by) != by_decoder(by));
        self.must(is_alone, || "two wait for readers".to_owned());
        if tripwire.is_some() {
            let result = self.shell.keep(key, Form::Tripwire, hs_units::BLOCK_BYTES);
            self.holds(result);
        }
        self.sequence += 1;
        let number = self.sequence;
        let until = Trouble::happens(self.trouble.blocked_delivery, &mut self.prng)
            .then(|| self.reader_of_another(key))
            .flatten();
        self.deliveries.insert(number, Delivery { key, by, until });
        if until.is_some() {
            self.seen.blocked += 1;
        } else if Trouble::happens(self.trouble.slow_delivery, &mut self.prng) {
            self.plan_within(500_000_000, Event::Delivered(number));
        } else {
            self.plan_within(200_000, Event::Delivered(number));
        }
    }

    /// A read that waits, and not for anything of this chunk: another chunk has to be decompressed before it
    /// ends.
    fn reader_of_another(&mut self, key: ChunkKey) -> Option<ReadId> {
        let others: Vec<ReadId> = self
            .reads
            .iter()
            .filter(|(_, read)| !Image::touches(read.range, key))
            .map(|(read, _)| *read)
            .collect();
        let which = self.prng.below(others.len().max(1) as u64) as usize;
        others.get(which).copied()
    }

    pub(super) fn delivered(&mut self, number: u64) {
        let Some(delivery) = self.deliveries.remove(&number) else { return };
        if Trouble::happens(self.trouble.breaks_down, &mut self.prng) {
            self.lose(match delivery.by {
                Deliverer::Decoder(decoder) => decoder.0,
                Deliverer::Thread => DELIVERY_THREAD,
            });
        } else {
            let taken = if self.prng.below(5) > 0 { Delivered::Taken } else { Delivered::Refused };
            self.engine.engine.handle_delivered(self.now, delivery.key, taken);
        }
        self.attend();
    }
}

pub(super) fn worker(number: u32) -> Worker {
    if number == DELIVERY_THREAD { Worker::DeliveryThread } else { Worker::Decoder(DecoderId(number)) }
}

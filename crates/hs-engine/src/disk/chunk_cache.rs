//! What stays in memory because it may be asked for: raw chunks, and chunks as they are stored.
//!
//! Bytes stay as long as one of these needs them: the prefetch, which holds what it has brought for its
//! readers; the cache; reads and deliveries, which pin them; the decoder that they wait for. What nothing
//! needs is dropped.

use std::collections::VecDeque;

use super::DiskEngine;
use super::action::Form;
use super::chunk_table::Stage;
use super::image_map::{ChunkKey, ImageMap};
use crate::cache::Origin;

/// Hot chunks kept as they are stored, in case that the kernel drops their pages before they are read: some
/// kernels take a fifth of a start's pages within seconds. Compressed, this is the stream of the last
/// seconds.
const HOT_STORED_BYTES: u64 = 8 << 20;

/// A chunk in one of its two forms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Name {
    pub key: ChunkKey,
    pub form: Form,
}

/// Hot chunks that are kept as they are stored, the oldest first, and some that are not any more.
#[derive(Debug, Default)]
pub(super) struct HotStored {
    order: VecDeque<(u32, u64)>,
    bytes: u64,
}

impl<M: ImageMap> DiskEngine<M> {
    /// Keeps raw bytes in the cache, if it takes them.
    pub(super) fn cache_raw(&mut self, slot: u32, origin: Origin) {
        let chunk = &mut self.table[slot];
        chunk.raw_cached = true;
        let (name, weight) = (Name { key: chunk.key, form: Form::Raw }, u64::from(chunk.raw_bytes));
        self.cache_insert(name, slot, weight, origin);
    }

    /// Keeps stored bytes in the cache, if it takes them.
    pub(super) fn cache_stored(&mut self, slot: u32) {
        let chunk = &mut self.table[slot];
        chunk.stored_cached = true;
        let (name, weight) = (Name { key: chunk.key, form: Form::Stored }, chunk.place.len);
        self.cache_insert(name, slot, weight, Origin::Prefetched);
    }

    /// Keeps the stored bytes of a hot chunk beside its raw ones; the oldest leave beyond a limit of their
    /// own.
    pub(super) fn cache_hot_stored(&mut self, slot: u32, number: u32) {
        let weight = self.table[slot].place.len;
        self.cache_stored(slot);
        self.hot_stored.order.push_back((number, weight));
        self.hot_stored.bytes += weight;
        while self.hot_stored.bytes > HOT_STORED_BYTES
            && let Some((oldest, bytes)) = self.hot_stored.order.pop_front()
        {
            self.hot_stored.bytes -= bytes;
            if let Some(slot) = self.table.find(ChunkKey::Hot(oldest)) {
                self.uncache_stored(slot);
                self.settle(slot);
            }
        }
    }

    fn cache_insert(&mut self, name: Name, slot: u32, weight: u64, origin: Origin) {
        let evicted = &mut self.evicted;
        self.cache.insert(name, slot, weight, origin, |name, slot| evicted.push((name, slot)));
        self.settle_evicted();
    }

    /// The cache may hold so much from now on.
    pub(super) fn resize_cache(&mut self, bytes: u64) {
        let evicted = &mut self.evicted;
        self.cache.set_budget(bytes, |name, slot| evicted.push((name, slot)));
        self.settle_evicted();
    }

    fn settle_evicted(&mut self) {
        while let Some((name, slot)) = self.evicted.pop() {
            let chunk = &mut self.table[slot];
            match name.form {
                Form::Raw => chunk.raw_cached = false,
                Form::Stored | Form::Tripwire => chunk.stored_cached = false,
            }
            self.settle(slot);
        }
    }

    /// Takes stored bytes out of what is kept, to be decompressed.
    pub(super) fn uncache_stored(&mut self, slot: u32) {
        self.use_filled(slot);
        let chunk = &mut self.table[slot];
        if std::mem::take(&mut chunk.stored_cached) {
            self.cache.remove(&Name { key: chunk.key, form: Form::Stored });
        }
    }

    pub(super) fn uncache_raw(&mut self, slot: u32) {
        let chunk = &mut self.table[slot];
        if std::mem::take(&mut chunk.raw_cached) {
            self.cache.remove(&Name { key: chunk.key, form: Form::Raw });
        }
    }

    /// A read asks for raw bytes that may be in the cache.
    pub(super) fn touch_raw(&mut self, slot: u32) {
        let chunk = &self.table[slot];
        if chunk.raw_cached {
            self.cache.get(&Name { key: chunk.key, form: Form::Raw });
        }
    }

    /// A page of the index has told where a window is.
    pub(super) fn touch_page(&mut self, slot: u32) {
        let chunk = &self.table[slot];
        if chunk.raw_cached {
            self.cache.touch(&Name { key: chunk.key, form: Form::Raw });
        }
    }

    /// A read asks for a chunk whose raw bytes are not in memory. One that waits as it is stored is found,
    /// only not ready.
    pub(super) fn miss_in_cache(&mut self, key: ChunkKey) {
        let is_stored = self.table.find(key).is_some_and(|slot| self.table[slot].stored_cached);
        let form = if is_stored { Form::Stored } else { Form::Raw };
        self.cache.get(&Name { key, form });
    }

    pub(super) fn pin(&mut self, slot: u32) {
        self.table[slot].pins += 1;
    }

    pub(super) fn unpin(&mut self, slot: u32) {
        self.table[slot].pins -= 1;
        self.settle(slot);
    }

    /// Drops the stored bytes of a chunk.
    pub(super) fn drop_stored(&mut self, slot: u32) {
        self.uncache_stored(slot);
        let chunk = &mut self.table[slot];
        if std::mem::take(&mut chunk.stored) {
            self.stored_bytes -= chunk.place.len;
            self.drops.push_back((chunk.key, Form::Stored));
        }
    }

    /// Drops the bytes of a chunk that nothing needs, and forgets it if nothing need be known.
    pub(super) fn settle(&mut self, slot: u32) {
        let chunk = &mut self.table[slot];
        if chunk.stage == Stage::Raw && !chunk.raw_cached && !chunk.held && chunk.pins == 0 {
            self.raw_bytes -= u64::from(chunk.raw_bytes);
            self.drops.push_back((chunk.key, Form::Raw));
            (chunk.from_stream, chunk.early) = (false, true);
            chunk.stage = match (chunk.delivered, chunk.stored) {
                (true, _) => Stage::Delivered,
                (false, true) => Stage::Stored,
                (false, false) => Stage::Absent,
            };
        }
        let waits = chunk.decode_ticket != 0 || matches!(chunk.stage, Stage::Decoding { .. });
        if chunk.stored && !chunk.stored_cached && !chunk.filled && !waits {
            chunk.stored = false;
            self.stored_bytes -= chunk.place.len;
            self.drops.push_back((chunk.key, Form::Stored));
            if chunk.stage == Stage::Stored {
                chunk.stage = Stage::Absent;
            }
        }
        self.table.tidy(slot);
    }

    /// Bytes of a chunk were handed over.
    pub(super) fn serve(&mut self, slot: u32, from: u32, len: u32) {
        let chunk = &mut self.table[slot];
        if let ChunkKey::Hot(number) = chunk.key {
            self.tripwires.serve(number, from, len, &mut self.dropped_wires);
        }
        if chunk.held {
            if chunk.served.serve(from, len) {
                self.release_held(slot);
            }
        } else if self.config.readers_keep && chunk.raw_cached && chunk.served.serve(from, len) {
            chunk.delivered = matches!(chunk.key, ChunkKey::Hot(_));
            self.uncache_raw(slot);
        }
    }

    /// Lets go of a held chunk: what readers have and keep is dropped, anything else is kept like other
    /// chunks.
    pub(super) fn release_held(&mut self, slot: u32) {
        if !self.end_hold(slot) {
            return;
        }
        // Nothing more of it is served by this.
        if self.config.readers_keep && self.table[slot].served.serve(0, 0) {
            self.table[slot].delivered = true;
            self.settle(slot);
        } else {
            self.cache_raw(slot, Origin::Demanded);
        }
    }

    /// Drops a held chunk, which the page cache has as a whole.
    pub(super) fn forget_held(&mut self, slot: u32) {
        if self.end_hold(slot) {
            self.table[slot].delivered = self.config.readers_keep;
            self.settle(slot);
        }
    }

    /// Whether the chunk was held until now.
    fn end_hold(&mut self, slot: u32) -> bool {
        let chunk = &mut self.table[slot];
        if !std::mem::take(&mut chunk.held) {
            return false;
        }
        self.held_bytes -= u64::from(chunk.raw_bytes);
        if let ChunkKey::Hot(number) = chunk.key {
            self.prefetch.handle_released(number);
            self.prefetch_changed = true;
        }
        true
    }
}

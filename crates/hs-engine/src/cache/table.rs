//! From a key's hash to its slot.

use std::hash::{Hash, Hasher};

use super::segments::{NONE, Segments};

/// Linear hashing (Litwin: "Linear hashing: a new tool for file and table addressing", VLDB 1980,
/// section 2): one bucket is split whenever the table has more slots than buckets, so that no insertion
/// ever rehashes all of it.
#[derive(Debug)]
pub(crate) struct Table {
    buckets: Segments<u32>,
    links: Segments<Link>,
    /// Buckets when the last doubling was complete, less one: all of them have been split up to `split`.
    mask: u32,
    split: u32,
    len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    hash: u64,
    next: u32,
}

impl Default for Table {
    fn default() -> Self {
        let mut buckets = Segments::default();
        buckets.push(NONE);
        Self { buckets, links: Segments::default(), mask: 0, split: 0, len: 0 }
    }
}

impl Table {
    /// The slot with this hash for which `is_it` holds.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut slot = self.buckets[self.bucket(hash)];
        while slot != NONE {
            let link = self.links[slot];
            if link.hash == hash && is_it(slot) {
                return Some(slot);
            }
            slot = link.next;
        }
        None
    }

    /// The hash of a slot that is in the table.
    pub(super) fn hash(&self, slot: u32) -> u64 {
        self.links[slot].hash
    }

    pub(crate) fn insert(&mut self, slot: u32, hash: u64) {
        while self.links.len() <= slot {
            self.links.push(Link { hash: 0, next: NONE });
        }
        self.chain(slot, hash);
        self.len += 1;
        if self.len > self.buckets.len() {
            self.split_one();
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        let Link { hash, next } = self.links[slot];
        let bucket = self.bucket(hash);
        let mut at = self.buckets[bucket];
        if at == slot {
            self.buckets[bucket] = next;
            self.len -= 1;
            return;
        }
        while at != NONE {
            let after = self.links[at].next;
            if after == slot {
                self.links[at].next = next;
                self.len -= 1;
                return;
            }
            at = after;
        }
    }

    fn bucket(&self, hash: u64) -> u32 {
        let bucket = hash as u32 & (self.mask << 1 | 1);
        if bucket < self.buckets.len() { bucket } else { hash as u32 & self.mask }
    }

    fn chain(&mut self, slot: u32, hash: u64) {
        let bucket = self.bucket(hash);
        self.links[slot] = Link { hash, next: self.buckets[bucket] };
        self.buckets[bucket] = slot;
    }

    fn split_one(&mut self) {
        let mut slot = std::mem::replace(&mut self.buckets[self.split], NONE);
        self.buckets.push(NONE);
        self.split += 1;
        while slot != NONE {
            let Link { hash, next } = self.links[slot];
            self.chain(slot, hash);
            slot = next;
        }
        if self.split > self.mask {
            self.mask = self.mask << 1 | 1;
            self.split = 0;
        }
    }
}

/// The hash of a key: the same in every run, since a pure crate has no randomness of its own. A client that
/// can choose keys can make them collide, and then has long chains of its own.
pub(crate) fn hash_of(key: &impl Hash) -> u64 {
    let mut mixer = Mixer(0);
    key.hash(&mut mixer);
    mixer.finish()
}

/// Folds words together and ends with the finalizer of SplitMix64 (as `hs_units::Prng`), which spreads
/// consecutive numbers, as window numbers are, over all bits.
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_inserted_and_not_removed_is_found_while_it_grows() {
        let mut table = Table::default();
        for slot in 0..10_000_u32 {
            table.insert(slot, hash_of(&u64::from(slot)));
            if slot % 3 == 0 {
                table.remove(slot);
            }
        }
        for slot in 0..10_000_u32 {
            let found = table.find(hash_of(&u64::from(slot)), |found| found == slot);
            assert_eq!(found, (slot % 3 != 0).then_some(slot));
        }
    }

    #[test]
    fn each_word_of_a_key_changes_its_hash() {
        let keys = (0..300_u64).flat_map(|first| (0..300_u64).map(move |second| (first, second)));
        let hashes: std::collections::BTreeSet<u64> = keys.map(|key| hash_of(&key)).collect();
        assert_eq!(hashes.len(), 90_000);
    }

    #[test]
    fn chains_stay_short() {
        let mut table = Table::default();
        (0..100_000_u32).for_each(|slot| table.insert(slot, hash_of(&u64::from(slot))));
        let length = |bucket: u32| {
            let first = table.buckets[bucket];
            std::iter::successors((first != NONE).then_some(first), |slot| {
                let next = table.links[*slot].next;
                (next != NONE).then_some(next)
            })
            .count()
        };
        let longest = (0..table.buckets.len()).map(length).max();
        assert!(longest <= Some(16), "{longest:?} slots in one bucket");
        assert_eq!(table.buckets.len(), 100_000, "and there are no more buckets than slots");
    }
}

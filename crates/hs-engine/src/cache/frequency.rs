//! How often something was asked for lately, in a few bits.

use super::segments::Segments;

/// Increments after which a word of counters is halved, so that all are once in as many as ten times the
/// entries (the paper's sample of ten times the cache).
const INCREMENTS_A_WORD: u64 = 20;
/// Counters have four bits.
const MAX_COUNT: u64 = 15;
/// Each bit but the highest of every counter.
const WITHOUT_HIGH_BITS: u64 = 0x7777_7777_7777_7777;
const ROWS: u32 = 4;
/// Words for the first entries; a power of two.
const FIRST_WORDS: u32 = 64;

/// A count-min sketch (Cormode, Muthukrishnan: "An improved data stream summary", J. Algorithms 2005) of four
/// rows with counters of four bits, eight for each entry, that forgets: TinyLFU's "reset" (Einziger,
/// Friedman, Manes: "TinyLFU: a highly efficient cache admission policy", ACM ToS 2017, section 3.3).
///
/// Different from the paper: counters are halved a word at a time, round about, and not all at once, which
/// would be a pause at a million entries. For the same reason it grows a word at a time, addressed as in
/// linear hashing: the new word is a copy of that which had its keys until then.
#[derive(Debug)]
pub(super) struct FrequencySketch {
    /// Words of 16 counters, four for each row.
    words: Segments<u64>,
    /// Words when the last doubling was complete, less one.
    mask: u32,
    increments: u64,
    /// The word that is halved next.
    hand: u32,
}

impl Default for FrequencySketch {
    fn default() -> Self {
        let mut words = Segments::default();
        (0..FIRST_WORDS).for_each(|_| words.push(0));
        Self { words, mask: FIRST_WORDS - 1, increments: 0, hand: 0 }
    }
}

impl FrequencySketch {
    /// Makes room for this many entries.
    pub(super) fn reserve(&mut self, entries: usize) {
        while (self.words.len() as usize) < entries / 2 {
            self.words.push(self.words[self.words.len() & self.mask]);
            if self.words.len() > self.mask << 1 | 1 {
                self.mask = self.mask << 1 | 1;
            }
        }
    }

    /// Counts a request.
    pub(super) fn increment(&mut self, hash: u64) {
        for row in 0..ROWS {
            let (word, shift) = self.place(hash, row);
            if self.words[word] >> shift & MAX_COUNT < MAX_COUNT {
                self.words[word] += 1 << shift;
            }
        }
        self.increments += 1;
        if self.increments.is_multiple_of(INCREMENTS_A_WORD) {
            self.words[self.hand] = self.words[self.hand] >> 1 & WITHOUT_HIGH_BITS;
            self.hand = (self.hand + 1) % self.words.len();
        }
    }

    /// How often it was asked for lately; too much where others share its counters.
    pub(super) fn estimate(&self, hash: u64) -> u64 {
        let count = |row| {
            let (word, shift) = self.place(hash, row);
            self.words[word] >> shift & MAX_COUNT
        };
        (0..ROWS).map(count).min().unwrap_or(0)
    }

    /// The word and the place in it of the counter in a row.
    fn place(&self, hash: u64, row: u32) -> (u32, u32) {
        // Multiplying by odd numbers and taking the high half gives each row a hash of its own.
        const ODD: [u64; ROWS as usize] =
            [0xc3a5_c85c_97cb_3127, 0xb492_b66f_be98_f273, 0x9ae1_6a3b_2f90_404f, 0xcbf2_9ce4_8422_2325];
        let mixed = hash.wrapping_mul(ODD[row as usize]) >> 24;
        let word = mixed as u32 & (self.mask << 1 | 1);
        let word = if word < self.words.len() { word } else { word & self.mask };
        (word, row * 16 + (mixed >> 38) as u32 * 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::table::hash_of;

    #[test]
    fn the_frequent_are_told_from_the_rare_also_after_growing() {
        let mut sketch = FrequencySketch::default();
        sketch.reserve(1000);
        for key in 0..1000_u64 {
            (0..if key < 100 { 8 } else { 1 }).for_each(|_| sketch.increment(hash_of(&key)));
        }
        for _ in 0..2 {
            let mean = |keys: std::ops::Range<u64>| {
                let count = keys.end - keys.start;
                keys.map(|key| sketch.estimate(hash_of(&key))).sum::<u64>() as f64 / count as f64
            };
            assert!(mean(0..100) > 5.0 && mean(100..1000) < 2.5, "{} {}", mean(0..100), mean(100..1000));
            sketch.reserve(8100);
        }
    }

    #[test]
    fn what_is_not_asked_for_any_more_is_forgotten() {
        let mut sketch = FrequencySketch::default();
        (0..15).for_each(|_| sketch.increment(hash_of(&0_u64)));
        assert_eq!(sketch.estimate(hash_of(&0_u64)), 15);
        // Four rounds of halving.
        (0..5 * 64 * INCREMENTS_A_WORD).for_each(|_| sketch.increment(hash_of(&1_u64)));
        assert!(sketch.estimate(hash_of(&0_u64)) <= 1);
        assert!(sketch.estimate(hash_of(&1_u64)) >= 14);
    }
}

//! A heap of clients by how much they were served, in which any client's place is known.

const ABSENT: u32 = u32::MAX;

/// Key and client in one number, so that a comparison is no branch: in a heap of clients that are alike every
/// branch would be guessed wrong half of the time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Row(u128);

impl Row {
    const fn new(key: u64, client: u32) -> Self {
        Self((key as u128) << 32 | client as u128)
    }

    const fn key(self) -> u64 {
        (self.0 >> 32) as u64
    }

    const fn client(self) -> u32 {
        self.0 as u32
    }
}

/// Client numbers, the one with the lowest key first; of equal keys the lower number.
#[derive(Debug, Default)]
pub(super) struct Heap {
    rows: Vec<Row>,
    /// Row of each client, by number.
    places: Vec<u32>,
}

impl Heap {
    /// The lowest key and whose it is.
    pub(super) fn first(&self) -> Option<(u64, u32)> {
        self.rows.first().map(|row| (row.key(), row.client()))
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Takes a client in, or gives it another key.
    pub(super) fn set(&mut self, client: u32, key: u64) {
        let number = client as usize;
        if number >= self.places.len() {
            self.places.resize(number + 1, ABSENT);
        }
        let new = Row::new(key, client);
        if self.places[number] == ABSENT {
            self.rows.push(new);
            self.rise(self.rows.len() - 1, new);
            return;
        }
        let row = self.places[number] as usize;
        if new < self.rows[row] {
            self.rise(row, new);
        } else {
            self.sink(row, new);
        }
    }

    /// Takes a client out, if it is in.
    pub(super) fn remove(&mut self, client: u32) {
        let Some(place) = self.places.get_mut(client as usize) else { return };
        let row = std::mem::replace(place, ABSENT) as usize;
        if row == ABSENT as usize {
            return;
        }
        let removed = self.rows.swap_remove(row);
        if let Some(moved) = self.rows.get(row).copied() {
            if moved < removed {
                self.rise(row, moved);
            } else {
                self.sink(row, moved);
            }
        }
    }

    /// Puts an entry into the place that is free at `row`, or above it.
    fn rise(&mut self, mut row: usize, new: Row) {
        while row > 0 {
            let parent = self.rows[(row - 1) / 2];
            if parent <= new {
                break;
            }
            self.put(row, parent);
            row = (row - 1) / 2;
        }
        self.put(row, new);
    }

    /// Puts an entry into the place that is free at `row`, or below it.
    fn sink(&mut self, mut row: usize, new: Row) {
        loop {
            let left = 2 * row + 1;
            let Some(mut lower) = self.rows.get(left).copied() else { break };
            let mut child = left;
            if let Some(right) = self.rows.get(left + 1) {
                child += usize::from(*right < lower);
                lower = self.rows[child];
            }
            if new <= lower {
                break;
            }
            self.put(row, lower);
            row = child;
        }
        self.put(row, new);
    }

    fn put(&mut self, row: usize, entry: Row) {
        self.rows[row] = entry;
        self.places[entry.client() as usize] = row as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hs_units::Prng;

    use super::*;

    #[test]
    fn the_first_is_the_lowest() {
        let seed = 11;
        let mut prng = Prng::new(seed);
        let mut heap = Heap::default();
        let mut model = BTreeMap::new();
        for step in 0..20_000 {
            let client = prng.below(40) as u32;
            if prng.below(3) == 0 {
                heap.remove(client);
                model.remove(&client);
            } else {
                let key = prng.below(100);
                heap.set(client, key);
                model.insert(client, key);
            }
            let lowest = model.iter().map(|(client, key)| (*key, *client)).min();
            assert_eq!(heap.first(), lowest, "seed {seed}, step {step}");
            assert_eq!(heap.len(), model.len());
        }
    }
}

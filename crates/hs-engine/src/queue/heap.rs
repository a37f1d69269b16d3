//! A heap of clients by how much they were served, in which any client's place is known.

const ABSENT: u32 = u32::MAX;

/// Client numbers, the one with the lowest key first; of equal keys the lower number.
#[derive(Debug, Default)]
pub(super) struct Heap {
    rows: Vec<(u64, u32)>,
    /// Row of each client, by number.
    places: Vec<u32>,
}

impl Heap {
    /// The lowest key and whose it is.
    pub(super) fn first(&self) -> Option<(u64, u32)> {
        self.rows.first().copied()
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
        if self.places[number] == ABSENT {
            self.places[number] = self.rows.len() as u32;
            self.rows.push((key, client));
            self.rise(self.rows.len() - 1);
            return;
        }
        let row = self.places[number] as usize;
        let old = std::mem::replace(&mut self.rows[row].0, key);
        if key < old {
            self.rise(row);
        } else {
            self.sink(row);
        }
    }

    /// Takes a client out, if it is in.
    pub(super) fn remove(&mut self, client: u32) {
        let Some(place) = self.places.get_mut(client as usize) else { return };
        let row = std::mem::replace(place, ABSENT) as usize;
        if row == ABSENT as usize {
            return;
        }
        self.rows.swap_remove(row);
        if row < self.rows.len() {
            self.places[self.rows[row].1 as usize] = row as u32;
            self.rise(row);
            self.sink(row);
        }
    }

    fn rise(&mut self, mut row: usize) {
        while row > 0 && self.rows[row] < self.rows[(row - 1) / 2] {
            self.swap(row, (row - 1) / 2);
            row = (row - 1) / 2;
        }
    }

    fn sink(&mut self, mut row: usize) {
        loop {
            let mut child = 2 * row + 1;
            if child >= self.rows.len() {
                return;
            }
            if child + 1 < self.rows.len() && self.rows[child + 1] < self.rows[child] {
                child += 1;
            }
            if self.rows[row] <= self.rows[child] {
                return;
            }
            self.swap(row, child);
            row = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.rows.swap(a, b);
        self.places[self.rows[a].1 as usize] = a as u32;
        self.places[self.rows[b].1 as usize] = b as u32;
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

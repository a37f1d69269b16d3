//! A set of blocks, kept as runs.

use std::collections::BTreeMap;

use hs_units::{BlockRange, Lba};

/// A set of blocks as disjoint runs that do not touch, so that its cost follows the number of
/// runs and not of blocks: a hostile profile that reads the whole disk a million times costs a
/// million steps, not a million disks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockSet {
    /// First block → first block after the run.
    runs: BTreeMap<u64, u64>,
    blocks: u64,
}

impl BlockSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { runs: BTreeMap::new(), blocks: 0 }
    }

    /// Number of blocks in the set.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether the set has no block.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Whether `lba` is in the set.
    #[must_use]
    pub fn contains(&self, lba: Lba) -> bool {
        self.runs.range(..=lba.0).next_back().is_some_and(|(_, &end)| lba.0 < end)
    }

    /// The maximal runs, ascending.
    pub fn runs(&self) -> impl Iterator<Item = BlockRange> + '_ {
        self.runs.iter().map(|(&start, &end)| BlockRange::new(Lba(start), end - start))
    }

    /// Adds `range` and hands every run of it that was not in the set to `added`, ascending.
    /// An empty range adds nothing. Amortised O(log runs).
    pub fn insert(&mut self, range: BlockRange, mut added: impl FnMut(BlockRange)) {
        if range.count == 0 {
            return;
        }
        let (mut start, mut end) = (range.start.0, range.end().0);
        let mut next_new = start;
        // A run that begins in front of the range and reaches it, or touches it, joins it.
        if let Some((&before, &before_end)) = self.runs.range(..start).next_back()
            && before_end >= start
        {
            self.runs.remove(&before);
            start = before;
            next_new = before_end;
            end = end.max(before_end);
        }
        let range_end = range.end().0;
        while let Some((&inner, &inner_end)) = self.runs.range(start..=range_end).next() {
            if inner > next_new {
                added(BlockRange::new(Lba(next_new), inner - next_new));
                self.blocks += inner - next_new;
            }
            self.runs.remove(&inner);
            next_new = next_new.max(inner_end);
            end = end.max(inner_end);
        }
        if range_end > next_new {
            added(BlockRange::new(Lba(next_new), range_end - next_new));
            self.blocks += range_end - next_new;
        }
        self.runs.insert(start, end);
    }

    /// Cuts `range` where it enters or leaves the set, and hands each piece, ascending, to `piece`
    /// with whether it is in the set.
    pub fn split(&self, range: BlockRange, mut piece: impl FnMut(BlockRange, bool)) {
        if range.count == 0 {
            return;
        }
        let range_end = range.end().0;
        let mut at = range.start.0;
        let first =
            self.runs.range(..=at).next_back().filter(|(_, end)| **end > at).map_or(at, |(start, _)| *start);
        for (&start, &end) in self.runs.range(first..range_end) {
            if start > at {
                piece(BlockRange::new(Lba(at), start - at), false);
                at = start;
            }
            let stop = end.min(range_end);
            piece(BlockRange::new(Lba(at), stop - at), true);
            at = stop;
        }
        if at < range_end {
            piece(BlockRange::new(Lba(at), range_end - at), false);
        }
    }

    /// The blocks in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (few, many) = if self.runs.len() <= other.runs.len() { (self, other) } else { (other, self) };
        let mut both = Self::new();
        for run in few.runs() {
            many.split(run, |piece, inside| {
                if inside {
                    both.insert(piece, |_| {});
                }
            });
        }
        both
    }
}

impl FromIterator<BlockRange> for BlockSet {
    fn from_iter<T: IntoIterator<Item = BlockRange>>(ranges: T) -> Self {
        let mut set = Self::new();
        ranges.into_iter().for_each(|range| set.insert(range, |_| {}));
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ranges() -> impl Strategy<Value = Vec<BlockRange>> {
        prop::collection::vec((0..200_u64, 0..20_u64), 0..40)
            .prop_map(|v| v.into_iter().map(|(start, count)| BlockRange::new(Lba(start), count)).collect())
    }

    proptest! {
        #[test]
        fn behaves_as_a_set_of_numbers(ranges in ranges(), probe in (0..220_u64, 0..40_u64)) {
            let mut model = BTreeSet::new();
            let mut set = BlockSet::new();
            for range in &ranges {
                let mut added = Vec::new();
                set.insert(*range, |run| added.extend(run.blocks()));
                let fresh: Vec<Lba> = range.blocks().filter(|lba| model.insert(*lba)).collect();
                prop_assert_eq!(added, fresh);
            }
            prop_assert_eq!(set.blocks(), model.len() as u64);
            let flat: Vec<Lba> = set.runs().flat_map(BlockRange::blocks).collect();
            prop_assert_eq!(&flat, &model.iter().copied().collect::<Vec<_>>());
            prop_assert!(set.runs().zip(set.runs().skip(1)).all(|(a, b)| a.end() < b.start), "runs touch");
            let probe = BlockRange::new(Lba(probe.0), probe.1);
            let mut pieces = Vec::new();
            set.split(probe, |run, inside| pieces.extend(run.blocks().map(|lba| (lba, inside))));
            let expected: Vec<_> = probe.blocks().map(|lba| (lba, model.contains(&lba))).collect();
            prop_assert_eq!(pieces, expected);
            prop_assert!((0..230).all(|n| set.contains(Lba(n)) == model.contains(&Lba(n))));
        }

        #[test]
        fn intersection_is_what_both_hold(a in ranges(), b in ranges()) {
            let (a, b): (BlockSet, BlockSet) = (a.into_iter().collect(), b.into_iter().collect());
            let both = a.intersection(&b);
            prop_assert!((0..230).map(Lba).all(|n| both.contains(n) == (a.contains(n) && b.contains(n))));
        }
    }
}

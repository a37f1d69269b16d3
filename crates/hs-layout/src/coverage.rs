//! How much recordings have in common.

use hs_trace::{BlockSet, Profile};

/// What several profiles have in common.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    /// Blocks that every profile has.
    pub common_blocks: u64,
    /// Blocks that any profile has.
    pub all_blocks: u64,
    /// For each profile, in the order given.
    pub profiles: Vec<Covered>,
}

/// How much of one profile the others have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Covered {
    /// Its blocks.
    pub blocks: u64,
    /// Of these, blocks that some other profile has. The rest a start like this one would have missed in an
    /// image that was optimized by the others alone (leave one out).
    pub in_others: u64,
}

/// Compares the profiles with each other, block by block.
#[must_use]
pub fn coverage(profiles: &[Profile]) -> Coverage {
    let sets: Vec<BlockSet> = profiles.iter().map(Profile::block_set).collect();
    let union = |skipped: Option<usize>| {
        let others = sets.iter().enumerate().filter(|(number, _)| Some(*number) != skipped);
        others.flat_map(|(_, set)| set.runs()).collect::<BlockSet>()
    };
    let common = sets.split_first().map_or_else(BlockSet::new, |(first, rest)| {
        rest.iter().fold(first.clone(), |common, set| common.intersection(set))
    });
    let covered = |(number, set): (usize, &BlockSet)| {
        let in_others = set.intersection(&union(Some(number))).blocks();
        Covered { blocks: set.blocks(), in_others }
    };
    Coverage {
        common_blocks: common.blocks(),
        all_blocks: union(None).blocks(),
        profiles: sets.iter().enumerate().map(covered).collect(),
    }
}

#[cfg(test)]
mod tests {
    use hs_trace::Read;
    use hs_units::{BlockRange, Lba, Nanos};

    use super::*;

    fn profile(runs: &[(u64, u64)]) -> Profile {
        let read = |&(start, count): &(u64, u64)| Read {
            at: Nanos::ZERO,
            blocks: BlockRange::new(Lba(start), count),
            cost: Nanos::ZERO,
        };
        Profile { disk_bytes: 1 << 30, reads: runs.iter().map(read).collect(), ..Profile::default() }
    }

    #[test]
    fn each_profile_is_compared_with_the_others_together() {
        let found =
            coverage(&[profile(&[(0, 10)]), profile(&[(5, 10)]), profile(&[(8, 1), (40, 2), (8, 1)])]);
        let covered = |blocks, in_others| Covered { blocks, in_others };
        assert_eq!(found.profiles, [covered(10, 5), covered(10, 5), covered(3, 1)]);
        assert_eq!((found.common_blocks, found.all_blocks), (1, 17));
    }

    #[test]
    fn one_profile_has_no_others() {
        let found = coverage(&[profile(&[(3, 4)])]);
        assert_eq!(found.profiles, [Covered { blocks: 4, in_others: 0 }]);
        assert_eq!((found.common_blocks, found.all_blocks), (4, 4));
        assert_eq!(coverage(&[]), Coverage::default());
    }
}

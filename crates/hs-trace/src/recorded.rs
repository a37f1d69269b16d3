//! What was recorded of single blocks.

use hs_units::{BlockRange, Lba};

use crate::{BlockDigest, Profile};

/// The digests of a profile's blocks by address. Its cost follows the runs of the reads and not the blocks.
#[derive(Clone, Debug)]
pub struct RecordedBlocks<'a> {
    /// Runs by address, each with the number of its first digest.
    runs: Vec<(BlockRange, usize)>,
    digests: &'a [BlockDigest],
}

impl<'a> RecordedBlocks<'a> {
    /// The blocks of a profile that obeys the rules of [`Profile::validate`].
    #[must_use]
    pub fn new(profile: &'a Profile) -> Self {
        let mut number = 0;
        let numbered = |run: BlockRange| {
            let first = number;
            number += run.count as usize;
            (run, first)
        };
        let mut runs: Vec<_> = profile.first_access_runs().into_iter().map(numbered).collect();
        runs.sort_unstable_by_key(|(run, _)| run.start);
        Self { runs, digests: &profile.digests }
    }

    /// What was read there.
    #[must_use]
    pub fn digest(&self, lba: Lba) -> Option<BlockDigest> {
        let after = self.runs.partition_point(|(run, _)| run.start <= lba);
        let (run, first) = self.runs[..after].last().filter(|(run, _)| run.contains(lba))?;
        self.digests.get(first + (lba.0 - run.start.0) as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hs_units::Nanos;
    use proptest::prelude::*;

    use super::*;
    use crate::Read;

    fn profile(runs: &[(u64, u64)]) -> Profile {
        let read = |&(start, count): &(u64, u64)| {
            let blocks = BlockRange::new(Lba(start), count);
            Read { at: Nanos::ZERO, blocks, cost: Nanos::ZERO }
        };
        let mut profile = Profile { reads: runs.iter().map(read).collect(), ..Profile::default() };
        let digest = |lba: Lba| BlockDigest::of(&lba.0.to_le_bytes());
        profile.digests = profile.first_access().into_iter().map(digest).collect();
        profile
    }

    proptest! {
        #[test]
        fn each_block_has_the_digest_that_was_read(runs in prop::collection::vec((0..200_u64, 1..20_u64), 0..40)) {
            let profile = profile(&runs);
            let model: BTreeMap<Lba, BlockDigest> =
                profile.first_access().into_iter().zip(profile.digests.iter().copied()).collect();
            let recorded = RecordedBlocks::new(&profile);
            for lba in (0..230).map(Lba) {
                prop_assert_eq!(recorded.digest(lba), model.get(&lba).copied());
            }
        }
    }

    #[test]
    fn reads_of_the_same_blocks_cost_nothing_more() {
        let profile = profile(&[(0, 1000); 100]);
        assert_eq!(RecordedBlocks::new(&profile).runs, [(BlockRange::new(Lba(0), 1000), 0)]);
    }
}

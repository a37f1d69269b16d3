//! In which order the hot region holds the blocks of several profiles.

use hs_trace::{BlockSet, Profile, Read};
use hs_units::{BlockRange, Nanos};

/// Blocks that are needed together, in the order in which they are needed; no block is in two segments.
pub(crate) type Segment = Vec<BlockRange>;

/// Merges recordings of one start into one order. Each block comes as early as any recording needs it,
/// measured by how much that recording had read before. So a block that only some runs read lies where those
/// runs read it, and the order of the profiles does not matter.
pub(crate) fn merged(profiles: &[Profile]) -> Segment {
    let mut runs = Vec::new();
    for profile in profiles {
        let mut blocks_before = 0;
        for run in profile.first_access_runs() {
            runs.push((blocks_before, run.start, run));
            blocks_before += run.count;
        }
    }
    runs.sort_unstable_by_key(|(blocks_before, start, run)| (*blocks_before, *start, run.count));
    let (mut order, mut placed) = (Segment::new(), BlockSet::new());
    for (_, _, run) in runs {
        placed.insert(run, |piece| order.push(piece));
    }
    order
}

/// The blocks common to all profiles in the first profile's order of first access; then, for each profile,
/// those of its blocks that no segment has yet, in its own order. A start of any of the recorded kinds then
/// finds its common part in one run in front.
pub(crate) fn variants(profiles: &[Profile]) -> Vec<Segment> {
    let Some((first, others)) = profiles.split_first() else { return Vec::new() };
    let common =
        others.iter().fold(first.block_set(), |common, other| common.intersection(&other.block_set()));
    let mut segments = Vec::with_capacity(profiles.len() + 1);
    let mut leading = Segment::new();
    for run in first.first_access_runs() {
        common.split(run, |piece, is_common| {
            if is_common {
                leading.push(piece);
            }
        });
    }
    segments.push(leading);
    let mut placed = common;
    for profile in profiles {
        segments.push(own_blocks(profile, &mut placed));
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}

/// The first profile and the merged others, as two variants.
pub(crate) fn beside_first(profiles: &[Profile]) -> Vec<Segment> {
    let Some((first, others)) = profiles.split_first() else { return Vec::new() };
    let reads = merged(others).into_iter().map(|blocks| Read { at: Nanos::ZERO, blocks, cost: Nanos::ZERO });
    let merged = Profile { reads: reads.collect(), ..Profile::default() };
    variants(&[first.clone(), merged])
}

/// The profile's blocks that are not in `placed`, in order of first access; adds them to it.
fn own_blocks(profile: &Profile, placed: &mut BlockSet) -> Segment {
    let mut own = Segment::new();
    for read in &profile.reads {
        placed.insert(read.blocks, |run| own.push(run));
    }
    own
}

//! By when a start needs each chunk.

use std::collections::BTreeMap;

use hs_trace::{BlockSet, Profile};
use hs_units::{BlockRange, Nanos};

use crate::plan::PlannedChunk;

/// Sets by when each chunk is needed: the least of the think times after which any recording first read a
/// block of it. Think times do not contain the program's waits for storage.
pub(crate) fn fill_in(profiles: &[Profile], chunks: &mut [PlannedChunk]) {
    let times: Vec<BTreeMap<u64, (BlockRange, Nanos)>> = profiles.iter().map(first_needed).collect();
    for chunk in chunks {
        let of_extent = |extent: &BlockRange| times.iter().filter_map(|times| least(times, *extent)).min();
        chunk.needed = chunk.extents.iter().filter_map(of_extent).min().unwrap_or_default();
    }
}

/// When each run of blocks is read first, by its start.
fn first_needed(profile: &Profile) -> BTreeMap<u64, (BlockRange, Nanos)> {
    let (mut seen, mut times) = (BlockSet::new(), BTreeMap::new());
    for (read, think) in profile.reads.iter().zip(profile.think_times()) {
        seen.insert(read.blocks, |run| {
            times.insert(run.start.0, (run, think));
        });
    }
    times
}

/// When any block of an extent is read first.
fn least(times: &BTreeMap<u64, (BlockRange, Nanos)>, extent: BlockRange) -> Option<Nanos> {
    let before = times.range(..extent.start.0).next_back();
    let before = before.filter(|(_, (run, _))| run.end() > extent.start);
    let within = times.range(extent.start.0..extent.end().0);
    before.into_iter().chain(within).map(|(_, (_, think))| *think).min()
}

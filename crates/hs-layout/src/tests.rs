//! The rules of a plan, against definitions block by block.

use std::collections::{BTreeMap, BTreeSet};

use hs_trace::{FileRun, FileUse, Profile, Read};
use hs_units::{BlockRange, Digest, Lba, Nanos};
use proptest::prelude::*;

use crate::{Combine, LayoutError, LayoutOptions, LayoutPlan, LayoutStats, PlannedHint, plan};

fn run(start: u64, count: u64) -> BlockRange {
    BlockRange::new(Lba(start), count)
}

/// A profile of these reads; the layout uses neither digests nor times.
fn profile(runs: &[(u64, u64)]) -> Profile {
    let reads = runs.iter().map(|&(start, count)| Read {
        at: Nanos::ZERO,
        blocks: run(start, count),
        cost: Nanos::ZERO,
    });
    Profile { disk_bytes: 1 << 30, reads: reads.collect(), ..Profile::default() }
}

fn file(inode: u64, runs: &[(u64, u64, u64)]) -> FileUse {
    let runs = runs.iter().map(|&(page, start, count)| FileRun { page, blocks: run(start, count) });
    FileUse { path: format!("/{inode}"), inode, runs: runs.collect() }
}

fn options(first_blocks: u64, max_blocks: u64) -> LayoutOptions {
    LayoutOptions {
        first_chunk_bytes: first_blocks * 4096,
        max_chunk_bytes: max_blocks * 4096,
        metadata_lead_bytes: 0,
        combine: Combine::Variants,
    }
}

fn extents(plan: &LayoutPlan) -> Vec<Vec<(u64, u64)>> {
    let chunk = |extents: &Vec<BlockRange>| extents.iter().map(|e| (e.start.0, e.count)).collect();
    plan.chunks.iter().map(|c| chunk(&c.extents)).collect()
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let reads = prop::collection::vec((0..300_u64, 1..30_u64), 0..40);
    // A page is its block plus a file's constant, so that files of several profiles agree as real ones do.
    let files = prop::collection::vec((1..5_u64, 0..20_u64), 0..4);
    (reads, files).prop_map(|(reads, files)| {
        let use_of = |(inode, count)| file(inode, &[(inode * 3, inode * 60, count + 1)]);
        Profile { files: files.into_iter().map(use_of).collect(), ..profile(&reads) }
    })
}

/// The order of [`crate::order`], block by block, in segments.
fn naive_segments(profiles: &[Profile]) -> Vec<Vec<Lba>> {
    let sets: Vec<BTreeSet<Lba>> = profiles.iter().map(|p| p.first_access().into_iter().collect()).collect();
    let everywhere = |lba: &Lba| sets.iter().all(|set| set.contains(lba));
    let mut placed = BTreeSet::new();
    let mut segments = Vec::new();
    let common = profiles.first().map(Profile::first_access).unwrap_or_default();
    segments.push(common.into_iter().filter(|lba| everywhere(lba) && placed.insert(*lba)).collect());
    for profile in profiles {
        segments.push(profile.first_access().into_iter().filter(|lba| placed.insert(*lba)).collect());
    }
    segments
}

/// The chunks of that order: each as full as allowed, none across segments.
fn naive_chunks(segments: &[Vec<Lba>], first: usize, max: usize) -> Vec<BTreeSet<Lba>> {
    let mut chunks: Vec<BTreeSet<Lba>> = Vec::new();
    let mut capacity = first;
    for segment in segments {
        let mut rest = segment.as_slice();
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(rest.len().min(capacity));
            if chunk.len() == capacity {
                capacity = (capacity * 2).min(max);
            }
            chunks.push(chunk.iter().copied().collect());
            rest = after;
        }
    }
    chunks
}

proptest! {
    #[test]
    fn chunks_follow_the_definition(
        profiles in prop::collection::vec(any_profile(), 0..4),
        first in 1..10_usize,
        more in 0..60_usize,
    ) {
        let plan = plan(&profiles, &options(first as u64, (first + more) as u64)).expect("one disk");
        let chunks: Vec<Vec<Lba>> =
            plan.chunks.iter().map(|c| c.extents.iter().flat_map(|e| e.blocks()).collect()).collect();
        let expected: Vec<Vec<Lba>> = naive_chunks(&naive_segments(&profiles), first, first + more)
            .into_iter()
            .map(|chunk| chunk.into_iter().collect())
            .collect();
        prop_assert_eq!(&chunks, &expected);
        let recorded: BTreeSet<Lba> = profiles.iter().flat_map(Profile::first_access).collect();
        let mut planned: Vec<Lba> = chunks.concat();
        prop_assert_eq!(plan.blocks, planned.len() as u64);
        planned.sort_unstable();
        prop_assert_eq!(planned, recorded.into_iter().collect::<Vec<_>>());
        let separate = |c: &crate::PlannedChunk| c.extents.windows(2).all(|e| e[0].end() < e[1].start);
        prop_assert!(plan.chunks.iter().all(separate), "extents of a chunk touch");
    }

    #[test]
    fn hints_name_every_known_block_once_in_chunk_order(profiles in prop::collection::vec(any_profile(), 1..4)) {
        let plan = plan(&profiles, &options(4, 16)).expect("one disk");
        let mut pages = BTreeMap::new();
        for file in profiles.iter().flat_map(|p| &p.files) {
            for run in &file.runs {
                for (index, lba) in run.blocks.blocks().enumerate() {
                    pages.entry(lba).or_insert((file.inode, run.page + index as u64));
                }
            }
        }
        let knowing = profiles.iter().filter(|p| !p.files.is_empty());
        let known: BTreeSet<Lba> = knowing.flat_map(Profile::first_access).collect();
        let name = |lba: Lba| match pages.get(&lba) {
            Some(page) => Some(*page),
            None => known.contains(&lba).then_some((0, lba.0)),
        };
        let order = plan.chunks.iter().flat_map(|c| &c.extents).flat_map(|e| e.blocks());
        let expected: Vec<_> = order.filter_map(|lba| name(lba).map(|n| (lba, n))).collect();
        let each = |h: &PlannedHint| {
            let (inode, page) = (h.inode, h.page);
            h.blocks.blocks().enumerate().map(move |(i, lba)| (lba, (inode, page + i as u64))).collect::<Vec<_>>()
        };
        prop_assert_eq!(plan.hints.iter().flat_map(each).collect::<Vec<_>>(), expected);
        // As few as possible: no two hints that could be one lie in one extent.
        let extents: Vec<_> = plan.chunks.iter().flat_map(|c| &c.extents).collect();
        for pair in plan.hints.windows(2) {
            let (a, b) = (&pair[0], &pair[1]);
            let continues = a.inode == b.inode && a.blocks.end() == b.blocks.start && a.page + a.blocks.count == b.page;
            let together = extents.iter().any(|e| e.contains(a.blocks.start) && e.contains(b.blocks.start));
            prop_assert!(!(continues && together), "{:?} and {:?}", a, b);
        }
    }
}

proptest! {
    #[test]
    fn merging_has_every_block_once_whatever_the_order_of_the_profiles(
        profiles in prop::collection::vec(any_profile(), 1..4),
        rotation in 0..4_usize,
    ) {
        let options = LayoutOptions { combine: Combine::Runs, ..options(1, 1) };
        let order = |profiles: &[Profile]| -> Vec<Lba> {
            let plan = plan(profiles, &options).expect("one disk");
            plan.chunks.iter().flat_map(|chunk| &chunk.extents).flat_map(|extent| extent.blocks()).collect()
        };
        let merged = order(&profiles);
        let mut sorted = merged.clone();
        sorted.sort_unstable();
        let recorded: BTreeSet<Lba> = profiles.iter().flat_map(Profile::first_access).collect();
        prop_assert_eq!(sorted, recorded.into_iter().collect::<Vec<_>>());
        let mut rotated = profiles.clone();
        rotated.rotate_left(rotation % profiles.len());
        prop_assert_eq!(order(&rotated), merged);
        // A profile merged with itself is itself.
        let first = &profiles[0];
        prop_assert_eq!(order(&[first.clone(), first.clone()]), first.first_access());
    }
}

#[test]
fn merging_puts_a_block_where_its_own_run_read_it() {
    let profiles = [profile(&[(0, 4), (10, 4), (20, 4)]), profile(&[(0, 4), (50, 1), (10, 4), (20, 4)])];
    let options = LayoutOptions { combine: Combine::Runs, ..options(1, 1) };
    let plan = plan(&profiles, &options).expect("one disk");
    let order: Vec<u64> = extents(&plan).concat().iter().map(|(start, _)| *start).collect();
    assert_eq!(order, [0, 1, 2, 3, 10, 11, 12, 13, 50, 20, 21, 22, 23]);
}

#[test]
fn chunks_grow_and_sort_their_blocks() {
    // First access: 100..103, then 50, then 103..120.
    let profiles = [profile(&[(100, 3), (50, 1), (100, 20)])];
    let plan = plan(&profiles, &options(2, 8)).expect("one disk");
    let expected = [vec![(100, 2)], vec![(50, 1), (102, 3)], vec![(105, 8)], vec![(113, 7)]];
    assert_eq!(extents(&plan), expected);
    assert_eq!(plan.hints, []);
    let stats = LayoutStats { hot_bytes: 21 * 4096, extents: 5, chunks: 4, hints: 0 };
    assert_eq!(plan.stats(), stats);
}

#[test]
fn common_blocks_come_first_and_variants_after() {
    let profiles = [profile(&[(9, 1), (1, 4)]), profile(&[(20, 2), (3, 2), (9, 1)])];
    let plan = plan(&profiles, &options(8, 8)).expect("one disk");
    assert_eq!(extents(&plan), [vec![(3, 2), (9, 1)], vec![(1, 2)], vec![(20, 2)]]);
}

#[test]
fn hints_say_file_page_or_metadata() {
    let mut knowing = profile(&[(10, 8), (30, 1)]);
    knowing.files = vec![file(7, &[(5, 12, 3), (8, 15, 1), (0, 16, 1)])];
    let unknowing = profile(&[(40, 1)]);
    let plan = plan(&[knowing, unknowing], &options(64, 64)).expect("one disk");
    let hint = |start, count, inode, page| PlannedHint { blocks: run(start, count), inode, page };
    let expected =
        [hint(10, 2, 0, 10), hint(12, 4, 7, 5), hint(16, 1, 7, 0), hint(17, 1, 0, 17), hint(30, 1, 0, 30)];
    assert_eq!(plan.hints, expected, "block 40 was recorded by a profile that knows no files");
}

#[test]
fn nothing_recorded_plans_nothing() {
    let options = LayoutOptions::default();
    assert_eq!(plan(&[], &options), Ok(LayoutPlan::default()));
    assert_eq!(plan(&[profile(&[]), profile(&[])], &options), Ok(LayoutPlan::default()));
}

#[test]
fn profiles_of_two_disks_are_refused() {
    let found = Digest([7; 32]);
    let other = Profile { disk_digest: found, ..Profile::default() };
    let refused = LayoutError::DifferentDisks { index: 1, expected: Digest::default(), found };
    assert_eq!(plan(&[Profile::default(), other], &LayoutOptions::default()), Err(refused.clone()));
    let text = refused.to_string();
    assert!(text.contains(&found.to_string()) && text.contains(&Digest::default().to_string()), "{text}");
}

#[test]
fn chunk_sizes_that_cannot_be_are_refused() {
    for (first_chunk_bytes, max_chunk_bytes) in [(0, 4096), (4095, 8192), (8192, 4096), (4096, 5000), (0, 0)]
    {
        let options = LayoutOptions { first_chunk_bytes, max_chunk_bytes, ..LayoutOptions::default() };
        let refused = LayoutError::ChunkSizes { first_chunk_bytes, max_chunk_bytes };
        assert_eq!(plan(&[], &options), Err(refused));
    }
}

#[test]
fn a_chunk_is_needed_when_a_recording_first_reads_a_block_of_it_without_its_waits() {
    let millis = Nanos::from_millis;
    let read = |at, start, cost| Read { at: millis(at), blocks: run(start, 4), cost: millis(cost) };
    // The first read waits for 50 ms, which is not the program's own time.
    let recorded =
        Profile { reads: vec![read(10, 100, 50), read(80, 0, 0), read(90, 100, 0)], ..profile(&[]) };
    let plan = plan(&[recorded], &options(4, 4)).expect("a plan");
    let needed: Vec<Nanos> = plan.chunks.iter().map(|chunk| chunk.needed).collect();
    assert_eq!(needed, [millis(10), millis(30)]);
}

/// One read of ten blocks becomes chunks of four: each is needed when the read was made, those that begin
/// inside it as well.
#[test]
fn chunks_that_are_cut_inside_a_read_are_needed_when_it_was_made() {
    let (then, free) = (Nanos::from_millis(5_000), Nanos::ZERO);
    let reads = vec![
        Read { at: Nanos::ZERO, blocks: run(100, 4), cost: free },
        Read { at: then, blocks: run(0, 10), cost: free },
    ];
    let recorded = Profile { reads, ..profile(&[]) };
    let plan = plan(&[recorded], &options(4, 4)).expect("one disk");
    let needed: Vec<_> = plan.chunks.iter().map(|chunk| (chunk.extents[0].start.0, chunk.needed)).collect();
    assert_eq!(needed, [(100, Nanos::ZERO), (0, then), (4, then), (8, then)]);
}

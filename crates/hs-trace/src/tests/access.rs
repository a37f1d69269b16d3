//! What is computed from the reads, against plain models.

use std::collections::{BTreeSet, HashSet};

use hs_units::{Digest, Lba, Nanos};
use proptest::prelude::*;

use super::{any_reads, read, run, small};
use crate::{BlockDigest, FileRun, FileUse, Profile, Read, TraceError};

fn with_reads(reads: Vec<Read>) -> Profile {
    Profile { reads, ..Profile::default() }
}

/// The definition, nanosecond by nanosecond.
fn naive_think_times(reads: &[Read]) -> Vec<Nanos> {
    let busy = |seen: &[Read], t: u64| seen.iter().any(|r| r.at.0 <= t && t < r.at.0 + r.cost.0);
    (0..reads.len())
        .map(|i| Nanos((0..reads[i].at.0).filter(|t| !busy(&reads[..i], *t)).count() as u64))
        .collect()
}

proptest! {
    #[test]
    fn first_access_and_extents_follow_their_definitions(reads in any_reads()) {
        let mut seen = HashSet::new();
        let order: Vec<Lba> =
            reads.iter().flat_map(|r| r.blocks.blocks()).filter(|lba| seen.insert(*lba)).collect();
        let sorted: Vec<Lba> = order.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let profile = with_reads(reads);
        prop_assert_eq!(profile.distinct_blocks(), order.len() as u64);
        prop_assert_eq!(profile.first_access(), order);
        let extents = profile.extents();
        prop_assert!(extents.windows(2).all(|pair| pair[0].end() < pair[1].start));
        prop_assert_eq!(extents.into_iter().flat_map(|e| e.blocks()).collect::<Vec<_>>(), sorted);
    }

    #[test]
    fn think_times_follow_their_definition(reads in any_reads()) {
        prop_assert_eq!(with_reads(reads.clone()).think_times(), naive_think_times(&reads));
    }
}

#[test]
fn think_time_leaves_out_waits_but_not_work() {
    // Work 10, wait 100, work 5, two reads at once of which the longer one counts, work 7.
    let reads = vec![
        read(10, run(0, 1), 100),
        read(115, run(1, 1), 50),
        read(120, run(2, 1), 60),
        read(187, run(3, 1), 1),
    ];
    let times: Vec<u64> = with_reads(reads).think_times().into_iter().map(|t| t.0).collect();
    assert_eq!(times, [10, 15, 15, 22]);
}

#[test]
fn own_time_ends_when_the_program_is_ready() {
    let reads = vec![read(10, run(0, 1), 100), read(115, run(1, 1), 50), read(300, run(2, 1), 1)];
    let of = |ready: Option<u64>| Profile { ready: ready.map(Nanos), ..with_reads(reads.clone()) }.own_time();
    // Work 10, wait 100, work 5, wait 50, work until ready.
    assert_eq!(of(Some(200)), Nanos(50));
    assert_eq!(of(Some(10)), Nanos(10), "a read at the end is none of the start");
    assert_eq!(of(Some(0)), Nanos(0));
}

#[test]
fn files_come_in_the_order_of_their_first_reads_without_those_that_were_not_read() {
    let file = |path: &str, first: u64| FileUse {
        path: path.to_owned(),
        inode: first,
        runs: vec![FileRun { page: 0, blocks: run(first, 4) }],
    };
    let files = vec![file("/a", 10), file("/b", 20), file("/c", 14), file("/d", 30)];
    let reads =
        vec![read(0, run(0, 1), 1), read(1, run(21, 1), 1), read(2, run(12, 4), 1), read(3, run(20, 4), 1)];
    let profile = Profile { files, ..with_reads(reads) };
    assert_eq!(profile.files_in_first_access(), ["/b", "/a", "/c"]);
}

#[test]
fn a_profile_knows_its_disk() {
    let profile = small();
    assert_eq!(profile.check_disk(profile.disk_digest, profile.disk_bytes), Ok(()));
    let other = Digest([9; 32]);
    let wrong = TraceError::WrongDisk { expected: profile.disk_digest, found: other };
    assert_eq!(profile.check_disk(other, profile.disk_bytes), Err(wrong));
    let wrong = TraceError::WrongDiskSize { expected: profile.disk_bytes, found: 1 };
    assert_eq!(profile.check_disk(profile.disk_digest, 1), Err(wrong));
}

#[test]
fn a_short_last_block_counts_as_filled_with_zeros() {
    let mut whole = [0; 4096];
    whole[..3].copy_from_slice(b"end");
    assert_eq!(BlockDigest::of(b"end"), BlockDigest::of(&whole));
    assert_eq!(BlockDigest::of(&whole).0, blake3::hash(&whole).as_bytes()[..16]);
}

#[test]
fn the_table_has_a_row_for_each_read() {
    let mut table = Vec::new();
    small().csv(&mut table).expect("writing to memory");
    let expected = "at_s,offset,bytes,cost_s,file,page\n\
        0.000001000,0,4096,0.010000000,,\n\
        0.010500000,2048000,131072,0.011000000,\"/usr/lib/a, \"\"b\"\".so\",8\n\
        0.010500000,2043904,8192,0.000000009,\"/usr/lib/a, \"\"b\"\".so\",2\n\
        0.030000000,4091904,4096,0.000000000,,\n";
    assert_eq!(String::from_utf8(table).as_deref(), Ok(expected));
}

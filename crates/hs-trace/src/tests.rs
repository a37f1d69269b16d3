//! Profiles that tests share.

mod access;
mod format;
mod hostile;

use hs_units::{BlockRange, Digest, Lba, Nanos};
use proptest::prelude::*;

use crate::{BlockDigest, FileRun, FileUse, Profile, Read, ReadAhead};

fn run(start: u64, count: u64) -> BlockRange {
    BlockRange::new(Lba(start), count)
}

fn read(at: u64, blocks: BlockRange, cost: u64) -> Read {
    Read { at: Nanos(at), blocks, cost: Nanos(cost) }
}

/// The profile of the golden file: small, with every field in use.
fn small() -> Profile {
    Profile {
        disk_digest: Digest(core::array::from_fn(|i| i as u8)),
        disk_bytes: 1000 * 4096 - 512,
        command: "python3 -c 'import numpy'".to_owned(),
        medium: "flat-10ms-25mbs".to_owned(),
        read_ahead: ReadAhead::Kernel { kib: 128 },
        ready: Some(Nanos(90_000_000)),
        ended: Nanos(100_000_000),
        reads: vec![
            read(1_000, run(0, 1), 10_000_000),
            read(10_500_000, run(500, 32), 11_000_000),
            read(10_500_000, run(499, 2), 9),
            read(30_000_000, run(999, 1), 0),
        ],
        digests: (0..35).map(|n| BlockDigest::of(&[n])).collect(),
        files: vec![
            FileUse {
                path: "/usr/lib/a, \"b\".so".to_owned(),
                inode: 4711,
                runs: vec![
                    FileRun { page: 8, blocks: run(500, 30) },
                    FileRun { page: 2, blocks: run(499, 1) },
                ],
            },
            FileUse { path: "/é".to_owned(), inode: u64::MAX, runs: Vec::new() },
        ],
    }
}

fn any_reads() -> impl Strategy<Value = Vec<Read>> {
    prop::collection::vec((0..500_u64, 0..900_u64, 1..40_u64, 0..800_u64), 0..60).prop_map(|rows| {
        let mut reads: Vec<Read> =
            rows.into_iter().map(|(at, start, count, cost)| read(at, run(start, count), cost)).collect();
        reads.sort_by_key(|read| read.at);
        reads
    })
}

fn any_file() -> impl Strategy<Value = FileUse> {
    let runs = prop::collection::vec((0..1_u64 << 40, 0..900_u64, 1..40_u64), 0..5);
    ("(/[a-zé, ]{1,8}){1,3}", 1_u64.., runs).prop_map(|(path, inode, runs)| FileUse {
        path,
        inode,
        runs: runs
            .into_iter()
            .map(|(page, start, count)| FileRun { page, blocks: run(start, count) })
            .collect(),
    })
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let read_ahead =
        prop_oneof![Just(ReadAhead::Off), any::<u32>().prop_map(|kib| ReadAhead::Kernel { kib })];
    let times = (prop::option::of(0..1_u64 << 50), 0..1_u64 << 50);
    let names = (any::<[u8; 32]>(), any::<u64>(), ".{0,40}", ".{0,20}");
    (names, read_ahead, times, any_reads(), prop::collection::vec(any_file(), 0..8)).prop_map(
        |((disk, seed, command, medium), read_ahead, (ready, rest), reads, files)| {
            let mut prng = hs_units::Prng::new(seed);
            let mut profile = Profile {
                disk_digest: Digest(disk),
                disk_bytes: 4096 * 940 - seed % 4096,
                command,
                medium,
                read_ahead,
                ready: ready.map(Nanos),
                ended: Nanos(ready.unwrap_or(0) + rest),
                reads,
                digests: Vec::new(),
                files,
            };
            profile.digests.resize_with(profile.distinct_blocks() as usize, || {
                let mut digest = [0; 16];
                prng.fill(&mut digest);
                BlockDigest(digest)
            });
            profile
        },
    )
}

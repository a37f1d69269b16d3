//! Writes a profile of as many random reads as one likes, for benchmarks and tests of the page:
//! `large_profile READS FILE`.

use hs_trace::{BlockDigest, FileRun, FileUse, Profile, Read};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, Nanos, Prng};

/// Blocks of the disk: 64 GiB.
const DISK_BLOCKS: u64 = 1 << 24;
/// Blocks of each file.
const FILE_BLOCKS: u64 = 1 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (reads, file) = words.next().zip(words.next()).ok_or("usage: large_profile READS FILE")?;
    let mut random = Prng::new(1);
    let mut at = 0;
    let mut read = |_| {
        at += random.below(100_000);
        let first = random.below(DISK_BLOCKS - 32);
        let blocks = BlockRange::new(Lba(first), 1 + random.below(32));
        Read { at: Nanos(at), blocks, cost: Nanos(50_000 + random.below(20_000_000)) }
    };
    let reads: Vec<Read> = (0..reads.parse::<u64>()?).map(&mut read).collect();
    let file_of = |number: u64| FileUse {
        path: format!("/usr/lib/part {}/file {number}", number / 100),
        inode: number + 1,
        runs: vec![FileRun { page: 0, blocks: BlockRange::new(Lba(number * FILE_BLOCKS), FILE_BLOCKS) }],
    };
    let mut profile = Profile {
        disk_bytes: DISK_BLOCKS * BLOCK_BYTES,
        command: "a start with many reads".to_owned(),
        medium: "none".to_owned(),
        ready: reads.last().map(|read| read.at),
        ended: reads.last().map_or(Nanos::ZERO, |read| read.at + read.cost),
        reads,
        files: (0..DISK_BLOCKS / FILE_BLOCKS).map(file_of).collect(),
        ..Profile::default()
    };
    // A profile names 4 million distinct blocks at most: reads beyond that are of one block.
    if profile.distinct_blocks() > hs_trace::limits::MAX_DIGESTS {
        profile.reads.iter_mut().for_each(|read| read.blocks.count = 1);
    }
    profile.digests = vec![BlockDigest::default(); usize::try_from(profile.distinct_blocks())?];
    std::fs::write(file, profile.encode()?)?;
    Ok(())
}

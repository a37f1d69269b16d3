//! What the layers of a live CD read, and how much would be enough (Kitagawa and others 2005, table 3).
//!
//! The file system asks for 22,057 blocks of 4 KiB (without inodes, which the paper did not count); they lie
//! in 2,175 blocks of cloop, which are referred to 3,681 times. Packed, they would fill 1,379. The engine's
//! prefetch brings what each case needs, in order, on the outer tracks; a cache under LRU stands for caches
//! that are not doubled.

use hs_device::Medium;
use hs_lab::{Cell, Claim, Figure, Report};
use hs_units::{Nanos, Prng};
use lru::LruCache;

use crate::knoppix::queue;
use crate::lru_of;
use crate::replay::{Region, prefetched};

/// Blocks that the file system asks for, and bytes of one.
const ASKED: u64 = 22_057;
const BLOCK: u64 = 4 << 10;

/// Blocks of cloop that hold them, references to these, and decompressed bytes of one.
const UNIQUE: u64 = 2_175;
const REFERENCES: u64 = 3_681;
const CLOOP_BLOCK: u64 = 64 << 10;

/// Bytes that the CD's file system read for the references.
const COMPRESSED: u64 = 68_054 << 10;

/// The blocks of the file system that are in use, one bit each: as many as the paper counted, spread evenly.
fn used(seed: u64) -> Vec<u64> {
    let mut prng = Prng::new(seed);
    let slots = CLOOP_BLOCK / BLOCK;
    // Each block of cloop has at least one, or it would not be read.
    let mut masks: Vec<u64> = (0..UNIQUE).map(|_| 1 << prng.below(slots)).collect();
    let mut left = ASKED - UNIQUE;
    while left > 0 {
        let (block, slot) = (prng.below(UNIQUE) as usize, prng.below(slots));
        if masks[block] >> slot & 1 == 0 {
            masks[block] |= 1 << slot;
            left -= 1;
        }
    }
    masks
}

/// Blocks of cloop that hold the used blocks when these are moved together.
fn packed(masks: &[u64]) -> u64 {
    let blocks: u64 = masks.iter().map(|mask| u64::from(mask.count_ones())).sum();
    (blocks * BLOCK).div_ceil(CLOOP_BLOCK)
}

/// References that a cache of `bytes` lets through: each block once, and others again at random until all are
/// made.
fn through(seed: u64, bytes: u64) -> u64 {
    let mut prng = Prng::new(seed);
    let mut cache: LruCache<u64, ()> = lru_of(bytes, CLOOP_BLOCK);
    let (mut fresh, mut missed) = (0, 0);
    for reference in 0..REFERENCES {
        // As many new ones before this reference as their share.
        let new = fresh < UNIQUE && fresh * REFERENCES <= reference * UNIQUE;
        let block = if new { fresh } else { prng.below(fresh) };
        fresh += u64::from(new);
        if cache.get(&block).is_none() {
            missed += 1;
            cache.put(block, ());
        }
    }
    missed
}

/// Seconds until this many blocks have come.
fn read(blocks: u64) -> f64 {
    let region = Region { chunks: blocks as u32, chunk_bytes: COMPRESSED / REFERENCES, think: Nanos::ZERO };
    let bytes = u64::from(region.chunks) * region.chunk_bytes;
    let drive = Medium::Cd24xCav.device(bytes).expect("fits").expect("modelled");
    prefetched(queue(), drive, region).delivered
}

pub(crate) fn run(seed: u64) -> Report {
    let masks = used(seed);
    let packed = packed(&masks);
    // The driver keeps one block; all of them are 139 MB.
    let (all, cached) = (through(seed, CLOOP_BLOCK), through(seed, UNIQUE * CLOOP_BLOCK));
    let cases = [("all references", all), ("each block once", cached), ("packed", packed)];
    let times = cases.map(|(_, blocks)| read(blocks));
    let rows = cases.iter().zip(times).map(|((what, blocks), seconds)| {
        let kib = blocks * CLOOP_BLOCK / 1_024;
        let blocks = Cell::Number(*blocks as f64, 0);
        vec![(*what).into(), blocks, Cell::Number(kib as f64, 0), Cell::Number(seconds, 1)]
    });
    let rows = rows.collect();
    let figures = vec![
        Figure::new("blocks of cloop when packed", packed as f64)
            .off(UNIQUE as f64)
            .published("000 table 3", Claim::Amount(1_379.0))
            .arithmetic(),
        Figure::new("blocks packed ÷ as they are", packed as f64 / cached as f64)
            .off(1.0)
            .published("000 section 6", Claim::Ratio(0.63))
            .arithmetic(),
        Figure::new("references ÷ blocks, without a cache for them", all as f64 / cached as f64)
            .off(1.0)
            .published("000 table 3", Claim::Ratio(3_681.0 / 2_175.0))
            .arithmetic(),
        Figure::new("reading packed ÷ as they are", times[2] / times[1])
            .off(1.0)
            .published("000 section 6", Claim::Less),
        Figure::new("reading each block once ÷ at each reference", times[1] / times[0])
            .off(1.0)
            .published("000 section 6", Claim::Less),
    ];
    Report {
        columns: vec!["what", "blocks", "decompressed (KiB)", "reading (s)"],
        rows,
        figures,
        seed: Some(seed),
    }
}

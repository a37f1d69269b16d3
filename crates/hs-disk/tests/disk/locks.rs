//! What a read costs beside the medium.

use std::time::Duration;

use hs_disk::{ReadOptions, ServedDisk};
use hs_units::Prng;

use crate::sample::{Bench, fast_build, open};
use crate::served::{check_read, disk_with, reads};

const WINDOW: u64 = 16_384;
const WINDOWS: u64 = 80;
/// A miss takes the lock so often, at most, where no thread is late.
const MOST_LOCKS: u64 = 6;

/// How often the lock was taken, when no thread is about to take it, and how often to find that out.
fn locks(disk: &ServedDisk) -> (u64, u64) {
    let (mut last, mut looks, mut quiet) = (disk.lock_count(), 1, 0);
    while quiet < 3 {
        std::thread::sleep(Duration::from_millis(2));
        let count = disk.lock_count();
        quiet = if count == last + 1 { quiet + 1 } else { 0 };
        (last, looks) = (count, looks + 1);
    }
    (last, looks)
}

#[test]
fn a_miss_takes_the_lock_six_times_at_most_and_a_hit_once() {
    // Every second window is zero, so that none comes with another.
    let mut content = vec![0; (WINDOWS * WINDOW) as usize];
    content.chunks_mut(WINDOW as usize).step_by(2).zip(0..).for_each(|(window, seed)| {
        Prng::new(seed).fill(window);
    });
    let bench = Bench::new(content);
    bench.build("cold.hsi", &fast_build(WINDOW, 1));
    let image = open(&bench.path("cold.hsi"));
    let disk = disk_with(&image, ReadOptions { read_ahead_bytes: 0, ..reads(2, 40 << 20) });
    // The threads are there, and the index.
    check_read(&disk, &bench.disk, 0, 4096);
    let taken = |window: u64, offset: u64| {
        let (before, _) = locks(&disk);
        check_read(&disk, &bench.disk, window * WINDOW + offset, 4096);
        let (after, looks) = locks(&disk);
        after - before - looks
    };
    // In an order that is no sequence.
    let windows = (1..WINDOWS / 2).map(|number| number * 2 * 17 % WINDOWS);
    let (misses, hits) = windows.map(|window| (taken(window, 0), taken(window, 8192))).unzip();
    // A machine that is late makes threads look again, and what a miss left to do count as a hit's.
    let median = |mut costs: Vec<u64>| {
        costs.sort_unstable();
        costs[costs.len() / 2]
    };
    let (miss, hit) = (median(misses), median(hits));
    assert!((2..=MOST_LOCKS).contains(&miss), "{miss}");
    assert_eq!(hit, 1, "it is in memory");
}

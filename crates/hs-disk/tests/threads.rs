//! How many threads serve a disk. The test looks at its own process, so it is alone in it.

#[path = "../../hs-build/tests/image/sample.rs"]
mod sample;
mod served;

use std::ops::Range;
use std::sync::Arc;

use hs_disk::{Deliver, ReadOptions, ServedDisk, UseVisibility};
use hs_store::FileStore;
use hs_units::{BlockRange, ByteRange, Lba, Prng};

use sample::{Bench, fast_build, open, profile};
use served::{Held, answered, ask, begin, reads, streaming};

const WINDOW: u64 = 16_384;
const WINDOWS: u64 = 400;

/// Refuses every chunk.
struct Kernel;

impl Deliver for Kernel {
    fn visibility(&self) -> UseVisibility {
        UseVisibility::Asked
    }
    fn comes_before_answers(&self) -> bool {
        true
    }
    fn deliver(&self, _extents: &[BlockRange], _raw: &[u8], _left_out: &[Range<u32>]) -> bool {
        false
    }
}

/// Threads of this process that have one of a disk's names.
fn threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").expect("Linux").flatten().filter_map(|task| {
        // It may end meanwhile.
        std::fs::read_to_string(task.path().join("comm")).ok()
    });
    names.filter(|name| ["hs-disk", "hs-clock", "hs-deliver"].contains(&name.trim())).count()
}

#[test]
fn a_disk_has_a_thread_for_each_fetcher_and_decoder_and_three_more() {
    let mut content = vec![0; (WINDOWS * WINDOW) as usize];
    Prng::new(3).fill(&mut content);
    let bench = Bench::new(content);
    bench.build("cold", &fast_build(WINDOW, 1));
    let runs: Vec<BlockRange> = (0..60).map(|run| BlockRange::new(Lba(run * 16), 2)).collect();
    let start = profile(&open(&bench.path("cold")), &bench.disk, &runs);
    bench.optimize("cold", "hot", &[start]);
    let held = Held::new(FileStore::open(bench.path("hot")).expect("opened"));
    let decoders = std::thread::available_parallelism().map_or(1, usize::from).max(2);
    for fetchers in [1, 4, 8] {
        let read = ReadOptions { read_ahead_bytes: 0, ..reads(fetchers, 4 << 20) };
        let disk = ServedDisk::open(held.clone(), &streaming(read, 20_000), None).expect("an image");
        disk.read_at((WINDOWS - 1) * WINDOW, &mut [0; 8]).expect("the index is read");
        held.hold(ByteRange::new(0, u64::MAX));
        begin(&disk, Some(Arc::new(Kernel)));
        let before = held.stopped();
        let offsets = (0..100).map(|read| (read * 4 % WINDOWS) * WINDOW + 8192);
        let answers: Vec<_> = offsets.map(|offset| ask(&disk, offset, 8192)).collect();
        let most = fetchers + decoders + 3;
        // The fetchers are all at it.
        while held.stopped() - before < fetchers as u64 {
            std::thread::yield_now();
        }
        let waiting = threads();
        assert!(fetchers < waiting && waiting <= most, "{waiting} threads, {fetchers} fetchers");
        held.go_on();
        for answer in &answers {
            let now = threads();
            assert!(now <= most, "{now} threads, {fetchers} fetchers");
            answered(answer).expect("read");
        }
        assert!(threads() <= most);
        drop(disk);
        assert_eq!(threads(), 0, "they end with it");
    }
}

//! How many threads serve a disk. The tests look at their own process, so they are alone in it.

#[path = "../../hs-build/tests/image/sample.rs"]
mod sample;
mod served;
mod web;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_disk::{Deliver, DiskOptions, ReadOptions, ServedDisk, UseVisibility};
use hs_image::OpenOptions;
use hs_store::{DiskCache, FileStore};
use hs_units::{BlockRange, ByteRange, Lba, Prng};
use parking_lot::Mutex;

use sample::{Bench, fast_build, open, profile};
use served::{Held, answered, ask, begin, reads, streaming};
use web::{Manner, Web};

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
    names.filter(|name| name.starts_with("hs-")).count()
}

/// The thread of the requests ends by itself, and the kernel lists a thread for a moment after it was joined.
fn wait_until_all_have_ended() {
    let end = Instant::now() + PATIENCE;
    while threads() > 0 {
        assert!(Instant::now() < end, "{} threads are left", threads());
        std::thread::yield_now();
    }
}

/// Longer than any thread takes to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// One test at a time looks at the threads of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// An image whose first reads of some places are hot.
fn bench() -> Bench {
    let mut content = vec![0; (WINDOWS * WINDOW) as usize];
    Prng::new(3).fill(&mut content);
    let bench = Bench::new(content);
    bench.build("cold", &fast_build(WINDOW, 1));
    let runs: Vec<BlockRange> = (0..60).map(|run| BlockRange::new(Lba(run * 16), 2)).collect();
    let start = profile(&open(&bench.path("cold")), &bench.disk, &runs);
    bench.optimize("cold", "hot", &[start]);
    bench
}

fn decoders() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).max(2)
}

/// A cache on disk that has every eighth window, so that fetches find some of their chunks there.
fn partly_filled_cache(bench: &Bench, web: &Web) -> Arc<DiskCache> {
    let open = || DiskCache::open(&bench.path("cache"), 64 << 20).expect("a cache");
    {
        let cold = Arc::new(web.open_patiently());
        let image = OpenOptions { cache: Some(open()), ..OpenOptions::default() };
        let read = ReadOptions { read_ahead_bytes: 0, ..reads(8, 4 << 20) };
        let options = DiskOptions { image, read, ..DiskOptions::default() };
        let disk = ServedDisk::open(cold, &options, None).expect("an image");
        for window in (0..WINDOWS).step_by(8) {
            disk.read_at(window * WINDOW + 8192, &mut [0; 8]).expect("read");
        }
    }
    open()
}

/// Beside decoders, a remote image has a thread for all requests, one for time, and one that delivers. A
/// mount has four more: the program's, two of FUSE and one that warms; and another for a cache on disk.
#[test]
fn a_remote_disk_has_no_thread_for_a_request() {
    let _alone = ALONE.lock();
    let bench = bench();
    let web = Web::serve(bench.bytes("hot"));
    for has_cache in [false, true] {
        web.behave(Manner::After(0));
        let read = ReadOptions { read_ahead_bytes: 0, ..reads(64, 4 << 20) };
        let mut options = streaming(read, 20_000);
        if has_cache {
            options.image.cache = Some(partly_filled_cache(&bench, &web));
        }
        let most = decoders() + 3 + usize::from(has_cache);
        let disk = ServedDisk::open(Arc::new(web.open_patiently()), &options, None).expect("an image");
        disk.read_at((WINDOWS - 1) * WINDOW, &mut [0; 8]).expect("the index is read");
        web.behave(Manner::Held);
        begin(&disk, Some(Arc::new(Kernel)));
        let offsets = (0..WINDOWS).step_by(4).map(|window| window * WINDOW + 8192);
        let answers: Vec<_> = offsets.map(|offset| (offset, ask(&disk, offset, 8192))).collect();
        web.wait_for_requests(8);
        assert!(threads() <= most, "{} threads", threads());
        web.behave(Manner::After(0));
        for (offset, answer) in &answers {
            let now = threads();
            assert!(now <= most, "{now} threads");
            let bytes = answered(answer).expect("read");
            assert!(bytes == bench.disk[*offset as usize..][..8192], "offset {offset}");
        }
        drop((disk, options));
        wait_until_all_have_ended();
    }
}

#[test]
fn a_disk_has_a_thread_for_each_fetcher_and_decoder_and_three_more() {
    let _alone = ALONE.lock();
    let bench = bench();
    let held = Held::new(FileStore::open(bench.path("hot")).expect("opened"));
    let decoders = decoders();
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
        wait_until_all_have_ended();
    }
}

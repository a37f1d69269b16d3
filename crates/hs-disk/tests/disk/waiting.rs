//! How long reads waited, and whose waits count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_disk::ReadOptions;
use hs_image::Image;
use hs_store::{Fault, FaultKind, FileStore, Rule};
use hs_units::{Nanos, Prng};

use crate::reading::sample_with_hot;
use crate::sample::{Bench, fast_build};
use crate::served::{EVERYTHING, disk, disk_with, reads};

/// Windows of noise that differ, so that each has a chunk of its own.
fn noise(windows: usize) -> Bench {
    let mut content = vec![0; windows * 65_536];
    Prng::new(77).fill(&mut content);
    let bench = Bench::new(content);
    bench.build("noise.hsi", &fast_build(65_536, 2));
    bench
}

/// An image on a medium that takes 40 ms for each request.
fn slow(bench: &Bench, name: &str) -> Arc<Image> {
    let delay = Rule::new(FaultKind::Delay(Duration::from_millis(40)), EVERYTHING);
    let store = Fault::new(FileStore::open(bench.path(name)).expect("opened"), vec![delay], 1);
    Arc::new(Image::open(Arc::new(store)).expect("an image"))
}

#[test]
fn readers_that_wait_at_once_wait_once() {
    let bench = noise(8);
    let image = slow(&bench, "noise.hsi");
    let disk = disk_with(&image, ReadOptions { read_ahead_bytes: 0, ..reads(8, 1 << 20) });
    let began = Instant::now();
    std::thread::scope(|scope| {
        for window in 0..8 {
            let disk = &disk;
            scope.spawn(move || disk.read_at(window * 65_536, &mut [0; 4096]).expect("read"));
        }
    });
    let stats = disk.stats();
    assert_eq!(stats.waited_requests, 8);
    let elapsed = Nanos::from(began.elapsed());
    assert!(stats.program_wait <= elapsed, "{stats:?} in {elapsed}");
    assert!(stats.program_wait >= Nanos::from_millis(40), "{stats:?}");
    assert!(stats.demand_wait > stats.program_wait, "none of them waited at once: {stats:?}");
}

/// Two waits with a pause between them: the pause is none.
#[test]
fn what_lies_between_two_waits_is_no_wait() {
    let bench = noise(2);
    let disk = disk(&slow(&bench, "noise.hsi"), 1, 0);
    disk.read_at(0, &mut [0; 4096]).expect("read");
    let first = disk.stats().program_wait;
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(disk.stats().program_wait, first);
    disk.read_at(65_536, &mut [0; 4096]).expect("read");
    assert!(disk.stats().program_wait >= Nanos(first.0 + Nanos::from_millis(40).0));
}

/// A warmer asks for chunks because they are to come; no program waits for those.
#[test]
fn reads_that_fill_caches_ahead_are_not_waited_for() {
    let bench = sample_with_hot(&mut Prng::new(31));
    let image = slow(&bench, "hot.hsi");
    let lba = image.hot_extents(0)[0].blocks().next().expect("a block");
    for is_expected in [true, false] {
        let disk = disk(&image, 1, 1 << 20);
        if is_expected {
            disk.expect(0);
        }
        disk.read_at(lba.byte_offset(), &mut [0; 4096]).expect("read");
        assert_eq!(disk.stats().program_wait == Nanos(0), is_expected, "{:?}", disk.stats());
    }
}

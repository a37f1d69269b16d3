//! Served disks some of whose blocks lie on another served disk.

use std::sync::Arc;
use std::time::Duration;

use hs_disk::{DiskOptions, ReadOptions, ServedDisk};
use hs_format::{Codec, WindowRef};
use hs_image::{BaseDisk, Image, ImageError, OpenOptions, UseBase};
use hs_store::{Fault, FaultKind, FileStore, Rule, Store};
use hs_units::{ByteRange, Prng};

use crate::sample::{BLOCK, Bench, WithBase, disk_like, fast_build, open};
use crate::served::{EVERYTHING, Held, answered, ask, check_random_reads, check_read, reads};

const WINDOW: usize = 16_384;
const BASE_WINDOW: u64 = 65_536;

/// Twenty windows: the first ten have blocks of the base, of which each lies in a window of its own.
fn sample() -> WithBase {
    let mut base = vec![0; 10 * BASE_WINDOW as usize];
    Prng::new(1).fill(&mut base);
    let mut child = vec![0; 20 * WINDOW];
    Prng::new(2).fill(&mut child);
    for window in 0..10 {
        child[window * WINDOW..][..2 * BLOCK]
            .copy_from_slice(&base[window * BASE_WINDOW as usize..][..2 * BLOCK]);
    }
    WithBase::new(base, BASE_WINDOW, child, &fast_build(WINDOW as u64, 1))
}

fn base_store(with: &WithBase) -> FileStore {
    FileStore::open(with.base.path("base.hsi")).expect("there")
}

/// The child's disk, with the disk in a store as its base.
fn served(with: &WithBase, base: Arc<dyn Store>, read: ReadOptions) -> (Arc<ServedDisk>, Arc<ServedDisk>) {
    let base = ServedDisk::open(base, &DiskOptions { read: reads(2, 0), ..DiskOptions::default() }, None);
    let base = base.expect("opened");
    let given = Arc::clone(&base);
    let open = move || Ok(Arc::clone(&given) as Arc<dyn BaseDisk>);
    let image = OpenOptions { base: UseBase::Open(Arc::new(open)), ..OpenOptions::default() };
    let options = DiskOptions { image, read, ..DiskOptions::default() };
    let store = FileStore::open(with.child.path("child.hsi")).expect("there");
    (ServedDisk::open(Arc::new(store), &options, None).expect("opened"), base)
}

/// Where the chunk of a window of the base lies in its file.
fn base_chunk(with: &WithBase, window: u64) -> ByteRange {
    let image = open(&with.base.path("base.hsi"));
    let Ok(WindowRef::Chunk(chunk)) = image.window(window) else { panic!("window {window} is stored") };
    image.cold_range(&chunk)
}

#[test]
fn reads_get_blocks_of_both_disks() {
    for seed in 0..6 {
        let mut prng = Prng::new(seed);
        let base = crate::sample::disk(&mut prng, 200, BASE_WINDOW);
        let child = disk_like(&mut prng, &base, 300);
        let with = WithBase::new(base, BASE_WINDOW, child, &fast_build(WINDOW as u64, 2));
        assert!(with.report.composed_windows > 10);
        let cache_bytes = [0, 1 << 20][seed as usize % 2];
        let (served, _base) = served(&with, Arc::new(base_store(&with)), reads(2, cache_bytes));
        check_random_reads(&served, &with.child.disk, &mut prng, 200);
    }
}

#[test]
fn a_disk_without_its_base_is_not_served() {
    let with = sample();
    let store = || Arc::new(FileStore::open(with.child.path("child.hsi")).expect("there"));
    let refused = ServedDisk::open(store(), &DiskOptions::default(), None).map(drop).expect_err("no base");
    assert!(matches!(refused, ImageError::NeedsBase { .. }), "{refused}");
    // One that is given later: until then only what is whole can be read.
    let image = OpenOptions { base: UseBase::Later, ..OpenOptions::default() };
    let options = DiskOptions { image, ..DiskOptions::default() };
    let served = ServedDisk::open(store(), &options, None).expect("opened");
    let mut found = vec![0; BLOCK];
    let error = served.read_at(0, &mut found).expect_err("no base");
    assert!(matches!(error, ImageError::NeedsBase { .. }), "{error}");
    check_read(&served, &with.child.disk, 12 * WINDOW as u64, BLOCK as u64);
    served.image().use_base(WithBase::read_base(Arc::new(base_store(&with)))).expect("it is the base");
    check_read(&served, &with.child.disk, 0, with.child.disk.len() as u64);
}

/// What reading window 3 fails with; all other windows are right.
fn error_of_window_3(served: &ServedDisk, with: &WithBase) -> ImageError {
    let mut error = None;
    for (window, expected) in with.child.disk.chunks(WINDOW).enumerate() {
        let mut found = vec![0; WINDOW];
        match served.read_at((window * WINDOW) as u64, &mut found) {
            Err(failed) if window == 3 => error = Some(failed),
            read => assert!(read.is_ok() && found == expected, "window {window}: {read:?}"),
        }
    }
    error.expect("window 3 has a block of the base that is not there")
}

#[test]
fn a_base_that_fails_fails_only_windows_with_blocks_from_there() {
    let with = sample();
    for kind in [FaultKind::Io, FaultKind::Flip] {
        let fault = Fault::new(base_store(&with), vec![Rule::new(kind, base_chunk(&with, 3))], 5);
        let fault = Arc::new(fault);
        let (served, _base) = served(&with, fault.clone(), reads(2, 0));
        let error = error_of_window_3(&served, &with);
        assert!(matches!(error, ImageError::Base { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("base.hsi") && text.contains("child.hsi"), "{text}");
        fault.bypass(true);
        check_read(&served, &with.child.disk, 3 * WINDOW as u64, WINDOW as u64);
    }
}

#[test]
// R35
fn a_base_that_is_another_disk_than_it_says_gives_errors_and_no_wrong_bytes() {
    let with = sample();
    let mut disk = with.base.disk.clone();
    disk[3 * BASE_WINDOW as usize + 7] ^= 1;
    let other = Bench::new(disk);
    other.build("base.hsi", &fast_build(BASE_WINDOW, 1));
    let mut superblock = open(&other.path("base.hsi")).superblock().clone();
    superblock.disk_digest = open(&with.base.path("base.hsi")).disk_digest();
    let lying = WithBase::lying_base(other.bytes("base.hsi"), &superblock);
    let (served, _base) = served(&with, Arc::new(lying), reads(2, 0));
    let error = error_of_window_3(&served, &with);
    assert!(matches!(error, ImageError::BaseContent { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("lying") && text.contains("expected digest"), "{text}");
}

#[test]
fn a_base_that_stalls_holds_up_no_other_read_and_no_end() {
    let with = sample();
    let base = Held::new(base_store(&with));
    let (served, _base) = served(&with, base.clone(), reads(2, 1 << 20));
    base.hold(EVERYTHING);
    // As many as there are fetchers: they have threads beside those that decompress.
    let waiting: Vec<_> = (0..2).map(|window| ask(&served, window * WINDOW as u64, WINDOW as u64)).collect();
    while base.stopped() == 0 {
        std::thread::yield_now();
    }
    for window in 10..20 {
        check_read(&served, &with.child.disk, window * WINDOW as u64, WINDOW as u64);
    }
    assert!(waiting.iter().all(|answer| answer.is_empty()));
    base.go_on();
    for (window, answer) in waiting.iter().enumerate() {
        let found = answered(answer).expect("the base answers again");
        assert!(found == with.child.disk[window * WINDOW..][..WINDOW], "window {window}");
    }
    // Closed in the middle of it: no bytes, and no waiting.
    base.hold(EVERYTHING);
    let last = ask(&served, 9 * WINDOW as u64, WINDOW as u64);
    served.close();
    assert!(answered(&last).expect_err("closed").is_closed());
    base.go_on();
}

#[test]
fn a_base_that_is_closed_is_an_error_of_its_blocks() {
    let with = sample();
    let (served, base) = served(&with, Arc::new(base_store(&with)), reads(2, 0));
    base.close();
    let mut found = vec![0; WINDOW];
    let error = served.read_at(0, &mut found).expect_err("the base is closed");
    assert!(matches!(&error, ImageError::Base { .. }) && error.is_closed(), "{error}");
    check_read(&served, &with.child.disk, 10 * WINDOW as u64, WINDOW as u64);
}

#[test]
fn a_read_waits_for_the_base_no_longer_than_for_the_image() {
    let with = sample();
    let base = Held::new(base_store(&with));
    let read = ReadOptions { read_timeout: Some(Duration::from_millis(50)), ..reads(2, 0) };
    let (served, _base) = served(&with, base.clone(), read);
    base.hold(EVERYTHING);
    let error = answered(&ask(&served, 0, BLOCK as u64)).expect_err("in vain");
    assert!(matches!(error, ImageError::NoAnswer { .. }), "{error}");
    base.go_on();
}

#[test]
fn no_thread_that_submits_waits_for_the_base() {
    let with = sample();
    let base = Held::new(base_store(&with));
    let (served, _base) = served(&with, base.clone(), reads(2, 1 << 20));
    // The first one brings its neighbours, which wait compressed: a read of these finds all that it needs but
    // the base's blocks.
    check_read(&served, &with.child.disk, 0, WINDOW as u64);
    base.hold(EVERYTHING);
    let answers: Vec<_> = (1..3).map(|window| ask(&served, window * WINDOW as u64, 1)).collect();
    base.go_on();
    assert!(answers.iter().all(|answer| answered(answer).is_ok()));
}

#[test]
fn the_sample_has_composed_windows() {
    let with = sample();
    let image: Arc<Image> = open(&with.child.path("child.hsi"));
    let is_composed = |window| matches!(image.window(window), Ok(WindowRef::Chunk(chunk)) if chunk.codec == Codec::Composed);
    assert!((0..10).all(is_composed) && !(10..20).any(is_composed));
}

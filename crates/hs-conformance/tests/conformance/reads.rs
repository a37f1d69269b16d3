//! What is read is what lies in the raw disk, or an error.

use std::sync::Arc;

use hs_conformance::Gates;
use hs_conformance::{Sample, WINDOW};
use hs_device::Medium;
use hs_format::WindowRef;
use hs_fuse::ServedImage;
use hs_serve::{Prefetching, ServeConfig};
use hs_store::{Emulate, Fault, FaultKind, FileStore, Rule, Store};
use hs_units::{ByteRange, Prng};

use crate::fronts::{Reader, Shown, fronts};

fn store(sample: &Sample, name: &str) -> FileStore {
    FileStore::open(sample.path(name)).expect("there")
}

fn off() -> ServeConfig {
    ServeConfig { prefetching: Prefetching::Off, ..ServeConfig::default() }
}

/// The read must succeed, and be right.
fn check(reader: &mut Reader, disk: &[u8], offset: usize, len: usize) {
    let found = reader.read(offset as u64, len as u32).expect("it can be read");
    assert!(found == disk[offset..offset + len], "bytes {offset}+{len} differ");
}

fn check_random(shown: &Shown, disk: &[u8], seed: u64, count: u32) {
    let mut prng = Prng::new(seed);
    let mut reader = shown.reader();
    for _ in 0..count {
        let offset = prng.below(disk.len() as u64) as usize;
        let longest = if prng.below(8) == 0 { 2 << 20 } else { 40_000 };
        let len = 1 + prng.below((disk.len() - offset).min(longest) as u64) as usize;
        check(&mut reader, disk, offset, len);
    }
}

fn check_in_parallel(shown: &Shown, disk: &[u8], seed: u64) {
    std::thread::scope(|scope| {
        for thread in 0..6 {
            scope.spawn(move || check_random(shown, disk, seed + thread, 60));
        }
    });
}

#[test]
fn every_alignment_and_size() {
    let sample = Sample::new(1);
    let disk = &sample.disk;
    for front in fronts() {
        for name in ["cold.hsi", "hot.hsi"] {
            let shown = front.show(Arc::new(store(&sample, name)), &off());
            let mut reader = shown.reader();
            for len in [1, 2, 511, 512, 513, 4095, 4096, 4097, WINDOW - 1, WINDOW + 1, 1 << 20, (3 << 20) + 5]
            {
                for near in [1, 512, 4096, WINDOW, 3 * WINDOW, 40 * WINDOW, 1 << 20, disk.len() - len] {
                    for offset in [near - 1, near, near + 1] {
                        if offset + len <= disk.len() {
                            check(&mut reader, disk, offset, len);
                        }
                    }
                }
            }
            check(&mut reader, disk, 0, disk.len());
        }
    }
}

/// Every way in which a short read can lie across where two windows, or two blocks, meet.
#[test]
fn every_short_read_across_a_border() {
    let sample = Sample::new(9);
    for front in fronts() {
        let shown = front.show(Arc::new(store(&sample, "hot.hsi")), &off());
        let mut reader = shown.reader();
        for border in [4096, 5 * WINDOW, 4 * WINDOW] {
            for before in 0..=12 {
                for len in 1..=24 {
                    check(&mut reader, &sample.disk, border - before, len);
                }
            }
        }
    }
}

#[test]
fn nothing_lies_past_the_end() {
    let sample = Sample::new(2);
    let end = sample.disk.len() as u64;
    for front in fronts() {
        let shown = front.show(Arc::new(store(&sample, "cold.hsi")), &off());
        let mut reader = shown.reader();
        for (offset, len) in [(end, 1), (end - 1, 2), (end - 4096, 8192), (end + 5, 10), (1 << 62, 4096)] {
            let found = reader.read(offset, len);
            if front.refuses_past_end() {
                assert_eq!(found, Err(libc::EINVAL), "{front:?} {offset}");
            } else {
                let rest = sample.disk.get(offset as usize..).unwrap_or_default();
                assert_eq!(found.as_deref(), Ok(rest), "{front:?} {offset}");
            }
        }
        check(&mut reader, &sample.disk, sample.disk.len() - 1, 1);
    }
}

#[test]
fn many_readers_at_once() {
    let sample = Sample::new(3);
    for front in fronts() {
        for config in [off(), ServeConfig::default()] {
            let shown = front.show(Arc::new(store(&sample, "hot.hsi")), &config);
            check_in_parallel(&shown, &sample.disk, 30);
        }
    }
}

#[test]
fn while_the_prefetch_goes_on() {
    let sample = Sample::new(4);
    let medium = Medium::parse("flat-2ms-8mbs").expect("a medium");
    for front in fronts() {
        for (budget_bytes, prefetching) in [(256 << 20, Prefetching::Hold), (256 << 10, Prefetching::Hold)] {
            let mut config = ServeConfig { prefetching, ..ServeConfig::default() };
            config.prefetch.budget_bytes = budget_bytes;
            let slow = Emulate::new(store(&sample, "hot.hsi"), &medium).expect("emulated");
            let shown = front.show(Arc::new(slow), &config);
            check_in_parallel(&shown, &sample.disk, 40);
        }
    }
}

/// Where the stored bytes of a cold window lie.
fn cold_place(sample: &Sample, name: &str, window: usize) -> ByteRange {
    let image = sample.open(name);
    match image.window(window as u64).expect("the index is whole") {
        WindowRef::Chunk(chunk) => image.cold_range(&chunk),
        other => panic!("window {window} is {other:?}"),
    }
}

#[test]
fn a_bad_window_is_an_error_and_no_other_is() {
    let sample = Sample::new(5);
    let (bad, size) = (5, sample.disk.len());
    let place = cold_place(&sample, "cold.hsi", bad);
    for kind in [FaultKind::Short, FaultKind::Io, FaultKind::Flip] {
        for front in fronts() {
            let faulty = Arc::new(Fault::new(store(&sample, "cold.hsi"), vec![Rule::new(kind, place)], 50));
            let shown = front.show(Arc::clone(&faulty) as Arc<dyn Store>, &off());
            let mut reader = shown.reader();
            for offset in (0..size - WINDOW).step_by(WINDOW / 2 + 4096) {
                let found = reader.read(offset as u64, 6000);
                let touches = offset < (bad + 1) * WINDOW && offset + 6000 > bad * WINDOW;
                if touches {
                    assert_eq!(found, Err(libc::EIO), "{front:?} {kind:?} {offset}");
                } else {
                    assert_eq!(found.as_deref(), Ok(&sample.disk[offset..][..6000]), "{front:?} {kind:?}");
                }
            }
            assert_eq!(reader.read(0, 2 << 20), Err(libc::EIO), "a part that fails fails the read");
            check(&mut reader, &sample.disk, (bad + 1) * WINDOW, WINDOW);
            assert!(faulty.fired() > 0);
        }
    }
}

#[test]
fn damage_that_goes_away_never_gives_wrong_bytes() {
    let sample = Sample::new(6);
    let size = sample.disk.len();
    let tables = sample.open("hot.hsi").superblock().cold.range.offset;
    let everything = ByteRange::new(tables, cold_place(&sample, "hot.hsi", 0).len * 64);
    let late = FaultKind::Delay(std::time::Duration::from_millis(5));
    for kind in [FaultKind::Short, FaultKind::Io, FaultKind::Flip, late] {
        for front in fronts() {
            let rule = Rule::new(kind, everything).one_in(3).times(7);
            let faulty = Arc::new(Fault::new(store(&sample, "hot.hsi"), vec![rule], 60));
            let shown = front.show(Arc::clone(&faulty) as Arc<dyn Store>, &off());
            let mut reader = shown.reader();
            let mut prng = Prng::new(61);
            for _ in 0..200 {
                let offset = prng.below(size as u64 - 20_000) as usize;
                match reader.read(offset as u64, 20_000) {
                    Ok(found) => assert!(found == sample.disk[offset..][..20_000], "{front:?} {kind:?}"),
                    Err(errno) => assert_eq!(errno, libc::EIO),
                }
            }
            assert!(faulty.fired() > 0);
            faulty.bypass(true);
            check(&mut reader, &sample.disk, 0, size);
        }
    }
}

#[test]
fn damaged_hot_chunks_are_replaced_by_their_cold_copies() {
    let sample = Sample::new(7);
    let hot = sample.open("hot.hsi");
    let (_, first) = hot.hot_chunk(0);
    let (_, last) = hot.hot_chunk(hot.hot_chunk_count() - 1);
    let chunks = ByteRange::new(first.offset, last.end() - first.offset);
    for front in fronts() {
        for config in [off(), ServeConfig::default()] {
            let rule = Rule::new(FaultKind::Flip, chunks).one_in(700);
            let faulty = Arc::new(Fault::new(store(&sample, "hot.hsi"), vec![rule], 70));
            let shown = front.show(Arc::clone(&faulty) as Arc<dyn Store>, &config);
            check_in_parallel(&shown, &sample.disk, 71);
            assert!(faulty.fired() > 0);
        }
    }
}

/// The stream itself meets damaged, short or late chunks, while other threads read: they get the right bytes,
/// or an error.
#[test]
fn while_the_prefetch_meets_faults() {
    let sample = Sample::new(10);
    let hot = sample.open("hot.hsi");
    let (_, first) = hot.hot_chunk(0);
    let (_, last) = hot.hot_chunk(hot.hot_chunk_count() - 1);
    let chunks = ByteRange::new(first.offset, last.end() - first.offset);
    let medium = Medium::parse("flat-1ms-20mbs").expect("a medium");
    let late = FaultKind::Delay(std::time::Duration::from_millis(3));
    for kind in [FaultKind::Short, FaultKind::Io, FaultKind::Flip, late] {
        for front in fronts() {
            let rule = Rule::new(kind, chunks).one_in(3).times(40);
            let faulty = Arc::new(Fault::new(store(&sample, "hot.hsi"), vec![rule], 80));
            let slow = Emulate::new(Arc::clone(&faulty), &medium).expect("emulated");
            let shown = front.show(Arc::new(slow), &ServeConfig::default());
            // There are cold copies of all of it.
            check_in_parallel(&shown, &sample.disk, 81);
        }
    }
}

#[test]
fn who_waits_for_the_medium_holds_nobody_else() {
    let sample = Sample::new(8);
    let (place, disk) = (cold_place(&sample, "cold.hsi", 5), &sample.disk);
    for front in fronts() {
        let gates = Gates::new(store(&sample, "cold.hsi"), &[place]);
        let shown = front.show(Arc::clone(&gates) as Arc<dyn Store>, &off());
        std::thread::scope(|scope| {
            let _opens = gates.open_at_end();
            let waits = scope.spawn(|| check(&mut shown.reader(), disk, 5 * WINDOW, 4096));
            // Far enough for none of them to be brought together with the place.
            let mut reader = shown.reader();
            for window in 70..90 {
                check(&mut reader, disk, window * WINDOW + 7, 20_000);
            }
            assert!(!waits.is_finished());
        });
    }
}

/// How far the kernel reads ahead in what lies in a folder, in KiB; nothing where it does not tell.
fn read_ahead_kib(folder: &std::path::Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::metadata(folder).expect("there").dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = std::fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).ok()?;
    text.trim().parse().ok()
}

#[test]
fn the_kernel_guesses_less_where_a_hot_region_is_prefetched() {
    if !hs_testing::machine_has(&["/dev/fuse"]) {
        return;
    }
    let sample = Sample::new(2);
    for (name, prefetching, expected) in [
        ("hot.hsi", Prefetching::Push, 0),
        ("hot.hsi", Prefetching::Off, 16),
        ("cold.hsi", Prefetching::Push, 16),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = ServeConfig {
            prefetching,
            disk_read_ahead_kib: 16,
            hot_disk_read_ahead_kib: 0,
            ..ServeConfig::default()
        };
        let store = Arc::new(store(&sample, name));
        let shown = ServedImage::start(store, folder.path(), &config, None).expect("shown");
        match read_ahead_kib(folder.path()) {
            Some(found) => assert_eq!(found, expected, "{name} {prefetching:?}"),
            None => hs_testing::skip_part("this kernel does not tell how far it reads ahead"),
        }
        drop(shown);
    }
}

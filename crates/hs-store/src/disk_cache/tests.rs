use super::*;
use crate::contract::noise;

const LARGE: u64 = 1 << 30;

fn named(number: u64) -> Digest {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    Digest(bytes)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let list = |path: &Path| fs::read_dir(path).expect("listed").map(|entry| entry.expect("an entry").path());
    list(folder).flat_map(|folder| list(&folder).collect::<Vec<_>>()).collect()
}

#[test]
fn what_was_kept_is_there_for_every_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = DiskCache::open(folder.path(), LARGE).expect("opened");
    assert!(!cache.has(&named(1)));
    assert_eq!(cache.get(&named(1), 5_000), None);
    for number in 0..500 {
        cache.put(&named(number), noise(5_000, number).into());
    }
    drop(cache);
    let other = DiskCache::open(folder.path(), LARGE).expect("opened");
    for number in 0..500 {
        assert!(other.has(&named(number)));
        assert_eq!(other.get(&named(number), 5_000), Some(noise(5_000, number)));
    }
    // Another length is another entry, whatever its name.
    assert_eq!(other.get(&named(3), 4_999), None);
    assert_eq!(other.counts(), DiskCacheCounts { hits: 500, misses: 1, spoiled: 0 });
    assert_eq!(DiskCache::usage_of(folder.path()).entries, 500);
}

#[test]
fn a_spoiled_entry_goes_and_can_be_kept_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = DiskCache::open(folder.path(), LARGE).expect("opened");
    cache.put(&named(1), bytes::Bytes::from_static(b"wrong"));
    drop(cache);
    let cache = DiskCache::open(folder.path(), LARGE).expect("opened");
    assert_eq!(cache.get(&named(1), 5).as_deref(), Some(&b"wrong"[..]));
    cache.spoiled(&named(1));
    assert_eq!(cache.get(&named(1), 5), None);
    cache.put(&named(1), bytes::Bytes::from_static(b"right"));
    drop(cache);
    let cache = DiskCache::open(folder.path(), LARGE).expect("opened");
    assert_eq!(cache.get(&named(1), 5).as_deref(), Some(&b"right"[..]));
}

#[test]
fn an_entry_that_a_crash_cut_short_is_a_miss_and_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    DiskCache::open(folder.path(), LARGE).expect("opened").put(&named(1), noise(9_000, 1).into());
    let [path] = &files(folder.path())[..] else { panic!("one file") };
    File::options().write(true).open(path).and_then(|file| file.set_len(4_096)).expect("cut");
    let cache = DiskCache::open(folder.path(), LARGE).expect("opened");
    assert_eq!(cache.get(&named(1), 9_000), None);
    cache.put(&named(1), noise(9_000, 1).into());
    drop(cache);
    let cache = DiskCache::open(folder.path(), LARGE).expect("opened");
    assert_eq!(cache.get(&named(1), 9_000), Some(noise(9_000, 1)));
}

#[test]
fn a_nearly_full_disk_of_any_size_keeps_entries_while_a_gib_is_free() {
    assert_eq!(reserve_bytes(2 << 30), (2 << 30) / 20);
    // A twentieth of 252 GB are 12.6 GB: a machine with 12 GB free kept nothing.
    assert_eq!(reserve_bytes(252 << 30), RESERVE_BYTES);
}

#[test]
fn the_limit_holds_and_the_least_recently_used_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let limit = 2 << 20;
    let fill = |numbers: std::ops::Range<u64>| {
        let cache = DiskCache::open(folder.path(), limit).expect("opened");
        numbers.for_each(|number| cache.put(&named(number), noise(16_384, number).into()));
    };
    fill(0..100);
    // Marks of use are ten minutes coarse: make what was written so far an hour old, and use some of it.
    let hour_ago = SystemTime::now() - Duration::from_secs(3_000);
    for path in files(folder.path()) {
        File::options().write(true).open(path).and_then(|file| file.set_modified(hour_ago)).expect("aged");
    }
    let cache = DiskCache::open(folder.path(), limit).expect("opened");
    for number in 0..20 {
        assert!(cache.get(&named(number), 16_384).is_some());
    }
    drop(cache);
    fill(100..180);
    let usage = DiskCache::usage_of(folder.path());
    assert!(usage.bytes <= limit / 16 * 17, "{usage:?}");
    let cache = DiskCache::open(folder.path(), limit).expect("opened");
    assert!((0..20).all(|number| cache.has(&named(number))), "those that were used stay");
    assert!(!(20..100).all(|number| cache.has(&named(number))), "others went");
    assert_eq!(DiskCache::shrink(folder.path(), 0), DiskCacheUsage::default());
}

#[test]
fn what_a_killed_writer_has_left_goes_after_a_while() {
    let folder = tempfile::tempdir().expect("a folder");
    DiskCache::open(folder.path(), LARGE).expect("opened").put(&named(1), noise(100, 1).into());
    let place = files(folder.path()).remove(0).with_file_name(".new-1-1");
    fs::write(&place, b"half").expect("written");
    assert_eq!(DiskCache::usage_of(folder.path()).entries, 1);
    assert!(place.exists(), "another process may be writing it");
    let old = SystemTime::now() - 2 * ABANDONED;
    File::options().write(true).open(&place).and_then(|file| file.set_modified(old)).expect("aged");
    assert_eq!(DiskCache::usage_of(folder.path()).entries, 1);
    assert!(!place.exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_no_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = DiskCache::open(folder.path(), LARGE).expect("opened");
    // A file where a folder should be stops root as well, as a full disk would.
    let hex = named(1).to_string();
    fs::write(folder.path().join(&hex[..2]), b"").expect("written");
    cache.put(&named(1), bytes::Bytes::from_static(b"bytes"));
    drop(cache);
    let cache = DiskCache::open(folder.path(), LARGE).expect("opened");
    assert_eq!(cache.get(&named(1), 5), None);
}

#[test]
fn writers_at_once_leave_whole_entries() {
    let folder = tempfile::tempdir().expect("a folder");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let cache = DiskCache::open(folder.path(), LARGE).expect("opened");
                (0..200).for_each(|number| cache.put(&named(number), noise(3_000, number).into()));
            });
        }
    });
    let cache = DiskCache::open(folder.path(), LARGE).expect("opened");
    assert!((0..200).all(|number| cache.get(&named(number), 3_000) == Some(noise(3_000, number))));
    assert_eq!(files(folder.path()).len(), 200, "nothing unfinished is left");
}

//! An image whose chunks are kept in a cache on disk, which others may write to.

use std::fs;
use std::sync::Arc;

use hs_image::{Image, OpenOptions};
use hs_store::{DiskCache, FileStore};
use hs_units::Prng;

use crate::sample::{self, Bench, fast_build};
use crate::served::disk;

#[test]
fn what_is_wrong_in_the_cache_is_read_from_the_image_again() {
    let bench = Bench::new(sample::disk(&mut Prng::new(71), 40, 8192));
    bench.build("cold", &fast_build(8192, 2));
    let folder = bench.path("cache");
    let cache = || DiskCache::open(&folder, 1 << 30).expect("a cache");
    // Opened anew, as by another process; gives how many entries were found wrong.
    let read_all = || {
        let kept = cache();
        let options = OpenOptions { cache: Some(Arc::clone(&kept)), ..OpenOptions::default() };
        let store = FileStore::open(bench.path("cold")).expect("the image is there");
        let image = Arc::new(Image::open_as(Arc::new(store), &options).expect("an image"));
        let mut found = vec![0; bench.disk.len()];
        disk(&image, 1, 0).read_at(0, &mut found).expect("read");
        assert!(found == bench.disk, "bytes of the cache were taken for the image's");
        kept.counts().spoiled
    };
    assert_eq!(read_all(), 0);
    let mut entries = 0;
    for part in fs::read_dir(&folder).expect("listed").flatten() {
        for entry in fs::read_dir(part.path()).expect("listed").flatten() {
            let mut bytes = fs::read(entry.path()).expect("read");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(entry.path(), bytes).expect("written");
            entries += 1;
        }
    }
    assert!(entries > 3, "{entries}");
    assert!(read_all() > 3, "the entries are looked at");
    assert_eq!(read_all(), 0, "right ones took the place of the wrong ones");
}

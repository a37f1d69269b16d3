//! Files that are cut while they are read.

use hs_image::ImageError;
use hs_store::StoreError;
use hs_units::Prng;

use crate::sample::{Bench, fast_build, open};
use crate::served::disk;

/// Bytes appended or cut while the image is open: a read gets an error, not zeros.
#[test]
fn a_file_that_is_cut_while_it_is_open_gives_errors() {
    let mut prng = Prng::new(23);
    let mut content = vec![0; 64 * 16_384];
    prng.fill(&mut content);
    let bench = Bench::new(content);
    bench.build("cold", &fast_build(16_384, 1));
    let image = open(&bench.path("cold"));
    let disk = disk(&image, 2, 30_000);
    disk.read_at(0, &mut [0; 4096]).expect("whole so far");
    let file = std::fs::File::options().write(true).open(bench.path("cold")).expect("opened");
    file.set_len(100_000).expect("cut");
    let error = disk.read_at(63 * 16_384, &mut [0; 4096]).expect_err("cut off");
    assert!(
        matches!(&error, ImageError::Store(error) if matches!(**error, StoreError::Short { .. })),
        "{error}"
    );
    // What is left is still served, as long as the index is in memory.
    for window in [0, 3] {
        let mut found = [0; 4096];
        disk.read_at(window * 16_384, &mut found).expect("still there");
        assert!(found == bench.disk[window as usize * 16_384..][..4096]);
    }
}

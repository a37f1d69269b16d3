use hs_units::{BlockRange, Lba, Prng};

use super::KEPT_INDEX_BYTES;
use crate::WindowRef;

// One file of samples serves these tests and those of the folder `tests`.
#[path = "../../tests/image/sample.rs"]
mod sample;

use sample::{Bench, fast_build, open, profile};

const WINDOW_BYTES: u64 = 8192;

#[test]
fn the_index_in_memory_stays_bounded() {
    // One block of data in each window of 8 KiB, so that every window has a chunk of its own: with
    // 512 windows a leaf, 96 leaves.
    let windows = 96 * 512;
    let mut content = vec![0; windows * WINDOW_BYTES as usize];
    for (number, window) in content.chunks_mut(WINDOW_BYTES as usize).enumerate() {
        window[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
    }
    let bench = Bench::new(content);
    bench.build("cold.hsi", &fast_build(WINDOW_BYTES, 2));
    let image = open(&bench.path("cold.hsi"));
    assert_eq!(image.superblock().leaf_count(), 96);
    assert_eq!(image.kept_index_bytes(), 0, "nothing of the cold index is read before it is needed");
    let reads: Vec<BlockRange> =
        (0..2000).map(|i| BlockRange::new(Lba(i * 37 % (windows as u64 * 2)), 1)).collect();
    bench.optimize("cold.hsi", "hot.hsi", &[profile(&image, &bench.disk, &reads)]);
    let image = open(&bench.path("hot.hsi"));
    let mut prng = Prng::new(9);
    let mut most = 0;
    for _ in 0..3000 {
        let window = prng.below(windows as u64);
        let WindowRef::Chunk(chunk) = image.window(window).expect("the index is whole") else {
            panic!("window {window} is stored")
        };
        assert_eq!(u64::from(chunk.raw_bytes), WINDOW_BYTES);
        most = most.max(image.kept_index_bytes());
    }
    assert!(most > 0 && most <= KEPT_INDEX_BYTES, "{most} bytes of leaves");
}

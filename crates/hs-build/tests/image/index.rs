//! The index of the cold region in memory.

use hs_image::{DecodedPage, IndexPage, IndexPages, WindowRef};
use hs_units::{BlockRange, Lba, Prng};

use crate::sample::{Bench, fast_build, open, profile};

const WINDOW_BYTES: u64 = 8192;
/// What `hs_image` keeps of an index at most.
const KEPT_INDEX_BYTES: u64 = 2 << 20;

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

/// A leaf that is damaged where the whole index is read comes with a request of its own, as a page of its
/// own.
#[test]
fn a_leaf_that_came_alone_stays_when_the_page_of_the_root_goes() {
    let mut content = vec![0; 1200 * 4096];
    for (number, window) in content.chunks_mut(4096).enumerate() {
        window[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
    }
    let bench = Bench::new(content);
    bench.build("cold.hsi", &fast_build(4096, 2));
    let image = open(&bench.path("cold.hsi"));
    let page = |page: &IndexPage| {
        let stored = image.fetch_page(page).expect("it is there");
        image.decode_page(page, &stored).expect("it is whole")
    };
    let DecodedPage::Root(root, mut leaves) = page(&IndexPage::Root) else { panic!("the root") };
    assert_eq!(leaves.remove(1).0, 1);
    let mut pages = IndexPages::default();
    pages.put(DecodedPage::Root(root, leaves));
    let (number, at) = (pages.page_of(&image, 600), 600);
    let (leaf, _) = pages.page(&image, number).expect("the root names it");
    pages.put(page(&leaf));
    assert!([5, at, 1100].iter().all(|window| pages.window(&image, *window).is_some()));
    pages.remove(0);
    let known = [5, at, 1100].map(|window| pages.window(&image, window).is_some());
    assert_eq!(known, [false, true, false]);
    pages.remove(number);
    assert_eq!(pages.window(&image, at), None);
}

//! What a map of many extents takes of the memory.

#[path = "../../hs-disk/tests/forged/heap.rs"]
#[allow(dead_code, reason = "other tests ask for the highest mark")]
mod heap;

use hs_overlay::{Content, ExtentMap};
use hs_units::Prng;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

const EXTENTS: u64 = 200_000;
/// Of a disk of 100 GB.
const BLOCKS: u64 = 24_000_000;
const MOST_BYTES_OF_EXTENT: usize = 32;

/// In whatever order they come, and also where most of them are written over later.
#[test]
fn an_extent_takes_at_most_32_bytes() {
    let mut prng = Prng::new(42);
    let mut random: Vec<u64> = (0..EXTENTS).map(|number| number * (BLOCKS / EXTENTS)).collect();
    let ordered = random.clone();
    for number in (1..random.len()).rev() {
        random.swap(number, prng.below(number as u64 + 1) as usize);
    }
    let backwards: Vec<u64> = ordered.iter().rev().copied().collect();
    for (name, blocks) in [("in order", &ordered), ("backwards", &backwards), ("at random", &random)] {
        let before = heap::reset_peak();
        let mut map = ExtentMap::default();
        let used = |map: &ExtentMap, when: &str| {
            let bytes = heap::reset_peak() - before;
            let most = map.len() * MOST_BYTES_OF_EXTENT;
            assert!(bytes <= most, "{name}, {when}: {bytes} bytes for {} extents", map.len());
            eprintln!("{name}, {when}: {:.1} bytes an extent", bytes as f64 / map.len() as f64);
        };
        for (place, block) in blocks.iter().enumerate() {
            map.insert(*block, block + 1, Content::Data(place as u64 * 2), &mut |_, _| {});
        }
        assert_eq!(map.len(), EXTENTS as usize);
        used(&map, "written");
        // One large write takes the place of many.
        for round in 0..200 {
            let start = prng.below(BLOCKS - BLOCKS / 400);
            map.insert(start, start + BLOCKS / 400, Content::Data(1 << 30 | round << 20), &mut |_, _| {});
        }
        assert!(map.len() > 1000 && map.len() < EXTENTS as usize * 3 / 4);
        used(&map, "written over");
    }
}

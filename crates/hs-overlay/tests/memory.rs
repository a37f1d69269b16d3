//! What a map of many extents and a long file take of the memory.

#[path = "../../hs-disk/tests/forged/heap.rs"]
#[allow(dead_code, reason = "other tests ask for the highest mark")]
mod heap;

use std::sync::Mutex;

use hs_overlay::{Content, ExtentMap, Identity, Limits, Needed, Opening, Overlay, Step};
use hs_units::{Digest, Prng};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// Tests of one process count what the others have, too.
static ALONE: Mutex<()> = Mutex::new(());

const EXTENTS: u64 = 200_000;
/// Of a disk of 100 GB.
const BLOCKS: u64 = 24_000_000;
const MOST_BYTES_OF_EXTENT: usize = 32;

/// In whatever order they come, and also where most of them are written over later.
#[test]
fn an_extent_takes_at_most_32_bytes() {
    let _alone = ALONE.lock();
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

/// A sparse file of any length opens with what is in it.
#[test]
fn the_length_of_a_file_takes_no_memory() {
    let _alone = ALONE.lock();
    let identity = Identity { id: [1; 16], disk_digest: Digest([2; 32]), disk_bytes: 1 << 30 };
    let (_, job) = Overlay::create(identity, Limits::default());
    let mut file = vec![0; 3 << 20];
    for step in job.steps {
        if let Step::Write { offset, bytes } = step {
            file[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
    }
    let before = heap::reset_peak();
    let mut opening = Opening::new(None, 15 << 40, Limits::default());
    while let Needed::Bytes(range) = opening.poll() {
        opening.handle_bytes(&file[range.offset as usize..][..range.len as usize]).expect("right");
    }
    let overlay = opening.finish().expect("right");
    assert_eq!(overlay.extents().next(), None);
    let bytes = heap::peak() - before;
    assert!(bytes < 1 << 20, "{bytes} bytes");
}

use std::collections::BTreeMap;

use hs_units::Prng;
use proptest::prelude::*;

use super::*;

const STORED: [u8; 5] = *b"bytes";

/// An index of disjoint runs in a shuffled order, some in each chunk, and where each block ought to be.
fn sample(seed: u64, runs: u32) -> (HotIndex, BTreeMap<u64, HotPlace>, u64) {
    let mut prng = Prng::new(seed);
    let (mut extents, mut lba) = (Vec::new(), 0);
    for _ in 0..runs {
        lba += prng.below(3);
        let count = 1 + prng.below(5);
        extents.push(BlockRange::new(Lba(lba), count));
        lba += count;
    }
    for i in (1..extents.len()).rev() {
        extents.swap(i, prng.below(i as u64 + 1) as usize);
    }
    let (mut builder, mut places, mut rest) = (HotIndexBuilder::new(), BTreeMap::new(), extents.as_slice());
    while !rest.is_empty() {
        let (mine, others) = rest.split_at(rest.len().min(1 + prng.below(9) as usize));
        rest = others;
        let chunk = builder.push(&STORED, Codec::Zstd, mine);
        let mut block_in_chunk = 0;
        for run in mine {
            for (i, block) in run.blocks().enumerate() {
                let run = run.count as u32 - i as u32;
                places.insert(block.0, HotPlace { chunk, block_in_chunk, run });
                block_in_chunk += 1;
            }
        }
    }
    let disk_blocks = lba + 3;
    (builder.finish(disk_blocks).expect("disjoint runs"), places, disk_blocks)
}

proptest! {
    #[test]
    fn lookup_matches_a_plain_map(seed: u64, runs in 1_u32..60) {
        let (index, places, disk_blocks) = sample(seed, runs);
        for lba in (0..disk_blocks + 2).chain([u64::from(u32::MAX), u64::MAX]) {
            prop_assert_eq!(index.lookup(Lba(lba)), places.get(&lba).copied(), "block {}", lba);
            let next = lba.checked_add(1).and_then(|from| places.range(from..).next());
            prop_assert_eq!(index.next_hot_after(Lba(lba)), next.map(|(&lba, _)| Lba(lba)), "after {}", lba);
        }
        prop_assert_eq!(index.blocks(), places.len() as u64);
        let of_chunks = (0..index.chunks.len() as u32).flat_map(|chunk| index.extents_of(chunk).to_vec());
        prop_assert_eq!(of_chunks.collect::<Vec<_>>(), index.extents.clone());
    }
}

#[test]
fn twenty_thousand_extents_take_less_than_two_mebibytes() {
    let (index, ..) = sample(3, 20_000);
    assert_eq!(index.extents.len(), 20_000);
    let heap_bytes = index.map.heap_bytes()
        + index.extents.capacity() * size_of::<BlockRange>()
        + index.chunks.capacity() * size_of::<HotChunk>();
    assert!(heap_bytes < 2 << 20, "{heap_bytes} bytes");
}

#[test]
fn a_builder_refuses_what_a_reader_would() {
    let finish = |extents: &[BlockRange], disk_blocks| {
        let mut builder = HotIndexBuilder::new();
        builder.push(&STORED, Codec::Zstd, extents);
        builder.finish(disk_blocks)
    };
    let run = |start, count| BlockRange::new(Lba(start), count);
    assert!(finish(&[run(0, 2), run(2, 1)], 3).is_ok());
    let overlap = finish(&[run(2, 2), run(0, 3)], 9).expect_err("block 2 is in both");
    let (first, second) = (run(0, 3), run(2, 2));
    assert!(
        matches!(overlap, FormatError::ExtentsOverlap { first: a, second: b, .. } if (a, b) == (first, second))
    );
    assert!(matches!(finish(&[run(0, 2), run(2, 2)], 3), Err(FormatError::OutsideDisk { .. })));
    assert!(matches!(finish(&[run(0, 0)], 3), Err(FormatError::OutsideDisk { .. })));
    assert!(matches!(finish(&[run(0, 1025)], 9999), Err(FormatError::Limit { field: "raw bytes", .. })));
    assert!(matches!(finish(&[run(0, 1)], u64::MAX), Err(FormatError::Limit { field: "disk blocks", .. })));
    assert!(finish(&[run(0, 1 << 32)], 1 << 32).is_err());
    assert!(HotIndexBuilder::new().finish(3).is_err());
}

#[test]
fn an_index_ends_with_its_limit() {
    let finish = |extents: u32| {
        let mut builder = HotIndexBuilder::new();
        builder.push(&STORED, Codec::Zstd, &vec![BlockRange::new(Lba(0), 1); extents as usize]);
        builder.finish(1).expect_err("more than a chunk can hold")
    };
    // Beside the extents there are the header and one chunk.
    let most = (MAX_HOT_INDEX_BYTES - (HOT_HEADER_BYTES + HOT_CHUNK_BYTES) as u32) / EXTENT_BYTES as u32;
    assert!(matches!(finish(most), FormatError::Limit { field: "raw bytes", .. }));
    assert!(matches!(finish(most + 1), FormatError::Limit { field: "hot index bytes", .. }));
}

#[test]
fn the_last_chunk_is_told_when_it_is_needed() {
    let mut builder = HotIndexBuilder::new();
    builder.needed_by(5);
    for lba in 0..3 {
        builder.push(&STORED, Codec::Zstd, &[BlockRange::new(Lba(lba), 1)]);
        builder.needed_by(10 + lba as u32);
    }
    let index = builder.finish(3).expect("disjoint runs");
    assert_eq!(index.chunks.iter().map(|hot| hot.needed_ms).collect::<Vec<_>>(), [10, 11, 12]);
}

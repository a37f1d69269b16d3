//! Tables that break a rule although every digest is right: what an attacker who can name the image, or a
//! broken builder, makes.

use hs_format::*;
use hs_units::{ByteRange, Lba};
use proptest::prelude::*;

use crate::sample::Sample;

/// Overwrites bytes of a table.
fn patch(table: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut patched = table.to_vec();
    patched[at..at + bytes.len()].copy_from_slice(bytes);
    patched
}

fn decode_root(bytes: &[u8]) -> Result<ColdRoot, FormatError> {
    let mut superblock = Sample::small().superblock.clone();
    superblock.cold.root.len = bytes.len() as u64;
    superblock.cold.root_digest = ColdRoot::digest_of(bytes);
    ColdRoot::decode(Unverified::new(bytes), &superblock)
}

fn decode_leaf(bytes: &[u8], number: u64) -> Result<ColdLeaf, FormatError> {
    let leaf = LeafRef::of_encoded(0, bytes);
    ColdLeaf::decode(Unverified::new(bytes), number, &leaf, &Sample::small().superblock)
}

fn resealed(bytes: &[u8]) -> (HotSegment, Superblock) {
    let superblock = Sample::small().superblock.clone();
    let mut segment = superblock.hot[0];
    segment.index.len = bytes.len() as u64;
    segment.index_digest = HotIndex::digest_of(bytes);
    (segment, superblock)
}

fn decode_hot(bytes: &[u8]) -> Result<HotIndex, FormatError> {
    let (segment, superblock) = resealed(bytes);
    HotIndex::decode(Unverified::new(bytes), &segment, &superblock)
}

fn decode_hints(bytes: &[u8]) -> Result<Hints, FormatError> {
    let superblock = Sample::small().superblock.clone();
    let mut segment = superblock.hot[0];
    segment.hints.len = bytes.len() as u64;
    segment.hints_digest = Hints::digest_of(bytes);
    Hints::decode(Unverified::new(bytes), &segment, &superblock)
}

/// Asserts that the result is this kind of error, about this field where one is given.
macro_rules! refuses {
    ($result:expr, $variant:ident $(, $field:literal)?) => {
        match $result {
            Err(FormatError::$variant { $(field: $field,)? .. }) => {}
            other => panic!("expected {} {:?}, found {other:?}", stringify!($variant), [$($field)?] as [&str; _]),
        }
    };
}

#[test]
// R12, R13
fn roots() {
    let sample = Sample::small();
    let (good, leaves_at) = (sample.root_bytes(), sample.superblock.cold.leaves_offset);
    assert!(decode_root(good).is_ok());
    // Leaves are 144 bytes; the entries are at 0, 48, 96 (zero) and 144.
    refuses!(decode_root(&patch(good, 48, &leaves_at.to_le_bytes())), Inconsistent, "leaf offset");
    let root_at = sample.superblock.cold.root.offset;
    refuses!(decode_root(&patch(good, 144, &root_at.to_le_bytes())), Inconsistent, "leaf offset");
    refuses!(decode_root(&patch(good, 0, &0_u64.to_le_bytes())), Inconsistent, "leaf offset");
    refuses!(decode_root(&patch(good, 0, &u64::MAX.to_le_bytes())), Inconsistent, "leaf offset");
    refuses!(decode_root(&patch(good, 8, &u32::MAX.to_le_bytes())), Inconsistent, "leaf bytes");
    refuses!(decode_root(&patch(good, 8, &96_u32.to_le_bytes())), Inconsistent, "leaf bytes");
    refuses!(decode_root(&patch(good, 8, &0_u32.to_le_bytes())), ReservedNotZero);
    refuses!(decode_root(&patch(good, 12, &[1])), ReservedNotZero);
    refuses!(decode_root(&patch(good, 96 + 47, &[1])), ReservedNotZero);
    let named = decode_root(&patch(good, 48 + 12, &[1])).expect_err("a reserved byte of the second entry");
    assert!(matches!(named, FormatError::ReservedNotZero { offset: 60, found: 1, .. }), "{named}");
    // A leaf dropped: the next one does not follow, or the leaves end early.
    refuses!(decode_root(&patch(good, 0, &[0; 48])), Inconsistent, "leaf offset");
    refuses!(decode_root(&patch(good, 144, &[0; 48])), Inconsistent, "end of the leaves");
    // A leaf more than there is room for.
    let end = sample.superblock.cold.leaf_space().end();
    let fourth = [end.to_le_bytes().as_slice(), &144_u32.to_le_bytes()].concat();
    let dropped_last = patch(&patch(good, 96, &good[144..]), 144, &fourth);
    refuses!(decode_root(&dropped_last), OutOfBounds, "leaf");
    refuses!(decode_root(&good[48..]), Inconsistent, "leaves");
    refuses!(decode_root(&good[1..]), Inconsistent, "leaves");
    refuses!(decode_root(&[]), Inconsistent, "leaves");
}

#[test]
// R31
fn composed_chunks_without_a_base() {
    let sample = Sample::small();
    let leaf = patch(sample.leaf_bytes(0), 12, &[5]);
    refuses!(decode_leaf(&leaf, 0), MisplacedComposed);
    let mut superblock = sample.superblock.clone();
    superblock.base = Some(BaseRef { disk_digest: superblock.disk_digest, disk_bytes: 4096 });
    let reference = LeafRef::of_encoded(0, &leaf);
    assert!(ColdLeaf::decode(Unverified::new(&leaf), 0, &reference, &superblock).is_ok());
    // A hot chunk is never composed: a reader without the base has the hot region.
    let (mut segment, _) = resealed(&[]);
    let index = patch(sample.bytes(sample.superblock.hot[0].index), 32 + 16, &[5]);
    segment.index = ByteRange::new(0, index.len() as u64);
    segment.index_digest = HotIndex::digest_of(&index);
    refuses!(HotIndex::decode(Unverified::new(&index), &segment, &superblock), MisplacedComposed);
}

#[test]
// R14, R15, R16
fn leaves() {
    let sample = Sample::small();
    let good = sample.leaf_bytes(0);
    let chunks_end = sample.superblock.cold.leaves_offset;
    assert!(decode_leaf(good, 0).is_ok());
    // Windows 0 and 1 are chunks, window 2 is zero; entries are 48 bytes.
    refuses!(decode_leaf(&patch(good, 0, &chunks_end.to_le_bytes()), 0), OutOfBounds, "chunk");
    refuses!(decode_leaf(&patch(good, 0, &u64::MAX.to_le_bytes()), 0), OutOfBounds, "chunk");
    refuses!(decode_leaf(&patch(good, 8, &8193_u32.to_le_bytes()), 0), Limit, "stored bytes");
    refuses!(decode_leaf(&patch(good, 8, &u32::MAX.to_le_bytes()), 0), Limit, "stored bytes");
    refuses!(decode_leaf(&patch(good, 12, &[1]), 0), Inconsistent, "stored bytes of codec store");
    refuses!(decode_leaf(&patch(good, 12, &[0]), 0), UnknownCodec);
    refuses!(decode_leaf(&patch(good, 12, &[6]), 0), UnknownCodec);
    refuses!(decode_leaf(&patch(good, 14, &[1]), 0), ReservedNotZero);
    let named = decode_leaf(&patch(good, 48 + 14, &[1]), 0).expect_err("flags of the second window");
    assert!(matches!(named, FormatError::ReservedNotZero { offset: 62, found: 1, .. }), "{named}");
    refuses!(decode_leaf(&patch(good, 96, &[1]), 0), ReservedNotZero);
    refuses!(decode_leaf(&patch(good, 96 + 47, &[1]), 0), ReservedNotZero);
    // The chunk of window 1 starts inside that of window 0.
    refuses!(decode_leaf(&patch(good, 48, &1_u64.to_le_bytes()), 0), Overlap);
    // The same place with another digest, another length, another codec.
    let first = &good[..48];
    assert!(decode_leaf(&patch(good, 48, first), 0).is_ok(), "sharing wholly is allowed");
    refuses!(decode_leaf(&patch(&patch(good, 48, first), 48 + 16, &[!good[16]]), 0), Overlap);
    refuses!(decode_leaf(&patch(&patch(good, 48, first), 48 + 8, &[1]), 0), Overlap);
    // The short last window may not share the chunk of a whole one.
    let last = sample.leaf_bytes(3);
    assert!(decode_leaf(last, 3).is_ok());
    refuses!(decode_leaf(&patch(last, 96, &last[..48]), 3), Overlap);
    // Another count of windows, and a leaf that the disk does not have.
    refuses!(decode_leaf(&good[48..], 0), Size);
    refuses!(decode_leaf(&good[1..], 0), Size);
    refuses!(decode_leaf(&[], 0), Size);
    refuses!(decode_leaf(good, 4), Size);
    refuses!(decode_leaf(&[], u64::MAX), Size);
}

#[test]
// R16
fn coverage_sees_what_no_leaf_does() {
    let sample = Sample::small();
    let decode = |number: usize, bytes: &[u8]| decode_leaf(bytes, number as u64).expect("a good leaf");
    let finish = |leaves: &[ColdLeaf], distinct_chunks: u64| {
        let mut coverage = ColdCoverage::new();
        leaves.iter().for_each(|leaf| coverage.add(leaf));
        let mut superblock = sample.superblock.clone();
        superblock.cold.distinct_chunks = distinct_chunks;
        coverage.finish(&superblock)
    };
    let [zero, one, three] = [0, 1, 3].map(|number| decode(number, sample.leaf_bytes(number)));
    assert_eq!(finish(&[zero.clone(), one.clone(), three.clone()], 4), Ok(()));
    refuses!(finish(&[zero.clone(), one.clone(), three.clone()], 3), Inconsistent, "distinct cold chunks");
    refuses!(finish(&[zero.clone(), one.clone()], 3), Gap);
    refuses!(finish(&[one.clone(), three.clone()], 2), Gap);
    let overlapping = decode(1, &patch(sample.leaf_bytes(1), 0, &1_u64.to_le_bytes()));
    refuses!(finish(&[zero, overlapping, three], 5), Overlap);
}

#[test]
// R17
fn hot_headers() {
    let sample = Sample::small();
    let good = sample.bytes(sample.superblock.hot[0].index);
    assert!(decode_hot(good).is_ok());
    refuses!(decode_hot(&patch(good, 0, b"HSIMAGE\0")), BadMagic);
    refuses!(decode_hot(&patch(good, 8, &u32::MAX.to_le_bytes())), Inconsistent, "chunk count");
    refuses!(decode_hot(&patch(good, 12, &u32::MAX.to_le_bytes())), Size);
    refuses!(decode_hot(&patch(good, 12, &2_u32.to_le_bytes())), Size);
    refuses!(decode_hot(&patch(good, 16, &5_u64.to_le_bytes())), Inconsistent, "blocks");
    refuses!(decode_hot(&patch(good, 24, &u64::MAX.to_le_bytes())), Inconsistent, "chunks bytes");
    refuses!(decode_hot(&good[..31]), Size);
    refuses!(decode_hot(&[]), Size);
    refuses!(decode_hot(&[good, &[0]].concat()), Size);
    // Counts that agree with the superblock and are absurd all the same: nothing is allocated for them.
    let huge = patch(good, 8, &[0xff; 8]);
    let (mut segment, superblock) = resealed(&huge);
    segment.chunk_count = u32::MAX;
    refuses!(HotIndex::decode(Unverified::new(&huge), &segment, &superblock), Size);
}

#[test]
// R18, R19, R20, R23, R24
fn hot_chunks() {
    let sample = Sample::small();
    let good = sample.bytes(sample.superblock.hot[0].index);
    // Two chunks at 32 and 96; the first has extents 0 and 1 (two blocks), the second extent 2 (two blocks).
    let chunk = |at: usize, bytes: &[u8]| decode_hot(&patch(good, at, bytes));
    refuses!(chunk(32, &1_u64.to_le_bytes()), Inconsistent, "chunk offset");
    refuses!(chunk(96, &0_u64.to_le_bytes()), Inconsistent, "chunk offset");
    refuses!(chunk(96, &u64::MAX.to_le_bytes()), Inconsistent, "chunk offset");
    refuses!(chunk(40, &u32::MAX.to_le_bytes()), Limit, "stored bytes");
    refuses!(chunk(40, &8192_u32.to_le_bytes()), OutOfBounds, "chunk");
    refuses!(chunk(40, &0_u32.to_le_bytes()), Limit, "stored bytes");
    refuses!(chunk(44, &u32::MAX.to_le_bytes()), Limit, "raw bytes");
    refuses!(chunk(44, &12_288_u32.to_le_bytes()), Inconsistent, "raw bytes");
    refuses!(chunk(44, &8191_u32.to_le_bytes()), Inconsistent, "raw bytes past the last whole block");
    refuses!(chunk(48, &[7]), UnknownCodec);
    refuses!(chunk(48, &[1]), Inconsistent, "stored bytes of codec store");
    refuses!(chunk(50, &[1]), ReservedNotZero);
    assert!(matches!(chunk(96 + 18, &[1]), Err(FormatError::ReservedNotZero { offset: 114, .. })));
    // By when it is needed is any number.
    assert_eq!(chunk(60, &[1]).expect("an index").chunks[0].needed_ms, 1);
    refuses!(chunk(52, &[1]), Inconsistent, "first extent");
    // The second chunk over the extents of the first one.
    refuses!(chunk(96 + 20, &[1]), Inconsistent, "first extent");
    refuses!(chunk(96 + 20, &u32::MAX.to_le_bytes()), Inconsistent, "first extent");
    refuses!(chunk(56, &[0; 4]), Limit, "extent count");
    refuses!(chunk(56, &u32::MAX.to_le_bytes()), Limit, "extent count");
    refuses!(chunk(96 + 24, &[2]), Limit, "extent count");
    let stored = u32::from_le_bytes(good[104..108].try_into().expect("four bytes"));
    refuses!(chunk(104, &(stored - 1).to_le_bytes()), Inconsistent, "chunks bytes");
}

#[test]
// R56
fn borrowed_chunks() {
    let sample = Sample::small();
    let good = sample.bytes(sample.superblock.hot[0].index);
    // The first of two chunks is borrowed, so the second one begins where it would.
    let own = u32::from_le_bytes(good[104..108].try_into().expect("four bytes"));
    let index = patch(good, 50, &[1]);
    let index = patch(&patch(&index, 96, &[0; 8]), 24, &u64::from(own).to_le_bytes());
    let decode = |bytes: &[u8], borrows| {
        let (mut segment, mut superblock) = resealed(bytes);
        segment.chunks.len = own.into();
        superblock.features = superblock.features.of_borrowed(borrows);
        HotIndex::decode(Unverified::new(bytes), &segment, &superblock)
    };
    let found = decode(&index, true).expect("an index");
    assert!(found.chunks[0].is_borrowed && !found.chunks[1].is_borrowed);
    assert_eq!(found.chunks_bytes(), u64::from(own));
    assert_eq!(found.encode(), index, "one index has one encoding");
    refuses!(decode(&index, false), ReservedNotZero);
    for (at, flag) in [(50, 2), (50, 3), (50, 0x81), (51, 1)] {
        refuses!(decode(&patch(&index, at, &[flag]), true), ReservedNotZero);
    }
    // Borrowed or not, a chunk has its bytes, and its place is that of the next own one.
    refuses!(decode(&patch(&index, 40, &[0; 4]), true), Limit, "stored bytes");
    refuses!(decode(&patch(&index, 40, &u32::MAX.to_le_bytes()), true), Limit, "stored bytes");
    refuses!(decode(&patch(&index, 32, &[1]), true), Inconsistent, "chunk offset");
    refuses!(decode(&patch(&index, 64, &[0; 32]), true), ChunkDigest);
}

#[test]
// R60
fn stale_blocks() {
    let sample = Sample::small();
    let good = sample.bytes(sample.superblock.hot[0].index);
    let plain = decode_hot(good).expect("an index");
    let (number, hot) = (0..).zip(&plain.chunks).find(|(_, hot)| hot.extent_count > 1).expect("two extents");
    let place = |extent: usize| 160 + 8 * (hot.first_extent as usize + extent);
    let extents = plain.extents_of(number);
    // Extents of the chunk are stale, and do not count as blocks of the disk.
    let with_stale = |stale: &[usize]| {
        let (mut index, mut blocks) = (good.to_vec(), plain.blocks());
        for &extent in stale {
            index = patch(&index, place(extent), &[0xff; 4]);
            blocks -= extents[extent].count;
        }
        (patch(&index, 16, &blocks.to_le_bytes()), blocks)
    };
    let decode = |(bytes, blocks): (Vec<u8>, u64), has_stale| {
        let (mut segment, mut superblock) = resealed(&bytes);
        segment.blocks = blocks;
        superblock.features = superblock.features.of_stale(has_stale);
        HotIndex::decode(Unverified::new(&bytes), &segment, &superblock)
    };
    let found = decode(with_stale(&[0]), true).expect("an index");
    assert_eq!(found.encode(), with_stale(&[0]).0, "one index has one encoding");
    assert_eq!(found.extents_of(number), &extents[1..]);
    assert_eq!(found.runs_of(number)[0], HotRun::Stale(extents[0].count));
    assert_eq!(u64::from(found.chunks[number as usize].stale_blocks), extents[0].count);
    let place_of_second = found.lookup(extents[1].start).expect("hot");
    assert_eq!((place_of_second.chunk, place_of_second.block_in_chunk), (number, 0));
    assert_eq!(found.lookup(extents[0].start), None);
    refuses!(decode(with_stale(&[0]), false), OutsideDisk);
    let (index, blocks) = with_stale(&[0]);
    refuses!(decode((patch(&index, place(0) + 4, &[0; 4]), blocks), true), Limit, "stale blocks");
    let (index, blocks) = with_stale(&[0]);
    let more = (extents[0].count as u32 + 1).to_le_bytes();
    refuses!(decode((patch(&index, place(0) + 4, &more), blocks), true), Inconsistent, "raw bytes");
    let all: Vec<usize> = (0..extents.len()).collect();
    assert!(decode(with_stale(&all), true).is_err());
    refuses!(decode(with_stale(&all[..2]), true), Inconsistent, "stale blocks behind stale ones");
}

#[test]
// R21
fn hot_extents() {
    let sample = Sample::small();
    let good = sample.bytes(sample.superblock.hot[0].index);
    // Extents at 160, 168 and 176: blocks 22+1, 3+1 and 6+2 of a disk of 23.
    let extent = |at: usize, lba: u32, blocks: u32| {
        decode_hot(&patch(good, at, &[lba.to_le_bytes(), blocks.to_le_bytes()].concat()))
    };
    assert!(extent(160, 22, 1).is_ok() && extent(160, 8, 1).is_ok());
    refuses!(extent(160, 23, 1), OutsideDisk);
    refuses!(extent(160, u32::MAX, u32::MAX), OutsideDisk);
    refuses!(extent(160, 22, 0), OutsideDisk);
    refuses!(extent(160, 0, 2), Inconsistent, "raw bytes");
    refuses!(extent(160, 3, 1), ExtentsOverlap);
    refuses!(extent(160, 7, 1), ExtentsOverlap);
    refuses!(extent(176, 2, 2), ExtentsOverlap);
}

#[test]
// R22
fn hints() {
    let sample = Sample::small();
    let good = sample.superblock.hot[0];
    let bytes = sample.bytes(good.hints);
    assert!(decode_hints(bytes).is_ok() && decode_hints(&[]).is_ok());
    refuses!(decode_hints(&bytes[1..]), Inconsistent);
    let hint =
        |lba, page, blocks| Hints(vec![Hint { lba: Lba(lba), inode: u64::MAX, page, blocks }]).encode();
    assert!(decode_hints(&hint(22, u32::MAX, 1)).is_ok());
    refuses!(decode_hints(&hint(23, 0, 1)), OutsideDisk);
    refuses!(decode_hints(&hint(0, 0, 0)), OutsideDisk);
    refuses!(decode_hints(&hint(0, 0, u32::MAX)), OutsideDisk);
    refuses!(decode_hints(&hint(0, u32::MAX, 2)), Limit);
}

#[test]
fn a_table_of_one_kind_is_not_one_of_another() {
    let bytes = [0; 144];
    let digests = [
        ColdRoot::digest_of(&bytes),
        LeafRef::digest_of(&bytes),
        HotIndex::digest_of(&bytes),
        Hints::digest_of(&bytes),
    ];
    for (i, digest) in digests.iter().enumerate() {
        assert!(!digests[..i].contains(digest) && *digest != chunk_digest(&bytes), "digest {i}");
    }
}

#[test]
fn messages_say_expected_and_found() {
    let sample = Sample::small();
    let root = sample.root_bytes();
    let good = sample.bytes(sample.superblock.hot[0].index);
    let chunk = ChunkRef { range: ByteRange::new(1, 2), ..ChunkRef::of_stored(0, &[], Codec::Store, 4096) };
    let errors = [
        ColdRoot::decode(Unverified::new(&patch(root, 0, &[9; 8])), &sample.superblock).expect_err("damaged"),
        decode_root(&patch(root, 12, &[1])).expect_err("reserved"),
        decode_root(&patch(root, 48, &[0xff; 8])).expect_err("offset"),
        decode_leaf(&patch(sample.leaf_bytes(0), 48, &[1]), 0).expect_err("overlap"),
        decode_leaf(&patch(sample.leaf_bytes(0), 0, &[0xff; 8]), 0).expect_err("bounds"),
        decode_hot(&patch(good, 0, &[0xff; 8])).expect_err("magic"),
        decode_hot(&patch(good, 160, &[0xff; 8])).expect_err("disk"),
        decode_hot(&patch(good, 160, &[3, 0, 0, 0])).expect_err("extents"),
        Unverified::new(b"ab").verify(&chunk.expected()).expect_err("chunk"),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.contains("expected") && text.contains("found"), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever was changed, decoding ends, and what is accepted obeys the rules that readers rely on.
    #[test]
    fn patched_tables_do_not_panic(table in 0..4, patches in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6)) {
        let sample = Sample::small();
        let mut bytes = match table {
            0 => sample.root_bytes(),
            1 => sample.leaf_bytes(0),
            2 => sample.bytes(sample.superblock.hot[0].index),
            _ => sample.bytes(sample.superblock.hot[0].hints),
        }.to_vec();
        for (at, value) in patches {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        match table {
            0 => drop(decode_root(&bytes)),
            1 => if let Ok(leaf) = decode_leaf(&bytes, 0) {
                let space = sample.superblock.cold.chunk_space();
                for window in leaf.windows() {
                    if let WindowRef::Chunk(chunk) = window {
                        prop_assert!(chunk.range.fits_in(space.end()) && chunk.raw_bytes == 8192);
                    }
                }
            },
            2 => if let Ok(index) = decode_hot(&bytes) {
                prop_assert!((0..30).filter(|&lba| index.lookup(Lba(lba)).is_some()).count() as u64 == index.blocks());
                prop_assert_eq!(index.encode(), bytes, "one index has one encoding");
            },
            _ => drop(decode_hints(&bytes)),
        }
    }
}

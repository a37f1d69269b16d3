//! Superblocks that break a rule although their checksum is right.

use hs_format::limits::*;
use hs_format::*;
use hs_units::{BLOCK_BYTES, ByteRange};
use proptest::prelude::*;

use crate::sample::Sample;

const CHECKSUM_AT: usize = SUPERBLOCK_BYTES - 32;

/// Overwrites bytes and makes the checksum right again.
fn patched(at: usize, bytes: &[u8]) -> Result<Superblock, FormatError> {
    let mut superblock = Sample::small().superblock.encode();
    superblock[at..at + bytes.len()].copy_from_slice(bytes);
    let checksum = blake3::hash(&superblock[..CHECKSUM_AT]);
    superblock[CHECKSUM_AT..].copy_from_slice(checksum.as_bytes());
    Superblock::decode(Unverified::new(&superblock))
}

/// Decodes what `change` makes of a good superblock, and asserts that `check_file` agrees.
fn changed(change: impl FnOnce(&mut Superblock)) -> Result<Superblock, FormatError> {
    let mut superblock = Sample::small().superblock.clone();
    change(&mut superblock);
    let decoded = Superblock::decode(Unverified::new(&superblock.encode()));
    assert_eq!(superblock.check_file(superblock.image_bytes).err(), decoded.clone().err());
    decoded
}

macro_rules! refuses {
    ($result:expr, $variant:ident $(, $field:literal)?) => {
        match $result {
            Err(FormatError::$variant { $(field: $field,)? .. }) => {}
            other => panic!("expected {} {:?}, found {other:?}", stringify!($variant), [$($field)?] as [&str; _]),
        }
    };
}

#[test]
// R5, R7
fn identity() {
    assert!(patched(0, b"HSIMAGE\0").is_ok());
    refuses!(patched(0, b"hsqs"), BadMagic);
    let part = Part::Superblock;
    assert_eq!(patched(8, &[2]), Err(FormatError::UnsupportedVersion { part, expected: 1, found: 2 }));
    refuses!(patched(8, &[0]), UnsupportedVersion);
    refuses!(patched(12, &8192_u32.to_le_bytes()), Inconsistent, "superblock bytes");
    assert_eq!(patched(16, &[16]), Err(FormatError::UnknownFeatures { known: 15, found: 16 }));
    refuses!(patched(23, &[0x80]), UnknownFeatures);
    // A feature may give a meaning to what is reserved here: it is named first.
    let mut both = [0; 112];
    (both[0], both[108]) = (16, 1);
    both[8..108].copy_from_slice(&Sample::small().superblock.encode()[24..124]);
    refuses!(patched(16, &both), UnknownFeatures);
    assert!(patched(24, &[0xff; 8]).is_ok(), "compatible features are ignored");
}

#[test]
// R30
fn bases() {
    let with_base = |disk_bytes| {
        changed(|s| {
            let base = BaseRef { disk_digest: s.disk_digest, disk_bytes };
            (s.features, s.base) = (Features::of_base(Some(&base)), Some(base));
        })
    };
    let good = with_base(MAX_DISK_BYTES).expect("a base");
    assert_eq!(good.base.map(|base| base.disk_bytes), Some(MAX_DISK_BYTES));
    assert_eq!(Superblock::decode(Unverified::new(&good.encode())), Ok(good));
    refuses!(with_base(0), Limit, "disk bytes of the base");
    refuses!(with_base(BLOCK_BYTES + 1), Inconsistent, "bytes past the base's last whole block");
    refuses!(with_base(MAX_DISK_BYTES + BLOCK_BYTES), Limit, "disk bytes of the base");
    // The feature without a base, and a base without the feature.
    refuses!(patched(16, &[1]), Limit, "disk bytes of the base");
    refuses!(patched(1840, &[1]), ReservedNotZero);
}

#[test]
// R56
fn borrowing() {
    refuses!(patched(16, &[4]), Limit, "feature borrowed without a base");
    refuses!(patched(16, &[6]), Limit, "feature borrowed without a base");
    let borrowing = |chunks_bytes| {
        changed(|s| {
            let base = BaseRef { disk_digest: s.disk_digest, disk_bytes: BLOCK_BYTES };
            (s.features, s.base) = (Features::of_base(Some(&base)).of_borrowed(true), Some(base));
            // Behind it there may be padding, as this is less than a block.
            s.hot[1].chunks.len = chunks_bytes;
        })
    };
    assert_eq!(borrowing(0).expect("all of it is borrowed").hot[1].chunks.len, 0);
    refuses!(borrowing(2 * BLOCK_BYTES + 1), Limit, "hot chunks bytes");
    // Without the feature each chunk has a byte or more.
    refuses!(changed(|s| s.hot[1].chunks.len = 0), Limit, "hot chunks bytes");
}

#[test]
// R1
fn reserved_bytes() {
    let sample = &Sample::small().superblock;
    let unused_slots = 176 + 104 * sample.hot.len()..1840;
    let signature_reserved = 3986..3992;
    for range in [124..128, 170..176, unused_slots, 1840..3984, signature_reserved, 3992..4064] {
        for at in range {
            let found = patched(at, &[1]);
            let expected =
                FormatError::ReservedNotZero { part: Part::Superblock, offset: at as u64, found: 1 };
            assert_eq!(found, Err(expected), "byte {at}");
        }
    }
    // With a signature, its reserved bytes stay reserved.
    refuses!(patched(3984, &[1, 0, 0, 0, 0, 0, 0, 1]), ReservedNotZero);
    assert!(patched(3984, &[0xff, 0xff, 0, 0, 0, 0, 0, 0, 1, 2, 3]).is_ok());
}

#[test]
// R2, R4, R8
fn sizes() {
    refuses!(changed(|s| s.disk_bytes = 0), Limit, "disk bytes");
    refuses!(changed(|s| s.disk_bytes += 1), Inconsistent);
    refuses!(changed(|s| s.disk_bytes = MAX_DISK_BYTES + BLOCK_BYTES), Limit, "disk bytes");
    refuses!(changed(|s| s.disk_bytes = MAX_DISK_BYTES), Limit, "leaves");
    refuses!(changed(|s| s.disk_bytes *= 2), Inconsistent, "cold root bytes");
    refuses!(changed(|s| s.image_bytes = 0), Limit, "image bytes");
    refuses!(changed(|s| s.image_bytes = u64::MAX), Limit, "image bytes");
    refuses!(changed(|s| s.image_bytes -= 1), Overlap);
    refuses!(changed(|s| s.image_bytes += BLOCK_BYTES), Gap);
    assert!(changed(|s| s.image_bytes += BLOCK_BYTES - 1).is_ok(), "padding is allowed");
    let superblock = Sample::small().superblock.clone();
    let error = superblock.check_file(superblock.image_bytes - 1);
    refuses!(error, Size);
}

#[test]
// R3, R9, R10
fn cold_regions() {
    refuses!(changed(|s| s.cold.window_blocks = 0), Limit, "window blocks");
    refuses!(changed(|s| s.cold.window_blocks = MAX_WINDOW_BLOCKS + 1), Limit, "window blocks");
    refuses!(changed(|s| s.cold.windows_per_leaf = 0), Limit, "windows per leaf");
    refuses!(changed(|s| s.cold.windows_per_leaf = u32::MAX), Limit, "windows per leaf");
    refuses!(changed(|s| s.cold.windows_per_leaf = 1), Inconsistent, "cold root bytes");
    refuses!(changed(|s| s.cold.range.offset = u64::MAX), OutOfBounds, "cold region");
    refuses!(changed(|s| s.cold.range.len = u64::MAX), OutOfBounds, "cold region");
    refuses!(changed(|s| s.cold.range.offset = 0), Overlap);
    refuses!(changed(|s| s.cold.range.offset = s.hot[1].range().offset), Overlap);
    refuses!(changed(|s| s.cold.range.offset += 1), Overlap);
    refuses!(changed(|s| s.cold.root.len = 48), Inconsistent, "cold root bytes");
    refuses!(changed(|s| s.cold.root.offset += 1), OutOfBounds, "cold root");
    refuses!(changed(|s| s.cold.root.offset = u64::MAX), OutOfBounds, "cold root");
    refuses!(changed(|s| s.cold.root.offset -= 1), Inconsistent, "cold region bytes");
    refuses!(changed(|s| s.cold.leaves_offset = s.cold.root.offset + 1), Limit, "cold leaves offset");
    refuses!(changed(|s| s.cold.distinct_chunks = 0), Limit, "distinct cold chunks");
    refuses!(changed(|s| s.cold.distinct_chunks = 13), Limit, "distinct cold chunks");
    refuses!(changed(|s| s.cold.leaves_offset = 0), Limit, "distinct cold chunks");
}

#[test]
// R11
fn hot_segments() {
    refuses!(patched(168, &[17, 0]), Limit, "hot segments");
    refuses!(patched(168, &[0xff, 0xff]), Limit, "hot segments");
    refuses!(patched(168, &[3, 0]), Limit, "hot blocks");
    refuses!(patched(168, &[1, 0]), ReservedNotZero);
    refuses!(changed(|s| s.hot[0].blocks = 0), Limit, "hot blocks");
    refuses!(changed(|s| s.hot[0].blocks = 24), Limit, "hot blocks");
    refuses!(changed(|s| s.hot[0].chunk_count = 0), Limit, "hot chunks");
    refuses!(changed(|s| s.hot[0].chunk_count = u32::MAX), Limit, "hot chunks");
    refuses!(changed(|s| s.hot[0].chunk_count = 4), Limit, "hot index bytes");
    refuses!(patched(184, &u32::MAX.to_le_bytes()), Limit, "hot index bytes");
    refuses!(patched(188, &u32::MAX.to_le_bytes()), Limit, "hints bytes");
    refuses!(patched(188, &[21]), Inconsistent);
    refuses!(patched(192, &u64::MAX.to_le_bytes()), Limit, "hot chunks bytes");
    refuses!(patched(192, &(4 * BLOCK_BYTES + 1).to_le_bytes()), Limit, "hot chunks bytes");
    refuses!(patched(192, &[1, 0, 0, 0, 0, 0, 0, 0]), Limit, "hot chunks bytes");
    refuses!(patched(176, &u64::MAX.to_le_bytes()), OutOfBounds, "hot index");
    refuses!(patched(176, &(u64::MAX - 300).to_le_bytes()), OutOfBounds, "hot index");
    refuses!(patched(176, &0_u64.to_le_bytes()), Overlap);
    // The second segment at the place of the first: an alias.
    let first = Sample::small().superblock.hot[0].index.offset;
    refuses!(patched(176 + 104, &first.to_le_bytes()), Overlap);
}

#[test]
// R60
fn chunks_bytes_with_stale_blocks() {
    // More than the blocks of the disk are, and as many as the chunks may have: more than the file has.
    let of = |bytes: u64, has_stale: bool| {
        changed(|s| {
            s.features = s.features.of_stale(has_stale);
            s.hot[0].chunks.len = bytes;
        })
    };
    let chunks = u64::from(Sample::small().superblock.hot[0].chunk_count);
    refuses!(of(4 * BLOCK_BYTES + 1, false), Limit, "hot chunks bytes");
    refuses!(of(chunks << 22, true), OutOfBounds, "hot chunks");
    refuses!(of((chunks << 22) + 1, true), Limit, "hot chunks bytes");
}

#[test]
// R36
fn tables_of_all_hot_segments() {
    // Eight segments of the same shape, one after another: only what their tables have together is too much.
    let forged = |index_bytes: u64, hints_bytes: u64| {
        changed(|s| {
            let at = s.hot[0].index.offset;
            let chunks = s.hot[0].chunks.len;
            let hot = |number: u64| {
                let index = ByteRange::new(at + number * (index_bytes + hints_bytes + chunks), index_bytes);
                let hints = ByteRange::new(index.end(), hints_bytes);
                HotSegment { index, hints, chunks: ByteRange::new(hints.end(), chunks), ..s.hot[0] }
            };
            s.hot = (0..8).map(hot).collect();
            s.cold.range.offset = s.hot[7].range().end();
            s.image_bytes = s.cold.range.end() + SUPERBLOCK_BYTES as u64;
        })
    };
    let (index, hints) = (u64::from(MAX_HOT_INDEX_BYTES) / 8, u64::from(MAX_HINTS_BYTES) / 160 * 20);
    assert_eq!(forged(index, hints).err(), None);
    refuses!(forged(index + 1, hints), Limit, "bytes of all hot indexes");
    refuses!(forged(index, hints + 20), Limit, "bytes of all hints");
}

#[test]
fn only_a_builder_can_tear_a_segment_apart() {
    let mut superblock = Sample::small().superblock.clone();
    superblock.hot[0].chunks.offset += 1;
    refuses!(superblock.check_file(superblock.image_bytes), Inconsistent, "hot chunks offset");
    let mut superblock = Sample::small().superblock.clone();
    superblock.hot[0].hints.offset -= 1;
    refuses!(superblock.check_file(superblock.image_bytes), Inconsistent, "hints offset");
    let mut superblock = Sample::small().superblock.clone();
    superblock.hot = vec![superblock.hot[0]; 17];
    refuses!(superblock.check_file(superblock.image_bytes), Limit, "hot segments");
}

#[test]
fn regions_stand_in_any_order() {
    let mut superblock = Sample::small().superblock.clone();
    superblock.hot.reverse();
    assert_eq!(Superblock::decode(Unverified::new(&superblock.encode())), Ok(superblock.clone()));
    // The cold region first, one segment at the end.
    superblock.hot.truncate(1);
    superblock.cold.range = ByteRange::new(4096, superblock.cold.range.len);
    let shift = superblock.cold.range.end();
    let segment = &mut superblock.hot[0];
    segment.index.offset = shift;
    segment.hints.offset = segment.index.end();
    segment.chunks.offset = segment.hints.end();
    superblock.image_bytes = segment.range().end() + 4096;
    assert_eq!(Superblock::decode(Unverified::new(&superblock.encode())), Ok(superblock));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever stands in the fields, decoding ends, and what is accepted encodes to the same bytes and lies
    /// in the file.
    #[test]
    fn patched_superblocks_do_not_panic(patches in proptest::collection::vec((8_usize..400, any::<u8>()), 1..5)) {
        let mut bytes = Sample::small().superblock.encode();
        for (at, value) in patches {
            bytes[at] = value;
        }
        let checksum = blake3::hash(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(checksum.as_bytes());
        if let Ok(superblock) = Superblock::decode(Unverified::new(&bytes)) {
            prop_assert_eq!(superblock.encode(), bytes);
            prop_assert_eq!(superblock.check_file(superblock.image_bytes), Ok(()));
            prop_assert!(superblock.cold.range.fits_in(superblock.image_bytes));
            prop_assert!(superblock.hot.iter().all(|segment| segment.range().fits_in(superblock.image_bytes)));
        }
    }
}

//! One byte changed, anywhere.

use hs_format::limits::SUPERBLOCK_BYTES;
use hs_format::*;
use hs_units::ByteRange;

use crate::reader::read_image;
use crate::sample::Sample;

/// Every byte of `bytes`, one at a time, with all its bits flipped and with only one.
fn flips(bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> + '_ {
    (0..bytes.len()).flat_map(move |at| {
        [0xff, 1 << (at % 8)].map(|mask| {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= mask;
            (at, damaged)
        })
    })
}

#[test]
// R6
fn any_byte_of_the_superblock() {
    let sample = Sample::small();
    for (at, damaged) in flips(&sample.superblock.encode()) {
        assert!(Superblock::decode(Unverified::new(&damaged)).is_err(), "byte {at}");
    }
}

#[test]
fn any_byte_of_root_leaf_hot_index_and_hints() {
    let sample = Sample::small();
    let (superblock, root) = (&sample.superblock, sample.root());
    for (at, damaged) in flips(sample.root_bytes()) {
        let error = ColdRoot::decode(Unverified::new(&damaged), superblock);
        assert!(matches!(error, Err(FormatError::DigestMismatch { part: Part::ColdRoot, .. })), "byte {at}");
    }
    for (at, damaged) in flips(sample.leaf_bytes(1)) {
        let error = ColdLeaf::decode(Unverified::new(&damaged), 1, &root.leaves[1], superblock);
        let part = Part::ColdLeaf { leaf: 1 };
        assert!(matches!(error, Err(FormatError::DigestMismatch { part: p, .. }) if p == part), "byte {at}");
    }
    let segment = &superblock.hot[0];
    for (at, damaged) in flips(sample.bytes(segment.index)) {
        let error = HotIndex::decode(Unverified::new(&damaged), segment, superblock);
        assert!(matches!(error, Err(FormatError::DigestMismatch { .. })), "byte {at}");
    }
    for (at, damaged) in flips(sample.bytes(segment.hints)) {
        let error = Hints::decode(Unverified::new(&damaged), segment, superblock);
        assert!(matches!(error, Err(FormatError::DigestMismatch { .. })), "byte {at}");
    }
}

/// A whole read meets every byte but the mirror and the padding, of which nothing is served.
#[test]
fn any_byte_of_the_image() {
    let sample = Sample::small();
    let superblock = &sample.superblock;
    let hot_end = superblock.hot.iter().map(|segment| segment.range().end()).max().unwrap_or(0);
    let padding = ByteRange::new(hot_end, superblock.cold.range.offset - hot_end);
    let unread = |at: usize| {
        [padding, superblock.mirror()].iter().any(|range| (range.offset..range.end()).contains(&(at as u64)))
    };
    let mut image = sample.image.clone();
    for at in 0..image.len() {
        image[at] ^= 0xff;
        match read_image(&image) {
            Ok(disk) => assert!(unread(at) && disk == sample.disk, "byte {at} of {}", image.len()),
            Err(_) => assert!(!unread(at), "byte {at} of {}", image.len()),
        }
        image[at] ^= 0xff;
    }
}

#[test]
fn any_truncation_of_the_image() {
    let sample = Sample::small();
    for len in (0..sample.image.len()).step_by(61) {
        assert!(read_image(&sample.image[..len]).is_err(), "{len} bytes");
    }
    let mut longer = sample.image.clone();
    longer.push(0);
    let (expected, found) = (sample.image.len() as u64, longer.len() as u64);
    assert_eq!(read_image(&longer), Err(FormatError::Size { part: Part::File, expected, found }));
}

#[test]
fn any_other_length_of_a_table() {
    let sample = Sample::small();
    let (superblock, segment) = (&sample.superblock, &sample.superblock.hot[0]);
    let (root, index) = (sample.root_bytes(), sample.bytes(segment.index));
    let leaf_ref = sample.root().leaves[0];
    for len in 0..root.len() {
        assert!(ColdRoot::decode(Unverified::new(&root[..len]), superblock).is_err());
    }
    for len in 0..index.len() {
        assert!(HotIndex::decode(Unverified::new(&index[..len]), segment, superblock).is_err());
    }
    for len in 0..sample.leaf_bytes(0).len() {
        assert!(
            ColdLeaf::decode(Unverified::new(&sample.leaf_bytes(0)[..len]), 0, &leaf_ref, superblock)
                .is_err()
        );
    }
    for len in 0..SUPERBLOCK_BYTES {
        assert!(Superblock::decode(Unverified::new(&sample.image[..len])).is_err());
    }
    assert!(Superblock::decode(Unverified::new(&sample.image[..SUPERBLOCK_BYTES + 1])).is_err());
}

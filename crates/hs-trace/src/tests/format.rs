//! The bytes of a profile.

use proptest::prelude::*;

use super::{any_profile, small};
use crate::{Profile, TraceError, columns};

/// Written by the first writer of version 1; every later version must read it.
const GOLDEN: &[u8] = include_bytes!("../../testdata/small-v1.hsp");

proptest! {
    #[test]
    fn every_profile_round_trips(profile in any_profile()) {
        let bytes = profile.encode().expect("a valid profile");
        prop_assert_eq!(Profile::decode(&bytes), Ok(profile));
    }
}

#[test]
fn the_golden_file_reads_as_ever() {
    assert_eq!(Profile::decode(GOLDEN), Ok(small()));
}

#[test]
fn the_empty_profile_round_trips() {
    let bytes = Profile::default().encode().expect("valid");
    assert_eq!(Profile::decode(&bytes), Ok(Profile::default()));
}

/// The bytes in front of compression, worked out by hand from docs/PROFILE.md, so that writer and
/// reader cannot drift together.
#[test]
fn the_sections_are_as_documented() {
    let profile = small();
    let text = [b"\x19".as_slice(), b"python3 -c 'import numpy'", b"\x0f", b"flat-10ms-25mbs"].concat();
    assert_eq!(columns::put_text(&profile), text);
    let reads = [
        // Arrival steps: 1000, 10,499,000, 0, 19,500,000.
        b"\xe8\x07\xb8\xe7\x80\x05\x00\xe0\x97\xa6\x09".as_slice(),
        // Starts from the end in front, zigzag: 0, +499, -33, +498.
        b"\x00\xe6\x07\x41\xe4\x07",
        // Counts less one.
        b"\x00\x1f\x01\x00",
        // Costs: 10,000,000, 11,000,000, 9, 0.
        b"\x80\xad\xe2\x04\xc0\xb1\x9f\x05\x09\x00",
    ];
    assert_eq!(columns::put_reads(&profile.reads), reads.concat());
    let files = [
        // Inodes, run counts, path lengths, paths.
        b"\xe7\x24\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01".as_slice(),
        b"\x02\x00",
        b"\x12\x03",
        "/usr/lib/a, \"b\".so/é".as_bytes(),
        // Starts: +500, -31; counts less one; pages: +8, -36.
        b"\xe8\x07\x3d",
        b"\x1d\x00",
        b"\x10\x47",
    ];
    assert_eq!(columns::put_files(&profile.files), files.concat());
}

#[test]
fn every_flipped_bit_is_found() {
    for at in 0..GOLDEN.len() {
        for bit in 0..8 {
            let mut bytes = GOLDEN.to_vec();
            bytes[at] ^= 1 << bit;
            let error = Profile::decode(&bytes).expect_err("an altered profile");
            let as_expected = match at {
                0..8 => matches!(error, TraceError::BadMagic { .. }),
                8..12 => matches!(error, TraceError::UnknownVersion { known: 1, .. }),
                12..256 => matches!(error, TraceError::HeaderDigest { .. }),
                _ => matches!(error, TraceError::BodyDigest { .. }),
            };
            assert!(as_expected, "byte {at} bit {bit}: {error}");
        }
    }
}

#[test]
fn every_truncation_and_any_surplus_is_found() {
    for len in 0..GOLDEN.len() {
        let expected = if len < 256 { 256 } else { GOLDEN.len() as u64 };
        let error = TraceError::Truncated { expected, found: len as u64 };
        assert_eq!(Profile::decode(&GOLDEN[..len]), Err(error));
    }
    let surplus = [GOLDEN, b"x"].concat();
    assert!(matches!(Profile::decode(&surplus), Err(TraceError::TrailingBytes { .. })));
}
